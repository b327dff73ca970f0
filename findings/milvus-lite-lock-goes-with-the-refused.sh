#!/usr/bin/env bash
# milvus-lite 2.5.1: a file that one process has open refuses the second process, and opens for the third.
#
# The lock is a file beside the data, and the process that was refused removes it as it ends. The next process finds no
# lock, so that two of them have the file open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet milvus-lite==2.5.1 pymilvus==2.5.18 'setuptools<82'
cd "$folder"
cat > open.py <<'PY'
import logging
import sys

from pymilvus import MilvusClient

logging.disable(logging.CRITICAL)
try:
    client = MilvusClient("t.db")
except Exception:
    print("refused", flush=True)
else:
    print("opened", flush=True)
    sys.stdin.read()
PY
"$folder/venv/bin/python" - <<'PY'
import os
import subprocess
import sys

pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
command = [sys.executable, "-W", "ignore", "open.py"]
said, locked, running = [], [], []
for number in range(3):
    process = subprocess.Popen(command, text=True, **pipes)
    said.append(process.stdout.readline().strip())
    if said[-1] == "refused":
        process.communicate()
    running.append(process)
    locked.append(os.path.exists(".t.db.lock"))
for process in running:
    if process.poll() is None:
        process.communicate()
print("three processes:", said, "| lock file after each:", locked)
assert said == ["opened", "refused", "opened"]
assert locked == [True, False, True]
PY

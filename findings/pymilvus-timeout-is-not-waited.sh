#!/usr/bin/env bash
# pymilvus 3.0.2: the timeout of a client does not wait for a server that is not there yet.
#
# MilvusClient(uri, timeout=5) tries for five seconds in 2.6.3, so a program may be started together with its server. In
# 3.0.2 it raises the same error, "server unavailable", within a fraction of a second.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/connect.py" <<'PY'
import logging
import socket
import time

import pymilvus

logging.disable(logging.CRITICAL)
with socket.socket() as free:  # a port where nobody listens
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
begin = time.monotonic()
try:
    pymilvus.MilvusClient(f"http://127.0.0.1:{port}", timeout=5)
except pymilvus.MilvusException as error:
    seconds = time.monotonic() - begin
    print(f"pymilvus {pymilvus.__version__}, timeout=5: code {error.code} after {seconds:.1f} s")
    assert error.code == 2
    if pymilvus.__version__ == "3.0.2":
        assert seconds < 2.5
    else:
        assert seconds >= 5
else:
    raise AssertionError("it connected")
PY
for version in 2.6.3 3.0.2; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet "pymilvus==$version" "setuptools==80.9.0"
    "$folder/$version/bin/python" "$folder/connect.py"
done

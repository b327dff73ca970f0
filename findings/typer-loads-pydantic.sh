#!/usr/bin/env bash
# typer 0.29.2: a program that takes one whole number loads pydantic to read it.
#
# typer 0.19.0 did not depend on it. Only --help still does without.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet typer==0.29.2
cat > "$folder/program.py" <<'PY'
import sys

import typer

def main(count: int = 1) -> None: ...

try:
    typer.run(main)
finally:
    print("pydantic loaded:", "pydantic" in sys.modules)
PY
said=$("$folder/venv/bin/python" "$folder/program.py" --help | tail -1)
echo "--help: $said"
test "$said" = "pydantic loaded: False"
said=$("$folder/venv/bin/python" "$folder/program.py" --count 2 | tail -1)
echo "--count 2: $said"
test "$said" = "pydantic loaded: True"
"$folder/venv/bin/pip" install --quiet typer==0.19.0
said=$("$folder/venv/bin/python" "$folder/program.py" --count 2 | tail -1)
echo "typer 0.19.0, --count 2: $said"
test "$said" = "pydantic loaded: False"

#!/usr/bin/env bash
# dp-accounting 0.6.0 and cattrs 26.2.1: beside a new cattrs pip takes an old dp-accounting, and NumPy 1.
#
# dp-accounting 0.6 caps attrs below 24, and this cattrs needs a newer one. pip goes back to dp-accounting 0.4.4, which
# has no such cap and holds NumPy below 2, and says nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --upgrade pip==26.1
install() {
  "$folder/venv/bin/pip" install --quiet --dry-run --ignore-installed --only-binary :all: \
    --python-version 3.12 --target "$folder/none" --report - "$@"
}
install dp-accounting==0.6.0 > "$folder/alone.json"
install dp-accounting cattrs==26.2.1 > "$folder/beside.json"
"$folder/venv/bin/python" - "$folder" <<'PY'
import json
import sys

def versions(name):
    with open(f"{sys.argv[1]}/{name}.json") as file:
        found = (entry["metadata"] for entry in json.load(file)["install"])
        return {each["name"]: each["version"] for each in found}

alone, beside = versions("alone"), versions("beside")
for name in ("dp-accounting", "attrs", "numpy"):
    print(f"{name}: {alone[name]} alone, {beside[name]} beside cattrs")
assert beside["dp-accounting"] == "0.4.4"
assert int(alone["numpy"].split(".")[0]) >= 2
assert beside["numpy"].startswith("1.26.")
PY

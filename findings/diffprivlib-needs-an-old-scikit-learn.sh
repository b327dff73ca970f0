#!/usr/bin/env bash
# diffprivlib 0.6.6 and scikit-learn 1.9.1: pip installs the two together, and no part of diffprivlib can be imported.
#
# The package imports its forests first, which take a name from scikit-learn's trees that is no longer there. It asks for
# scikit-learn 1.4 or newer, with no upper bound, so its mechanisms, which need no scikit-learn, are out of reach too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet diffprivlib==0.6.6 scikit-learn==1.9.1
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import requires

print([each for each in requires("diffprivlib") if each.startswith("scikit-learn")])
try:
    from diffprivlib.mechanisms import Laplace
except ImportError as error:
    print(error)
    assert "DOUBLE" in str(error)
else:
    raise SystemExit("it can be imported now")
PY

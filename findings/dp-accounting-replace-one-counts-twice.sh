#!/usr/bin/env bash
# dp-accounting 0.6.0: under REPLACE_ONE the PLD accountant doubles the sensitivity, the RDP one does not.
#
# The same Gaussian event, sigma 1, delta 1e-6: about 11.0 by privacy loss distributions, about 5.2 by
# Renyi divergences. The gap is no looseness of a bound: the larger one is for a sensitivity of 2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dp-accounting==0.6.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import dp_accounting
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

event = dp_accounting.GaussianDpEvent(1.0)
one = NeighboringRelation.REPLACE_ONE
pld = PLDAccountant(neighboring_relation=one).compose(event).get_epsilon(1e-6)
rdp = RdpAccountant(neighboring_relation=one).compose(event).get_epsilon(1e-6)
half = PLDAccountant(neighboring_relation=one).compose(dp_accounting.GaussianDpEvent(2.0))
print(f"PLD {pld:.2f}, RDP {rdp:.2f}; PLD at twice the sigma {half.get_epsilon(1e-6):.2f}")
assert abs(pld - 11.0) < 0.2 and abs(rdp - 5.2) < 0.2
assert half.get_epsilon(1e-6) < rdp
PY

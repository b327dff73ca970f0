#!/usr/bin/env bash
# opendp 0.16.0: with a known size and one contribution, a sum is released with next to no noise.
#
# The distance counts rows added and removed. Data of one size never differ by one such step, so a unit of one
# contribution has no sensitivity, and at an epsilon of 1 the noise has a scale of 3e-12. A changed row counts as two.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet opendp==0.16.0
"$folder/venv/bin/python" - <<'PY'
import opendp.prelude as dp

dp.enable_features("contrib")
rows = [float(number % 10) for number in range(100)]
domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(rows))
scales = {}
for contributions in (1, 2):
    context = dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=contributions),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
        domain=domain,
    )
    query = context.query().clamp((0.0, 10.0)).sum().laplace()
    scales[contributions] = query.param()
    released = query.release()
    print(f"{contributions} contributions: scale {scales[contributions]}, {released} of {sum(rows)}")
    assert contributions == 2 or abs(released - sum(rows)) < 1e-9
assert scales[1] < 1e-11
assert abs(scales[2] - 10) < 1e-6

bounded = dp.atom_domain(bounds=(0, 10))
for name, size in (("known", {"size": 100}), ("unknown", {})):
    total = (dp.vector_domain(bounded, **size), dp.symmetric_distance()) >> dp.t.then_sum()
    sensitivities = [total.map(distance) for distance in (1, 2, 3, 4)]
    print(f"{name} size: sensitivity at distances 1 to 4:", sensitivities)
    assert sensitivities == ([0, 10, 10, 20] if size else [10, 20, 30, 40])
PY

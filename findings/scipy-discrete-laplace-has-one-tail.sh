#!/usr/bin/env bash
# scipy 1.17.1: the upper tail of dlaplace, the noise of the geometric mechanism, is 0 from 37 on, the lower is not.
#
# The distribution is symmetric, so that the chance of more than 40 is that of less than -40. cdf gives the latter as
# 1e-18 and sf the former as 0, its logarithm as -infinity, and isf(1e-20) is infinity where ppf(1e-20) is -45. skellam,
# the difference of two Poisson numbers, does the same. laplace has both tails. The documentation says that sf is
# sometimes more accurate than 1 - cdf, and nothing of these two.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scipy==1.17.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy.stats import dlaplace, laplace, skellam

warnings.simplefilter("ignore")
for k in (10, 30, 40):
    lower = {"dlaplace": dlaplace.cdf(-k - 1, 1), "skellam": skellam.cdf(-k - 1, 5, 5), "laplace": laplace.cdf(-k)}
    upper = {"dlaplace": dlaplace.sf(k, 1), "skellam": skellam.sf(k, 5, 5), "laplace": laplace.sf(k)}
    exact = np.exp(-k - 1.0) / (1 + np.exp(-1.0))
    print(k, {name: f"{lower[name]:.3g} below, {upper[name]:.3g} above" for name in lower})
    assert np.isclose(lower["dlaplace"], exact, rtol=1e-9)
    assert np.isclose(lower["laplace"], upper["laplace"], rtol=1e-9)
    if k == 40:
        assert upper["dlaplace"] == upper["skellam"] == 0
        assert lower["dlaplace"] > 1e-18 and lower["skellam"] > 0
print("logsf(40):", dlaplace.logsf(40, 1), "| ppf and isf of 1e-20:", dlaplace.ppf(1e-20, 1), dlaplace.isf(1e-20, 1))
assert dlaplace.logsf(40, 1) == -np.inf
assert (dlaplace.ppf(1e-20, 1), dlaplace.isf(1e-20, 1)) == (-45, np.inf)
PY

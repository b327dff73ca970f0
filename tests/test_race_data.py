"""What RACE must reach on real data; skipped where the data is not at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpindex.race import L2, RaceSketch, kernel_sum

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))

pytestmark = pytest.mark.skipif(
    not (DATA / "tab_skin.npz").is_file(), reason="set DPINDEX_DATA to run tests on real data"
)


def load(name: str) -> dict[str, Any]:
    with np.load(DATA / f"tab_{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


def test_density_of_skin() -> None:
    """ε = 1, R = W = 1000: ≤ 3 % in the upper half of density, ≤ 7 % over all, ≤ 4 MB."""
    x = load("skin")["X"].astype(np.float64)
    order = np.random.default_rng(0).permutation(len(x))
    queries, base = x[order[:200]], x[order[1000:]]
    hash = L2(20.0, hashes=2)
    sketch = RaceSketch(3, 1000, 1000, hash, epsilon=1.0).fit(base).release()
    # The data holds few distinct colours, so the exact sum is quick.
    colours, times = np.unique(base, axis=0, return_counts=True)
    truth = np.concatenate([hash.kernel(colours, part) @ times for part in np.split(queries, 50)])
    assert kernel_sum(hash, base, queries[:2]) == pytest.approx(truth[:2])
    error = np.abs(sketch.count(queries) - truth) / truth
    assert error[truth >= np.median(truth)].mean() <= 0.03
    assert error.mean() <= 0.07
    assert len(sketch.to_bytes()) <= 4_000_000


def test_classes_of_occupancy() -> None:
    """Accuracy at ε = 1 at least 0.95 of what the same sketches reach at ε = 64."""
    pytest.importorskip("sklearn")
    from dpindex.race import RaceClassifier

    data = load("occupancy")
    train = data["split"] == 0
    scale = np.array([2.0, 10.0, 500.0, 500.0, 0.002])  # public: about one unit of each sensor
    x, y = data["X"] / scale, data["y"]
    accuracy = [
        RaceClassifier(L2(2.0, 2), rows=200, epsilon=epsilon)
        .fit(x[train], y[train])
        .score(x[~train], y[~train])
        for epsilon in (1.0, 64.0)
    ]
    assert accuracy[0] >= 0.95 * accuracy[1]
    assert accuracy[1] > max(np.mean(y[~train] == label) for label in np.unique(y))

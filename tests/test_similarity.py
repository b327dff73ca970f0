"""Scorers: what the stores rank by and what the estimators get are the same pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dpindex.codes import Codes
from dpindex.estimators import NoisyVectorStats, cosine, inner_product, squared_distance
from dpindex.index.scoring import BitScorer, FloatScorer
from dpindex.index.settings import Metric
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

Array = npt.NDArray[Any]
ESTIMATORS: dict[Metric, Any] = {"cosine": cosine, "ip": inner_product, "l2": squared_distance}


def _vectors(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, (n, 32))


def _made(spec: Spec, n: int = 300) -> tuple[Privatizer, Codes]:
    maker = Privatizer(spec)
    return maker, maker.privatize(_vectors(n))


@pytest.mark.parametrize("metric", ESTIMATORS)
@pytest.mark.parametrize("norm", [None, 3.3])
@pytest.mark.parametrize("query", ["exact", "private", "cheaper"])
def test_float_scores_and_estimates_come_from_the_codes(
    metric: Metric, norm: float | None, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Privatizer, "_check_norms", lambda *_: None)
    monkeypatch.setattr("dpindex.index.scoring._ROWS_AT_A_TIME", 128)  # several blocks
    spec = Spec(method="dp-oporp-staircase", dim=32, k=16, epsilon=4.0, norm=norm)
    data, codes = _made(spec)
    asked = Privatizer(spec.with_epsilon(2.0))
    scorer = FloatScorer(data, asked, metric, "f32")
    scorer.cover(codes.stored)
    if query == "exact":
        queries: Any = data.project(_vectors(5, 1))
        y = queries.astype(np.float64) * data.step
        of, side = None, NoisyVectorStats.of(y, None, 1.0, norm)
    else:
        maker = data if query == "private" else asked
        queries = maker.privatize(_vectors(5, 1))
        y = queries.to_float().astype(np.float64)
        of, side = maker.spec, NoisyVectorStats.of(y, maker.decoder, maker.step, norm)
    scores, rows = scorer.search(queries, of, 12)
    x = codes.to_float().astype(np.float64)[rows]
    ip = (x * y[:, None, :]).sum(axis=2)
    expected = {
        "cosine": ip / np.linalg.norm(x, axis=2) / np.linalg.norm(y, axis=1)[:, None],
        "ip": ip,
        "l2": -((x - y[:, None, :]) ** 2).sum(axis=2),
    }[metric]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    stored = NoisyVectorStats(x.sum(axis=2), (x**2).sum(axis=2), 16, data.decoder, data.step, norm)
    factor = spec.projection.inner_product_factor
    value, stderr = ESTIMATORS[metric](ip, stored, side.column(), factor)
    ours = scorer.estimate(queries, of, scores, rows)
    np.testing.assert_allclose(ours[0], value, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours[1], stderr, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["none-signrp", "dp-signoporp-rr"])
def test_bit_scores_are_sums_over_signs(method: str) -> None:
    spec = Spec(method=method, dim=32, k=24, epsilon=None if "none" in method else 3.0)
    data, codes = _made(spec)
    scorer = BitScorer(data, data)
    scorer.cover(codes.stored)
    signs = codes.to_signs().astype(np.float64)
    projected = data.project(_vectors(5, 1))
    scores, rows = scorer.search(projected, None, 9)
    np.testing.assert_array_equal(
        scores, np.take_along_axis(projected.astype(np.float64) @ signs.T, rows, axis=1)
    )
    asked = data.privatize(_vectors(5, 1))
    scores, rows = scorer.search(asked, spec, 9)
    np.testing.assert_array_equal(
        scores, np.take_along_axis(asked.to_signs() @ signs.T, rows, axis=1)
    )
    value, stderr = scorer.estimate(asked, spec, scores, rows)
    assert np.isfinite(value).all()
    assert np.isfinite(stderr).all()


@pytest.mark.parametrize(
    "method", ["dp-signoporp-rr-smooth", "dp-signoporp-geometric", "idp-signrp-rr"]
)
@pytest.mark.parametrize("exact", [True, False])
def test_flips_that_depend_on_size_need_declared_norms(
    method: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Privatizer, "_check_norms", lambda *_: None)
    for norm in (None, 3.3):
        spec = Spec(method=method, dim=32, k=16, epsilon=3.0, norm=norm)
        data, codes = _made(spec)
        scorer = BitScorer(data, data)
        scorer.cover(codes.stored)
        queries = data.project(_vectors(2)) if exact else data.privatize(_vectors(2))
        of = None if exact else spec
        scores, rows = scorer.search(queries, of, 4)
        assert np.isfinite(scores).all()
        estimates = scorer.estimate(queries, of, scores, rows)
        for part in estimates:
            assert np.isnan(part).all() if norm is None else np.isfinite(part).all()


def test_covering_in_steps_is_covering_at_once() -> None:
    spec = Spec(method="dp-oporp-staircase", dim=32, k=16, epsilon=4.0)
    data, codes = _made(spec)
    once, steps = (FloatScorer(data, data, "ip", "f32") for _ in range(2))
    once.cover(codes.stored)
    for stop in (1, 7, 7, 300):
        steps.cover(codes.stored[:stop])
        assert steps.covers(stop)
        assert not steps.covers(stop + 1)
    queries = data.project(_vectors(3, 1))
    found = [scorer.search(queries, None, 20) for scorer in (once, steps)]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    estimates = [scorer.estimate(queries, None, *found[0]) for scorer in (once, steps)]
    np.testing.assert_allclose(estimates[0], estimates[1])

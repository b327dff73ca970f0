"""A denoiser as bytes: a line of JSON that says what follows, then plain little-endian numbers."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.errors import InputError
from dpindex.estimators.denoise.channel import ScoreTable, channel_of
from dpindex.estimators.denoise.denoiser import Denoiser
from dpindex.estimators.denoise.mixture import Mixture
from dpindex.estimators.denoise.stage import Bins, Filter, Stage
from dpindex.spec import Spec

__all__ = ["denoiser_from_bytes", "denoiser_to_bytes"]

_FORMAT = 1
_MAX_HEADER = 1 << 20


def denoiser_to_bytes(denoiser: Denoiser) -> bytes:
    """The denoiser in bytes, without its spec: see :func:`denoiser_from_bytes`."""
    arrays = _filter_arrays(denoiser.linear)
    stages = []
    for stage in denoiser.stages:
        arrays += [*_filter_arrays(stage.filter), stage.bins.offset, stage.bins.variance]
        bins = stage.bins
        stages.append([list(bins.values), list(bins.claims)])
    header = {
        "format": _FORMAT,
        "kind": denoiser.kind,
        "error": denoiser.error,
        "rows": denoiser.rows,
        "most": 0.0 if denoiser.table is None else denoiser.table.most,
        "stages": stages,
        "spread": denoiser.spread.tolist(),
        "shapes": [list(array.shape) for array in arrays],
    }
    body = b"".join(array.astype("<f4").tobytes() for array in arrays)
    return json.dumps(header, sort_keys=True).encode() + b"\n" + body


def denoiser_from_bytes(data: bytes, spec: Spec) -> Denoiser:
    """The inverse of :func:`denoiser_to_bytes` for the index of that spec; trusts no size.

    Raises
    ------
    InputError
        If the bytes are no denoiser for codes of that length.
    """
    try:
        line, body = data[:_MAX_HEADER].split(b"\n", 1)[0], data[data.index(b"\n") + 1 :]
        header = json.loads(line)
        shapes = [tuple(int(side) for side in shape) for shape in header["shapes"]]
        arrays = _cut(body, shapes)
        linear, arrays = _filter(arrays, spec.code_length)
        stages = []
        for values, claims in header["stages"]:
            filter_, arrays = _filter(arrays, spec.code_length)
            (offset, variance), arrays = arrays[:2], arrays[2:]
            size = Bins.SIDES[0] * Bins.SIDES[1]
            _require(offset.shape == variance.shape == (size,))
            bins = Bins(_pair(values), _pair(claims), offset, variance)
            stages.append(Stage(filter_, bins))
        kind: Literal["linear", "score"] = "score" if stages else "linear"
        _require(header["format"] == _FORMAT and header["kind"] == kind and not arrays)
        table = ScoreTable(channel_of(spec).likelihood, _finite(header["most"])) if stages else None
        error, rows = _finite(header["error"]), int(header["rows"])
        spread = np.array([_finite(number) for number in header.get("spread", [])])
        components = stages[-1].filter.prior.components if stages else 0
        _require(spread.size in (0, components) and bool((spread >= 0).all()))
        return Denoiser(spec, kind, error, rows, linear, tuple(stages), table, spread)
    except (ValueError, LookupError, TypeError, RecursionError, ArithmeticError):
        raise InputError("these bytes are no denoiser of this index.") from None


def _require(sound: bool) -> None:
    if not sound:
        raise ValueError("denoiser")


def _finite(value: Any) -> float:
    _require(isinstance(value, int | float) and math.isfinite(value))
    return float(value)


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return _finite(low), _finite(high)


def _cut(body: bytes, shapes: list[tuple[int, ...]]) -> list[AnyArray]:
    _require(all(side >= 0 for shape in shapes for side in shape))
    sizes = [math.prod(shape) for shape in shapes]
    _require(4 * sum(sizes) == len(body))
    numbers = np.frombuffer(body, dtype="<f4").astype(np.float32)
    _require(bool(np.isfinite(numbers).all()))
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        numbers[start:end].reshape(shape)
        for start, end, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
    ]


def _filter_arrays(filter_: Filter) -> list[AnyArray]:
    prior = filter_.prior
    mixture: list[AnyArray] = [
        prior.log_weight,
        prior.mean,
        prior.filters,
        prior.roots,
        prior.gains,
    ]
    return [filter_.mean, filter_.noise, filter_.basis, *mixture, filter_.own, filter_.between]


def _filter(arrays: list[AnyArray], k: int) -> tuple[Filter, list[AnyArray]]:
    mean, noise, basis, log_weight, centre, filters, roots, gains, own, between = arrays[:10]
    components, directions = centre.shape
    full = filters.shape[1]
    _require(
        mean.shape == noise.shape == between.shape == (k,)
        and basis.shape == (k, directions)
        and log_weight.shape == (components,)
        and filters.shape == roots.shape == (components, full, full)
        and full <= directions
        and gains.shape == centre.shape
        and own.shape == (components, k)
        and bool((noise > 0).all())
    )
    prior = Mixture(log_weight.astype(np.float64), centre, filters, roots, gains)
    return Filter(mean, noise, basis, prior, own, between), arrays[10:]

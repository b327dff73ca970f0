"""The search for the matrix of a designed projection, on public vectors.

``y = W(x − c) + noise``. One attribute that changes by beta moves y by at most
``beta·max_i ‖W_:i‖₁`` in L1, whatever W is, so a W whose columns have an L1 norm of at most 1 needs
the noise that OPORP needs. OPORP adds up attributes that have nothing to do with each other, under
random signs: the signal of m attributes grows like √m. Attributes that vary *together* add up like
m, for the same noise. This is the matrix mechanism (Li, Hay, Rastogi, Miklau & McGregor 2010;
McKenna, Miklau, Hay & Machanavajjhala 2018; Edmonds, Nikolov & Ullman 2020) for codes of vectors.

Vectors may be clipped to public windows first: ``y = W(f(x) − f(c)) + noise``, with noise for a
change of a window. The decoder estimates the *unclipped* vector all the same. With C the covariance
of f among public vectors, D that of f and x, μ the mean of x, s² the variance of the noise and f(c)
the mean of f, the best linear estimate is ``x̂ = μ + Gᵀy``, ``G = (W C Wᵀ + s² I)⁻¹ W D``. It
recovers the variance ``tr(Gᵀ W D)``, which :func:`design` maximises over W. Without windows
f(x) = x and D = C. Everything here is public, and no guarantee rests on how W was found.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Doubles, Floats, Indices, Singles, issparse, spaced, stacked
from dpindex.base.checks import checked_delta, checked_epsilon, finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.base.files import pack
from dpindex.base.threads import limited_threads
from dpindex.data import VectorSource, as_source, open_vectors, taken_rows
from dpindex.data.source import check_finite
from dpindex.mechanism.grid import STEPS, Windows
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.noise.response import geometric_flips
from dpindex.mechanism.public_parts import ARRAYS, ENTRY_BITS, MAX_LENGTH, Design

_MAX_SAMPLE = 1 << 16
_SAMPLE = 512
"""Public vectors that a design keeps."""

_COMPARED = 4096
"""Public vectors more that one of signs keeps, with which its codes are compared."""

_TESTED = 8
"""Vectors that such a design keeps for each one that tells what its estimates are worth."""

_MAX_ATTRIBUTES = 4096
"""Attributes that a design uses: those that vary most in public. It leaves the others out."""

_WINDOWS = (0.0, 1.4, 1.0, 0.7, 0.3)
MAX_STEPS = 80
"""Steps of the search for a projection."""

_FEW = 2048
_FEW_ATTRIBUTES = 1024
"""Windows are compared on at most this many vectors and attributes."""

_GAIN_OF_BINS = 1.01
"""Bins that recovered 0.3 % more found .02 less on gray CIFAR-10; 2 % more found up to .09 more."""


def design(
    public: Any,
    *,
    epsilon: float,
    beta: float = 1.0,
    code_length: int | None = None,
    delta: float = 0.0,
    signs: bool = False,
    scale: float = 1.0,
    window: float | None = None,
    seed: int = 0,
    steps: int = MAX_STEPS,
) -> Design:
    """Return a projection designed for vectors like some public ones.

    Parameters
    ----------
    public : array, sparse matrix, path or VectorSource, shape (n, dim)
        Vectors of the same kind, chosen without looking at private ones; some hundred at least. At
        most 65536 of them are used, evenly spaced, and the 4096 attributes that vary most.
    epsilon : float
        What one change of an attribute by ``beta`` (after division by ``scale``) will cost.
    code_length : int, optional
        Coordinates k; by default 50·epsilon, between 16 and 256. With less noise more pay.
    delta : float
        For Gaussian noise, in (0, 1): columns get an L2 norm of 1. 0 is for Laplace noise and bits.
    signs : bool
        For codes of signs.
    scale : float
        Public divisor of every attribute, as of the spec.
    window : float, optional
        Clip each attribute to this many public deviations around its public mean, [0, ∞),
        and within its public values: noise is then as narrow as windows are. The spec must have the
        same ``beta``. 0 is for no windows. By default the best of 0, 0.3, 0.7, 1 and 1.4, by what
        a first projection of the public vectors recovers: small ones suit small epsilons.
    seed : int
        Of the start of the search.
    steps : int
        Of the search, at most. 20 recover .995 of what 80 do.

    Raises
    ------
    InputError
        For vectors of which no attribute varies, and numbers outside these ranges.

    >>> public = np.random.default_rng(0).random((500, 2)) @ np.ones((2, 6))
    >>> design(public, epsilon=1.0, code_length=2).code_length
    2
    """
    epsilon = checked_epsilon(epsilon)
    beta = finite_number(beta, "beta", above=0.0)
    noise = noise_variance(epsilon, delta, signs)
    scale = finite_number(scale, "scale", above=0.0)
    if window is not None:
        window = finite_number(window, "window")
        if window < 0:
            raise InputError(f"window must be 0 or more, not {window:g}.", field="window")
    opened = isinstance(public, str | os.PathLike)
    with open_vectors(public) if opened else nullcontext(as_source(public)) as source:
        check_finite(source)
        if window is None:
            length = code_length or usual_length(epsilon, source.shape[1])
            window = best_window(source, scale, beta, min(length, MAX_LENGTH), noise)
        known = known_vectors(source, scale, beta, window, signs)
    return design_of(known, epsilon, code_length, delta, signs, seed, steps)


def design_of(
    known: KnownVectors,
    epsilon: float,
    code_length: int | None = None,
    delta: float = 0.0,
    signs: bool = False,
    seed: int = 0,
    steps: int = MAX_STEPS,
) -> Design:
    """Return a projection for known vectors: see :func:`design`."""
    attributes = len(known.attributes)
    if code_length is None:
        code_length = usual_length(epsilon, attributes)
    k = whole_number(code_length, "code_length", 1, MAX_LENGTH)
    noise = known.unit**2 * noise_variance(epsilon, delta, signs)
    gaussian = delta > 0
    if signs and k >= attributes:
        w = np.eye(k, attributes)  # every attribute has a sign of its own
    else:
        w = _optimised(known, k, noise, gaussian, np.random.default_rng(seed), steps)
    if signs and k < attributes:
        bins = _clusters(known.covariance, k, np.random.default_rng(seed))
        recovered = _recovered_by_signs(w, known, epsilon)
        # The search weighs noise that is added; signs see it otherwise, so plain bins may be
        # better.
        by_bins = _recovered_by_signs(bins, known, epsilon)
        if by_bins > _GAIN_OF_BINS * recovered:
            w = bins
    return _finished(w, known, gaussian)


def usual_length(epsilon: float, attributes: int) -> int:
    """Coordinates of a design for an epsilon."""
    length = round(50 * epsilon)
    return min(attributes, max(16, min(length, 256)))


def best_window(
    source: VectorSource,
    scale: float,
    beta: float,
    k: int,
    noise: float,
) -> float:
    """Return the window of which bins of attributes that vary together recover the most.

    What bins recover orders windows as optimised projections do, in a hundredth of the time.
    ``noise`` is that of :func:`noise_variance`, and the rest as of :func:`design`.
    """
    few = _few(source)
    recovered = []
    for window in _WINDOWS:
        known = known_vectors(few, scale, beta, window, most=_FEW_ATTRIBUTES)
        w = _clusters(known.covariance, k, np.random.default_rng(0))
        added = noise * known.unit**2 * np.eye(k)
        recovered.append(_recovered(w @ known.covariance @ w.T + added, w @ known.shared))
    return _WINDOWS[int(np.argmax(recovered))]


def _few(source: VectorSource) -> VectorSource:
    """Return some of the vectors, evenly spaced."""
    return as_source(taken_rows(source, spaced(source.shape[0], _FEW)))


def noise_variance(epsilon: float, delta: float, signs: bool) -> float:
    """Variance of the noise of a coordinate, in squared betas."""
    if delta > 0:
        delta = checked_delta(delta, "a Gaussian design")
        return optimal_sigma(epsilon, delta) ** 2
    # Signs are read as a median is: that of Laplace noise has half the variance of its mean.
    return (1 if signs else 2) / epsilon**2


def _recovered_by_signs(
    w: Doubles,
    known: KnownVectors,
    epsilon: float,
) -> float:
    """The variance that signs tell of; a sign that an attribute moves alone has wide levels."""
    levels = 1 << ENTRY_BITS
    moved = np.count_nonzero(w, axis=0).max()
    if moved == 1:
        levels = 1
    within = w @ known.covariance @ w.T
    flips = geometric_flips(epsilon / levels)
    centred = np.zeros(len(w))
    channel = flips.linear_channel(centred, np.diag(within), known.unit / levels)
    cross = channel.slope[:, None] * (w @ known.shared)
    return _recovered(channel.covariance(within), cross)


def _recovered(covariance: Doubles, cross: Doubles) -> float:
    """The variance that the best linear estimate recovers, ``tr(Gᵀ W D)``.

    Parameters
    ----------
    covariance, cross : float64 arrays, shapes (k, k) and (k, m)
        Of code coordinates, and theirs with the vectors.
    """
    gain = np.linalg.solve(covariance, cross)
    return float(np.sum(gain * cross))


class KnownVectors(NamedTuple):
    """Moments of public vectors, and a sample of them, for a projection to be designed.

    They are over those of the ``dim`` attributes that vary most. ``covariance`` is that of vectors
    in their windows, ``shared`` theirs with the vectors as they are. ``sample`` are some of the
    vectors, ``clipped`` the same in their windows, and ``products`` inner products of the first of
    them over all attributes.
    """

    dim: int
    beta: float
    attributes: Indices
    windows: Windows | None
    mean: Doubles
    centre: Doubles
    covariance: Singles
    shared: Singles
    sample: Doubles
    clipped: Doubles
    products: Doubles

    @property
    def unit(self) -> float:
        """One beta in the units of ``covariance``."""
        return self.beta if self.windows is None else 1.0


def known_vectors(
    source: VectorSource,
    scale: float,
    beta: float,
    window: float,
    signs: bool = False,
    most: int = _MAX_ATTRIBUTES,
) -> KnownVectors:
    """Return the moments of public vectors, shrunk, and a sample of them: see :func:`design`.

    For signs, which are compared with vectors, the sample has more of them, at its end.
    """
    used = spaced(source.shape[0], _MAX_SAMPLE)
    count = len(used)
    each = _spread(_chunks(source, used, scale), source.shape[1], count)
    attributes = each.varying(most)
    mean = each.mean[attributes]
    centre = mean
    windows = None
    if window:
        windows = each.windows(attributes, window, beta)
        centre = np.zeros(len(attributes))
        for x in _chunks(source, used, scale):
            centre += windows.clipped(_dense(x[:, attributes])).sum(axis=0) / count
    kept = spaced(count, _SAMPLE + (_COMPARED if signs else 0))
    tested = np.arange(len(kept))
    if signs:
        tested = spaced(len(kept), max(2, min(_SAMPLE, len(kept) // _TESTED)))
    together = _Sums(attributes, mean, centre, windows)
    parts = []
    done = 0
    # The second reading of the vectors, or the third: they may be more than memory holds.
    for x in _chunks(source, used, scale):
        parts.append(x[_between(kept, done, x.shape[0])])
        done += x.shape[0]
        together.add(x)
    others = np.setdiff1d(np.arange(len(kept)), tested)
    sample = stacked(parts)[np.concatenate([tested, others])]
    first = sample[: len(tested)]
    inside = _dense(sample[:, attributes])
    covariance, shared = together.shrunk(count)
    return KnownVectors(
        source.shape[1],
        beta,
        attributes,
        windows,
        mean,
        centre,
        covariance,
        shared,
        sample=inside,
        clipped=inside if windows is None else windows.clipped(inside),
        products=_dense(first @ first.T),
    )


def _chunks(source: VectorSource, used: Indices, scale: float) -> Iterator[Any]:
    """Yield those rows of a source that are used, scaled, in chunks as they are kept."""
    for first, chunk in source.chunks():
        inside = _between(used, first, chunk.shape[0])
        if len(inside):
            some = chunk[inside]
            yield some.astype(np.result_type(some.dtype, np.float32)) / scale


class _Spread(NamedTuple):
    """What is known of every attribute by itself, float64 arrays of shape (dim,)."""

    mean: Doubles
    variance: Doubles
    lowest: Doubles
    highest: Doubles

    def varying(self, most: int) -> Indices:
        """Return the attributes that vary, ascending; of too many those that vary most."""
        # The variance of a constant may be a rounding error.
        variance = np.where(self.highest > self.lowest, self.variance, 0.0)
        varying = np.flatnonzero(variance > 1e-9 * max(float(variance.max()), 1e-300))
        if not len(varying):
            raise InputError(
                "no attribute of these public vectors varies: nothing can be designed."
            )
        falling = np.argsort(-variance[varying], kind="stable")
        return np.sort(varying[falling[:most]])

    def windows(self, attributes: Indices, window: float, beta: float) -> Windows:
        """Return windows of that many deviations about the means of some attributes."""
        step = beta / STEPS
        span = (self.lowest[attributes] / step, self.highest[attributes] / step)
        deviation = np.sqrt(self.variance[attributes])
        middle = self.mean[attributes] / step
        return Windows.about(middle, deviation / step, span, window, beta)


def _spread(chunks: Iterator[Any], dim: int, count: int) -> _Spread:
    """Return the mean, variance and range of each attribute of ``count`` vectors."""
    total = np.zeros(dim)
    squares = np.zeros(dim)
    lowest = np.full(dim, np.inf)
    highest = np.full(dim, -np.inf)
    for x in chunks:
        lowest = np.minimum(lowest, _dense(x.min(axis=0)).ravel())
        highest = np.maximum(highest, _dense(x.max(axis=0)).ravel())
        total += np.asarray(x.sum(axis=0, dtype=np.float64)).ravel()
        squared = x.multiply(x) if issparse(x) else x * x
        squares += np.asarray(squared.sum(axis=0, dtype=np.float64)).ravel()
    mean = total / count
    variance = squares / count - mean**2
    if not np.isfinite(variance).all():
        raise InputError("some public values are too large to square; scale them.")
    return _Spread(mean, variance, lowest, highest)


class _Sums:
    """Sums over vectors of what their attributes do together, in their windows."""

    def __init__(
        self, attributes: Indices, mean: Doubles, centre: Doubles, windows: Windows | None
    ) -> None:
        self._attributes = attributes
        self._mean = mean
        self._centre = centre
        self._windows = windows
        self._products = np.zeros((len(attributes), len(attributes)))
        self._shared = np.zeros_like(self._products)
        self._fourth = 0.0

    def add(self, x: Any) -> None:
        """Add a chunk of vectors."""
        used = _dense(x[:, self._attributes])
        # In single precision, as the covariances are kept.
        centred = (used - self._mean).astype(np.float32)
        clipped = centred
        if self._windows is not None:
            clipped = (self._windows.clipped(used) - self._centre).astype(np.float32)
            self._shared += clipped.T @ centred
        self._products += clipped.T @ clipped
        norms = np.einsum("ij,ij->i", clipped, clipped, dtype=np.float64)
        self._fourth += float((norms**2).sum())

    def shrunk(self, count: int) -> tuple[Singles, Singles]:
        """Return the covariance of clipped vectors, and theirs with the vectors as they are."""
        covariance = self._products / count
        share = _shrinkage(covariance, self._fourth / count, count)
        own = _shrunk(covariance, share)
        if self._windows is None:
            return own, own
        return own, _shrunk(self._shared / count, share)


def _between(places: Indices, first: int, count: int) -> Indices:
    """Return the places among ``count`` from ``first`` on, counted from there."""
    inside = (places >= first) & (places < first + count)
    return places[inside] - first


def _dense(rows: Any) -> Any:
    return rows.toarray() if issparse(rows) else rows


def _shrinkage(covariance: Doubles, fourth: float, count: int) -> float:
    """How far a sample covariance goes towards its diagonal, [0, 1] (Ledoit & Wolf 2004).

    What few vectors do not show is taken to be 0. ``fourth`` is the mean of ``‖x − μ‖⁴``.
    """
    own = np.diag(np.diag(covariance))
    energy = float((covariance**2).sum())
    sampling = max(0.0, fourth - energy) / count
    apart = float(((covariance - own) ** 2).sum())
    return min(1.0, sampling / max(apart, 1e-300))


def _shrunk(covariance: Doubles, share: float) -> Singles:
    own = np.diag(np.diag(covariance))
    shrunk = covariance + share * (own - covariance)
    return shrunk.astype(np.float32)


_PATIENCE = 10
_WORTH_A_STEP = 1e-4
"""The search ends where this many steps together gained no more than this share."""

_CLUSTER_ROUNDS = 15


class _Point(NamedTuple):
    """A matrix W of the search, with ``W C`` and ``W D``: these are linear in it."""

    w: Singles
    wc: Singles
    wd: Singles

    def beyond(self, last: _Point, weight: np.float32) -> _Point:
        """Return the point as much further as it has come from the last one, times ``weight``."""
        return _Point(*(new + weight * (new - old) for new, old in zip(self, last, strict=True)))


@limited_threads()
def _optimised(
    known: KnownVectors,
    k: int,
    noise: float,
    gaussian: bool,
    rng: np.random.Generator,
    steps: int,
) -> Doubles:
    """W of the largest ``tr(Gᵀ W D)``, shape (k, m): projected gradient with momentum (FISTA)."""
    unit = float(np.diag(known.covariance).mean())
    c = known.covariance / np.float32(unit)  # in float32: only the value of W depends on it
    d = c
    if known.shared is not known.covariance:
        size = float(np.abs(np.diag(known.shared)).mean())
        d = known.shared / np.float32(size)
    noise = noise / unit

    def point(w: Floats) -> _Point:
        """Return the nearest point that privacy allows: with columns of norm 1 at most."""
        inside = _within_ball(w, gaussian)
        wc = inside @ c
        return _Point(inside, wc, wc if d is c else inside @ d)

    def gain(at: _Point) -> Singles:
        """G of the linear estimate."""
        signal = (at.wc @ at.w.T).astype(np.float64)
        found = np.linalg.solve(signal + noise * np.eye(k), at.wd.astype(np.float64))
        return found.astype(np.float32)

    def recovered(at: _Point) -> float:
        return float(np.sum(gain(at) * at.wd, dtype=np.float64))

    start = _clusters(c, k, rng)
    # Equal rows would stay equal for ever: their gradients are the same.
    start += 0.01 * rng.normal(size=start.shape)
    last = ahead = point(start.astype(np.float32))
    best = recovered(last)
    step = 0.5
    momentum = 1.0
    history: list[float] = []
    for _ in range(steps):
        history.append(best)
        if len(history) > _PATIENCE and best < (1 + _WORTH_A_STEP) * history[-1 - _PATIENCE]:
            break
        g = gain(ahead)
        # The gradient of tr(Gᵀ W D), over 2: G Dᵀ − G Gᵀ W C.
        slope = g @ d.T - (g @ g.T) @ ahead.wc
        steepest = float(np.abs(slope).max())
        slope /= max(steepest, 1e-30)
        while True:
            new = point(ahead.w + np.float32(step) * slope)
            reached = recovered(new)
            if reached >= best or step < 1e-4:
                break
            step /= 2
        further = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        weight = np.float32((momentum - 1) / further)
        momentum = further
        if reached < best:  # the momentum overshot
            weight = np.float32(0.0)
            momentum = 1.0
        ahead = new.beyond(last, weight)
        last = new
        best = max(best, reached)
        step *= 1.2
    return last.w.astype(np.float64)


def _clusters(c: Singles, k: int, rng: np.random.Generator) -> Doubles:
    """Attributes that vary together share a coordinate: k-means on rows of the correlations."""
    deviation = np.sqrt(np.diag(c))
    correlation = c / deviation[:, None] / deviation
    m = len(c)
    centres = correlation[rng.choice(m, k, replace=k > m)]
    for _ in range(_CLUSTER_ROUNDS):
        norms = np.maximum(np.linalg.norm(centres, axis=1), 1e-30)
        likeness = correlation @ centres.T / norms
        at = np.argmax(likeness, axis=1)
        member = np.zeros((k, m), dtype=np.float32)
        member[at, np.arange(m)] = 1
        empty = np.flatnonzero(member.sum(axis=1) == 0)
        # A coordinate without attributes begins again at one of them.
        member[empty, rng.integers(m, size=len(empty))] = 1
        centres = member @ correlation
    w = np.zeros((k, m))
    w[at, np.arange(m)] = 1
    return w


def _within_ball(w: Floats, gaussian: bool) -> Singles:
    """Columns projected onto the ball of norm 1: L1 (Duchi et al. 2008), or L2."""
    if gaussian:
        norms = np.linalg.norm(w, axis=0)
        return np.asarray(w / np.maximum(norms, 1), np.float32)
    out = w.astype(np.float32)
    size = np.abs(out)
    heavy = np.flatnonzero(size.sum(axis=0) > 1)
    # All entries of a heavy column shrink by the cut that leaves a sum of 1, those below it to 0.
    falling = -np.sort(-size[:, heavy], axis=0)
    excess = np.cumsum(falling, axis=0, dtype=np.float64) - 1
    rank = np.arange(1, len(w) + 1)[:, None]
    kept = (falling - excess / rank > 0).sum(axis=0)
    cut = excess[kept - 1, np.arange(len(heavy))] / kept
    left = np.maximum(size[:, heavy] - cut, 0)
    out[:, heavy] = np.sign(out[:, heavy]) * left
    return out


def in_integers(w: Doubles, gaussian: bool) -> npt.NDArray[np.int16]:
    """W in multiples of 2^-8, none of whose columns is heavier than 1."""
    weight = np.linalg.norm(w, ord=2 if gaussian else 1, axis=0)
    steps = (1 << ENTRY_BITS) / np.maximum(weight, 1e-30)
    exact = w * steps * np.minimum(weight, 1)
    whole: npt.NDArray[np.int16] = np.trunc(exact).astype(np.int16)
    if gaussian:
        return whole
    # What truncation leaves of a full column goes to the largest remainders.
    full = np.abs(exact).sum(axis=0)
    left = np.floor(full + 1e-9).astype(np.int64)
    left -= np.abs(whole).sum(axis=0, dtype=np.int64)
    remainders = np.abs(exact - whole)
    rank = np.argsort(np.argsort(-remainders, axis=0), axis=0)
    whole += np.sign(w).astype(np.int16) * (rank < left)
    return whole


def _finished(w: Doubles, known: KnownVectors, gaussian: bool) -> Design:
    """The design of an optimised W: rounded, with its decoder."""
    facts = {"dim": known.dim, "norm": 2 if gaussian else 1, "beta": known.beta}
    entries = in_integers(w, gaussian)
    w = entries.astype(np.float64) / (1 << ENTRY_BITS)
    cross = w @ known.shared
    span = np.vstack([known.mean, cross])
    basis = np.linalg.qr(span.T)[0].T
    if len(basis) < len(span):  # more coordinates than attributes
        missing = np.zeros((len(span) - len(basis), len(known.mean)))
        basis = np.vstack([basis, missing])
    windows = known.windows
    none = np.empty(0)
    arrays = {
        "attributes": known.attributes,
        "entries": entries,
        "low": none if windows is None else windows.low,
        "width": none if windows is None else windows.width,
        "centre": known.centre if windows is None else windows.placed(known.centre),
        "mean": known.mean,
        "basis": basis,
        "within": w @ known.covariance @ w.T,
        "cross": cross @ basis.T,
        "projected": known.clipped @ w.T,
        "inside": known.sample @ basis.T,
        "products": known.products,
    }
    for name, (dtype, _) in ARRAYS.items():
        arrays[name] = np.ascontiguousarray(arrays[name], dtype)
    return Design.from_bytes(pack("design", facts, arrays))

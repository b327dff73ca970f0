"""Somebody else's noise: a function from a vector to an array or bytes, and tests that refute it.

    python foreign_noise.py

The function is called with worst-case neighbours of the claimed adjacency. Scores that tell their
releases apart are learned from a first few releases; ``dpindex.audit.attack_releases`` chooses
events on the scores and counts them, so the confidence holds whatever the function does. The three
functions at the end are attacked when this file is run: two have mistakes that were seen in public
packages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex import InputError
from dpindex.audit import AttackReport, Pair, attack_releases
from dpindex.privacy import L2, Attribute, Guarantee, VectorAdjacency, record

Array = npt.NDArray[Any]

_LEARNING = 1000
_MAX_NUMBERS = 1 << 22
_MAX_DIM = 1 << 20
_MAX_ALONE = 32
_SIGNIFICANT = 4.0
_STEPS = 200.0
_LARGEST = 1 << 16
_SMALL = 1e-3


@dataclass(frozen=True)
class Mechanism:
    """A function that adds noise, and what is claimed of it.

    Parameters
    ----------
    function : callable
        Takes a float array of shape (dim,), and returns an array of numbers or bytes, always of
        the same length. Bytes are read bit by bit.
    dim : int
        Attributes of a vector, [1, 2^20].
    epsilon, delta : float
        The claim, (0, ∞) and [0, 1).
    adjacency : Attribute, L2 or Record
        Between which vectors the claim is made; default any two.
    bounds : (float, float)
        Range of an attribute that the claim allows.
    norm : float, optional
        Norm of every vector, where the claim is about such vectors only.
    batched : bool
        The function takes shape (n, dim) and returns n rows, which is faster.

    Raises
    ------
    InputError
        For numbers out of range, and neighbours that bounds or norm do not allow.

    >>> noise = np.random.default_rng(0)
    >>> def privatize(x):
    ...     return x + noise.laplace(scale=2.0, size=1)
    >>> Mechanism(privatize, dim=1, epsilon=1.0).guarantee.epsilon
    1.0
    """

    function: Callable[[Array], Any]
    dim: int
    epsilon: float
    delta: float = 0.0
    adjacency: VectorAdjacency = field(default_factory=record)
    bounds: tuple[float, float] = (-1.0, 1.0)
    norm: float | None = None
    batched: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MAX_DIM:
            raise InputError(f"dim must be from 1 to {_MAX_DIM}, not {self.dim!r}.")
        if not 0.0 < self.epsilon < np.inf:
            raise InputError(f"epsilon must be above 0, not {self.epsilon!r}.")
        if not 0.0 <= self.delta < 1.0:
            raise InputError(f"delta must lie from 0 to below 1, not {self.delta!r}.")
        if self.norm is not None and not 0.0 < self.norm < np.inf:
            raise InputError(f"norm must be above 0, not {self.norm!r}.")
        low, high = self.bounds
        if not -np.inf < low < high < np.inf:
            raise InputError(
                f"bounds must be two finite numbers, LOW below HIGH, not {low}, {high}."
            )

    @property
    def guarantee(self) -> Guarantee:
        """The claim."""
        return Guarantee(self.epsilon, self.delta, "DP", self.adjacency, exact=False)

    def release(self, row: Array, count: int) -> Array:
        """Release the vector ``row`` ``count`` times; shape (count, numbers of a release).

        Raises
        ------
        InputError
            When the function returns another number of releases, releases of several lengths, or
            a number that is not finite.
        """
        if self.batched:
            parts = list(np.asarray(self.function(np.tile(row, (count, 1)))))
            if len(parts) != count:
                raise InputError(f"the function gave {len(parts)} releases of {count} vectors.")
        else:
            parts = [self.function(row.copy()) for _ in range(count)]
        numbers = [_numbers(part) for part in parts]
        if len({len(release) for release in numbers}) > 1:
            raise InputError(
                "the function gave releases of several lengths; return one of a fixed length."
            )
        released = np.asarray(numbers, dtype=np.float64)
        if released.shape[1] == 0 or not np.isfinite(released).all():
            raise InputError("the function gave no number, or one that is not finite.")
        return released

    def neighbours(self) -> dict[str, tuple[Array, Array]]:
        """Pairs of vectors that the claim is about, by name.

        Raises
        ------
        InputError
            When the bounds have no room for two neighbours.
        """
        if self.norm is not None:
            pairs = self._of_norm(self.norm)
        elif isinstance(self.adjacency, Attribute):
            pairs = self._one_attribute(self.adjacency.size)
        elif isinstance(self.adjacency, L2):
            pairs = self._within(self.adjacency.size)
        else:
            pairs = self._any_two()
        low, high = self.bounds
        slack = 1e-9 * (high - low)
        for pair in pairs.values():
            for row in pair:
                if row.min() < low - slack or row.max() > high + slack:
                    raise InputError(
                        f"neighbours under {self.adjacency} do not fit in the bounds "
                        f"[{low:g}, {high:g}]; widen the bounds."
                    )
        return pairs

    def _one_attribute(self, size: float) -> dict[str, tuple[Array, Array]]:
        low, high = self.bounds
        middle = np.full(self.dim, (low + high) / 2)
        corner = np.full(self.dim, high)
        half = min(size, high - low) / 2
        first = np.arange(self.dim) == 0
        return {
            "one attribute about the middle": _around(middle, half * first),
            "one attribute at a corner": (corner - 2 * half * first, corner),
        }

    def _within(self, radius: float) -> dict[str, tuple[Array, Array]]:
        middle = np.full(self.dim, sum(self.bounds) / 2)
        directions = self._directions().items()
        return {name: _around(middle, radius / 2 * direction) for name, direction in directions}

    def _of_norm(self, norm: float) -> dict[str, tuple[Array, Array]]:
        if isinstance(self.adjacency, Attribute):
            raise InputError(
                "vectors of one norm differ in more than one attribute; leave norm out."
            )
        distance = 2.0 * norm
        if isinstance(self.adjacency, L2):
            distance = min(distance, self.adjacency.size)
        sine = distance / (2.0 * norm)
        cosine = np.sqrt(1.0 - sine**2)
        pairs = {}
        for name, direction in self._directions().items():
            across = np.zeros(self.dim)
            if cosine > 0:
                if self.dim == 1:
                    raise InputError("numbers of one norm are opposite or equal; claim any two.")
                across[:2] = (direction[1], -direction[0])
                across /= np.linalg.norm(across)
            pairs[name] = _around(norm * cosine * across, norm * sine * direction)
        return pairs

    def _any_two(self) -> dict[str, tuple[Array, Array]]:
        low, high = self.bounds
        corner = np.full(self.dim, high)
        origin = np.full(self.dim, min(max(0.0, low), high))
        first = np.arange(self.dim) == 0
        return {
            "opposite corners": (np.full(self.dim, low), corner),
            "opposite in one attribute": (
                np.where(first, low, origin),
                np.where(first, high, origin),
            ),
            "origin and corner": (origin, corner),
            "short and long": (origin + _SMALL * (corner - origin), corner),
        }

    def _directions(self) -> dict[str, Array]:
        axis = np.zeros(self.dim)
        axis[0] = 1.0
        return {"along an axis": axis, "along the diagonal": np.full(self.dim, self.dim**-0.5)}


def _around(centre: Array, step: Array) -> tuple[Array, Array]:
    """Two neighbours, a step to either side of a centre."""
    return centre - step, centre + step


def _numbers(released: Any) -> Array:
    """A release as numbers: of bytes, the bits."""
    if isinstance(released, bytes | bytearray | memoryview):
        return np.unpackbits(np.frombuffer(released, dtype=np.uint8))
    try:
        return np.asarray(released, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        kind = type(released).__name__
        raise InputError(f"a release must be an array of numbers or bytes, not {kind}.") from None


def attack_function(mechanism: Mechanism, **options: Any) -> AttackReport:
    """Attack a function; ``options`` are those of ``attack_releases``: trials, confidence, …"""
    pairs = []
    for name, rows in mechanism.neighbours().items():
        width = mechanism.release(rows[0], 1).shape[1]
        count = min(_LEARNING, max(50, _MAX_NUMBERS // width))
        one, other = (mechanism.release(row, count) for row in rows)
        if one.shape[1:] != other.shape[1:]:
            raise InputError("releases of two vectors have two lengths, which tells them apart.")
        numbers = _Numbers.learned(one, other)
        learning = np.concatenate([numbers.all(one), numbers.all(other)])
        centre = np.median(learning, axis=0)
        spread = np.quantile(np.abs(learning - centre), 0.75, axis=0)
        step = np.where(spread > 0, spread / _STEPS, 1.0)
        group = np.arange(len(centre))
        scores = partial(_whole, numbers.all, centre, step)
        pools = {f"{name}, {score}": [place] for place, score in enumerate(_SCORES)}
        pairs.append(Pair(name, rows, scores, group, pools))
    return attack_releases(mechanism.release, pairs, mechanism.guarantee, **options)


_SCORES = ("a linear score", "the likelihood of normal noise", "the likelihood of Laplace noise")


def _whole(scores: Callable[[Array], Array], centre: Array, step: Array, released: Array) -> Array:
    """Scores in whole steps about their medians."""
    steps = np.rint((scores(released) - centre) / step)
    counts: Array = np.clip(steps, -_LARGEST, _LARGEST).astype(np.int64)
    return counts


@dataclass(frozen=True)
class _Numbers:
    """Statistics of two neighbours' releases, number by number.

    Attributes
    ----------
    informative : boolean array, shape (width,)
        Numbers that tell the neighbours apart.
    means, variances, medians, deviations : arrays, shape (2, informative numbers)
    alone : integer array
        Numbers that are scores by themselves, the strongest first.
    signs : array of the same shape
        +1 where the second neighbour has the larger mean, else −1.
    """

    informative: Array
    means: Array
    variances: Array
    medians: Array
    deviations: Array
    alone: Array
    signs: Array

    @classmethod
    def learned(cls, one: Array, other: Array) -> _Numbers:
        """From releases of two neighbours, shape (n, width) each."""
        sides = (one, other)
        means = np.stack([side.mean(axis=0) for side in sides])
        medians = np.stack([np.median(side, axis=0) for side in sides])
        spans = np.ptp(np.concatenate(sides), axis=0)
        least = 1e-12 * np.where(spans > 0, spans, 1.0)  # of a number without noise
        variances = np.stack([side.var(axis=0) for side in sides]) + least**2
        distances = [np.abs(one - medians[0]), np.abs(other - medians[1])]
        deviations = np.stack([side.mean(axis=0) for side in distances]) + least
        shift = np.abs(means[1] - means[0]) / np.sqrt(variances.sum(axis=0) / len(one))
        change = np.abs(np.log(variances[1] / variances[0])) * np.sqrt(len(one)) / 2
        strength = np.maximum(shift, change)
        informative = strength >= min(_SIGNIFICANT, strength.max())
        alone = np.argsort(-strength, kind="stable")[:_MAX_ALONE]
        signs = np.where(means[1] >= means[0], 1.0, -1.0)[alone]
        return cls(
            informative,
            means[:, informative],
            variances[:, informative],
            medians[:, informative],
            deviations[:, informative],
            alone,
            signs,
        )

    def all(self, released: Array) -> Array:
        """Three scores of a release, then single numbers, each larger for the second neighbour."""
        x = released[:, self.informative]
        linear = x @ ((self.means[1] - self.means[0]) / self.variances.sum(axis=0))
        normal = np.zeros(len(x))
        laplace = np.zeros(len(x))
        for side, sign in ((0, 1), (1, -1)):
            squares = (x - self.means[side]) ** 2 / self.variances[side]
            sizes = np.abs(x - self.medians[side]) / self.deviations[side]
            normal += sign * squares.sum(axis=1)
            laplace += sign * sizes.sum(axis=1)
        single = released[:, self.alone] * self.signs
        return np.column_stack([linear, normal, laplace, single])


# Three mechanisms, two of them wrong

NOISE = np.random.default_rng()


def own_norm(x: Array, epsilon: float = 1.0, delta: float = 1e-5) -> Array:
    """Gaussian noise, its sensitivity taken from the vector's own norm."""
    sigma = np.linalg.norm(x) * np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    return x + NOISE.normal(0.0, sigma, x.shape)


def half_distance(x: Array, epsilon: float = 1.0) -> Array:
    """Laplace noise for vectors of L1 norm 1, as if they were at most 1 apart."""
    return np.asarray(x / np.abs(x).sum() + NOISE.laplace(0.0, 1.0 / epsilon, x.shape))


def sound(x: Array, epsilon: float = 1.0) -> Array:
    """Laplace noise for the largest distance of two such vectors, 2."""
    return np.asarray(x / np.abs(x).sum() + NOISE.laplace(0.0, 2.0 / epsilon, x.shape))


CLAIMS = {
    "own norm": Mechanism(own_norm, dim=8, epsilon=1.0, delta=1e-5),
    "half distance": Mechanism(half_distance, dim=2, epsilon=1.0, norm=1.0),
    "sound": Mechanism(sound, dim=2, epsilon=1.0, norm=1.0),
}


def main() -> None:
    for name, claim in CLAIMS.items():
        report = attack_function(claim, trials=5000, confidence=1 - 1e-6)
        verdict = "violated" if report.violated else "not refuted"
        print(f"{name}: at least {report.lower_bound:.2f} in {report.seconds:.0f} s: {verdict}")


if __name__ == "__main__":
    main()

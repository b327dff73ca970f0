"""Exposure of known and unknown vectors by codes, predicted from public parameters alone.

A code coordinate z is compared with the projected coordinate y behind it by the share R² of its
variance that y explains: linearly for a reconstruction, in any way for a comparison. The attackers
of this model know the projection, the noise law and a prior, and treat attributes as independent.
Attackers who learn from the codes of correlated vectors rebuild more; among vectors that resemble
each other fewer codes are recognised. ``dpindex evaluate`` measures both.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dpindex.base.arrays import Doubles, spaced
from dpindex.base.normal import quantiles
from dpindex.exposure.prior import Prior
from dpindex.exposure.standing_out import (
    SCORES,
    own_code_first,
    own_level_first,
    own_symbol_first,
)
from dpindex.mechanism.noise.law import LinearChannel, SignLaw, SymbolLaw
from dpindex.mechanism.spec import Spec

__all__ = ["Exposure", "linear_channel", "nearness", "predicted_exposure"]

_NODES = 32
_PLAYED = 256
_UNIFORM = math.sqrt(12) * ((np.arange(SCORES) + 0.5) / SCORES - 0.5)


@dataclass(frozen=True)
class Exposure:
    """Expected success of attacks on the codes of one spec.

    Attributes
    ----------
    linked : float
        Share of known vectors whose own code fits best among all codes, [0, 1].
    rebuilt_error : float
        Mean squared error of rebuilt vectors over that of the best guess without codes, [0, ∞).
    rebuilt_cosine, guess_cosine : float
        Cosine of rebuilt vectors, and of that guess, to the originals, [0, 1].
    simulated : bool
        Attacks were tried on public vectors, which give the attacker its guess; else the figures
        follow from public parameters, and the guess is the middle of the bounds.
    """

    linked: float
    rebuilt_error: float
    rebuilt_cosine: float
    guess_cosine: float
    simulated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, numbers to four decimals."""
        numbers = {name: round(value, 4) for name, value in asdict(self).items()}
        return {**numbers, "simulated": self.simulated}

    def with_linked(self, linked: float) -> Exposure:
        """Return the same with another share of linked vectors."""
        return replace(self, linked=linked)

    def lines(self, n: int) -> tuple[str, str]:
        """Return how close a rebuilt vector comes, and how often a known one is found among n."""
        linked = _percent(self.linked)
        by_chance = f"(by chance in 1 of {n})"
        if self.simulated:
            return (
                f"Who has public vectors of the kind rebuilds a vector from its code to cosine "
                f"{self.rebuilt_cosine:.2f}; the best guess without the code has "
                f"{self.guess_cosine:.2f}.",
                f"Who knows a vector and others of its kind finds its code among {n} in {linked} "
                f"of cases {by_chance}.",
            )
        guess = ""
        if self.guess_cosine > 0.005:
            guess = f" (the middle of the bounds: {self.guess_cosine:.2f})"
        return (
            f"Who has public parameters alone rebuilds a vector from its code to about cosine "
            f"{self.rebuilt_cosine:.2f}{guess}; who has public vectors of the kind comes closer: "
            f"plan with a public sample.",
            f"Who knows a vector finds its code among {n} in {linked} of cases {by_chance}, fewer "
            f"where vectors resemble each other.",
        )


def _percent(share: float) -> str:
    """Return a share in percent; a prediction is not more exact than this."""
    if share > 0.99:
        return "over 99 %"
    if share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def predicted_exposure(spec: Spec, n: int, prior: Prior | None = None) -> Exposure:
    """Return what the codes of ``n`` vectors are expected to reveal under that spec.

    Parameters
    ----------
    spec : Spec
        Public parameters of the codes.
    n : int
        Number of codes, [0, ∞).
    prior : Prior, optional
        What is known about the vectors; default what the spec says: :meth:`Prior.of`.

    >>> spec = Spec("raw-staircase", dim=100, epsilon=6.0, bounds=(0, 1))
    >>> predicted_exposure(spec, 10_000).to_dict()
    {'linked': 1.0, 'rebuilt_error': 0.1449, 'rebuilt_cosine': 0.9817, 'guess_cosine': 0.866,
     'simulated': False}
    """
    prior = prior or Prior.of(spec)
    guess = _cosine(prior, 0.0)
    if isinstance(spec.law, SymbolLaw):
        near = spec.law.chance_inside * nearness(spec)
        linked = own_symbol_first(spec.law, n)
        return Exposure(linked, 1.0 - near**2, max(near, guess), guess)
    linear, any_way = _explained(spec, prior)
    rebuilt = _rebuilt_share(spec, linear)
    if spec.law.two_levels is not None and prior.cosines is None:
        linked = own_level_first(spec.law.two_levels, n)
    else:
        linked = own_code_first(math.sqrt(any_way), spec, n, prior.cosines)
    return Exposure(linked, 1.0 - rebuilt, _cosine(prior, rebuilt), guess)


def _cosine(prior: Prior, share: float) -> float:
    """Return the cosine of a vector and an estimate that explains that share of its variance."""
    whole = prior.mean**2 + prior.variance
    return math.sqrt((prior.mean**2 + share * prior.variance) / whole)


def _explained(spec: Spec, prior: Prior) -> tuple[float, float]:
    """Return the shares of a code coordinate's variance that the projected one explains.

    The first share is that of a linear estimate, the second of any.
    """
    energy = spec.dim * (spec.projection.rms * spec.projection.scale) ** 2
    one_attribute = getattr(spec.projection, "bins", 0) == spec.dim
    is_single = spec.method_row.family.keeps_all or one_attribute
    if is_single:
        signs_of_means = np.ones(1)
        shape = _UNIFORM
    else:  # sums of attributes are normal, and random signs spread their means about 0
        signs_of_means = quantiles(_NODES)
        shape = quantiles(SCORES)
    means = signs_of_means * prior.mean * math.sqrt(energy)
    variances = np.full(len(means), prior.variance * energy)
    if not isinstance(spec.law, SignLaw):
        channel = linear_channel(spec, means, variances)
        signal = float((channel.slope**2 * variances).sum())
        share = signal / (signal + float(channel.noise.sum()))
        return share, share
    values = (means[:, None] + np.sqrt(variances)[:, None] * shape) / _beta(spec)
    rms = float(np.sqrt(np.mean(means**2 + variances))) / _beta(spec)
    signs = spec.law.expected_signs(values, rms)
    expected = signs.mean(axis=1)
    whole = float((1 - expected**2).sum())
    slope = (signs * shape).mean(axis=1)
    linear = float((slope**2).sum()) / whole
    if is_single:  # an attribute of 0 has one sign and others have any: a coin toss at most
        return linear, float((signs**2).mean())
    return linear, float(signs.var(axis=1).sum()) / whole


def _rebuilt_share(spec: Spec, explained: float) -> float:
    """Return the share of a vector's variance that the best linear estimate explains.

    Orthogonal projections lose what they leave out; for others the fixed point of Tse & Hanly
    (1999), Eq. (8), for random ones.
    """
    ratio = spec.code_length / spec.dim
    kept = min(ratio, 1.0)
    if spec.code_length * spec.projection.inner_product_factor <= 1.01 - kept:
        return kept * explained
    odds = explained / max(1.0 - explained, 1e-12)
    low = 0.0  # bounds of the share that is left
    high = 1.0
    for _ in range(60):
        left = (low + high) / 2
        if left * (1.0 + ratio * odds / (1.0 + odds * left)) > 1.0:
            high = left
        else:
            low = left
    return 1.0 - low


def linear_channel(spec: Spec, mean: Doubles, variance: Doubles) -> LinearChannel:
    """Return codes as linear in their coordinates, under a prior of these, in scaled units.

    Parameters
    ----------
    spec : Spec
        Of numbers or signs.
    mean, variance : float64 arrays, shape (k,)
        Of the projected coordinates, before the law is applied.
    """
    if isinstance(spec.law, SignLaw):
        return spec.law.linear_channel(mean, variance, _beta(spec))
    return spec.number_law.linear_channel(mean, variance, spec.step)


def _beta(spec: Spec) -> float:
    """Return the unit of a sign law: beta before the projection's scale is applied."""
    return spec.projection.scale * spec.adjacency.size


def nearness(spec: Spec) -> float:
    """Return the mean cosine of a codeword to the w nearest others: as near as vectors come."""
    law = spec.symbol_law
    words = law.codebook.vectors
    played = words[spaced(len(words), _PLAYED)] @ words.T
    falling = -np.sort(-played, axis=1)  # the first is the codeword itself
    return float(falling[:, 1 : 1 + law.subset].mean())

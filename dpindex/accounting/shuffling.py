"""Amplification by shuffling: what codes promise once nobody knows which code is whose."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpindex.base.arrays import Floats
from dpindex.base.checks import checked_delta, finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.privacy import Adjacency, Guarantee, Record

_MOST_CODES = 2**53
_BLOCKS = 64
_HALVINGS = 40
_CUT = 1e-3
"""Share of delta that tails may hold which are not summed."""

_SUM_ROUNDING = 1 + 1e-9
"""More than the relative errors of the binomial probabilities and their sums."""


@dataclass(frozen=True)
class ShuffledRecords(Adjacency):
    """Two collections of ``count`` records are neighbours when one record is replaced by any other.

    Their codes are published in a random order, and nothing else of a record travels with its
    code. The adjacency of :func:`shuffled`.

    Attributes
    ----------
    count : int
        Codes in the shuffle.
    local_epsilon : float
        Of one code, for whoever saw it arrive.

    >>> print(ShuffledRecords(1000, 4.0))
    shuffled-records(count=1000)
    """

    count: int
    local_epsilon: float
    kind = "shuffled-records"
    published = "the shuffled codes and all parameters"
    against = (
        "This holds against everyone who sees the codes in their shuffled order alone, whatever "
        "else that party knows about other people."
    )
    several = "one person's several records: m of them cost m × {epsilon:g} (group privacy{growth})"

    def __str__(self) -> str:
        return f"{self.kind}(count={self.count})"

    def describe(self) -> str:
        return f"one whole record of {self.count}, replaced by any other"

    def visible(self) -> list[str]:
        return [
            "a record against whoever saw its code arrive (the collector, its operator, the "
            "network): there epsilon is {local_epsilon:g}",
            "codes that carry an id, a payload, a time or their order of arrival: nothing is "
            "amplified for them",
            "senders who are not honest: epsilon is counted over the senders who add their noise",
            "how many records there are",
            "a second release of the same record: epsilons and deltas add up",
            "facts that can be learnt from other people's records",
        ]


def shuffled(guarantee: Guarantee, count: int, delta: float) -> Guarantee:
    """Return the promise about ``count`` codes that are published in a secret random order.

    A shuffle hides which code is whose, which is worth a smaller epsilon (amplification by
    shuffling: Feldman, McMillan & Talwar 2021, Thm 3.2). It holds only where nothing but the
    code of a record leaves whoever shuffles: no id, payload, time or order.

    Parameters
    ----------
    guarantee : Guarantee
        Of one code.
    count : int
        Codes in the shuffle whose senders added their noise.
    delta : float
        In (0, 1); below 1 / count, as it bounds the chance that a record is exposed.

    Raises
    ------
    InputError
        If its promise is not pure DP about any two vectors.

    >>> from dpindex.privacy import record
    >>> print(shuffled(Guarantee(8.0, 0.0, "DP", record()), 1_000_000, 1e-8))
    epsilon = 0.557348, delta = 1e-08 (DP) under shuffled-records(count=1000000)
    """
    for promise in guarantee.also:
        if isinstance(promise.adjacency, Record):
            return shuffled(promise, count, delta)
    about_records = isinstance(guarantee.adjacency, Record)
    if guarantee.definition != "DP" or guarantee.delta != 0 or not about_records:
        raise InputError(
            f"shuffling amplifies pure DP about any two vectors, and this is {guarantee}; use a "
            f"method for whole records."
        )
    return replace(
        guarantee,
        epsilon=amplified_epsilon(guarantee.epsilon, count, delta),
        delta=delta,
        adjacency=ShuffledRecords(count, guarantee.epsilon),
        exact=False,
    )


def amplified_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the epsilon of ``count`` shuffled codes, each of which is ``epsilon``-DP by itself.

    Feldman, McMillan & Talwar (FOCS 2021, "Hiding among the clones", Thm 3.2): for local
    randomizers that are pure DP for *any two* inputs, a change of one input is seen no better than
    in the counts of two kinds of clones. Their divergence is summed here, with every sum rounded
    in the safe direction; the closed form of their Thm 3.1 is two to three times as large.

    Parameters
    ----------
    epsilon : float
        Of one code, above 0.
    count : int
        Codes in the shuffle, at least 1.
    delta : float
        In [1e-30, 1).

    Returns
    -------
    float
        In (0, epsilon].

    >>> round(amplified_epsilon(8.0, 1_000_000, 1e-8), 2)
    0.56
    """
    epsilon = finite_number(epsilon, "epsilon", above=0.0)
    delta = checked_delta(delta, "a shuffle")
    count = whole_number(count, "the number of shuffled codes", 1, _MOST_CODES)
    clones = Clones.of(epsilon, count, delta)
    low = 0.0
    high = epsilon
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if clones.divergence(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class Clones:
    """The two laws of Thm 3.2 for neighbouring inputs, in blocks of numbers of clones.

    Of the other senders, Binomial(count − 1, e^−ε) are clones, and a fair coin says of which of the
    two inputs. The sender who differs joins the counts as its own input with the odds of randomized
    response. More clones hide better (one more is post-processing), so a block of numbers is
    replaced by its least.

    Attributes
    ----------
    blocks : list of (weight, law, swapped law)
        Laws of the clones of the first kind, cut where both tails hold less than a share of delta.
    ignored : float
        Weight of what was cut, counted as if it told everything.
    """

    blocks: list[tuple[float, Floats, Floats]]
    ignored: float

    @classmethod
    def of(cls, epsilon: float, count: int, delta: float) -> Clones:
        """Return the laws for one epsilon of a code; ``delta`` says how much may be cut."""
        from scipy.stats import binom

        cut = delta * _CUT
        others = binom(count - 1, math.exp(-epsilon))
        fewest = max(0.0, others.ppf(cut) - 1.0)
        most = others.ppf(0.999)  # any number above this counts as this number
        edges = np.unique(np.linspace(fewest, most, _BLOCKS) // 1)
        reached = np.append(others.sf(edges - 1.0), 0.0)
        truth = 1.0 / (1.0 + math.exp(-epsilon))
        blocks = []
        for least, weight in zip(edges, reached[:-1] - reached[1:], strict=True):
            # Hoeffding: a fair coin strays further from its mean with a chance below the cut.
            width = math.sqrt(least * math.log(2.0 / cut) / 2.0)
            lowest = max(0.0, least / 2 - width) // 1
            first = np.arange(lowest, least / 2 + width + 2.0)
            joined = binom.pmf(first - 1.0, least, 0.5)
            alone = binom.pmf(first, least, 0.5)
            law = truth * joined + (1.0 - truth) * alone
            swapped = (1.0 - truth) * joined + truth * alone
            blocks.append((float(weight), law, swapped))
        below = float(others.cdf(fewest - 1.0))
        return cls(blocks, below + cut)

    def divergence(self, epsilon: float) -> float:
        """Return a bound on the least delta that the laws have at this epsilon."""
        factor = math.exp(epsilon)
        total = self.ignored
        for weight, law, swapped in self.blocks:
            excess = np.maximum(law - factor * swapped, 0.0)
            total += weight * float(excess.sum())
        return total * _SUM_ROUNDING

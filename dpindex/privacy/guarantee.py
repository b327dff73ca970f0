"""Guarantee: epsilon, delta, definition and adjacency; how guarantees add up and are amplified."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dpindex.base.arrays import Floats
from dpindex.base.checks import checked_delta, finite_number, whole_number
from dpindex.base.display import UpperBound, facts_html
from dpindex.base.errors import InputError
from dpindex.privacy.adjacency import Adjacency, Group, Record

_MOST_CHANGES = 2**53

_ROUNDING = 1 + 2.0**-30
"""More than the relative errors of a product with an exponential of at most exp(745)."""

_WEAKER = (
    " This is individual differential privacy (iDP), which is weaker than differential privacy: it "
    "compares the actual vector with its neighbours only, and which bits were left without noise "
    "can itself tell a vector from its neighbour."
)

_AVERAGE = (
    "That delta is a chance over the noise and over the projection, before the projection was "
    "drawn. It is not a promise given the published projection: there can be changes for which "
    "that one fails. "
)


@dataclass(frozen=True)
class Guarantee:
    """The promise of one release about its input, whoever holds it and all public parameters.

    Attributes
    ----------
    epsilon, delta : float
        The budget of one release of one vector or collection. ``delta`` 0 means pure.
    definition : "DP", "iDP" or "none"
        ``"iDP"`` (Li & Li 2023, Def. 2.6) is weaker than DP and is never called DP: it compares
        the actual vector with its neighbours only. ``"none"`` protects nothing.
    adjacency : Attribute, L2 or Records
        What may differ between two inputs that must look alike, in the units of the data: for a
        spec with beta = 1 and scale = 0.01 a change of 0.01.
    exact : bool
        True when the proof is about the integers that run, not about real numbers.
    delta_over : "noise" or "projection"
        Whether ``delta`` is a probability over the secret noise alone, or also over the choice
        of the (public) projection. The latter is no promise given the published projection.
    also : tuple of Guarantee
        Further promises of the same release, under other adjacencies. All hold at once.

    >>> from dpindex.privacy.adjacency import attribute, record
    >>> one = Guarantee(2.0, 0.0, "DP", attribute(1.0))
    >>> str(one)
    'epsilon = 2 (pure DP) under attribute(beta=1)'
    >>> both = Guarantee(2.0, 0.0, "DP", attribute(1.0),
    ...     also=(Guarantee(8.0, 0.0, "DP", record()),))
    >>> str(both.at(attribute(10.0)))
    'epsilon = 8 (pure DP) under attribute(beta=10)'
    """

    epsilon: float
    delta: float
    definition: Literal["DP", "iDP", "none"]
    adjacency: Adjacency
    exact: bool = True
    delta_over: Literal["noise", "projection"] = "noise"
    also: tuple[Guarantee, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, UpperBound(getattr(self, name)))

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        """Each promise by itself, the first under :attr:`adjacency`."""
        return replace(self, also=()), *self.also

    @property
    def weakness(self) -> str:
        """What keeps it from holding for several changes at once; empty if nothing does."""
        if self.definition == "iDP":
            return "iDP"
        if self.delta_over == "projection":
            return "a delta over the projection"
        return ""

    @property
    def units(self) -> str:
        """What each promise is about, in words."""
        return "; and ".join(promise.adjacency.describe() for promise in self.promises)

    def __str__(self) -> str:
        if self.also:
            return ", and ".join(map(str, self.promises))
        if self.definition == "none":
            return "no guarantee: the codes are not private"
        if self.delta == 0:
            return f"epsilon = {self.epsilon:g} (pure {self.definition}) under {self.adjacency}"
        delta = f"delta = {self.delta:g}"
        if self.delta_over == "projection":
            delta += " over noise and projection"
        return f"epsilon = {self.epsilon:g}, {delta} ({self.definition}) under {self.adjacency}"

    def _repr_html_(self) -> str:
        """For notebooks: the promise, and what it is about."""
        return facts_html(str(self), {"protected": self.protects()})

    def __add__(self, other: Guarantee) -> Guarantee:
        """Both releases together: see :func:`add_up`."""
        if not isinstance(other, Guarantee):
            return NotImplemented
        return add_up(self, other)

    def group(self, changes: int) -> Guarantee:
        """Return the promise about several neighbouring changes at once, as :meth:`at` states it.

        Parameters
        ----------
        changes : int
            At least 1.

        Raises
        ------
        InputError
            For anything but a whole number from 1; for two or more, where :meth:`at` refuses.

        >>> from dpindex.privacy.adjacency import attribute
        >>> print(Guarantee(1.0, 1e-6, "DP", attribute(0.5)).group(10))
        epsilon = 10, delta = 0.0810309 (DP) under 10 × attribute(beta=0.5)
        """
        count = whole_number(changes, "the number of changes", 1, _MOST_CHANGES)
        if count == 1:
            return self
        return self.at(Group(count, self.adjacency))

    def at(self, change: Adjacency) -> Guarantee:
        """Return the promise about another change, which takes m steps between neighbours.

        Of several promises the least epsilon counts.

        Group privacy: epsilon is m·epsilon and delta at most m·exp((m−1)·epsilon)·delta (Dwork &
        Roth 2014, Thm 2.2; Vadhan 2017, Lemma 2.2), both rounded up.

        Raises
        ------
        InputError
            If the change is of another kind. For more than one step: for iDP, which says nothing
            about the neighbours of a neighbour, and for a delta over the projection, which holds
            where norms have a lower bound that a step between need not keep.

        >>> from dpindex.privacy.adjacency import attribute
        >>> str(Guarantee(1.0, 0.0, "DP", attribute(0.5)).at(attribute(1.2)))
        'epsilon = 3 (pure DP) under attribute(beta=1.2)'
        """
        if self.also:
            known = [one for one in self.promises if one.adjacency.steps(change) is not None]
            if known:
                promises = [one.at(change) for one in known]
                return min(promises, key=lambda one: one.epsilon)
        steps = self.adjacency.steps(change)
        if steps is None:
            raise InputError(
                f"guarantees under {self.adjacency} and {change} do not add up: their epsilons "
                f"count different changes; compose each kind by itself."
            )
        if steps == 1 or self.definition == "none":
            return replace(self, adjacency=change)
        if self.weakness:
            raise InputError(
                f"{self.weakness} under {self.adjacency} says nothing about {change}, which takes "
                f"{steps} such changes; compose each by itself."
            )
        epsilon = rounded_up(steps * Fraction(self.epsilon))
        exponent = (steps - 1) * self.epsilon
        delta = self.delta
        if delta > 0 and math.log(steps) + exponent + math.log(delta) < 0:
            delta = min(1.0, steps * math.exp(exponent) * delta * _ROUNDING)
        elif delta > 0:
            delta = 1.0
        return replace(self, epsilon=epsilon, delta=delta, adjacency=change)

    def shuffled(self, count: int, delta: float) -> Guarantee:
        """Return the promise about ``count`` codes that are published in a secret random order.

        A shuffle hides which code is whose, which is worth a smaller epsilon (amplification by
        shuffling: Feldman, McMillan & Talwar 2021, Thm 3.2). It holds only where nothing but the
        code of a record leaves whoever shuffles: no id, payload, time or order.

        Parameters
        ----------
        count : int
            Codes in the shuffle whose senders added their noise.
        delta : float
            In (0, 1); below 1 / count, as it bounds the chance that a record is exposed.

        Raises
        ------
        InputError
            If this promise is not pure DP about any two vectors.

        >>> from dpindex.privacy.adjacency import record
        >>> print(Guarantee(8.0, 0.0, "DP", record()).shuffled(1_000_000, 1e-8))
        epsilon = 0.557348, delta = 1e-08 (DP) under shuffled-records(count=1000000)
        """
        for promise in self.also:
            if isinstance(promise.adjacency, Record):
                return promise.shuffled(count, delta)
        if self.definition != "DP" or self.delta != 0 or not isinstance(self.adjacency, Record):
            raise InputError(
                f"shuffling amplifies pure DP about any two vectors, and this is {self}; use a "
                f"method for whole records."
            )
        return replace(
            self,
            epsilon=amplified_epsilon(self.epsilon, count, delta),
            delta=delta,
            adjacency=ShuffledRecords(count, self.epsilon),
            exact=False,
        )

    def odds(self) -> str:
        """Return what a guess of 50:50 becomes, in one sentence; the percentage is rounded up.

        For (ε, δ) no test of two neighbours is right more often than ``(e^ε + δ)/(1 + e^ε)``
        (Kairouz, Oh & Viswanath 2015, Thm 2.1 with equal priors).

        >>> from dpindex.privacy.adjacency import attribute
        >>> print(Guarantee(3.0, 0.0, "DP", attribute(1.0)).odds())
        Of two possibilities, one attribute (coordinate) of one vector, changed by at most 1 in the
        units of the data, a 50:50 guess becomes at most 95.3 % sure.
        """
        if self.definition == "none":
            return "A 50:50 guess becomes certain: nothing is protected."
        if self.also:
            return " ".join(promise.odds() for promise in self.promises)
        terms = ""
        if self.delta:
            terms = f", delta = {self.delta:g} included"
        if self.delta_over == "projection":
            terms += ", before the projection is known"
        if self.definition == "iDP":
            terms += ", if one of the two is the actual vector (iDP)"
        return (
            f"Of two possibilities, {self.adjacency.describe()}, a 50:50 guess becomes at most "
            f"{_certainty(self.epsilon, self.delta)} sure{terms}."
        )

    def protects(self) -> str:
        """One paragraph a lawyer could quote: what is promised, and to what extent."""
        if self.definition == "none":
            return "Nothing is protected: this method adds no noise and exists for comparison only."
        if self.also:
            return " ".join(promise.protects() for promise in self.promises)
        change = self.adjacency.describe()
        slack = ""
        average = ""
        weaker = ""
        if self.delta:
            slack = f", except with a probability governed by delta = {self.delta:g}"
        if self.delta_over == "projection":
            change += " and chosen without looking at the projection"
            average = _AVERAGE
        if self.definition == "iDP":
            weaker = _WEAKER
        return (
            f"For {change}: whoever holds {self.adjacency.published} can learn about that change "
            f"at most a factor of exp(epsilon) = exp({self.epsilon:g}) in odds{slack}. "
            f"{average}{self.adjacency.against}{weaker}"
        )

    def does_not_protect(self, dim: int) -> list[str]:
        """Return what stays visible or costs more than one epsilon at ``dim`` attributes."""
        if self.definition == "none":
            return ["anything at all"]
        if self.also:
            *_, widest = self.also
            return [
                *widest.does_not_protect(dim),
                f"more than one such change ({self.adjacency.describe()}) at once: m of them cost "
                f"m × {self.epsilon:g}, and never more than {widest.epsilon:g}",
            ]
        facts = {**vars(self.adjacency), "epsilon": self.epsilon}
        lines = [line.format_map(facts) for line in self.adjacency.visible()]
        if self.weakness:
            lines.append(
                f"more than one such change at once: {self.weakness} says nothing about that, "
                f"however small the changes are"
            )
        else:
            growth = ""
            if self.delta > 0:
                growth = "; delta grows to m·exp((m−1)·epsilon)·delta"
            facts |= {"dim": dim, "whole": self.whole(dim), "growth": growth}
            lines.append(self.adjacency.several.format_map(facts))
        if self.definition == "iDP":
            lines.append(
                "the vector as a whole: signs that no neighbour could change are published as "
                "they are, at every epsilon, and the vector can be rebuilt from them"
            )
        if self.delta_over == "projection":
            lines.append(
                "changes that the published projection stretches most: anyone can compute them, "
                "and for them delta may be far larger than stated; a method whose delta is over "
                "the noise alone has no such gap"
            )
        return lines

    def whole(self, dim: int) -> str:
        """Return what one change in each of ``dim`` attributes costs, in words.

        >>> from dpindex.privacy.adjacency import attribute
        >>> Guarantee(1.0, 1e-6, "DP", attribute(0.5)).whole(784)
        '784 with delta = 1, which promises nothing'
        >>> Guarantee(1.0, 0.0, "iDP", attribute(0.5)).whole(784)
        'any loss: iDP says nothing about several changes'
        """
        if self.weakness:
            return f"any loss: {self.weakness} says nothing about several changes"
        together = self.group(dim)
        text = f"{together.epsilon:g}"
        if together.delta:
            text += f" with delta = {together.delta:g}"
        if together.delta == 1:
            text += ", which promises nothing"
        return text

    def statement(self, dim: int) -> dict[str, Any]:
        """Return what is and is not protected at ``dim`` attributes, as plain JSON values."""
        return {
            "guarantee": self.to_dict(),
            "protects": self.protects(),
            "odds": self.odds(),
            "does_not_protect": self.does_not_protect(dim),
        }

    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain JSON values."""
        facts = asdict(self)
        facts["adjacency"] = self.adjacency.to_dict()
        if self.definition == "none":
            facts["epsilon"] = None
        del facts["also"]
        if self.also:
            facts["also"] = [promise.to_dict() for promise in self.also]
        return facts


def add_up(*guarantees: Guarantee) -> Guarantee:
    """Return the promise of several releases of one vector together: epsilons and deltas add up.

    Basic sequential composition, for adaptive releases too (Dwork & Roth 2014, Thm 3.16; Li & Li
    2023, Thm 2.3; for iDP Soria-Comas et al. 2017). Sums are exact and rounded up to the next
    float. :func:`dpindex.compose` does the same for specs, and knows a tighter way. Of releases
    with several promises those under each adjacency that all have add up by themselves.

    Parameters
    ----------
    guarantees : Guarantee
        One for each release; a guarantee twice is two releases.

    Raises
    ------
    InputError
        For no guarantee at all, for different adjacencies (their epsilons count different changes:
        compose what each promises :meth:`~Guarantee.at` one change), and for iDP with DP (the total
        would be iDP; say so yourself if that is what you mean).

    >>> from dpindex.privacy.adjacency import attribute
    >>> str(add_up(*3 * [Guarantee(0.5, 1e-6, "DP", attribute(1.0))]))
    'epsilon = 1.5, delta = 3e-06 (DP) under attribute(beta=1)'
    """
    if not guarantees:
        raise InputError("there is nothing to compose: name at least one release.")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.adjacency != first.adjacency:
            raise InputError(
                f"guarantees under {first.adjacency} and {other.adjacency} do not add up: their "
                f"epsilons count different changes; compose what each promises at one change."
            )
        if other.definition != first.definition:
            raise InputError(
                f"{first.definition} and {other.definition} do not add up to either; compose each "
                f"kind by itself."
            )
    if first.definition == "none":
        return first
    also = []
    for adjacency in [promise.adjacency for promise in first.also]:
        alike = [one for g in guarantees for one in g.also if one.adjacency == adjacency]
        if len(alike) == len(guarantees):
            also.append(add_up(*alike))
    return replace(
        first,
        also=tuple(also),
        epsilon=rounded_up(sum(Fraction(g.epsilon) for g in guarantees)),
        delta=min(1.0, rounded_up(sum(Fraction(g.delta) for g in guarantees))),
        exact=all(g.exact for g in guarantees),
        delta_over=next((g.delta_over for g in guarantees if g.delta_over != "noise"), "noise"),
    )


def _certainty(epsilon: float, delta: float) -> str:
    """``(e^ε + δ)/(1 + e^ε)`` in percent, rounded up."""
    odds = math.exp(min(epsilon, 700.0))
    wrong = (1.0 - delta) / (1.0 + odds)
    if wrong < 1e-9:
        return "practically 100 %"
    decimals = max(1, math.ceil(-math.log10(wrong)) - 2)
    unit = 10.0**decimals
    # Less 1e-6: a whole number that floats have raised by their rounding stays what it is.
    return f"{math.ceil(100 * (1.0 - wrong) * unit - 1e-6) / unit:.{decimals}f} %"


def rounded_up(x: Fraction | int) -> float:
    """The least float that is not below x."""
    nearest = float(x)
    if Fraction(nearest) < x:
        return math.nextafter(nearest, math.inf)
    return nearest


# Amplification by shuffling: what codes promise once nobody knows which code is whose.

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
    code. The adjacency of :meth:`dpindex.Guarantee.shuffled`.

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
        most = others.ppf(0.999)  # more clones than this count as so many
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

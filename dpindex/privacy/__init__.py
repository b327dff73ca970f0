"""Privacy: adjacency, and the guarantee with what it says in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from dpindex.base.checks import whole_number
from dpindex.base.display import UpperBound, facts_html
from dpindex.base.errors import InputError
from dpindex.privacy.adjacency import (
    L2,
    Adjacency,
    Attribute,
    Group,
    Neighbouring,
    Record,
    Records,
    VectorAdjacency,
    adjacency_from_dict,
    attribute,
    l2,
    record,
)

__all__ = [
    "L2", "Adjacency", "Attribute", "Group", "Guarantee", "Neighbouring", "Record",
    "Records", "VectorAdjacency", "adjacency_from_dict", "attribute", "l2", "record",
]  # fmt: skip


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
        # By logarithms first, as e^((m−1)ε) may be no float; the product is rounded up.
        if delta > 0 and math.log(steps) + exponent + math.log(delta) < 0:
            delta = min(1.0, steps * math.exp(exponent) * delta * _ROUNDING)
        elif delta > 0:
            delta = 1.0
        return replace(self, epsilon=epsilon, delta=delta, adjacency=change)

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
                "they are, at every epsilon, and the vector can be reconstructed from them"
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

"""What a guarantee means: warnings of weak ones, and what one of whole records allows at most.

All bounds are proven ones from the promise alone: they hold for every method, every collection and
every attacker. Other promises bound nothing about whole vectors.
"""

from __future__ import annotations

import math

from dpindex.base.display import UpperBound
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record

_SMALL_SHARE = 0.05
_WIDER = 1 + 1e-6


def quality_warnings(spec: Spec, count: int | None = None) -> list[str]:
    """Return a sentence for each parameter of a private spec that promises little.

    Parameters
    ----------
    spec : Spec
    count : int, optional
        Vectors that are released under it, if their number is known.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=784, epsilon=2.0, bounds=(0, 255),
    ...     adjacency=attribute(1.0))
    >>> print(*quality_warnings(spec, 3000))
    beta = 1 is 0.392 % of the range of an attribute, 0 to 255: only changes that small are hidden
    at this epsilon; beta = 255 hides a value completely (bytes: scale 255, bounds 0 and 1, beta 1)
    """
    if not spec.method_row.private:
        return []
    sentences = []
    if spec.guarantee.definition == "iDP":
        sentences.append(
            "individual differential privacy (iDP) promises less than differential privacy: "
            "vectors can be reconstructed from these codes"
        )
    low, high = (bound * spec.scale for bound in spec.bounds)
    beta = spec.adjacency.size * spec.scale
    share = beta / (high - low)
    rounded = spec.method_row.calibration.rounded
    if isinstance(spec.adjacency, Attribute) and rounded and share < _SMALL_SHARE:
        sentence = (
            f"beta = {beta:g} is {100 * share:.3g} % of the range of an attribute, {low:g} to "
            f"{high:g}: only changes that small are hidden at this epsilon; beta = {high - low:g} "
            f"hides a value completely"
        )
        if (low, high) == (0.0, 255.0):
            sentence += " (bytes: scale 255, bounds 0 and 1, beta 1)"
        sentences.append(sentence)
    if isinstance(spec.adjacency, Attribute) and share > _WIDER:
        sentences.append(
            f"beta = {beta:g} is wider than the range of an attribute, {low:g} to {high:g}: none "
            f"changes by more than {high - low:g}, and that beta hides as much with less noise"
        )
    if count and spec.delta > 1 / count:
        sentences.append(
            f"delta = {spec.delta:g} is more than one over the number of vectors, {1 / count:.2g}: "
            f"publishing a vector of the {count} as it is would meet such a delta; take 1e-6, or "
            f"less"
        )
    return sentences


_ANSWERS = 10
_ALMOST_ALL = 0.99


def _of_records(spec: Spec) -> float | None:
    """Return the epsilon of codes that hide whole records; None of others, which bound nothing."""
    return spec.epsilon if isinstance(spec.adjacency, Record) else None


def max_top_k_rate(spec: Spec, candidates: int, places: int = 1) -> float | None:
    """Return the highest rate at which a code finds its record among the first of candidates.

    Each candidate is the record with the same chance. The answer is one of ``places`` candidates
    with a chance p; for any other record it is so with at least ``e^−ε·p``, and the chances of all
    candidates add up to ``places``. So ``p ≤ places·e^ε/(e^ε + candidates − 1)``, and δ more.

    Returns
    -------
    float in [0, 1], or None for codes that do not hide whole records.

    >>> from dpindex import Spec, record
    >>> round(max_top_k_rate(Spec("record-cap", 8, epsilon=8.0, adjacency=record()), 1000), 3)
    0.749
    """
    epsilon = _of_records(spec)
    if epsilon is None:
        return None
    others = (candidates - 1) * math.exp(-epsilon)
    return UpperBound(min(1.0, places / (1.0 + others) + spec.delta))


def max_linkage_rate(spec: Spec, n: int) -> float | None:
    """Return the highest rate at which someone who knows a vector finds its code among n.

    Each code is its own with the same chance; the attacker may know all other vectors too. If the
    vector and that of another code change places, two codes change, so any answer keeps at least
    ``e^−2ε`` of its chance, but for ``(1 + e^ε)·δ``. The chances of all answers add up to 1, so
    ``p ≤ 1/(1 + (n − 1)·e^−2ε)`` without δ.

    Returns
    -------
    float in [0, 1], or None for codes that do not hide whole records.

    >>> from dpindex import Spec, record
    >>> round(max_linkage_rate(Spec("record-cap", 8, epsilon=2.0, adjacency=record()), 1000), 3)
    0.052
    """
    epsilon = _of_records(spec)
    if epsilon is None:
        return None
    others = (n - 1) * math.exp(-2.0 * epsilon)
    slack = others * (1.0 + math.exp(epsilon)) * spec.delta
    return UpperBound(min(1.0, (1.0 + slack) / (1.0 + others)))


def max_inference_rate(spec: Spec, before: float) -> float | None:
    """Return the highest rate of inferring a label that is guessed at that rate without a code.

    The posterior odds are at most e^ε times the prior odds.
    """
    epsilon = _of_records(spec)
    if epsilon is None:
        return None
    against = (1.0 - before) * math.exp(-epsilon)
    return UpperBound(min(1.0, before / (before + against) + spec.delta))


def max_tpr(spec: Spec, false_positives: float) -> float | None:
    """Return the highest true-positive rate of telling a record from any other, at that rate."""
    epsilon = _of_records(spec)
    if epsilon is None:
        return None
    return UpperBound(min(1.0, math.exp(epsilon) * false_positives + spec.delta))


def max_bits(epsilon: float) -> float:
    """Return the most that a code says about its record, in bits, if any two may be confused.

    The chances of any report under two records differ by a factor of e^ε at most, so over what is
    expected they carry most where they take two values alone, ``e^ε`` apart (Kairouz, Oh &
    Viswanath 2016). Of all shares of records that have the larger one the best carries
    ``(a − 1 − ln a)/ln 2`` bits with ``a = ε/(1 − e^−ε)``.

    >>> [round(max_bits(epsilon), 2) for epsilon in (6.0, 8.0, 10.0, 12.0)]
    [4.65, 7.1, 9.66, 12.28]
    """
    most = epsilon / -math.expm1(-epsilon)
    return UpperBound((most - 1.0 - math.log(most)) / math.log(2))


def information_lines(spec: Spec, n: int) -> tuple[str, ...]:
    """Return a sentence on what codes of whole records can say; none for other neighbours.

    Parameters
    ----------
    spec : Spec
        Public parameters of the codes.
    n : int
        Vectors in the collection.
    """
    if not isinstance(spec.adjacency, Record) or n <= _ANSWERS:
        return ()
    carried = ""
    if spec.codebook is not None:
        law = CodebookResponse.of(spec.law)
        share = law.subset / law.size
        inside = law.chance_inside
        bits = inside * math.log2(inside / share)
        if inside < 1.0:
            bits += (1.0 - inside) * math.log2((1.0 - inside) / (1.0 - share))
        carried = f"; a code of this codebook carries {UpperBound(bits):.2f}"
    return (
        f"At epsilon = {spec.budget:g} no code of any method says more than "
        f"{max_bits(spec.budget):.2f} bits about its record{carried}. Narrowing {n} records "
        f"to {_ANSWERS} takes {math.log2(n / _ANSWERS):.2f} bits, and to 1 % of them "
        f"{math.log2(100):.2f}, so let the data holder re-rank candidates.",
    )


def exposure_line(spec: Spec, n: int) -> str:
    """Return a sentence on how often someone who knows a vector finds its code among n."""
    bound = max_linkage_rate(spec, n)
    by_chance = f"by chance in 1 of {n}"
    if bound is None or bound > _ALMOST_ALL:
        return (
            f"Someone who knows a vector may find its code among {n} ({by_chance}), and may "
            f"reconstruct a vector from its code: this guarantee limits neither. `dpindex plan` "
            f"measures both on public vectors, `dpindex evaluate` on yours."
        )
    return (
        f"Someone who knows a vector finds its code among {n} in at most "
        f"{math.ceil(100 * bound)} % of cases, whatever the attack ({by_chance})."
    )

"""Doubts about public parameters that are valid and promise little."""

from __future__ import annotations

from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute

__all__ = ["doubts", "share_of_range"]

_SMALL_SHARE = 0.05


def share_of_range(spec: Spec) -> float | None:
    """Return which share of an attribute's range a change of beta is, (0, ∞).

    None under other adjacencies than that of one attribute, and for methods that take any numbers.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=784, epsilon=2.0, bounds=(0, 255),
    ...     adjacency=attribute(1.0))
    >>> share_of_range(spec) == 1 / 255
    True
    """
    if not isinstance(spec.adjacency, Attribute) or not spec.method_row.calibration.rounded:
        return None
    low, high = spec.bounds
    return spec.adjacency.size / (high - low)


def doubts(spec: Spec, count: int | None = None) -> list[str]:
    """Return a sentence for each parameter of a private spec that promises little.

    Parameters
    ----------
    spec : Spec
    count : int, optional
        Vectors that are released under it, if their number is known.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=784, epsilon=2.0, bounds=(0, 255),
    ...     adjacency=attribute(1.0))
    >>> print(*doubts(spec, 3000))
    beta = 1 is 0.392 % of the range of an attribute, 0 to 255: only changes that small are hidden
    at this epsilon; beta = 255 hides a value completely (bytes: scale 255, bounds 0 and 1, beta 1)
    """
    if not spec.method_row.private:
        return []
    sentences = []
    share = share_of_range(spec)
    if share is not None and share < _SMALL_SHARE:
        low, high = (bound * spec.scale for bound in spec.bounds)
        beta = spec.adjacency.size * spec.scale
        sentence = (
            f"beta = {beta:g} is {100 * share:.3g} % of the range of an attribute, {low:g} to "
            f"{high:g}: only changes that small are hidden at this epsilon; beta = {high - low:g} "
            f"hides a value completely"
        )
        if (low, high) == (0.0, 255.0):
            sentence += " (bytes: scale 255, bounds 0 and 1, beta 1)"
        sentences.append(sentence)
    if count is not None and spec.delta > 1 / count:
        sentences.append(
            f"delta = {spec.delta:g} is more than one over the number of vectors, {1 / count:.2g}: "
            f"publishing a vector of the {count} as it is would meet such a delta; take 1e-6, or "
            f"less"
        )
    return sentences

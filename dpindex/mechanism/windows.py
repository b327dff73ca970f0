"""Public windows: what each attribute is clipped to before its noise is calibrated.

``f_j(x) = clip((x_j − lo_j)/w_j, 0, 1)`` with public ``lo_j`` and ``w_j``. Whatever attribute j was
and becomes, ``f_j`` moves by at most 1 and no other coordinate of f moves, so everything that is
proved of vectors of which one attribute changes by one beta holds of f with 1 for beta: ``W f``
moves by at most ``‖W_:j‖₁`` in L1 (Laplace: Dwork et al. 2006), and scores of codewords move apart
by at most what their weights of j differ (bounded range: Durfee & Rogers 2019). A window narrower
than one beta makes the noise as narrow as the window. One that is wider than beta is divided by
beta, as an attribute is without a window.

In integers a window of at most one beta is ``2^bits`` steps whatever it spans: a rounded value is
clipped to 0 … 2^bits, so no rounding can lead beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Longs

STEPS = 1 << 16
"""Whole steps in which windows are stated, to a beta."""

_FARTHEST = 1 << 60
_LEAST = STEPS >> 6
"""Narrower windows would blow up what hardly varies."""


@dataclass(frozen=True, eq=False)
class Windows:
    """One window for each attribute, in whole steps of ``beta/2^16``.

    Attributes
    ----------
    low, width : int64 arrays, shape (dim,)
        The window of attribute j is ``[low_j, low_j + width_j]`` steps; it is empty, and the
        attribute always the same, where ``width_j`` is not above 0.
    beta : float
        The change of a scaled attribute that they were made for.
    """

    low: Longs
    width: Longs
    beta: float

    @classmethod
    def about(
        cls,
        middle: Doubles,
        deviation: Doubles,
        span: tuple[AnyArray, AnyArray],
        half_width: float,
        beta: float,
    ) -> Windows:
        """Return windows of some deviations to either side of public middles, inside the span.

        Parameters
        ----------
        middle, deviation : arrays, shape (dim,)
            Of scaled attributes in public, in steps.
        span : two arrays, shape (dim,)
            The least and the largest public value of each, in steps.
        half_width : float
            Deviations, (0, ∞).
        """
        least = np.floor(span[0])
        largest = np.ceil(span[1])
        width = np.rint(2.0 * half_width * deviation)
        width = np.clip(width, _LEAST, np.maximum(largest - least, _LEAST))
        low = np.rint(middle) - width // 2
        low = np.maximum(np.minimum(low, largest - width), least)
        low, width = (np.clip(steps, -_FARTHEST, _FARTHEST) for steps in (low, width))
        return cls(low.astype(np.int64), width.astype(np.int64), beta)

    @classmethod
    def of_sample(cls, rows: Doubles, half_width: float, beta: float) -> Windows:
        """Return windows about the medians of public rows, shape (n, dim), the same everywhere.

        Medians pick values and sums are of integers: no machine comes to other ones.
        """
        steps = np.rint(rows / (beta / STEPS)).astype(np.int64)
        count = len(steps)
        mean = steps.sum(axis=0) / count
        square = (steps**2).sum(axis=0) / count
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        middle = np.floor(np.median(steps, axis=0))
        span = (steps.min(axis=0), steps.max(axis=0))
        return cls.about(middle, deviation, span, half_width, beta)

    def spread(self, attributes: AnyArray, dim: int) -> Windows:
        """Return the windows of ``dim`` attributes of which these are some; others have none."""
        low = np.zeros(dim, dtype=np.int64)
        width = np.zeros(dim, dtype=np.int64)
        low[attributes] = self.low
        width[attributes] = self.width
        return Windows(low, width, self.beta)

    def ends(self, bounds: tuple[float, float]) -> tuple[Doubles, Doubles]:
        """Return both ends of every window within the bounds, in units of scaled attributes."""
        step = self.beta / STEPS
        low = np.clip(self.low * step, *bounds)
        high = np.clip((self.low + self.width) * step, *bounds)
        return low, np.maximum(low, high)

    def clipped(self, x: Doubles) -> Doubles:
        """Return scaled attributes in their windows, in units of a window or, if less, of beta."""
        step = self.beta / STEPS
        low = self.low * step
        inside = np.clip(x, low, low + self.width * step) - low
        return inside / self._unit

    def placed(self, f: Doubles) -> Doubles:
        """Return the inverse of :meth:`clipped`: scaled attributes with such values of f."""
        return self.low * (self.beta / STEPS) + f * self._unit

    @property
    def _unit(self) -> Doubles:
        return np.minimum(self.width, STEPS) * (self.beta / STEPS)

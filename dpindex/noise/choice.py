"""Which of two laws to take."""

from __future__ import annotations

from typing import Literal

from dpindex.noise.gaussian import optimal_sigma

__all__ = ["sjlt_noise"]


def sjlt_noise(epsilon: float, delta: float, sparsity: int) -> Literal["laplace", "gaussian"]:
    """The noise of lower variance for a sparse Johnson-Lindenstrauss map (Stausholm 2021).

    Under attribute adjacency its L1 sensitivity is √s·β and its L2 sensitivity β, so a coordinate
    gets variance ``2sβ²/ε²`` (Laplace) or ``σ²β²`` (optimal Gaussian). Laplace wins for small delta
    and few non-zeros s; on equal terms it is taken, being pure.

    >>> sjlt_noise(1.0, 1e-6, 4), sjlt_noise(1.0, 1e-6, 16)
    ('laplace', 'gaussian')

    Use it to name the method: ``Spec(method=f"dp-sjlt-{sjlt_noise(1.0, 1e-6, 4)}", …)``.

    Parameters
    ----------
    epsilon : float
        Budget, (0, ∞).
    delta : float
        What the Gaussian may spend, [0, 1); 0 leaves Laplace only.
    sparsity : int
        Non-zeros s of each attribute.
    """
    if delta == 0 or 2.0 * sparsity / epsilon**2 <= optimal_sigma(epsilon, delta) ** 2:
        return "laplace"
    return "gaussian"

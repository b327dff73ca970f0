"""How a spec becomes a projection and a law: the parts that rows of the method table are made of.

Sensitivities are never estimates: they are computed from the integers of the map in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpindex.errors import InputError
from dpindex.grid import grid_point, grid_step, neighbour_distance
from dpindex.noise import (
    GRID_BITS,
    FloatLaw,
    IndividualFlips,
    IndividualGaussian,
    SignLaw,
    gaussian_noise,
    geometric_flips,
    laplace_noise,
    optimal_sigma,
    randomized_response,
    smooth_flips,
    square_wave,
    staircase_noise,
)
from dpindex.noise.gaussian import gaussian_cells, rounded_gaussian
from dpindex.noise.published import (
    analytic_sensitivity,
    column_sensitivity,
    composition_epsilon,
    direct_sensitivity,
    kenthapadi_sigma,
)
from dpindex.noise.sign_changes import chernoff_count, quantile_count, rounded_change_probability
from dpindex.projections import (
    FastJL,
    Gaussian,
    Identity,
    Oporp,
    Projection,
    Rademacher,
    SparseJL,
    Uniform,
    VerySparse,
)

if TYPE_CHECKING:
    from dpindex.spec import Spec

_SIGN_ENTRY_BITS = 12
"""Normal entries of DP-SignRP-RR are rounded this finely, as its N₊ is about real normals."""

_FINE = 256
"""Under l2 adjacency the grid and the cells are so fine that rounding adds about 1/256 each."""


# Projections


def identity(spec: Spec) -> Projection:
    return Identity(spec.dim)


def oporp(spec: Spec) -> Projection:
    return Oporp(spec.dim, spec.code_length, spec.seed, spec.repetitions)


def rademacher(spec: Spec) -> Projection:
    return Rademacher(spec.dim, spec.code_length, spec.seed)


def gaussian(spec: Spec) -> Projection:
    return Gaussian(spec.dim, spec.code_length, spec.seed)


def _very_sparse(spec: Spec) -> Projection:
    return VerySparse(spec.dim, spec.code_length, spec.seed, _sparsity(spec))


_ENTRIES: dict[str | None, Callable[[Spec], Projection]] = {
    "gaussian": gaussian,
    "rademacher": rademacher,
    "uniform": lambda spec: Uniform(spec.dim, spec.code_length, spec.seed),
    "very-sparse": _very_sparse,
}


def by_entries(spec: Spec) -> Projection:
    """A random projection with the entries that the spec names (Li & Li 2023, Sec. 3.4)."""
    return _ENTRIES[spec.entries](spec)


def by_fine_entries(spec: Spec) -> Projection:
    """The same with normal entries rounded finely enough for Prop. 4.5."""
    if spec.entries == "gaussian":
        return Gaussian(spec.dim, spec.code_length, spec.seed, _SIGN_ENTRY_BITS)
    return by_entries(spec)


def sparse_jl(spec: Spec) -> Projection:
    return SparseJL(spec.dim, spec.code_length, spec.seed, _sparsity(spec))


def fast_jl(spec: Spec) -> Projection:
    return FastJL(spec.dim, spec.code_length, spec.seed)


def _sparsity(spec: Spec) -> int:
    return 1 if spec.sparsity is None else spec.sparsity


# Lengths of a code


def raw_k(spec: Spec) -> int:
    return spec.dim


def oporp_k(spec: Spec) -> int:
    """About six attributes a bin, a power of two: 784 → 128, 384 → 64 (for each repetition)."""
    return spec.repetitions * max(1, 1 << (max(1, spec.dim // 6)).bit_length() - 1)


def dense_k(spec: Spec) -> int:
    return 128


def signrp_k(spec: Spec) -> int:
    return 512


# Laws of float codes under attribute adjacency

_NARROW = 0.5
"""Width of the narrow square wave over the one of least variance: see bench/denoise."""


def square_wave_noise(spec: Spec) -> FloatLaw:
    low, high = (grid_point(bound, spec.beta, GRID_BITS) for bound in spec.bounds)
    return square_wave(spec.budget, low, high)


def narrow_square_wave(spec: Spec) -> FloatLaw:
    low, high = (grid_point(bound, spec.beta, GRID_BITS) for bound in spec.bounds)
    return square_wave(spec.budget, low, high, _NARROW)


def laplace(spec: Spec) -> FloatLaw:
    """``Lap(Δ₁/ε)``, Δ₁ the largest row sum of the realised map (Li & Li 2023, Alg. 2, Eq. 12)."""
    return laplace_noise(spec.budget, spec.projection.sensitivity.l1)


def staircase(spec: Spec) -> FloatLaw:
    """For maps that move one coordinate only: the staircase has no guarantee for L1 balls."""
    return staircase_noise(spec.budget)


def optimal_gaussian(spec: Spec) -> FloatLaw:
    """Balle & Wang's σ at the realised Δ₂, the largest row norm (Li & Li 2023, Thm 3.5, Eq. 13)."""
    norm = math.sqrt(spec.projection.sensitivity.squares)
    return gaussian_noise(spec.budget, spec.delta, norm, spec.code_length)


def kenthapadi_gaussian(spec: Spec) -> FloatLaw:
    """Kenthapadi's σ at the realised Δ₂ (Li & Li 2023, Alg. 1, Thm 3.1)."""
    norm = math.sqrt(spec.projection.sensitivity.squares)
    sigma = norm * kenthapadi_sigma(spec.budget, spec.delta)
    return rounded_gaussian(sigma, spec.budget, spec.delta, spec.code_length)


def analytic_gaussian(spec: Spec) -> FloatLaw:
    """``√(2(log(1/δ) + ε))/ε`` times the bound of Lemma 3.3 (Li & Li 2023, Thm 3.4)."""
    norm = spec.projection.spread * analytic_sensitivity(spec.dim, spec.code_length, spec.delta)
    sigma = norm * kenthapadi_sigma(spec.budget, spec.delta / 2)
    return rounded_gaussian(sigma, spec.budget, spec.delta / 2, spec.code_length)


# Laws of float codes under l2 adjacency


def _ball_gaussian(spec: Spec, stretch: float, sigma: float, delta: float, moved: int) -> FloatLaw:
    """Gaussian noise for vectors that differ by the radius, in every coordinate a little.

    Parameters
    ----------
    stretch : float
        Bound on how much longer the projected difference is than the difference itself.
    sigma : float
        Deviation wanted at sensitivity 1.
    delta : float
        What the noise alone may spend, for the precision of its table.
    moved : int
        Coordinates that the sensitivity is about: all, or 1 where coordinates compose.

    Attributes move by fractions of a cell here, so rounding counts twice: on the grid
    (``neighbour_distance``), and in the code, where for every fixed dither each coordinate moves by
    at most one cell more than its share: √moved cells in all.
    """
    bits = max(GRID_BITS, math.ceil(math.log2(_FINE * math.sqrt(spec.dim))))
    steps = neighbour_distance(spec.beta, bits, spec.bounds, spec.dim)
    wanted = max(_FINE * math.sqrt(moved) / stretch, 32.0 / (sigma * stretch))
    cell_bits = max(0, bits - max(0, math.ceil(math.log2(wanted))))
    moved_cells = stretch * steps / (1 << cell_bits)
    if cell_bits:
        moved_cells += math.sqrt(moved)
    return gaussian_cells(
        sigma * moved_cells,
        spec.budget,
        delta,
        spec.code_length,
        cell_bits=cell_bits,
        grid_bits=bits,
    )


def ball_optimal(spec: Spec) -> FloatLaw:
    """Balle & Wang's σ at ``Δ₂ = B·‖W‖``, the realised operator norm (METHODS 3)."""
    projection: Any = spec.projection
    sigma = optimal_sigma(spec.budget, spec.delta)
    return _ball_gaussian(spec, projection.operator_norm, sigma, spec.delta, spec.code_length)


def ball_direct(spec: Spec) -> FloatLaw:
    """``B√(k + 2√(k log(2/δ)) + 2 log(2/δ))·√(2(log(1/δ) + ε))/ε`` (Tu, Thm 1, corrected).

    Tu prints log(1/2δ) under the second root; the proof spends δ/2 there, which gives log(1/δ).
    """
    stretch = spec.projection.spread * direct_sensitivity(spec.code_length, spec.delta)
    sigma = kenthapadi_sigma(spec.budget, spec.delta / 2)
    return _ball_gaussian(spec, stretch, sigma, spec.delta / 2, spec.code_length)


def ball_composition(spec: Spec) -> FloatLaw:
    """Each coordinate (ε₁, δ/2k)-private by itself, all together by composition (Tu, Thm 2)."""
    k, share = spec.code_length, spec.delta / (4 * spec.code_length)
    epsilon = composition_epsilon(spec.budget, spec.delta, k)
    if epsilon > 1:
        raise InputError(
            f"Tu's composition needs an epsilon of at most 1 for each coordinate, which here is "
            f"{epsilon:.3g}; lower epsilon, raise k, or use row-rp-g-opt."
        )
    stretch = spec.projection.spread * column_sensitivity(k, spec.delta)
    return _ball_gaussian(spec, stretch, kenthapadi_sigma(epsilon, share), share, 1)


def raw_gaussian(spec: Spec) -> FloatLaw:
    """L2 sensitivity β or B: the raw coordinates themselves (Li & Li 2023, Thm 3.8)."""
    law = optimal_gaussian if spec.adjacency.kind == "attribute" else ball_optimal
    return law(spec)


# Laws of sign codes


def share(spec: Spec) -> float:
    """Budget of one coordinate: sequential composition over those that one attribute moves.

    All k of a dense projection, one of each repetition of OPORP (Li & Li 2023, Thm 2.3).
    """
    count = spec.projection.sensitivity.count
    part = spec.budget / count
    # The shares may not add up to more than the budget, not even in the last bit.
    return math.nextafter(part, 0.0) if Fraction(part) * count > spec.budget else part


def response(spec: Spec) -> SignLaw:
    return randomized_response(share(spec))


def smooth(spec: Spec) -> SignLaw:
    return smooth_flips(share(spec), _weights(spec))


def geometric(spec: Spec) -> SignLaw:
    return geometric_flips(share(spec), _weights(spec))


def _weights(spec: Spec) -> tuple[int, ...]:
    """Largest entry of each coordinate, or one for all where they agree."""
    largest = tuple(spec.projection.largest.tolist())
    return largest[:1] if len(set(largest)) == 1 else largest


def exact_response(spec: Spec) -> SignLaw:
    """ε over the N₊ signs that can change: an exact binomial quantile, or all if delta is 0."""
    if spec.delta == 0:
        return response(spec)
    return randomized_response(spec.budget, quantile_count(*_sign_changes(spec)))


def published_response(spec: Spec) -> SignLaw:
    """ε over the N₊ of the Chernoff bound (Li & Li 2023, Alg. 6, Prop. 4.5)."""
    return randomized_response(spec.budget, chernoff_count(*_sign_changes(spec)))


def _sign_changes(spec: Spec) -> tuple[int, float, float]:
    # On the grid one beta is 2^bits steps, a little more than beta itself.
    ratio = grid_step(spec.beta, GRID_BITS) * (1 << GRID_BITS) / spec.min_norm_on_grid
    chance = rounded_change_probability(spec.dim, ratio, 2.0**-_SIGN_ENTRY_BITS)
    return spec.code_length, chance, spec.delta


def individual_flips(spec: Spec) -> SignLaw:
    return IndividualFlips(spec.budget, spec.code_length, spec.projection.sensitivity.count)


def individual_gaussian(spec: Spec) -> SignLaw:
    count = spec.projection.sensitivity.count
    return IndividualGaussian(spec.budget, spec.delta, spec.code_length, count)

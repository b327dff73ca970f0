"""The one table that names every mechanism and says what it is made of.

A method is data: a projection, a law, what the law needs and where it comes from. Adding a
mechanism is adding a row; nothing outside this module branches on a method's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpindex.errors import InputError
from dpindex.grid import grid_point
from dpindex.noise import (
    GRID_BITS,
    FloatLaw,
    IndividualFlips,
    IndividualGaussian,
    NoFlips,
    NoNoise,
    SignLaw,
    gaussian_noise,
    geometric_flips,
    laplace_noise,
    randomized_response,
    smooth_flips,
    square_wave,
    staircase_noise,
)
from dpindex.projections import Identity, Oporp, Projection, Rademacher

if TYPE_CHECKING:
    from dpindex.spec import Spec

__all__ = ["Method", "find_method", "methods"]


@dataclass(frozen=True)
class Method:
    """One row: what a method is made of, what it promises and where it comes from.

    Attributes
    ----------
    name : str
        The name used everywhere.
    kind : "float" or "bits"
        Whether codes are noisy numbers or noisy signs.
    definition : "DP", "iDP" or "none"
        What kind of promise its epsilon is.
    needs_delta : bool
        True for approximate methods, which take delta in (0, 1); pure ones take delta 0.
    needs : str
        What the caller must supply beyond dim and epsilon, in words; empty if nothing.
    summary, source : str
        One line each: what it does, and the paper, algorithm and theorem behind it.
    """

    name: str
    kind: Literal["float", "bits"]
    definition: Literal["DP", "iDP", "none"]
    summary: str
    source: str
    projection: Callable[[Spec], Projection]
    law: Callable[[Spec], FloatLaw | SignLaw]
    default_k: Callable[[Spec], int]
    needs_delta: bool = False
    adjacencies: tuple[str, ...] = ("attribute",)
    repeats: bool = False
    fixed_k: bool = False
    bins: bool = False
    bounded: bool = False
    needs: str = ""

    @property
    def pure(self) -> bool:
        """True when the guarantee holds with delta = 0."""
        return self.definition != "none" and not self.needs_delta


def _identity(spec: Spec) -> Projection:
    return Identity(spec.dim)


def _oporp(spec: Spec) -> Projection:
    return Oporp(spec.dim, spec.dims, spec.seed, spec.repetitions)


def _rademacher(spec: Spec) -> Projection:
    return Rademacher(spec.dim, spec.dims, spec.seed)


def _raw_k(spec: Spec) -> int:
    return spec.dim


def _oporp_k(spec: Spec) -> int:
    """About six attributes a bin, a power of two: 784 → 128, 384 → 64 (for each repetition)."""
    return spec.repetitions * max(1, 1 << (max(1, spec.dim // 6)).bit_length() - 1)


def _signrp_k(spec: Spec) -> int:
    return 512


def _share(spec: Spec) -> float:
    """Budget of one repetition: sequential composition (Li & Li 2023, Thm 2.3)."""
    return spec.budget / spec.repetitions


def _one_bin_gaussian(spec: Spec) -> FloatLaw:
    """L2 sensitivity β: one attribute lies in one coordinate (Li & Li 2023, Alg. 5)."""
    return gaussian_noise(spec.budget, spec.delta, 1.0, spec.dims)


def _square_wave(spec: Spec) -> FloatLaw:
    low, high = (grid_point(bound, spec.beta, GRID_BITS) for bound in spec.bounds)
    return square_wave(spec.budget, low, high)


_TABLE = (
    Method(
        "raw-gaussian", "float", "DP",
        "optimal Gaussian noise on every raw coordinate",
        "Li & Li 2023 Thm 3.8 (Raw-data-G-OPT); Balle & Wang 2018 Thm 8",
        _identity, _one_bin_gaussian, _raw_k,
        needs_delta=True, fixed_k=True, needs="delta",
    ),
    Method(
        "raw-laplace", "float", "DP",
        "Laplace noise on every raw coordinate",
        "Dwork et al. 2006; Li & Li 2023 Thm 2.1",
        _identity, lambda spec: laplace_noise(spec.budget), _raw_k, fixed_k=True,
    ),
    Method(
        "raw-staircase", "float", "DP",
        "staircase noise on every raw coordinate",
        "Geng & Viswanath 2014 Thm 1",
        _identity, lambda spec: staircase_noise(spec.budget), _raw_k, fixed_k=True,
    ),
    Method(
        "raw-square-wave", "float", "DP",
        "square-wave noise on raw coordinates that lie in an interval of one beta",
        "Li et al. 2020 Sec. 5 (square wave); Wang et al. 2019 (piecewise mechanism)",
        _identity, _square_wave, _raw_k,
        fixed_k=True, bounded=True, needs="bounds no wider than beta",
    ),
    Method(
        "dp-oporp", "float", "DP",
        "OPORP with optimal Gaussian noise, as published",
        "Li & Li 2023 Alg. 5, Thms 3.5 and 3.10; Balle & Wang 2018 Thm 8",
        _oporp, _one_bin_gaussian, _oporp_k,
        needs_delta=True, bins=True, needs="delta",
    ),
    Method(
        "dp-oporp-laplace", "float", "DP",
        "OPORP with Laplace noise: its L1 sensitivity is beta too",
        "Li & Li 2023 Alg. 4 and Thm 2.1; METHODS 3",
        _oporp, lambda spec: laplace_noise(spec.budget), _oporp_k, bins=True,
    ),
    Method(
        "dp-oporp-staircase", "float", "DP",
        "OPORP with staircase noise: the least pure noise for one bin",
        "Li & Li 2023 Alg. 4; Geng & Viswanath 2014 Thm 1",
        _oporp, lambda spec: staircase_noise(spec.budget), _oporp_k, bins=True,
    ),
    Method(
        "dp-signoporp-rr", "bits", "DP",
        "signs of OPORP under randomized response",
        "Li & Li 2023 Alg. 8, Thm 4.8",
        _oporp, lambda spec: randomized_response(_share(spec)), _oporp_k,
        repeats=True, bins=True,
    ),
    Method(
        "dp-signoporp-rr-smooth", "bits", "DP",
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8",
        _oporp, lambda spec: smooth_flips(_share(spec)), _oporp_k,
        repeats=True, bins=True,
    ),
    Method(
        "dp-signoporp-geometric", "bits", "DP",
        "signs of OPORP under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009; METHODS 4",
        _oporp, lambda spec: geometric_flips(_share(spec)), _oporp_k,
        repeats=True, bins=True,
    ),
    Method(
        "idp-signrp-rr", "bits", "iDP",
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2",
        _rademacher, lambda spec: IndividualFlips(spec.budget, spec.dims), _signrp_k,
    ),
    Method(
        "idp-signrp-g", "bits", "iDP",
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1",
        _rademacher, lambda spec: IndividualGaussian(spec.budget, spec.delta, spec.dims), _signrp_k,
        needs_delta=True, needs="delta",
    ),
    Method(
        "none-oporp", "float", "none",
        "OPORP without noise: a baseline, not private",
        "Li & Li 2023 Alg. 4",
        _oporp, lambda spec: NoNoise(), _oporp_k, bins=True,
    ),
    Method(
        "none-signrp", "bits", "none",
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)",
        _rademacher, lambda spec: NoFlips(), _signrp_k,
    ),
)  # fmt: skip

_BY_NAME = {method.name: method for method in _TABLE}


def methods() -> tuple[Method, ...]:
    """Every method, with its kind, definition, needs and source.

    >>> [m.name for m in methods() if m.definition == "iDP"]
    ['idp-signrp-rr', 'idp-signrp-g']
    """
    return _TABLE


def find_method(name: str) -> Method:
    """The row of that name; raises InputError listing the names if there is none."""
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        known = ", ".join(_BY_NAME)
        raise InputError(f"there is no method {name!r}; choose one of {known}.") from None

"""The one table that names every mechanism and says what it is made of.

A method is data: a projection, a law, what the law needs and where it comes from. Adding a
mechanism is adding a row; nothing outside this module branches on a method's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpindex import recipes as r
from dpindex.errors import InputError
from dpindex.noise import FloatLaw, NoFlips, NoNoise, SignLaw, optimal_sigma
from dpindex.noise.published import kenthapadi_sigma
from dpindex.projections import Projection

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
        True for approximate methods, which take delta in (0, max_delta); pure ones take delta 0.
    takes_delta : bool
        True for a pure method that is better, and approximate, where a delta is given.
    delta_over : "noise" or "projection"
        What a delta above 0 is a probability over: see :class:`dpindex.Guarantee`.
    exact : bool
        False where the proof is about real numbers and not about the integers that run.
    entries : tuple of str
        The entries that the random projection may have, the default first; empty if it is fixed.
    deviation : callable, optional
        Gaussian methods whose delta is about the noise alone: the deviation, in L2 sensitivities,
        that epsilon and delta ask for. What tight composition needs to know.
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
    takes_delta: bool = False
    max_delta: float = 1.0
    delta_over: Literal["noise", "projection"] = "noise"
    exact: bool = True
    entries: tuple[str, ...] = ()
    blocks: bool = False
    adjacencies: tuple[str, ...] = ("attribute",)
    repeats: bool = False
    fixed_k: bool = False
    bins: bool = False
    bounded: bool = False
    norm_bound: bool = False
    deviation: Callable[[float, float], float] | None = None
    needs: str = ""

    @property
    def pure(self) -> bool:
        """True when the guarantee holds with delta = 0."""
        return self.definition != "none" and not self.needs_delta


_ENTRIES = ("gaussian", "rademacher", "uniform", "very-sparse")
_SIGN_ENTRIES = ("rademacher", "gaussian", "uniform", "very-sparse")

_TABLE = (
    Method(
        "raw-gaussian", "float", "DP",
        "optimal Gaussian noise on every raw coordinate",
        "Li & Li 2023 Thm 3.8 (Raw-data-G-OPT); Balle & Wang 2018 Thm 8",
        r.identity, r.raw_gaussian, r.raw_k,
        needs_delta=True, deviation=optimal_sigma, fixed_k=True, needs="delta",
        adjacencies=("attribute", "l2"),
    ),
    Method(
        "raw-laplace", "float", "DP",
        "Laplace noise on every raw coordinate",
        "Dwork et al. 2006; Li & Li 2023 Thm 2.1",
        r.identity, r.laplace, r.raw_k, fixed_k=True,
    ),
    Method(
        "raw-staircase", "float", "DP",
        "staircase noise on every raw coordinate",
        "Geng & Viswanath 2014 Thm 1",
        r.identity, r.staircase, r.raw_k, fixed_k=True,
    ),
    Method(
        "raw-square-wave", "float", "DP",
        "square-wave noise on raw coordinates that lie in an interval of one beta",
        "Li et al. 2020 Sec. 5 (square wave); Wang et al. 2019 (piecewise mechanism)",
        r.identity, r.square_wave_noise, r.raw_k,
        fixed_k=True, bounded=True, needs="bounds no wider than beta",
    ),
    Method(
        "raw-square-wave-narrow", "float", "DP",
        "square-wave noise in half the width: more variance, but more to be had by denoising",
        "Li et al. 2020 Sec. 5 (any width is private); METHODS 5b",
        r.identity, r.narrow_square_wave, r.raw_k,
        fixed_k=True, bounded=True, needs="bounds no wider than beta",
    ),
    Method(
        "dp-rp-g", "float", "DP",
        "random projection with Gaussian noise as first published",
        "Kenthapadi et al. 2013 Lemma 1; Li & Li 2023 Alg. 1, Thm 3.1",
        r.by_entries, r.kenthapadi_gaussian, r.dense_k,
        needs_delta=True, deviation=kenthapadi_sigma, max_delta=0.5, entries=_ENTRIES,
        needs="delta below 1/2",
    ),
    Method(
        "dp-rp-g-analytic", "float", "DP",
        "random projection, noise from a bound on the sensitivity instead of the realised one",
        "Li & Li 2023 Thm 3.4",
        r.gaussian, r.analytic_gaussian, r.dense_k,
        needs_delta=True, delta_over="projection", needs="delta",
    ),
    Method(
        "dp-rp-g-opt", "float", "DP",
        "random projection with optimal Gaussian noise for its realised sensitivity",
        "Li & Li 2023 Alg. 1, Thm 3.5; Balle & Wang 2018 Thm 8",
        r.by_entries, r.optimal_gaussian, r.dense_k,
        needs_delta=True, deviation=optimal_sigma, entries=_ENTRIES, needs="delta",
    ),
    Method(
        "dp-rp-l", "float", "DP",
        "random projection with Laplace noise for its realised L1 sensitivity",
        "Li & Li 2023 Alg. 2, Thm 2.1",
        r.by_entries, r.laplace, r.dense_k, entries=_ENTRIES,
    ),
    Method(
        "dp-rp-g-opt-b", "float", "DP",
        "random projection by fair signs, whose L2 sensitivity is beta exactly",
        "Li & Li 2023 Alg. 3, Thms 3.5 and 3.9; Balle & Wang 2018 Thm 8",
        r.rademacher, r.optimal_gaussian, r.dense_k,
        needs_delta=True, deviation=optimal_sigma, needs="delta",
    ),
    Method(
        "dp-oporp", "float", "DP",
        "OPORP with optimal Gaussian noise, as published",
        "Li & Li 2023 Alg. 5, Thms 3.5 and 3.10; Balle & Wang 2018 Thm 8",
        r.oporp, r.optimal_gaussian, r.oporp_k,
        needs_delta=True, deviation=optimal_sigma, bins=True, needs="delta",
    ),
    Method(
        "dp-oporp-laplace", "float", "DP",
        "OPORP with Laplace noise: its L1 sensitivity is beta too",
        "Li & Li 2023 Alg. 4 and Thm 2.1; METHODS 3",
        r.oporp, r.laplace, r.oporp_k, bins=True,
    ),
    Method(
        "dp-oporp-staircase", "float", "DP",
        "OPORP with staircase noise: the least pure noise for one bin",
        "Li & Li 2023 Alg. 4; Geng & Viswanath 2014 Thm 1",
        r.oporp, r.staircase, r.oporp_k, bins=True,
    ),
    Method(
        "dp-sjlt-laplace", "float", "DP",
        "sparse Johnson-Lindenstrauss map with Laplace noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Dwork et al. 2006",
        r.sparse_jl, r.laplace, r.dense_k, blocks=True,
    ),
    Method(
        "dp-sjlt-gaussian", "float", "DP",
        "sparse Johnson-Lindenstrauss map with optimal Gaussian noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Balle & Wang 2018 Thm 8",
        r.sparse_jl, r.optimal_gaussian, r.dense_k,
        needs_delta=True, deviation=optimal_sigma, blocks=True, needs="delta",
    ),
    Method(
        "dp-fjlt-gaussian", "float", "DP",
        "fast Johnson-Lindenstrauss transform with optimal Gaussian noise",
        "Stausholm 2021; Ailon & Chazelle 2009; Balle & Wang 2018 Thm 8",
        r.fast_jl, r.optimal_gaussian, r.dense_k,
        needs_delta=True, deviation=optimal_sigma, needs="delta",
    ),
    Method(
        "row-rp-g-direct", "float", "DP",
        "random projection hiding the whole vector, by a bound on one pair's image",
        "Tu, Thm 1 (corrected); Kenthapadi et al. 2013 Lemma 1",
        r.gaussian, r.ball_direct, r.dense_k,
        needs_delta=True, delta_over="projection", adjacencies=("l2",), needs="delta and l2",
    ),
    Method(
        "row-rp-g-composition", "float", "DP",
        "random projection hiding the whole vector, coordinate by coordinate",
        "Tu, Thm 2; Dwork, Rothblum & Vadhan 2010",
        r.gaussian, r.ball_composition, r.dense_k,
        needs_delta=True, delta_over="projection", exact=False,
        adjacencies=("l2",), needs="delta and l2",
    ),
    Method(
        "row-rp-g-opt", "float", "DP",
        "random projection hiding the whole vector, by its realised operator norm",
        "METHODS 3; Balle & Wang 2018 Thm 8",
        r.gaussian, r.ball_optimal, r.dense_k,
        needs_delta=True, deviation=optimal_sigma, adjacencies=("l2",), needs="delta and l2",
    ),
    Method(
        "row-oporp-g", "float", "DP",
        "OPORP hiding the whole vector, by its realised operator norm",
        "Li & Li 2023 Alg. 4; METHODS 3; Balle & Wang 2018 Thm 8",
        r.oporp, r.ball_optimal, r.oporp_k,
        needs_delta=True, deviation=optimal_sigma, bins=True, adjacencies=("l2",),
        needs="delta and l2",
    ),
    Method(
        "dp-signrp-rr", "bits", "DP",
        "signs of a random projection under randomized response; pure, or better with a norm bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Remark 4.1; N+ by exact binomial quantile",
        r.by_fine_entries, r.exact_response, r.signrp_k,
        takes_delta=True, delta_over="projection", entries=_ENTRIES, norm_bound=True,
    ),
    Method(
        "dp-signrp-rr-as-published", "bits", "DP",
        "signs of a random projection under randomized response, N+ by the Chernoff bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Prop. 4.5",
        r.by_fine_entries, r.published_response, r.signrp_k,
        needs_delta=True, delta_over="projection", entries=("gaussian",), norm_bound=True,
        needs="delta and min_norm",
    ),
    Method(
        "dp-signrp-rr-smooth", "bits", "DP",
        "signs of a random projection, flipped less the further from zero",
        "Li & Li 2023 Alg. 7, Thm 4.7",
        r.by_entries, r.smooth, r.signrp_k, entries=_SIGN_ENTRIES,
    ),
    Method(
        "dp-signrp-geometric", "bits", "DP",
        "signs of a random projection under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009; METHODS 4",
        r.by_entries, r.geometric, r.signrp_k, entries=_SIGN_ENTRIES,
    ),
    Method(
        "dp-signoporp-rr", "bits", "DP",
        "signs of OPORP under randomized response",
        "Li & Li 2023 Alg. 8, Thm 4.8",
        r.oporp, r.response, r.oporp_k, repeats=True, bins=True,
    ),
    Method(
        "dp-signoporp-rr-smooth", "bits", "DP",
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8",
        r.oporp, r.smooth, r.oporp_k, repeats=True, bins=True,
    ),
    Method(
        "dp-signoporp-geometric", "bits", "DP",
        "signs of OPORP under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009; METHODS 4",
        r.oporp, r.geometric, r.oporp_k, repeats=True, bins=True,
    ),
    Method(
        "idp-signrp-rr", "bits", "iDP",
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2",
        r.rademacher, r.individual_flips, r.signrp_k,
    ),
    Method(
        "idp-signrp-g", "bits", "iDP",
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1",
        r.rademacher, r.individual_gaussian, r.signrp_k,
        needs_delta=True, needs="delta",
    ),
    Method(
        "idp-signoporp-rr", "bits", "iDP",
        "signs of OPORP; only signs a neighbour could change are flipped",
        "Li & Li 2023 Sec. 6 (Alg. 11 over OPORP); one bin moves, so none shares the budget",
        r.oporp, r.individual_flips, r.oporp_k, bins=True,
    ),
    Method(
        "idp-signoporp-g", "bits", "iDP",
        "signs of OPORP; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Sec. 6 (Alg. 9 over OPORP)",
        r.oporp, r.individual_gaussian, r.oporp_k,
        needs_delta=True, bins=True, needs="delta",
    ),
    Method(
        "none-oporp", "float", "none",
        "OPORP without noise: a baseline, not private",
        "Li & Li 2023 Alg. 4",
        r.oporp, lambda spec: NoNoise(), r.oporp_k, bins=True,
    ),
    Method(
        "none-signrp", "bits", "none",
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)",
        r.rademacher, lambda spec: NoFlips(), r.signrp_k,
    ),
)  # fmt: skip

_BY_NAME = {method.name: method for method in _TABLE}


def methods() -> tuple[Method, ...]:
    """Every method, with its kind, definition, needs and source.

    >>> [m.name for m in methods() if m.definition == "iDP"]
    ['idp-signrp-rr', 'idp-signrp-g', 'idp-signoporp-rr', 'idp-signoporp-g']
    """
    return _TABLE


def find_method(name: str) -> Method:
    """The row of that name; raises InputError listing the names if there is none."""
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        known = ", ".join(_BY_NAME)
        raise InputError(f"there is no method {name!r}; choose one of {known}.") from None

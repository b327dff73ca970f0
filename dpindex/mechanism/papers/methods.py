"""The methods that papers name, and their families of projections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpindex.mechanism.families import REPEATED_OPORP, SIGN_OPORP, always, shared_map
from dpindex.mechanism.method import Family, Length, Method
from dpindex.mechanism.noise import additive, gaussian, signs
from dpindex.mechanism.papers import gaussian as papers_gaussian
from dpindex.mechanism.papers import signs as papers_signs
from dpindex.mechanism.papers.dense import FINE_ENTRY_BITS, Gaussian, Rademacher, Uniform
from dpindex.mechanism.papers.sparse import FastJL, SparseJL, VerySparse
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Encoder
from dpindex.mechanism.variants import Blocks, Dense

_numbers = always(128)
_signs = always(512)

_BY_ENTRIES = {
    "gaussian": partial(shared_map, Gaussian),
    "rademacher": partial(shared_map, Rademacher),
    "uniform": partial(shared_map, Uniform),
    "very-sparse": partial(shared_map, VerySparse),
}


def _dense(default: str, length: Length, **changed: Callable[[Parameters], Encoder]) -> Family:
    """A random projection whose entries may be chosen (Li & Li 2023, Sec. 3.4), with a default."""
    makers = _BY_ENTRIES | changed
    return Family(
        make=lambda parameters: makers[parameters.variant.entries or default](parameters),
        default_length=length,
        variant=Dense(default),
    )


RADEMACHER = Family(partial(shared_map, Rademacher), _numbers, moves="units")

SIGN_RADEMACHER = Family(partial(shared_map, Rademacher), _signs, moves="units")

GAUSSIAN = Family(partial(shared_map, Gaussian), _numbers)

SPARSE_JL = Family(partial(shared_map, SparseJL), _numbers, variant=Blocks(), moves="units")

FAST_JL = Family(partial(shared_map, FastJL), _numbers)

DENSE_NUMBERS = _dense("gaussian", _numbers)

DENSE_SIGNS = _dense("rademacher", _signs)

_fine = partial(shared_map, partial(Gaussian, bits=FINE_ENTRY_BITS))

FINE_DENSE_SIGNS = _dense("gaussian", _signs, gaussian=_fine)
"""Normal entries rounded to multiples of 2^-12 instead of 2^-4."""


# fmt: off
METHODS = (
    Method("dp-rp-g", DENSE_NUMBERS, papers_gaussian.KENTHAPADI_GAUSSIAN,
        "random projection with Gaussian noise as first published",
        "Kenthapadi et al. 2013 Lemma 1; Li & Li 2023 Alg. 1, Thm 3.1"),
    Method("dp-rp-g-analytic", GAUSSIAN, papers_gaussian.ANALYTIC_GAUSSIAN,
        "random projection, noise from a bound on the sensitivity; dp-rp-g-opt takes the real one",
        "Li & Li 2023 Thm 3.4"),
    Method("dp-rp-g-opt", DENSE_NUMBERS, gaussian.OPTIMAL_GAUSSIAN,
        "random projection with optimal Gaussian noise for its realised sensitivity",
        "Li & Li 2023 Alg. 1, Thm 3.5; Balle & Wang 2018 Thm 8"),
    Method("dp-rp-l", DENSE_NUMBERS, additive.LAPLACE,
        "random projection with Laplace noise for its realised L1 sensitivity",
        "Li & Li 2023 Alg. 2, Thm 2.1"),
    Method("dp-rp-g-opt-b", RADEMACHER, gaussian.OPTIMAL_GAUSSIAN,
        "random projection by fair signs, whose L2 sensitivity is beta exactly",
        "Li & Li 2023 Alg. 3, Thms 3.5 and 3.9; Balle & Wang 2018 Thm 8"),
    Method("dp-sjlt-laplace", SPARSE_JL, additive.LAPLACE,
        "sparse Johnson-Lindenstrauss map with Laplace noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Dwork et al. 2006"),
    Method("dp-sjlt-gaussian", SPARSE_JL, gaussian.OPTIMAL_GAUSSIAN,
        "sparse Johnson-Lindenstrauss map with optimal Gaussian noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Balle & Wang 2018 Thm 8"),
    Method("dp-fjlt-gaussian", FAST_JL, gaussian.OPTIMAL_GAUSSIAN,
        "fast Johnson-Lindenstrauss transform with optimal Gaussian noise",
        "Stausholm 2021; Ailon & Chazelle 2009; Balle & Wang 2018 Thm 8"),
    Method("row-rp-g-direct", GAUSSIAN, papers_gaussian.BALL_DIRECT,
        "random projection hiding one pair of vectors; row-rp-g-opt hides every pair",
        "Tu, Thm 1 (corrected); Kenthapadi et al. 2013 Lemma 1"),
    Method("row-rp-g-composition", GAUSSIAN, papers_gaussian.BALL_COMPOSITION,
        "the same, coordinate by coordinate; row-rp-g-opt hides every pair",
        "Tu, Thm 2; Dwork, Rothblum & Vadhan 2010"),
    Method("row-rp-g-opt", GAUSSIAN, gaussian.BALL_GAUSSIAN,
        "random projection hiding the whole vector, by its realised operator norm",
        "Balle & Wang 2018 Thm 8"),
    Method("dp-signrp-rr", FINE_DENSE_SIGNS, papers_signs.EXACT_RESPONSE,
        "signs of a random projection under randomized response; pure, or better with a norm bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Remark 4.1; N+ by exact binomial quantile"),
    Method("dp-signrp-rr-smooth", DENSE_SIGNS, papers_signs.SMOOTH_FLIPS,
        "signs of a random projection, flipped less the further from zero",
        "Li & Li 2023 Alg. 7, Thm 4.7"),
    Method("dp-signrp-geometric", DENSE_SIGNS, signs.GEOMETRIC_FLIPS,
        "signs of a random projection under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signoporp-rr-smooth", REPEATED_OPORP, papers_signs.SMOOTH_FLIPS,
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("idp-signrp-rr", SIGN_RADEMACHER, papers_signs.INDIVIDUAL_FLIPS,
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2"),
    Method("idp-signrp-g", SIGN_RADEMACHER, papers_signs.INDIVIDUAL_GAUSSIAN,
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1"),
    Method("idp-signoporp-rr", SIGN_OPORP, papers_signs.INDIVIDUAL_FLIPS,
        "signs of OPORP; only signs a neighbour could change are flipped",
        "Li & Li 2023 Sec. 6 (Alg. 11 over OPORP); one bin moves, so none shares the budget"),
    Method("idp-signoporp-g", SIGN_OPORP, papers_signs.INDIVIDUAL_GAUSSIAN,
        "signs of OPORP; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Sec. 6 (Alg. 9 over OPORP)"),
    Method("none-signrp", SIGN_RADEMACHER, papers_signs.NO_FLIPS,
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)"),
)
# fmt: on
"""Rows of the table of methods."""

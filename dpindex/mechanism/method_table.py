"""The methods: each is a family of projections with a calibrated law, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.mechanism.method import Family, Length, Method
from dpindex.mechanism.noise import additive, cap, gaussian, signs, square_wave, symbols
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import CodewordMap, Encoder, Identity
from dpindex.mechanism.projections.dense import (
    FINE_ENTRY_BITS,
    Designed,
    Gaussian,
    Oporp,
    Rademacher,
    Uniform,
    codeword_scores,
)
from dpindex.mechanism.projections.sparse import FastJL, Rotation, SparseJL, VerySparse
from dpindex.mechanism.public_parts import Codebook, Design
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.variants import Blocks, Dense, Repeated
from dpindex.privacy import Attribute

_EXAMPLE_ROWS = 100
_MIN_BINS = 128
_MAX_BINS = 1024
_MIN_SIGN_BINS = 8
_MAX_SIGN_BINS = 4096
"""Bins of OPORP by default: more make codes of sparse text long and help little."""


_in_use: WeakValueDictionary[tuple[Any, ...], Encoder] = WeakValueDictionary()


def _made(kind: Callable[..., Encoder], parameters: Parameters, *more: int) -> Encoder:
    """A map of that kind, made from dim, length and seed, and a sparsity if it needs one.

    Specs that have it in common share it: for millions of attributes it takes seconds.
    """
    stated = parameters.variant.sparsity
    sparsity = () if stated is None else (stated,)
    key = (kind, parameters.dim, parameters.k, parameters.seed, *sparsity, *more)
    made = _in_use.get(key)
    if made is None:
        made = _in_use[key] = kind(*key[1:])
    return made


_BY_ENTRIES = {
    "gaussian": partial(_made, Gaussian),
    "rademacher": partial(_made, Rademacher),
    "uniform": partial(_made, Uniform),
    "very-sparse": partial(_made, VerySparse),
}


def _dense(default: str, length: Length, **changed: Callable[[Parameters], Encoder]) -> Family:
    """A random projection whose entries may be chosen (Li & Li 2023, Sec. 3.4), with a default."""
    makers = _BY_ENTRIES | changed
    return Family(
        make=lambda parameters: makers[parameters.variant.entries or default](parameters),
        default_length=length,
        variant=Dense(default),
    )


def _oporp(parameters: Parameters) -> Encoder:
    return _made(Oporp, parameters, parameters.variant.repetitions)


def _oporp_length(parameters: Parameters) -> int:
    """Return a bin for each attribute, up to 128, and up to 1024 where the noise allows it.

    Fewer bins blur what tells neighbours apart. More than ``norm² / 4σ²`` bins add noise that
    outweighs what they keep, where σ² is the least variance of pure noise at this epsilon and
    beta. Without a stated norm it is that of attributes spread over the bounds. Under l2 adjacency
    more bins never add noise.

    >>> from dpindex.privacy import attribute
    >>> known = {"adjacency": attribute(1.0), "bounds": (0, 1)}
    >>> [_oporp_length(Parameters("dp-oporp-staircase", dim, epsilon=3.0, **known))
    ...  for dim in (8, 100, 784)]
    [8, 100, 128]
    >>> _oporp_length(Parameters("dp-oporp-staircase", 784, epsilon=8.0, **known))
    784
    """
    max_bins = min(parameters.dim, _MAX_BINS)
    if not isinstance(parameters.adjacency, Attribute):
        return max_bins
    width = parameters.bounds[1] - parameters.bounds[0]
    square = parameters.dim * (width / 4) ** 2
    if parameters.norm is not None:
        square = parameters.norm**2
    variance = parameters.change**2 * _least_variance(parameters.budget)
    if square >= 4 * variance * max_bins:
        return max_bins
    kept = int(square / (4 * variance))
    return min(max_bins, max(_MIN_BINS, kept))


def _least_variance(epsilon: float) -> float:
    """Return the variance of staircase noise for a sensitivity of 1 (Geng & Viswanath 2014)."""
    b = math.exp(-epsilon)
    power = math.pow(b * (1 + b) / 2, 2 / 3)
    return (power + b) / (1 - b) ** 2


def _sign_length(parameters: Parameters) -> int:
    """A bin for each attribute, up to 4096; where none is negative, one for four, up to 1024.

    The sign of a single attribute says much where attributes have either sign: 384 bins of a
    sentence embedding find twice what 64 find. It says nothing where none is negative, as in
    pictures. ``dpindex plan`` chooses the same lengths.
    """
    both = parameters.bounds[0] < 0 < parameters.bounds[1]
    bins = min(parameters.dim // 4, _MAX_BINS)
    if both:
        bins = min(parameters.dim, _MAX_SIGN_BINS)
    bins = max(bins, min(parameters.dim, _MIN_SIGN_BINS))
    return parameters.variant.repetitions * bins


@cache
def _example_codebook(dim: int, delta: float) -> Codebook:
    """Return fifty codewords."""
    words = PublicStream(0, "audit/self-test").words(50 * dim, np.uint16)
    return Codebook(words.reshape(50, dim) - 2.0**15)


@cache
def _example_design(dim: int, delta: float) -> Design:
    """Return a small design for public vectors of a few common causes."""
    from dpindex.mechanism.optimiser import design  # which needs more than a table of methods does

    parts = PublicStream(0, "audit/design").uniform(_EXAMPLE_ROWS, dim + 4) - 0.5
    causes = parts[:, dim:].sum(axis=1, keepdims=True)
    public = parts[:, :dim] / 4 + causes
    return design(public, epsilon=1.0, code_length=min(-(-dim // 2), 24), delta=delta)


def _always(length: int) -> Length:
    return lambda parameters: length


def _scores(parameters: Parameters) -> Encoder:
    signs = isinstance(parameters.adjacency, Attribute)
    if parameters.window is None:
        return codeword_scores(parameters.codewords, signs)
    if not signs:
        raise NoGuaranteeError(
            "windows are for one attribute: clipped to windows of different widths, a ball is none "
            "any more; leave window out."
        )
    windows = (parameters.window, parameters.change)
    return codeword_scores(parameters.codewords, signs, windows, parameters.scale)


_numbers = _always(128)
_signs = _always(512)

IDENTITY = Family(
    lambda made: Identity(made.dim),
    lambda parameters: parameters.dim,
    keeps_all=True,
    moves="one",
)
OPORP = Family(_oporp, _oporp_length, bins=True, moves="one")
SIGN_OPORP = replace(OPORP, default_length=_sign_length)
REPEATED_OPORP = replace(SIGN_OPORP, variant=Repeated(), moves="units")
DESIGNED = Family(
    lambda parameters: Designed(parameters.part(Design)),
    lambda parameters: parameters.part(Design).code_length,
    public=Design,
    example=_example_design,
)
RADEMACHER = Family(partial(_made, Rademacher), _numbers, moves="units")
SIGN_RADEMACHER = Family(partial(_made, Rademacher), _signs, moves="units")
GAUSSIAN = Family(partial(_made, Gaussian), _numbers)
SPARSE_JL = Family(partial(_made, SparseJL), _numbers, variant=Blocks(), moves="units")
FAST_JL = Family(partial(_made, FastJL), _numbers)
ROTATION = Family(partial(_made, Rotation), _numbers, lengths=range(64, 1025, 8))
CODEWORDS = Family(
    lambda parameters: CodewordMap(parameters.codewords),
    _always(1),
    lengths=range(1, 2),
    public=Codebook,
    example=_example_codebook,
    subset=True,
)
SCORES = replace(CODEWORDS, make=_scores, subset=False, windows=True)
DENSE_NUMBERS = _dense("gaussian", _numbers)
DENSE_SIGNS = _dense("rademacher", _signs)
_fine = partial(_made, partial(Gaussian, bits=FINE_ENTRY_BITS))
FINE_DENSE_SIGNS = _dense("gaussian", _signs, gaussian=_fine)
"""Normal entries rounded to multiples of 2^-12 instead of 2^-4."""


# fmt: off
_ROWS = (
    Method("raw-gaussian", IDENTITY, gaussian.RAW_GAUSSIAN,
        "optimal Gaussian noise on every raw coordinate",
        "Li & Li 2023 Thm 3.8 (Raw-data-G-OPT); Balle & Wang 2018 Thm 8"),
    Method("raw-laplace", IDENTITY, additive.LAPLACE,
        "Laplace noise on every raw coordinate",
        "Dwork et al. 2006; Li & Li 2023 Thm 2.1"),
    Method("raw-staircase", IDENTITY, additive.STAIRCASE,
        "staircase noise on every raw coordinate",
        "Geng & Viswanath 2014 Thm 1"),
    Method("raw-square-wave", IDENTITY, square_wave.SQUARE_WAVE,
        "square-wave noise on raw coordinates that lie in an interval of one beta",
        "Li et al. 2020 Sec. 5 (square wave); Wang et al. 2019 (piecewise mechanism)"),
    Method("raw-square-wave-narrow", IDENTITY, square_wave.NARROW_SQUARE_WAVE,
        "square-wave noise in half the width: more variance, but more to be had by denoising",
        "Li et al. 2020 Sec. 5 (any width is private)"),
    Method("dp-rp-g", DENSE_NUMBERS, gaussian.KENTHAPADI_GAUSSIAN,
        "random projection with Gaussian noise as first published",
        "Kenthapadi et al. 2013 Lemma 1; Li & Li 2023 Alg. 1, Thm 3.1"),
    Method("dp-rp-g-analytic", GAUSSIAN, gaussian.ANALYTIC_GAUSSIAN,
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
    Method("dp-oporp", OPORP, gaussian.OPTIMAL_GAUSSIAN,
        "OPORP with optimal Gaussian noise, as published",
        "Li & Li 2023 Alg. 5, Thms 3.5 and 3.10; Balle & Wang 2018 Thm 8"),
    Method("dp-oporp-laplace", OPORP, additive.LAPLACE,
        "OPORP with Laplace noise: its L1 sensitivity is beta too",
        "Li & Li 2023 Alg. 4 and Thm 2.1"),
    Method("dp-oporp-staircase", OPORP, additive.STAIRCASE,
        "OPORP with staircase noise: the least pure noise for one bin",
        "Li & Li 2023 Alg. 4; Geng & Viswanath 2014 Thm 1"),
    Method("dp-designed-laplace", DESIGNED, additive.LAPLACE,
        "projection designed on public vectors with Laplace noise: what varies together adds up",
        "Li et al. 2010; McKenna et al. 2018; Edmonds, Nikolov & Ullman 2020 (matrix mechanism)"),
    Method("dp-designed-gaussian", DESIGNED, gaussian.OPTIMAL_GAUSSIAN,
        "projection designed on public vectors with optimal Gaussian noise",
        "Li et al. 2010 (matrix mechanism); Balle & Wang 2018 Thm 8"),
    Method("dp-sjlt-laplace", SPARSE_JL, additive.LAPLACE,
        "sparse Johnson-Lindenstrauss map with Laplace noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Dwork et al. 2006"),
    Method("dp-sjlt-gaussian", SPARSE_JL, gaussian.OPTIMAL_GAUSSIAN,
        "sparse Johnson-Lindenstrauss map with optimal Gaussian noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Balle & Wang 2018 Thm 8"),
    Method("dp-fjlt-gaussian", FAST_JL, gaussian.OPTIMAL_GAUSSIAN,
        "fast Johnson-Lindenstrauss transform with optimal Gaussian noise",
        "Stausholm 2021; Ailon & Chazelle 2009; Balle & Wang 2018 Thm 8"),
    Method("row-rp-g-direct", GAUSSIAN, gaussian.BALL_DIRECT,
        "random projection hiding one pair of vectors; row-rp-g-opt hides every pair",
        "Tu, Thm 1 (corrected); Kenthapadi et al. 2013 Lemma 1"),
    Method("row-rp-g-composition", GAUSSIAN, gaussian.BALL_COMPOSITION,
        "the same, coordinate by coordinate; row-rp-g-opt hides every pair",
        "Tu, Thm 2; Dwork, Rothblum & Vadhan 2010"),
    Method("row-rp-g-opt", GAUSSIAN, gaussian.BALL_GAUSSIAN,
        "random projection hiding the whole vector, by its realised operator norm",
        "Balle & Wang 2018 Thm 8"),
    Method("row-oporp-g", OPORP, gaussian.BALL_GAUSSIAN,
        "OPORP hiding the whole vector, by its realised operator norm",
        "Li & Li 2023 Alg. 4; Balle & Wang 2018 Thm 8"),
    Method("dp-signrp-rr", FINE_DENSE_SIGNS, signs.EXACT_RESPONSE,
        "signs of a random projection under randomized response; pure, or better with a norm bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Remark 4.1; N+ by exact binomial quantile"),
    Method("dp-signrp-rr-smooth", DENSE_SIGNS, signs.SMOOTH_FLIPS,
        "signs of a random projection, flipped less the further from zero",
        "Li & Li 2023 Alg. 7, Thm 4.7"),
    Method("dp-signrp-geometric", DENSE_SIGNS, signs.GEOMETRIC_FLIPS,
        "signs of a random projection under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signoporp-rr", REPEATED_OPORP, signs.RANDOMIZED_RESPONSE,
        "signs of OPORP under randomized response",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("dp-signoporp-rr-smooth", REPEATED_OPORP, signs.SMOOTH_FLIPS,
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("dp-signoporp-geometric", REPEATED_OPORP, signs.GEOMETRIC_FLIPS,
        "signs of OPORP under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signdesigned-geometric", DESIGNED, signs.PROPORTIONAL_FLIPS,
        "signs of a projection designed on public vectors under geometric flips",
        "Li et al. 2010 (matrix mechanism); Ghosh, Roughgarden & Sundararajan 2009"),
    Method("idp-signrp-rr", SIGN_RADEMACHER, signs.INDIVIDUAL_FLIPS,
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2"),
    Method("idp-signrp-g", SIGN_RADEMACHER, signs.INDIVIDUAL_GAUSSIAN,
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1"),
    Method("idp-signoporp-rr", SIGN_OPORP, signs.INDIVIDUAL_FLIPS,
        "signs of OPORP; only signs a neighbour could change are flipped",
        "Li & Li 2023 Sec. 6 (Alg. 11 over OPORP); one bin moves, so none shares the budget"),
    Method("idp-signoporp-g", SIGN_OPORP, signs.INDIVIDUAL_GAUSSIAN,
        "signs of OPORP; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Sec. 6 (Alg. 9 over OPORP)"),
    Method("record-cap", ROTATION, cap.CAP_RESPONSE,
        "signs of a rotated vector, drawn from a cap about it or the rest; hides the whole record",
        "Bhowmick et al. 2018 (PrivUnit) and Asi, Feldman & Talwar 2022, on signs with magnitudes"),
    Method("record-codebook", CODEWORDS, symbols.CODEBOOK_RESPONSE,
        "one of the public codewords nearest to a vector, or any other; hides the whole record",
        "Kairouz, Oh & Viswanath 2016 (extremal mechanisms); Wang et al. 2016 (subset selection)"),
    Method("codebook-softmax", SCORES, symbols.SOFTMAX,
        "a public codeword, drawn by the scores of all of them for the whole vector",
        "McSherry & Talwar 2007; Durfee & Rogers 2019; Dong, Durfee & Rogers 2020 (bounded range)"),
    Method("none-oporp", OPORP, additive.NO_NOISE,
        "OPORP without noise: a baseline, not private",
        "Li & Li 2023 Alg. 4"),
    Method("none-signrp", SIGN_RADEMACHER, signs.NO_FLIPS,
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)"),
)
# fmt: on

_MAX_CLOSE = 3

TABLE = {method.name: method for method in _ROWS}
"""Every method by its name."""

CHOSEN_FOR = {
    "record-codebook": "whole records secret, public vectors of the kind at hand (embeddings)",
    "record-cap": "whole records secret, no public vectors",
    "codebook-softmax": "one attribute secret, public vectors at hand: embeddings up to epsilon 1",
    "dp-designed-laplace": "the same: wide tables, and pictures up to epsilon 1",
    "raw-square-wave": "one attribute secret, any value in its bounds: pictures above epsilon 1",
    "raw-square-wave-narrow": "the same for few attributes: narrow tables, with --denoise",
    "dp-oporp-staircase": "one attribute secret, nothing else known; sparse text, counts",
    "dp-signdesigned-geometric": "as dp-designed-laplace, in bits (Faiss binary indexes)",
    "dp-signoporp-geometric": "as dp-oporp-staircase, in bits; clipped embeddings above epsilon 1",
    "row-oporp-g": "any change of a Euclidean length secret, an L2 ball",
}
"""When to choose a method, best first. The others are of papers, and for comparison."""


def methods() -> tuple[Method, ...]:
    """Every method, with its definition, needs and source.

    >>> [m.name for m in methods() if m.definition == "iDP"]
    ['idp-signrp-rr', 'idp-signrp-g', 'idp-signoporp-rr', 'idp-signoporp-g']
    """
    return tuple(TABLE.values())


def find_method(name: str) -> Method:
    """The row of that name; raises InputError listing the names if there is none."""
    if isinstance(name, str) and name in TABLE:
        return TABLE[name]
    word = str(name).lower().replace("_", "-")
    close = [known for known in TABLE if word and word in known][:_MAX_CLOSE]
    close = close or get_close_matches(word, TABLE, _MAX_CLOSE, cutoff=0.5)
    hint = "choose one of"
    if close:
        hint = f"did you mean {' or '.join(map(repr, close))}? The methods are"
    raise InputError(f"there is no method {name!r}; {hint} {', '.join(TABLE)}.")

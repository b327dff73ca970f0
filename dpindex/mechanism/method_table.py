"""The methods: each is a family of projections with a calibrated law, and where it comes from."""

from __future__ import annotations

from difflib import get_close_matches

from dpindex.base.errors import InputError
from dpindex.mechanism.families import (
    CODEWORDS,
    DESIGNED,
    IDENTITY,
    OPORP,
    REPEATED_OPORP,
    ROTATION,
    SCORES,
)
from dpindex.mechanism.method import Method
from dpindex.mechanism.noise import additive, cap, gaussian, response, symbols
from dpindex.mechanism.papers import METHODS as PAPERS

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
    Method("raw-square-wave", IDENTITY, response.SQUARE_WAVE,
        "square-wave noise on raw coordinates that lie in an interval of one beta",
        "Li et al. 2020 Sec. 5 (square wave); Wang et al. 2019 (piecewise mechanism)"),
    Method("raw-square-wave-narrow", IDENTITY, response.NARROW_SQUARE_WAVE,
        "square-wave noise in half the width: more variance, but more to be had by denoising",
        "Li et al. 2020 Sec. 5 (any width is private)"),
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
    Method("row-oporp-g", OPORP, gaussian.BALL_GAUSSIAN,
        "OPORP hiding the whole vector, by its realised operator norm",
        "Li & Li 2023 Alg. 4; Balle & Wang 2018 Thm 8"),
    Method("dp-signoporp-rr", REPEATED_OPORP, response.RANDOMIZED_RESPONSE,
        "signs of OPORP under randomized response",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("dp-signoporp-geometric", REPEATED_OPORP, response.GEOMETRIC_FLIPS,
        "signs of OPORP under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signdesigned-geometric", DESIGNED, response.PROPORTIONAL_FLIPS,
        "signs of a projection designed on public vectors under geometric flips",
        "Li et al. 2010 (matrix mechanism); Ghosh, Roughgarden & Sundararajan 2009"),
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
)
# fmt: on

_MAX_CLOSE = 3

TABLE = {method.name: method for method in (*_ROWS, *PAPERS)}
"""Every method by its name."""

OF_PAPERS = frozenset(method.name for method in PAPERS)
"""Methods that only papers name, which a plan considers where they are named to it."""

CHOSEN_FOR = {
    "record-codebook": "whole records secret, public vectors of the kind at hand (embeddings)",
    "record-cap": "whole records secret, no public vectors",
    "codebook-softmax": "one attribute secret, public vectors at hand: embeddings up to epsilon 1",
    "dp-designed-laplace": "the same: wide tables, and pictures up to epsilon 1",
    "raw-square-wave": "one attribute secret, any value in its bounds: pictures above epsilon 1",
    "raw-square-wave-narrow": "the same for few attributes: narrow tables, with --denoise",
    "dp-oporp-staircase": "one attribute secret, nothing else known; sparse text, counts",
    "dp-signdesigned-geometric": "the same in bits, and exact queries of embeddings at epsilon 1",
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

"""The one table of mechanisms: each row joins a family of projections, a calibration and a source.

Adding a mechanism is adding a row; nothing outside this module branches on a method's name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dpindex.base.checks import checked_delta
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.mechanism.noise import (
    additive,
    cap,
    codebook_response,
    gaussian,
    geometric,
    individual,
    square_wave,
)
from dpindex.mechanism.noise import randomized_response as response
from dpindex.mechanism.noise.law import Calibration
from dpindex.mechanism.noise.randomized_response import min_norm_on_grid
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import families
from dpindex.mechanism.projections.families import Family

__all__ = ["Method", "find_method", "methods"]


@dataclass(frozen=True)
class Method:
    """One row: what a method is made of and where it comes from.

    Attributes
    ----------
    name : str
        The name used everywhere.
    family : Family
        The projections it uses: :mod:`dpindex.mechanism.projections.families`.
    calibration : Calibration
        Its noise, what that needs and promises: :class:`dpindex.mechanism.noise.law.Calibration`.
    summary, source : str
        One line each: what it does, and the paper, algorithm and theorem behind it.
    """

    name: str
    family: Family
    calibration: Calibration
    summary: str
    source: str

    @property
    def definition(self) -> str:
        """The kind of promise that its epsilon is: "DP", "iDP" or "none"."""
        return self.calibration.definition

    @property
    def private(self) -> bool:
        """False for the ``none-*`` baselines."""
        return self.calibration.definition != "none"

    @property
    def codes(self) -> str:
        """The name of its code format, such as "signs", "numbers" or "symbols"."""
        return self.calibration.format.name

    @property
    def needs_delta(self) -> bool:
        """True for approximate methods; pure ones take delta 0."""
        return self.calibration.delta == "required"

    @property
    def pure(self) -> bool:
        """True when the guarantee holds with delta = 0."""
        return self.private and not self.needs_delta

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Kinds of adjacency that it has a proof for."""
        return self.calibration.adjacencies

    @property
    def needs(self) -> str:
        """Parameters that must be stated beyond dim and epsilon, in words; empty if none."""
        needs = []
        if self.needs_delta:
            needs.append("delta below 1/2" if self.calibration.max_delta == 0.5 else "delta")
        if "attribute" not in self.adjacencies:
            needs.append(" or ".join(self.adjacencies))
        if self.calibration.bounded:
            needs.append("bounds no wider than beta")
        if self.family.codebook:
            needs.append("a codebook")
        return " and ".join(needs)

    @property
    def delta_over(self) -> str:
        """The randomness that a delta is about: "noise", "projection", or "" without one."""
        if self.calibration.delta == "zero":
            return ""
        return self.calibration.delta_over

    @property
    def kind(self) -> str:
        """The kind of its guarantee: "pure", "approximate", "pure or approximate" or "none"."""
        if not self.private:
            return "none"
        if self.calibration.delta == "optional":
            return "pure or approximate"
        if self.pure:
            return "pure"
        return "approximate"

    def to_dict(self) -> dict[str, Any]:
        """Return the properties that a user chooses by, as plain JSON values."""
        return {
            "name": self.name,
            "codes": self.codes,
            "definition": self.definition,
            "kind": self.kind,
            "delta_over": self.delta_over,
            "adjacency": ", ".join(self.adjacencies) if self.private else "none",
            "needs": self.needs,
            "entries": ", ".join(self.family.entries),
            "exact": self.calibration.exact and self.private,
            "summary": self.summary,
            "source": self.source,
        }

    def resolved(self, parameters: Parameters) -> dict[str, Any]:
        """The parameters that have defaults, filled in, once all are known to fit together.

        Raises
        ------
        InputError
            One sentence for any combination that has no guarantee.
        """
        self._check_guarantee(parameters)
        values = self.family.resolved(parameters)
        self._check_min_norm(parameters, values["entries"])
        size = parameters.adjacency.size
        low, high = parameters.bounds
        if self.calibration.bounded and high - low > size:
            raise NoGuaranteeError(
                f"{self.name} needs bounds no wider than beta = {size:g}, not [{low:g}, "
                f"{high:g}]; state the public range of an attribute."
            )
        return values

    def _check_guarantee(self, parameters: Parameters) -> None:
        if not self.private:
            if parameters.epsilon is not None or parameters.delta != 0:
                raise InputError(f"{self.name} is not private: it takes no epsilon and no delta.")
            return
        if parameters.epsilon is None:
            raise InputError(f"{self.name} needs an epsilon.")
        if self.needs_delta or (self.calibration.delta == "optional" and parameters.delta != 0):
            checked_delta(parameters.delta, self.name, self.calibration.max_delta)
        elif parameters.delta != 0:
            raise InputError(f"{self.name} is pure: delta must be 0, not {parameters.delta:g}.")
        public = (parameters.scale, parameters.bounds, parameters.clip, parameters.norm)
        if not self.calibration.rounded and public != (1.0, (-1.0, 1.0), False, None):
            raise InputError(
                f"{self.name} takes any vectors, of which the direction counts: leave scale, "
                f"bounds, clip and norm out."
            )
        if parameters.adjacency.kind not in self.adjacencies:
            raise NoGuaranteeError(
                f"{self.name} has no guarantee under {parameters.adjacency}: it is analysed for "
                f"{' and '.join(self.adjacencies)} adjacency only{_REMEDIES[self.adjacencies]}."
            )

    def _check_min_norm(self, parameters: Parameters, entries: str | None) -> None:
        if not (self.calibration.norm_bound and parameters.delta > 0):
            if parameters.min_norm is not None:
                pure = " with delta 0" if self.calibration.norm_bound else ""
                raise InputError(
                    f"{self.name} does not use min_norm{pure}; leave it out.",
                    field="min_norm",
                )
            return
        if entries != "gaussian":
            raise NoGuaranteeError(
                f"{self.name} with a delta needs gaussian entries, not {entries}: for others no "
                f"bound on the signs that can change holds for all vectors."
            )
        if parameters.min_norm is None:
            raise NoGuaranteeError(
                f"{self.name} with a delta needs min_norm: a public lower bound on the norm of "
                f"every vector.",
                field="min_norm",
            )
        if min_norm_on_grid(parameters) <= parameters.adjacency.size:
            raise NoGuaranteeError(
                f"{self.name} needs a min_norm above beta = {parameters.adjacency.size:g}, not "
                f"{parameters.min_norm:g}.",
                field="min_norm",
            )


# fmt: off
_ROWS = (
    Method("raw-gaussian", families.IDENTITY, gaussian.RAW_GAUSSIAN,
        "optimal Gaussian noise on every raw coordinate",
        "Li & Li 2023 Thm 3.8 (Raw-data-G-OPT); Balle & Wang 2018 Thm 8"),
    Method("raw-laplace", families.IDENTITY, geometric.LAPLACE,
        "Laplace noise on every raw coordinate",
        "Dwork et al. 2006; Li & Li 2023 Thm 2.1"),
    Method("raw-staircase", families.IDENTITY, geometric.STAIRCASE,
        "staircase noise on every raw coordinate",
        "Geng & Viswanath 2014 Thm 1"),
    Method("raw-square-wave", families.IDENTITY, square_wave.SQUARE_WAVE,
        "square-wave noise on raw coordinates that lie in an interval of one beta",
        "Li et al. 2020 Sec. 5 (square wave); Wang et al. 2019 (piecewise mechanism)"),
    Method("raw-square-wave-narrow", families.IDENTITY, square_wave.NARROW_SQUARE_WAVE,
        "square-wave noise in half the width: more variance, but more to be had by denoising",
        "Li et al. 2020 Sec. 5 (any width is private)"),
    Method("dp-rp-g", families.DENSE_NUMBERS, gaussian.KENTHAPADI_GAUSSIAN,
        "random projection with Gaussian noise as first published",
        "Kenthapadi et al. 2013 Lemma 1; Li & Li 2023 Alg. 1, Thm 3.1"),
    Method("dp-rp-g-analytic", families.GAUSSIAN, gaussian.ANALYTIC_GAUSSIAN,
        "random projection, noise from a bound on the sensitivity; dp-rp-g-opt takes the real one",
        "Li & Li 2023 Thm 3.4"),
    Method("dp-rp-g-opt", families.DENSE_NUMBERS, gaussian.OPTIMAL_GAUSSIAN,
        "random projection with optimal Gaussian noise for its realised sensitivity",
        "Li & Li 2023 Alg. 1, Thm 3.5; Balle & Wang 2018 Thm 8"),
    Method("dp-rp-l", families.DENSE_NUMBERS, geometric.LAPLACE,
        "random projection with Laplace noise for its realised L1 sensitivity",
        "Li & Li 2023 Alg. 2, Thm 2.1"),
    Method("dp-rp-g-opt-b", families.RADEMACHER, gaussian.OPTIMAL_GAUSSIAN,
        "random projection by fair signs, whose L2 sensitivity is beta exactly",
        "Li & Li 2023 Alg. 3, Thms 3.5 and 3.9; Balle & Wang 2018 Thm 8"),
    Method("dp-oporp", families.OPORP, gaussian.OPTIMAL_GAUSSIAN,
        "OPORP with optimal Gaussian noise, as published",
        "Li & Li 2023 Alg. 5, Thms 3.5 and 3.10; Balle & Wang 2018 Thm 8"),
    Method("dp-oporp-laplace", families.OPORP, geometric.LAPLACE,
        "OPORP with Laplace noise: its L1 sensitivity is beta too",
        "Li & Li 2023 Alg. 4 and Thm 2.1"),
    Method("dp-oporp-staircase", families.OPORP, geometric.STAIRCASE,
        "OPORP with staircase noise: the least pure noise for one bin",
        "Li & Li 2023 Alg. 4; Geng & Viswanath 2014 Thm 1"),
    Method("dp-sjlt-laplace", families.SPARSE_JL, geometric.LAPLACE,
        "sparse Johnson-Lindenstrauss map with Laplace noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Dwork et al. 2006"),
    Method("dp-sjlt-gaussian", families.SPARSE_JL, gaussian.OPTIMAL_GAUSSIAN,
        "sparse Johnson-Lindenstrauss map with optimal Gaussian noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Balle & Wang 2018 Thm 8"),
    Method("dp-fjlt-gaussian", families.FAST_JL, gaussian.OPTIMAL_GAUSSIAN,
        "fast Johnson-Lindenstrauss transform with optimal Gaussian noise",
        "Stausholm 2021; Ailon & Chazelle 2009; Balle & Wang 2018 Thm 8"),
    Method("row-rp-g-direct", families.GAUSSIAN, gaussian.BALL_DIRECT,
        "random projection hiding one pair of vectors; row-rp-g-opt hides every pair",
        "Tu, Thm 1 (corrected); Kenthapadi et al. 2013 Lemma 1"),
    Method("row-rp-g-composition", families.GAUSSIAN, gaussian.BALL_COMPOSITION,
        "the same, coordinate by coordinate; row-rp-g-opt hides every pair",
        "Tu, Thm 2; Dwork, Rothblum & Vadhan 2010"),
    Method("row-rp-g-opt", families.GAUSSIAN, gaussian.BALL_GAUSSIAN,
        "random projection hiding the whole vector, by its realised operator norm",
        "Balle & Wang 2018 Thm 8"),
    Method("row-oporp-g", families.OPORP, gaussian.BALL_GAUSSIAN,
        "OPORP hiding the whole vector, by its realised operator norm",
        "Li & Li 2023 Alg. 4; Balle & Wang 2018 Thm 8"),
    Method("dp-signrp-rr", families.FINE_DENSE_SIGNS, response.EXACT_RESPONSE,
        "signs of a random projection under randomized response; pure, or better with a norm bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Remark 4.1; N+ by exact binomial quantile"),
    Method("dp-signrp-rr-smooth", families.DENSE_SIGNS, response.SMOOTH_FLIPS,
        "signs of a random projection, flipped less the further from zero",
        "Li & Li 2023 Alg. 7, Thm 4.7"),
    Method("dp-signrp-geometric", families.DENSE_SIGNS, response.GEOMETRIC_FLIPS,
        "signs of a random projection under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signoporp-rr", families.REPEATED_OPORP, response.RANDOMIZED_RESPONSE,
        "signs of OPORP under randomized response",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("dp-signoporp-rr-smooth", families.REPEATED_OPORP, response.SMOOTH_FLIPS,
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("dp-signoporp-geometric", families.REPEATED_OPORP, response.GEOMETRIC_FLIPS,
        "signs of OPORP under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("idp-signrp-rr", families.SIGN_RADEMACHER, individual.INDIVIDUAL_FLIPS,
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2"),
    Method("idp-signrp-g", families.SIGN_RADEMACHER, individual.INDIVIDUAL_GAUSSIAN,
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1"),
    Method("idp-signoporp-rr", families.SIGN_OPORP, individual.INDIVIDUAL_FLIPS,
        "signs of OPORP; only signs a neighbour could change are flipped",
        "Li & Li 2023 Sec. 6 (Alg. 11 over OPORP); one bin moves, so none shares the budget"),
    Method("idp-signoporp-g", families.SIGN_OPORP, individual.INDIVIDUAL_GAUSSIAN,
        "signs of OPORP; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Sec. 6 (Alg. 9 over OPORP)"),
    Method("record-cap", families.ROTATION, cap.CAP_RESPONSE,
        "signs of a rotated vector, drawn from a cap about it or the rest; hides the whole record",
        "Bhowmick et al. 2018 (PrivUnit) and Asi, Feldman & Talwar 2022, on signs with magnitudes"),
    Method("record-codebook", families.CODEWORDS, codebook_response.CODEBOOK_RESPONSE,
        "one of the public codewords nearest to a vector, or any other; hides the whole record",
        "Kairouz, Oh & Viswanath 2016 (extremal mechanisms); Wang et al. 2016 (subset selection)"),
    Method("none-oporp", families.OPORP, additive.NO_NOISE,
        "OPORP without noise: a baseline, not private",
        "Li & Li 2023 Alg. 4"),
    Method("none-signrp", families.SIGN_RADEMACHER, response.NO_FLIPS,
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)"),
)
# fmt: on

_REMEDIES: defaultdict[tuple[str, ...], str] = defaultdict(
    str, {("record",): "; state --record (dpindex.record())"}
)
_MAX_CLOSE = 3

TABLE = {method.name: method for method in _ROWS}
"""Every method by its name."""


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

"""What is predicted of one spec: shares of neighbours found, how sure they are, and attacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from dpindex.base.arrays import Doubles
from dpindex.base.display import UpperBound
from dpindex.decode.fit import DenoiserKind
from dpindex.index.search import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.study.specs import columns_of
from dpindex.study.trial import Trial


@dataclass(frozen=True)
class FoundShares:
    """Expected shares of true neighbours in one query mode.

    Attributes
    ----------
    precision : float
        precision@10 of the true 50: share of the first ten answers that are among the 50 nearest.
    within : mapping of int to float
        Recall by numbers of candidates, from the plan's k on: share of the k nearest that are among
        as many first answers of the codes, which is recall@k once the holder of the vectors has
        ordered them.

    >>> found = FoundShares(precision=0.5, within={10: 0.3, 1000: 0.9})
    >>> found.recall, round(found.recall_within(100), 3), found.candidates_for(0.6)
    (0.3, 0.6, 100)
    """

    precision: float
    within: Mapping[int, float]

    @property
    def recall(self) -> float:
        """recall@k of the true k, of codes alone. It is never easier than precision if k is 10."""
        return next(iter(self.within.values()))

    def recall_within(self, candidates: int) -> float:
        """Return recall after ordering ``candidates``, interpolated between the known numbers."""
        numbers = np.log(list(self.within))
        shares = list(self.within.values())
        return float(np.interp(math.log(candidates), numbers, shares))

    def to_dict(self) -> dict[str, Any]:
        """Return both as plain JSON values, recall by the number of candidates."""
        within = {str(number): round(share, 4) for number, share in self.within.items()}
        return {"precision": round(self.precision, 4), "recall": within}

    def corrected(self, missed: float) -> FoundShares:
        """Return what is expected if log-odds of shares are too high by ``missed``.

        >>> found = FoundShares(0.5, {10: 0.2}).corrected(math.log(2.0))
        >>> round(found.precision, 3), round(found.recall, 3)
        (0.333, 0.111)
        """
        factor = math.exp(-missed)

        def less(share: float) -> float:
            return share * factor / (1.0 - share + share * factor)

        within = {number: less(share) for number, share in self.within.items()}
        return FoundShares(less(self.precision), within)

    @property
    def log_odds(self) -> Doubles:
        """Log-odds of precision, and of recall by the number of candidates."""
        return _log_odds(np.array([self.precision, *self.within.values()]))

    def candidates_for(self, recall: float) -> int | None:
        """Return the fewest candidates that reach a recall, to two digits; None if none do."""
        shares = list(self.within.values())
        if shares[-1] < recall:
            return None
        numbers = np.log(list(self.within))
        number = math.exp(np.interp(recall, shares, numbers))
        digits = math.floor(math.log10(number))
        unit: int = 10 ** max(0, digits - 1)
        return math.ceil(round(number / unit, 6)) * unit


# Vectors of a sample of whose test half counts: of 16 codebooks of made vectors, with clusters and
# without, and of sentences, half to two thirds of what is missed at 4000 misses in promises, too.
_HALF_COUNTS = 3000
# Of a normal law, for a range that holds nine of ten; and how much predictions vary from one noise
# and sample to the next, beside what the number of queries says.
_NINE_OF_TEN = 1.645
_VARIES = 0.015
_LEAST_ODDS = 0.02


@dataclass(frozen=True)
class SelfTest:
    """How far what a quarter of the sample predicts is from what is counted in the rest.

    Attributes
    ----------
    queries : int
        Queries of the prediction that is tested.
    apart : float
        Mean difference of log-odds between shares that were predicted and counted, [0, ∞).
    missed : float
        By how much too high log-odds of promises are expected to be, by as many vectors.
    otherwise : float
        By how much higher log-odds are if queries have near-copies in the collection where they are
        taken to have none; below 0 the other way round.

    >>> SelfTest(1000, 0.5).range_of(0.5)
    (0.34, 0.66)
    >>> SelfTest(1000, 0.5, otherwise=-1.0).range_of(0.5)
    (0.14, 0.66)
    """

    queries: int
    apart: float
    missed: float = 0.0
    otherwise: float = 0.0

    @classmethod
    def of(
        cls, queries: int, vectors: int, predicted: FoundShares, counted: FoundShares
    ) -> SelfTest:
        """Return the test of so many vectors that compares what was predicted and counted."""
        apart = predicted.log_odds - counted.log_odds
        missed = float(apart.mean()) * vectors / (vectors + _HALF_COUNTS)
        return cls(queries, float(np.abs(apart).mean()), missed)

    def range_of(self, share: float) -> tuple[float, float]:
        """Return a range that should hold what is found nine times in ten, to two digits."""
        deviation = math.sqrt(share * (1.0 - share) / self.queries + _VARIES**2)
        odds = _log_odds(np.array([share]))[0]
        low = float(expit(odds + min(self.otherwise, 0.0) - self.apart))
        high = float(expit(odds + max(self.otherwise, 0.0) + self.apart))
        lowest = max(0.0, min(low, share) - _NINE_OF_TEN * deviation)
        highest = min(1.0, max(high, share) + _NINE_OF_TEN * deviation)
        return math.floor(100 * lowest) / 100, math.ceil(100 * highest) / 100


def _log_odds(shares: Doubles) -> Doubles:
    """Return the logarithms of odds, of shares that are neither 0 nor 1."""
    return np.asarray(logit(np.clip(shares, _LEAST_ODDS, 1.0 - _LEAST_ODDS)))


@dataclass(frozen=True)
class Row:
    """The predictions for one spec.

    Attributes
    ----------
    spec : Spec
        Method, code length, epsilon and everything else that is public.
    denoiser : "linear" or "auto", optional
        Kind of the denoiser that is predicted for, as of ``fit_denoiser(kind)``; None if codes are
        ranked as they are. "auto" is tried for the most promising specs only. Another kind may find
        much less than this row says.
    private, exact : FoundShares
        What is expected to be found, by query mode; 0 where noise leaves next to nothing of a code.
    bytes_per_vector : int
        Size of a published code.
    noise : float
        Standard deviation of the noise relative to that of a coordinate; for signs, the share that
        is flipped; for symbols, the share outside the set of nearest codewords.
    centroids : bool
        Codewords are centroids of the sample, as of ``fit_codebook``, not vectors of it.
    test : SelfTest, optional
        How well a quarter of the sample predicts the rest; None of rows that are not recommended.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=8, epsilon=1.0, adjacency=attribute(1.0))
    >>> private, exact = FoundShares(0.2, {10: 0.1}), FoundShares(0.5, {10: 0.3})
    >>> row = Row(spec, None, private, exact, bytes_per_vector=16, noise=0.4)
    >>> row.found("exact").recall
    0.3
    """

    spec: Spec
    denoiser: DenoiserKind | None
    private: FoundShares
    exact: FoundShares
    bytes_per_vector: int
    noise: float
    centroids: bool = False
    test: SelfTest | None = None

    @property
    def method(self) -> str:
        return self.spec.method

    @property
    def k(self) -> int:
        return self.spec.code_length

    @property
    def signs(self) -> bool:
        return self.spec.format_type.are_signs

    @property
    def size(self) -> str:
        """Coordinates of a code, or the codewords, C if they are centroids, with w or u."""
        if not self.spec.symbols:
            return str(self.k)
        letter = "C" if self.centroids else "K"
        size = f"{letter}={self.spec.symbols}"
        if self.spec.window is not None:
            return f"{size} u={self.spec.window:g}"
        return size if self.spec.subset is None else f"{size} w={self.spec.subset}"

    @property
    def contents(self) -> str:
        """Contents of a code, in words."""
        return self.spec.format.contents

    @property
    def guarantee(self) -> Guarantee:
        return self.spec.guarantee

    def found(self, query: QueryMode) -> FoundShares:
        """Return what is expected to be found in that query mode."""
        if query == "private":
            return self.private
        return self.exact

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {
            **columns_of(self.spec),
            "centroids": self.centroids,
            "denoiser": self.denoiser,
            "private": self.private.to_dict(),
            "exact": self.exact.to_dict(),
            "bytes_per_vector": self.bytes_per_vector,
            "noise": round(self.noise, 4),
            "guarantee": self.guarantee.to_dict(),
        }


@dataclass(frozen=True)
class AttackFigures:
    """What attacks find in codes of public vectors under a spec, by one who has others of the kind.

    Attributes
    ----------
    codes : int
        How many codes there were.
    others : int
        How many vectors of the kind the attacker learned from. With more of them a vector is
        rebuilt better, up to ``highest_cosine``.
    linked : float
        Share of known vectors whose own code fits best among them, [0, 1]: fewer among more codes.
    reconstruction_error : float
        Mean squared error of reconstructed vectors over that of the best guess without codes.
    reconstruction_cosine, guess_cosine : float
        Cosine of reconstructed vectors, and of that guess, to the originals. These three are NaN
        for a projection that is too large to invert.
    highest_cosine : float
        What no attacker exceeds on average, with any number of other vectors of the kind; NaN as
        those.
    """

    codes: int
    others: int
    linked: float
    reconstruction_error: float
    reconstruction_cosine: float
    guess_cosine: float
    highest_cosine: float

    @classmethod
    def of(cls, trial: Trial) -> AttackFigures:
        """Return the figures of attacks on a trial."""
        linked = trial.linkage().share
        rebuilt = trial.reconstruction()
        highest = rebuilt["reconstruction_cosine"]
        if not math.isnan(highest):
            highest = max(highest, trial.highest_cosine())
        return cls(len(trial.index), len(trial.others), linked, **rebuilt, highest_cosine=highest)

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields, numbers to four decimals, None in place of NaN."""
        figures: dict[str, float | None] = {}
        for name, value in asdict(self).items():
            figures[name] = None if math.isnan(value) else round(value, 4)
        return figures

    def lines(self) -> list[str]:
        """Return how close a reconstruction comes, and how often a known vector is linked."""
        lines = []
        if not math.isnan(self.reconstruction_cosine):
            lines.append(
                f"An attacker with {self.others} similar public vectors reconstructs a vector from "
                f"its code to cosine {self.reconstruction_cosine:.2f}. With more of them it comes "
                f"nearer, up to {UpperBound(self.highest_cosine):.2f} at most; the best "
                f"guess without the code has {self.guess_cosine:.2f}."
            )
        linked = f"{self.linked:.0%}".replace("%", " %")
        if not 0.01 <= self.linked <= 0.99:
            linked = "under 1 %" if self.linked < 0.5 else "over 99 %"
        lines.append(
            f"Someone who knows a vector and others of its kind finds its code {linked} of the "
            f"time among {self.codes} codes (by chance 1 in {self.codes}), and less often in "
            f"larger collections."
        )
        return lines

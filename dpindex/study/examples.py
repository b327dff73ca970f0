"""Examples of what the figures of a curve count: single queries, single records, and their texts.

Of texts a reader can judge an attack without a measure: what is reconstructed from the code of a
text is shown by the public text that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Floats,
    Rows,
    Singles,
    of_norm_1,
    spaced,
)
from dpindex.base.errors import InputError
from dpindex.base.files import read_file
from dpindex.data import VectorSource, as_source, dense_rows
from dpindex.data.source import check_columns, check_one_each
from dpindex.decode.base import Metric
from dpindex.index.search import QueryMode
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.reconstruction import (
    FITTED,
    can_be_reconstructed,
    cosines,
    reconstructor_of,
)
from dpindex.study.specs import columns_of
from dpindex.study.trial import Trial, attacked_rows
from dpindex.study.truth import ground_truth

ANSWERS = 10
"""Answers shown for each query."""

_MAX_TEXT_BYTES = 1 << 30
_EPSILONS = 3


@dataclass(frozen=True, eq=False)
class Reconstructed:
    """What an attacker makes of the codes of some records.

    Attributes
    ----------
    vectors : float32 array, shape (records, dim)
        The reconstructions, in the units of the base.
    cosines : float64 array, shape (records,)
        Their cosines to the originals.
    nearest : int64 array, shape (records,)
        Row of the base nearest to each: what an attacker takes it for who has a list of all
        originals. −1 for a reconstruction that is zero.
    """

    vectors: Singles
    cosines: Doubles
    nearest: Rows


@dataclass(frozen=True, eq=False)
class ExampleBuild:
    """One build of one spec.

    Attributes
    ----------
    spec : Spec
    found : mapping from query mode to int64 array, shape (levels, queries, 10)
        Rows of the base, best first, by :attr:`Curve.candidates`; the first ones as codes order
        them, the others after the first R were ordered by their vectors.
    true : mapping from query mode to bool array, shape (levels, queries, 10)
        Whether each of them is among the ten true neighbours, ties included.
    reconstructed : Reconstructed or None
        None if the projection is too large to invert.
    """

    spec: Spec
    found: Mapping[QueryMode, Rows]
    true: Mapping[QueryMode, Bools]
    reconstructed: Reconstructed | None


@dataclass(frozen=True, eq=False)
class Examples:
    """Single queries and records, and what each spec of a curve makes of them.

    Attributes
    ----------
    queries, records : int64 arrays
        Rows of the queries that are asked, and of the base that are attacked.
    truth : int64 array, shape (queries, 10)
        The true neighbours of each query, best first.
    builds : tuple of ExampleBuild
        One for each spec of the curve.
    vectors : (VectorSource, VectorSource)
        The base and the queries, which the rows are of.

    >>> rows = np.zeros(0, dtype=np.int64)
    >>> vectors = as_source(np.eye(3))
    >>> Examples(rows, rows, rows[:, None], (), (vectors, vectors)).builds
    ()
    """

    queries: Rows
    records: Rows
    truth: Rows
    builds: tuple[ExampleBuild, ...]
    vectors: tuple[VectorSource, VectorSource]


class Gallery:
    """Queries and records that are shown, evenly spaced, and what each build makes of them.

    Parameters
    ----------
    base, queries : VectorSource
        The queries are held in memory.
    metric : "cosine", "ip" or "l2"
        That answers are ordered by.
    levels : sequence of int
        Numbers of candidates, ascending.
    count : int
        Queries and records to show, [1, ∞).
    """

    def __init__(
        self,
        base: VectorSource,
        queries: VectorSource,
        metric: Metric,
        levels: Sequence[int],
        count: int,
    ) -> None:
        self._base = base
        self._levels = levels
        self._rows = spaced(queries.shape[0], count)
        attacked = attacked_rows(base.shape[0])
        self._records: Rows = attacked[spaced(len(attacked), count)]
        self._vectors = (base, queries)
        self._queries = dense_rows(queries, self._rows)
        # Of all vectors, so that any answers can be put in order.
        self._truth = ground_truth(base, self._queries, base.shape[0], metric)
        self._places = np.argsort(self._truth.ids, axis=1)

    def of_build(self, trial: Trial, modes: Iterable[QueryMode]) -> ExampleBuild:
        """Return what searches of a build find, and what attacks on its codes give back."""
        spec = trial.index.spec
        found = {}
        true = {}
        for mode in modes:
            rows = trial.nearest(self._queries, self._levels[-1], mode)
            answers = [rows[:, :ANSWERS]]
            for level in self._levels[1:]:
                answers.append(_ordered(rows[:, :level], self._places))
            found[mode] = np.stack(answers)
            true[mode] = np.stack([self._truth.relevant(answer, ANSWERS) for answer in answers])
        reconstructed = None
        if can_be_reconstructed(spec):
            vectors = trial.attacker(trial.index.codes.take(self._records))
            nearest = _nearest(self._base, vectors)
            originals = dense_rows(self._base, self._records)
            reconstructed = Reconstructed(vectors, cosines(vectors, originals), nearest)
        return ExampleBuild(spec, found, true, reconstructed)

    def examples(self, builds: Iterable[ExampleBuild]) -> Examples:
        """Return what builds make of the queries and records, with these."""
        truth = self._truth.ids[:, :ANSWERS]
        return Examples(self._rows, self._records, truth, tuple(builds), self._vectors)


def _ordered(rows: AnyArray, places: Rows) -> Rows:
    """Return the first ten of each line of rows after their holder put them in order."""
    order = np.argsort(np.take_along_axis(places, rows, axis=1), axis=1)
    return np.take_along_axis(rows, order[:, :ANSWERS], axis=1)


def _nearest(base: VectorSource, vectors: Singles) -> Rows:
    """Return the row of the base nearest to each vector by cosine; −1 for a zero vector."""
    nearest = np.full(len(vectors), -1, dtype=np.int64)
    has_direction = vectors.any(axis=1)
    if has_direction.any():
        truth = ground_truth(base, vectors[has_direction], 1)
        nearest[has_direction] = truth.ids[:, 0]
    return nearest


@dataclass(frozen=True)
class TextGuess:
    """A public text that an attacker takes for the text of a record, by the record's code.

    Attributes
    ----------
    spec : Spec
        Of the code.
    row : int
        Of the record in the base.
    record : str
        Its true text, or its row number where that is not known.
    best, best_cosine : str, float
        The public text whose vector is nearest to the true vector, and their cosine.
    text, cosine : str, float
        The public text nearest to the reconstructed vector, and its cosine to the true vector.
    among : int
        Number of public texts.

    >>> from dpindex import attribute
    >>> spec = Spec("raw-staircase", dim=4, epsilon=60.0, adjacency=attribute(1.0))
    >>> TextGuess(spec, 0, "yes", "yes", 1.0, "no", 0.25, 2).line()["reconstructed"]
    'no'
    """

    spec: Spec
    row: int
    record: str
    best: str
    best_cosine: float
    text: str
    cosine: float
    among: int

    def line(self) -> dict[str, Any]:
        """Return the guess as a line of ``texts.csv``."""
        return {
            **columns_of(self.spec),
            "record": self.record,
            "nearest_public": self.best,
            "nearest_public_cosine": self.best_cosine,
            "reconstructed": self.text,
            "reconstruction_cosine": self.cosine,
        }


def read_texts(path: str | Path) -> list[str]:
    """The lines of a text file, one text for each vector of another file."""
    try:
        text = read_file(Path(path), _MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: it is not UTF-8 text; write one text a line.") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def text_attack(
    base: Any,
    specs: Iterable[Spec],
    public: Any,
    public_texts: Sequence[str],
    texts: Sequence[str] | None = None,
    *,
    records: int = 5,
) -> list[TextGuess]:
    """Reconstruct some records from their codes, and find the public texts nearest to them.

    Parameters
    ----------
    base : array, sparse matrix or VectorSource, shape (n, dim)
        Private vectors, of which ``records`` evenly spaced ones are attacked.
    specs : iterable of Spec
        Of each method and length three epsilons are shown: the smallest, a middle and the largest.
    public : the same kind, shape (m, dim)
        Public vectors, with one of ``public_texts`` each.
    texts : sequence of str, optional
        The texts of the base, to be shown beside the guesses; otherwise row numbers are.
    records : int
        [1, n].

    Returns
    -------
    list of TextGuess
        Of the records under the first spec, under the second, and so on.

    Raises
    ------
    InputError
        If texts and vectors differ in number, or public vectors in width.

    >>> from dpindex import attribute
    >>> public = np.eye(4)
    >>> said = ["yes", "no", "thanks", "stop"]
    >>> spec = Spec("raw-staircase", dim=4, epsilon=60.0, adjacency=attribute(1.0))
    >>> found = text_attack(public, [spec], public, said, records=4)
    >>> [guess.text for guess in found]
    ['yes', 'no', 'thanks', 'stop']
    """
    base = as_source(base, "base")
    public = as_source(public, "the public vectors")
    check_columns(public, base)
    check_one_each(public, public_texts, "texts")
    check_one_each(base, texts, "texts")
    rows = spaced(base.shape[0], records)
    names = [f"row {row}" if texts is None else texts[row] for row in rows]
    vectors = dense_rows(base, rows)
    truth = of_norm_1(vectors)
    known = dense_rows(public, np.arange(public.shape[0]))
    directions = of_norm_1(known)

    def nearest_texts(vectors: Floats) -> list[tuple[str, float]]:
        """The public text nearest to each vector, and its cosine to the true vector."""
        places = (of_norm_1(vectors) @ directions.T).argmax(axis=1)
        cosine = cosines(directions[places], truth).tolist()
        return [(public_texts[place], each) for place, each in zip(places, cosine, strict=True)]

    best = nearest_texts(vectors)
    _, others = next(base.chunks(FITTED))
    guesses = []
    for spec in _three_epsilons(specs):
        privatizer = Privatizer(spec)
        # The denoiser is fitted to codes of others that are published with the records.
        reconstruct = reconstructor_of(spec, known, privatizer.privatize(others))
        guessed = nearest_texts(reconstruct(privatizer.privatize(vectors)))
        for row, name, own, guess in zip(rows.tolist(), names, best, guessed, strict=True):
            guesses.append(TextGuess(spec, row, name, *own, *guess, among=len(public_texts)))
    return guesses


def _three_epsilons(specs: Iterable[Spec]) -> list[Spec]:
    """Three epsilons of the first code length of each private method, ascending."""
    lines: dict[str, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        if spec.epsilon is not None:
            lines.setdefault(spec.method, []).append(spec)
    chosen = []
    for line in lines.values():
        alike = [spec for spec in line if spec.code_length == line[0].code_length]
        alike.sort(key=lambda spec: spec.budget)
        chosen += [alike[place] for place in spaced(len(alike), _EPSILONS)]
    return chosen

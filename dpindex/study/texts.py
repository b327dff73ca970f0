"""An attack that a reader can judge: the public texts nearest to what codes of texts give back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import Singles, in_units_of_largest, spaced, unit
from dpindex.base.errors import InputError
from dpindex.base.files import read_file
from dpindex.data import as_source, dense_rows
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.reconstruction import FITTED, reconstructor_of

__all__ = ["Guess", "TextAttack", "read_texts", "text_attack"]

_MAX_TEXT_BYTES = 1 << 30
_EPSILONS = 3


@dataclass(frozen=True)
class Guess:
    """A public text that stands for a record, and the cosine of its vector to the true one."""

    text: str
    cosine: float


@dataclass(frozen=True)
class TextAttack:
    """The result of :func:`text_attack`.

    Attributes
    ----------
    records : tuple of str
        The true texts, or row numbers where they are not known.
    best : tuple of Guess
        For each record the public text nearest to its true vector.
    guesses : tuple of (Spec, tuple of Guess)
        For each spec and record the public text nearest to the reconstructed vector.
    public : int
        Number of public texts.

    >>> TextAttack(("yes",), (), (), public=2).records
    ('yes',)
    """

    records: tuple[str, ...]
    best: tuple[Guess, ...]
    guesses: tuple[tuple[Spec, tuple[Guess, ...]], ...]
    public: int

    def lines(self) -> Iterator[dict[str, Any]]:
        """One line for each spec and record."""
        for spec, guesses in self.guesses:
            for record, best, guess in zip(self.records, self.best, guesses, strict=True):
                yield {
                    "method": spec.method,
                    "adjacency": str(spec.adjacency),
                    "epsilon": spec.epsilon,
                    "record": record,
                    "nearest_public": best.text,
                    "nearest_public_cosine": best.cosine,
                    "reconstructed": guess.text,
                    "reconstruction_cosine": guess.cosine,
                }

    def tables(self) -> Iterator[tuple[str, list[float], list[tuple[str, list[Guess]]]]]:
        """For each method its name, epsilons, and rows of a record with its guesses."""
        for method in dict.fromkeys(spec.method for spec, _ in self.guesses):
            mine = {spec.budget: found for spec, found in self.guesses if spec.method == method}
            cells = map(list, zip(self.best, *mine.values(), strict=True))
            yield method, list(mine), list(zip(self.records, cells, strict=True))


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
) -> TextAttack:
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

    Raises
    ------
    InputError
        If texts and vectors differ in number.

    >>> from dpindex import attribute
    >>> import numpy as np
    >>> public = np.eye(4)
    >>> said = ["yes", "no", "thanks", "stop"]
    >>> spec = Spec("raw-staircase", dim=4, epsilon=60.0, adjacency=attribute(1.0))
    >>> found = text_attack(public, [spec], public, said, records=4)
    >>> [guess.text for guess in found.guesses[0][1]]
    ['yes', 'no', 'thanks', 'stop']
    """
    base = as_source(base, "base")
    public = as_source(public, "the public vectors")
    for source, lines in ((public, public_texts), (base, texts)):
        if lines is not None and len(lines) != source.shape[0]:
            raise InputError(
                f"{source.name} has {source.shape[0]} vectors, and there are {len(lines)} texts; "
                f"give one line for each vector."
            )
    if public.shape[1] != base.shape[1]:
        raise InputError(
            f"{public.name} has {public.shape[1]} columns where {base.name} has {base.shape[1]}."
        )
    rows = spaced(base.shape[0], records)
    vectors = dense_rows(base, rows)
    public_vectors = dense_rows(public, np.arange(public.shape[0]))
    known = unit(in_units_of_largest(public_vectors))
    truth = unit(in_units_of_largest(vectors))

    def guesses(vectors: Singles) -> tuple[Guess, ...]:
        nearest = (unit(in_units_of_largest(vectors)) @ known.T).argmax(axis=1)
        cosines = np.einsum("ij,ij->i", known[nearest], truth)
        return tuple(
            Guess(public_texts[i], float(c)) for i, c in zip(nearest, cosines, strict=True)
        )

    names = [f"row {row}" if texts is None else texts[row] for row in rows]
    _, others = next(base.chunks(FITTED))
    found = []
    for spec in _shown(specs):
        privatizer = Privatizer(spec)
        # The denoiser is fitted to codes of others that are published with the records.
        reconstruct = reconstructor_of(spec, public_vectors, privatizer.privatize(others))
        found.append((spec, guesses(reconstruct(privatizer.privatize(vectors)))))
    return TextAttack(tuple(names), guesses(truth), tuple(found), public.shape[0])


def _shown(specs: Iterable[Spec]) -> list[Spec]:
    """Three epsilons of the first code length of each private method, ascending."""
    lines: dict[str, list[Spec]] = {}
    for spec in specs:
        line = lines.setdefault(spec.method, [])
        if spec.epsilon is not None and (not line or line[0].code_length == spec.code_length):
            line.append(spec)
    chosen = []
    for line in lines.values():
        line.sort(key=lambda spec: spec.budget)
        chosen += [line[i] for i in spaced(len(line), _EPSILONS)]
    return chosen

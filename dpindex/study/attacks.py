"""A panel of attacks on codes, each beside what is known without the code and what epsilon allows.

One attacker (:class:`dpindex.study.reconstruction.Reconstructor`) holds the codes of the whole
collection, every public parameter and public vectors of the kind. The figures are

- *candidate ranking*: of how many codes the true vector is found among n candidates, which is what
  inversions of embeddings by a language model end with (the model proposes, the code decides), by
  the likelihood of the code, the most powerful test (Neyman & Pearson 1933): on fifteen specs no
  ranking by cosines to what is reconstructed, or to codes, found more;
- *alignment*: the cosine of vectors to what is reconstructed by a map that was learned from pairs
  alone, by one who knows nothing of the mechanism;
- *attribute inference*: how often a label is inferred, by a classifier trained on codes of public
  vectors; beside it, from the codes of the ten nearest other records, which the record does not
  change: what they give away is a fact about the crowd;
- *membership*: the true-positive rate of telling vectors in the index from others, by the odds of
  the code that fits best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Floats, spaced, unit
from dpindex.base.errors import InputError
from dpindex.base.threads import idle_cores
from dpindex.data import as_source, dense_rows
from dpindex.data.source import check_columns, check_one_each
from dpindex.decode import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.promises import max_inference_rate, max_top_k_rate, max_tpr
from dpindex.mechanism.spec import Spec
from dpindex.study.matching import (
    best_odds,
    learned_map,
    rank_by_law,
    true_positive_rate,
)
from dpindex.study.reconstruction import (
    can_be_reconstructed,
    cosines,
    dense_units,
    not_codewords,
    reconstructor_of,
)
from dpindex.study.specs import columns_of, in_ranges
from dpindex.study.trial import in_threads

# Vectors that are privatized, and those of them that are attacked.
_COLLECTION = 20_000
ATTACKED_ROWS = 500
# Candidate ranking: how many there are, and among how many first ones the true vector counts.
_CANDIDATES = (10, 1000)
_PLACES = (1, 10)
# Alignment: pairs of code and vector that are known.
_PAIRS = (10, 100, 1000)
# Membership: shares of false positives.
_FALSE_POSITIVES = (0.001, 0.01)
# Attribute inference: nearest other records.
_CROWD = 10
_MIN_PUBLIC = 100


@dataclass(frozen=True)
class Attack:
    """One figure of the panel.

    Attributes
    ----------
    spec : Spec
        Of the attacked codes.
    name, setting : str
        Which attack, and with what.
    rate : float
        Its success, [0, 1]; of "cosine" settings a cosine.
    without : float
        The success without the code.
    bound : float or None
        The most that epsilon allows; None where it bounds nothing, as of attributes.

    >>> from dpindex import attribute
    >>> spec = Spec("raw-staircase", 4, epsilon=1.0, adjacency=attribute(1.0))
    >>> Attack(spec, "reconstruction", "cosine", 0.5, 0.25).bound
    """

    spec: Spec
    name: str
    setting: str
    rate: float
    without: float
    bound: float | None = None

    def line(self) -> dict[str, Any]:
        """Return the figure as a line of ``attacks.csv``."""
        return {
            **columns_of(self.spec),
            "attack": self.name,
            "setting": self.setting,
            "rate": round(self.rate, 4),
            "without_code": round(self.without, 4),
            "bound": None if self.bound is None else round(self.bound, 4),
        }


@dataclass(frozen=True, eq=False)
class Labels:
    """A label of each vector, which the attacker wants to infer.

    Attributes
    ----------
    base : array, shape (n,)
        Of the collection.
    public : array, shape (m,)
        Of the public vectors.

    >>> Labels(np.array(["cat"]), np.array(["cat", "dog"])).base
    array(['cat'], dtype='<U3')
    """

    base: AnyArray
    public: AnyArray


def attack_panel(
    base: Any,
    specs: Iterable[Spec],
    public: Any,
    labels: Labels | None = None,
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Attack]:
    """Privatize a collection under each spec, and attack the codes.

    Parameters
    ----------
    base : array, sparse matrix or VectorSource, shape (n, dim)
        Private vectors, of which at most 20 000 evenly spaced ones are the collection, and 500 of
        these are attacked.
    specs : iterable of Spec
        Those whose projection is too large to invert are left out.
    public : the same kind, shape (m, dim)
        Public vectors of the kind, not in the base. The attacker learns from two thirds of them;
        the last third are the vectors that are not in the index.
    labels : Labels, optional
        With them attribute inference is tried.
    progress : callable, optional
        Called with (specs done, specs in all, method).

    Returns
    -------
    list of Attack
        Figures of the first spec, of the second, and so on.

    Raises
    ------
    InputError
        For fewer than 100 public vectors, other widths, or other numbers of labels.

    >>> from dpindex import attribute
    >>> rng = np.random.default_rng(0)
    >>> base, public = rng.uniform(-1, 1, (300, 8)), rng.uniform(-1, 1, (150, 8))
    >>> specs = [Spec("dp-signoporp-rr", dim=8, k=8, epsilon=60.0, adjacency=attribute(1.0))]
    >>> attack_panel(base, specs, public)[1].setting
    'top 1 of 10'
    """
    specs, (base, public) = in_ranges(
        specs,
        as_source(base, "base"),
        as_source(public, "the public vectors"),
    )
    check_columns(public, base)
    if public.shape[0] < _MIN_PUBLIC:
        raise InputError(f"attacks need at least {_MIN_PUBLIC} public vectors.")
    base_rows = spaced(base.shape[0], _COLLECTION)
    public_rows = spaced(public.shape[0], _COLLECTION)
    if labels is not None:
        check_one_each(base, labels.base, "labels")
        check_one_each(public, labels.public, "labels")
        labels = Labels(labels.base[base_rows], labels.public[public_rows])
    private = dense_rows(base, base_rows)
    known = dense_rows(public, public_rows)
    attacked = [spec for spec in specs if can_be_reconstructed(spec)]

    def figures_of(spec: Spec) -> list[Attack]:
        return list(_Panel(spec, private, known, labels).figures())

    figures: list[Attack] = []
    with closing(in_threads(figures_of, attacked, idle_cores())) as several:
        for done, spec in enumerate(attacked):
            if progress is not None:
                progress(done, len(attacked), spec.method)
            figures += next(several)
    return figures


class _Panel:
    """The attacks on the codes of one spec.

    Parameters
    ----------
    spec : Spec
    base, public : arrays, shapes (n, dim) and (m, dim)
    labels : Labels, optional
    """

    def __init__(self, spec: Spec, base: Floats, public: Floats, labels: Labels | None) -> None:
        self._spec = spec
        self._labels = labels
        self._base = _encoded(spec, base)
        self._attacked = spaced(len(base), ATTACKED_ROWS)
        self._learned = np.arange(len(public)) % 3 < 2
        vectors = _encoded(spec, public)
        self._public = vectors[self._learned]
        self._strangers = not_codewords(spec, vectors[~self._learned])
        self._privatizer = Privatizer(spec, allow_unprotected=True)  # discarded, never published
        self._codes = self._privatizer.privatize(self._base)
        self._reconstruct = reconstructor_of(spec, self._public, self._codes)
        denoiser = self._reconstruct.denoiser
        read = Codes.to_float if denoiser is None else denoiser.to_rank
        self._readings = read(self._codes)
        self._estimates = self._estimate(self._codes.take(self._attacked))

    def figures(self) -> Iterator[Attack]:
        """Yield all figures."""
        yield from self._reconstruction()
        yield from self._ranked()
        yield from self._alignment()
        yield from self._membership()
        if self._labels is not None:
            yield from self._inference(self._labels)

    def _estimate(self, codes: Codes) -> Doubles:
        """Return reconstructed vectors, less what is guessed without a code."""
        return self._reconstruct(codes) - self._reconstruct.guess

    def _figure(self, *facts: Any) -> Attack:
        return Attack(self._spec, *facts)

    def _cosine(self, name: str, setting: str, estimates: Doubles, mean: Doubles) -> Attack:
        """Return the mean cosine of attacked vectors to estimates, and to their mean."""
        truth = self._base[self._attacked]
        guess = np.broadcast_to(mean, truth.shape)
        found = cosines(estimates, truth).mean()
        without = cosines(guess, truth).mean()
        return self._figure(name, setting, found, without)

    def _reconstruction(self) -> Iterator[Attack]:
        guess = self._reconstruct.guess
        yield self._cosine("reconstruction", "cosine", self._estimates + guess, guess)

    def _ranked(self) -> Iterator[Attack]:
        own = self._attacked
        ranking = rank_by_law(self._spec, self._codes.take(own), self._base, own)
        count = ranking.candidates
        numbers = [n for n in _CANDIDATES if n < count]
        for among, places in product([*numbers, count], _PLACES):
            if places >= among:
                continue
            rate = ranking.found(among, places)
            bound = max_top_k_rate(self._spec, among, places)
            setting = f"top {places} of {among}"
            yield self._figure("candidate ranking", setting, rate, places / among, bound)

    def _alignment(self) -> Iterator[Attack]:
        others = np.setdiff1d(np.arange(len(self._base)), self._attacked)
        for pairs in _PAIRS:
            if pairs > len(others):
                return
            known = others[spaced(len(others), pairs)]
            vectors = self._base[known]
            mean = vectors.mean(axis=0)
            read = learned_map(self._readings[known], vectors)
            estimates = read(self._readings[self._attacked])
            yield self._cosine("alignment", f"{pairs} pairs, cosine", estimates, mean)

    def _membership(self) -> Iterator[Attack]:
        both = np.concatenate([self._base[self._attacked], self._strangers])
        likelihoods = decoder_of(self._spec).likelihoods(self._privatizer, both)
        odds = best_odds(likelihoods, self._codes)
        members, others = np.split(odds, [len(self._attacked)])
        for share in _FALSE_POSITIVES:
            if share * len(others) >= 1.0:
                rate = true_positive_rate(members, others, share)
                setting = f"exact query, {share:.1%} false positives"
                bound = max_tpr(self._spec, share)
                yield self._figure("membership", setting, rate, share, bound)

    def _inference(self, labels: Labels) -> Iterator[Attack]:
        names, public_labels = np.unique(labels.public[self._learned], return_inverse=True)
        truth = labels.base[self._attacked]
        most_frequent = np.bincount(public_labels).argmax()
        public_majority = names[most_frequent]
        majority = float((truth == public_majority).mean())
        classifiers = self._classifiers(np.eye(len(names))[public_labels])

        def rate(vectors: Floats) -> float:
            rates = []
            for classify in classifiers:
                answers = names[classify(vectors).argmax(axis=1)]
                rates.append(float((answers == truth).mean()))
            return max(rates)

        own = rate(self._estimates)
        # Of these vectors, whatever the public ones are like: who knows that guesses it.
        _, counts = np.unique(truth, return_counts=True)
        bound = max_inference_rate(self._spec, counts.max() / len(truth))
        yield self._figure("attribute inference", "own code", own, majority, bound)

        directions = unit(self._base)
        cosine = directions[self._attacked] @ directions.T
        cosine[np.arange(len(truth)), self._attacked] = -np.inf
        crowd = np.argsort(-cosine, axis=1)[:, :_CROWD]
        codes = self._codes.take(crowd.ravel())
        estimates = self._estimate(codes)
        crowd_means = estimates.reshape(*crowd.shape, -1).mean(axis=1)
        of_others = rate(crowd_means)
        yield self._figure("attribute inference", "ten nearest others", of_others, majority)

    def _classifiers(self, labels: Doubles) -> list[Callable[[Floats], Doubles]]:
        """Return two maps from reconstructed vectors, less the guess, to a score for each label.

        One is learned from codes of public vectors, the other compares with the mean public vector
        of each label. ``labels`` are 0 and 1, shape (m, labels).
        """
        estimates = self._estimate(self._privatizer.privatize(self._public))
        counts = labels.sum(axis=0)[:, None]
        means = labels.T @ self._public / counts
        directions = unit(means - self._reconstruct.guess).astype(np.float64)
        return [learned_map(estimates, labels), lambda vectors: vectors @ directions.T]


def _encoded(spec: Spec, vectors: Floats) -> Doubles:
    """Return vectors as they are encoded: at the declared norm, if there is one."""
    if spec.norm is None:
        return dense_units(spec, vectors)
    return unit(vectors).astype(np.float64) * spec.norm

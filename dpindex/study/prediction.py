"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`) are drawn and scored as an
index draws and scores them. Each counts for as many vectors of the collection as it stands for.

Near ranks of a population have a distance and no vector. Their scores are interpolated between two
that are measured: those of codes of the query's own vector, at distance 0, and those of codes of a
farther vector. A mean score at distance d falls behind the own one by a *loss*, which is taken to
be ``level·d^γ + other``:

- γ is fitted to the 50 nearest vectors of all queries. It is near 1/2 for signs, and above 1 where
  neighbours differ in directions that a decoder or a denoiser removes.
- The level is that of the 50 nearest of the query.
- What is left for the farther vector, of its direction, is ``other``. It shrinks as the distance
  does, or as ``d^γ`` if that is slower.

The noise around the mean is normal: few draws have no tail, and the best of many codes are in it.
A near rank of symbols has instead the score of one code of either vector: of the farther one with
probability ``(d/d_farther)^γ``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
from scipy.special import ndtri

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Integers,
    Vectors,
    row_blocks,
    stacked,
    unit,
)
from dpindex.decode.base import Decoder, PrivateQueries, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser, fit_if_possible
from dpindex.decode.kinds import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.study.population import Population
from dpindex.study.target import NEIGHBOURS, FoundShares, Row

# Codes of each vector that are counted. With 5 precision is .01 to .02 too high, as each stands for
# more vectors of the collection.
COUNTED_ROUNDS = 12
# Codes of each query's own vector.
_OWN_CODES = 16
# Range of the exponent γ.
_EXPONENTS = (0.25, 2.0)
# Likelihoods of symbols that are held at a time.
_MAX_NUMBERS = 1 << 22
# Standard deviations by which own codes lead all codes, below which a denoiser has learned noise:
# its scores end where it is sure, and normal noise does not.
_MIN_LEAD = 1.0
# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3
_TINY = 1e-30


def noise_share(spec: Spec, vectors: Vectors) -> float:
    """Return how much of codes is noise: see :attr:`Row.noise`."""
    if spec.symbols:
        return spec.symbol_law.random_share
    privatizer = Privatizer(spec)
    exact = privatizer.project(vectors) * spec.step
    return spec.format.noise_share(privatizer.privatize(vectors).to_float(), exact)


def predicted_rows(
    spec: Spec,
    population: Population,
    rounds: int,
    ladder: Sequence[int],
    noise: float,
    denoise: DenoiserKind | None = None,
    *,
    plain: bool = True,
) -> list[Row]:
    """Return the row of codes as they are, and one of denoised codes if a denoiser can be fitted.

    Parameters
    ----------
    spec, population, rounds
        As of :class:`Prediction`.
    ladder
        As of :meth:`Population.found`.
    noise : float
        See :attr:`Row.noise`.
    denoise : "auto" or "linear", optional
        Kind of the denoiser.
    plain : bool
        Predict codes as they are even if there is a denoiser.
    """
    prediction = Prediction(spec, population, rounds)
    size = prediction.codes.stored[0].nbytes
    denoiser = None
    if denoise is not None and noise >= _NO_NOISE:
        fit = partial(fit_denoiser, prediction.codes_to_learn_from, spec)
        denoiser = fit_if_possible(fit, spec, denoise)
    rows = []
    if plain or denoiser is None:
        rows.append(Row(spec, None, *prediction.found(ladder), size, noise))
    if denoiser is not None:
        rows.append(Row(spec, denoise, *prediction.found(ladder, denoiser), size, noise))
    return rows


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector, at most. A denoiser is fitted to all, and twelve are counted.

    Attributes
    ----------
    codes : Codes
        Of all vectors in a first round, then of all in a second one, and so on.
    """

    def __init__(self, spec: Spec, population: Population, rounds: int) -> None:
        self._spec = spec
        self._population = population
        self._privatizer = Privatizer(spec)
        decoder = decoder_of(spec)
        self._has_symbols = decoder.by_symbol
        self._has_signs = decoder.by_hamming
        # A collection has no more codes than vectors.
        self._drawn = max(1, min(rounds, int(population.vectors_per_row)))
        self._rounds = min(self._drawn, COUNTED_ROUNDS)
        self.codes = self._privatized(population.vectors, self._drawn, population.labels)
        # A private query is one code of its vector. Others serve near ranks, if there are any.
        queries = population.queries
        own_codes = _OWN_CODES if population.closeness.size else 1
        of_queries = self._privatized(queries, 1 + own_codes, population.asked_labels)
        count = queries.shape[0]
        self._private = PrivateQueries(of_queries.take(slice(count)), spec)
        self._own = of_queries.take(slice(count, None))
        self._exact = decoder.exact_queries(self._privatizer, queries)

    def _privatized(self, vectors: Vectors, rounds: int, labels: Integers) -> Codes:
        """Return so many codes of each vector, of no codeword of its own group, (rounds·n, k)."""
        spec = self._spec
        groups = self._population.codewords
        if groups is None:
            return self._privatizer.privatize(stacked([vectors] * rounds))
        stream = PublicStream(0, "plan symbols")
        drawn = []
        for rows in row_blocks(vectors.shape[0], _MAX_NUMBERS // spec.symbol_law.size):
            scores = self._privatizer.project(vectors[rows])
            own = labels[rows, None] == groups
            likelihoods = spec.symbol_law.chances_without(scores, own)
            sums = np.cumsum(likelihoods, axis=1)
            places = stream.uniform(len(sums), rounds) * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        symbols = np.concatenate(drawn).T.ravel()
        return spec.format.codes(spec.format.pack(symbols))

    @property
    def codes_to_learn_from(self) -> Codes:
        """Codes that a denoiser is fitted to: of others, if there are any, as many of each."""
        others = self._population.others
        if others is None:
            return self.codes
        return self._privatizer.privatize(stacked([others] * self._drawn))

    def found(
        self, ladder: Sequence[int], denoiser: Denoiser | None = None
    ) -> tuple[FoundShares, FoundShares]:
        """Return what private and exact queries find, of codes as they are or denoised.

        Parameters
        ----------
        ladder
            As of :meth:`Population.found`.
        """
        decoder = decoder_of(self._spec, self._population.metric, denoiser)
        codes = self._vectors(decoder, self._counted)
        own = self._vectors(decoder, self._own)
        own = own.reshape(-1, len(self._private), own.shape[1])
        both = []
        for queries in (self._private, self._exact):
            asked = self._query_vectors(decoder, queries)
            scores = asked @ codes.T
            own_scores = np.einsum("qk,rqk->qr", asked, own)
            both.append(self._found(scores, own_scores, ladder, denoiser is not None))
        private, exact = both
        return private, exact

    @property
    def _counted(self) -> Codes:
        return self.codes.take(slice(self._rounds * self._population.vectors.shape[0]))

    def _vectors(self, decoder: Decoder, codes: Codes) -> AnyArray:
        """Return vectors whose inner products with queries an index ranks codes by, (n, k)."""
        vectors = decoder.vectors(codes)
        if self._population.metric == "l2":
            # |q − x|² falls as q·x − |x|²/2 grows: a last coordinate, which is 1 in queries.
            half_squares = np.einsum("nk,nk->n", vectors, vectors) / 2
            return np.column_stack([vectors, -half_squares])
        return vectors if decoder.shrunken else unit(vectors)

    def _query_vectors(self, decoder: Decoder, queries: Queries) -> AnyArray:
        """Return queries as they are compared with those vectors, float32, (q, k)."""
        asked: AnyArray
        if self._has_symbols and not queries.is_private:
            asked = self._population.queries
        else:
            asked = decoder.query_vectors(queries)
        if self._population.metric == "l2":
            asked = np.column_stack([asked, np.ones(len(asked))])
        else:
            asked = unit(asked)
        return asked.astype(np.float32)

    def _found(
        self, scores: AnyArray, own: AnyArray, ladder: Sequence[int], denoised: bool
    ) -> FoundShares:
        """Return what queries find by scores with counted codes, (q, n), and with own, (q, 16)."""
        population = self._population
        if denoised:
            # Own codes do not stand out where a denoiser has learned noise.
            spread = np.maximum(scores.std(axis=1), _TINY)
            lead = (own.mean(axis=1) - scores.mean(axis=1)) / spread
            if lead.mean() < _MIN_LEAD:
                by_chance = {answers: answers / population.n for answers in ladder}
                return FoundShares(NEIGHBOURS / population.n, by_chance)
        if self._has_symbols or self._has_signs:  # equal ones differ by rounding errors
            scores = scores.round(5)
            own = own.round(5)
        scores = scores.reshape(len(own), self._rounds, -1)
        near = np.empty((len(own), 0))
        if population.closeness.size:
            near = self._near(scores, own, denoised)
        return population.found(scores, near, ladder, self._own_codewords)

    @cached_property
    def _own_codewords(self) -> Bools | None:
        """Which counted codes name a codeword of a query's own group, (q, rounds, m)."""
        groups = self._population.codewords
        if groups is None:
            return None
        named: Integers = groups[self._counted.stored.reshape(self._rounds, -1)]
        return np.asarray(named == self._population.asked_labels[:, None, None])

    def _near(self, scores: AnyArray, own: AnyArray, denoised: bool) -> Doubles:
        """Return a score of each near rank, (q, s), by the kind of code."""
        population = self._population
        if self._has_symbols:
            if self._own_codewords is not None:
                # What names the query's own codeword would name another, as its own codes do.
                others = own[:, np.arange(self._rounds) % _OWN_CODES, None]
                scores = np.where(self._own_codewords, others, scores)
            return _Interpolation(population, scores, own).symbols()
        numbers = self._spec.is_designed or not (denoised or self._has_signs)
        if numbers and population.metric == "cosine":
            # Cosines of numbers with noise end at 1: near ranks lie between their angles.
            angles = (np.arcsin(np.clip(cosines, -1.0, 1.0)) for cosines in (scores, own))
            near = np.sin(_Interpolation(population, *angles).numbers())
        else:
            near = _Interpolation(population, scores, own).numbers()
        # Codes of few directions crowd at a cosine of 1, where no normal law has its tail: near
        # ranks score no more than the best of the query's own codes.
        near = np.asarray(np.minimum(near, own.max(axis=1, keepdims=True)))
        if not self._has_signs:
            return near
        # No cosine of k signs but 1 is above 1 − 2/k.
        near = np.minimum(near, 1.0 - 1.0 / self._spec.code_length)
        return _at_levels(near, scores.reshape(len(near), -1))


class _Interpolation:
    """Scores of near ranks, between those of a query's own codes and of farther vectors.

    Parameters
    ----------
    population : Population
    scores : float array, shape (q, rounds, m)
        Of codes of the vectors.
    own : float array, shape (q, 16)
        Of codes of the query's own vector.
    """

    def __init__(self, population: Population, scores: AnyArray, own: AnyArray) -> None:
        self._population = population
        self._scores = scores
        self._own = own
        self._mean_own = own.mean(axis=1, keepdims=True)
        self._losses = self._mean_own - scores.mean(axis=1)
        self._nearest_losses = np.take_along_axis(self._losses, population.nearest, axis=1)
        self._exponent = self._fitted_exponent()

    def _fitted_exponent(self) -> float:
        """Return γ, the slope of mean losses over mean distances on logarithmic scales."""
        losses = self._nearest_losses.mean(axis=0)
        distances = self._population.nearest_distances.mean(axis=0)
        exponent = 1.0
        if (losses > 0).all() and distances[0] > 0:
            exponent, _ = np.polyfit(np.log(distances), np.log(losses), 1)
        return float(np.clip(exponent, *_EXPONENTS))

    def numbers(self) -> Doubles:
        """Return the scores of numbers or signs, (q, s): expected ones, and normal noise."""
        population = self._population
        powers = population.nearest_distances**self._exponent
        total = np.maximum(powers.sum(axis=1, keepdims=True), _TINY)
        level = self._nearest_losses.sum(axis=1, keepdims=True) / total
        usual = level * population.farther**self._exponent
        other = np.take_along_axis(self._losses, population.sources, axis=1) - usual
        # What a direction adds shrinks no faster than the distance, whatever the mean does.
        shrunk = population.closeness ** min(self._exponent, 1.0)
        loss = usual * population.closeness**self._exponent + other * shrunk
        return np.asarray(self._mean_own - loss + self._noise(shrunk))

    def _noise(self, shrunk: Doubles) -> Doubles:
        """Return normal noise, (q, s), of a deviation between own codes' and the nearest's."""
        # Quantiles of the normal law, half a step above the uniform numbers, which may be 0.
        uniform = PublicStream(0, "plan noise").uniform(*shrunk.shape)
        normal = ndtri(uniform + 0.5**33)
        deviation = self._own.std(axis=1, ddof=1, keepdims=True)
        rounds = self._scores.shape[1]
        if rounds > 1:
            nearest = self._population.nearest[:, None]
            variance = np.take_along_axis(self._scores, nearest, axis=2).var(axis=1, ddof=1)
            of_nearest = np.sqrt(variance.mean(axis=1, keepdims=True))
            deviation = deviation + shrunk * (of_nearest - deviation)
        # Means of few codes have noise themselves: so much less is added.
        in_means = (1 - shrunk) ** 2 / _OWN_CODES + shrunk**2 / rounds
        added = np.sqrt(np.maximum(1 - in_means, 0.0))
        return np.asarray(added * deviation * normal)

    def symbols(self) -> Doubles:
        """Return the scores of symbols, (q, s): each of a code of its own or its farther vector."""
        population = self._population
        queries, ranks = population.closeness.shape
        chance, place = PublicStream(0, "plan symbols").uniform(2, queries, ranks)
        own_code = (place * _OWN_CODES).astype(np.intp)
        code = (place * self._scores.shape[1]).astype(np.intp)
        query = np.arange(queries)[:, None]
        of_own = self._own[query, own_code]
        of_farther = self._scores[query, code, population.sources]
        is_farther = chance < population.closeness**self._exponent
        return np.asarray(np.where(is_farther, of_farther, of_own))


def _at_levels(near: Doubles, scores: AnyArray) -> Doubles:
    """Return near scores, (q, s), each moved to the score of its query below or above it.

    Signs have few scores, which tie. The nearer of the two is the likelier.
    """
    moved = np.empty_like(near)
    for row, chance in enumerate(PublicStream(0, "plan signs").uniform(*near.shape)):
        levels = np.unique(scores[row])
        after = np.searchsorted(levels, near[row])
        after = np.clip(after, 1, len(levels) - 1)
        low = levels[after - 1]
        high = levels[after]
        moved[row] = np.where(near[row] - low > chance * (high - low), high, low)
    return moved

"""What codes reveal about known and unknown vectors, predicted from public parameters alone.

A code coordinate z is compared with the projected coordinate y behind it by the share R² of its
variance that y explains: linearly for a reconstruction, in any way for a comparison. The attackers
of this model know the projection, the noise law and a prior, and treat attributes as independent.
Attackers who learn from the codes of correlated vectors rebuild more; among vectors that resemble
each other fewer codes are recognised. ``dpindex evaluate`` measures both.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Singles, Vectors, issparse
from dpindex.base.normal import cosine_tails, quantiles
from dpindex.mechanism.codebook import spaced
from dpindex.mechanism.noise.law import NumberLaw, SignLaw, SymbolLaw
from dpindex.mechanism.spec import Spec

__all__ = ["Exposure", "Prior", "nearness", "number_channel", "predicted_exposure", "sign_channel"]

_NODES, _COMPARED = 32, 100
_UNIFORM = (np.arange(4096) + 0.5) / 4096
_PLAYED = 256
_ALMOST = 1.0 - 1e-12

_Channel: TypeAlias = tuple[Doubles, Doubles, Doubles]


@dataclass(frozen=True)
class Prior:
    """What is known of every attribute beforehand, in scaled units.

    Attributes
    ----------
    mean, variance : float
        Root mean square of the attributes' means, and mean of their variances.
    cosines : float32 array, shape (m, others), optional
        Cosines of some vectors to others of the collection, all less their mean. Without them
        vectors have independent directions.
    """

    mean: float
    variance: float
    cosines: Singles | None = None

    @classmethod
    def of(cls, spec: Spec) -> Prior:
        """Independent attributes, uniform over the bounds, or of the declared norm.

        Codes that depend on directions alone, and a norm with symmetric bounds, have mean 0 and
        variance ``norm²/dim``.
        """
        low, high = spec.bounds
        mean, variance = (low + high) / 2, (high - low) ** 2 / 12
        directions = spec.mechanism.private and not spec.mechanism.calibration.rounded
        if directions or (spec.norm is not None and mean == 0.0):
            mean, variance = 0.0, (spec.norm or 1.0) ** 2 / spec.dim
        return cls(mean, variance)

    @classmethod
    def of_sample(cls, vectors: Vectors, spec: Spec) -> Prior:
        """That of public vectors, an array or CSR matrix (rows, dim), in the units of the data."""
        wide: Any = vectors.astype(np.float64)  # products of bytes would not fit into bytes
        inner = wide @ wide.T
        inner = np.asarray(inner.toarray() if issparse(inner) else inner)
        inner /= spec.scale**2
        if not spec.mechanism.calibration.rounded:
            norms = np.sqrt(np.maximum(np.diag(inner), 1e-60))
            inner /= np.outer(norms, norms)
        # Less the mean vector, which need not be made: it may have millions of attributes.
        to_mean = inner.mean(axis=1)
        squared_mean = float(to_mean.mean())
        inner += squared_mean - to_mean - to_mean[:, None]
        squares = np.maximum(np.diag(inner), 1e-30)
        some = spaced(len(inner), _COMPARED)
        cosines = (inner[some] / np.sqrt(np.outer(squares[some], squares))).astype(np.float32)
        cosines[np.arange(len(some)), some] = -1.0  # itself
        return cls(math.sqrt(squared_mean / spec.dim), squares.mean() / spec.dim, cosines)


@dataclass(frozen=True)
class Exposure:
    """What the codes of one spec are expected to reveal.

    Attributes
    ----------
    linked : float
        Share of known vectors whose own code fits best among all codes, [0, 1].
    rebuilt_error : float
        Mean squared error of rebuilt vectors over that of the best guess without codes, [0, 1].
    rebuilt_cosine, guess_cosine : float
        Cosine of rebuilt vectors, and of that guess, to the originals, [0, 1].
    """

    linked: float
    rebuilt_error: float
    rebuilt_cosine: float
    guess_cosine: float

    def to_dict(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in asdict(self).items()}

    def lines(self, n: int) -> tuple[str, str]:
        """How close a rebuilt vector comes, and how often a known one finds its code among n."""
        guess = f" (a guess without codes: {self.guess_cosine:.2f})"
        return (
            f"A vector rebuilt from its code has cosine {self.rebuilt_cosine:.2f} to the original"
            f"{guess if self.guess_cosine > 0.005 else ''}; whoever learns from all codes of "
            f"correlated vectors comes closer.",
            f"Who knows a vector finds its code among {n} in {_percent(self.linked)} of cases (by "
            f"chance in 1 of {n}), fewer where vectors resemble each other.",
        )


def _percent(share: float) -> str:
    """A share in percent; a prediction is not more exact than this."""
    if share > 0.99:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def predicted_exposure(spec: Spec, n: int, prior: Prior | None = None) -> Exposure:
    """What the codes of ``n`` vectors are expected to reveal under that spec.

    Parameters
    ----------
    spec : Spec
        Public parameters of the codes.
    n : int
        Number of codes, [0, ∞).
    prior : Prior, optional
        What is known about the vectors; default what the spec says: :meth:`Prior.of`.

    >>> spec = Spec("raw-staircase", dim=100, epsilon=6.0, bounds=(0, 1))
    >>> predicted_exposure(spec, 10_000).to_dict()
    {'linked': 1.0, 'rebuilt_error': 0.1449, 'rebuilt_cosine': 0.9817, 'guess_cosine': 0.866}
    """
    prior = prior or Prior.of(spec)
    guess = _cosine(prior, 0.0)
    law = spec.law
    if isinstance(law, SymbolLaw):
        kept = law.chance_inside
        near = kept * nearness(spec)
        linked = _first_among_symbols(law.size, law.subset, kept, n)
        return Exposure(linked, 1.0 - near**2, max(near, guess), guess)
    linear, any_way = _explained(spec, prior)
    rebuilt = _rebuilt_share(spec, linear)
    # Codes of a cap tie, inside it and outside.
    levels = law.two_levels
    if levels is not None and prior.cosines is None:
        inside, share = levels
        none_inside = (1.0 - share) ** max(n - 1, 0)
        linked = inside * _tied(n, share) + (1.0 - inside) * none_inside / max(n, 1)
    else:
        linked = _first(math.sqrt(any_way), spec, n, prior)
    return Exposure(linked, 1.0 - rebuilt, _cosine(prior, rebuilt), guess)


def _cosine(prior: Prior, share: float) -> float:
    """Cosine of a vector and an estimate that explains that share of its variance."""
    whole = prior.mean**2 + prior.variance
    return math.sqrt((prior.mean**2 + share * prior.variance) / whole)


def _explained(spec: Spec, prior: Prior) -> tuple[float, float]:
    """Shares of a code coordinate's variance that the projected coordinate explains."""
    energy = spec.dim * (spec.projection.rms * spec.projection.scale) ** 2
    # Sums of attributes are normal, and random signs spread their means about 0; single attributes
    # are uniform.
    nodes, shape = quantiles(_NODES), _normal()
    if spec.mechanism.family.keeps_all or getattr(spec.projection, "bins", 0) == spec.dim:
        nodes, shape = np.ones(1), math.sqrt(12) * (_UNIFORM - 0.5)
    means = nodes * prior.mean * math.sqrt(energy)
    variances = np.full(len(means), prior.variance * energy)
    if isinstance(spec.law, NumberLaw):
        slope, _, noise = number_channel(spec, means, variances)
        signal = float((slope**2 * variances).sum())
        share = signal / (signal + float(noise.sum()))
        return share, share
    signs = _signs(spec, means, variances, shape)
    expected = signs.mean(axis=1)
    whole = float((1 - expected**2).sum())
    slope = (signs * shape).mean(axis=1)
    return float((slope**2).sum()) / whole, float(signs.var(axis=1).sum()) / whole


def _rebuilt_share(spec: Spec, explained: float) -> float:
    """Share of a vector's variance that the best linear estimate from its code explains.

    Orthogonal projections lose what they leave out; for others the fixed point of Tse & Hanly
    (1999), Eq. (8), for random ones.
    """
    ratio, projection = spec.code_length / spec.dim, spec.projection
    if spec.code_length * projection.inner_product_factor <= 1.01 - min(ratio, 1.0):
        return min(ratio, 1.0) * explained
    odds = explained / max(1.0 - explained, 1e-12)
    low, high = 0.0, 1.0  # of the share that is left
    for _ in range(60):
        left = (low + high) / 2
        if left * (1.0 + ratio * odds / (1.0 + odds * left)) > 1.0:
            high = left
        else:
            low = left
    return 1.0 - low


def _first(correlation: float, spec: Spec, n: int, prior: Prior) -> float:
    """Chance that a vector's own code correlates with it most, among n codes.

    Its own correlation has Fisher's distribution (Fisher 1915), for signs the binomial variance;
    those of codes of other directions are cosines of random ones, and those of a vector at cosine c
    are normal about c times the expected correlation, for signs about their agreement.
    """
    k, rho = spec.code_length, min(correlation, _ALMOST)
    noise = (1.0 - rho**2) / k
    freedom = 1.0 / (rho**2 / min(spec.dim, k) + noise)
    if isinstance(spec.law, SignLaw):
        own = rho + _normal() * math.sqrt(noise)
    else:
        own = np.tanh(math.atanh(rho) + _normal() / math.sqrt(k))
    own = np.clip(own, -1.0, 1.0)
    if prior.cosines is not None:
        nodes = own[len(own) // _NODES // 2 :: len(own) // _NODES]
        shared, each = prior.cosines, max(n - 1, 0) / prior.cosines.shape[1]
        if isinstance(spec.law, SignLaw):  # that agree (Goemans & Williamson 1995, Lemma 3.2)
            shared = np.arcsin(np.clip(shared, -1.0, 1.0)) * np.float32(2 / math.pi)
        spread = np.float32(math.sqrt(noise) + 1e-9)
        lost = [
            scipy.special.log_ndtr((node - rho * shared) / spread).sum(axis=1, dtype=np.float64)
            * each
            for node in nodes.astype(np.float32)
        ]
        return float(np.exp(lost).mean())
    above = cosine_tails(own, max(freedom, 1.001))
    return float(np.exp(max(n - 1, 0) * np.log1p(-np.minimum(above, _ALMOST))).mean())


def _first_among_symbols(size: int, subset: int, kept: float, n: int) -> float:
    """The same for symbols: the j-th nearest codeword, and no better one said by any other."""
    best = ((1.0 - j / size) ** max(n - 1, 0) * _tied(n, 1.0 / (size - j)) for j in range(subset))
    return kept / subset * sum(best)


def _tied(n: int, chance: float) -> float:
    """Chance to be drawn among oneself and those of n − 1 others that tie with that chance."""
    others = max(n - 1, 0)
    # E[1/(1 + B)] for B binomial.
    return -math.expm1((others + 1) * math.log1p(-chance)) / ((others + 1) * chance)


def number_channel(spec: Spec, mean: Doubles, variance: Doubles) -> _Channel:
    """A code as ``slope · x + noise`` for each coordinate, in scaled units, under the prior of x.

    Returns the slopes, the means of the code, and the variances that x does not explain.
    """
    step = spec.step
    constant, first, second = spec.number_law.moments.variance_of_x
    # The variance of the law may depend on x (square wave): its mean over the prior, in grid steps.
    noise = constant + first * mean / step + second * (mean**2 + variance) / step**2
    return np.ones_like(mean), mean, noise * step**2


def _normal() -> Doubles:
    """Quantiles of the normal distribution, shape (4096,)."""
    return quantiles(len(_UNIFORM))


def sign_channel(spec: Spec, mean: Doubles, variance: Doubles) -> _Channel:
    """The same for signs, by the best linear approximation (Bussgang 1952)."""
    sign = _signs(spec, mean, variance, _normal())
    expected = sign.mean(axis=1)
    covariance = (sign * _normal()).mean(axis=1) * np.sqrt(variance)
    slope = np.divide(covariance, variance, out=np.zeros_like(covariance), where=variance > 0)
    return slope, expected, 1 - expected**2 - slope**2 * variance


def _signs(spec: Spec, mean: Doubles, variance: Doubles, quantiles: Doubles) -> Doubles:
    """Expected signs at quantiles of each coordinate, which are those of mean 0 and variance 1."""
    law = spec.sign_law
    values = mean[:, None] + np.sqrt(variance)[:, None] * quantiles
    # The law's unit is beta before the projection's scale is applied.
    beta = spec.projection.scale * spec.adjacency.size
    rms = float(np.sqrt(np.mean(mean**2 + variance))) / beta
    kept = 1 - 2 * law.flip_probability(np.abs(values / beta), rms)
    return np.asarray(np.sign(values) * kept)


def nearness(spec: Spec) -> float:
    """Mean cosine of a codeword to the w codewords nearest to it: as near as vectors come."""
    law = spec.symbol_law
    words = law.codebook.vectors
    played = words[spaced(len(words), _PLAYED)] @ words.T
    return float(-np.sort(-played, axis=1)[:, 1 : 1 + law.subset].mean())

"""Exposure of known and unknown vectors by codes, predicted from public parameters alone.

A code coordinate z is compared with the projected coordinate y behind it by the share R² of its
variance that y explains: linearly for a reconstruction, in any way for a comparison. The attackers
of this model know the projection, the noise law and a prior, and treat attributes as independent.
Attackers who learn from the codes of correlated vectors rebuild more; among vectors that resemble
each other fewer codes are recognised. ``dpindex evaluate`` measures both.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import Singles, Vectors, issparse, spaced
from dpindex.base.normal import cosine_tails, quantiles
from dpindex.mechanism.noise import SignLaw, SymbolLaw, TwoLevels
from dpindex.mechanism.spec import Spec
from dpindex.study.reconstruction import directions_only, linear_channel, nearness

SCORES = 4096
"""Equally likely values that a normal law is averaged over."""

_NODES = 32
_UNIFORM = math.sqrt(12) * ((np.arange(SCORES) + 0.5) / SCORES - 0.5)


@dataclass(frozen=True)
class Exposure:
    """Expected success of attacks on the codes of one spec.

    Attributes
    ----------
    linked : float
        Share of known vectors whose own code fits best among all codes, [0, 1].
    rebuilt_error : float
        Mean squared error of rebuilt vectors over that of the best guess without codes, [0, ∞).
    rebuilt_cosine, guess_cosine : float
        Cosine of rebuilt vectors, and of that guess, to the originals, [0, 1].
    simulated : bool
        Attacks were tried on public vectors, which give the attacker its guess; else the figures
        follow from public parameters, and the guess is the middle of the bounds.
    """

    linked: float
    rebuilt_error: float
    rebuilt_cosine: float
    guess_cosine: float
    simulated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, numbers to four decimals."""
        numbers = {name: round(value, 4) for name, value in asdict(self).items()}
        return {**numbers, "simulated": self.simulated}

    def with_linked(self, linked: float) -> Exposure:
        """Return the same with another share of linked vectors."""
        return replace(self, linked=linked)

    def lines(self, n: int) -> tuple[str, str]:
        """Return how close a rebuilt vector comes, and how often a known one is found among n."""
        linked = _percent(self.linked)
        by_chance = f"(by chance in 1 of {n})"
        if self.simulated:
            return (
                f"Who has public vectors of the kind rebuilds a vector from its code to cosine "
                f"{self.rebuilt_cosine:.2f}; the best guess without the code has "
                f"{self.guess_cosine:.2f}.",
                f"Who knows a vector and others of its kind finds its code among {n} in {linked} "
                f"of cases {by_chance}.",
            )
        guess = ""
        if self.guess_cosine > 0.005:
            guess = f" (the middle of the bounds: {self.guess_cosine:.2f})"
        return (
            f"Who has public parameters alone rebuilds a vector from its code to about cosine "
            f"{self.rebuilt_cosine:.2f}{guess}; who has public vectors of the kind comes closer: "
            f"plan with a public sample.",
            f"Who knows a vector finds its code among {n} in {linked} of cases {by_chance}, fewer "
            f"where vectors resemble each other.",
        )


def _percent(share: float) -> str:
    """Return a share in percent; a prediction is not more exact than this."""
    if share > 0.99:
        return "over 99 %"
    if share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def predicted_exposure(spec: Spec, n: int, prior: Prior | None = None) -> Exposure:
    """Return what the codes of ``n`` vectors are expected to reveal under that spec.

    Parameters
    ----------
    spec : Spec
        Public parameters of the codes.
    n : int
        Number of codes, [0, ∞).
    prior : Prior, optional
        What is known about the vectors; default what the spec says: :meth:`Prior.of`.

    >>> from dpindex import attribute
    >>> spec = Spec("raw-staircase", dim=100, epsilon=6.0, bounds=(0, 1), adjacency=attribute(1.0))
    >>> predicted_exposure(spec, 10_000).to_dict()
    {'linked': 1.0, 'rebuilt_error': 0.1449, 'rebuilt_cosine': 0.9817, 'guess_cosine': 0.866,
     'simulated': False}
    """
    prior = prior or Prior.of(spec)
    guess = _cosine(prior, 0.0)
    if isinstance(spec.law, SymbolLaw):
        near = spec.law.chance_inside * nearness(spec)
        linked = own_symbol_first(spec.law, n)
        return Exposure(linked, 1.0 - near**2, max(near, guess), guess)
    linear, any_way = _explained(spec, prior)
    rebuilt = _rebuilt_share(spec, linear)
    if spec.law.two_levels is not None and prior.cosines is None:
        linked = own_level_first(spec.law.two_levels, n)
    else:
        linked = own_code_first(math.sqrt(any_way), spec, n, prior.cosines)
    return Exposure(linked, 1.0 - rebuilt, _cosine(prior, rebuilt), guess)


def _cosine(prior: Prior, share: float) -> float:
    """Return the cosine of a vector and an estimate that explains that share of its variance."""
    whole = prior.mean**2 + prior.variance
    return math.sqrt((prior.mean**2 + share * prior.variance) / whole)


def _explained(spec: Spec, prior: Prior) -> tuple[float, float]:
    """Return the shares of a code coordinate's variance that the projected one explains.

    The first share is that of a linear estimate, the second of any.
    """
    energy = spec.dim * (spec.projection.rms * spec.projection.scale) ** 2
    one_attribute = getattr(spec.projection, "bins", 0) == spec.dim
    is_single = spec.method_row.family.keeps_all or one_attribute
    if is_single:
        signs_of_means = np.ones(1)
        shape = _UNIFORM
    else:  # sums of attributes are normal, and random signs spread their means about 0
        signs_of_means = quantiles(_NODES)
        shape = quantiles(SCORES)
    means = signs_of_means * prior.mean * math.sqrt(energy)
    variances = np.full(len(means), prior.variance * energy)
    if not isinstance(spec.law, SignLaw):
        channel = linear_channel(spec, means, variances)
        signal = float((channel.slope**2 * variances).sum())
        share = signal / (signal + float(channel.noise.sum()))
        return share, share
    values = (means[:, None] + np.sqrt(variances)[:, None] * shape) / _beta(spec)
    rms = float(np.sqrt(np.mean(means**2 + variances))) / _beta(spec)
    signs = spec.law.expected_signs(values, rms)
    expected = signs.mean(axis=1)
    whole = float((1 - expected**2).sum())
    slope = (signs * shape).mean(axis=1)
    linear = float((slope**2).sum()) / whole
    if is_single:  # an attribute of 0 has one sign and others have any: a coin toss at most
        return linear, float((signs**2).mean())
    return linear, float(signs.var(axis=1).sum()) / whole


def _rebuilt_share(spec: Spec, explained: float) -> float:
    """Return the share of a vector's variance that the best linear estimate explains.

    Orthogonal projections lose what they leave out; for others the fixed point of Tse & Hanly
    (1999), Eq. (8), for random ones.
    """
    ratio = spec.code_length / spec.dim
    kept = min(ratio, 1.0)
    if spec.code_length * spec.projection.inner_product_factor <= 1.01 - kept:
        return kept * explained
    odds = explained / max(1.0 - explained, 1e-12)
    low = 0.0  # bounds of the share that is left
    high = 1.0
    for _ in range(60):
        left = (low + high) / 2
        if left * (1.0 + ratio * odds / (1.0 + odds * left)) > 1.0:
            high = left
        else:
            low = left
    return 1.0 - low


def _beta(spec: Spec) -> float:
    """Return the unit of a sign law: beta before the projection's scale is applied."""
    return spec.projection.scale * spec.adjacency.size


_COMPARED = 100


@dataclass(frozen=True)
class Prior:
    """Prior knowledge of every attribute, in scaled units.

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
        """Return the prior of independent attributes, uniform over the bounds, or of a norm.

        Codes that depend on directions alone, and a norm with symmetric bounds, have mean 0 and
        variance ``norm²/dim``.
        """
        low, high = spec.bounds
        middle = (low + high) / 2
        norm_is_known = spec.norm is not None and middle == 0.0
        if directions_only(spec) or norm_is_known:
            return cls(0.0, (spec.norm or 1.0) ** 2 / spec.dim)
        return cls(middle, (high - low) ** 2 / 12)

    @classmethod
    def of_sample(cls, vectors: Vectors, spec: Spec) -> Prior:
        """Return the prior of public vectors, an array or CSR matrix (rows, dim), unscaled."""
        wide: Any = vectors.astype(np.float64)  # products of bytes would not fit into bytes
        product = wide @ wide.T
        if issparse(product):
            product = product.toarray()
        inner = np.asarray(product) / spec.scale**2
        if not spec.method_row.calibration.rounded:
            norms = np.sqrt(np.maximum(np.diag(inner), 1e-60))
            inner /= np.outer(norms, norms)
        # Less the mean vector, which need not be made: it may have millions of attributes.
        to_mean = inner.mean(axis=1)
        squared_mean = float(to_mean.mean())
        inner += squared_mean - to_mean - to_mean[:, None]
        squares = np.maximum(np.diag(inner), 1e-30)
        rows = spaced(len(inner), _COMPARED)
        lengths = np.sqrt(np.outer(squares[rows], squares))
        cosines = (inner[rows] / lengths).astype(np.float32)
        cosines[np.arange(len(rows)), rows] = -1.0  # itself
        return cls(math.sqrt(squared_mean / spec.dim), squares.mean() / spec.dim, cosines)


_TINY = 1e-9
_ALMOST = 1.0 - 1e-12
_SCORE_NODES = 32


def own_code_first(correlation: float, spec: Spec, n: int, cosines: Singles | None) -> float:
    """Return the chance that a vector's own code correlates with it most, among n codes.

    The own correlation has Fisher's distribution (Fisher 1915), for signs the binomial variance.
    Those of codes of other directions are cosines of random ones. Those of a vector at cosine c
    are normal about c times the expected correlation, for signs about their agreement.

    Parameters
    ----------
    correlation : float
        Expected correlation of a vector and its code, [0, 1].
    spec : Spec
    n : int
    cosines : float32 array, shape (m, others), optional
        Cosines of some vectors to others; without them directions are independent.
    """
    k = spec.code_length
    signs = isinstance(spec.law, SignLaw)
    rho = min(correlation, _ALMOST)
    variance = (1.0 - rho**2) / k
    if signs:
        own_scores = rho + quantiles(SCORES) * math.sqrt(variance)
    else:
        own_scores = np.tanh(math.atanh(rho) + quantiles(SCORES) / math.sqrt(k))
    own_scores = np.clip(own_scores, -1.0, 1.0)
    others = max(n - 1, 0)
    if cosines is None:
        freedom = 1.0 / (rho**2 / min(spec.dim, k) + variance)
        above = cosine_tails(own_scores, max(freedom, 1.001))
        log_below = np.log1p(-np.minimum(above, _ALMOST))
        return float(np.exp(others * log_below).mean())
    if signs:  # that agree (Goemans & Williamson 1995, Lemma 3.2)
        cosines = np.arcsin(np.clip(cosines, -1.0, 1.0)) * np.float32(2 / math.pi)
    deviation = np.float32(math.sqrt(variance) + _TINY)
    per_cosine = others / cosines.shape[1]
    step = len(own_scores) // _SCORE_NODES
    log_first = []
    for score in own_scores[step // 2 :: step].astype(np.float32):
        log_below = scipy.special.log_ndtr((score - rho * cosines) / deviation)
        log_first.append(log_below.sum(axis=1, dtype=np.float64) * per_cosine)
    return float(np.exp(log_first).mean())


def own_symbol_first(law: SymbolLaw, n: int) -> float:
    """Return the chance that no other symbol is nearer to a vector than its own, among n.

    A symbol is, with a chance, one of the codewords nearest to its vector. If it is the j-th
    nearest, no other record may report a nearer one.
    """
    total = 0.0
    for j in range(law.subset):
        none_nearer = (1.0 - j / law.size) ** max(n - 1, 0)
        total += none_nearer * _tied(n, 1.0 / (law.size - j))
    return law.chance_inside / law.subset * total


def own_level_first(levels: TwoLevels, n: int) -> float:
    """Return the chance to be drawn first where codes tie, inside a likelier set and outside."""
    none_inside = (1.0 - levels.share) ** max(n - 1, 0)
    if_inside = levels.inside * _tied(n, levels.share)
    return if_inside + (1.0 - levels.inside) * none_inside / max(n, 1)


def _tied(n: int, chance: float) -> float:
    """Return the chance to be drawn among oneself and those of n − 1 others that tie.

    Each ties with that chance: this is E[1/(1 + B)] for B binomial.
    """
    ties = max(n - 1, 0) + 1
    return -math.expm1(ties * math.log1p(-chance)) / (ties * chance)

"""Privacy cost of several releases of one vector: by addition, or by privacy-loss distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any

from dpindex.base.arrays import finite_number
from dpindex.base.errors import InputError
from dpindex.mechanism.noise.gaussian import table_distance
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Adjacency, Guarantee, add_up

_MIN_DELTA = 1e-10
"""Below this the roundings of the fast Fourier transform (about 1e-15) might begin to show."""

_FOR_ROUNDING = 1e-3
"""Share of delta that pays for those roundings and for the tables of the noise."""

_WORTH = 1e-3
"""A tight bound that gains less than this is not worth the loss of exactness."""

_INTERVAL = 1e-4
_MAX_INTERVALS = 200_000


def compose(
    releases: Iterable[Spec],
    delta: float | None = None,
    at: Adjacency | None = None,
) -> Guarantee:
    """Return what releases of *one* vector under these specs promise together.

    Guarantees themselves are added up by ``guarantee + guarantee``.

    Parameters
    ----------
    releases : iterable of Spec
        One for each release; a spec twice is two releases.
    delta : float, optional
        Without it epsilons and deltas are added up, exactly. With it, in
        [1e-10, 1): the least epsilon that privacy-loss distributions give at this delta. A Gaussian
        method enters with the deviation that its noise has, a pure one as the worst of all pure
        ones, randomized response (Kairouz, Oh & Viswanath 2015); dominating
        pairs compose (Zhu, Dong & Wang 2022). Sketches, as a ledger keeps them, are added up.
    at : Attribute or L2, optional
        The change, in the units of the data, that the total speaks about; each release counts as
        many times as it takes (:meth:`dpindex.Guarantee.at`). Default the change that all promise.

    Returns
    -------
    Guarantee
        With ``delta`` an upper bound: losses are rounded up to a grid (connect the dots, Doroshenko
        et al. 2022), what is cut from the tails counts as an infinite loss, and a thousandth of
        delta pays for floating point and for the finite precision of the noise tables. ``exact`` is
        then false: the composition is about floats, each release itself still about integers.

    Raises
    ------
    InputError
        For specs that promise something about different changes, unless ``at`` states one; for
        changes that cannot be compared, and iDP beside DP. With ``delta``: for iDP, and for a
        method whose own delta is a chance over the public projection too.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp", dim=48, k=16, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    >>> str(compose([spec] * 4))
    'epsilon = 4, delta = 4e-06 (DP) under attribute(beta=1)'
    >>> round(compose([spec] * 4, delta=1e-6).epsilon, 2)
    2.12
    >>> from dataclasses import replace
    >>> half = Spec("dp-oporp-staircase", dim=48, k=16, epsilon=1.0, adjacency=attribute(0.5))
    >>> str(compose([half, replace(half, adjacency=attribute(1.0))], at=attribute(1.0)))
    'epsilon = 3 (pure DP) under attribute(beta=1)'
    """
    specs = list(releases)
    promises = [spec.guarantee for spec in specs]
    if at is not None:
        promises = [promise.at(at) for promise in promises]
    plain = add_up(*promises)
    if delta is None or plain.definition == "none" or plain.adjacency.kind == "records":
        return plain
    delta = finite_number(delta, "delta")
    if not _MIN_DELTA <= delta < 1:
        raise InputError(f"delta must lie in [{_MIN_DELTA:g}, 1), not {delta:g}.")
    promises = []
    for promise in plain.promises:
        epsilon = tight_epsilon(Counter(specs), delta, promise.adjacency)
        if promise.delta > delta or promise.epsilon > epsilon * (1 + _WORTH):
            promise = Guarantee(
                epsilon,
                delta,
                "DP",
                promise.adjacency,
                exact=False,
            )
        promises.append(promise)
    first, *also = promises
    return replace(first, also=tuple(also))


def tight_epsilon(
    releases: Counter[Spec],
    delta: float,
    change: Adjacency,
) -> float:
    """Return the least epsilon that privacy-loss distributions give at this delta, rounded up.

    Raises
    ------
    InputError
        For a release about which they say nothing, and where roundings would show.
    """
    for spec in releases:
        if spec.guarantee.weakness:
            raise InputError(
                f"{spec.method} has {spec.guarantee.weakness}, for which privacy-loss "
                f"distributions say nothing; leave delta out to add epsilons and deltas up."
            )
    losses = 0.0
    distance = 0.0
    for spec, count in releases.items():
        losses += count * spec.guarantee.at(change).epsilon
        distance += count * _distance(spec)
    interval = max(_INTERVAL, losses / _MAX_INTERVALS)
    parts = []
    for spec, count in releases.items():
        once = loss_distribution(spec, change, interval)
        parts.append(once.self_compose(count))
    together = reduce(lambda left, right: left.compose(right), parts)
    unrounded = delta * (1 - _FOR_ROUNDING)
    epsilon = float(together.get_epsilon_for_delta(unrounded))
    # The hockey-stick divergence E_(e^ε) moves by at most (1 + e^ε) times the distance in total
    # variation, as both laws may be off.
    factor = math.exp(min(epsilon, 700.0))
    slack = distance * (1 + factor)
    if not math.isfinite(epsilon) or slack > delta * _FOR_ROUNDING / 2:
        raise InputError(
            f"at delta = {delta:g} so many releases have no tight bound here; raise delta, or "
            f"leave it out to add epsilons and deltas up."
        )
    return epsilon * (1 + 1e-12)


def loss_distribution(spec: Spec, change: Adjacency, interval: float) -> Any:
    """The privacy-loss distribution of a pair that dominates every pair that ``change`` leads to.

    m changes of a neighbour move a code by at most m sensitivities.
    """
    # Here: the import alone takes two seconds.
    from dp_accounting.pld import privacy_loss_distribution as losses

    promise = spec.guarantee
    deviation_of = spec.method_row.calibration.deviation
    if promise.delta > 0 and deviation_of is not None:
        deviation = deviation_of(promise.epsilon, promise.delta)
        steps = promise.adjacency.steps(change) or 1
        return losses.from_gaussian_mechanism(
            deviation / steps,
            value_discretization_interval=interval,
        )
    promise = promise.at(change)
    pair = losses.common.DifferentialPrivacyParameters(promise.epsilon, promise.delta)
    return losses.from_privacy_parameters(pair, value_discretization_interval=interval)


def _distance(spec: Spec) -> float:
    """Between the noise that runs and the normal law, over a whole code, in total variation."""
    if spec.delta == 0 or spec.method_row.calibration.deviation is None:
        return 0.0
    one = Fraction(table_distance(spec.law))
    return float(one * spec.code_length)

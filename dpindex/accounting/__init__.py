"""What several releases promise together: by addition, as their noise composes, or shuffled.

Gaussian releases alone compose in closed form. Others need privacy-loss distributions, which the
package dp-accounting has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any

from dpindex.accounting.shuffling import shuffled as shuffled
from dpindex.base.checks import finite_number
from dpindex.base.errors import InputError, import_extra
from dpindex.mechanism.noise.gaussian import least_epsilon, table_distance
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Adjacency, Guarantee, rounded_up

_MIN_DELTA = 1e-10
"""Below this the roundings of the fast Fourier transform (about 1e-15) might begin to show."""

_FOR_ROUNDING = 1e-3
"""Share of delta that pays for those roundings, and at most for the tables of the noise."""

_MAX_EPSILON = 700.0
"""Beyond it ``e^ε`` is no float, and the tables of the noise are never so fine."""

_WORTH = 1e-3
"""A tight bound that gains less than this is not worth the loss of exactness."""

_INTERVAL = 1e-4
_MAX_INTERVALS = 200_000


def add_up(*guarantees: Guarantee) -> Guarantee:
    """Return the promise of several releases of one vector together: epsilons and deltas add up.

    Basic sequential composition, for adaptive releases too (Dwork & Roth 2014, Thm 3.16; Li & Li
    2023, Thm 2.3; for iDP Soria-Comas et al. 2017). Sums are exact and rounded up to the next
    float. :func:`compose` does the same for specs, and knows a tighter way. Of releases
    with several promises those under each adjacency that all have add up by themselves.

    Parameters
    ----------
    guarantees : Guarantee
        One for each release; a guarantee twice is two releases.

    Raises
    ------
    InputError
        For no guarantee at all, for different adjacencies (their epsilons count different changes:
        compose what each promises at one change, :meth:`dpindex.Guarantee.at`), and for iDP with
        DP (the total would be iDP; say so yourself if that is what you mean).

    >>> from dpindex.privacy import attribute
    >>> str(add_up(*3 * [Guarantee(0.5, 1e-6, "DP", attribute(1.0))]))
    'epsilon = 1.5, delta = 3e-06 (DP) under attribute(beta=1)'
    """
    if not guarantees:
        raise InputError("there is nothing to compose: name at least one release.")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.adjacency != first.adjacency:
            raise InputError(
                f"guarantees under {first.adjacency} and {other.adjacency} do not add up: their "
                f"epsilons count different changes; compose what each promises at one change."
            )
        if other.definition != first.definition:
            raise InputError(
                f"{first.definition} and {other.definition} do not add up to either; compose each "
                f"kind by itself."
            )
    if first.definition == "none":
        return first
    also = []
    for adjacency in [promise.adjacency for promise in first.also]:
        alike = [one for g in guarantees for one in g.also if one.adjacency == adjacency]
        if len(alike) == len(guarantees):
            also.append(add_up(*alike))
    return replace(
        first,
        also=tuple(also),
        epsilon=rounded_up(sum(Fraction(g.epsilon) for g in guarantees)),
        delta=min(1.0, rounded_up(sum(Fraction(g.delta) for g in guarantees))),
        exact=all(g.exact for g in guarantees),
        delta_over=next((g.delta_over for g in guarantees if g.delta_over != "noise"), "noise"),
    )


def compose(
    releases: Iterable[Spec],
    delta: float | None = None,
    at: Adjacency | None = None,
) -> Guarantee:
    """Return what releases of *one* vector under these specs promise together.

    Guarantees themselves are added up by :func:`dpindex.accounting.add_up`.

    Parameters
    ----------
    releases : iterable of Spec
        One for each release; a spec twice is two releases.
    delta : float, optional
        Without it epsilons and deltas are added up, exactly. With it, in (0, 1): the least epsilon
        at this delta. Gaussian releases together are one of less noise (Dong, Roth & Su 2022,
        Cor. 3.3). With others among them privacy-loss distributions are composed, for a delta of
        1e-10 or more: a pure method enters as the worst of all pure ones, randomized response
        (Kairouz, Oh & Viswanath 2015); dominating pairs compose (Zhu, Dong & Wang 2022). This
        needs the package dp-accounting. Sketches, as a ledger keeps them, are added up.
    at : Attribute or L2, optional
        The change, in the units of the data, that the total speaks about; each release counts as
        many times as it takes (:meth:`dpindex.Guarantee.at`). Default the change that all promise.

    Returns
    -------
    Guarantee
        With ``delta`` an upper bound. Of Gaussian releases it is proved in intervals, and exceeds
        the least epsilon by less than 1e-6 of it, up to 40 and for deltas from 1e-15. In
        privacy-loss distributions losses are rounded up to a grid (connect the dots, Doroshenko et
        al. 2022), what is cut from the tails counts as an infinite loss, and a thousandth of delta
        pays for floating point: .003 of epsilon at most, as measured up to 40. The finite precision
        of the noise tables is paid for too. ``exact`` is then false: the composition is about real
        numbers, each release itself still about integers.

    Raises
    ------
    InputError
        For specs that promise something about different changes, unless ``at`` states one; for
        changes that cannot be compared, and iDP beside DP. With ``delta``: for iDP, for a method
        whose own delta is a chance over the public projection too, and without dp-accounting.

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
    if not 0 < delta < 1:
        raise InputError(f"delta must lie in (0, 1), not {delta:g}.")
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
    """Return the least epsilon at this delta, rounded up.

    Raises
    ------
    InputError
        For a release about which no composition says anything, and where roundings would show.
    """
    for spec in releases:
        if spec.guarantee.weakness:
            raise InputError(
                f"{spec.method} has {spec.guarantee.weakness}, for which privacy-loss "
                f"distributions say nothing; leave delta out to add epsilons and deltas up."
            )
    if all(map(_is_gaussian, releases)):
        return _gaussian_epsilon(releases, delta, change)
    return _distribution_epsilon(releases, delta, change)


def _gaussian_epsilon(releases: Counter[Spec], delta: float, change: Adjacency) -> float:
    """Releases of deviations σ are one of ``1/√Σσ⁻²`` (Dong, Roth & Su 2022, Cor. 3.3)."""
    precision = 0.0
    for spec, count in releases.items():
        precision += count / deviation_at(spec, change) ** 2
    sigma = (1 - 1e-12) / math.sqrt(precision)  # less than all these roundings leave
    # Epsilon is at most this one (Bun & Steinke 2016, Prop. 1.3 and 1.6).
    limit = precision / 2 + math.sqrt(-2 * precision * math.log(delta))
    if limit > _MAX_EPSILON:
        raise _no_tight_bound(delta)
    epsilon = least_epsilon(sigma, delta)
    # What the tables cost is counted at a larger epsilon than the answer, which is checked.
    slack = _slack(releases, epsilon + 1)
    if slack > delta * _FOR_ROUNDING:
        raise _no_tight_bound(delta)
    answer = least_epsilon(sigma, delta - slack)
    if answer > epsilon + 1:
        raise _no_tight_bound(delta)
    return answer


def _distribution_epsilon(releases: Counter[Spec], delta: float, change: Adjacency) -> float:
    """By privacy-loss distributions."""
    if delta < _MIN_DELTA:
        raise InputError(
            f"delta must be at least {_MIN_DELTA:g} where a release is not Gaussian, and not "
            f"{delta:g}."
        )
    losses = 0.0
    for spec, count in releases.items():
        losses += count * spec.guarantee.at(change).epsilon
    interval = max(_INTERVAL, losses / _MAX_INTERVALS)
    parts = []
    for spec, count in releases.items():
        once = loss_distribution(spec, change, interval)
        parts.append(once.self_compose(count))
    together = reduce(lambda left, right: left.compose(right), parts)
    unrounded = delta * (1 - _FOR_ROUNDING)
    epsilon = float(together.get_epsilon_for_delta(unrounded))
    if not epsilon < _MAX_EPSILON or _slack(releases, epsilon) > delta * _FOR_ROUNDING / 2:
        raise _no_tight_bound(delta)
    return epsilon * (1 + 1e-12)


def _slack(releases: Counter[Spec], epsilon: float) -> float:
    """What the finite precision of the noise tables adds to delta at an epsilon.

    The hockey-stick divergence E_(e^ε) moves by at most (1 + e^ε) times the distance in total
    variation, as both laws may be off.
    """
    distance = 0.0
    for spec, count in releases.items():
        distance += count * _distance(spec)
    return distance * (1 + math.exp(epsilon))


def _no_tight_bound(delta: float) -> InputError:
    return InputError(
        f"at delta = {delta:g} these releases have no tight bound here; raise delta, or "
        f"leave it out to add epsilons and deltas up."
    )


def loss_distribution(spec: Spec, change: Adjacency, interval: float) -> Any:
    """The privacy-loss distribution of a pair that dominates every pair that ``change`` leads to.

    m changes of a neighbour move a code by at most m sensitivities.
    """
    losses = import_extra(
        "dp_accounting.pld.privacy_loss_distribution",
        "a tight total of releases that are not all Gaussian needs dp-accounting",
        "accounting",
    )
    if _is_gaussian(spec):
        return losses.from_gaussian_mechanism(
            deviation_at(spec, change),
            value_discretization_interval=interval,
        )
    promise = spec.guarantee.at(change)
    pair = losses.common.DifferentialPrivacyParameters(promise.epsilon, promise.delta)
    return losses.from_privacy_parameters(pair, value_discretization_interval=interval)


def _is_gaussian(spec: Spec) -> bool:
    return spec.guarantee.delta > 0 and spec.method_row.calibration.deviation is not None


def deviation_at(spec: Spec, change: Adjacency) -> float:
    """Deviation of a Gaussian release, in the L2 distance that ``change`` leads to."""
    promise = spec.guarantee
    deviation_of = spec.method_row.calibration.deviation
    assert deviation_of is not None
    steps = promise.adjacency.steps(change) or 1
    return deviation_of(promise.epsilon, promise.delta) / steps


def _distance(spec: Spec) -> float:
    """Between the noise that runs and the normal law, over a whole code, in total variation."""
    if not _is_gaussian(spec):
        return 0.0
    one = Fraction(table_distance(spec.law))
    return float(one * spec.code_length)

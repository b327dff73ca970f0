"""Signs, in what has been released, that a sketch cannot answer what it is asked.

All of it reads released counts and public parameters. It is post-processing: it costs no privacy,
and what it says may be published with the sketch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri

from dpindex.base.arrays import Doubles
from dpindex.race.hashes import Hash, PStable
from dpindex.race.moments import Moments, SignPairs
from dpindex.race.sketch import RaceSketch

__all__ = [
    "class_weights",
    "classes_blur",
    "line_blurs",
    "loose_delta",
    "noise_drowns",
    "outliers_blur",
]

_SURE = 2.0
"""Standard errors by which a good sign must be above chance."""

_CERTAIN = 3.0
"""Standard errors by which a bad sign must be above chance to be called certain."""

_FAR = 5.0
"""An outlier should be found when it lies this many times as far away as records usually do."""

_CHANCE = 0.01
"""Probability with which noise alone may look like a slope."""

_BLAME = 1e-6
"""Probability with which a bound that holds may be blamed, if errors were normal; their tails are
heavier, which takes it to less than 0.01."""

_FOLDS = 5
"""Parts of the rows, each of which judges a fit to the others."""

_MORE = "a larger epsilon, more records, fewer rows or columns (width), a delta"


def noise_drowns(sketch: RaceSketch) -> list[str]:
    """Return a sentence unless an average record surely has more others near it than the noise.

    >>> from dpindex.race import PStable, SketchSpec
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> for bandwidth in (2.0, 0.001):
    ...     spec = SketchSpec(2, 100, 20, PStable(bandwidth), epsilon=2.0)
    ...     print(len(noise_drowns(RaceSketch(spec).fit(x).release())))
    0
    1
    """
    if sketch.size < _CERTAIN * sketch.size_stderr:
        return [
            f"Noise hides how many records there are, about {_short(max(sketch.size, 0.0))} ± "
            f"{_short(sketch.size_stderr)}, and every density is divided by that; take {_MORE}."
        ]
    near, error = typical_count(sketch)
    noise = sketch.count_noise
    enough = max(_SURE * noise, 1.0)
    if near - _SURE * error >= enough:
        return []
    verb = "may drown"
    if near + _SURE * error < enough:
        verb = "drowns"
    return [
        f"Noise {verb} the answers: an average record has about "
        f"{_short(max(near, 0.0))} ± {_short(error)} others near it, and a count has noise of "
        f"± {_short(noise)}; take {_MORE}, or {_wider(sketch.spec.hash)} if the records lie "
        f"farther apart than that."
    ]


def loose_delta(sketch: RaceSketch) -> list[str]:
    """Return a sentence if delta is more than one over the number of records, as released.

    >>> from dpindex.race import PStable, SketchSpec
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> for delta in (1e-6, 0.5):
    ...     spec = SketchSpec(2, 100, 20, PStable(2.0), epsilon=2.0, delta=delta)
    ...     print(len(loose_delta(RaceSketch(spec).fit(x).release())))
    0
    1
    """
    delta = sketch.guarantee.delta
    share = 1.0 / max(sketch.size, 1.0)
    if delta <= share:
        return []
    return [
        f"delta = {delta:g} is more than one over the number of records, about {share:.2g}: "
        f"publishing a record as it is would meet such a delta; take 1e-6, or less."
    ]


def outliers_blur(sketch: RaceSketch, fraction: float) -> list[str]:
    """Return sentences if a threshold of ``fraction`` of the mean density tells no outliers."""
    drowned = noise_drowns(sketch)
    if drowned:
        return drowned
    near, error = typical_count(sketch)
    typical = near + 1.0  # a record's density holds itself, and so does the threshold
    threshold = fraction * typical
    sentences = []
    if threshold < _SURE * math.hypot(sketch.count_noise, fraction * error):
        chance = ndtr(threshold / sketch.count_noise)
        sentences.append(
            f"The noise is as large as the threshold: a place without any record is called an "
            f"outlier in {chance:.0%} of the cases, because the threshold is {_short(threshold)} "
            f"records and a count has noise of ± {_short(sketch.count_noise)}; take {_MORE}, or a "
            f"larger fraction."
        )
    # A density has the size of the collection in it twice.
    certainty = 2.0 * sketch.size_stderr / sketch.size + error / typical
    share = min(1.0, (1.0 + certainty) * typical / sketch.size)
    far, where = _far_kernel(sketch.spec.hash, share)
    if far > fraction * share:
        sentences.append(
            f"The kernel is too wide for this threshold: even a point {where} is not an outlier, "
            f"because the density there is still {far / share:.0%} of an average record's and the "
            f"threshold is {fraction:.0%}; take {_narrower(sketch.spec.hash)}, or a larger "
            f"fraction."
        )
    return sentences


def classes_blur(sketches: Sequence[RaceSketch], labels: Sequence[Any], rule: str) -> list[str]:
    """Return sentences if average records of a class do not find their own class the likeliest."""
    kernel = sketches[0].spec.hash
    noise = sketches[0].count_noise
    weights = class_weights(sketches, rule)
    small = []
    drowned = []
    lost: dict[Any, list[Any]] = {}
    for number, sketch in enumerate(sketches):
        if sketch.size < _SURE * sketch.size_stderr:
            small.append(labels[number])
            continue
        scores = np.array([other.pairs(sketch) for other in sketches]) / weights[:, None]
        # An unseen record does not find itself.
        class_score = scores[number] - sketch.size / weights[number]
        scores[number] = -np.inf
        rival = int(scores.mean(axis=1).argmax())
        if rival == number:  # it is the only class
            continue
        margin, error = _mean((class_score - scores[rival]) / sketch.size)
        if margin < -_CERTAIN * error:
            lost.setdefault(labels[rival], []).append(labels[number])
        elif margin - error < noise * math.hypot(1 / weights[number], 1 / weights[rival]):
            drowned.append(labels[number])
    remedy = _narrower(kernel)
    if rule == "map":
        remedy += ", or rule='ml', which does not weigh classes by their size"
    sentences = [
        f"Records of class {_list(classes)} will mostly be called {winner}: an average one has "
        f"more of class {winner} near it than of its own; take {remedy}."
        for winner, classes in lost.items()
    ]
    if small:
        sentences.append(
            f"Class {_list(small)} has too few records: not more than the noise of the size of a "
            f"class, ± {_short(sketches[0].size_stderr)}; take {_MORE}."
        )
    if drowned:
        sentences.append(
            f"Noise may decide about records of class {_list(drowned)}: the release does not show "
            f"that an average one has more of its own class near it than of another, because a "
            f"count has noise of ± {_short(noise)} records; take {_MORE}, or {_scaled(kernel)}."
        )
    return sentences


def class_weights(sketches: Sequence[RaceSketch], rule: str) -> Doubles:
    """Return the divisor of the counts of each class: its size under "ml", or 1, shape (m,).

    A class smaller than the noise of its size would win everywhere by dividing by little.
    """
    if rule != "ml":
        return np.ones(len(sketches))
    return np.array([max(sketch.size, sketch.size_stderr, 1.0) for sketch in sketches])


def line_blurs(signs: SignPairs, solve: Callable[[SignPairs], Doubles]) -> list[str]:
    """Return a sentence if the data of a regression leave their bounds, or the mean does as well.

    Parameters
    ----------
    signs : SignPairs
        Of ``z = [x, 1, y]``, scaled to [−1, 1]. Inside the bounds no attribute is larger than the
        1, so no entry on the diagonal of M is larger than that of the 1.
    solve : callable
        Returns θ of some rows.
    """
    moments = signs.moments
    excess, errors = moments.diagonal_excess
    dim = len(excess) - 2
    outside = excess > ndtri(1.0 - _BLAME / (dim + 1)) * errors
    faults = [f"attribute {number} leaves bounds_x" for number in np.flatnonzero(outside[:dim])]
    if outside[-1]:
        faults.append("the target leaves bounds_y")
    if faults:
        return [
            f"Predictions will be far off, because the data are not inside the bounds: "
            f"{', '.join(faults)}; state the public range of each attribute (bounds_x) and of the "
            f"target (bounds_y)."
        ]
    if not _slopes_show(moments):
        doubt = "The model may predict little more than the mean, or worse than it"
        cause = "no slope stands out of the noise"
    elif not _beats_mean(signs, moments.form, solve):
        doubt = "The model may predict worse than the mean"
        cause = "rows of the sketch that it was not fitted to do not show that it does better"
    else:
        return []
    return [
        f"{doubt}, because {cause}; take a larger epsilon, more records, fewer attributes, a "
        f"delta with more rows (10 000), or tighter public bounds."
    ]


def _slopes_show(moments: Moments) -> bool:
    """Return whether the slopes are larger than chance makes them."""
    form = moments.form
    unit = form[-2, -2]
    if unit <= _CERTAIN * moments.error:
        return False
    slopes = form[:-2, -1] - form[:-2, -2] * form[-2, -1] / unit
    statistic = 2.0 * float(slopes @ slopes) / moments.error**2
    return bool(chdtrc(len(slopes), statistic) < _CHANCE)


def _beats_mean(signs: SignPairs, form: Doubles, solve: Callable[[SignPairs], Doubles]) -> bool:
    """Return whether a fit surely has less loss than the mean on rows it was not fitted to."""
    mean = np.zeros(len(form))
    mean[-2] = np.clip(form[-2, -1] / form[-2, -2], -1.0, 1.0)
    mean[-1] = -1.0
    gains = []
    folds = np.arange(len(signs)) % _FOLDS
    for fold in range(min(_FOLDS, len(signs) - 1)):
        fitted = signs.of_rows(folds != fold)
        unseen = signs.of_rows(folds == fold)
        query = np.append(solve(fitted), -1.0)
        known = fitted.moments.form
        gains.append(unseen.losses(mean, known) - unseen.losses(query, known))
    if not gains:
        return False
    gain, error = _mean(np.concatenate(gains))
    return gain > _SURE * error


def typical_count(sketch: RaceSketch) -> tuple[float, float]:
    """Return how many others an average record has near it, and the standard error."""
    return _mean(sketch.pairs(sketch) / max(1.0, sketch.size) - 1.0)


def _mean(rows: Doubles) -> tuple[float, float]:
    """Return the mean over rows and its standard error, infinite for one row."""
    mean = float(rows.mean())
    if len(rows) < 2:
        return mean, math.inf
    return mean, float(rows.std(ddof=1)) / math.sqrt(len(rows))


def _far_kernel(hash: Hash, share: float) -> tuple[float, str]:
    """Return the kernel where everyone would expect an outlier, and that place in words."""
    if not isinstance(hash, PStable):
        right = hash.kernel(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
        return float(right[0, 0]), "at a right angle to every record"
    distances = np.geomspace(1e-4, 1e4, 4001) * hash.bandwidth
    nearer = int((_at(hash, distances) >= share).sum())  # the kernel falls with the distance
    usual = float(distances[min(nearer, len(distances) - 1)])
    far = _FAR * usual
    place = f"{_short(far)} away from the records, whose usual distance is {_short(usual)},"
    return float(_at(hash, np.array([far]))[0]), place


def _at(hash: Hash, distances: Doubles) -> Doubles:
    return hash.kernel(np.zeros((1, 1)), distances[:, None])[:, 0]


def _short(number: float) -> str:
    """Return a number with three digits, or all that stand before the point."""
    if abs(number) < 1000:
        return f"{number:.3g}"
    return f"{number:.0f}"


def _narrower(hash: Hash) -> str:
    if isinstance(hash, PStable):
        return "more hashes or a smaller bandwidth"
    return "more bits"


def _wider(hash: Hash) -> str:
    if isinstance(hash, PStable):
        return "a larger bandwidth"
    return "fewer bits"


def _scaled(hash: Hash) -> str:
    if isinstance(hash, PStable):
        return "a bandwidth of about the distance between records of one class"
    return "fewer bits"


def _list(labels: Sequence[Any]) -> str:
    return ", ".join(str(label) for label in labels)

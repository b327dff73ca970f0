"""What is said of a plan beside its figures: one sentence for each caveat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dpindex.mechanism.promises import information_lines, quality_warnings
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute
from dpindex.study.goal import Goal
from dpindex.study.row import Row
from dpindex.study.sample import Sample

# Recall below which a plan says that no method finds many.
_POOR = 0.2
# Columns that a table has at most, and columns that are named.
_TABLE_COLUMNS = 50
_NAMED = 5
# Vectors of the collection for each vector that is tried, up to which ranges were compared with
# what was found.
_TESTED = 60

_NOTHING_FOUND = (
    "At this epsilon no method finds many neighbours; state a recall instead to see which epsilon "
    "it needs."
)
_UNLIKE = (
    "Codebooks find less if your vectors are unlike the sample: half of what was predicted, on "
    "sentence embeddings of other topics."
)
_BY_COSINE = (
    "Neighbours are ranked by cosine, which ignores lengths. If lengths count, as in tables, plan "
    "and build with the metric l2."
)
_ONE_ATTRIBUTE = (
    "This epsilon hides one attribute, not a record: all {dim} attributes together cost up to "
    "{whole}."
)
_NO_SECRET = (
    " One coordinate of an embedding is nobody's secret: for embeddings plan with --record "
    "(adjacency=dpindex.record()), which hides whole records."
)
_MADE_OF_SAMPLE = (
    "One attribute is hidden, not the vector: attributes are correlated, so a code reveals more "
    "about the vector as a whole. The codebook or design is published and holds parts of the "
    "sample, which must be public."
)
_NARROWED = (
    "Values are clipped to {low:g} … {high:g}, the middle three quarters of the sample's, so less "
    "noise is needed. Stated cosines are those of clipped vectors; neighbours are those of the "
    "originals."
)
_OF_CLIPPED = "Neighbours are counted on vectors that are clipped to the bounds."
_FROM_SAMPLE = "Predictions assume that the collection resembles the sample."
_UNTESTED = (
    "Each vector of the sample stands for {ratio:.0f} of the collection, and plans were tested up "
    "to {most}, so a search may find more or less than the range says. "
)
_MORE_VECTORS = "{enough} public vectors would do."
_NO_SAMPLE = "A plan tries specs on {most} vectors at most."
_UNDECIDED = (
    "{share:.0%} of the sample's rows have near-copies in it, as versions of a document do. The "
    "plan assumes that a query has {assumed} in the collection, and its range covers {otherwise} "
    "too. To narrow it, name the groups, or give each row one of its own if rows are independent."
)
_GROUPED = (
    "Rows of the sample come in groups of near-copies, such as captions of one picture, and the "
    "plan assumes that queries have none in the collection: those that do find more."
)


def remarks_on(
    best: Row,
    goal: Goal,
    sample: Sample,
    *,
    tried: int,
    public_rows: int,
    narrowed: bool,
    deciding: Sequence[tuple[str, float]],
) -> Iterator[str]:
    """Yield the caveats of a plan.

    Parameters
    ----------
    best : Row
        Of the recommended spec.
    goal : Goal
    sample : Sample
    tried, public_rows : int
        Vectors that the spec was tried on, and vectors of which codewords were chosen.
    narrowed : bool
        The bounds of the spec hold the middle three quarters of the sample's values.
    deciding : sequence of (str, float)
        Columns with ranges that decide which rows of the sample are near, each with its share.
    """
    spec = best.spec
    if goal.value(best) < _POOR:
        yield _NOTHING_FOUND
    if isinstance(spec.adjacency, Attribute):
        yield from _of_attributes(best, sample)
    if goal.metric == "cosine" and spec.dim <= _TABLE_COLUMNS and not sample.at_norm_1:
        yield _BY_COSINE
    if narrowed:
        low, high = (bound * spec.scale for bound in spec.bounds)
        yield _NARROWED.format(low=low, high=high)
    elif spec.compared_limits is not None:
        yield _OF_CLIPPED
    yield from _of_codes(spec, goal.n)
    if sample.has_found_groups:
        yield _GROUPED
    if sample.otherwise is not None:
        counts = ["none", f"about {sample.copies_each:.0f}"]
        assumed, otherwise = counts if sample.is_grouped else reversed(counts)
        yield _UNDECIDED.format(share=sample.copied, assumed=assumed, otherwise=otherwise)
    if deciding:
        columns = ", ".join(f"{name} ({share:.0%})" for name, share in deciding[:_NAMED])
        if len(deciding) > _NAMED:
            columns += f" and {len(deciding) - _NAMED} more"
        yield f"These columns decide which rows of the sample are near: {columns}."
    yield _FROM_SAMPLE
    if goal.n > _TESTED * tried:
        yield _beyond_test(goal.n, tried, public_rows, sample.played)


def _of_attributes(best: Row, sample: Sample) -> Iterator[str]:
    """Yield what one hidden attribute does not hide."""
    spec = best.spec
    if spec.public is not None:
        yield _MADE_OF_SAMPLE
    if best.guarantee.also:
        return
    line = _ONE_ATTRIBUTE.format(dim=spec.dim, whole=best.guarantee.whole(spec.dim))
    yield line + _NO_SECRET if sample.at_norm_1 else line


def _of_codes(spec: Spec, n: int) -> Iterator[str]:
    for sentence in quality_warnings(spec, n):
        yield f"{sentence}."
    yield from information_lines(spec, n)
    if spec.symbols:
        yield _UNLIKE


def _beyond_test(n: int, tried: int, public_rows: int, most: int) -> str:
    """Say that the sample is small for the collection, and which would do."""
    share = min(tried / public_rows, 1.0)
    enough = math.ceil(n / _TESTED / share)
    remedy = _MORE_VECTORS.format(enough=enough)
    if enough > most:
        remedy = _NO_SAMPLE.format(most=most)
    return _UNTESTED.format(ratio=n / tried, most=_TESTED) + remedy

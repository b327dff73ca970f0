"""A second computation of released codes: exact integers, plus the draws of recorded words."""

from itertools import accumulate, takewhile

import numpy as np

from dpindex.mechanism.codes import NumberFormat, SignFormat
from self_test.second_reading import (
    CapReader,
    CodebookReader,
    IndividualGaussianReader,
    SoftmaxReader,
)
from self_test.words import Replay, UnexplainedError


def packed(spec, outcomes):
    """Outcomes as they are stored: signs eight to a byte, the first lowest; numbers as they are."""
    if isinstance(spec.format, SignFormat):
        return np.packbits(outcomes, axis=1, bitorder="little")
    if isinstance(spec.format, NumberFormat):
        return outcomes
    return spec.format.pack(outcomes)


def unexplained(reader, x, stored, recorders):
    """Return a fault of codes of exact integers ``x``; "" if they follow from the words.

    Every stream must explain a run of rows, and every row must have a stream of its own.
    """
    start = 0
    unused = list(recorders)
    while start < len(x):
        explained = []
        for place, recorder in enumerate(unused):
            outcomes = _first_rows(reader, x[start:], recorder, stored[start:])
            if outcomes is not None:
                explained.append((len(outcomes), place))
        if not explained:
            return f"no words explain the codes from row {start} of {len(x)} on"
        # A stream of few rows may explain others by chance: its own turn comes.
        rows, place = max(explained)
        start += rows
        del unused[place]
    if unused:
        return f"{len(unused)} of {len(recorders)} streams explain no codes"
    return ""


def decoded(reader, x, recorders):
    """The outcomes that the words of one stream after the other make of ``x``.

    Raises
    ------
    UnexplainedError
        If the words are not those that the law asks for.
    """
    parts = []
    done = 0
    for recorder in recorders:
        outcomes = _first_rows(reader, x[done:], recorder, None)
        if outcomes is None:
            raise UnexplainedError
        parts.append(outcomes)
        done += len(outcomes)
    if done != len(x):
        raise UnexplainedError
    return np.concatenate(parts)


def _first_rows(reader, x, recorder, stored):
    """Return outcomes of the first rows under a stream's words, if these are what is stored."""
    if not recorder.reads:
        return None
    for count in rows_drawn(reader, x, recorder.reads):
        words = Replay(recorder.reads)
        try:
            outcomes = reader.outcomes(x[:count], words)
        except UnexplainedError:
            continue
        if not words.spent:
            continue
        if stored is None:
            return outcomes
        if np.array_equal(packed(reader.spec, outcomes), stored[:count]):
            return outcomes
    return None


def rows_drawn(reader, x, reads):
    """How many rows of ``x`` may have had their noise from these reads, the likeliest first."""
    if isinstance(reader, CodebookReader | SoftmaxReader):
        counts = [len(reads[0])]
    elif isinstance(reader, CapReader):
        total = sum(len(read) for read in reads if read.dtype == np.uint16)
        counts = [total // x.shape[1]] if total <= x.size else []
    elif isinstance(reader, IndividualGaussianReader):
        # Those after which as many coordinates lay inside A as were dithered.
        near = np.abs(x) <= 1 << reader.spec.grid.bits
        inside = np.cumsum(np.count_nonzero(near, axis=1))
        fits = np.flatnonzero(inside == len(reads[0])) + 1
        counts = [int(count) for count in fits[-4:]]
    else:
        same = takewhile(lambda read: read.dtype == reads[0].dtype, reads)
        counts = [total // x.shape[1] for total in accumulate(map(len, same))]
    return [count for count in reversed(counts) if 0 < count <= len(x)]

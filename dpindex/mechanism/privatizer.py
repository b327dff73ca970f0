"""The encoder: vectors to private codes under one spec."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpindex.base.arrays import Integers, Vectors
from dpindex.base.checks import finite_number
from dpindex.base.errors import InputError
from dpindex.base.threads import cores, keep_freed_memory, map_from_both_ends
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.secret_random import secret_stream
from dpindex.mechanism.spec import Projector, Spec, block_rows, rows_of

_MAX_DELTA = 1e-4
"""A device accepts no more: with that chance nothing at all is promised."""


class Privatizer(Projector):
    """Turns vectors into private codes under one spec. Each call spends the budget of each vector.

    Privatizing the same vector twice is two releases: the epsilons add up.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    allow_unprotected : bool
        Allow a ``none-*`` baseline, whose codes are exact projections.
    max_epsilon : float, optional
        The largest epsilon that whoever owns the vectors accepts, whatever a foreign spec says, and
        a delta of at most 1e-4. It is that of one release under the spec's own adjacency and scale,
        which are to be read as well: ``spec.guarantee.protects()``.
    stream : callable, optional
        Returns the stream that a block of vectors gets its noise from: for self-tests, which record
        its secret words. By default a fresh secret one.

    Raises
    ------
    InputError
        For a spec that protects nothing, or, with ``max_epsilon``, one whose epsilon is above it or
        not that of DP, or whose delta is above 1e-4.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> codes = Privatizer(spec, max_epsilon=3.0).privatize(np.zeros((3, 6)))
    >>> codes.to_float().shape
    (3, 2)
    """

    def __init__(
        self,
        spec: Spec,
        *,
        allow_unprotected: bool = False,
        max_epsilon: float | None = None,
        stream: Callable[[], BitSource] | None = None,
    ) -> None:
        spec.refuse_unprotected(allow_unprotected, "privatize with it")
        if max_epsilon is not None:
            refuse_above(finite_number(max_epsilon, "max_epsilon"), spec)
        super().__init__(spec)
        self._given_stream = stream

    def __repr__(self) -> str:
        return f"<Privatizer: {self.spec.method}, {self.spec.guarantee}>"

    def stream(self) -> BitSource:
        """The stream that a block of vectors gets its noise from, as it is now."""
        return (self._given_stream or secret_stream)()

    def privatize(
        self,
        x: Vectors,
        *,
        first_row: int = 0,
        threads: int | None = None,
    ) -> Codes:
        """Private codes of vectors.

        Parameters
        ----------
        x : array or scipy sparse matrix, shape (n, dim)
            Any real dtype. A single vector of shape (dim,) is one row.
        first_row : int
            Number of the first row, used in messages only.
        threads : int, optional
            Worker threads; default all cores.

        Returns
        -------
        Codes of length n; of signs, BitCodes.

        Raises
        ------
        InputError
            For a wrong shape or dtype, no rows, NaN, infinities, and values outside the bounds.
        """
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}.")
        rows = self.rows(x)
        law = self.spec.law
        format_ = self.spec.format
        step = block_rows(self.spec, not isinstance(rows, np.ndarray))
        starts = range(0, rows.shape[0], step)

        def task(start: int) -> Integers:
            # Of its own: threads draw blocks in any order, and no word serves two of them.
            stream = self.stream()
            block = rows_of(rows, start, start + step)
            exact = self._project_block(block, first_row + start)
            return format_.pack(law.perturb(exact, stream))

        try:
            if len(starts) == 1:
                blocks = [task(0)]
            else:
                keep_freed_memory()
                blocks = map_from_both_ends(task, starts, min(threads or cores(), len(starts)))
        except InputError:
            self.check(rows, first_row=first_row)  # of several faults, the first is reported
            raise
        return format_.codes(np.concatenate(blocks))


def refuse_above(limit: float, spec: Spec) -> None:
    promise = spec.guarantee
    if promise.definition != "DP" or promise.epsilon > limit:
        raise InputError(
            f"the spec promises {promise}, where at most epsilon = {limit:g} of DP is accepted; "
            f"ask for another spec, or accept more.",
            field="max_epsilon",
        )
    if promise.delta > _MAX_DELTA:
        raise InputError(
            f"the spec promises {promise}, where a delta of at most {_MAX_DELTA:g} is accepted: "
            f"with that chance nothing is promised; ask for another spec."
        )

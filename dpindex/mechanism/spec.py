"""The spec: public parameters, checked as a whole, with the projection and law they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Floats, Vectors, issparse, row_blocks, row_norms
from dpindex.base.checks import Fault, check_values, not_finite, real_matrix
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import CodeFormat
from dpindex.mechanism.grid import Grid
from dpindex.mechanism.method import Method
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.noise.base import Law, NumberLaw, SignLaw
from dpindex.mechanism.noise.moments import Likelihood, LinearChannel, NoiseMoments
from dpindex.mechanism.papers.signs import norm_slack
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Encoder, Projection, RecordEncoder
from dpindex.mechanism.public_parts import PublicPart
from dpindex.privacy import Guarantee, record


@dataclass(frozen=True, repr=False)
class Spec(Parameters):
    """Everything public about how vectors become codes: frozen, checked once, and kept as JSON.

    Two parties with equal specs produce comparable codes; only the noise is secret.

    Parameters
    ----------
    method : str
        A name from :func:`dpindex.methods`.
    dim : int
        Number of attributes of a vector, [1, 2^31).
    k : int, optional
        Length of a code. Raw methods always use ``dim``; otherwise the method has a default. That
        of OPORP of numbers keeps up to 128 attributes apart, and more where there is little noise.
    epsilon : float
        Budget of one release of one vector, [0.001, 64]; absent for the ``none-*`` baselines.
    delta : float
        In (0, 1) for the Gaussian methods, 0 for the pure ones.
    adjacency : Attribute, L2 or Record
        What neighbouring vectors may differ in, after division by ``scale``: the change that one
        ``epsilon`` pays for. There is no harmless default: under ``attribute(…)`` epsilon counts
        changes of *one attribute*, not of a whole record. ``guarantee`` states it in the units of
        the data.
    scale : float
        Public divisor of every attribute, e.g. 255 for bytes. Queries get the same. A change of
        beta after it is one of beta × scale in the data.
    ranges : Ranges, optional
        The public range of each column of a table, which becomes 0 … 1 before anything else (take
        ``bounds=(0, 1)``, and no scale). Vectors, queries, originals to rerank by and codewords are
        given in the units of the data, and distances are those of scaled columns.
    bounds : (float, float)
        Public range of a scaled attribute, [−1, 1] by default.
    clip : bool
        Clip to the bounds instead of refusing.
    norm : float, optional
        Public norm of *every* vector after scaling (1 for unit embeddings); sharpens similarities.
    seed : int
        Public seed of the projection, [0, 2^63).
    variant : Repeated, Blocks or Dense, optional
        What some methods of papers can be told beside this: see :mod:`dpindex.mechanism.variants`.
    codebook : Codebook, optional
        Public codewords of ``record-codebook`` and ``codebook-softmax``; of the latter in the units
        of the data.
    subset : int, optional
        Number of nearest codewords among which a report is drawn, unless it is a uniform one,
        [1, K). By default (epsilon − 1)·K/e^epsilon, rounded up, and 2K/e^epsilon below epsilon =
        3: such reports carry the most information, which suits candidates that are reranked.
        Compare others with :func:`dpindex.plan`.
    design : Design, optional
        Public projection of the ``*-designed-*`` methods, from :func:`dpindex.design`.
    record_epsilon : float, optional
        Of ``codebook-softmax``: the budget of a second promise of the same code, about any two
        vectors, which a uniform share of symbols keeps.
    window : float, optional
        Of ``codebook-softmax`` for an attribute: clip each attribute to this many deviations of the
        codewords to either side of their median, (0, ∞). Noise is then that of a change of a whole
        window, or of beta where that is less.

    Raises
    ------
    InputError
        One sentence for any parameter or combination that has no guarantee.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=784, k=128, epsilon=2.0, scale=255,
    ...     adjacency=attribute(1.0))
    >>> str(spec.guarantee)
    'epsilon = 2 (pure DP) under attribute(beta=255)'
    >>> Spec.from_json(spec.to_json()) == spec
    True
    """

    def __post_init__(self) -> None:
        row = find_method(self.method)
        super().__post_init__()
        self._set(row.resolved(self))

    def __reduce__(self) -> Any:
        # What it resolves to is made again where it is needed: tables may take megabytes.
        return _restored, (self.to_json(), self.public)

    @cached_property
    def method_row(self) -> Method:
        """The method's row in the table."""
        return find_method(self.method)

    @property
    def is_rounded(self) -> bool:
        """False if the guarantee holds for any vectors, which are projected as they are."""
        return self.method_row.calibration.rounded

    @cached_property
    def code_length(self) -> int:
        """Coordinates of a code: ``k``, resolved."""
        return cast(int, self.k)

    @property
    def guarantee(self) -> Guarantee:
        """The promise of one code about the vector behind it, in the units of the data."""
        calibration = self.method_row.calibration
        also: tuple[Guarantee, ...] = ()
        if self.record_epsilon is not None:
            of_record = Guarantee(self.record_epsilon, 0.0, "DP", record())
            also = (of_record,)
        ranges = None
        if self.ranges is not None:
            ranges = self.ranges.digest
        return Guarantee(
            epsilon=self.budget,
            delta=self.delta,
            definition=calibration.definition,
            adjacency=self.adjacency.in_data_units(self.scale, ranges),
            exact=calibration.exact and self.method_row.private,
            delta_over=calibration.delta_over if self.delta > 0 else "noise",
            also=also,
        )

    def refuse_unprotected(self, allowed: bool, purpose: str) -> None:
        """InputError for a method that protects nothing, unless ``allowed`` for a ``purpose``."""
        if not allowed and not self.method_row.private:
            raise InputError(
                f"{self.method} protects nothing; allow that to {purpose}.",
                field="allow_unprotected",
            )

    @cached_property
    def projection(self) -> Encoder:
        """The public map from vectors to coordinates: a function of this spec alone.

        TypeError for a method whose law is not calibrated to such maps, as a false row of the table
        would be.
        """
        made = self.method_row.family.make(self)
        kind: type[Encoder] = Projection if self.is_rounded else RecordEncoder
        return kind.of(made)

    @cached_property
    def law(self) -> Law:
        """The calibrated law of the secret noise."""
        return self.method_row.calibration.law(self, self.projection)

    def linear_channel(self, mean: Doubles, variance: Doubles) -> LinearChannel:
        """Return numbers or signs as linear in their coordinates, as well as can be.

        Parameters
        ----------
        mean, variance : float64 arrays, shape (k,)
            Of the coordinates, in units of the scaled attributes.
        """
        if isinstance(self.law, SignLaw):
            beta = self.projection.scale * self.unit
            return self.law.linear_channel(mean, variance, beta)
        return NumberLaw.of(self.law).linear_channel(mean, variance, self.step)

    @cached_property
    def noise_moments(self) -> NoiseMoments:
        """Moments of the noise of a decoded number, in units of the scaled attributes."""
        return NumberLaw.of(self.law).moments.in_units(self.step)

    @cached_property
    def likelihood(self) -> Likelihood:
        """Likelihood of a decoded number given its coordinate, in units of scaled attributes."""
        return NumberLaw.of(self.law).likelihood.in_units(self.step)

    @cached_property
    def grid(self) -> Grid:
        """How attributes are rounded; TypeError for a method that takes any numbers."""
        most_summed = Projection.of(self.projection).max_column_l1
        if self.design is not None:
            # A projected vector and a projected centre are at most twice as large as one of them.
            most_summed *= 2
        return self.grid_of(self.law.grid_bits, most_summed, self.projection.windows)

    @cached_property
    def offset(self) -> Doubles | None:
        """The projection of a design's public centre, which is subtracted from every projection.

        Whole grid steps, float64, shape (k,); None without a centre. The centre is brought within
        the bounds and its windows, so its projection is no larger than that of a vector.
        """
        if self.design is None:
            return None
        centre = np.zeros((1, self.dim))
        centre[0, self.design.attributes] = np.clip(self.design.centre, *self.bounds)
        steps = self.grid.round(centre * self.scale)
        return np.asarray(self.projection.apply(steps)[0], np.float64)

    @cached_property
    def sparse_offset(self) -> Doubles | None:
        """:attr:`offset` less the projection of zeros in their windows, which sparse rows lack."""
        if self.projection.windows is None:
            return self.offset
        zeros = self.grid.zero[None].astype(np.float64)
        projected = np.asarray(self.projection.apply(zeros)[0])
        return -projected if self.offset is None else self.offset - projected

    @cached_property
    def step(self) -> float:
        """Units of scaled attributes, or of windows, per grid step of a projected coordinate."""
        if not self.is_rounded:
            return self.projection.scale
        return float(self.grid.unit_step * self.projection.scale)

    @property
    def unit(self) -> float:
        """One beta in units of the attributes that are projected: 1 in windows."""
        return self.change if self.projection.windows is None else 1.0

    @property
    def format_type(self) -> type[CodeFormat]:
        """The class of :attr:`format`, which is known without codewords, too."""
        return self.method_row.calibration.format

    @cached_property
    def format(self) -> CodeFormat:
        """The format in which its codes are stored and read."""
        return self.law.code_format(self.code_length, self.fingerprint, self.step)


def _restored(text: str, part: PublicPart | None) -> Spec:
    spec = Spec.from_json(text)
    if part is None:
        return spec
    return spec.with_public(part)


_CHECK_ROWS = 4096
_NORM_TOLERANCE = 0.01


def block_rows(spec: Spec, sparse: bool) -> int:
    """Vectors that are projected at a time, and get their noise together."""
    numbers = 2 * spec.projection.k  # noise takes twice the memory of what it is added to
    if not sparse:
        numbers = max(spec.dim, numbers)
    return max(16, spec.projection.block_numbers // numbers)


class Projector:
    """Checks vectors against a spec and projects them, as an exact query needs.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> Projector(spec).project(np.zeros((3, 6))).shape
    (3, 2)
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._states_norms = spec.norm is not None or spec.variant.min_norm is not None
        self.grid: Grid | None = None
        if spec.is_rounded:
            self.grid = spec.grid
            self.grid.check_capacity(spec.law.max_sum)

    def project(self, x: Vectors) -> Floats:
        """The exact projection, in grid integers held in floats, shape (n, k): *not private*.

        Times ``spec.step`` it is in units of the scaled attributes.
        """
        return self.in_blocks(x, self._project_block)

    def in_blocks(self, x: Vectors, map_block: Callable[[Any, int], Floats]) -> Floats:
        """Return what is made of some vectors after the other, given them and the first's number.

        >>> from dpindex import attribute
        >>> spec = Spec("raw-staircase", dim=2, epsilon=1.0, adjacency=attribute(1.0))
        >>> Projector(spec).in_blocks(np.eye(2), lambda rows, first: 2 * rows).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
        """
        rows = self.rows(x)
        step = block_rows(self.spec, not isinstance(rows, np.ndarray))
        mapped = []
        for start in range(0, rows.shape[0], step):
            block = rows_of(rows, start, start + step)
            mapped.append(map_block(block, start))
        return np.concatenate(mapped)

    def check(self, x: Vectors, *, first_row: int = 0) -> None:
        """Raise the InputError that projecting would raise, if any."""
        rows = self.rows(x)
        for block in row_blocks(rows.shape[0], _CHECK_ROWS):
            self.checked_rows(rows[block], first_row + block.start)

    def clipped(self, x: Vectors) -> float:
        """Return which share of the values of vectors lies outside the bounds, [0, 1].

        0 without a look where nothing is clipped.
        """
        if not self.spec.clip:
            return 0.0
        rows = self.scaled(x)
        stored = rows.data if issparse(rows) else rows
        outside = self.spec.grid.outside(stored)
        return float(outside / math.prod(rows.shape))

    def rows(self, x: Vectors) -> Any:
        """Vectors as an ndarray or CSR matrix of shape (n, dim); values are not looked at yet."""
        rows = real_matrix(x, self.spec.dim)
        if self.spec.ranges is not None:
            self.spec.ranges.check_frame(x, "vectors")
        low, high = self.spec.bounds
        if (low > 0 or high < 0) and issparse(rows):
            raise InputError("sparse vectors hold zeros, which lie outside the public bounds.")
        return rows

    def scaled(self, x: Vectors) -> Any:
        """:meth:`rows`, brought to 0 … 1 by the ranges of the spec, if it has some."""
        rows = self.rows(x)
        return rows if self.spec.ranges is None else self.spec.ranges.scale(rows)

    def checked_rows(self, block: Any, first_row: int) -> Any:
        """Rows brought to 0 … 1 by the ranges; InputError if they may not be projected."""
        inside = block if self.spec.ranges is None else self.spec.ranges.scale(block)
        first_fault = _not_finite if self.grid is None else self.grid.first_fault
        check_values(inside, first_row, first_fault)
        if self._states_norms:
            self._check_norms(inside, first_row)
        return inside

    def _project_block(self, block: Any, first_row: int) -> Floats:
        rows = self.checked_rows(block, first_row)
        projection = self.spec.projection
        is_sparse = not isinstance(rows, np.ndarray)
        if self.grid is None:
            return projection.map(rows)
        offset = self.spec.offset
        if is_sparse:
            offset = self.spec.sparse_offset
            parts = (self.grid.round(rows.data, rows.indices), rows.indices, rows.indptr)
            rounded = scipy.sparse.csr_matrix(parts, shape=rows.shape)
            projected = projection.apply_sparse(rounded)
        else:
            projected = projection.apply(self.grid.round(rows))
        if offset is not None:  # whole numbers: exact in either float type
            projected -= offset.astype(projected.dtype)
        return projected

    def _check_norms(self, block: Any, first_row: int) -> None:
        declared = self.spec.norm
        least = self.spec.variant.min_norm
        if least is not None:
            # Norms that are right but for their last digits pass: the guarantee allows for them.
            norms = self.norms(block, clip=True)  # as they will be rounded
            enough = norms >= least - norm_slack(self.spec)
            short = np.flatnonzero(~enough)
            if short.size:
                raise InputError(
                    f"row {first_row + int(short[0])} is shorter than min_norm = {least:g}, on "
                    f"which the guarantee rests; leave such vectors out or lower min_norm.",
                    field="variant",
                )
        if declared is None:
            return
        error = np.abs(self.norms(block) - declared)
        right = error <= _NORM_TOLERANCE * declared
        wrong = np.flatnonzero(~right)
        if wrong.size:
            raise InputError(
                f"row {first_row + int(wrong[0])} does not have the declared norm {declared:g}; "
                f"normalise the vectors and leave rows of zeros out, or leave norm out."
            )

    def norms(self, block: Any, clip: bool = False) -> Doubles:
        """Norms of the scaled rows, before or after clipping."""
        wide: Any = block.astype(np.float64)
        if clip:
            low, high = (bound * self.spec.scale for bound in self.spec.bounds)
            values: AnyArray = wide.data if issparse(wide) else wide
            np.clip(values, low, high, out=values)
        return row_norms(wide) / self.spec.scale


def rows_of(x: Any, start: int, stop: int) -> Any:
    """Some rows of a table; scipy's own slices copy every entry, these copy none."""
    if isinstance(x, np.ndarray):
        return x[start:stop]
    bounds = x.indptr[start : stop + 1]
    inside = slice(bounds[0], bounds[-1])
    parts = (x.data[inside], x.indices[inside], bounds - bounds[0])
    shape = (len(bounds) - 1, x.shape[1])
    return scipy.sparse.csr_matrix(parts, shape=shape, copy=False)


def _not_finite(values: AnyArray) -> Fault | None:
    """:func:`not_finite` of what numbers are in 64 bits."""
    with np.errstate(over="ignore"):
        return not_finite(values.astype(np.float64, copy=False))

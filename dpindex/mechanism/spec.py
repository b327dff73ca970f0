"""The spec: public parameters, checked as a whole, with the projection and law they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from dpindex.base.errors import InputError
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.codes import CodeFormat
from dpindex.mechanism.grid import AnyNumbers, Grid
from dpindex.mechanism.method_table import Method, find_method
from dpindex.mechanism.noise.law import Law, NumberLaw, SignLaw, SymbolLaw
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.privacy import Guarantee

__all__ = ["Spec"]


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
    repetitions : int
        Independent OPORPs that share epsilon and k equally (sign codes only).
    scale : float
        Public divisor of every attribute, e.g. 255 for bytes. Queries get the same. A change of
        beta after it is one of beta × scale in the data.
    bounds : (float, float)
        Public range of a scaled attribute, [−1, 1] by default.
    clip : bool
        Clip to the bounds instead of refusing.
    min_norm : float, optional
        Public lower bound on the norm of every vector after scaling, for methods that need one.
    entries : str, optional
        Entries of a random projection: "gaussian", "rademacher", "uniform" or "very-sparse".
    sparsity : int, optional
        Sparse Johnson-Lindenstrauss maps: coordinates that one attribute moves, a divisor of k.
        Very sparse entries: 1 / density, √dim by default.
    norm : float, optional
        Public norm of *every* vector after scaling (1 for unit embeddings); sharpens similarities.
    seed : int
        Public seed of the projection, [0, 2^63).
    codebook : Codebook, optional
        Public codewords of ``record-codebook``.
    subset : int, optional
        Codewords that a record may be reported as by chance of its own, [1, K); by default
        (epsilon − 1)·K/e^epsilon, rounded up, which carries the most information and suits
        candidates that are reranked; below epsilon = 3 it is 2K/e^epsilon. Compare others with
        :func:`dpindex.plan`.

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
        return _restored, (self.to_json(), self.codebook)

    @property
    def method_row(self) -> Method:
        """The method's row in the table."""
        return find_method(self.method)

    @property
    def code_length(self) -> int:
        """Coordinates of a code: ``k``, resolved."""
        return cast(int, self.k)

    @property
    def guarantee(self) -> Guarantee:
        """The promise of one code about the vector behind it, in the units of the data."""
        calibration = self.method_row.calibration
        return Guarantee(
            epsilon=self.budget,
            delta=self.delta,
            definition=calibration.definition,
            adjacency=self.adjacency.in_data_units(self.scale),
            exact=calibration.exact and self.method_row.private,
            delta_over=calibration.delta_over if self.delta > 0 else "noise",
        )

    def refuse_unprotected(self, allowed: bool, purpose: str) -> None:
        """InputError for a method that protects nothing, unless ``allowed`` for a ``purpose``."""
        if not self.method_row.private and not allowed:
            raise InputError(
                f"{self.method} protects nothing; allow that to {purpose}.",
                field="allow_unprotected",
            )

    @cached_property
    def projection(self) -> Projection:
        """The public projection: a function of this spec alone."""
        return self.method_row.family.make(self)

    @cached_property
    def law(self) -> Law:
        """The calibrated law of the secret noise."""
        return self.method_row.calibration.law(self, self.projection)

    @property
    def number_law(self) -> NumberLaw:
        """:attr:`law` of a method of number codes; TypeError for others."""
        if not isinstance(self.law, NumberLaw):
            raise TypeError(f"{self.method} has no law of numbers")
        return self.law

    @property
    def sign_law(self) -> SignLaw:
        """:attr:`law` of a method of sign codes; TypeError for others."""
        if not isinstance(self.law, SignLaw):
            raise TypeError(f"{self.method} has no law of signs")
        return self.law

    @property
    def symbol_law(self) -> SymbolLaw:
        """:attr:`law` of a method of symbol codes; TypeError for others."""
        if not isinstance(self.law, SymbolLaw):
            raise TypeError(f"{self.method} has no law of symbols")
        return self.law

    @cached_property
    def grid(self) -> Grid | AnyNumbers:
        """The grid that attributes are rounded to, or what takes its place."""
        if not self.method_row.calibration.rounded:
            return AnyNumbers()
        return Grid(
            beta=self.adjacency.size,
            bits=self.law.grid_bits,
            scale=self.scale,
            bounds=self.bounds,
            clip=self.clip,
            max_column_l1=self.projection.max_column_l1,
        )

    @property
    def rounding_grid(self) -> Grid:
        """:attr:`grid` of a method that rounds; TypeError for one that takes any numbers."""
        if not isinstance(self.grid, Grid):
            raise TypeError(f"{self.method} rounds to no grid")
        return self.grid

    @property
    def step(self) -> float:
        """Units of the scaled attributes per grid step of a projected coordinate."""
        return float(self.grid.step * self.projection.scale)

    @property
    def format_type(self) -> type[CodeFormat]:
        """The class of :attr:`format`, which is known without codewords, too."""
        return self.method_row.calibration.format

    @cached_property
    def format(self) -> CodeFormat:
        """The format in which its codes are stored and read."""
        return self.law.code_format(self.code_length, self.fingerprint, self.step)


def _restored(text: str, codebook: Codebook | None) -> Spec:
    spec = Spec.from_json(text)
    if codebook is None:
        return spec
    return spec.with_codebook(codebook)

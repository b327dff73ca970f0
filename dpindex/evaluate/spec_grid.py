"""Grids of specs to compare, and the labels that tell specs apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpindex.errors import InputError
from dpindex.method_table import Method, find_method
from dpindex.spec import Spec

__all__ = ["SpecGrid", "keeps_signs", "label", "spec_grid"]


@dataclass(frozen=True)
class SpecGrid:
    """The admissible specs of a grid, and the reasons why the others are not admissible.

    Attributes
    ----------
    specs : tuple of Spec
        Without duplicates, in the order of the methods as given.
    refused : tuple of str
        One sentence for each method and code length that has no guarantee under these parameters.
    """

    specs: tuple[Spec, ...]
    refused: tuple[str, ...]


def spec_grid(
    dim: int,
    methods: Iterable[str],
    epsilons: Sequence[float],
    ks: Sequence[int | None] = (None,),
    *,
    delta: float = 1e-6,
    repetitions: int = 1,
    **common: Any,
) -> SpecGrid:
    """Specs of all combinations of methods, epsilons and code lengths.

    Baselines have no epsilon and enter once for each k. Raw methods keep all coordinates and enter
    once for each epsilon.

    Parameters
    ----------
    dim : int
        Number of attributes of a vector.
    methods : iterable of str
        Names from :func:`dpindex.methods`.
    epsilons : sequence of float
        Budgets, each in [0.001, 64].
    ks : sequence of int or None
        Code lengths; None is the method's default.
    delta : float
        For the methods that need a delta, or take one with ``min_norm``; the others get 0.
    repetitions : int
        For the methods that repeat their projection; the others get 1.
    **common
        Other fields of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, seed, …; methods
        that take no ``min_norm``, ``entries`` or ``sparsity`` get none.

    Raises
    ------
    InputError
        For an unknown method.

    >>> grid = spec_grid(784, ["dp-oporp-staircase", "raw-gaussian", "none-oporp"], [1, 2], [128])
    >>> [(s.method, s.k, s.epsilon, s.delta) for s in grid.specs]
    [('dp-oporp-staircase', 128, 1.0, 0.0), ('dp-oporp-staircase', 128, 2.0, 0.0),
     ('raw-gaussian', 784, 1.0, 1e-06), ('raw-gaussian', 784, 2.0, 1e-06),
     ('none-oporp', 128, None, 0.0)]
    >>> print(*spec_grid(64, ["dp-oporp"], [1, 2], [128]).refused)
    dp-oporp with k = 128: dp-oporp needs k / repetitions ≤ dim:
    128 bins cannot be filled by 64 attributes.
    """
    specs: dict[Spec, None] = {}
    refused: dict[str, None] = {}
    for method in methods:
        row = find_method(method)
        fields = _used(row, common)
        for k in (None,) if row.family.keeps_all else ks:
            for epsilon in (None,) if row.definition == "none" else epsilons:
                try:
                    spec = Spec(
                        method=method,
                        dim=dim,
                        k=k,
                        epsilon=epsilon,
                        delta=delta if row.needs_delta or fields.get("min_norm") else 0.0,
                        repetitions=repetitions if row.family.repeats else 1,
                        **fields,
                    )
                except InputError as error:
                    length = "" if k is None else f" with k = {k}"
                    refused[f"{method}{length}: {error}"] = None
                else:
                    specs[spec] = None
    return SpecGrid(tuple(specs), tuple(refused))


def _used(row: Method, stated: dict[str, Any]) -> dict[str, Any]:
    """The fields without those that the method does not take."""
    entries = bool(row.family.entries)
    used = {
        "min_norm": row.calibration.norm_bound,
        "entries": entries,
        "sparsity": row.family.blocks or (entries and stated.get("entries") == "very-sparse"),
    }
    return {name: value for name, value in stated.items() if used.get(name, True)}


def label(spec: Spec) -> str:
    """Method, code length and the other parameters that tell specs apart, without epsilon."""
    parts = [f"{spec.method}, k = {spec.code_length}"]
    if spec.repetitions > 1:
        parts.append(f"{spec.repetitions} repetitions")
    if spec.delta > 0:
        parts.append(f"δ = {spec.delta:g}")
    if spec.min_norm is not None:
        parts.append(f"norm ≥ {spec.min_norm:g}")
    return ", ".join(parts) + (" (iDP)" if spec.guarantee.definition == "iDP" else "")


def keeps_signs(spec: Spec) -> bool:
    """Whether the codes are signs (bits) and not numbers."""
    return spec.mechanism.codes == "signs"

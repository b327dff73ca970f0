"""A grid of specs: every admissible combination, and a sentence for every one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpindex.errors import InputError
from dpindex.method_table import find_method
from dpindex.spec import Spec

__all__ = ["SpecGrid", "spec_grid"]


@dataclass(frozen=True)
class SpecGrid:
    """What can be evaluated, and why the rest cannot.

    Attributes
    ----------
    specs : tuple of Spec
        Without repetition, in the order of the methods as given.
    refused : tuple of str
        One sentence for each combination, or run of combinations, that has no guarantee.
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

    ``delta`` goes to the methods that need one and ``repetitions`` to those that repeat;
    baselines enter without epsilon, once for each k, and raw methods once for each epsilon
    whatever the ks, since they keep all coordinates.

    Parameters
    ----------
    dim : int
        Number of attributes of a vector.
    methods : iterable of str
        Names from :func:`dpindex.methods`; an unknown one raises InputError.
    epsilons : sequence of float
        Budgets to try.
    ks : sequence of int or None
        Code lengths to try; None stands for the method's own default.
    delta, repetitions : float, int
        Used where a method takes them.
    **common
        Any other field of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, seed, …

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
        for k in (None,) if row.family.keeps_all else ks:
            for epsilon in (None,) if row.definition == "none" else epsilons:
                try:
                    spec = Spec(
                        method=method,
                        dim=dim,
                        k=k,
                        epsilon=epsilon,
                        delta=delta if row.needs_delta else 0.0,
                        repetitions=repetitions if row.family.repeats else 1,
                        **common,
                    )
                except InputError as error:
                    length = "" if k is None else f" with k = {k}"
                    refused[f"{method}{length}: {error}"] = None
                else:
                    specs[spec] = None
    return SpecGrid(tuple(specs), tuple(refused))

"""How a denoiser is stored: the arrays of its parts, by their names; and how it is read again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import DamagedError
from dpindex.base.files import checked_array, pack, unpack
from dpindex.decode.denoiser import Channel, Denoiser
from dpindex.decode.iteration import CalibrationBins, CodeTables, EPIteration
from dpindex.decode.mixture import MixtureFilter
from dpindex.mechanism.spec import Spec


def denoiser_to_bytes(denoiser: Denoiser) -> bytes:
    """The denoiser as a container of arrays, without its spec: see :func:`denoiser_from_bytes`."""
    arrays = {"error_variance": denoiser.error_variance}
    if denoiser.iterations:
        arrays["sizes"] = denoiser.sizes
    arrays |= _arrays("linear", denoiser.linear)
    max_variance = 0.0
    for number, iteration in enumerate(denoiser.iterations):
        arrays |= _arrays(f"{number}.filter", iteration.filter)
        arrays |= _arrays(f"{number}.bins", iteration.bins)
        max_variance = iteration.tables.scores.max_variance  # all share it
    facts = {
        "error": denoiser.error,
        "rows": denoiser.rows,
        "iterations": len(denoiser.iterations),
        "max_variance": max_variance,
    }
    return pack("denoiser", facts, arrays)


def _arrays(name: str, part: Any) -> dict[str, AnyArray]:
    """All arrays of a part and of the parts in it, by their dotted names."""
    if isinstance(part, np.ndarray):
        return {name: part}
    arrays: dict[str, AnyArray] = {}
    for entry in fields(part):
        arrays |= _arrays(f"{name}.{entry.name}", getattr(part, entry.name))
    return arrays


def denoiser_from_bytes(data: bytes, spec: Spec) -> Denoiser:
    """The inverse of :func:`denoiser_to_bytes` for the index of that spec; no size is trusted.

    Raises
    ------
    InputError
        If the bytes are no denoiser for codes of that length.
    """
    try:
        facts, arrays = unpack(data, "denoiser")
        error = finite_number(facts["error"], "error")
        rows = whole_number(facts["rows"], "rows", 0, 2**63)
        count = whole_number(facts["iterations"], "iterations", 0, len(arrays))
        linear = _read_filter(arrays, "linear.", spec)
        parts: list[tuple[MixtureFilter, CalibrationBins]] = []
        components = 0
        for number in range(count):
            filter_ = _read_filter(arrays, f"{number}.filter.", spec)
            sides = {"2": 2, "B": CalibrationBins.BINS}
            bins: CalibrationBins = _read(arrays, f"{number}.bins.", CalibrationBins, sides)
            if (bins.chances < 0).any():
                raise ValueError("chances")
            parts.append((filter_, bins))
            components = filter_.prior.components
        error_variance = checked_array(arrays.pop("error_variance"), "f8", "E", {})
        sizes = np.zeros(3)
        if count:
            sizes = checked_array(arrays.pop("sizes"), "f8", "3", {"3": 3})
        fits = len(error_variance) in (0, components)
        if arrays or not fits or (error_variance < 0).any() or sizes[1:].min() < 0:
            raise ValueError("error_variance")
        iterations = []
        if count:  # a table takes longer than all the rest: of what is sound alone
            max_variance = finite_number(facts["max_variance"], "max_variance", above=0.0)
            tables = CodeTables.of(Channel(spec).likelihood, max_variance)
            if any(bins.chances.shape[1] != tables.value_count for _, bins in parts):
                raise ValueError("chances")
            iterations = [EPIteration(filter_, bins, tables) for filter_, bins in parts]
        return Denoiser(spec, error, rows, linear, tuple(iterations), error_variance, sizes)
    except (ValueError, LookupError, TypeError, RecursionError, ArithmeticError):
        sentence = "these bytes are not a denoiser of this index; learn it again."
        raise DamagedError(sentence) from None


def _read_filter(arrays: dict[str, AnyArray], prefix: str, spec: Spec) -> MixtureFilter:
    sizes = {"k": spec.code_length}
    arrays.pop(f"{prefix}mixing_leverage", None)  # of files that were made before
    filter_: MixtureFilter = _read(arrays, prefix, MixtureFilter, sizes)
    # What equal sides do not say.
    sound = sizes["F"] + sizes["T"] == sizes["R"]
    some = min(sizes["K"], sizes["F"]) > 0
    if not sound or not some or (filter_.noise <= 0).any():
        raise ValueError("filter")
    return filter_


def _read(
    arrays: dict[str, AnyArray],
    prefix: str,
    part: Any,
    sizes: dict[str, int],
) -> Any:
    """Remove the arrays of one part, check them and make the part of them."""
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(part, include_extras=True).items():
        if is_dataclass(kind):
            values[name] = _read(arrays, f"{prefix}{name}.", kind, sizes)
        else:
            numbers, sides = get_args(kind)
            dtype = "f8" if numbers == Doubles else "f4"
            array = arrays.pop(prefix + name)
            values[name] = checked_array(array, dtype, sides, sizes)
    return part(**values)

"""The rest of the chain: grid, distances, composition and the stream that noise is read from."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpindex.audit.checks import Check, above_root
from dpindex.audit.maps import RealisedMap
from dpindex.privacy import Attribute
from dpindex.randomness import BitSource
from dpindex.spec import Spec

__all__ = ["code_distance", "composition_check", "grid_checks", "stream_check"]


def grid_checks(spec: Spec, found: RealisedMap) -> tuple[list[Check], Fraction]:
    """A change of one beta moves one grid integer by at most 2^bits, in the floats that run.

    *Lemma.* The grid integer is ``rint(fl(fl(x)·c))`` with c the factor as rounded. With unit
    roundoff u, least subnormal η and |x| ≤ X, what is rounded differs from ``x·c`` by at most
    ``e = c(uX + η) + u·c(X(1+u) + η) + η``, provided nothing overflows. Neighbours are at most
    β·scale apart, so their values before rint differ by at most ``c·β·scale + 2e``. Rounding to
    even is monotone and commutes with even integers; so if that is at most 2^bits, the integers
    differ by at most 2^bits. One more roundoff 2⁻⁵³ covers clipping, which is done in float64.

    Under l2 adjacency a coordinate that changes by d changes by at most ``c·d + 2e + 1`` steps, so
    all dim of them by ``c·radius·scale + √dim·(1 + 2e)`` in L2 (triangle inequality).

    Also returns the grid steps, in L2, between two neighbours.
    """
    grid = spec.grid
    info = np.finfo(grid.dtype)
    roundoff, least = Fraction(float(info.eps)) / 2, Fraction(float(info.smallest_subnormal))
    largest = Fraction(float(info.max))
    most = max(abs(Fraction(float(bound) * grid.scale)) for bound in grid.bounds)
    most *= 1 + Fraction(1, 1 << 53)
    with np.errstate(over="ignore", under="ignore"):
        factor = float(grid.dtype(1.0 / (grid.step * grid.scale)))
    lemma = "monotone rounding commutes with even integers; float errors bounded in rationals"
    name, bound = "grid: steps of one beta", f"2^{grid.bits} = {1 << grid.bits}"
    if not 0 < factor < float(info.max) or most * (1 + roundoff) >= largest:
        overflow = Check(name, "overflow of the float type", bound, lemma, False)
        return [overflow], Fraction(1 << grid.bits)
    c = Fraction(factor)
    error = c * (roundoff * most + least) + roundoff * c * (most * (1 + roundoff) + least) + least
    error += c * most / (1 << 53)
    steps = c * Fraction(spec.adjacency.size) * Fraction(grid.scale) + 2 * error
    passed = steps <= 1 << grid.bits and grid.bits >= 1 and grid.bits == spec.law.grid_bits
    reach = Fraction(1 << grid.bits)
    if not isinstance(spec.adjacency, Attribute):
        name, lemma = "grid: steps of the radius", "each coordinate is rounded: triangle inequality"
        reach += above_root(Fraction(spec.dim)) * (1 + 2 * error)
        bound = f"2^{grid.bits} + √dim·(1 + errors) = {float(reach):.8f}"
    widest = int(c * most + error) + 1
    total = widest * max(grid.max_column_l1, found.max_column_l1)
    exact = 1 << (info.nmant + 1)
    if spec.mechanism.codes == "numbers":
        # Sums held in float32 get their noise in 32 bits; others in 64, and then lose low bits.
        narrow = grid.dtype == np.float32
        exact = min(exact, ((1 << 31) - 1) << (0 if narrow else _cell_bits(spec.law)))
    return [
        Check(name, f"at most {float(steps):.8f}", bound, lemma, passed),
        Check(
            "grid: sums are exact integers",
            f"at most {total}",
            str(exact),
            f"integers below 2^{info.nmant + 1} add exactly in any order, and so does the noise",
            total <= exact,
        ),
    ], reach


def _cell_bits(law: Any) -> int:
    source = getattr(law, "table", None) or getattr(law, "source", None)
    return int(getattr(source, "cell_bits", 0))


def code_distance(spec: Spec, found: RealisedMap, square: Fraction, reach: Fraction) -> Any:
    """Bound on the L2 distance of two neighbours' codes, as a function of the bits of a cell.

    For every fixed offset a coordinate that moves by d grid steps moves by at most ⌈d/2^m⌉ cells.
    One attribute moves coordinate j by at most ``|w_j|·2^bits`` steps, ``|w_j|·⌈2^bits/2^m⌉``
    cells, all of them by √Σw² times that. Under l2 adjacency all move by ``‖W‖`` times the distance
    on the grid, and each by less than one cell more: √k in all.
    """

    def distance(cell_bits: int) -> Fraction:
        if isinstance(spec.adjacency, Attribute):
            cells = -(-(1 << spec.grid.bits) >> cell_bits)
            return above_root(Fraction(found.l2_squared)) * int(cells)
        cells_moved = above_root(square) * reach / (1 << cell_bits)
        return cells_moved + (above_root(Fraction(spec.code_length)) if cell_bits else 0)

    return distance


def composition_check(spec: Spec, moved: int) -> tuple[Check, Fraction]:
    """What epsilon one moved coordinate may cost by itself, and which theorem adds that up."""
    promise = spec.guarantee
    share = Fraction(promise.epsilon) / moved
    found = f"{moved} × ε/{moved}, as rationals"
    if promise.definition == "iDP":
        found = "by size of A"
        theorem = "the law's own check composes over the perturbed set A (Li & Li 2023, Thm 6.2)"
    elif moved == 1:
        theorem = "one coordinate moves: its loss is the loss of the code"
    elif spec.mechanism.codes == "signs" and promise.delta > 0:
        found = "as many signs as can change"
        theorem = "sequential composition over those signs (Li & Li 2023, Thms 2.3 and 4.1)"
    elif spec.mechanism.codes == "signs":
        theorem = "sequential composition (Li & Li 2023, Thm 2.3; Dwork & Roth 2014, Thm 3.16)"
    else:
        found = f"all {moved} at once"
        theorem = "the law's own check is about all coordinates at once, by their L1 or L2 distance"
    return Check("composition", found, f"ε = {promise.epsilon!r}", theorem, True), share


def stream_check(stream: Callable[[], BitSource]) -> Check:
    """Noise is used once: a second read, another thread and a forked child all differ.

    Not arithmetic but an experiment; 256 bits agree by chance with probability 2^-256.
    """

    def read() -> bytes:
        return stream().words(32, np.uint8).tobytes()

    reads = [read(), read()]
    thread = threading.Thread(target=lambda: reads.append(read()))
    thread.start()
    thread.join()
    if hasattr(os, "fork"):
        reads.append(_read_in_child(read))
        reads.append(read())
    repeated = len(reads) - len(set(reads))
    return Check(
        "stream: noise is used once",
        f"{repeated} of {len(reads)} reads seen before (again, thread, fork)",
        "0",
        "releases compose only if their noise is independent",
        repeated == 0,
    )


def _read_in_child(read: Callable[[], bytes]) -> bytes:
    receive, send = os.pipe()
    with warnings.catch_warnings():
        # The child does nothing but read the stream and leave.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(send, read())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return data

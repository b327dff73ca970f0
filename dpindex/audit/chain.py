"""The rest of the chain: grid, projection, composition and the stream that noise is read from."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.audit.checks import Check
from dpindex.errors import InputError
from dpindex.noise.base import AdditiveNoise
from dpindex.privacy import Attribute
from dpindex.randomness import BitSource
from dpindex.spec import Spec

__all__ = ["grid_checks", "projection_check", "stream_check"]

_MOST_ENTRIES = 1 << 32
_CHUNK_ENTRIES = 1 << 22


def grid_checks(spec: Spec) -> list[Check]:
    """A change of one beta moves one grid integer by at most 2^bits, in the floats that run.

    *Lemma.* The grid integer is ``rint(fl(fl(x)·c))`` with c the factor as rounded. With unit
    roundoff u, least subnormal η and |x| ≤ X, what is rounded differs from ``x·c`` by at most
    ``e = c(uX + η) + u·c(X(1+u) + η) + η``, provided nothing overflows. Neighbours are at most
    β·scale apart, so their values before rint differ by at most ``c·β·scale + 2e``. Rounding to
    even is monotone and commutes with even integers; so if that is at most 2^bits, the integers
    differ by at most 2^bits. One more roundoff 2⁻⁵³ covers clipping, which is done in float64.
    """
    grid = spec.grid
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no exact check under {spec.adjacency} yet.")
    info = np.finfo(grid.dtype)
    roundoff, least = Fraction(float(info.eps)) / 2, Fraction(float(info.smallest_subnormal))
    largest = Fraction(float(info.max))
    most = max(abs(Fraction(float(bound) * grid.scale)) for bound in grid.bounds)
    most *= 1 + Fraction(1, 1 << 53)
    with np.errstate(over="ignore", under="ignore"):
        factor = float(grid.dtype(1.0 / (grid.step * grid.scale)))
    capacity = (1 << 31) - 1
    whole = {"bound": f"2^{grid.bits} = {1 << grid.bits}", "name": "grid: steps of one beta"}
    lemma = "monotone rounding commutes with even integers; float errors bounded in rationals"
    if not 0 < factor < float(info.max) or most * (1 + roundoff) >= largest:
        return [Check(found="overflow of the float type", theorem=lemma, passed=False, **whole)]
    c = Fraction(factor)
    error = c * (roundoff * most + least) + roundoff * c * (most * (1 + roundoff) + least) + least
    error += c * most / (1 << 53)
    steps = c * Fraction(spec.adjacency.beta) * Fraction(grid.scale) + 2 * error
    widest = int(c * most + error) + 1
    total = widest * grid.fan_in
    exact = 1 << (info.nmant + 1)
    if isinstance(spec.law, AdditiveNoise):
        exact = min(exact, capacity)
    return [
        Check(
            found=f"at most {float(steps):.8f}",
            theorem=lemma,
            passed=steps <= 1 << grid.bits and grid.bits >= 1 and grid.bits == spec.law.grid_bits,
            **whole,
        ),
        Check(
            "grid: sums are exact integers",
            f"at most {total}",
            str(exact),
            f"integers below 2^{info.nmant + 1} add exactly in any order, and noise is added in "
            "32 bits",
            total <= exact,
        ),
    ]


def projection_check(spec: Spec) -> tuple[Check, int]:
    """Reads the realised map attribute by attribute; also returns how many coordinates one moves.

    Both routes (dense and sparse) are applied to every unit vector.
    """
    projection = spec.projection
    dim, k = spec.dim, spec.dims
    if dim * k > _MOST_ENTRIES:
        raise InputError(
            f"the verifier reads every entry of the projection, and dim × k = {dim * k} is beyond "
            f"{_MOST_ENTRIES}; verify a smaller spec of the same method and epsilon."
        )
    repetitions = spec.repetitions
    touched: set[int] = set()
    weights: set[float] = set()
    alike = True
    rows = max(1, _CHUNK_ENTRIES // max(dim, k))
    for start in range(0, dim, rows):
        count = min(rows, dim - start)
        unit: Any = sparse.csr_matrix(
            (np.ones(count, np.float32), (np.arange(count), start + np.arange(count))),
            shape=(count, dim),
        )
        image = np.asarray(projection.apply(unit.toarray()))
        alike &= bool(np.array_equal(image, projection.apply_sparse(unit)))
        by_repetition = np.count_nonzero(image.reshape(count, repetitions, -1), axis=2)
        touched.update(np.unique(by_repetition).tolist())
        weights.update(np.unique(np.abs(image[image != 0])).tolist())
    per_repetition = max(touched)
    check = Check(
        "projection: what one attribute moves",
        f"{per_repetition} of {k // repetitions} coordinates in each of {repetitions} repetitions, "
        f"weights ±{sorted(weights)}" + ("" if alike else ", dense and sparse routes differ"),
        "weights ±1, the same for every attribute",
        "every other coordinate has the same law on both neighbours and is independent, so the "
        "ratio of whole codes is the product over the coordinates moved",
        touched <= {per_repetition} and weights == {1.0} and alike,
    )
    return check, per_repetition * repetitions


def composition_check(spec: Spec, moved: int) -> tuple[Check, Fraction]:
    """What epsilon one moved coordinate may cost, exactly, and why that adds up to the claim."""
    promise = spec.guarantee
    share = Fraction(promise.epsilon) / moved
    if promise.definition == "iDP":
        theorem = "the law's own check composes over the perturbed set A (Li & Li 2023, Thm 6.2)"
    elif moved == 1:
        theorem = "one coordinate moves: its loss is the loss of the code"
    else:
        theorem = "sequential composition (Li & Li 2023, Thm 2.3; Dwork & Roth 2014, Thm 3.16)"
    if moved > 1 and promise.delta > 0 and promise.definition == "DP":
        raise InputError(f"there is no exact check of Gaussian noise on {moved} coordinates yet.")
    found = f"{moved} × ε/{moved}, as rationals" if promise.definition == "DP" else "by size of A"
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

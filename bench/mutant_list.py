"""The weaknesses of the mechanism that ``mutants.py`` plants; those of releases: ``mutant_paths``.

Each replaces a named function, method or attribute of the package by a weakened one, and names the
tests that must fail then. Where several differ in a number they are rows of one plant.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from independent.oracle import secret_counts
from scipy.sparse import issparse

import dpindex as dpi
import dpindex.mechanism.grid
import dpindex.mechanism.noise
import dpindex.mechanism.noise.additive
import dpindex.mechanism.noise.cap
import dpindex.mechanism.noise.gaussian
import dpindex.mechanism.noise.response
import dpindex.mechanism.noise.symbols
import dpindex.mechanism.optimiser
import dpindex.mechanism.parameters
import dpindex.mechanism.privatizer
import dpindex.mechanism.public_parts
import dpindex.mechanism.secret_random
import dpindex.mechanism.spec
from dpindex.audit.record_verifiers import SoftmaxVerifier
from dpindex.mechanism.grid import Grid, Placed, Windows
from dpindex.mechanism.noise.additive import AdditiveNoise, CellTable, TwoDigitLaplace
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.response import FlipsByLevel, SquareWave
from dpindex.mechanism.noise.symbols import SoftmaxResponse
from dpindex.mechanism.papers.signs import IndividualGaussian
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projections import RealisedSizes, Sensitivity
from dpindex.mechanism.projections.dense import CodewordScores, Designed, Matrix, Oporp
from dpindex.mechanism.secret_random import SecretStream
from dpindex.mechanism.spec import Projector, Spec
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.hashes import Hasher

laws = sys.modules["dpindex.mechanism.noise.base"]
additive = sys.modules["dpindex.mechanism.noise.additive"]
gaussian = sys.modules["dpindex.mechanism.noise.gaussian"]
signs = sys.modules["dpindex.mechanism.noise.response"]
papers_signs = sys.modules["dpindex.mechanism.papers.signs"]
symbols = sys.modules["dpindex.mechanism.noise.symbols"]
sign_caps = sys.modules["dpindex.mechanism.noise.cap"]
waves = sys.modules["dpindex.mechanism.noise.response"]
dense = sys.modules["dpindex.mechanism.projections.dense"]
optimiser = sys.modules["dpindex.mechanism.optimiser"]
public_parts = sys.modules["dpindex.mechanism.public_parts"]
secret_random = sys.modules["dpindex.mechanism.secret_random"]
mechanism_spec = sys.modules["dpindex.mechanism.spec"]
grid = sys.modules["dpindex.mechanism.grid"]

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

STAIRCASE = {"method": "dp-oporp-staircase", "dim": 48, "k": 16, "epsilon": 1.0}
GAUSS = {"method": "dp-oporp", "dim": 48, "k": 16, "epsilon": 1.0, "delta": 1e-6}
LAPLACE = {"method": "dp-rp-l", "dim": 24, "k": 8, "epsilon": 0.1}
SQUARE = {"method": "raw-square-wave", "dim": 16, "epsilon": 1.0, "bounds": (0.0, 1.0)}
FLIPS = {"method": "dp-signoporp-rr", "dim": 48, "k": 16, "epsilon": 1.0}
LEVELS = {"method": "dp-signoporp-geometric", "dim": 48, "k": 16, "epsilon": 1.0}
SPARSE_SIGNS = {"method": "dp-signrp-geometric", "dim": 24, "k": 8, "epsilon": 8.0,
                "variant": dpi.Dense("uniform")}  # fmt: skip
INSIDE = {"method": "idp-signrp-rr", "dim": 24, "k": 8, "epsilon": 1.0}
INSIDE_GAUSS = {"method": "idp-signrp-g", "dim": 24, "k": 8, "epsilon": 1.0, "delta": 1e-6}
CAP = {"method": "record-cap", "dim": 48, "k": 64, "epsilon": 1.0}
SYMBOLS = {"method": "record-codebook", "dim": 24, "epsilon": 1.0, "codewords": 100, "subset": 20}
SOFTMAX = {"method": "codebook-softmax", "dim": 12, "epsilon": 2.0, "codewords": 30,
           "record_epsilon": 6.0}  # fmt: skip
MANY = {"method": "codebook-softmax", "dim": 12, "epsilon": 10.0, "codewords": 300}
SOFTMAX_BALL = {**SOFTMAX, "radius": 0.5}
DESIGN = {"method": "dp-designed-laplace", "dim": 12, "epsilon": 1.0, "sample": 300}
DESIGN_GAUSS = {**DESIGN, "method": "dp-designed-gaussian", "delta": 1e-6}
DESIGN_SIGNS = {**DESIGN, "method": "dp-signdesigned-geometric"}
WINDOWED = {**DESIGN, "window": 0.7}
UNEVEN = {"method": "dp-rp-l", "dim": 24, "k": 8, "epsilon": 1.0, "variant": dpi.Dense("uniform")}
WHOLE_DENSE = {"method": "row-rp-g-opt", "dim": 24, "k": 8, "epsilon": 1.0, "delta": 1e-6,
               "radius": 2.0}  # fmt: skip
COUNTED = {"method": "dp-signrp-rr", "dim": 48, "k": 256, "epsilon": 1.0, "delta": 1e-6,
           "variant": dpi.Dense("gaussian", min_norm=4.0)}  # fmt: skip
THREEFOLD = {**FLIPS, "k": 15, "variant": dpi.Repeated(3)}
BALL = {"method": "row-oporp-g", "dim": 24, "k": 8, "epsilon": 1.0, "delta": 1e-6, "radius": 2.0}
SCALED = {**STAIRCASE, "scale": 255.0, "bounds": (0.0, 1.0)}
REPLACED = {"rows": 20, "width": 16, "epsilon": 1.0, "neighbouring": "replace"}
SKETCH = {"rows": 20, "width": 16, "epsilon": 1.0}


def spec_of(stated: dict[str, Any]) -> Spec | SketchSpec:
    """A spec by its fields; ``rows`` make a sketch, sizes a codebook, a public sample, a ball."""
    fields = dict(stated)
    if "rows" in fields:
        return SketchSpec(dim=3, hash=PStable(1.0, 2), **fields)
    fields["adjacency"] = dpi.attribute(1.0)
    if fields["method"].startswith("record-"):
        fields["adjacency"] = dpi.record()
    if radius := fields.pop("radius", 0):
        fields["adjacency"] = dpi.l2(radius)
    if size := fields.pop("codewords", 0):
        words = np.random.default_rng(0).normal(size=(size, fields["dim"]))
        fields["codebook"] = dpi.Codebook(words)
    if size := fields.pop("sample", 0):
        random = np.random.default_rng(0)
        public = random.normal(size=(size, 3)) @ random.normal(size=(3, fields["dim"])) / 4
        fields["design"] = dpi.design(
            public,
            epsilon=fields["epsilon"],
            code_length=4,
            delta=fields.get("delta", 0.0),
            window=fields.pop("window", None),
        )
    return Spec(**fields)


@dataclass(frozen=True)
class Mutant:
    """One weakness.

    Attributes
    ----------
    part : str
        The part of the package.
    name : str
        What is weakened, in a sentence or less.
    tests : tuple of str
        Test functions, of which one must fail, with their parameters in brackets if only these do.
    plant : callable
        Puts the weakness in place.
    proof : dict
        Fields of a spec that the exact audit must refute then; none if it does not look there.
    """

    part: str
    name: str
    tests: tuple[str, ...]
    plant: Plant
    proof: dict[str, Any] = field(default_factory=dict)


# Seams


def instead(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """``owner.name`` replaced by what is made of it: a method, an attribute or a constant."""

    def plant(patch: Patch) -> None:
        patch.setattr(owner, name, make(vars(owner)[name]))

    return plant


def everywhere(module: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """A function replaced in every module that has imported it."""

    def plant(patch: Patch) -> None:
        original = getattr(module, name)
        weak = make(original)
        for path, user in list(sys.modules.items()):
            if path.startswith("dpindex") and vars(user).get(name) is original:
                patch.setattr(user, name, weak)

    return plant


class Turned:
    """A stream whose words are changed; ``first`` of its requests only, if that is given."""

    def __init__(self, stream: Any, change: Callable[[Any], Any], first: int = 1 << 62) -> None:
        self._stream, self._change, self._left = stream, change, first

    def words(self, count: int, dtype: Any) -> Any:
        words = self._stream.words(count, dtype)
        self._left -= 1
        return self._change(words) if self._left >= 0 else words


def other_words(owner: Any, name: str, change: Callable[[Any], Any], place: int = -1) -> Plant:
    """A function whose stream, the argument at ``place``, gives changed words."""

    def weaken(original: Any) -> Any:
        def weak(*arguments: Any) -> Any:
            given = list(arguments)
            given[place] = Turned(given[place], change)
            return original(*given)

        return weak

    return instead(owner, name, weaken)


class Source:
    """A source of noise whose draws are changed."""

    def __init__(self, source: Any, sample: Callable[[Any, int, Any], Any]) -> None:
        self._source, self._sample = source, sample

    def sample(self, count: int, stream: Any) -> Any:
        return self._sample(self._source, count, stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def draws(change: Callable[[Any, Any], Any]) -> Plant:
    """Additive noise that is changed before it is added, given the noise and x, shape (n, k)."""

    def weaken(original: Any) -> Any:
        def perturb(law: AdditiveNoise, x: Any, stream: Any) -> Any:
            def sample(source: Any, count: int, stream: Any) -> Any:
                noise = source.sample(count, stream)
                changed = np.asarray(change(noise.reshape(x.shape).copy(), x))
                return changed.astype(noise.dtype).ravel()

            weak = copy(law)
            weak.source = Source(law.source, sample)
            return original(weak, x, stream)

        return perturb

    return instead(AdditiveNoise, "perturb", weaken)


def with_parts(owner: Any, name: str, **parts: Callable[[Any], Any]) -> Plant:
    """A method that runs on a copy of its object of which some attributes are others."""

    def weaken(original: Any) -> Any:
        def weak(self: Any, *arguments: Any) -> Any:
            other = copy(self)
            for part, make in parts.items():
                object.__setattr__(other, part, make(self))
            return original(other, *arguments)

        return weak

    return instead(owner, name, weaken)


def after(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """What a method returns is changed, given the result and the method's arguments."""

    def weaken(original: Any) -> Any:
        return lambda *arguments, **named: change(original(*arguments, **named), *arguments)

    return instead(owner, name, weaken)


def then(owner: Any, change: Callable[[Any], None]) -> Plant:
    """An object is changed as soon as it is made."""

    def weaken(original: Any) -> Any:
        def made(self: Any, *arguments: Any, **named: Any) -> None:
            original(self, *arguments, **named)
            change(self)

        return made

    return instead(owner, "__init__", weaken)


def placed(change: Callable[[Placed], Placed]) -> Plant:
    """Windows as a grid rounds into them, changed."""
    return instead(Grid, "placed", lambda f: property(lambda grid: change(f.func(grid))))


def in_no_window(_: Any) -> Any:
    """Rounding into windows that cut nothing off."""

    def steps(grid: Grid, x: Any, attributes: Any = None) -> Any:
        here = grid.placed
        if attributes is not None:
            here = Placed(*(values[attributes] for values in here))
        whole = np.rint(np.multiply(x, here.factor, dtype=grid.dtype)) - here.low
        return whole if attributes is None else whole - grid.zero[attributes]

    return steps


def centre_outside_windows(offset: Any) -> Any:
    """The centre of a design in steps of a beta, as it is without windows."""

    def of(spec: Spec) -> Any:
        if spec.design is None or spec.design.windows is None:
            return offset.func(spec)
        centre = np.zeros((1, spec.dim))
        centre[0, spec.design.attributes] = np.rint(spec.design.centre / spec.grid.step)
        return spec.projection.apply(centre)[0]

    return property(of)


def outcomes(change: Callable[[SimpleNamespace], Any]) -> Plant:
    """Outcomes of a law that the encoder changes before it packs them.

    ``change`` is given the law, the exact integers, the outcomes, the stream, the rows of the call
    and the number of the task.
    """

    def weaken(original: Any) -> Any:
        def privatized(self: Any, x: Any, **how: Any) -> Any:
            law = self.spec.law
            tasks = count()

            def perturb(exact: Any, stream: Any) -> Any:
                found = law.perturb(exact, stream)
                task = SimpleNamespace(
                    law=law, exact=exact, outcomes=found, stream=stream,
                    x=self.rows(x), number=next(tasks),
                )  # fmt: skip
                return change(task)

            weak_law = copy(law)
            object.__setattr__(weak_law, "perturb", perturb)
            spec = copy(self.spec)
            object.__setattr__(spec, "law", weak_law)
            weak = copy(self)
            weak.spec = spec
            codes = original(weak, x, **how)
            return self.spec.format.codes(codes.stored)

        return privatized

    return instead(Privatizer, "privatize", weaken)


def numbers(change: Callable[[Any, Any], Any]) -> Callable[[SimpleNamespace], Any]:
    """Additive codes that are changed, given the task and the codes without noise."""

    def changed(task: SimpleNamespace) -> Any:
        if not hasattr(task.law, "source"):
            return task.outcomes
        bare = (task.exact.astype(np.int64) >> task.law.source.cell_bits).astype(np.int32)
        return np.asarray(change(task, bare)).astype(np.int32)

    return changed


def caps(chosen: Callable[[Any], Any]) -> Callable[[SimpleNamespace], Any]:
    """Cap codes that keep the signs of some records."""

    def changed(task: SimpleNamespace) -> Any:
        if hasattr(task.law, "cap") and not issparse(task.x):
            rows = chosen(np.abs(task.x[: len(task.exact)]).max(axis=1))
            task.outcomes[rows] = task.exact[rows] >= 0
        return task.outcomes

    return changed


def wave(
    clip: int = 0, window: int = 0, free: int = 0, top: bool = False, fair: bool = True
) -> Plant:
    """A square wave drawn with other limits: of cells, of the window, of the points left free."""

    def perturb(law: SquareWave, x: Any, stream: Any) -> Any:
        bits = law.cell_bits
        offsets = stream.words(x.size, np.uint8).reshape(x.shape) & np.uint8((1 << bits) - 1)
        cell = ((x.astype(np.int64) - law.low + offsets) >> bits).clip(0, law.cells - clip)
        index = np.zeros(x.shape, dtype=np.intp)
        inside = waves.draw_flips(np.array([law.inside], np.uint64), index, stream)
        whole = 2 * law.half_width + 1
        limits = np.where(inside, whole - window, law.cells - free).ravel()
        drawn = waves.draw_below(limits, stream).reshape(x.shape)
        within = cell + drawn
        if top:
            within = np.minimum(within, law.cells + law.half_width)
        return np.where(inside, within, np.where(drawn < cell, drawn, drawn + whole)).astype("i4")

    return instead(SquareWave, "perturb", lambda _: perturb)


def below(fair: bool, own_limits: bool) -> Any:
    """``draw_below`` without its refusals, or with the limits of others where it draws again."""

    def draw(limits: Any, stream: Any) -> Any:
        limits = limits.astype(np.uint64)
        low = np.uint64((1 << 32) - 1)
        product = stream.words(limits.size, np.uint32).astype(np.uint64) * limits
        unfair = np.uint64(1 << 32) % limits
        while fair and (again := np.flatnonzero((product & low) < unfair)).size:
            fresh = stream.words(again.size, np.uint32).astype(np.uint64)
            product[again] = fresh * (limits[again] if own_limits else limits[: again.size])
        return (product >> np.uint64(32)).astype(np.int64)

    return lambda _: draw


def symbol(
    coin: Callable[[Any], Any] = lambda words: words, less: int = 0, one_word: bool = False
) -> Plant:
    """A codebook's response whose draws are others."""

    def perturb(law: Any, x: Any, stream: Any) -> Any:
        count = len(x)
        words = coin(stream.words(count, np.uint64))
        place = (words >> np.uint64(32)) * np.uint64(law.subset) >> np.uint64(32)
        if not one_word:
            place = laws.draw_uniform(law.subset - less, count, stream)
        near = symbols.nearest(x, law.subset)[np.arange(count), place.astype(np.intp)]
        uniform = laws.draw_uniform(law.size, count, stream)
        return np.where(words < np.uint64(law.uniform), uniform, near)

    return instead(SymbolLaw, "perturb", lambda _: perturb)


def system_bytes(make: Callable[[], Callable[[int], bytes]]) -> Plant:
    """Entropy of the secret stream that is not, or not all, from the operating system."""

    def plant(patch: Patch) -> None:
        patch.setattr(secret_random, "os", SimpleNamespace(urandom=make()))

    return plant


def secret_words(change: Callable[[Any], Any]) -> Plant:
    """Words of the secret stream that are changed after the cipher."""
    return after(SecretStream, "words", lambda words, *_: change(words))


def kept_key(draws: int = 1 << 62, counted: bool = False) -> Callable[[], Callable[[int], bytes]]:
    """One key and counter for so many draws; ``counted`` adds to the counter, as forks would."""

    def make() -> Callable[[int], bytes]:
        kept: dict[int, bytes] = {}
        asked = count()

        def urandom(size: int) -> bytes:
            number = next(asked) // 2
            if number % draws == 0 or size not in kept:
                kept[size] = os.urandom(size)
            if counted and size == 16:
                counter = (int.from_bytes(kept[16], "big") + (number << 64)) % (1 << 128)
                return counter.to_bytes(16, "big")
            return kept[size]

        return urandom

    return make


def shared_buffer(original: Any) -> Any:
    """Short requests are answered from a buffer that a fork copies."""
    kept = bytearray()

    def words(self: Any, count: int, dtype: Any) -> Any:
        size = count * np.dtype(dtype).itemsize
        if size > 4096:
            return original(self, count, dtype)
        if len(kept) < size:
            kept[:] = os.urandom(1 << 16)
        taken = bytes(kept[:size])
        del kept[:size]
        return np.frombuffer(taken, dtype).copy()

    return words


def every_block_the_same(fill: Any) -> Any:
    def weak(out: Any, key: bytes, counter: bytes) -> None:
        fill(out, key, counter)
        data = out.view(np.uint8)
        block = 1 << 20
        for start in range(block, len(data), block):
            piece = data[start : start + block]
            piece[:] = data[: len(piece)]

    return weak


def inverse_half(words: Any) -> Any:
    half = len(words) // 2
    words[len(words) - half :] = ~words[:half]
    return words


def dependent(words: Any) -> Any:
    odd = words[1::2]
    odd[:] = words[: 2 * len(odd) : 2] * words.dtype.type(5) + words.dtype.type(77)
    return words


def doubled_bytes(words: Any) -> Any:
    return (words & 255) * 257 if words.itemsize == 2 else words


def antithetic(noise: Any, x: Any) -> Any:
    half = len(noise) // 2
    noise[len(noise) - half :] = -noise[:half]
    return noise


def first_row(noise: Any, x: Any) -> Any:
    noise[:] = noise[:1]
    return noise


def bare_last(noise: Any, x: Any) -> Any:
    noise[-1] = 0
    return noise


def cut(noise: Any, x: Any) -> Any:
    reach = 4 * int(noise.std() + 1)
    return np.clip(noise, -reach, reach)


def half_after_2000(noise: Any, x: Any) -> Any:
    noise.reshape(-1)[2000:] //= 2
    return noise


def cleared(bits: Callable[[Any], int]) -> Callable[[Any], Any]:
    """A table whose words have no low bits, so that cells have no offset inside."""

    def weaken(original: Any) -> Any:
        def sample(table: CellTable, count: int, stream: Any) -> Any:
            mask = np.uint32((1 << 32) - (1 << bits(table)))
            turned = Turned(stream, lambda w: w & mask if w.dtype == np.uint32 else w)
            return original(table, count, turned)

        return sample

    return weaken


def half_the_boundaries(original: Any) -> Any:
    def buckets(table: CellTable) -> Any:
        made = original(table)
        starts = [end >> (table.bits - 16) for end in table.boundaries]
        split = np.unique([s for s in starts if made[s] == np.iinfo(np.int32).min]).astype(np.intp)
        made[split[::2]] = table.values[np.searchsorted(starts, split[::2], side="left")]
        return made

    return buckets


def unaligned_ties(table: CellTable, keys: Any, cells: Any, stream: Any) -> None:
    low_bits = table.bits - 64
    for i in np.flatnonzero((cells > 0) & (table.keys[cells - 1] == keys)):
        stream.words(-(-low_bits // 8), np.uint8)
        cells[i] = np.searchsorted(table.boundaries, int(keys[i]) << low_bits, side="right")


def loose_table(drop: Any, width: int, inner: int, cell_bits: int) -> CellTable:
    """A geometric table whose tail may be lighter than the level that it replaces."""
    with mpmath.workprec(384):
        ratio = mpmath.exp(-mpmath.mpf(drop))
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, 320)))
        half = 1 << 63
        start = int(mpmath.floor(half * (1 - ratio) / (inner + (width - inner) * ratio)))
    levels = max(1, math.ceil(-math.log(2.0**-20) / float(drop)))
    cells_on = [inner] + [width] * (levels - 1) + [width - inner]
    by_level = additive.chained(start - 1, ratio_up, 320, levels)
    tail = half - sum(cells * mass for cells, mass in zip(cells_on, by_level, strict=True))
    side = [mass for cells, mass in zip(cells_on, by_level, strict=True) for _ in range(cells)]
    masses = [tail, *reversed(side), *side, tail]
    return CellTable(masses, first=-len(side) - 1, bits=64, cell_bits=cell_bits, tails=True)


def steeper_high_digit(law: TwoDigitLaplace) -> None:
    with mpmath.workprec(384):
        masses = law.low.masses
        fall = law.drop + mpmath.log(mpmath.mpf(masses[0]) / masses[-1])
        law.high = additive.geometric_table(mpmath.mpf("1.02") * fall, 1, 1, 0)


def one_draw(source: Any, count: int, stream: Any) -> Any:
    return np.repeat(source.sample(1, stream), count)


def halved(source: Any, count: int, stream: Any) -> Any:
    return source.sample(count, stream) // 2


def sources(**changes: Any) -> dict[str, Callable[[Any], Any]]:
    """Parts of a law that are sources whose draws are changed."""
    return {
        name: (lambda law, name=name, change=change: Source(getattr(law, name), change))
        for name, change in changes.items()
    }


def flip_table(change: Callable[[Any], Any]) -> Plant:
    """Chances of flips that are others, by level."""

    def changed(law: FlipsByLevel) -> None:
        law.table = law.table.copy()
        law.table[1:] = change(law.table[1:])

    return then(FlipsByLevel, changed)


def farther(original: Any) -> Any:
    def perturb(law: FlipsByLevel, x: Any, stream: Any) -> Any:
        beyond = x + np.sign(x) * (law.weights * (1 << 12)).astype(x.dtype)
        return original(law, beyond, stream)

    return perturb


def paired(signs_: Any, law: Any, x: Any, stream: Any) -> Any:
    flips = signs_ ^ (x > 0)
    flips[:, 1::2] = flips[:, : flips.shape[1] // 2 * 2 : 2]
    return flips ^ (x > 0)


def no_ties(original: Any) -> Any:
    def flips(thresholds: Any, index: Any, stream: Any) -> Any:
        top = (thresholds >> np.uint64(48)).astype(np.uint16)[index.ravel()]
        words = stream.words(index.size, np.uint16)
        stream.words(np.count_nonzero(words == top), np.uint64)
        return (words < top).reshape(index.shape)

    return flips


def reciprocal(law: FlipsByLevel, x: Any, stream: Any) -> Any:
    level = np.abs(x) * (1.0 / (law.weights * (1 << 12))).astype(x.dtype)
    level = np.minimum(np.ceil(level), len(law.thresholds)).astype(np.intp)
    return (x > 0) ^ signs.draw_flips(law.table, level, stream)


def set_without_its_end(original: Any) -> Any:
    def perturbed(x: Any) -> Any:
        near = np.abs(x) < 1 << 12
        return near, np.count_nonzero(near, axis=1)

    return perturbed


def tables_of_cap(change: Callable[[Any], Any]) -> Plant:
    """Tables of a cap's law that are changed."""

    def weaken(original: Any) -> Any:
        return property(lambda law: change((law, original.func)))

    return instead(CapResponse, "tables", weaken)


def thin_cap(parts: Any) -> Any:
    law, tables = parts
    return tables(CapResponse(replace(law.cap, threshold=law.cap.threshold + 1)))


def short_shares(parts: Any) -> Any:
    law, tables = parts
    first, second = tables(law)
    return first, np.zeros_like(second)


def repeated_agreements(every: bool) -> Callable[[Any], Any]:
    """Blocks of a cap that reuse the draws before them: all, or the last and short one."""

    def weaken(original: Any) -> Any:
        def perturb(law: CapResponse, x: Any, stream: Any) -> Any:
            kept: list[Any] = []

            def agreements(count: int, stream: Any) -> Any:
                if not kept or (count < len(kept[0]) if every else count == len(kept[0])):
                    kept[:] = [CapResponse.agreements(law, count, stream)]
                return kept[0][:count]

            weak = copy(law)
            object.__setattr__(weak, "agreements", agreements)
            return original(weak, x, stream)

        return perturb

    return weaken


def one_coin(words: Any) -> Any:
    return np.repeat(words[:1], len(words)) if words.dtype == np.uint64 else words


def bare_sign(found: Any, law: Any, x: Any, stream: Any) -> Any:
    found[:, -1] = x[:, -1] >= 0
    return found


def bare_record(found: Any, law: Any, x: Any, stream: Any) -> Any:
    found[-1] = x[-1].argmax()
    return found


def late_weights(law: CapResponse) -> Any:
    weights = law.cap.weights
    return replace(law.cap, weights=(weights[0], *weights[:-1]))


def exchanged(best_cap: Any) -> Any:
    def weak(weights: Any, epsilon: float) -> Any:
        chance = sign_caps.two_level_chance
        with pytest.MonkeyPatch.context() as patch:
            swapped = lambda epsilon, likely, others: chance(epsilon, others, likely)  # noqa: E731
            patch.setattr(sign_caps, "two_level_chance", swapped)
            return best_cap(weights, epsilon)

    return weak


def half_word(limit: int, count: int, stream: Any) -> Any:
    high = stream.words(count, np.uint64) >> np.uint64(32)
    return (high * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def second_largest(sizes: RealisedSizes) -> Sensitivity:
    ordered = np.sort(sizes.rows, axis=1)
    return Sensitivity(*ordered[:, max(0, ordered.shape[1] - 2)].tolist())


def wrong_grid(original: Any) -> Any:
    def grid(spec: Spec) -> Any:
        made = original.func(spec)
        return replace(made, beta=spec.adjacency.size / spec.scale)

    return property(grid)


def fault_beyond_twice(fault: Any, grid: Grid, x: Any) -> Any:
    low, high = grid.limits
    return None if x.size and low <= x.min() and x.max() <= 2 * high else fault


def sparse_scaled(original: Any) -> Any:
    def checked(self: Any, block: Any, first: int) -> Any:
        rows = original(self, block, first)
        return rows * 1.5 if issparse(rows) else rows

    return checked


def normalised(original: Any) -> Any:
    def checked(self: Any, block: Any, first: int) -> Any:
        rows = original(self, block, first)
        if issparse(rows):
            return rows
        norms = np.sqrt((np.asarray(rows, np.float64) ** 2).sum(1))[:, None]
        return rows / np.maximum(norms, 1e-9)

    return checked


def first_block_alone(original: Any) -> Any:
    def checked(self: Any, block: Any, first: int) -> Any:
        return original(self, block, first) if first == 0 else self.scaled(block)

    return checked


def signs_in_unused_bits(codes: Any, coder: Any, x: Any, *_: Any) -> Any:
    if codes.format.name != "signs" or codes.k % 8 == 0:
        return codes
    stored = codes.stored.copy()
    stored[:, -1] |= (Projector(coder.spec).project(x)[:, 0] > 0).astype(np.uint8) << 7
    return codes.format.codes(stored)


def no_rounding_of_codes(original: Any) -> Any:
    """A ball's law made as if codes were not rounded: the cells that rounding moves are none."""

    def ball(*arguments: Any) -> Any:
        *most, moved = arguments
        root = math.sqrt
        pretended = SimpleNamespace(**{n: getattr(math, n) for n in dir(math) if n[0] != "_"})
        asked = count()
        pretended.sqrt = lambda x: 0.0 if x == moved and next(asked) else root(x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gaussian, "math", pretended)
            return original(*most, moved)

    return ball


def first_law(original: Any) -> Any:
    made: list[Any] = []

    def noise(epsilon: float) -> Any:
        made[:] = made or [original(epsilon)]
        return made[0]

    return noise


def seeded() -> Any:
    """A stream of a public seed, from its beginning."""
    words = np.random.default_rng(7)
    return SimpleNamespace(
        words=lambda n, t: words.integers(0, np.iinfo(t).max, n, dtype=t, endpoint=True)
    )


def rounded_up(found: Any, *_: Any) -> Any:
    """A map applied with 5 % too much."""
    return np.rint(found * found.dtype.type(1.05))


def told_less(made: Designed) -> None:
    sizes = made.sensitivity
    made.sensitivity = Sensitivity(
        sizes.count, int(0.95 * sizes.l1), int(0.95**2 * sizes.l2_squared)
    )


def without_a_column(made: Designed) -> None:
    """The heaviest attribute is not counted; the others are 5 % lighter than they were."""
    entries = made.entries
    heaviest = np.abs(entries.astype(np.int64)).sum(axis=1).argmax()
    made.entries = np.trunc(0.95 * entries).astype(entries.dtype)
    made.entries[heaviest] = entries[heaviest]
    counted = made.entries.copy()
    counted[heaviest] = 0
    rest = RealisedSizes(*entries.shape)
    rest.add(counted, slice(None), slice(None))
    made.sensitivity = rest.sensitivity


def late_centre(original: Any) -> Any:
    """The centre is subtracted from codes, whole cells of it, and not from what gets noise."""

    def privatize(self: Privatizer, x: Any, **how: Any) -> Any:
        centre = self.spec.offset
        if centre is None:
            return original(self, x, **how)
        weak = copy(self)
        weak.spec = copy(self.spec)
        vars(weak.spec)["offset"] = 0.0 * centre
        codes = original(weak, x, **how)
        cells = np.rint(centre / 2.0 ** getattr(self.spec.law, "cell_bits", 0))
        return self.spec.format.codes((codes.stored - cells).astype(codes.stored.dtype))

    return privatize


def shared_places(original: Any) -> Any:
    """Later blocks of a call draw by the words of the first one."""

    def draw(law: SoftmaxResponse, x: Any, stream: Any) -> Any:
        rows = max(1, symbols.SCORED_NUMBERS // law.size)

        def change(words: Any) -> Any:
            return np.resize(words[:rows], len(words)) if len(words) > rows else words

        return original(law, x, Turned(stream, change))

    return draw


def fast_fall(original: Any) -> Any:
    """Each weight is rounded down, so that a step may lose more than it must."""

    def weights(loss: Any, top: int = symbols.TOP) -> Any:
        found = original(loss, top).copy()
        found[1:] = np.maximum(found[1:] - 1, 1)
        return found

    return weights


def all_of_it(original: Any) -> Any:
    """Weights of a table that spend what is held back for draws, too."""
    return lambda loss, top=symbols.TOP: original(loss * Fraction(1 << 16, (1 << 16) - 1), top)


def bare_count(original: Any) -> Any:
    def release(self: RaceSketch) -> RaceSketch:
        first = secret_counts(self)[0, 0].copy()
        original(self)
        self.released.counts[0, 0] = first
        return self

    return release


def unclipped(numpy: Any) -> Any:
    """NumPy for a module, whose clip of single numbers clips nothing."""

    class Unclipped:
        def __getattr__(self, name: str) -> Any:
            return getattr(numpy, name)

        @staticmethod
        def clip(values: Any, *limits: Any) -> Any:
            return values

    return Unclipped()


CONVOLUTION = ("test_codes_are_the_convolution_of_cells_and_dither",)
PATHS_STAIRCASE = ("test_what_ships_passes[dp-oporp-staircase]",)
PATHS_CAP = ("test_what_ships_passes[record-cap]",)
LARGE = ("test_several_tasks_chunks_and_files_pass[dp-oporp-staircase]",)
LARGE_CAP = ("test_several_tasks_chunks_and_files_pass[record-cap]",)
LARGE_SOFTMAX = ("test_several_tasks_chunks_and_files_pass[codebook-softmax]",)
ORACLE = ("test_codes_are_those_of_the_oracle",)
NIST = ("test_known_answer_of_nist",)
NO_STRETCH = ("test_no_stretch_of_noise_comes_twice",)
PLACES = ("test_codes_are_those_of_the_oracle[raw-square-wave-dense]",)
THRESHOLDS = ("test_codes_are_those_of_the_oracle[dp-signoporp-geometric-dense]",)
LARGEST_SUMS = (
    "test_codes_are_those_of_the_oracle"
    "[dp-signoporp-geometric,adjacency=attribute(beta=0.02),bounds=(-2.0, 2.0)-dense]",
)
CAP_CODES = ("test_codes_are_those_of_the_oracle[record-cap-dense]",)
CAP_RATIO = ("test_a_cap_is_counted_and_its_ratio_is_within_epsilon",)
SYMBOL_CHANCES = ("test_codes_are_those_of_the_oracle[record-codebook-dense]",)
BUCKETS = ("test_words_on_either_side_of_every_boundary_draw_the_cell_that_it_ends",)
MOVES_IN_WINDOW = ("test_no_change_of_an_attribute_moves_integers_by_more_than_the_law_was_told",)
WINDOWED_CODES = ("test_codes_are_those_of_the_oracle[codebook-softmax,window=0.7-dense]",)
MOVES_NO_MORE = ("test_released_integers_move_by_no_more_than_the_law_was_told",)
FALLS = ("test_the_table_never_falls_by_more_than_its_loss",)
SOFTMAX_DRAWS = (
    "test_codes_are_those_of_the_oracle[codebook-softmax-dense]",
    "test_codes_are_those_of_the_oracle"
    "[codebook-softmax,epsilon=30.0,scale=255.0,record_epsilon=8.0-dense]",
)
WIDE_BALL = (
    "test_codes_are_those_of_the_oracle[row-rp-g-opt,dim=5,k=7,bounds=(-1.0, 100.0)-dense]",
    "test_every_boundary_of_every_table[row-rp-g-opt]",
)
TAIL = (
    "test_any_number_of_draws",
    "test_codes_are_those_of_the_oracle[dp-oporp-staircase-dense]",
)

MECHANISM = [
    # The budget of draws and the room of codes
    Mutant("softmax", "nothing is held back for draws",
           ("test_softmax_draws_of_any_number_of_codewords_are_verified",),
           everywhere(symbols, "falling_weights", all_of_it), MANY),
    Mutant("design", "a centre outside the bounds is taken as it is",
           ("test_a_centre_outside_the_bounds_counts_as_the_nearest_point_within",),
           instead(mechanism_spec, "np", unclipped)),
    # The sampler
    Mutant("sampler", "noise divided by 100", CONVOLUTION, draws(lambda n, x: n // 100), STAIRCASE),
    Mutant("sampler", "noise × 0.9", CONVOLUTION, draws(lambda n, x: n * 0.9), GAUSS),
    Mutant("sampler", "antithetic half-batches", CONVOLUTION, draws(antithetic), STAIRCASE),
    Mutant("sampler", "large batches × 0.8", LARGE,
           draws(lambda n, x: n * 0.8 if x.size > 100_000 else n)),
    Mutant("sampler", "one noise for all rows", CONVOLUTION, draws(first_row), STAIRCASE),
    Mutant("sampler", "last row of a task without noise", CONVOLUTION, draws(bare_last), STAIRCASE),
    Mutant("sampler", "no noise on exact zeros", CONVOLUTION,
           draws(lambda n, x: np.where(x == 0, 0, n)), STAIRCASE),
    Mutant("sampler", "draws cut at four deviations", ("test_shapes_are_kept",), draws(cut)),
    Mutant("sampler", "half the noise after 2000 draws", PATHS_STAIRCASE, draws(half_after_2000)),
    Mutant("sampler", "tails never extended", TAIL,
           instead(CellTable, "extend_tails", lambda _: lambda *a: None), STAIRCASE),
    Mutant("sampler", "refined draws take the bucket's first cell", BUCKETS,
           other_words(CellTable, "refined", lambda w: w * 0 if w.itemsize == 8 else w)),
    Mutant("sampler", "dither lost", TAIL,
           instead(CellTable, "sample", cleared(lambda t: t.cell_bits)), STAIRCASE),
    Mutant("sampler", "tails drawn again without their period", TAIL,
           with_parts(CellTable, "extend_tails", period=lambda _: 0), STAIRCASE),
    Mutant("sampler", "every second boundary lies at a bucket's edge", BUCKETS,
           instead(CellTable, "bucket_table", half_the_boundaries), STAIRCASE),
    Mutant("sampler", "ties of a wide table read unaligned bits", BUCKETS,
           instead(CellTable, "settle_ties", lambda _: unaligned_ties), GAUSS),
    Mutant("sampler", "refined draws have no dither",
           TAIL,
           instead(CellTable, "refined", lambda f: lambda t, b, o, s: f(t, b, 0 * o, s)),
           STAIRCASE),
    Mutant("sampler", "ratio of the staircase e^{1.05 ε}",
           ("test_neighbours_differ_by_at_most_e_to_the_epsilon",),
           everywhere(additive, "staircase_noise", lambda f: lambda e: f(1.05 * e)), STAIRCASE),
    Mutant("sampler", "laws know epsilon to one digit",
           ("test_low_a_law_knows_every_digit_of_epsilon",),
           everywhere(additive, "staircase_noise", lambda f: lambda e: f(round(e, 1))),
           {**STAIRCASE, "epsilon": 0.96}),
    Mutant("sampler", "the first law of a process serves every epsilon",
           ("test_low_a_law_knows_every_digit_of_epsilon",),
           everywhere(additive, "staircase_noise", first_law)),
    Mutant("sampler", "a tail may be lighter than its level",
           ("test_neighbours_differ_by_at_most_e_to_the_epsilon",),
           everywhere(additive, "geometric_table", lambda _: loose_table), STAIRCASE),
    Mutant("sampler", "Gaussian sigma × 0.95", ("test_attribute_noise_covers_the_worst_change",),
           everywhere(gaussian, "realised_noise", lambda f: lambda s, *a: f(0.95 * s, *a)), GAUSS),
    Mutant("sampler", "a Gaussian for twice delta",
           ("test_attribute_noise_covers_the_worst_change",),
           everywhere(gaussian, "optimal_sigma", lambda f: lambda e, d: f(e, 2 * d)), GAUSS),
    Mutant("sampler", "the fine digit of a Gaussian counted twice",
           WIDE_BALL,
           everywhere(gaussian, "discrete_gaussian_table",
                      lambda f: lambda s, bits: f(math.sqrt(s**2 - 16.0), bits)), BALL),
    Mutant("sampler", "a ball's noise forgets that codes are rounded",
           ("test_ball_noise_covers_the_worst_direction",),
           everywhere(gaussian, "ball_noise", no_rounding_of_codes), BALL),
    Mutant("sampler", "two digits of a Laplace law, the low one a constant",
           ("test_codes_of_every_width",),
           with_parts(TwoDigitLaplace, "sample", **sources(low=one_draw)), LAPLACE),
    Mutant("sampler", "the high digit of a Laplace law 2 % steeper",
           ("test_every_step_of_the_wide_laplace_loses_at_most_the_drop",),
           then(TwoDigitLaplace, steeper_high_digit), LAPLACE),
    Mutant("sampler", "digits of a Laplace law overlap",
           ("test_codes_of_every_width",),
           with_parts(TwoDigitLaplace, "sample", digit=lambda law: law.digit - 1), LAPLACE),
    Mutant("sampler", "square wave clipped one cell early", PLACES, wave(clip=1), SQUARE),
    Mutant("sampler", "square wave drawn without its window's end", PLACES, wave(window=1), SQUARE),
    Mutant("sampler", "one free point of the square wave never drawn", PLACES, wave(free=1),
           SQUARE),
    Mutant("sampler", "the window of a square wave is cut at its top", PLACES, wave(top=True),
           SQUARE),
    Mutant("sampler", "biased uniform draws",
           PLACES,
           everywhere(waves, "draw_below", below(False, True)), SQUARE),
    Mutant("sampler", "rejected draws take another limit",
           PLACES,
           everywhere(waves, "draw_below", below(True, False)), SQUARE),
    Mutant("sampler", "flip thresholds × 0.9", THRESHOLDS,
           flip_table(lambda t: t // np.uint64(10) * np.uint64(9)), FLIPS),
    Mutant("sampler", "the largest sums are never flipped", LARGEST_SUMS,
           flip_table(lambda t: np.append(t[:-1], np.uint64(0))), LEVELS),
    Mutant("sampler", "flips one level too far", THRESHOLDS,
           instead(FlipsByLevel, "perturb", farther), LEVELS),
    Mutant("sampler", "levels ignore the weights of coordinates", ORACLE,
           with_parts(FlipsByLevel, "perturb", weights=lambda law: np.ones_like(law.weights)),
           SPARSE_SIGNS),
    Mutant("sampler", "levels by a reciprocal", ("test_low_levels_by_a_reciprocal",),
           instead(FlipsByLevel, "perturb", lambda _: reciprocal), SPARSE_SIGNS),
    Mutant("sampler", "empty bins get no coin", THRESHOLDS,
           after(FlipsByLevel, "perturb", lambda s, law, x, _: s & (x != 0)), FLIPS),
    Mutant("sampler", "one coin for two signs", ORACLE, after(FlipsByLevel, "perturb", paired),
           FLIPS),
    Mutant("sampler", "flips that tie are none", THRESHOLDS,
           everywhere(signs, "draw_flips", no_ties), FLIPS),
    Mutant("sampler", "iDP: the perturbed set is too small",
           ("test_idp_flips_only_inside_a_and_tosses_for_zero",),
           everywhere(papers_signs, "perturbed_set", lambda f: lambda x: f(2 * x)), INSIDE),
    Mutant("sampler", "iDP: a sum of one beta is left out of the perturbed set",
           ("test_idp_flips_only_inside_a_and_tosses_for_zero",),
           everywhere(papers_signs, "perturbed_set", set_without_its_end), INSIDE),
    Mutant("sampler", "iDP: noise halved inside the set",
           ("test_idp_gaussian_moves_no_further_than_its_noise_is_made_for",),
           with_parts(IndividualGaussian, "perturb", **sources(table=halved)), INSIDE_GAUSS),
    Mutant("sampler", "epsilon is shared by one sign too few", ("test_counts",),
           everywhere(papers_signs, "quantile_count", lambda f: lambda *a: f(*a) - 1), COUNTED),
    Mutant("sampler", "iDP: signs do not share epsilon",
           ("test_idp_product_of_ratios_over_a_fixed_set",),
           everywhere(signs, "response_threshold", lambda f: lambda e, size=1: f(e)), INSIDE),
    Mutant("sampler", "iDP: coordinates magnified twice",
           ("test_idp_gaussian_moves_no_further_than_its_noise_is_made_for",),
           then(IndividualGaussian, lambda law: setattr(law, "multipliers", 2 * law.multipliers)),
           INSIDE_GAUSS),
    # The chain from a vector to a code
    Mutant("chain", "grid step too small",
           ("test_one_beta_moves_at_most_two_to_the_bits_near_ties",),
           instead(grid, "SLACK", lambda _: 1.0 + 2.0**-10), STAIRCASE),
    Mutant("chain", "a factor of the grid is a little large",
           ("test_one_beta_moves_at_most_two_to_the_bits_near_ties",),
           instead(Grid, "round", lambda f: lambda g, x: f(g, x * g.dtype(1.0001)))),
    Mutant("chain", "a change within narrow bounds × 0.95",
           ("test_a_change_is_no_wider_than_the_bounds",),
           instead(Parameters, "change", lambda p: property(lambda s: 0.95 * p.fget(s))),
           {**STAIRCASE, "bounds": (-0.1, 0.1)}),
    Mutant("chain", "values beyond the bounds let in",
           ("test_a_bound_in_the_data_own_precision_is_no_fault",),
           after(Grid, "first_fault", fault_beyond_twice)),
    Mutant("chain", "what is clipped may be no number", ("test_first_fault_names_place_and_kind",),
           after(Grid, "first_fault", lambda fault, grid, x: None if grid.clip else fault)),
    Mutant("chain", "whole numbers beyond the bounds are taken",
           ("test_a_value_out_of_bounds_is_placed_and_never_shown",),
           after(Grid, "first_fault", lambda f, grid, x: None if x.dtype.kind in "iu" else f)),
    Mutant("chain", "the grid is that of unscaled attributes",
           ("test_finding_3_a_guarantee_is_in_the_units_of_the_data",),
           instead(Spec, "grid", wrong_grid), SCALED),
    Mutant("chain", "a guarantee in units of scaled attributes",
           ("test_finding_3_a_guarantee_is_in_the_units_of_the_data",),
           instead(Spec, "guarantee", lambda p: property(
               lambda s: replace(p.fget(s), adjacency=s.adjacency))),
           {**SCALED, "scale": 0.01}),
    Mutant("chain", "a delta over the projection is said to be over the noise",
           ("test_low_a_delta_over_the_projection_is_stated",),
           instead(Spec, "guarantee", lambda p: property(
               lambda s: replace(p.fget(s), delta_over="noise")))),
    Mutant("chain", "a ball's noise forgets that attributes are rounded",
           ("test_the_ball_reaches_every_pair_on_the_grid",),
           everywhere(grid, "neighbour_distance", lambda _: lambda r, bits, *a: 2.0**bits),
           BALL),
    Mutant("chain", "one sign of the map doubled", ORACLE,
           then(Oporp, lambda map_: map_.signs.__setitem__((slice(None), 0), 2)), STAIRCASE),
    Mutant("chain", "sparse rows use other bins",
           ("test_rows_are_projected_exactly_in_any_layout",),
           after(Oporp, "apply_sparse", lambda out, *_: np.roll(out, 1, axis=1)), STAIRCASE),
    Mutant("chain", "the sensitivity is that of one repetition",
           ("test_sensitivities_by_brute_force",),
           then(Oporp, lambda map_: setattr(map_, "sensitivity", Sensitivity.of_signs(1))),
           THREEFOLD),
    Mutant("chain", "the sensitivity is that of the second largest row",
           ("test_sensitivities_by_brute_force",),
           instead(RealisedSizes, "sensitivity", lambda _: property(second_largest)), UNEVEN),
    Mutant("chain", "an operator norm × 0.95", ("test_operator_norms_bound_every_direction",),
           everywhere(dense, "operator_norm", lambda f: lambda entries: 0.95 * f(entries)),
           WHOLE_DENSE),
    Mutant("chain", "sparse rows are half as large again",
           ("test_every_dtype_gives_the_same_bits",),
           instead(Projector, "checked_rows", sparse_scaled)),
    Mutant("chain", "rows normalised before the grid", PATHS_STAIRCASE,
           instead(Projector, "checked_rows", normalised)),
    Mutant("chain", "the first block of a call is checked alone", LARGE,
           instead(Projector, "checked_rows", first_block_alone)),
    Mutant("chain", "sparse vectors are not looked at",
           ("test_duplicate_and_unsorted_sparse_entries_are_one_attribute",),
           instead(mechanism_spec, "check_values",
                   lambda f: lambda b, *rest: None if issparse(b) else f(b, *rest))),
    Mutant("chain", "min_norm is that before clipping",
           ("test_low_min_norm_is_that_after_clipping",),
           instead(Projector, "norms", lambda f: lambda p, block, clip=False: f(p, block))),
    Mutant("chain", "short vectors pass min_norm", ("test_what_ships_passes[dp-signrp-rr]",),
           everywhere(papers_signs, "norm_slack",
                      lambda f: lambda p: f(p) + 0.1 * (p.variant.min_norm or 0.0))),
    Mutant("chain", "bare empty bins on the sparse path", NO_STRETCH,
           outcomes(numbers(lambda t, bare: np.where(
               issparse(t.x) & (t.exact == 0), 0, t.outcomes)))),
    Mutant("chain", "tasks after the first get half the noise",
           LARGE,
           outcomes(numbers(lambda t, bare: (t.outcomes + t.law.perturb(t.exact, t.stream)) // 2
                            if t.number else t.outcomes))),
    Mutant("chain", "no noise for a single vector", NO_STRETCH,
           outcomes(numbers(lambda t, bare: bare if len(bare) == 1 else t.outcomes))),
    Mutant("chain", "wide codes lose their noise", ORACLE,
           outcomes(numbers(lambda t, bare: np.where(np.abs(bare) > 100, bare, t.outcomes)))),
    Mutant("chain", "half the noise for float32", PATHS_STAIRCASE,
           outcomes(numbers(lambda t, bare: (t.outcomes + bare) // 2
                            if t.x.dtype == np.float32 else t.outcomes))),
    Mutant("chain", "no noise for bytes", PATHS_STAIRCASE,
           outcomes(numbers(lambda t, bare: bare if t.x.dtype == np.uint8 else t.outcomes))),
    Mutant("chain", "unused bits of a code hold a sign", ORACLE,
           after(Privatizer, "privatize", signs_in_unused_bits)),
    Mutant("chain", "all tasks read one word stream anew", PATHS_STAIRCASE,
           everywhere(secret_random, "secret_stream", lambda _: seeded)),
    # The secret stream
    Mutant("stream", "key from the clock", NIST,
           system_bytes(lambda: lambda n: time.time_ns().to_bytes(n, "little"))),
    Mutant("stream", "key of two bytes", NIST,
           system_bytes(lambda: lambda n: os.urandom(2) * (n // 2))),
    Mutant("stream", "one key for all threads", NIST, system_bytes(kept_key()), STAIRCASE),
    Mutant("stream", "no new key after a fork", NIST, system_bytes(kept_key(counted=True)),
           STAIRCASE),
    Mutant("stream", "one key and counter for a hundred draws", NIST, system_bytes(kept_key(100)),
           STAIRCASE),
    Mutant("stream", "words of a buffer that forks share", NIST,
           instead(SecretStream, "words", shared_buffer), STAIRCASE),
    Mutant("stream", "every block the same", ("test_a_request_of_any_size_is_one_key_stream",),
           everywhere(secret_random, "fill", every_block_the_same)),
    Mutant("stream", "second half the inverse of the first", NIST, secret_words(inverse_half)),
    Mutant("stream", "one bit always zero", NIST,
           secret_words(lambda w: w & w.dtype.type(np.iinfo(w.dtype).max >> 1))),
    Mutant("stream", "sixteen bits are eight bits twice", NIST, secret_words(doubled_bytes)),
    Mutant("stream", "every second word follows from the one before", NIST,
           secret_words(dependent)),
    # Whole records
    Mutant("record", "cap for 1.05 ε", CAP_RATIO,
           everywhere(sign_caps, "best_cap", lambda f: lambda w, e: f(w, 1.05 * e)), CAP),
    Mutant("record", "the sizes of a cap and of the rest are exchanged", CAP_RATIO,
           everywhere(sign_caps, "best_cap", exchanged), CAP),
    Mutant("record", "chances of two levels are rounded up", CAP_RATIO,
           everywhere(laws, "two_level_chance",
                      lambda f: lambda *a: f(*a) + 1), CAP),
    Mutant("record", "cap drawn one level higher than counted", CAP_CODES, tables_of_cap(thin_cap),
           CAP),
    Mutant("record", "shares of a cap have sixteen bits", CAP_CODES,
           tables_of_cap(short_shares), CAP),
    Mutant("record", "cap drawn without ranks", CAP_CODES,
           everywhere(sign_caps, "by_size", lambda _: lambda rows: np.tile(
               np.arange(rows.shape[1]), (len(rows), 1))), CAP),
    Mutant("record", "one coin for all records of a cap", CAP_CODES,
           other_words(CapResponse, "agreements", one_coin), CAP),
    Mutant("record", "last sign of a cap code without noise", CAP_CODES,
           after(CapResponse, "perturb", bare_sign), CAP),
    Mutant("record", "sums of a cap are a weight behind", CAP_CODES,
           with_parts(CapResponse, "agreements", tables=lambda law: law.tables,
                      cap=late_weights), CAP),
    Mutant("record", "ties of a share count as the minority",
           CAP_CODES,
           instead(CapResponse, "settled",
                   lambda _: lambda law, share, *a: np.ones(len(share), np.bool_)), CAP),
    Mutant("record", "blocks of a cap share their draws", LARGE_CAP,
           instead(CapResponse, "perturb", repeated_agreements(True))),
    Mutant("record", "the last block of a cap reuses the draws before it", LARGE_CAP,
           instead(CapResponse, "perturb", repeated_agreements(False))),
    Mutant("record", "tiny records keep their signs", PATHS_CAP,
           outcomes(caps(lambda largest: largest < 1e-6))),
    Mutant("record", "values over 1000 always inside the cap", PATHS_CAP,
           outcomes(caps(lambda largest: largest > 1000))),
    Mutant("record", "codebook for 1.05 ε",
           ("test_the_ratio_is_within_epsilon_and_as_large_as_can_be",),
           everywhere(laws, "uniform_share", lambda f: lambda size, e, *a: f(size, 1.05 * e, *a)),
           SYMBOLS),
    Mutant("record", "the uniform share of a set that has one more",
           ("test_the_ratio_is_within_epsilon_and_as_large_as_can_be",),
           everywhere(laws, "uniform_share", lambda f: lambda size, e, likely=1: f(
               size, e, likely + 1)), SYMBOLS),
    Mutant("record", "one of the nearest codewords never drawn", SYMBOL_CHANCES, symbol(less=1),
           SYMBOLS),
    Mutant("record", "one word decides the set and the codeword in it", SYMBOL_CHANCES,
           symbol(one_word=True), SYMBOLS),
    Mutant("record", "the coin of a codebook always begins with 1", SYMBOL_CHANCES,
           symbol(coin=lambda words: words | np.uint64(1 << 63)), SYMBOLS),
    Mutant("record", "last record reported as it is", SYMBOL_CHANCES,
           after(SymbolLaw, "perturb", bare_record), SYMBOLS),
    Mutant("record", "symbols drawn from eight bits", SYMBOL_CHANCES,
           everywhere(laws, "draw_uniform", lambda f: lambda limit, n, s: f(
               limit, n, Turned(s, lambda w: w >> np.uint64(56) << np.uint64(56)))), SYMBOLS),
    Mutant("record", "symbols drawn from half a word", SYMBOL_CHANCES,
           everywhere(laws, "draw_uniform", lambda _: half_word), SYMBOLS),
    # Designs
    Mutant("design", "a matrix applied with 5 % too much", MOVES_NO_MORE,
           after(Designed, "apply", rounded_up), DESIGN),
    Mutant("design", "the law is told 5 % less than an attribute moves", MOVES_NO_MORE,
           then(Designed, told_less), DESIGN_GAUSS),
    Mutant("design", "the heaviest column is left out of the bound", MOVES_NO_MORE,
           then(Designed, without_a_column), DESIGN_SIGNS),
    Mutant("design", "columns may weigh 5 % more",
           ("test_one_entry_too_many_is_refused_whatever_the_file_claims",),
           everywhere(public_parts, "column_weight", lambda f: lambda *a: f(*a) * 0.95)),
    Mutant("design", "entries of the matrix rounded away from zero",
           ("test_columns_are_never_heavier_than_one",),
           everywhere(optimiser, "in_integers", lambda _: lambda w, *a: np.asarray(
               np.sign(w) * np.ceil(256 * np.abs(w)), np.int16))),
    Mutant("design", "a centre between two steps",
           ("test_the_centre_is_subtracted_in_whole_steps",),
           instead(Spec, "offset", lambda f: property(
               lambda spec: f.func(spec) + 0.5 if spec.design is not None else None)), DESIGN),
    Mutant("design", "the centre applied after the noise",
           ("test_codes_are_those_of_the_oracle[dp-designed-laplace-dense]",),
           instead(Privatizer, "privatize", late_centre)),
    # Windows
    Mutant("windows", "a window is one step too narrow for its noise", MOVES_IN_WINDOW,
           placed(lambda p: Placed(p.factor, p.low, p.top + 1)), WINDOWED),
    Mutant("windows", "a wide window is five percent finer than its noise", MOVES_IN_WINDOW,
           placed(lambda p: Placed(p.factor * p.factor.dtype.type(1.05), p.low, p.top)), WINDOWED),
    Mutant("windows", "attributes are scaled by the window of another", WINDOWED_CODES,
           placed(lambda p: Placed(*(values[::-1].copy() for values in p))), WINDOWED),
    Mutant("windows", "entries of W are divided by a width", MOVES_IN_WINDOW,
           instead(Designed, "apply", lambda f: lambda matrix, x: f(
               matrix, x * (1 + np.eye(1, x.shape[1], 4, dtype=x.dtype)))), WINDOWED),
    Mutant("windows", "a window is ignored at the centre", ("test_what_ships_is_proved",),
           instead(Spec, "offset", centre_outside_windows), WINDOWED),
    Mutant("windows", "vectors are not clipped", MOVES_IN_WINDOW,
           instead(Grid, "in_windows", in_no_window), WINDOWED),
    Mutant("windows", "sparse rows are not clipped", MOVES_IN_WINDOW,
           instead(Grid, "in_windows", lambda f: lambda grid, x, attributes=None: (
               f(grid, x) if attributes is None else in_no_window(f)(grid, x, attributes))),
           WINDOWED),
    Mutant("windows", "they lie about the mean of the private vectors", WINDOWED_CODES,
           instead(Grid, "in_windows", lambda f: lambda grid, x, attributes=None: f(
               grid, x if attributes is not None else x - x.mean(axis=0) / 20, attributes)),
           WINDOWED),
    Mutant("windows", "those of a file forget for which beta they were made",
           ("test_windows_for_another_beta_are_refused",),
           lambda patch: patch.setattr(
               public_parts, "Windows", lambda low, width, beta: Windows(low, width, 1.0))),
    # Softmax codebooks
    Mutant("softmax", "scores scaled by 1.05", SOFTMAX_DRAWS,
           instead(SoftmaxResponse, "draw", lambda f: lambda law, x, s: f(
               law, np.rint(x * x.dtype.type(1.05)), s)), SOFTMAX),
    Mutant("softmax", "the table falls for 1.05 ε", FALLS,
           everywhere(symbols, "falling_weights", lambda f: lambda loss, *a: f(
               loss * 105 / 100, *a)), SOFTMAX),
    Mutant("softmax", "the verifier counts two steps of the table too few",
           ("test_a_table_for_one_step_less_is_refused",),
           instead(SoftmaxVerifier, "steps", lambda f: lambda verifier: f(verifier) - 2)),
    Mutant("softmax", "weights of the table rounded down", FALLS,
           everywhere(symbols, "falling_weights", fast_fall), SOFTMAX),
    Mutant("softmax", "the uniform share × 0.95",
           ("test_the_uniform_share_keeps_records_apart_by_no_more",),
           everywhere(laws, "uniform_share", lambda f: lambda *a: f(*a) * 95 // 100), SOFTMAX),
    Mutant("softmax", "the uniform symbol is never drawn", SOFTMAX_DRAWS,
           with_parts(SymbolLaw, "perturb", uniform=lambda _: 0), SOFTMAX),
    Mutant("softmax", "the distance of two codewords × 0.95",
           ("test_what_neighbours_move_is_read_off_the_map",),
           instead(CodewordScores, "distance", lambda f: property(
               lambda scores: 0.95 * f.func(scores))), SOFTMAX_BALL),
    Mutant("softmax", "one attribute weighs twice", ("test_scores_are_exact_in_any_layout",),
           instead(Matrix, "apply", lambda f: lambda matrix, x: f(
               matrix, x + isinstance(matrix, CodewordScores) * np.eye(1, x.shape[1], 2) * x
           )), SOFTMAX),
    Mutant("softmax", "codewords drawn from sixteen bits", SOFTMAX_DRAWS,
           everywhere(laws, "high_product", lambda f: lambda words, limits: f(
               words >> np.uint64(48) << np.uint64(48), limits)), SOFTMAX),
    Mutant("softmax", "later blocks draw by the words of the first", LARGE_SOFTMAX,
           instead(SoftmaxResponse, "draw", shared_places)),
    # Counts of sketches
    Mutant("RACE", "epsilon is that of one row", ("test_pure_law_is_exact",),
           everywhere(gaussian, "count_noise", lambda f: lambda e, d, rows, *a: f(e, d, 1, *a)),
           SKETCH),
    Mutant("RACE", "directions that are no integers", ("test_known_answers",),
           then(Hasher, lambda hasher: hasher.whole_directions.__iadd__(2.0**-8)), SKETCH),
    Mutant("RACE", "one count is released as it is", ("test_release_adds_the_law_once",),
           instead(RaceSketch, "release", bare_count), SKETCH),
    Mutant("RACE", "a replaced record counts as one change", ("test_pure_law_is_exact",),
           everywhere(gaussian, "count_noise",
                      lambda f: lambda e, d, r, w, n: f(e, d, r, w, "add-remove")), REPLACED),
]  # fmt: skip
"""Those of laws, of the chain from a vector to a code, and of the secret stream."""

GONE = {
    "checked rows get one noise": "no release skips the check of values any more: it is "
    "part of the draw, so that there are no rows which were checked before",
}
"""Weaknesses of parts that no longer exist, and why."""

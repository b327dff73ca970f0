"""Released codes against the second implementation in ``oracle.py``, bit for bit, on known words.

Every method of the table; ways by which codes are released are those of ``self_test``. That
nothing smaller than a bit passes needs no weakness to show it; ``bench/mutants.py`` plants those
that these tests must notice.
"""

import ast
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.common import Scripted, codebook, designed, example, needed
from numpy.random import default_rng
from scipy import sparse

import dpindex as dpi
import dpindex.mechanism.privatizer
from dpindex import Privatizer, Spec, attribute, l2
from dpindex.base.errors import InputError
from dpindex.mechanism.noise.additive import CellTable
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.response import FlipsByLevel
from dpindex.mechanism.noise.symbols import CodebookResponse
from independent import oracle
from independent.oracle import DisagreementError, Oracle, Words

ROWS = {row.name: row for row in dpi.methods()}
DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Case:
    """A spec by its method and what differs from the example of ``specs.py``."""

    method: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def spec(self):
        return example(ROWS[self.method], **dict(self.changes))

    def __str__(self):
        changes = [f"{name}={value}" for name, value in self.changes]
        return ",".join([self.method, *changes])


def case(method, **changes):
    return Case(method, tuple(changes.items()))


EVERY = [Case(name) for name in ROWS]
BY_LAW = {row.calibration: row.name for row in ROWS.values() if row.private}
LAWS = [Case(name) for name in BY_LAW.values()]
"""A method of each law."""

VARIANTS = [
    case("raw-gaussian", adjacency=l2(2.0)),
    case("raw-gaussian", epsilon=64.0, delta=1e-30),
    case("raw-laplace", epsilon=64.0, bounds=(0.1, 0.7)),
    case("raw-laplace", epsilon=0.001, dim=3, k=None),
    case("raw-staircase", epsilon=12.0),
    case("raw-staircase", epsilon=0.03, dim=3, k=None),
    case("raw-square-wave", epsilon=0.5, bounds=(0.1, 0.7)),
    case("raw-square-wave", epsilon=6.0, bounds=(-127.0, 128.0), adjacency=attribute(255.0)),
    case("raw-square-wave-narrow", epsilon=0.5, bounds=(-0.3, 0.3)),
    case("dp-rp-g", delta=1e-20, entries="very-sparse"),
    case("dp-rp-g-opt", entries="rademacher"),
    case("dp-rp-l", epsilon=0.2),
    case("dp-rp-l", entries="uniform"),
    case("dp-rp-l", entries="rademacher", dim=1, k=1),
    case("dp-rp-l", entries="very-sparse", sparsity=3),
    case("dp-oporp-laplace", dim=23, k=5, seed=2**63 - 1),
    case("dp-oporp-laplace", dim=9, k=9),
    case("dp-oporp-laplace", dim=300, k=150, bounds=(-0.3, 0.3)),
    case("dp-oporp-laplace", bounds=(-40.0, 40.0)),
    case("dp-oporp-laplace", bounds=(-0.3, 0.6), clip=True),
    case("dp-oporp-staircase", adjacency=attribute(0.3), scale=255.0),
    case("dp-sjlt-laplace", k=6, sparsity=3),
    case("dp-fjlt-gaussian", dim=19, k=5),
    case("row-rp-g-opt", dim=5, k=7, bounds=(-1.0, 100.0)),
    case("row-rp-g-direct", adjacency=l2(0.2), epsilon=8.0),
    case("row-oporp-g", dim=23, k=5),
    case("dp-designed-laplace", epsilon=0.01, bounds=(0.0, 3.0)),
    case("dp-designed-laplace", adjacency=attribute(0.3), scale=255.0),
    case("dp-designed-laplace", epsilon=40.0, bounds=(0.1, 0.2), clip=True),
    case("dp-signdesigned-geometric", epsilon=0.3, adjacency=attribute(0.02)),
    case("dp-signdesigned-geometric", epsilon=3.0, design=designed(24, signs=True)),
    case("dp-designed-laplace", design=designed(24, window=0.7)),
    case("dp-designed-gaussian", design=designed(24, gaussian=True, window=1.4), scale=255.0),
    case(
        "dp-designed-laplace",
        design=designed(24, window=2.0, beta=0.1),
        bounds=(0.1, 0.2),
        clip=True,
    ),
    case(
        "dp-designed-laplace",
        design=designed(24, window=2.0, beta=0.02),
        adjacency=attribute(0.02),
    ),
    case("dp-signdesigned-geometric", design=designed(24, signs=True, window=0.3)),
    # Of so many signs one more can change because attributes and entries are rounded.
    case("dp-signrp-rr", delta=1e-6, entries="gaussian", min_norm=2.0, k=75),
    case("dp-signrp-rr", entries="very-sparse"),
    case("dp-signrp-rr-smooth", entries="gaussian", epsilon=20.0),
    case("dp-signrp-rr-smooth", entries="very-sparse", sparsity=2),
    case("dp-signrp-geometric", entries="uniform", epsilon=30.0),
    case("dp-signoporp-rr", repetitions=2),
    case("dp-signoporp-rr", repetitions=3, dim=9, k=27),
    case("dp-signoporp-rr", repetitions=64, dim=33, k=1024),
    case("dp-signoporp-rr", dim=65, k=64),
    case("dp-signoporp-rr-smooth", repetitions=4, adjacency=attribute(0.1)),
    case("dp-signoporp-geometric", repetitions=2, dim=23, k=10, adjacency=attribute(0.25)),
    case("dp-signoporp-geometric", adjacency=attribute(0.02), bounds=(-2.0, 2.0)),
    case("idp-signrp-rr", dim=3, k=13),
    case("idp-signrp-g", dim=3, k=13),
    case("record-cap", epsilon=0.01),
    case("record-cap", epsilon=40.0, seed=7),
    case("record-cap", dim=70, k=136, epsilon=6.0),
    case("record-codebook", subset=1),
    case("record-codebook", subset=49, epsilon=0.01),
    case("record-codebook", subset=40, dim=3, epsilon=64.0),
    case("codebook-softmax", epsilon=0.01, bounds=(-0.3, 0.6), clip=True),
    case("codebook-softmax", epsilon=30.0, scale=255.0, record_epsilon=8.0),
    case("codebook-softmax", window=0.7),
    case("codebook-softmax", window=0.1, scale=255.0, bounds=(-0.3, 0.6), clip=True),
    case("codebook-softmax", window=3.0, adjacency=attribute(0.07), record_epsilon=8.0),
    case("codebook-softmax", adjacency=l2(2.0), epsilon=20.0),
    case("codebook-softmax", adjacency=l2(0.5), record_epsilon=3.0, dim=3),
    case("none-oporp", dim=64, k=2),
]


@cache
def read_only(each):
    """Its spec, resolved once for the tests that change nothing in it."""
    return each.spec


@cache
def oracle_of(text, norm, codebook, design):
    codewords = () if codebook is None else codebook.stated.tolist()
    matrix = b"" if design is None else design.to_bytes()
    return Oracle(text, norm, codewords, matrix)


def oracle_for(spec):
    """The oracle of a spec; of the encoder it learns the public operator norm, to certify it."""
    hides_vectors = spec.adjacency.kind == "l2" and spec.codebook is None
    norm = getattr(spec.projection, "operator_norm", None) if hides_vectors else None
    return oracle_of(spec.to_json(), norm, spec.codebook, spec.design)


def exact(x):
    """The values themselves, whatever floats or integers hold them."""
    table = x.toarray() if sparse.issparse(x) else x
    return [[Fraction(value) for value in row] for row in table.tolist()]


def vectors(spec, rows=5, seed=0):
    """Uniform in the bounds, with zeros, bounds, exact ties of the grid and their neighbours.

    The first four attributes are at a bound, so that no norm is below ``min_norm``.
    """
    rng = default_rng(seed)
    low, high = (bound * spec.scale for bound in spec.bounds)
    x = rng.uniform(low, high, (rows, spec.dim))
    step = (spec.grid.step if spec.is_rounded else 1.0) * spec.scale
    ties = step * (np.floor(x / step) + 0.5)
    ties = ties.clip(low, high)
    just_below = np.nextafter(ties, low).clip(low, high)
    kind = rng.integers(0, 10, x.shape)
    x = np.where(kind < 3, ties, x)
    x = np.where(kind == 3, just_below, x)
    if low <= 0 <= high:
        x[kind > 6] = 0.0
        x[-1] = 0.0
    x[:, :4] = rng.choice([low, high], (rows, min(4, spec.dim)))
    if spec.clip:
        x[:, 4::3] *= 5.0
    if low <= 0 <= high and spec.variant.min_norm is None:
        x[0] = 0.0  # every coordinate an exact zero
    if not spec.method_row.calibration.rounded:
        x = np.rint(x * 1024) / 1024  # so few bits that floats rotate them exactly
    return x


# Streams


class Dealt(Scripted):
    """Deals the words that the oracle was dealt; other requests are a disagreement."""

    def __init__(self, dealt):
        super().__init__(np.array(words, dtype=DTYPES[bits]) for bits, words in dealt)

    def words(self, count, dtype):
        if count == 0:
            return np.empty(0, dtype)
        if self.spent:
            raise DisagreementError(f"{count} words of {dtype} too many are read")
        return super().words(count, dtype)


# What must be released, by each path


def demand(codes, judge, wanted):
    """Equality of the stored bytes and of the container."""
    kind, body = judge.stored(wanted)
    found = np.ascontiguousarray(codes.stored)
    if (found.dtype.str, found.tobytes()) != (kind, body):
        raise DisagreementError(f"other codes are released: {found.dtype} {found.tolist()}")
    judge.check_container(codes.to_bytes(), wanted)


def demand_dealt(spec, x, words, wanted, **options):
    """The encoder is dealt the words that the oracle was dealt, and reads all of them."""
    stream = Dealt(words.dealt)
    privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    privatizer.stream = lambda: stream
    demand(privatizer.privatize(x, **options), oracle_for(spec), wanted)
    if not stream.spent:
        raise DisagreementError("words are left that should have been read")


def demand_released(spec, x, words):
    """One task."""
    demand_dealt(spec, x, words, oracle_for(spec).codes(exact(x), words))


# Every method


def test_the_oracle_is_independent_and_complete():
    tree = ast.parse(Path(oracle.__file__).read_text())
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imports.add(node.module)
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
    roots = {str(name).partition(".")[0] for name in imports}
    assert not roots & {"dpindex", "numpy", "scipy", "dp_accounting"}
    assert set(oracle.METHODS) == set(ROWS)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("each", [*EVERY, *VARIANTS], ids=str)
def test_codes_are_those_of_the_oracle(each, layout):
    spec = read_only(each)
    x = vectors(spec)
    if layout == "sparse":
        x = sparse.csr_matrix(x)
        if spec.bounds[0] > 0:
            with pytest.raises(InputError, match="sparse vectors hold zeros"):
                Privatizer(spec).privatize(x)
            return
    for seed in range(3) if layout == "dense" else (3,):
        demand_released(spec, x, Words(seed, edges=seed > 0))


def test_edge_words_reach_every_branch():
    """Refinements, ties and tails of tables, ties of flips, refused words: each more than once."""
    events = Counter()
    methods = ("dp-oporp", "dp-rp-l", "raw-square-wave", "dp-signoporp-geometric", "record-cap")
    for method in methods:
        spec = Case(method).spec
        for seed in range(6):
            words = Words(seed, edges=True)
            oracle_for(spec).codes(exact(vectors(spec)), words)
            events += words.events
    branches = ("refined", "tied", "tail", "flip tied", "refused", "cap tied", "cap settled")
    for name in branches:
        assert events[name] > 10, events


FLOATS = [np.float16, np.float32, np.float64, ">f4", ">f8"]


@pytest.mark.parametrize("dtype", [*FLOATS, np.bool_, np.int8, np.uint8, ">i4", np.int64], ids=str)
@pytest.mark.parametrize(
    "each",
    [
        case("raw-laplace", dim=40, k=None),
        case("dp-oporp-laplace", bounds=(-0.1, 0.7), adjacency=attribute(0.3)),
        case("dp-oporp-laplace", scale=3.0, bounds=(-50.0, 50.0)),
        case("dp-oporp-staircase", scale=255.0, bounds=(-0.1, 0.6), clip=True),
    ],
    ids=str,
)
def test_grid_of_every_dtype(each, dtype):
    """Floats of every width round as the correctly rounded real numbers that they are."""
    spec = each.spec
    rng = default_rng(5)
    low, high = (bound * spec.scale for bound in spec.bounds)
    x = rng.uniform(low, high, (40, spec.dim))
    if np.dtype(dtype).kind == "f":
        step = spec.grid.step * spec.scale
        x[::2] = (np.floor(x[::2] / step) + 0.5) * step
        x[0] = low
        x[1] = high
        x[2] = low + (high - low) * 1e-9
        x = np.clip(x, low, high)
    else:
        x = np.trunc(x) if spec.scale > 1 else np.zeros_like(x)
        x = np.maximum(x, 0)
    x = x.astype(dtype)
    if spec.clip:
        x[:, 0] = 200 if np.dtype(dtype).itemsize > 1 else 1
    if np.dtype(dtype).kind == "f" and not spec.clip:
        x = np.where(x > low, x, np.array(low).astype(dtype))
    found = dpi.Privatizer(spec, allow_unprotected=True).project(x)
    assert found.tolist() == oracle_for(spec).project(exact(x))


@pytest.mark.parametrize("method", ["dp-oporp-staircase", "idp-signrp-g", "raw-square-wave"])
def test_tasks_of_one_thread_share_its_stream(method, monkeypatch):
    """As they do with the stream that ships: words are read on, task after task."""
    spec = Case(method).spec
    monkeypatch.setattr(dpindex.mechanism.privatizer, "block_rows", lambda spec, sparse: 3)
    x = vectors(spec, 11)
    words = Words(3, edges=True)
    judge = oracle_for(spec)
    wanted = []
    for start in range(0, 11, 3):
        wanted += judge.codes(exact(x[start : start + 3]), words)
    demand_dealt(spec, x, words, wanted, threads=1)


@pytest.mark.parametrize("epsilon", [1.0, 16.0])
def test_one_vector_alone_is_drawn_as_any_other(epsilon):
    """A cap draws it by itself, until a word ties with its share."""
    spec = case("record-cap", epsilon=epsilon).spec
    events = Counter()
    for row, seed in zip(vectors(spec, 30)[:, None], range(30), strict=True):
        words = Words(seed, edges=seed % 2 == 0)
        demand_released(spec, row, words)
        events += words.events
    assert events["cap tied"] > 10


@pytest.mark.parametrize(
    "each, kind",
    [
        (case("raw-staircase", epsilon=3.0, bounds=(-0.1, 0.1)), "|i1"),
        (case("dp-rp-l", epsilon=0.5), "<i2"),
        (case("dp-rp-l", epsilon=0.002), "<i4"),
        (case("none-oporp", dim=64, k=1, bounds=(-20.0, 20.0)), "<i4"),
    ],
    ids=str,
)
def test_codes_of_every_width(each, kind):
    spec = each.spec
    judge = oracle_for(spec)
    x = vectors(spec)
    stored, _ = judge.stored(judge.codes(exact(x), Words(2)))
    assert stored == kind
    demand_released(spec, x, Words(2))


# Slow: production sizes, long public streams, whole tables


@pytest.mark.slow
def test_public_streams_of_several_blocks():
    """A block of the stream is 2^20 bytes, and this map reads more."""
    spec = case("dp-rp-g-opt", dim=400, k=400).spec
    demand_released(spec, vectors(spec, 2), Words(1, edges=True))


def tables_of(law, judge):
    """The tables that a law draws from, each with the oracle's."""
    source = getattr(law, "source", law)
    if isinstance(source, CellTable):
        return [(source, judge.digits[0][0])]
    for names in (("coarse", "fine"), ("high", "low")):
        if hasattr(source, names[0]):
            tables = [getattr(source, name) for name in names]
            digits = [digit for digit, _ in judge.digits]
            return list(zip(tables, digits, strict=True))
    table = getattr(law, "table", None)
    return [(table, judge.table)] if isinstance(table, CellTable) else []


@pytest.mark.slow
@pytest.mark.parametrize("each", LAWS, ids=str)
def test_every_boundary_of_every_table(each):
    for epsilon in (0.02, 1.0, 40.0):
        if each.method == "row-rp-g-composition":
            epsilon = min(epsilon, 20.0)  # there is none beyond
        spec = example(ROWS[each.method], epsilon=epsilon)
        judge = oracle_for(spec)
        for table, wanted in tables_of(spec.law, judge.law):
            compare(table, wanted)
        if isinstance(spec.law, FlipsByLevel):
            assert list(spec.law.thresholds) == list(judge.law.thresholds)
        if isinstance(spec.law, CapResponse):
            cap = spec.law.cap
            found = list(cap.weights), cap.threshold, cap.inside
            assert found == (judge.law.weights, judge.law.threshold, judge.law.inside)
        if isinstance(spec.law, CodebookResponse):
            assert spec.law.uniform == judge.law.uniform


def compare(table, wanted):
    """A thousand boundaries, or all: those on both sides of −½ are one tail of the oracle's."""
    ends = list(accumulate(table.masses))[:-1]
    reach = max(len(ends) + table.first, -table.first)
    places = range(0, reach, max(1, reach // 500))
    both = [value for place in places for value in (-1 - place, place)]
    values = [value for value in both if 0 <= value - table.first < len(ends)]
    assert table.bits == wanted.bits
    assert [ends[value - table.first] for value in values] == list(map(wanted.end, values))
    outermost = (table.first, table.first + len(ends))
    last = (1 << wanted.bits) - 1
    assert (wanted.value(0), wanted.value(last)) == outermost


def drawn(row, choice):
    """A spec of that method, every field drawn; InputError where they do not fit together."""
    fields = needed(row)
    if row.private:
        fields["epsilon"] = 10 ** choice.uniform(-2, 1.8)
    if row.needs_delta:
        fields["delta"] = 10 ** choice.uniform(-12, -1.5)
    size = choice.choice([1.0, 0.25, 0.1, 2.0, 3.7])
    if not row.calibration.rounded:
        fields["dim"] = dim = choice.choice([1, 2, 5, 13, 24, 33, 50])
        if row.family.public is dpi.Codebook:
            fields |= {"codebook": codebook(dim), "subset": choice.randrange(1, 50)}
        else:
            fields["k"] = choice.choice([64, 136])
        return Spec(**fields, seed=choice.randrange(2**63))
    fields["adjacency"] = attribute(size) if "attribute" in row.adjacencies else l2(size)
    fields["bounds"] = choice.choice([(-1.0, 1.0), (0.0, 1.0), (-0.3, 0.6), (-1000.0, 7.0)])
    if row.calibration.bounded:
        low = choice.uniform(-2, 1)
        fields["bounds"] = (low, low + size * choice.uniform(0.05, 1))
    fields["dim"] = choice.choice([1, 2, 5, 13, 24, 33, 50])
    fields["variant"] = choice.choice(row.family.variant.forms)
    fields["k"] = choice.choice([1, 2, 4, 7, 8, 12]) * fields["variant"].repetitions
    if row.family.keeps_all:
        fields["k"] = None
    if row.family.public is dpi.Codebook:
        del fields["k"]
        fields["codebook"] = codebook(fields["dim"])
        fields["record_epsilon"] = choice.choice([None, 2.0, 20.0])
        fields["adjacency"] = choice.choice([attribute(size), l2(size)])
    if row.family.public is dpi.Design:
        del fields["k"]
        fields["design"] = designed(fields["dim"], row.needs_delta)
    fields["scale"] = choice.choice([1.0, 255.0, 0.01, 3.3])
    fields["clip"] = choice.random() < 0.3
    fields["seed"] = choice.randrange(2**63)
    return Spec(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_specs_drawn_at_random(row):
    tried = 0
    for seed in range(8):
        choice = random.Random(f"{row.name}/{seed}")
        try:
            spec = drawn(row, choice)
            dpi.Privatizer(spec, allow_unprotected=True)
        except dpi.InputError:
            continue
        low, high = (bound * spec.scale for bound in spec.bounds)
        x = vectors(spec, 4, seed)
        x = x if spec.clip else np.clip(x, low, high)
        if low <= 0 <= high and choice.random() < 0.4:
            x = sparse.csr_matrix(x)
        demand_released(spec, x, Words(seed, edges=True))
        tried += 1
    assert tried >= 3

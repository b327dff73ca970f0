"""Families of projections: options, defaults, refusals, and a contract for every map they make."""

import math

import numpy as np
import pytest
from helpers.common import (
    FAMILIES,
    attribute_spec,
    codebook,
    designed,
    folded,
    normal,
    refuses,
    with_variant,
)
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex import (
    Blocks,
    Codebook,
    Dense,
    Design,
    Repeated,
    Spec,
    attribute,
    l2,
    methods,
)
from dpindex.mechanism.papers.projections import Gaussian, Rademacher, Uniform, VerySparse
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections.dense import operator_norm

DIM = 24
EVERY = [pytest.param(family, id=name) for name, family in FAMILIES.items()]
DENSE = [
    pytest.param(family, id=name)
    for name, family in FAMILIES.items()
    if isinstance(family.variant, Dense)
]


def stated(**changes):
    plain = {"method": "a-method", "dim": DIM, "seed": 3, "adjacency": attribute(1.0)}
    return Parameters(**with_variant({**plain, **changes}))


def stated_for(family, **changes):
    """The same with a codebook or a design for the family that needs one."""
    part = {}
    dim = changes.get("dim", DIM)
    if family.public is Codebook:
        part["codebook"] = codebook(dim)
    if family.public is Design:
        part["design"] = designed(dim, changes.get("delta", 0) > 0, changes.get("k"))
    return stated(**{**part, **changes})


def made(family, **changes):
    """A projection, with what is left out resolved as a spec does."""
    parameters = stated_for(family, **changes)
    values = {name: getattr(parameters, name) for name in Parameters.__dataclass_fields__}
    values |= family.resolved(parameters)
    return family.make(Parameters(**values))


LINEAR = {
    row.family for row in methods() if row.calibration.rounded and row.family.public is not Codebook
}
"""The others look at directions of vectors, and their laws take any input: no contract to keep.
Scores of codewords, whose number is that of the codebook, have theirs in test_softmax.py."""

SHAPES = [
    pytest.param(
        family, {"dim": dim, "k": k, "variant": variant}, id=f"{name}-{variant.entries}-{dim}-{k}"
    )
    for name, family in FAMILIES.items()
    for variant in family.variant.forms
    if variant.repetitions == 1
    for dim, k in ((1, 1), (24, 8), (23, 9), (40, 40), (300, 64))
    if family in LINEAR and not (family.keeps_all and k != dim)
]
RANDOM = [shape for shape in SHAPES if shape.values[0].public is None]
"""Those that preserve inner products; a design is not random, and decoded before it is compared."""

SHAPES += [
    pytest.param(family, {"dim": 23, "k": 36, "repetitions": 4}, id=f"{name}-repeated")
    for name, family in FAMILIES.items()
    if isinstance(family.variant, Repeated)
]


def test_every_family_of_the_table_is_under_contract():
    assert {row.family for row in methods()} == set(FAMILIES.values())


# The contract of a map


@folded("family, changes", SHAPES)
def test_rows_are_projected_exactly_in_any_layout(family, changes):
    projection = made(family, **changes)
    dim = changes["dim"]
    k = changes["k"]
    assert projection.dim == dim
    assert projection.k == k
    matrix = projection.apply(np.eye(dim))
    assert (matrix == np.rint(matrix)).all()
    for dtype, most in ((np.float32, 2**24), (np.float64, 2**44)):
        limit = most // projection.max_column_l1
        rng = default_rng(k)
        x = rng.integers(-limit, limit, (9, dim), endpoint=True).astype(dtype)
        x[rng.random(x.shape) < 0.5] = 0
        x[4] = 0
        before = x.copy()
        wanted = x.astype(np.int64) @ matrix.astype(np.int64)
        dense = projection.apply(x)
        assert dense.dtype == dtype
        for found in (
            dense,
            projection.apply_sparse(sparse.csr_matrix(x)),
            projection.apply(np.asfortranarray(x)),
        ):
            assert_array_equal(found, wanted)
        alone = projection.apply(x[3:4])
        assert_array_equal(alone, wanted[3:4])
        assert_array_equal(x, before)


@folded("family, changes", SHAPES)
def test_sensitivities_by_brute_force(family, changes):
    """Move every attribute by one, from some start, both ways: no facts but those of the map."""
    projection = made(family, **changes)
    dim = changes["dim"]
    x = default_rng(1).integers(-99, 100, (1, dim)).astype(np.float64)
    start = projection.apply(x)
    moved = np.abs(projection.apply(x + np.eye(dim)) - start)
    down = np.abs(projection.apply(x - np.eye(dim)) - start)
    assert_array_equal(moved, down)
    sizes = projection.sensitivity
    counts = np.count_nonzero(moved, axis=1)
    assert sizes.count == max(1, counts.max())
    assert sizes.l1 == max(1, moved.sum(axis=1).max())
    assert sizes.l2_squared == max(1, (moved**2).sum(axis=1).max())
    assert_array_equal(projection.largest, moved.max(axis=0).clip(1))
    # Sums inside a fast transform may pass those of a coordinate, never the other way.
    assert projection.max_column_l1 >= moved.sum(axis=0).max()


@folded("family, changes", RANDOM)
def test_scale_and_rms_keep_the_size_of_vectors(family, changes):
    """Coordinates of a unit vector have mean square rms², and k·(scale·rms)² is its norm, 1."""
    projection = made(family, **changes)
    dim = changes["dim"]
    k = changes["k"]
    size = projection.scale * projection.rms
    assert k * size**2 == pytest.approx(1.0)
    most = 4.0 if dim < 24 else 1.5
    assert 0 <= projection.inner_product_factor <= most / k
    if dim == 300:
        squares = projection.apply(np.eye(dim)) ** 2
        assert squares.mean() == pytest.approx(projection.rms**2, rel=0.1)


BALL = {row.family for row in methods() if "l2" in row.adjacencies}


@folded("family, changes", [s for s in SHAPES if s.values[0] in BALL])
def test_operator_norms_bound_every_direction(family, changes):
    """Families with an l2 guarantee know ‖W‖: no direction is stretched more, hardly less."""
    projection = made(family, **changes)
    matrix = projection.apply(np.eye(changes["dim"]))
    true = np.linalg.norm(matrix, 2)
    assert true * (1 - 1e-12) <= projection.operator_norm
    assert projection.operator_norm <= max(1.0, true) * (1 + 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, changes, kurtosis",
    [
        ("OPORP", {"k": 4}, 1.0),
        ("OPORP", {"k": 12}, 1.0),
        ("OPORP", {"dim": 9, "k": 8}, 1.0),
        ("REPEATED_OPORP", {"k": 12, "repetitions": 3}, 1.0),
        ("RADEMACHER", {"k": 4}, 1.0),
        ("DENSE_NUMBERS", {"k": 4}, 3.0),
        ("DENSE_NUMBERS", {"k": 4, "entries": "uniform"}, 1.8),
        ("DENSE_NUMBERS", {"k": 4, "entries": "very-sparse", "sparsity": 3}, 3.0),
        ("SPARSE_JL", {"k": 4, "sparsity": 2}, 1.0),
        ("FAST_JL", {"dim": 60, "k": 8}, 3.0),
    ],
)
def test_inner_products_over_seeds(name, changes, kurtosis):
    """Unbiased, with variance f·(‖u‖²‖v‖² + ⟨u,v⟩² + (κ − 3)·Σu²v²), κ the entries' kurtosis.

    Li & Li 2023, Sec. 3 and Thm 3.10; f is the ``inner_product_factor``. 1500 fixed seeds, within
    6 standard errors each, those of the variance from the fourth moments of the sample.
    """
    dim = changes.get("dim", 12)
    u, v = normal(2, dim)
    products = np.empty(1500)
    pair = np.stack([u, v])
    for seed in range(len(products)):
        projection = made(FAMILIES[name], **{"dim": dim, **changes, "seed": seed})
        x, y = projection.apply(pair) * projection.scale
        products[seed] = x @ y
    norms = (u @ u) * (v @ v) + (u @ v) ** 2
    correction = (kurtosis - 3) * float((u * v) @ (u * v))
    variance = projection.inner_product_factor * (norms + correction)
    deviations = products - u @ v
    error = 6 / math.sqrt(len(products))
    rounding = 0.002  # of normal entries to whole numbers
    squares = deviations**2
    assert abs(deviations.mean()) <= error * math.sqrt(variance) + 1e-12
    assert abs(squares.mean() - variance) <= error * squares.std() + rounding


# Options


@folded(
    "name, facts, length",
    [
        ("IDENTITY", {"dim": 784}, 784),
        ("OPORP", {"dim": 784}, 784),
        ("REPEATED_OPORP", {"dim": 784}, 784),
        ("REPEATED_OPORP", {"dim": 784, "repetitions": 3}, 3 * 784),
        ("RADEMACHER", {"dim": 784}, 128),
        ("SIGN_RADEMACHER", {"dim": 784}, 512),
        ("GAUSSIAN", {"dim": 784}, 128),
        ("SPARSE_JL", {"dim": 784}, 128),
        ("FAST_JL", {"dim": 784}, 128),
        ("ROTATION", {"dim": 784}, 128),
        # They have a limit, and know whether values have signs.
        ("OPORP", {"dim": 1 << 24, "bounds": (0.0, 1.0)}, 1024),
        ("SIGN_OPORP", {"dim": 1 << 24}, 4096),
        ("SIGN_OPORP", {"dim": 1 << 24, "bounds": (0.0, 1.0)}, 1024),
        ("SIGN_OPORP", {"dim": 384}, 384),
        ("SIGN_OPORP", {"dim": 784, "bounds": (0.0, 1.0)}, 196),
        ("SIGN_OPORP", {"dim": 5, "bounds": (0.0, 1.0)}, 5),
        ("SIGN_OPORP", {"dim": 20, "bounds": (0.0, 1.0)}, 8),
    ],
)
def test_default_lengths_without_noise(name, facts, length):
    """Published: specs that leave k out name these."""
    assert FAMILIES[name].resolved(stated(**facts))["k"] == length


@folded(
    "dim, epsilon, more, length",
    [
        *((dim, 0.1, {"bounds": (0.0, 1.0)}, dim) for dim in (1, 2, 8, 11, 12, 20, 128)),
        (784, 1.0, {"bounds": (0.0, 1.0)}, 128),
        (784, 3.0, {"bounds": (0.0, 1.0)}, 128),
        (784, 8.0, {"bounds": (0.0, 1.0)}, 784),
        (384, 8.0, {"norm": 1.0}, 128),
        (384, 20.0, {"norm": 1.0}, 384),
        (384, 8.0, {}, 384),
        (1 << 20, 3.0, {"bounds": (0.0, 1.0)}, 1024),
    ],
)
def test_default_lengths_grow_as_noise_falls(dim, epsilon, more, length):
    """A table keeps all its columns, whatever the noise; under l2 more bins add none."""
    assert attribute_spec("dp-oporp-staircase", dim, epsilon=epsilon, **more).k == length
    bins = Spec("row-oporp-g", 384, epsilon=0.5, delta=1e-6, adjacency=l2(1.0))
    assert bins.k == 384


def refused(family, words, **changes):
    with refuses(words) as caught:
        family.resolved(stated_for(family, **changes))
    assert str(caught.value).endswith(".")


@folded("family", EVERY)
def test_what_a_family_does_not_use_is_refused(family):
    if not isinstance(family.variant, Repeated):
        refused(family, "a-method takes no repetitions", repetitions=2)
    if not isinstance(family.variant, Dense):
        refused(family, "a-method takes no entries", entries="gaussian")
    if not isinstance(family.variant, Blocks):
        refused(family, "a-method takes no sparsity", sparsity=2)
    if family.public is not Codebook:
        words = "a-method takes no codebook here; leave it out"
        refused(family, words, codebook=codebook(DIM))
    if not family.subset:
        refused(family, "a-method takes no subset here; leave it out", subset=3)
    if family.public is not Design:
        refused(family, "a-method takes no design", design=designed(DIM))
    else:
        gaussian = designed(DIM, gaussian=True)
        pure = designed(DIM)
        refused(family, "make one without a delta", delta=0.0, design=gaussian)
        refused(family, "make one with a delta", delta=1e-6, design=pure)
        words = "the design is of vectors of 24 attributes, and these have 25"
        refused(family, words, dim=25, design=pure)
        refused(family, "k is that of the design, 8", k=9, design=pure)
        with refuses("a-method needs a design"):
            family.resolved(stated())
    if family.lengths is not None:
        refused(family, "codes of one length|must be a mult", k=family.lengths[-1] + 1)
    if family.keeps_all:
        refused(family, "keeps every coordinate: k must be dim = 24", k=23)
    if family.bins:
        refused(family, "25 bins cannot be filled by 24 attributes", k=25)
        assert family.resolved(stated(k=24))["k"] == 24


def test_repetitions_divide_the_length():
    family = FAMILIES["REPEATED_OPORP"]
    assert family.resolved(stated(k=48, repetitions=2))["k"] == 48
    refused(family, "25 bins", k=50, repetitions=2)
    refused(family, "k = 25 is not a multiple of repetitions = 2", k=25, repetitions=2)


@folded("family", DENSE)
def test_entries_are_chosen_from_those_of_the_family(family):
    forms = [form.entries for form in family.variant.forms]
    assert sorted(forms) == ["gaussian", "rademacher", "uniform", "very-sparse"]
    assert family.resolved(stated())["variant"].entries == forms[0]
    for entries in forms:
        name = type(made(family, entries=entries)).__name__
        assert name.lower() == entries.replace("-", "")
    refused(family, "must be one of .*, not 'normal'", entries="normal")
    refused(family, "sparsity is that of very-sparse", entries="uniform", sparsity=2)


@folded("family", DENSE)
def test_sparsity_of_very_sparse_entries(family):
    """The root of dim, as is customary, or what is stated: one entry in so many is not zero."""
    usual = family.resolved(stated(dim=400, entries="very-sparse"))
    assert usual["variant"].sparsity == 20
    projection = made(family, dim=400, k=50, entries="very-sparse", sparsity=2)
    assert isinstance(projection, VerySparse)
    assert projection.sparsity == 2
    for sparsity in (0, 1 << 17, 1.5):
        words = "sparsity must be a whole number"
        refused(family, words, entries="very-sparse", sparsity=sparsity)


def test_codebooks_belong_to_the_vectors():
    family = FAMILIES["CODEWORDS"]
    refused(family, "a-method needs a codebook", codebook=None)
    words = "the codebook is of vectors of 5 attributes, and these have 24"
    refused(family, words, codebook=codebook(5))
    for subset in (0, 50, 1.5):
        refused(family, "subset must be a whole number", subset=subset)


def test_sparsity_of_blocks_divides_the_length():
    family = FAMILIES["SPARSE_JL"]

    def sparsity_of(**facts):
        return family.resolved(stated(**facts))["variant"].sparsity

    for k, sparsity in ((128, 4), (9, 3), (10, 2), (7, 1)):
        assert sparsity_of(k=k) == sparsity
    assert sparsity_of(k=10, sparsity=5) == 5
    refused(family, "k = 10 is not a multiple of sparsity = 4", k=10, sparsity=4)
    for sparsity in (0, 1025, 1.5):
        refused(family, "sparsity must be a whole number", k=1 << 12, sparsity=sparsity)


def test_fine_entries_are_normal_ones_in_smaller_steps():
    """Prop. 4.5 of Li & Li is about real normals: those entries are rounded to 2^-12, not 2^-4."""
    fine = made(FAMILIES["FINE_DENSE_SIGNS"], entries="gaussian", k=8)
    coarse = made(FAMILIES["DENSE_SIGNS"], entries="gaussian", k=8)
    assert isinstance(fine, Gaussian)
    assert isinstance(coarse, Gaussian)
    assert fine.rms == pytest.approx(2.0**12, rel=1e-4)
    assert coarse.rms == pytest.approx(2.0**4, rel=1e-3)
    even = made(FAMILIES["FINE_DENSE_SIGNS"], entries="uniform", k=8)
    assert isinstance(even, Uniform)


# Dense projections: portable integers of the stated law, exact sums, exact norms


def test_operator_norm_of_zero_and_of_equal_columns():
    assert operator_norm(np.zeros((4, 3), np.int8)) >= 1  # as if one entry were 1
    ones = np.ones((9, 4), np.int8)
    assert 6 <= operator_norm(ones) <= 6 * (1 + 1e-8)


def test_entries_are_kept_in_bytes():
    """A map is as small in memory as its entries allow: the largest may take a gigabyte."""
    for kind in (Rademacher, Gaussian, Uniform):
        assert kind(64, 32, 0).entries.dtype == np.int8

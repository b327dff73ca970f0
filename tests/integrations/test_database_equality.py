"""Neighbours in a database are those of the index: of any size, equal ones, removed ones."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, known_noise, record_spec, refuses, unit
from helpers.lite import LITE, PLACES, address

import dpindex as dpi

pytest.importorskip("pyarrow")
pytestmark = [*LITE, known_noise]
SIZES = (1e-10, 3e13, 1.7e18, 1e-30, 1e30)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", params=PLACES)
def place(request, tmp_path_factory):
    return address(tmp_path_factory.mktemp("lite"), request.param)


def plain(vectors, metric, **options):
    """An index of vectors without noise."""
    wide = np.asarray(vectors)
    bound = float(np.abs(wide).max()) or 1.0
    dim = wide.shape[1]
    box = {"bounds": (-bound, bound), "adjacency": dpi.attribute(bound)}
    spec = dpi.Spec("none-oporp", dim, dim, **box)
    index = dpi.PrivateIndex(spec, metric=metric)
    index.add(wide, **options)
    return index


def published(index, place, name):
    dpi.publish(index, place, name, allow_unprotected=True)
    return dpi.open(place, name)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_neighbours_do_not_depend_on_the_size_of_numbers(place, metric):
    different = RNG.normal(size=(60, 8))
    equal = RNG.normal(size=(2, 8)).repeat(9, axis=0)
    shape = np.concatenate([different, equal])
    shape /= np.abs(shape).max()
    asked = RNG.uniform(-1, 1, (5, 8))
    for number, size in enumerate(SIZES):
        index = plain(shape * size, metric)
        there = published(index, place, f"{metric}{number}")
        for queries in (asked * size, asked[:1] * size):
            here = index.search(queries, 20)
            found = there.search(queries, 20, "exact")
            assert found.ids.tolist() == here.ids.tolist()
            np.testing.assert_allclose(found.scores, here.scores, rtol=1e-4)
        there.close()


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_of_equal_vectors_the_first_rows_are_found(place, metric):
    index = plain(np.ones((12, 4)), metric)
    there = published(index, place, f"equal_{metric}")
    for asked in (1, 30):
        queries = np.ones((asked, 4))
        expected = asked * [[0, 1, 2, 3]]
        assert there.search(queries, 4, "exact").ids.tolist() == expected
    there.close()


def test_ties_of_bits_and_symbols_are_those_of_the_index(place):
    vectors = RNG.uniform(-1, 1, (3, 16)).repeat(50, axis=0)
    codebook = dpi.Codebook(RNG.normal(size=(4, 16)))
    specs = {
        "bits": attribute_spec("dp-signrp-rr", 16, k=8, epsilon=60.0, norm=1.0),
        "symbols": record_spec("record-codebook", 16, epsilon=60.0, codebook=codebook),
    }
    for name, spec in specs.items():
        index = filled_index(spec, unit(vectors))
        there = published(index, place, name)
        codes = index.codes.take(np.array([0, 70]))
        for count in (1, 7, 60, 150):
            here = index.search(codes, count)
            found = there.search(codes, count)
            assert found.ids.tolist() == here.ids.tolist()
        there.close()


NAMED = [f"it's {i}" for i in range(30)]


@pytest.mark.parametrize("ids", [None, NAMED])
def test_what_is_removed_is_found_by_nobody(place, ids):
    vectors = RNG.normal(size=(30, 4))
    index = plain(vectors, "cosine", ids=ids, payload={"n": range(30)})
    name = f"removed_{ids is None}"
    there = published(index, place, name)
    names = index.ids.tolist()
    with refuses("1 of these 2 ids are not in the index"):
        there.remove([names[3], "nobody" if ids else 99])
    assert len(there) == 30
    assert there.remove(names[3]) == 1
    twice = [names[5], names[7], names[5]]
    assert there.remove(twice) == 2
    there.save()
    again = dpi.open(place, name)
    left = set(names) - {names[3], *twice}
    for one in (there, again):
        assert len(one) == 27
        assert names[3] not in one
        queries = RNG.uniform(-1, 1, (2, 4))
        found = one.search(queries, 27, "exact").ids[0]
        assert sorted(found.tolist()) == sorted(left)
        with pytest.raises(KeyError):
            one[names[3]]
    code = index.codes.take(np.array([3]))
    again.add_codes(code, [names[3]], payload={"n": [3]})
    assert names[3] in there
    there.close()
    again.close()

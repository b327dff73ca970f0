"""Every reader of foreign bytes under random changes: it reads, or refuses in one sentence.

The same seeds, repairs and readers as ``bench/fuzz``, without the guidance by coverage; whatever
that finds gets a test of its own beside the reader.
"""

import importlib.util
import random
import warnings

import pytest
from helpers.common import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from dpindex.base.errors import InputError

_PATH = ROOT / "bench" / "fuzz" / "targets.py"
_found = importlib.util.spec_from_file_location("fuzz_targets", _PATH)
assert _found is not None
assert _found.loader is not None
fuzz = importlib.util.module_from_spec(_found)


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory):
    import sys
    import tempfile

    kept = tempfile.tempdir
    tempfile.tempdir = str(tmp_path_factory.mktemp("fuzz"))
    sys.modules["fuzz_targets"] = fuzz  # dataclasses look their module up
    _found.loader.exec_module(fuzz)
    tempfile.tempdir = kept


NAMES = [
    "codes_from_bytes", "manifest", "index directory", "Spec.from_json", "RACE sketch",
    "ids of an index", "denoiser", "codebook", "ledger", ".npy",
    ".npz", ".fvecs", ".bvecs", ".hdf5", ".parquet", "ids .txt", "ids .npy", "ids .npz",
    "ids .hdf5", "ids .parquet", ".arrow", ".fbin", ".csv", ".tsv", "table .csv", "table .jsonl",
    "table .parquet", "table .arrow", "ids .arrow",
]  # fmt: skip
_SEEDS = {}


@pytest.mark.parametrize("name", NAMES)
@given(number=st.integers(0, 2**32), changes=st.integers(0, 4), repaired=st.booleans())
@settings(max_examples=40, database=None)
def test_read_or_refused(name, number, changes, repaired):
    target = fuzz.TARGETS[name]
    if name not in _SEEDS:
        _SEEDS[name] = list(target.seeds())
    rng = random.Random(number)
    data = bytearray(rng.choice(_SEEDS[name]))
    for _ in range(changes):
        place = rng.randrange(len(data))
        choice = rng.randrange(4)
        if choice == 0:
            del data[place:]
        elif choice == 1:
            length = rng.choice((1, 4, 8))
            data[place:place] = rng.randbytes(length)
        else:
            edges = (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            data[place] = rng.choice(edges)
        if not data:
            data = bytearray(b"\0")
    given_bytes = bytes(data)
    if repaired:
        given_bytes = target.repair(given_bytes, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            target.read(given_bytes)
        except InputError as error:
            said = str(error)
        else:
            said = ""
    assert "\n" not in said
    assert len(said) < 1000


def test_every_target_is_tried():
    assert set(NAMES) == set(fuzz.TARGETS)

"""A device: one vector in, bytes out, and nothing imported that this does not need."""

import numpy as np
import pytest
from helpers.common import attribute_spec, designed, example, picked, python, refuses
from numpy.testing import assert_allclose

import dpindex as dpi
from dpindex.device import privatize
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.projections import Projection

SPEC = attribute_spec("dp-oporp-staircase", 12, k=6, epsilon=2.0)

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {gone}:
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from dpindex.device import privatize
with open(sys.argv[2], "wb") as file:
    file.write(privatize([0.25] * 12, sys.argv[1], max_epsilon=2))
assert not any(name.startswith("scipy.s") for name in sys.modules), "parts of scipy are slow"
"""
GONE = ("faiss", "dp_accounting", "matplotlib", "typer", "rich", "sklearn", "pyarrow", "h5py")


@pytest.mark.parametrize("shape", [(12,), (1, 12), (3, 12)])
def test_what_is_sent_can_be_added(shape, tmp_path):
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    sent = privatize(np.full(shape, 0.5), tmp_path / "spec.json", max_epsilon=2.0)
    index = dpi.PrivateIndex(SPEC)
    index.add_codes(dpi.codes_from_bytes(sent))
    rows = shape[0] if len(shape) == 2 else 1
    assert len(index) == rows


def test_no_more_is_spent_than_the_owner_accepts():
    with refuses(r"at most epsilon = 1\.5 of DP is accepted"):
        privatize(np.zeros(12), SPEC, max_epsilon=1.5)


def test_a_delta_that_promises_nothing_is_refused():
    loud = attribute_spec("dp-oporp", 12, k=4, epsilon=1.0, delta=0.5)
    with refuses(r"a delta of at most 0\.0001 is accepted"):
        privatize(np.zeros(12), loud, max_epsilon=2.0)


SOFTMAX = "codebook-softmax"


@pytest.mark.parametrize("method", ["dp-designed-laplace", SOFTMAX])
def test_windows_are_read_from_the_public_file(method, tmp_path):
    """Noise of epsilon = 64 hardly moves a code, and every attribute lies beyond its window."""
    softmax = method == SOFTMAX
    part = {"window": 0.3} if softmax else {"design": designed(24, window=0.3)}
    spec = example(find_method(method), epsilon=64.0, bounds=(-9.0, 9.0), **part)
    assert spec.public is not None
    public = tmp_path / ("public.codebook" if softmax else "public.design")
    public.write_bytes(spec.public.to_bytes())
    stated = tmp_path / "spec.json"
    stated.write_text(spec.to_json())
    vectors = np.random.default_rng(1).choice([-9.0, -1.5, 1.5, 9.0], (20, 24))
    sent = privatize(vectors, stated, max_epsilon=64.0, public=public)
    codes = dpi.codes_from_bytes(sent)
    windows = Projection.of(spec.projection).windows
    assert windows is not None
    low, high = windows.ends(spec.bounds)
    clipped = dpi.Privatizer(spec).project(vectors.clip(low, high))
    if softmax:
        scores = clipped + spec.law.offsets
        reported = picked(scores, codes.stored.astype(np.intp))
        lost = scores.max(axis=1) - reported[:, 0]
        assert (lost < 1 << 11).all()  # of 2^12 to a beta
    else:
        assert_allclose(codes.to_float(), clipped * spec.step, atol=1.0)


@pytest.mark.slow
def test_nothing_else_needs_to_be_installed(tmp_path):
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    program = ABSENT.format(gone=GONE)
    python("-c", program, "spec.json", "me.codes", cwd=tmp_path)
    sent = (tmp_path / "me.codes").read_bytes()
    assert len(dpi.codes_from_bytes(sent)) == 1


def test_low_every_release_of_a_vector_has_noise_of_its_own():
    vector = np.zeros(SPEC.dim)
    sent = {privatize(vector, SPEC, max_epsilon=SPEC.budget) for _ in range(4)}
    assert len(sent) == 4

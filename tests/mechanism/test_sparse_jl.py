"""Kane & Nelson's map and very sparse entries: structure, exactness, and little memory."""

from pathlib import Path

import numpy as np
import pytest
from helpers.common import python, refuses
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex.mechanism.papers.projections import SparseJL, VerySparse


@pytest.mark.parametrize(
    "make",
    [
        lambda d, k: SparseJL(d, k, 5, 4),
        lambda d, k: VerySparse(d, k, 5, 3),
        lambda d, k: VerySparse(d, k, 5, d * k // 40),  # most attributes have no entry
    ],
)
# Short codes are under the contract of families; the longer the code, the wider the tables.
@pytest.mark.slow
def test_dense_and_sparse_agree(make):
    dim = 30
    projection = make(dim, 1 << 15)
    matrix = projection.apply(np.eye(dim)).astype(np.int64)
    rng = np.random.default_rng(1)
    x = rng.integers(-4096, 4097, (15, dim)).astype(np.float32)
    x[rng.random(x.shape) < 0.7] = 0
    x[4] = 0
    wanted = x.astype(np.int64) @ matrix
    assert_array_equal(projection.apply(x), wanted)
    assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)


def test_too_many_entries_are_refused():
    with refuses("raise sparsity, for example to 4096"):
        VerySparse(1 << 24, 1024, 0, 3)


_SPARSE_RUN = """
import re, sys
import numpy as np
from scipy import sparse
import dpindex as dpi
from dpindex import Blocks, Dense

with np.load(sys.argv[1]) as stored:
    parts = (stored["data"], stored["indices"], stored["indptr"])
    x = sparse.csr_matrix(parts, shape=tuple(stored["shape"]))[:1000]
for method, arguments in (
    ("dp-oporp-staircase", {}),
    ("dp-sjlt-laplace", {"variant": Blocks(4)}),
    ("dp-rp-g-opt", {"delta": 1e-6, "variant": Dense("very-sparse")}),
):
    spec = dpi.Spec(method=method, dim=x.shape[1], k=1024, epsilon=2.0, scale=255, bounds=(0, 1),
                    adjacency=dpi.attribute(1.0), **arguments)
    codes = dpi.Privatizer(spec).privatize(x)
    assert codes.k == 1024 and len(codes) == 1000 and x.shape[1] == 1 << 24
    # Not getrusage: its peak begins with that of the process that forked this one.
    print(method, re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc/self/status")
def test_documents_of_2_to_the_24_columns_need_less_than_a_gigabyte(data_dir):
    """The whole process: the data, the projections, 1000 × 1024 codes and everything between."""
    printed = python("-c", _SPARSE_RUN, data_dir / "news20_chartri_csr.npz")
    peaks = [line.split() for line in printed.splitlines()]
    assert len(peaks) == 3
    for method, peak in peaks:
        assert int(peak) * 1024 < 1e9, method

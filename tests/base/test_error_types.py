"""A caller that must tell a cause apart finds it in the class of the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpindex import InputError, Ledger, PrivateIndex, Privatizer, Spec, attribute
from dpindex.base import errors
from dpindex.base.errors import import_extra
from dpindex.base.files import holding_lock, map_file, read_file, unpack
from dpindex.denoise import fit_denoiser

SPEC = Spec("dp-oporp-staircase", dim=6, epsilon=20.0, adjacency=attribute(1.0))
X = np.random.default_rng(0).uniform(-1, 1, (20, 6))


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Error")])
def test_every_error_is_an_input_error_that_says_when(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, InputError)
    assert error.__doc__


def test_naming_keeps_the_class() -> None:
    with pytest.raises(errors.BusyError, match=r"^x: busy\.$"), errors.naming("x"):
        raise errors.BusyError("busy.")


def test_too_few_codes() -> None:
    with pytest.raises(errors.TooLittleSignalError, match="too few"):
        fit_denoiser(Privatizer(SPEC).privatize(X), SPEC)


def test_no_denoiser() -> None:
    bare = Spec("none-oporp", dim=6, adjacency=attribute(1.0))
    codes = Privatizer(bare, allow_unprotected=True).privatize(X)
    with pytest.raises(errors.NoDenoiserError, match="no noise"):
        fit_denoiser(codes, bare)


@pytest.mark.slow
def test_no_guarantee() -> None:
    with pytest.raises(errors.NoGuaranteeError, match="more noise than a code can hold"):
        _ = Spec("dp-rp-l", dim=6, k=2**20, epsilon=1e-3, adjacency=attribute(1.0)).law


def test_damaged(tmp_path: Path) -> None:
    with pytest.raises(errors.DamagedError):
        unpack(b"no container", "codes")
    with pytest.raises(errors.DamagedError):
        PrivateIndex.open(tmp_path)
    (tmp_path / "book").write_bytes(b"no ledger" * 100)
    with pytest.raises(errors.DamagedError):
        Ledger(tmp_path / "book").entries()


def test_busy(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with holding_lock(lock, "x"), pytest.raises(errors.BusyError), holding_lock(lock, "x"):
        pass


def test_storage(tmp_path: Path) -> None:
    for read in (read_file, map_file):
        with pytest.raises(errors.StorageError, match="check the path"):
            read(tmp_path / "none", 10)


def test_missing_package() -> None:
    with pytest.raises(errors.MissingPackageError, match="pip install"):
        import_extra("no_such_module", "this needs it", "io")

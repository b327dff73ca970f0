"""Summaries of saved indexes, from the manifest alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpindex.privacy import Guarantee
from dpindex.similarity.calibration import SimilarityCalibration
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Manifest, Settings

if TYPE_CHECKING:  # most indexes have none
    from dpindex.denoise import Denoiser

__all__ = ["Summary", "coverage_warning", "summarize"]

_UNCOVERED = 1.05
"""Crowding of codes from which a codebook is called unlike the collection."""


def coverage_warning(crowding: float | None) -> str | None:
    """Return one sentence where a codebook does not cover the collection."""
    if crowding is None or crowding < _UNCOVERED:
        return None
    return (
        f"the codebook does not cover this collection: codes crowd on few codewords, at least "
        f"{crowding:.1f} times as unevenly as those of vectors like the codewords. "
        f"Expect far fewer neighbours than were planned, unless the collection has many near "
        f"duplicates, which crowd too. Make the codebook of public vectors of the same kind and "
        f"topics, or add such to it."
    )


@dataclass(frozen=True)
class Summary:
    """A saved index, described without its codes and ids.

    Attributes
    ----------
    settings : Settings
    count : int
        Rows.
    bytes : int
        Of all files.
    payload : dict of str to str
        Type of each payload column by its name, in Arrow's words.
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    crowding : float, optional
        As in the manifest.
    """

    settings: Settings
    count: int
    bytes: int
    payload: dict[str, str]
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None
    crowding: float | None

    @property
    def guarantee(self) -> Guarantee:
        """The promise about the codes: that of their shuffle, if they are one."""
        return self.settings.guarantee(self.count)

    def to_dict(self) -> dict[str, Any]:
        """Return contents, search settings and promise as plain JSON values."""
        spec = self.settings.spec
        denoiser = None
        if self.denoiser is not None:
            names = ("kind", "rows", "error")
            denoiser = {name: getattr(self.denoiser, name) for name in names}
        return {
            "count": self.count,
            "bytes": self.bytes,
            "code_length": spec.code_length,
            "metric": self.settings.metric,
            "index_type": self.settings.index_type,
            "payload": self.payload,
            "denoiser": denoiser,
            "calibrated_rows": self.calibration.rows if self.calibration else None,
            "query_epsilon": self.settings.query_spec.epsilon,
            "crowding": self.crowding,
            "spec": spec.to_dict(),
            **self.guarantee.statement(spec.dim),
        }


def summarize(path: str | os.PathLike[str]) -> Summary:
    """Return the summary of a saved index; of the codes only the sizes are checked.

    Raises
    ------
    InputError
        If the directory is not an index, is unfinished, or lacks a file or a part of one.

    >>> import tempfile
    >>> from dpindex import PrivateIndex, Spec, attribute
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index = PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=2.0,
    ...     adjacency=attribute(1.0)))
    ...     index.save(Path(folder) / "index")
    ...     summarize(Path(folder) / "index").to_dict()["guarantee"]["epsilon"]
    2.0
    """
    directory = IndexDirectory(Path(path))
    manifest: Manifest = directory.finished_manifest()
    directory.check_sizes(manifest)
    return Summary(
        settings=directory.settings(manifest),
        count=manifest.count,
        bytes=sum(file.stat().st_size for file in directory.path.rglob("*") if file.is_file()),
        payload=directory.payload_columns(manifest),
        denoiser=directory.denoiser(manifest),
        calibration=directory.calibration(manifest),
        crowding=manifest.crowding,
    )

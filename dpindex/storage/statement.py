"""What is said of a saved index: its summary, from the manifest, and its privacy statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from dpindex.base.display import counted
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.data.stores import Folder
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.decode.denoiser import Denoiser
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.storage.contents import IndexFiles
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings
from dpindex.version import __version__

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
    bytes : int, optional
        Of all files; None for what lies in a database.
    payload : dict of str to str
        Type of each payload column by its name, in Arrow's words.
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    crowding : float, optional
        As in the manifest.
    """

    settings: Settings
    count: int
    bytes: int | None
    payload: dict[str, str]
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None
    crowding: float | None

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
            **spec.guarantee.statement(spec.dim),
        }


def summarize(path: AnyPath) -> Summary:
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
    files = IndexFiles(directory.path, directory.finished_manifest())
    files.check_sizes()
    sizes = Folder(directory.path).sizes()
    return Summary(
        settings=files.settings,
        count=files.manifest.count,
        bytes=sum(sizes.values()),
        payload=files.payload_columns(),
        denoiser=files.denoiser(),
        calibration=files.calibration(),
        crowding=files.manifest.crowding,
    )


Statement: TypeAlias = Mapping[str, str | float | list[str]]
"""Headings, and what stands under each."""


def statement_of(summary: Summary) -> Statement:
    """Return what a reviewer asks of a deployment, as plain JSON values.

    The headings follow the questions of NIST SP 800-226 ("Guidelines for Evaluating Differential
    Privacy Guarantees", 2025) and of the public registry of deployments. InputError for the codes
    of a ``none-*`` baseline.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpindex import PrivateIndex, Spec, record
    >>> from dpindex.storage.statement import summarize
    >>> spec = Spec("record-cap", dim=8, k=64, epsilon=4.0, adjacency=record())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     PrivateIndex(spec).save(Path(folder) / "index")
    ...     statement_of(summarize(Path(folder) / "index"))["unit of privacy"]
    'one whole vector, replaced by any other (any two vectors)'
    """
    spec = summary.settings.spec
    guarantee = spec.guarantee
    if guarantee.definition == "none":
        raise InputError("there is nothing to state: the codes of this index are not private.")
    epsilon: float | list[str] = guarantee.epsilon
    if guarantee.also:
        promises = guarantee.promises
        epsilon = [f"{one.epsilon:g} for {one.adjacency.describe()}" for one in promises]
    proof = "for real numbers, not for the floats that run"
    if guarantee.exact:
        proof = "for the integers that run; `dpindex audit INDEX --exact` repeats it"
    learned = "similarities are estimated"
    if summary.denoiser is not None:
        learned = "a denoiser and similarities are learned"
    codes = counted(summary.count, "code")
    return {
        "data product": f"an index of {codes}, one for each vector of {spec.dim} "
        f"attributes; it answers searches for near vectors by {summary.settings.metric}",
        "software": f"dpindex {__version__}",
        "unit of privacy": guarantee.units,
        "trust model": "local: every vector is randomized by itself, and only its code is "
        "published; whoever holds or searches the codes is not trusted",
        "definition": _definition(guarantee),
        "epsilon": epsilon,
        "delta": guarantee.delta,
        "meaning": [guarantee.protects(), guarantee.odds()],
        "mechanism": f"{spec.method}: {spec.method_row.summary}",
        "source": spec.method_row.source,
        "parameters": [f"{name} = {value}" for name, value in _parameters(spec).items()],
        "proof": proof,
        "source of noise": "the operating system's entropy through AES-256 in counter mode, drawn "
        "as integers; no seed makes it reproducible",
        "composition": [
            "one release of every vector; epsilons and deltas of further releases add up",
            f"a private query is a release of the query's own vector: "
            f"{summary.settings.query_spec.guarantee}",
        ],
        "post-processing": f"{learned} from the codes alone",
        "published in the clear": [
            "ids, their order and number",
            *(f"payload column {name}" for name in summary.payload),
            "all parameters of the mechanism",
        ],
        "outside the guarantee": guarantee.does_not_protect(spec.dim),
    }


def statement_markdown(statement: Statement) -> str:
    """Return a statement as Markdown, one section for each heading.

    >>> print(statement_markdown({"epsilon": 2.0, "meaning": ["a", "b"]}))
    # Privacy statement
    <BLANKLINE>
    ## Epsilon
    <BLANKLINE>
    2
    <BLANKLINE>
    ## Meaning
    <BLANKLINE>
    - a
    - b
    """
    parts = ["# Privacy statement"]
    for heading, value in statement.items():
        parts.append(f"## {heading.capitalize()}")
        if isinstance(value, list):
            parts.append("\n".join(f"- {line}" for line in value))
        elif isinstance(value, str):
            parts.append(value)
        else:
            parts.append(f"{value:g}")
    return "\n\n".join(parts)


def _definition(guarantee: Guarantee) -> str:
    """Return the name of the definition, never calling iDP differential privacy."""
    name = "differential privacy"
    if guarantee.definition == "iDP":
        name = "individual differential privacy (iDP), which is weaker than differential privacy"
    if guarantee.delta == 0:
        return f"pure {name}"
    if guarantee.delta_over == "projection":
        return f"approximate {name}; delta is also over the choice of the projection"
    return f"approximate {name}"


def _parameters(spec: Spec) -> dict[str, object]:
    """Return the public parameters of a spec, without what other headings say."""
    elsewhere = {"format", "method", "dim", "epsilon", "delta", "adjacency"}
    public = spec.to_dict()
    if spec.public is not None:
        public[spec.public.kind] = f"{spec.public.contents}, {spec.public.digest}"
    return {
        name: value for name, value in public.items() if value is not None and name not in elsewhere
    }

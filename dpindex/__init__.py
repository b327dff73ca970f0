"""dpindex: a private vector-search index.

Vectors become differentially private codes; anyone may hold, index and search the codes, and the
guarantee stands.
"""

from __future__ import annotations

from importlib import import_module

from dpindex.version import __version__ as __version__

TYPE_CHECKING = False  # without typing: the command must soon be able to answer Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from dpindex.accounting import compose
    from dpindex.accounting.ledger import Ledger
    from dpindex.base.errors import (
        BusyError,
        DamagedError,
        InputError,
        NoGuaranteeError,
        QualityWarning,
        StorageError,
    )
    from dpindex.data import Ranges, open_dataset
    from dpindex.index.hits import Hits
    from dpindex.index.originals import Answers, Holder, Originals
    from dpindex.index.private_index import PrivateIndex
    from dpindex.integrations import build, open
    from dpindex.integrations.publication import publish
    from dpindex.integrations.published import PublishedIndex
    from dpindex.mechanism.codebooks import Codebook, fit_codebook
    from dpindex.mechanism.codes import BitCodes, Codes, codes_from_bytes
    from dpindex.mechanism.method_table import methods
    from dpindex.mechanism.optimiser import design
    from dpindex.mechanism.privatizer import Privatizer
    from dpindex.mechanism.public_parts import Design
    from dpindex.mechanism.spec import Spec
    from dpindex.mechanism.variants import Blocks, Dense, Repeated
    from dpindex.privacy import Guarantee, attribute, l2, record
    from dpindex.study.evaluation import evaluate
    from dpindex.study.planner import plan

__all__ = [
    "Answers",
    "BitCodes",
    "Blocks",
    "BusyError",
    "Codebook",
    "Codes",
    "DamagedError",
    "Dense",
    "Design",
    "Guarantee",
    "Hits",
    "Holder",
    "InputError",
    "Ledger",
    "NoGuaranteeError",
    "Originals",
    "PrivateIndex",
    "Privatizer",
    "PublishedIndex",
    "QualityWarning",
    "Ranges",
    "Repeated",
    "Spec",
    "StorageError",
    "attribute",
    "build",
    "codes_from_bytes",
    "compose",
    "design",
    "evaluate",
    "fit_codebook",
    "l2",
    "methods",
    "open",
    "open_dataset",
    "plan",
    "publish",
    "record",
]

# What is named is imported when it is first used: a device encodes without Faiss, and a searcher
# never loads the secret stream.
_HOME = {
    "accounting": ["compose"],
    "mechanism.public_parts": ["Design"],
    "mechanism.codebooks": ["Codebook", "fit_codebook"],
    "mechanism.codes": ["BitCodes", "Codes", "codes_from_bytes"],
    "base.errors": [
        *("BusyError", "DamagedError", "InputError", "NoGuaranteeError", "QualityWarning"),
        "StorageError",
    ],
    "data": ["Ranges", "open_dataset"],
    "index.hits": ["Hits"],
    "index.originals": ["Answers", "Originals", "Holder"],
    "index.private_index": ["PrivateIndex"],
    "integrations": ["build", "open"],
    "integrations.publication": ["publish"],
    "integrations.published": ["PublishedIndex"],
    "accounting.ledger": ["Ledger"],
    "mechanism.optimiser": ["design"],
    "mechanism.method_table": ["methods"],
    "study.evaluation": ["evaluate"],
    "study.planner": ["plan"],
    "privacy": ["Guarantee", "attribute", "l2", "record"],
    "mechanism.privatizer": ["Privatizer"],
    "mechanism.spec": ["Spec"],
    "mechanism.variants": ["Blocks", "Dense", "Repeated"],
}
_MODULES = {name: f"dpindex.{home}" for home, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dpindex' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

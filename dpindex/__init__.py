"""dpindex: a private vector-search index.

Vectors become differentially private codes; anyone may hold, index and search the codes, and the
guarantee stands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpindex.accounting import total
from dpindex.codes import BitCodes, FloatCodes, codes_from_bytes
from dpindex.errors import InputError
from dpindex.methods import methods
from dpindex.privacy import Guarantee, attribute, compose, l2
from dpindex.spec import Spec

if TYPE_CHECKING:
    from dpindex import evaluate
    from dpindex.index import Hits, PrivateIndex
    from dpindex.ledger import Ledger
    from dpindex.planner import plan
    from dpindex.privatizer import Privatizer

__version__ = "0.1.0"

__all__ = [
    "BitCodes", "FloatCodes", "Guarantee", "Hits", "InputError", "Ledger", "PrivateIndex",
    "Privatizer", "Spec", "attribute", "codes_from_bytes", "compose", "evaluate", "l2", "methods",
    "plan", "total",
]  # fmt: skip

# Imported when first named: a searcher needs no secret stream, and a device no Faiss.
_LAZY = {
    "Hits": "dpindex.index",
    "Ledger": "dpindex.ledger",
    "PrivateIndex": "dpindex.index",
    "Privatizer": "dpindex.privatizer",
    "evaluate": "dpindex.evaluate",
    "plan": "dpindex.planner",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dpindex' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name == "evaluate" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__

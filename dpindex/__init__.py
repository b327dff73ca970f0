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
from dpindex.ledger import Ledger
from dpindex.methods import methods
from dpindex.noise import sjlt_noise
from dpindex.privacy import Guarantee, attribute, compose, l2
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.version import __version__

if TYPE_CHECKING:
    from dpindex import evaluate
    from dpindex.index import Hits, PrivateIndex
    from dpindex.planner import plan

__all__ = [
    "BitCodes",
    "FloatCodes",
    "Guarantee",
    "Hits",
    "InputError",
    "Ledger",
    "PrivateIndex",
    "Privatizer",
    "Spec",
    "__version__",
    "attribute",
    "codes_from_bytes",
    "compose",
    "evaluate",
    "l2",
    "methods",
    "plan",
    "sjlt_noise",
    "total",
]

# A device encodes without Faiss, so what needs it is imported when it is first named.
_LAZY = {
    "PrivateIndex": "dpindex.index",
    "Hits": "dpindex.index",
    "evaluate": "dpindex.evaluate",
    "plan": "dpindex.planner",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dpindex' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name == "evaluate" else getattr(module, name)

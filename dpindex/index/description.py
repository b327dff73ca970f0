"""What an index holds and promises, as plain facts."""

from __future__ import annotations

from typing import Any

from dpindex.index.private_index import PrivateIndex

__all__ = ["describe"]


def describe(index: PrivateIndex) -> dict[str, Any]:
    """What an index holds, how it is searched and what it promises, as plain JSON values.

    ``bytes`` counts the files of the directory that the index was opened from or saved to, and is 0
    without one. ``index_recall`` is measured now, if the index type is not exact.

    >>> from dpindex.spec import Spec
    >>> facts = describe(PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=2.0)))
    >>> facts["count"], facts["code_length"], facts["guarantee"]["epsilon"]
    (0, 4, 2.0)
    """
    spec, denoiser = index.spec, index.denoiser
    files = [] if index.path is None else index.path.rglob("*")
    return {
        "count": len(index),
        "bytes": sum(file.stat().st_size for file in files if file.is_file()),
        "code_length": spec.code_length,
        "metric": index.metric,
        "index_type": index.index_type,
        "index_recall": index.index_recall,
        "denoiser": denoiser
        and {"kind": denoiser.kind, "rows": denoiser.rows, "error": denoiser.error},
        "query_epsilon": index.query_spec.epsilon,
        "spec": spec.to_dict(),
        **spec.guarantee.statement(spec.dim),
    }

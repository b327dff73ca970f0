"""Faiss, imported when vectors are first searched: to read a manifest or privatize needs none."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import faiss

    # Faiss turns to matrix products only for large batches by default; ours are small enough to
    # answer Ctrl-C, and six times faster this way. Older versions count queries, from 20.
    if faiss.cvar.distance_compute_blas_threshold > 4096:
        faiss.cvar.distance_compute_blas_threshold = 4096
    return getattr(faiss, name)

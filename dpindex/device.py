"""Devices: turn a vector into a code, under a spec that someone else wrote.

It needs numpy, scipy, cryptography and mpmath: no search engine, accountant, terminal or plotting
library is imported. ``pip install --no-deps dpindex`` beside these four is enough.
"""

from __future__ import annotations

import os

from dpindex.base.arrays import Vectors
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec

__all__ = ["privatize"]


def privatize(
    vector: Vectors,
    spec: Spec | str | os.PathLike[str],
    *,
    max_epsilon: float,
    public: str | os.PathLike[str] | None = None,
) -> bytes:
    """Return the private code of a vector, as bytes to send; it spends epsilon for each vector.

    Parameters
    ----------
    vector : array, shape (dim,) or (n, dim)
        Of any real dtype, within the bounds of the spec.
    spec : path or Spec
        The file ``spec.json`` that the holder of the index published.
    max_epsilon : float
        The largest epsilon that the owner of the vector accepts, whatever the spec says; a delta
        above 1e-4 is never accepted. It is that of one release under the spec's own adjacency: read
        ``spec.guarantee.protects()``.
    public : path, optional
        The codebook or design, for a spec that names one.

    Returns
    -------
    Bytes that ``dpindex add`` and :func:`dpindex.codes_from_bytes` read.

    Raises
    ------
    InputError
        For a spec that cannot be read, promises a larger epsilon or delta, or none, or lacks its
        codebook or design; and for a vector of another length, with NaN, or outside the bounds.

    >>> import dpindex as dpi
    >>> spec = dpi.Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=dpi.attribute(1.0))
    >>> len(privatize([0.5, 0, 0, 0, -0.5, 0], spec, max_epsilon=3.0))
    256
    """
    if not isinstance(spec, Spec):
        spec = Spec.read(spec)
    if public is not None:
        spec = spec.with_public(public)
    return Privatizer(spec, max_epsilon=max_epsilon).privatize(vector).to_bytes()

"""What a device does: turn its own vector into a code, under a spec that someone else wrote.

It needs numpy, scipy, cryptography and mpmath: no search engine, accountant, terminal or plotting
library is imported. ``pip install --no-deps dpindex`` beside these four is enough.
"""

from __future__ import annotations

import os

from dpindex.base.arrays import Vectors
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec

__all__ = ["privatize"]


def privatize(
    vector: Vectors,
    spec: Spec | str | os.PathLike[str],
    *,
    max_epsilon: float,
    codebook: str | os.PathLike[str] | None = None,
) -> bytes:
    """The private code of a vector, as bytes to send; spends epsilon once for each vector.

    Parameters
    ----------
    vector : array, shape (dim,) or (n, dim)
        Of any real dtype, within the bounds of the spec.
    spec : path or Spec
        The file ``spec.json`` that the holder of the index published.
    max_epsilon : float
        The largest epsilon that the owner of the vector accepts, whatever the spec says. It is that
        of one release under the spec's own adjacency and delta: read ``spec.guarantee.protects()``.
    codebook : path, optional
        The public codewords, for a spec that names some.

    Returns
    -------
    What ``dpindex add`` and :func:`dpindex.codes_from_bytes` read.

    Raises
    ------
    InputError
        For a spec that cannot be read, promises a larger epsilon or none, or lacks its codebook;
        and for a vector of another length, with NaN, or outside the bounds.

    >>> import dpindex as dpi
    >>> spec = dpi.Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> len(privatize([0.5, 0, 0, 0, -0.5, 0], spec, max_epsilon=3.0))
    256
    """
    described = spec if isinstance(spec, Spec) else Spec.read(spec)
    if codebook is not None:
        described = described.with_codebook(Codebook(codebook))
    return Privatizer(described, max_epsilon=max_epsilon).privatize(vector).to_bytes()

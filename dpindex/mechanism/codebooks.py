"""Codebooks that are fitted to public vectors, as designs are by the optimiser."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from dpindex.base.arrays import Longs, Singles, row_norms, unit
from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.guide import Guide
from dpindex.mechanism.public_parts import MAX_SIZE, MIN_SIZE, Codebook

_ITERATIONS = 25
# The most further rounds, each of _ITERATIONS.
_ROUNDS = 4
_SAME_COSINE = 1.0 - 1e-5


def fit_codebook(public: Any, size: int) -> Codebook:
    """Return a codebook of ``size`` codewords made of public vectors.

    Fewer codewords than vectors are the centroids of spherical k-means (Dhillon & Modha 2001). More
    are the vectors and points half-way between near neighbours: first between each vector and its
    nearest, then its second nearest, and so on. Smaller codebooks are better at small epsilons and
    with private queries, larger ones at large epsilons and with exact queries: ``plan`` compares.

    Parameters
    ----------
    public : array, sparse matrix, path or VectorSource, shape (n, dim)
        Chosen without looking at the private vectors; of more than 65536, that many evenly spaced
        ones are used. Equal directions count once.
    size : int
        Codewords wanted, [2, 65536].

    Raises
    ------
    InputError
        For vectors that are no codebook themselves, and sizes that they cannot be grown to.

    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(size=(50, 8))
    >>> len(fit_codebook(public, 10)), len(fit_codebook(public, 80))
    (10, 80)
    """
    whole_number(size, "the size of a codebook", MIN_SIZE, MAX_SIZE)
    sample = Codebook.spaced(public, MAX_SIZE)
    _, first = np.unique(sample.vectors, axis=0, return_index=True)
    first.sort()
    if size == len(first):
        return Codebook(sample.stated[first])
    vectors = sample.vectors[first]
    if size < len(first):
        book = centroid_codebook(vectors, size)
        book.guide = Guide.learned(vectors, book.vectors)
        return book
    return grown_codebook(sample.stated[first], size)[0]


def centroid_codebook(vectors: Singles, size: int, rounds: int = _ROUNDS) -> Codebook:
    """Return the centroids of spherical k-means of vectors of norm 1.

    ``rounds`` of 25 more iterations at most follow the first, until little moves.
    """
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        size,
        niter=_ITERATIONS,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=MAX_SIZE,
    )
    kmeans.train(vectors)
    for _ in range(rounds):
        # Until little moves: the leak check knows centroids by it, should these not be public.
        before = kmeans.centroids
        kmeans.train(vectors, init_centroids=before)
        if np.array_equal(before, kmeans.centroids):
            break
    return Codebook(kmeans.centroids)


def grown_codebook(vectors: Singles, size: int) -> tuple[Codebook, Longs]:
    """Return a codebook of vectors and of points half-way between near neighbours, and their ends.

    Parameters
    ----------
    vectors : float32 array, shape (n, dim)
        Of different directions. A point between two of them has their mean norm.
    size : int
        Codewords, more than n.

    Returns
    -------
    Codebook
        The vectors first, then ``size − n`` points between different pairs, the nearest first.
    int64 array, shape (2, size)
        The two vectors between which each codeword lies; a vector lies between itself and itself.
    """
    count = len(vectors)
    missing = size - count
    norms = row_norms(vectors).astype(np.float32)
    directions = vectors / norms[:, None]
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(directions)
    reach = 4 * -(-missing // count)
    while True:
        cosines, near = flat.search(directions, min(reach, count))
        # Column by column: the nearest of every vector come before the second nearest.
        left = np.tile(np.arange(count), near.shape[1])
        right = near.T.ravel()
        apart = (np.abs(cosines.T.ravel()) < _SAME_COSINE) & (left != right)
        low = np.minimum(left, right)[apart]
        high = np.maximum(left, right)[apart]
        _, first = np.unique(low * count + high, return_index=True)
        if len(first) >= missing:
            break
        if reach >= count:
            raise InputError(
                f"{count} public vectors have {len(first)} different pairs, so a codebook of at "
                f"most {count + len(first)} codewords can be grown from them, not {size}."
            )
        reach *= 2
    kept = np.sort(first)[:missing]
    pairs = np.stack([low[kept], high[kept]])
    between = unit(directions[pairs].sum(axis=0)) * norms[pairs].mean(axis=0)[:, None]
    every = np.arange(count)
    ends = np.hstack([np.stack([every, every]), pairs])
    return Codebook(np.concatenate([vectors, between])), ends

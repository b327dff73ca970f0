"""Images that an attacker rebuilds from their codes, beside the originals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, row_norms, spaced
from dpindex.base.errors import InputError
from dpindex.data import as_source, dense_rows
from dpindex.mechanism.spec import Spec
from dpindex.study.evaluate.curve_charts import gallery_png
from dpindex.study.evaluate.explorer.measured import at_norm_1, hides_records
from dpindex.study.evaluate.explorer.page import Picture
from dpindex.study.evaluate.grid import label
from dpindex.study.reconstruction import FITTED, cosines, public_rows, reconstructed_among

__all__ = ["image_attack"]

_IMAGES = 10
_EPSILONS = 5


def image_attack(base: Any, specs: Iterable[Spec], shape: tuple[int, ...]) -> list[Picture]:
    """A picture for each method: ten images, and what an attacker rebuilds at each epsilon.

    The attacker fits the strongest denoiser to the codes of the collection, of which up to 8192 are
    used here, where one can be fitted; other images of the collection stand for public ones
    (:class:`dpindex.study.reconstruction.Reconstructor`). Of more than five epsilons the
    largest, the smallest and three between them are shown. The originals are shown too, so the
    pictures are as private as the images.

    Parameters
    ----------
    base : array, sparse matrix or VectorSource, shape (n, height·width) or (n, height·width·3)
        Grey images or colour images, one in each row.
    specs : iterable of Spec
        Those of one method and code length share a picture; ``none-*`` baselines are left out.
    shape : (height, width) or (height, width, 3)

    Raises
    ------
    InputError
        If the images have another number of pixels, or a projection is too large to invert.

    >>> from dpindex import attribute
    >>> spec = Spec("raw-staircase", dim=4, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0))
    >>> image_attack(np.zeros((5, 4)), [spec], (2, 2))[0].title
    'Images rebuilt from codes of raw-staircase, k = 4'
    """
    source = as_source(base, "the images")
    if math.prod(shape) != source.shape[1]:
        named = " × ".join(map(str, shape))
        raise InputError(
            f"{source.name} has {source.shape[1]} columns, not the {named} numbers of an image."
        )
    _, rows = next(source.chunks(FITTED))
    chosen = spaced(source.shape[0], _IMAGES)
    originals = dense_rows(source, chosen).astype(np.float64)
    public = dense_rows(source, public_rows(*source.shape, chosen))
    methods: dict[str, list[Spec]] = {}
    for spec in specs:
        if spec.epsilon is not None:
            methods.setdefault(label(spec), []).append(spec)
    return [
        Picture(
            _gallery(rows, originals, public, some, shape),
            f"Images, and what an attacker who fits a denoiser to the published codes, and has "
            f"other images of the kind, rebuilds from their codes; ε under "
            f"{some[0].guarantee.adjacency}. The last row is the best guess without a code, their "
            f"mean. The originals are shown: this picture is as private as they are.",
            title=f"Images rebuilt from codes of {name}",
            small=True,
            file=f"inversion-{number}.png",
        )
        for number, (name, some) in enumerate(methods.items(), 1)
    ]


def _gallery(
    rows: Any, originals: Any, public: Any, specs: list[Spec], shape: tuple[int, ...]
) -> bytes:
    low, high = (bound * specs[0].scale for bound in specs[0].bounds)
    attacked = originals
    sizes: Any = 1.0
    if hides_records(specs[0]):  # directions, which are shown as large as the originals
        low = float(originals.min())
        high = float(originals.max())
        sizes = row_norms(originals)[:, None]
        parts = (as_source(part, "the images") for part in (rows, originals, public))
        rows, attacked, public = (at_norm_1(part).read() for part in parts)
    lines: list[tuple[str, AnyArray]] = [("original", originals)]
    ordered = sorted(specs, key=lambda spec: -spec.budget)
    for spec in (ordered[i] for i in spaced(len(ordered), _EPSILONS)):
        rebuilt = reconstructed_among(spec, attacked, rows, public)
        cosine = float(cosines(rebuilt, originals).mean())
        lines.append((f"ε = {spec.budget:g}\ncosine {cosine:.2f}", rebuilt * sizes))
    guess = np.tile(public.mean(axis=0, dtype=np.float64), (len(originals), 1))
    lines.append((f"no code\ncosine {cosines(guess, originals).mean():.2f}", guess * sizes))
    return gallery_png(lines, shape, (low, high))

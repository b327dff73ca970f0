"""Many small pictures in one: a sheet that a page cuts into tiles."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra

__all__ = ["Sheet", "picture_shape", "strip_shape"]

_MAX_SIDE = 32
_MAX_STRIPES = 64
_MAX_PNG_BYTES = 2_500_000


def picture_shape(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The shape of a picture, checked.

    Raises InputError unless it is (height, width) or (height, width, 3) with ``dim`` values.

    >>> picture_shape((8, 8), 64)
    (8, 8)
    """
    if len(shape) not in (2, 3) or min(shape) < 1 or shape[2:] not in ((), (3,)):
        wanted = "x".join(map(str, shape))
        raise InputError(f"the shape of an image is HEIGHTxWIDTH or HEIGHTxWIDTHx3, not {wanted}.")
    if math.prod(shape) != dim:
        named = "x".join(map(str, shape))
        raise InputError(
            f"an image of {named} has {math.prod(shape)} values and a vector has {dim} attributes; "
            f"state the shape of your images."
        )
    return shape


def strip_shape(dim: int) -> tuple[int, int]:
    """The shape of a vector that is no picture: a stripe for each of its first 64 attributes."""
    return (1, min(dim, _MAX_STRIPES))


class Sheet:
    """Tiles of one shape, collected one batch at a time.

    Parameters
    ----------
    shape : (height, width) or (height, width, 3)
        Of a tile; the first values of a vector fill it row by row. Tiles wider or higher than 32
        are made smaller.
    limits : (float, float)
        Values that are black and white.
    """

    def __init__(self, shape: tuple[int, ...], limits: tuple[float, float]) -> None:
        self._shape = shape
        self._limits = limits
        self._tiles: list[Bytes] = []
        self._image = import_extra("PIL.Image", "an explorer needs jinja2 and pillow", "eval")

    def add(self, vectors: AnyArray) -> int:
        """Add a tile for each vector; returns the number of the first."""
        first = len(self._tiles)
        low, high = self._limits
        share = (np.asarray(vectors, dtype=np.float64) - low) / ((high - low) or 1.0)
        grey = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
        self._tiles += [self._tile(row) for row in grey]
        return first

    def _tile(self, values: Bytes) -> Bytes:
        tile = values[: math.prod(self._shape)].reshape(self._shape)
        height, width = self._shape[:2]
        shrink = max(height, width) / _MAX_SIDE
        if height == 1 or shrink <= 1:
            return tile
        size = (max(1, round(width / shrink)), max(1, round(height / shrink)))
        picture = self._image.fromarray(tile)
        return np.asarray(picture.resize(size, self._image.Resampling.BOX))

    def to_dict(self) -> dict[str, Any]:
        """The sheet as JSON values: columns, width and height of a tile, and a data address.

        A PNG; WebP, which loses detail, if a PNG would be larger than 2.5 MB.
        """
        height, width = self._tiles[0].shape[:2]
        columns = max(1, math.isqrt(len(self._tiles) * height // width))
        lines = -(-len(self._tiles) // columns)
        blank = np.zeros((lines * columns - len(self._tiles), *self._tiles[0].shape), np.uint8)
        tiles = np.concatenate([np.stack(self._tiles), blank])
        rows = tiles.reshape(lines, columns, *self._tiles[0].shape).swapaxes(1, 2)
        pixels = rows.reshape(lines * height, columns * width, *self._tiles[0].shape[2:])
        picture = self._image.fromarray(np.ascontiguousarray(pixels))
        kind = "png"
        data = _encoded(picture, "PNG", optimize=True)
        if len(data) > _MAX_PNG_BYTES:
            kind = "webp"
            data = _encoded(picture, "WEBP", quality=70)
        return {
            "columns": columns,
            "width": width,
            "height": height,
            "src": f"data:image/{kind};base64,{b64encode(data).decode()}",
        }


def _encoded(picture: Any, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()

"""Code formats and their bytes.

To add a format, write its class in a file of this folder and list it in :data:`FORMATS`.
"""

from __future__ import annotations

import os

from dpindex.base.errors import DamagedError
from dpindex.base.files import MAGIC, parse_file, unpack
from dpindex.mechanism.codes.base import CodeFormat, Codes, check_format, for_format
from dpindex.mechanism.codes.numbers import FloatCodes, NumberFormat
from dpindex.mechanism.codes.signs import BitCodes, SignFormat
from dpindex.mechanism.codes.symbols import SymbolCodes, SymbolFormat

__all__ = [
    "FORMATS", "BitCodes", "CodeFormat", "Codes", "FloatCodes", "NumberFormat", "SignFormat",
    "SymbolCodes", "SymbolFormat", "check_format", "codes_from_bytes", "for_format", "read_codes",
]  # fmt: skip

_MAX_FILE_BYTES = 1 << 33

FORMATS: dict[str, type[CodeFormat]] = {
    kind.name: kind for kind in (SignFormat, NumberFormat, SymbolFormat)
}
"""Every code format by its name."""


def codes_from_bytes(data: bytes | bytearray | memoryview, *, verified: bool = False) -> Codes:
    """Read codes written by ``to_bytes``. The bytes may come from anyone, so nothing is trusted.

    Length and digest are checked before anything is interpreted.

    Parameters
    ----------
    data : bytes
        What ``to_bytes`` of codes gave, and a device sent.
    verified : bool
        Whether all bytes were compared with a trusted digest, so that their own is not computed.

    Raises
    ------
    InputError
        If the bytes are cut off, changed, of another version, or not codes at all.

    >>> import numpy as np
    >>> codes = BitCodes.from_signs(np.array([[True, False, True]]), bytes(16))
    >>> codes_from_bytes(codes.to_bytes()).to_signs().tolist()
    [[1, -1, 1]]
    """
    facts, arrays = unpack(data, "codes", verified=verified)
    try:
        format_ = FORMATS[facts["format"]].from_dict(facts)
        stored = arrays["stored"]
        if len(arrays) != 1:
            raise ValueError("arrays")
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DamagedError("these codes have a header that no dpindex writes.") from None
    if fault := format_.fault(stored):
        raise DamagedError(f"these codes {fault}.")
    return format_.codes(stored)


def read_codes(path: str | os.PathLike[str]) -> Codes | None:
    """The codes in a file, or None if it is no file that dpindex wrote: perhaps vectors.

    Raises
    ------
    InputError
        As :func:`codes_from_bytes`, with the path.
    """
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
    return parse_file(path, _MAX_FILE_BYTES, codes_from_bytes)

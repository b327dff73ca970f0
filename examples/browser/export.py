"""An index of whole records becomes a static folder, which browsers search by themselves.

    python examples/browser/export.py INDEX FOLDER

The folder gets ``spec.json``, ``codebook.f32`` and ``codes.u16`` (little-endian), ``ids.json`` (the
ids, row by row), and the modules of this example. It holds nothing that the index does not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from dpindex import PrivateIndex
from dpindex.base.errors import InputError

MODULES = ("spec.js", "law.js", "codebook.js", "encode.js", "search.js")


def export(index: PrivateIndex, folder: Path) -> int:
    """Write the codes of an index and the modules that search them; return the bytes of the codes.

    Parameters
    ----------
    index : PrivateIndex
        Of the method ``record-codebook``.
    folder : Path
        A new or empty one.

    Raises
    ------
    InputError
        For an index of another method, or a folder that holds anything.
    """
    spec = index.spec
    book = spec.codebook
    if book is None:
        raise InputError(
            f"a browser searches codes of record-codebook, and these are of {spec.method}; "
            f"publish such an index to a vector database instead (dpindex publish)."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder.")
    codes = index.codes.stored.astype("<u2").tobytes()
    (folder / "spec.json").write_text(spec.to_json(), encoding="utf-8")
    (folder / "codebook.f32").write_bytes(book.stated.astype("<f4").tobytes())
    (folder / "codes.u16").write_bytes(codes)
    (folder / "ids.json").write_text(json.dumps(index.ids.tolist()), encoding="utf-8")
    for name in MODULES:
        shutil.copyfile(Path(__file__).with_name(name), folder / name)
    return len(codes)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write an index as a folder for browsers.")
    parser.add_argument("index", help="folder of an index of record-codebook")
    parser.add_argument("folder", type=Path, help="folder to write")
    chosen = parser.parse_args()
    try:
        index = PrivateIndex.open(chosen.index)
        size = export(index, chosen.folder)
    except InputError as error:
        print(f"export.py: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{chosen.folder}: {len(index)} codes in {size} bytes. {index.spec.guarantee}.")


if __name__ == "__main__":
    main()

"""The data holder, a device and a searcher, each doing only its own part.

python examples/three_people.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import dpindex as dpi


def holder(directory: Path, vectors: np.ndarray) -> str:
    """Picks an epsilon, privatizes once, publishes the directory and the spec."""
    spec = dpi.Spec(
        method="dp-oporp-staircase",
        dim=vectors.shape[1],
        k=64,
        epsilon=4.0,
        adjacency=dpi.attribute(beta=0.25),  # one coordinate, moved by at most 0.25, is hidden
        norm=1.0,  # every vector has unit norm, and everyone may know that
    )
    index = dpi.PrivateIndex(spec)
    index.add(vectors, ids=[f"holder-{i}" for i in range(len(vectors))])
    index.save(directory)
    print("Published under", spec.guarantee)
    return spec.to_json()


def device(spec_json: str, vector: np.ndarray) -> bytes:
    """Privatizes its own vector under the published spec; only the code leaves the device."""
    spec = dpi.Spec.from_json(spec_json)
    return dpi.Privatizer(spec).privatize(vector).to_bytes()


def searcher(directory: Path, sent: bytes, query: np.ndarray) -> dpi.Hits:
    """Opens what was published, adds what the device sent, and asks with a query of its own."""
    index = dpi.PrivateIndex.open(directory)
    index.add_codes(dpi.codes_from_bytes(sent), ids=["device"])
    return index.search(query, k=3, query="exact")


def main() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 128))
    vectors = centres[rng.integers(20, size=2000)] + 0.5 * rng.normal(size=(2000, 128))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "index"
        spec_json = holder(directory, vectors)
        sent = device(spec_json, vectors[7])
        print("The device sent", len(sent), "bytes")
        hits = searcher(directory, sent, vectors[7])
    for name, cosine, error in zip(hits.ids[0], hits.similarity[0], hits.stderr[0], strict=True):
        print(f"{name:>12}  cosine {cosine:.2f} ± {error:.2f}")


if __name__ == "__main__":
    main()

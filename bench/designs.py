"""What designed projections find: MNIST or gray CIFAR-10, one pixel secret, 2000 public pictures.

Run: python bench/designs.py mnist.npz "dp-designed-laplace,1,64 dp-signdesigned-geometric,2,196"
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import dpindex as dpi
from dpindex.base.arrays import unit

_QUERIES = 200
_PUBLIC = slice(5000, 7000)
_TRUE = 50
_FOUND = 10
_CANDIDATES = 600


def pictures(path: str) -> tuple[Any, Any, Any]:
    """Base, queries and public pictures, values 0 … 255, flat."""
    with np.load(path) as data:
        base, test = (data[name].reshape(len(data[name]), -1) for name in ("X_train", "X_test"))
    return base, test[:_QUERIES], test[_PUBLIC]


def measured(index: dpi.PrivateIndex, queries: Any, near: Any) -> str:
    """Precision@10 of the true 50 and recall@10 within 600, private / exact."""
    shown = []
    for mode in ("private", "exact"):
        found = index.search(queries, _CANDIDATES, query=mode).ids  # type: ignore[arg-type]
        pairs = list(zip(found.tolist(), near.tolist(), strict=True))
        precision = np.mean([len({*f[:_FOUND]} & {*t}) for f, t in pairs]) / _FOUND
        recall = np.mean([len({*f} & {*t[:_FOUND]}) for f, t in pairs]) / _FOUND
        shown.append((precision, recall))
    return "  ".join(f"{one:.3f}/{other:.3f}" for one, other in zip(*shown, strict=True))


def main() -> None:
    base, queries, public = pictures(sys.argv[1])
    cosines = unit(queries) @ unit(base).T
    near = np.argsort(-cosines, axis=1)[:, :_TRUE]
    for setting in sys.argv[2].split():
        method, epsilon, length = setting.split(",")
        terms: dict[str, Any] = {"epsilon": float(epsilon), "scale": 255.0}
        signs = "signdesigned" in method
        made = dpi.design(public, beta=1.0, code_length=int(length), signs=signs, **terms)
        adjacency = dpi.attribute(1.0)
        bounds = (0.0, 1.0)
        spec = dpi.Spec(
            method, base.shape[1], adjacency=adjacency, bounds=bounds, design=made, **terms
        )
        index = dpi.PrivateIndex(spec)
        index.add(base)
        print(setting, measured(index, queries, near), flush=True)
        index.fit_denoiser()
        print(setting, "denoised", measured(index, queries, near), flush=True)


if __name__ == "__main__":
    main()

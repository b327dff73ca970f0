"""Run the wrapper in ann-benchmarks' own harness, without Docker, on data sets at hand.

    python bench/ann_benchmarks/run_here.py CHECKOUT [--rows 10000] [--queries 200]

CHECKOUT is a clone of github.com/erikbern/ann-benchmarks; its requirements ansicolors, docker,
pyyaml, requests and h5py are installed. The three files of this folder are copied to its
``ann_benchmarks/algorithms/dpindex``. MNIST (euclidean) and CLINC150 sentence embeddings (angular),
read from ``DPINDEX_DATA``, are written by its own ``write_output`` in its HDF5 layout; its own
runner runs all of config.yml, as ``run.py --local`` does; its own recall is read from the results
and written to results.csv beside this file. Only the first ``--rows`` vectors are taken.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("DPINDEX_DATA", HERE.parents[2] / "shared" / "data"))
COUNT = 10
FILES = ("module.py", "config.yml", "Dockerfile")


def mnist() -> tuple[Any, Any]:
    with np.load(DATA / "mnist.npz") as data:
        parts = data["X_train"], data["X_test"]
    return tuple(part.reshape(len(part), -1).astype(np.float32) for part in parts)


def clinc150() -> tuple[Any, Any]:
    with np.load(DATA / "clinc150_minilm.npz") as data:
        vectors = data["E"].astype(np.float32)
        return vectors[data["corpus_idx"]], vectors[data["query_idx"]]


SETS = {"mnist-784-euclidean": (mnist, "euclidean"), "clinc150-384-angular": (clinc150, "angular")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=200)
    chosen = parser.parse_args()
    folder = chosen.checkout / "ann_benchmarks" / "algorithms" / "dpindex"
    folder.mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy(HERE / name, folder / name)
    os.chdir(chosen.checkout)  # the harness looks for its data, results and logging.conf here
    sys.path.insert(0, str(chosen.checkout.resolve()))
    from ann_benchmarks import datasets, definitions, runner  # type: ignore[import-not-found]

    for name, (load, distance) in SETS.items():
        train, test = load()
        path = datasets.get_dataset_fn(name)
        datasets.write_output(train[: chosen.rows], test[: chosen.queries], path, distance)
        datasets.DATASETS.setdefault(name, None)
        for definition in definitions.get_definitions(train.shape[1], "float", distance, COUNT):
            if definition.algorithm == "dpindex":  # as its main does with --local
                runner.run(definition, name, COUNT, run_count=1, batch=False)
    write(recalls())


def recalls() -> list[dict[str, Any]]:
    """One row for each result of the harness, with its own measure of recall."""
    from ann_benchmarks.datasets import get_dataset
    from ann_benchmarks.plotting.metrics import get_recall_values, knn_threshold
    from ann_benchmarks.results import load_all_results

    rows = []
    for name in SETS:
        truth = np.array(get_dataset(name)[0]["distances"])
        for found, result in load_all_results(name, COUNT):
            recall, *_ = get_recall_values(
                truth, np.array(result["distances"]), COUNT, knn_threshold
            )
            kept = {field: found[field] for field in ("name", "epsilon", "guarantee")}
            rows.append({"dataset": name, **kept, "recall@10": round(float(recall), 3)})
    return sorted(rows, key=_order)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["dataset"], row["name"].split(",")[0], row["epsilon"], row["name"]


def write(rows: list[dict[str, Any]]) -> None:
    with (HERE / "results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    for row in rows:
        print(*row.values(), sep="  ")


if __name__ == "__main__":
    main()

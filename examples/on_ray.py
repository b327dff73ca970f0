"""A folder of Parquet files becomes an index on Ray Data, by the same core as on Dask.

Ray runs a task again whose worker died, and loses and recomputes results: of two attempts at a
segment the process that leads the build keeps one.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

import dpindex as dpi
from dpindex.storage.shards import Shard


def on_ray(function: Callable[[Shard], Any], shards: Sequence[Shard]) -> Iterator[Any]:
    """The engine of Ray Data: a shard is a row of a dataset, and so is its result."""

    def run(row: dict[str, bytes]) -> dict[str, bytes]:
        return {"result": pickle.dumps(function(pickle.loads(row["shard"])))}

    rows = [{"shard": pickle.dumps(shard)} for shard in shards]
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    for row in dataset.map(run).iter_rows():
        yield pickle.loads(row["result"])


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        vectors = np.random.default_rng(0).uniform(-1, 1, (400, 32)).astype(np.float32)
        Path(folder, "vectors").mkdir()
        for number, rows in enumerate(np.array_split(np.arange(400), 4)):
            table = pa.table({"id": [f"doc-{row}" for row in rows], "v": list(vectors[rows])})
            pq.write_table(table, f"{folder}/vectors/{number}.parquet")

        spec = dpi.Spec(
            "dp-oporp-staircase", dim=32, k=16, epsilon=3.0, adjacency=dpi.attribute(1.0)
        )
        dataset = dpi.open_dataset(f"{folder}/vectors", id_column="id")
        outcome = dpi.build(dataset, f"{folder}/index", spec, engine=on_ray, threads=1)

        index = dpi.PrivateIndex.open(f"{folder}/index")
        print(f"{outcome.drawn} of {len(index)} vectors privatized in {len(dataset.parts)} shards")
        print(index.search(vectors[:1], k=3).ids)
    ray.shutdown()


if __name__ == "__main__":
    main()

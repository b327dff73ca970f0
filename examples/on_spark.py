"""A folder of Parquet files becomes an index on Spark, by the same core as on Dask.

Spark runs a task again that failed, and with speculation twice at a time: of two attempts at a
segment the process that leads the build keeps one.

Workers run the interpreter of this process, where ``PYSPARK_PYTHON`` names no other: Spark would
take the first ``python3`` of the path, which may lack the package.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import dpindex as dpi
from dpindex.storage.shards import Engine, Shard


def on_spark(spark: SparkSession) -> Engine:
    """The engine of a Spark session: a shard is a row of a DataFrame, and so is its result."""

    def engine(function: Callable[[Shard], Any], shards: Sequence[Shard]) -> Iterator[Any]:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                work = [pickle.loads(shard) for shard in batch["shard"].to_pylist()]
                results = [pickle.dumps(function(shard)) for shard in work]
                yield pa.RecordBatch.from_pydict({"result": results})

        rows = spark.sparkContext.parallelize([(pickle.dumps(s),) for s in shards], len(shards))
        frame = spark.createDataFrame(rows, "shard binary")
        for row in frame.mapInArrow(run, "result binary").collect():
            yield pickle.loads(row["result"])

    return engine


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
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
        outcome = dpi.build(dataset, f"{folder}/index", spec, engine=on_spark(spark), threads=1)

        index = dpi.PrivateIndex.open(f"{folder}/index")
        print(f"{outcome.drawn} of {len(index)} vectors privatized in {len(dataset.parts)} shards")
        print(index.search(vectors[:1], k=3).ids)
    spark.stop()


if __name__ == "__main__":
    main()

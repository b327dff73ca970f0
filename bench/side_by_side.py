"""What each engine does at the edge: the table of docs/engines.md, row by row.

    pip install faiss-cpu lancedb pymilvus milvus-lite==2.5.1 qdrant-client usearch sqlite-vec \\
        duckdb 'psycopg[binary]'
    python bench/side_by_side.py [--postgres postgresql://…] [--only faiss qdrant]

Each engine is asked the same with twelve equal vectors, a zero vector, a threshold that is met
exactly (inner product 1, distance 1), more neighbours than there are, and
one id twice. An engine that is not installed is passed over.
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

Row = dict[str, Any]
EQUAL = np.tile(np.float32([0.6, 0.8, 0, 0]), (12, 1))
QUERY = np.float32([1, 0, 0, 0])
THREE = np.float32([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
"""The query itself, one at squared distance 2, and zero at squared distance 1."""


def attempt(action: Callable[[], Any]) -> Any:
    """What an action gives, or that it is refused."""
    try:
        return action()
    except Exception as error:
        return f"refused ({type(error).__name__}: {str(error)[:80]})"


def faiss() -> Row:
    import faiss as engine

    ties = {}
    for name, make in (("l2", engine.IndexFlatL2), ("ip", engine.IndexFlatIP)):
        index = make(4)
        index.add(EQUAL)
        ties[name] = index.search(QUERY[None], 4)[1][0].tolist()
    index = engine.IndexFlatL2(4)
    index.add(THREE)
    _, _, within = index.range_search(QUERY[None], 1.0)
    scores, ids = index.search(QUERY[None], 4)
    named = engine.IndexIDMap(engine.IndexFlatL2(4))
    for _ in range(2):
        named.add_with_ids(THREE[:1], np.array([7]))
    return {
        "ties": ties,
        "threshold kept": 2 in within,
        "zero under cosine": "no cosine",
        "beyond": (int(ids[0, -1]), float(scores[0, -1])),
        "id twice": f"{named.ntotal} rows",
    }


def lancedb() -> Row:
    import lancedb as engine

    with tempfile.TemporaryDirectory() as folder:
        database = engine.connect(folder)

        def table(name: str, vectors: Any) -> Any:
            rows = [{"id": i, "vector": one.tolist()} for i, one in enumerate(vectors)]
            return database.create_table(name, rows)

        def ids(request: Any) -> list[int]:
            return request.to_arrow()["id"].to_pylist()

        equal, three = table("equal", EQUAL), table("three", THREE)
        query = QUERY.tolist()
        ties = {}
        for metric in ("l2", "dot", "cosine"):
            ties[metric] = ids(equal.search(query).distance_type(metric).limit(4))
        upper = ids(three.search(query).distance_type("l2").distance_range(None, 1.0).limit(9))
        lower = ids(three.search(query).distance_type("l2").distance_range(1.0, None).limit(9))
        three.add([{"id": 0, "vector": query}])
        return {
            "ties": ties,
            "threshold kept": {"upper": 2 in upper, "lower": 2 in lower},
            "zero under cosine": ids(three.search(query).distance_type("cosine").limit(9)),
            "beyond": len(ids(three.search(query).limit(9))),
            "id twice": f"{three.count_rows('id = 0')} rows",
        }


def milvus() -> Row:
    import pymilvus as engine

    with tempfile.TemporaryDirectory() as folder:
        client = engine.MilvusClient(f"{folder}/x.db")

        def collection(name: str, vectors: Any, metric: str) -> None:
            client.create_collection(name, dimension=4, metric_type=metric, auto_id=False)
            rows = [{"id": i, "vector": one.tolist()} for i, one in enumerate(vectors)]
            client.insert(name, rows)

        def ids(name: str, limit: int, **params: float) -> list[int]:
            found = client.search(
                name, [QUERY.tolist()], limit=limit, search_params={"params": params}
            )
            return [hit["id"] for hit in found[0]]

        ties = {}
        for metric in ("L2", "IP", "COSINE"):
            collection(f"equal_{metric}", EQUAL, metric)
            ties[metric] = ids(f"equal_{metric}", 4)
            collection(f"three_{metric}", THREE, metric)
        zero = client.search("three_COSINE", [QUERY.tolist()], limit=3)[0]
        within = ids("three_L2", 9, radius=1.0)
        client.insert("three_L2", [{"id": 0, "vector": QUERY.tolist()}])
        return {
            "ties": ties,
            "threshold kept": 2 in within,
            "zero under cosine": [(hit["id"], hit["distance"]) for hit in zero],
            "beyond": len(ids("three_IP", 9)),
            "id twice": f"{len(client.query('three_L2', 'id in [0]'))} rows",
        }


def qdrant() -> Row:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")

    def collection(name: str, vectors: Any, distance: Any) -> None:
        client.create_collection(name, models.VectorParams(size=4, distance=distance))
        points = [models.PointStruct(id=i, vector=one.tolist()) for i, one in enumerate(vectors)]
        client.upsert(name, points)

    def hits(name: str, limit: int, threshold: float | None = None) -> list[tuple[int, float]]:
        found = client.query_points(name, QUERY.tolist(), limit=limit, score_threshold=threshold)
        return [(point.id, point.score) for point in found.points]

    ties = {}
    for distance in (models.Distance.EUCLID, models.Distance.DOT, models.Distance.COSINE):
        collection(f"equal{distance}", EQUAL, distance)
        ties[str(distance.value)] = [id for id, _ in hits(f"equal{distance}", 4)]
        collection(f"three{distance}", THREE, distance)
    dot, cosine = (f"three{one}" for one in (models.Distance.DOT, models.Distance.COSINE))
    kept = [id for id, _ in hits(dot, 9, 1.0)]
    zero = hits(cosine, 9)
    client.upsert(dot, [models.PointStruct(id=0, vector=QUERY.tolist())])
    return {
        "ties": ties,
        "threshold kept": 0 in kept,
        "zero under cosine": zero,
        "beyond": len(hits(dot, 9)),
        "id twice": f"{client.count(dot).count} rows of 3",
    }


def usearch() -> Row:
    from usearch.index import Index

    ties = {}
    for metric in ("l2sq", "ip", "cos"):
        index = Index(ndim=4, metric=metric, dtype="f32")
        index.add(np.arange(12), EQUAL)
        ties[metric] = index.search(QUERY, 4).keys.tolist()
    three = Index(ndim=4, metric="l2sq", dtype="f32")
    three.add(np.arange(3), THREE)
    within = three.search(QUERY, 9, radius=1.0).keys.tolist()
    cosine = Index(ndim=4, metric="cos", dtype="f32")
    cosine.add(np.arange(3), THREE)
    found = cosine.search(QUERY, 9)
    return {
        "ties": ties,
        "threshold kept": 2 in within,
        "beyond the radius": 1 in within,
        "zero under cosine": dict(zip(found.keys.tolist(), found.distances.tolist(), strict=True)),
        "beyond": len(found),
        "id twice": attempt(lambda: three.add(0, QUERY)),
    }


def sql(run: Callable[..., list[Any]], cosine: str, distance: str, insert: str) -> Row:
    """What a database in SQL does; tables ``equal`` and ``three`` have an id and a vector."""
    order = f"order by {distance.format('vector')} limit 4"
    zero = run(f"select id, {cosine.format('vector')} from three order by 2")
    within = run(f"select id from three where {distance.format('vector')} <= 1.0")
    return {
        "ties": [id for (id,) in run(f"select id from equal {order}")],
        "threshold kept": (2,) in within,
        "zero under cosine": zero,
        "beyond": len(run(f"select id from three {order.replace('limit 4', 'limit 9')}")),
        "id twice": attempt(lambda: run(insert)),
    }


def sqlite_vec() -> Row:
    import sqlite_vec as engine

    database = sqlite3.connect(":memory:")
    database.enable_load_extension(True)
    engine.load(database)
    for name, vectors in (("equal", EQUAL), ("three", THREE)):
        database.execute(f"create table {name} (id integer primary key, vector blob)")
        rows = [(i, one.tobytes()) for i, one in enumerate(vectors)]
        database.executemany(f"insert into {name} values (?, ?)", rows)
    query = f"x'{struct.pack('4f', *QUERY).hex()}'"
    found = sql(
        lambda text: database.execute(text).fetchall(),
        f"vec_distance_cosine({{}}, {query})",
        f"vec_distance_l2({{}}, {query})",
        f"insert into three values (0, {query})",
    )
    database.close()
    return found


def duckdb() -> Row:
    import duckdb as engine

    database = engine.connect()
    for name, vectors in (("equal", EQUAL), ("three", THREE)):
        database.execute(f"create table {name} (id integer primary key, vector float[4])")
        for i, one in reversed(list(enumerate(vectors))):
            database.execute(f"insert into {name} values (?, ?)", [i, one.tolist()])
    query = f"{QUERY.tolist()}::float[4]"
    return sql(
        lambda text: database.execute(text).fetchall(),
        f"array_cosine_similarity({{}}, {query})",
        f"array_distance({{}}, {query})",
        f"insert into three values (0, {query})",
    )


def postgres(address: str) -> Row:
    import psycopg

    with psycopg.connect(address, autocommit=True) as database:
        database.execute("create extension if not exists vector")
        for name, vectors in (("equal", EQUAL), ("three", THREE)):
            database.execute(f"create table {name} (id integer primary key, vector vector(4))")
            for i, one in enumerate(vectors):
                database.execute(f"insert into {name} values (%s, %s)", (i, str(one.tolist())))
        query = f"'{QUERY.tolist()}'::vector"

        def run(text: str) -> list[Any]:
            answer = database.execute(text)
            return answer.fetchall() if answer.description else []

        found = sql(
            run, f"{{}} <=> {query}", f"{{}} <-> {query}", f"insert into three values (0, {query})"
        )
        versions = run("select split_part(version(), ' ', 2), extversion from pg_extension "
                       "where extname = 'vector'")  # fmt: skip
        database.execute("drop table equal, three")
    return {**found, "versions": versions}


ENGINES: dict[str, tuple[str, Callable[[], Row]]] = {
    "faiss": ("faiss-cpu", faiss),
    "lancedb": ("lancedb", lancedb),
    "milvus": ("milvus-lite", milvus),
    "qdrant": ("qdrant-client", qdrant),
    "usearch": ("usearch", usearch),
    "sqlite-vec": ("sqlite-vec", sqlite_vec),
    "duckdb": ("duckdb", duckdb),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", help="address of an empty database with pgvector")
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=list(ENGINES))
    options = parser.parse_args()
    for name in options.only:
        package, ask = ENGINES[name]
        with suppress(PackageNotFoundError):
            print(f"{name} {version(package)}: {attempt(ask)}", flush=True)
    if options.postgres:
        print(f"postgres: {postgres(options.postgres)}")


if __name__ == "__main__":
    main()

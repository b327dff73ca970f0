"""Exact similarities over HTTP: whom a holder answers, how much, and what the log says."""

import json
import logging
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    codes_of,
    filled_index,
    free_port,
    known_noise,
    needs_posix,
    peak_memory,
    refuses,
    top,
    typed,
    uniform,
    unit,
)
from helpers.documents import section
from numpy.testing import assert_allclose

import dpindex as dpi
from dpindex.data import Ranges
from dpindex.integrations.client import Client
from dpindex.integrations.collector import Collector
from dpindex.integrations.requests import MAX_CANDIDATES, Comparisons, RefusedError, Tokens
from dpindex.integrations.server import Service, comparisons_of

pytest.importorskip("starlette")
testclient = pytest.importorskip("starlette.testclient")
pytestmark = known_noise

N = 60
DIM = 16
SEARCH = 32 * "b"
RERANK = 32 * "c"
REACHES = 32 * "d"
JSON = {"content-type": "application/json"}
X = uniform(N, DIM)
NAMES = [f"n {i}" for i in range(N)]
SPEC = attribute_spec("dp-signoporp-rr", DIM, k=DIM, epsilon=4.0)
UNIT = unit(X)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def server(tmp_path):
    index = filled_index(SPEC, X, NAMES, query_epsilon=6.0)
    holder = dpi.Originals(X, NAMES)
    comparisons = Comparisons(holder, SPEC, index.metric, per_minute=100, clock=lambda: 0.0)
    with serving(index, tmp_path / "log", comparisons=comparisons) as client:
        yield client


@contextmanager
def serving(index, log, **options):
    """A client of a service that answers all who have a token."""
    tokens = Tokens(f"search {SEARCH}\nrerank {RERANK}\nreaches {REACHES}")
    with Collector(index, log, lambda: None) as collector:
        app = Service(collector, tokens, **options).app()
        yield testclient.TestClient(app, base_url="http://localhost")


def asked(ids=NAMES, query=X[0]):
    """The body of a request, of the first vector if no other is given."""
    return json.dumps({"query": list(query), "ids": ids}).encode()


def ask(server, query, ids, token=RERANK):
    body = asked(ids, query)
    return server.post("/rerank", content=body, headers=JSON | bearer(token))


def test_similarities_are_those_of_columns_within_their_ranges():
    """An income in dollars would drown an age, in answers though not in codes."""
    names = tuple(f"c{i}" for i in range(DIM))
    lows = np.full(DIM, -1.0)
    highs = np.arange(1.0, DIM + 1)
    spec = attribute_spec(
        "raw-staircase",
        DIM,
        epsilon=4.0,
        bounds=(0.0, 1.0),
        clip=True,
        ranges=Ranges(names, lows, highs),
    )
    comparisons = Comparisons(dpi.Originals(X, NAMES), spec, "l2")
    inside = (X - lows) / (highs - lows)
    expected = np.square(inside - inside[0]).sum(axis=1)
    answer = comparisons.answer(asked(), str, "a")
    assert_allclose(answer, expected, rtol=1e-6, atol=1e-9)


def test_it_answers_exact_similarities(server, caplog):
    with caplog.at_level(logging.INFO, "dpindex.integrations.requests"):
        answer = ask(server, X[3], ["n 3", "nobody", "n 5"])
    assert answer.status_code == 200
    first, nobody, other = answer.json()["similarity"]
    assert first == pytest.approx(1.0)
    assert nobody is None
    assert other == pytest.approx(UNIT[3] @ UNIT[5])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"{Tokens.name(RERANK)} asked about 3 candidates; 2 answered"


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_a_threshold_is_answered_without_the_similarity(metric, tmp_path):
    spec = attribute_spec("dp-oporp-staircase", DIM, k=8, epsilon=4.0)
    index = dpi.PrivateIndex(spec, metric=metric)
    comparisons = Comparisons(dpi.Originals(X, NAMES), spec, metric)
    exact = UNIT @ UNIT[3]
    if metric == "l2":
        exact = -np.square(X - X[3]).sum(axis=1)
    least = float(np.median(exact))
    body = {"query": X[3].tolist(), "ids": ["nobody", *NAMES]}
    with serving(index, tmp_path / "log", comparisons=comparisons) as client:

        def post(token, path="/reaches", **more):
            content = json.dumps(body | more)
            return client.post(path, content=content, headers=JSON | bearer(token))

        answer = post(REACHES, threshold=least)
        reached = (exact >= least).tolist()
        assert answer.json() == {"reaches": [None, *reached]}
        assert post(RERANK, threshold=least).status_code == 403
        assert post(REACHES, "/rerank").status_code == 403
        for wrong in ({}, {"threshold": "1"}, {"threshold": None}, {"threshold": float("nan")}):
            assert post(REACHES, **wrong).status_code == 422
        assert post(RERANK, "/rerank", threshold=least).status_code == 422


def test_the_route_is_off_and_has_a_role(server, tmp_path):
    for token, status in ((SEARCH, 403), (32 * "z", 401)):
        assert ask(server, X[3], ["n 3"], token).status_code == status
    with serving(dpi.PrivateIndex(SPEC), tmp_path / "other log") as without:
        assert ask(without, X[3], ["n 3"]).status_code == 404


def test_a_minute_has_so_many_candidates(server):
    assert ask(server, X[3], NAMES).status_code == 200
    refused = ask(server, X[3], NAMES)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "60"
    assert "at most 100 candidates" in refused.json()["detail"]


def test_what_was_asked_is_forgotten_with_time():
    now = [0.0]
    holder = dpi.Originals(X, NAMES)
    made = Comparisons(holder, SPEC, "cosine", per_minute=60, clock=lambda: now[0])

    def answered(asker="a", ids=NAMES):
        return made.answer(asked(ids), str, asker)

    answered()
    answered("b")  # each asker has a minute of its own
    for seconds, few in {0.0: 1, 29.0: 30, 30.5: 60}.items():
        now[0] = seconds
        with pytest.raises(RefusedError):
            answered(ids=NAMES[:few])
    now[0] = 60.5
    assert len(answered()) == N


@pytest.mark.parametrize("last", [[], [None], [True], [10**400], [float("nan")]])
def test_wrong_queries(last, server):
    answer = ask(server, [*X[0, 1:], *last], ["n 1"])
    assert answer.status_code == 422
    assert "n 1" not in answer.text


@pytest.mark.parametrize(
    "ids, status", [([], 422), ([7], 422), ("n 1", 422), (["n 1"] * (MAX_CANDIDATES + 1), 413)]
)
def test_wrong_ids(ids, status, server):
    answer = ask(server, X[0], ids)
    assert answer.status_code == status
    assert "n 1" not in answer.text
    body = server.post("/rerank", content=b"{", headers=JSON | bearer(RERANK))
    assert body.status_code == 422


def test_f5_a_megabyte_takes_no_gigabytes():
    """One long id beside many short ones: an array is as wide as its longest for each of them."""
    sizes = []

    class Nobody(dpi.Holder):
        def similarities(self, queries, candidates, metric):
            sizes.append(candidates.ids.nbytes)
            return np.full(candidates.ids.shape, np.nan)

    comparisons = Comparisons(Nobody(), SPEC, "cosine", per_minute=10**6)
    for length in (10**6, 10**5, 1025, 1024):
        body = asked(["x" * length, *(MAX_CANDIDATES - 1) * "y"])
        with peak_memory() as peak:
            if length > 1024:
                with pytest.raises(RefusedError, match="has at most 1024 characters"):
                    comparisons.answer(body, str, "somebody")
            else:
                assert comparisons.answer(body, str, "somebody") == [None] * MAX_CANDIDATES
        assert peak.bytes < 2e7, length
    assert sizes == [4 * 1024 * MAX_CANDIDATES]


@pytest.mark.parametrize("size", [1e308, 2e-308, 5e-324])
def test_low_queries_of_any_size_have_their_cosine(size, server):
    signs = np.where(X[0] >= 0, 1.0, -1.0)
    answer = ask(server, signs * size, NAMES[:3])
    assert answer.status_code == 200
    expected = UNIT[:3] @ signs / np.sqrt(DIM)
    assert_allclose(answer.json()["similarity"], expected, rtol=1e-9)


@pytest.mark.parametrize("id_", ["n 1\0", "\0", "n\0 1"])
def test_low_an_id_with_a_zero_is_no_other_id(id_, server):
    assert ask(server, X[0], [id_, "n 1"]).status_code == 422


def test_originals_must_fit_before_anything_is_served():
    index = filled_index(SPEC, X, NAMES)
    for holder, said in (
        ((X[:, 1:], None, 60), "15 columns where the index has 16"),
        ((X[1:], None, 60), "60 ids for 59 vectors"),
        ((X, None, 0), "per_minute"),
    ):
        with refuses(said):
            comparisons_of(index, *holder)
    comparisons = comparisons_of(index, X, None, 60_000)
    assert len(comparisons.answer(asked(), str, "a")) == N


class Local(Client):
    """A client that asks an application in this process."""

    def __init__(self, app, token):
        super().__init__("http://localhost", token)
        self._app = app
        self._bearer = bearer(token)

    def ask(self, path, body=None, headers=None):
        stated = {name.lower(): value for name, value in (headers or {}).items()}
        stated = {"content-type": "application/octet-stream"} | stated | self._bearer
        method = "GET" if body is None else "POST"
        answer = self._app.request(method, path, content=body, headers=stated)
        return answer.status_code, answer.content


def test_a_searcher_reranks_with_the_holder(server):
    searcher = Local(server, SEARCH)
    holder = Local(server, RERANK)
    queries = X[:1] + 0.05
    codes = codes_of(SPEC.with_epsilon(6.0), queries).to_bytes()
    best = top(queries @ UNIT.T, 5)[0]
    asked_for = {"queries": queries, "candidates": N}
    answers = dpi.Answers(holder.similarities)
    vectors = dict(zip(NAMES, X, strict=True))
    for rerank in (answers, dpi.Originals(X, NAMES), vectors):
        hits = searcher.search(codes, 5, **asked_for, rerank=rerank)
        assert hits.ids[0].tolist() == [NAMES[i] for i in best]
        assert hits.exact.all()
        assert (hits.stderr == 0).all()
    with refuses(r"order of the index, which is not known here"):
        searcher.search(codes, 5, queries=queries, rerank=X)
    with refuses("there are 2 queries for 1 codes"):
        searcher.search(codes, 5, queries=X[:2], rerank=answers)
    with refuses("say where these are"):
        searcher.search(codes, 5, queries=queries, candidates=10)
    with refuses("does not have the role rerank"):
        searcher.similarities(X[0], NAMES)


@pytest.mark.slow
@needs_posix
def test_the_page_runs_as_it_is_typed(tmp_path):
    """The three deployments, each block in order; the collector listens at a free port."""
    page = section("embeddings.md", "## Who re-ranks")
    port = free_port()
    page = page.replace("dpindex serve my-index", f"dpindex serve my-index --port {port}")
    page = page.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}")
    _, _, at_home, same_at_home, _, by_holder, log, by_devices = typed(page, tmp_path)
    assert at_home.count(" exact") == 15
    assert same_at_home.endswith("] True\n")
    assert by_holder.endswith("] True\n")
    assert log.count("asked about 500 candidates; 500 answered") == 3
    assert by_devices.count("True") == 15

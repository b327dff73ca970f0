"""The collector over HTTP: what is answered to whom, and that refusals change nothing."""

import json
import logging

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, filled_index, flipped, known_noise, uniform

import dpindex as dpi
from dpindex.integrations.collector import Collector
from dpindex.integrations.requests import Tokens, max_body, max_rows
from dpindex.integrations.server import Service

pytest.importorskip("starlette")
anyio = pytest.importorskip("anyio")
testclient = pytest.importorskip("starlette.testclient")
pytestmark = known_noise

ESTIMATES = ("similarity", "stderr", "unbiased", "unbiased_stderr")
SPEC = attribute_spec("dp-signoporp-rr", 16, k=16, epsilon=4.0)
OTHER = attribute_spec("dp-signoporp-rr", 16, k=16, epsilon=5.0)
SUBMIT = 32 * "a"
SEARCH = 32 * "b"
METRICS = 32 * "m"
TOKENS = Tokens(f"submit {SUBMIT}\nsearch {SEARCH}\nmetrics {METRICS}")
CODES = {"content-type": "application/octet-stream"}
VECTORS = uniform(40, 16)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def codes(rows=0, spec=SPEC):
    return dpi.Privatizer(spec).privatize(VECTORS[rows]).to_bytes()


def as_submitter(ids, **more):
    return CODES | bearer(SUBMIT) | {"dpindex-ids": json.dumps(ids), **more}


def submit(client, ids, sent=None, **more):
    """The answer to codes that are sent under ids."""
    content = codes() if sent is None else sent
    return client.post("/codes", content=content, headers=as_submitter(ids, **more))


def search(client, asked=None, query=""):
    """The answer to query codes."""
    content = codes() if asked is None else asked
    return client.post(f"/search{query}", content=content, headers=CODES | bearer(SEARCH))


@pytest.fixture
def index(tmp_path):
    names = [f"old {i}" for i in range(20)]
    made = filled_index(SPEC, VECTORS[20:], names, query_epsilon=6.0)
    made.save(tmp_path / "index")
    return made


@pytest.fixture
def make(index):
    """Makes a client of the collector; the index is as it was saved when the test ends."""
    path = index.path

    def save():
        index.save(path)

    with Collector(index, path / ".accepted", save) as collector:

        def client(tokens=TOKENS, **options):
            app = Service(collector, tokens, **options).app()
            return testclient.TestClient(app, base_url="http://localhost")

        yield client


def test_a_repetition_has_the_same_key_ids_and_codes(make):
    """Without the secret key whoever guesses ids and codes would be told that they were sent."""
    client = make()
    first = {"idempotency-key": 16 * "k"}
    other = {"idempotency-key": 17 * "k"}
    sent = codes(slice(0, 1))
    changed = codes(slice(1, 2))
    for ids, keys, body, status in (
        (["a"], first, sent, 201),
        (["a"], first, sent, 200),
        (["a"], other, sent, 409),
        (["a"], {}, sent, 409),
        (["a"], {}, changed, 409),
        (["a"], first, changed, 422),
        (["b"], first, sent, 422),
        (["b"], other, sent, 201),
    ):
        answer = submit(client, ids, body, **keys)
        assert answer.status_code == status, (ids, keys)


def test_submit_and_search(make):
    client = make()
    two = codes(slice(0, 2))
    answer = submit(client, ["a", "é"], two)
    assert answer.status_code == 201
    for spec in (SPEC, SPEC.with_epsilon(6.0)):
        asked = codes(slice(20, 23), spec)
        found = search(client, asked, "?k=5")
        assert found.status_code == 200
        hits = found.json()
        assert "codes are too few" in hits.pop("unstated")
        assert set(hits) == {"ids", "scores", *ESTIMATES}
        shapes = {np.shape(lists) for lists in hits.values()}
        assert shapes == {(3, 5)}


def test_documents_are_open_and_search_is_not_a_submitter_s(make):
    client = make()
    assert client.get("/health").json() == {"status": "ok"}
    assert dpi.Spec.from_json(client.get("/spec").text) == SPEC
    stated = client.get("/guarantee").json()
    assert stated["guarantee"]["epsilon"] == 4.0
    assert stated["query_epsilon"] == 6.0
    assert stated["does_not_protect"]
    for path in ("/docs", "/openapi.json", "/codes/old 1", "/../spec.json"):
        assert client.get(path).status_code == 404


WRONG_TOKENS = [
    ("/codes", {}, 401),
    ("/codes", {"authorization": "Bearer "}, 401),
    ("/codes", {"authorization": f"Basic {SUBMIT}"}, 401),
    ("/codes", bearer(SUBMIT + "x"), 401),
    ("/codes", bearer(SEARCH), 403),
    ("/search", {}, 401),
    ("/search", bearer(SUBMIT), 403),
]


@pytest.mark.parametrize("path, token, status", WRONG_TOKENS)
def test_wrong_tokens(make, path, token, status):
    headers = CODES | {"dpindex-ids": '["a"]'} | token
    answer = make().post(path, content=codes(), headers=headers)
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) == (status == 401)


WRONG_IDS = [
    None, "xyzzy", "[1", "[]", '["xyzzy", "b"]', "[1]", '[""]', '["xyzzy\\u0000"]', "[null]",
    json.dumps([65 * "x"]), '["xyzzy\\n"]', '["\\ud800"]', "[" * 5000, "é", '{"xyzzy": 1}',
]  # fmt: skip


@pytest.mark.parametrize("ids", WRONG_IDS)
def test_wrong_ids(make, index, ids):
    headers = CODES | bearer(SUBMIT)
    if ids is not None:
        headers["dpindex-ids"] = ids.encode("utf-8")
    answer = make().post("/codes", content=codes(), headers=headers)
    assert answer.status_code == 422
    assert "xyzzy" not in answer.text
    assert len(index) == 20


def test_ids_that_are_numbers(make, index):
    index.remove(index.ids)
    index.add(VECTORS[:3], [5, 6, 7])
    client = make()
    for ids in ([True], [-1], [2**53 + 1], [1.0], ["1"]):
        assert submit(client, ids).status_code == 422


def _wrong_bodies():
    good = codes()
    many = codes(np.zeros(max_rows(SPEC) + 1, np.int64))
    of_numbers = attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=2.0)
    most = max_body(SPEC)
    return {
        "nothing": (b"", {}, 422),
        "no codes": (b"xyzzy", {}, 422),
        "cut off": (good[:-1], {}, 422),
        "damaged": (flipped(good, -1), {}, 422),
        "foreign": (codes(spec=OTHER), {}, 422),
        "another form": (codes(spec=of_numbers), {}, 422),
        "a form that lies": (_lying(), {}, 422),
        "no row": (_empty(), {}, 422),
        "too many": (many, {}, 413),
        "huge": (bytes(most + 1), {}, 413),
        "huge, in parts": (bytes(3 * most), {"transfer-encoding": "chunked"}, 413),
        "huge, asked before": (bytes(most + 1), {"expect": "100-continue"}, 413),
        "compressed": (good, {"content-encoding": "gzip"}, 415),
        "JSON": (good, {"content-type": "application/json"}, 415),
        "a form": (good, {"content-type": "text/plain"}, 415),
        "a short key": (good, {"idempotency-key": "xyzzy"}, 422),
    }


def _lying():
    """Codes of another form under the right fingerprint."""
    spec = attribute_spec("dp-signoporp-rr", 16, k=8, epsilon=4.0)
    made = codes_of(spec, VECTORS[0])
    form = type(made.format)(8, SPEC.fingerprint)
    return form.codes(made.stored).to_bytes()


def _empty():
    none = np.empty((0, SPEC.format.width), np.uint8)
    return SPEC.format.codes(none).to_bytes()


def test_wrong_bodies(make, index):
    client = make()
    for name, (body, more, status) in _wrong_bodies().items():
        answer = submit(client, ["a"], body, **more)
        assert answer.status_code == status, name
        assert "xyzzy" not in answer.text
    assert submit(client, ["a"]).status_code == 201  # nobody has the id


def test_wrong_queries(make):
    client = make()
    for asked in ("K=2", "k=2&k=3", "k=2&filter=a"):  # which would be passed over
        answer = search(client, query=f"?{asked}")
        assert answer.status_code == 422
        assert "k, given once, is all" in answer.json()["detail"]
    for k in ("0", "1001", "-1", "ten", "１", "1e2", ""):
        assert search(client, query=f"?k={k}").status_code == 422, k
    for body in (b"", b"xyzzy", codes(spec=OTHER), _lying(), _empty()):
        assert search(client, body).status_code == 422
    many = codes(np.zeros(65, np.int64))
    assert search(client, many).status_code == 413


WRONG_QUERIES = [
    [],
    {},
    {"vectors": []},
    {"vectors": "xyzzy"},
    {"vectors": [[0.777]]},
    {"vectors": [16 * ["0.777"]]},
    {"vectors": [16 * [10**400]]},
    {"vectors": [16 * [True]]},
    {"vectors": [15 * [0.777] + [7e7]]},
    {"vectors": 2 * [16 * [7e7]]},
    {"vectors": VECTORS[20:22].tolist(), "more": 1},
]


def test_exact_queries_are_off_unless_allowed(make):
    headers = bearer(SEARCH)
    body = {"vectors": VECTORS[20:22].tolist()}
    refused = make().post("/search", json=body, headers=headers)
    assert refused.status_code == 403
    client = make(exact_queries=True)
    found = client.post("/search?k=3", json=body, headers=headers)
    assert found.status_code == 200
    assert np.shape(found.json()["ids"]) == (2, 3)
    for wrong in WRONG_QUERIES:
        answer = client.post("/search", json=wrong, headers=headers)
        assert answer.status_code == 422, wrong
        assert "777" not in answer.text
        assert "xyzzy" not in answer.text


@pytest.mark.parametrize("path", ["/codes", "/search", "/health", "/spec"])
def test_a_long_head_is_refused(make, path):
    client = make()
    headers = as_submitter(["a"]) | {"x-long": 70_000 * "x"}
    method = "POST" if path in ("/codes", "/search") else "GET"
    answer = client.request(method, path, headers=headers)
    assert answer.status_code == 400
    assert "exceed 65536 bytes" in answer.text
    for many in ({f"x-{i}": 1000 * "x" for i in range(70)}, {f"x{i}": "" for i in range(9000)}):
        assert client.request(method, path, headers=many).status_code == 400


@pytest.mark.parametrize(
    "one, status",
    [("[]", 413), ("{}", 422), ('""', 422), ("0", 422), ("[[", 413), ('{"a":', 422), ("null", 422)],
)
def test_json_is_counted_before_an_object_is_made_of_each_bracket(make, monkeypatch, one, status):
    """A list takes 34 times the bytes of its text."""
    lists = ",".join(5000 * [one])
    body = f'{{"vectors": [{lists}]}}'
    monkeypatch.setattr(json, "loads", pytest.fail)
    headers = bearer(SEARCH) | {"content-type": "application/json"}
    client = make(exact_queries=True)
    answer = client.post("/search", content=body, headers=headers)
    assert answer.status_code == status


def test_ids_that_json_readers_would_round_are_not_sent(make, index):
    for largest, status in {2**53: 200, 2**53 + 1: 409, -(2**62): 409}.items():
        index.remove(index.ids)
        index.add(VECTORS[:3], [5, 6, largest])
        assert search(make(), query="?k=3").status_code == status


def test_slow_bodies_are_given_up(make, index):
    async def call():
        answered = []
        headers = as_submitter(["a"]) | {"host": "localhost"}

        async def receive():
            await anyio.sleep_forever()

        async def send(message):
            answered.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/codes", "raw_path": b"/codes",
            "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        await app(scope, receive, send)
        return int(answered[0]["status"])

    app = make(body_seconds=0.01).app
    assert anyio.run(call) == 408


def test_without_tokens_only_local_names_are_answered(make):
    client = make(tokens=None)
    answer = client.post("/search", content=codes(), headers=CODES)
    assert answer.status_code == 200
    # As from a page in a browser, whose name was made to mean this machine.
    headers = CODES | {"host": "attacker.example"}
    answer = client.post("/search", content=codes(), headers=headers)
    assert answer.status_code == 400


def test_a_failure_is_logged_without_what_was_sent(make, caplog, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("".join(["xyz", "zy"]))  # lines of code are logged

    monkeypatch.setattr(dpi.PrivateIndex, "search", fail)
    with caplog.at_level(logging.DEBUG):
        answer = search(make())
    assert answer.status_code == 500
    assert "RuntimeError" in caplog.text
    assert "xyzzy" not in caplog.text + answer.text


def test_a_collector_that_cannot_write_says_so(make, monkeypatch):
    client = make()
    monkeypatch.setattr(Collector, "accepts", property(lambda self: False))
    assert client.get("/health").status_code == 503
    answer = submit(client, ["a"])
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_metrics_count_answers_and_hold_nothing_that_was_sent(make):
    client = make()
    sent = codes(slice(0, 2))
    for _ in range(2):
        submit(client, ["secret name", "b"], sent)
    search(client, codes(20), "?k=5")
    client.get("/nowhere/secret name")
    assert client.get("/metrics", headers=bearer(SEARCH)).status_code == 403
    answer = client.get("/metrics", headers=bearer(METRICS))
    assert answer.headers["content-type"].startswith("text/plain")
    first, *lines = answer.text.splitlines()
    assert first == "# TYPE dpindex_request_seconds summary"
    values = dict(line.rsplit(" ", 1) for line in lines)
    counts = {name: value for name, value in values.items() if "_count{" in name}
    answered = [("/codes", 201), ("/codes", 409), ("/metrics", 403), ("/search", 200)]
    assert counts == {
        f'dpindex_request_seconds_count{{route="{route}",status="{status}"}}': "1"
        for route, status in answered
    }
    sums = {name.replace("_count", "_sum") for name in counts}
    assert set(values) == sums | set(counts)
    assert all(float(value) > 0 for value in values.values())

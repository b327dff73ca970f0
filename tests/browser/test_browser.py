"""The encoder and search of browsers: equal to Python, private, and quiet on the network.

Needs Node; the tests of the page need Chromium and the package ``playwright``. What is missing is
reported as skipped.
"""

import base64
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import browser_cases
import numpy as np
import pytest
from browser_cases import base64_of, spec_of
from helpers.chromium import SIZES, chromium, needs_chromium
from helpers.common import (
    ROOT,
    attribute_spec,
    filled_index,
    finished,
    normal,
    python,
    refuses,
    succeeds,
)
from helpers.documents import code_blocks, section
from numpy.random import default_rng
from self_test.second_reading import symbol_probes, symbols
from self_test.words import replay_faults

from dpindex import Codebook, PrivateIndex, Privatizer, Spec, codes_from_bytes
from dpindex.audit import attack_releases
from dpindex.audit.pairs import worst_pairs
from dpindex.mechanism.noise.base import uniform_share
from dpindex.mechanism.noise.symbols import CodebookResponse

BROWSER = ROOT / "examples" / "browser"
CASES = ROOT / "tests" / "browser"
AT_ROOT = {"PYTHONPATH": str(ROOT)}
NODE = shutil.which("node")
COMMITTED = json.loads((CASES / "cases.json").read_text(encoding="utf-8"))
MAX_LINES = 500
TRIALS = 300_000
AT_ONCE = 20_480
"""Codes of one request; the attack takes 256 at a time."""

needs_node = pytest.mark.skipif(NODE is None, reason="needs Node in the path")


class Bridge:
    """A Node process that answers requests with the modules of the browser."""

    def __init__(self):
        self._process = subprocess.Popen(
            [NODE, str(CASES / "bridge.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name, **request):
        request = json.dumps({"name": name, **request})
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the Node process ended"
        return json.loads(answer)

    def close(self):
        self._process.communicate()


@pytest.fixture(scope="module")
def bridge():
    opened = Bridge()
    yield opened
    opened.close()


def _decoded(text, dtype, columns):
    numbers = np.frombuffer(base64.b64decode(text), dtype=dtype)
    return numbers.reshape(-1, columns)


def test_python_agrees_on_the_committed_laws_and_encodings():
    assert len(COMMITTED["laws"]) == 35
    for law in COMMITTED["laws"]:
        uniform = uniform_share(law["size"], law["epsilon"], law["subset"])
        assert str(uniform) == law["uniform"], law
    assert len(COMMITTED["encodings"]) == 3
    for case in COMMITTED["encodings"]:
        named = Spec.from_json(case["spec"])
        codewords = _decoded(case["codebook"], "<f4", named.dim)
        spec = named.with_public(Codebook(codewords))
        vectors = _decoded(case["vectors"], "<f8", named.dim)
        words = _decoded(case["words"], "<u8", 3)
        assert browser_cases.encoding(spec, vectors, words) == case


def _encoder(case):
    """Return the encoder of a case; InputError for one that is refused."""
    spec = Spec.from_json(case["text"])
    book = Codebook(_decoded(case["codebook"], "<f4", 4))
    return Privatizer(spec.with_public(book), max_epsilon=case["max_epsilon"])


def test_python_refuses_the_committed_specs_too():
    assert len(COMMITTED["refused"]) > 80
    for case in COMMITTED["refused"]:
        with refuses():
            assert not _encoder(case), case["why"]


@pytest.mark.slow
@needs_node
def test_node_agrees_on_the_committed_cases():
    succeeds(str(NODE), "--test", CASES)


@pytest.mark.slow
@needs_node
def test_ten_thousand_encodings_agree(tmp_path):
    rng = default_rng(10_000)
    spec = spec_of(rng.normal(size=(300, 48)), 5.0)
    vectors = rng.normal(size=(10_000, 48))
    words = rng.integers(0, 2**64 - 1, (10_000, 3), np.uint64, endpoint=True)
    cases = {"laws": [], "encodings": [], "refused": []}
    cases["encodings"].append(browser_cases.encoding(spec, vectors, words))
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases))
    succeeds(str(NODE), "--test", CASES, env={"DPINDEX_CASES": str(path)})


class JavaScriptLaw(CodebookResponse):
    """The law whose draws JavaScript makes of the words that Python deals out."""

    def __init__(self, law, bridge):
        super().__init__(law.codebook, law.subset, law.uniform)
        self._bridge = bridge

    def perturb(self, x, stream):
        words = [stream.words(len(x), np.uint64) for _ in range(3)]
        symbols = self._bridge.ask(
            "symbols",
            size=self.size,
            subset=self.subset,
            uniform=str(self.uniform),
            similarities=x.tolist(),
            words=np.array(words).astype(str).tolist(),
        )
        return np.array(symbols)


def _response(size, subset):
    uniform = uniform_share(size, 1.0, subset)
    book = Codebook(np.ones((size, 2)))
    return CodebookResponse(book, subset, uniform)


@needs_node
@pytest.mark.parametrize("size, subset", [(2, 1), (7, 3), (50, 33), (300, 2)])
def test_the_exact_verifier_accepts_the_draws(bridge, size, subset):
    """Both ends of the words of every outcome lead to it, so that its chance is their count."""
    law = _response(size, subset)
    javascript = JavaScriptLaw(law, bridge)
    read = partial(symbols, law)
    faults = [replay_faults(javascript, x, read) for x in symbol_probes(size)]
    assert len(faults) == 4
    assert not np.any(faults)


class JavaScriptPrivatizer(Privatizer):
    """Releases of one vector that JavaScript made with WebCrypto's bits.

    ``drawn_epsilon`` is the epsilon that its sampler is calibrated to, whatever the spec promises.
    """

    def __init__(self, spec, bridge, drawn_epsilon):
        super().__init__(spec)
        self._bridge = bridge
        self._drawn_epsilon = drawn_epsilon

    def privatize(self, x, **options):
        assert (x == x[0]).all()
        answer = self._bridge.ask(
            "release",
            spec=self.spec.to_json(),
            codebook=base64_of(self.spec.codebook.stated),
            vector=x[0].tolist(),
            count=len(x),
            drawn_epsilon=self._drawn_epsilon,
        )
        return codes_from_bytes(base64.b64decode(answer))


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("drawn, low, high", [(1.0, 0.95, 1.0), (1.05, 1.0, 1.05)])
def test_an_attack_sees_epsilon_and_a_weakened_sampler(bridge, drawn, low, high):
    """Wrong below 1e-7; the bound misses ``low`` by chance below 1e-9."""
    codewords = normal(4, 3, 5)
    spec = spec_of(codewords, 1.0, 2)
    privatizer = JavaScriptPrivatizer(spec, bridge, drawn)

    made = {}

    def release(row, count):
        """Many at once: a request takes as long as hundreds of draws."""
        place, codes = made.get(row.tobytes(), (0, ()))
        if place + count > len(codes):
            place = 0
            rows = np.broadcast_to(row, (AT_ONCE, len(row)))
            codes = privatizer.privatize(rows)
        made[row.tobytes()] = (place + count, codes)
        return codes.take(slice(place, place + count))

    report = attack_releases(
        release,
        worst_pairs(spec),
        spec.guarantee,
        trials=TRIALS,
        confidence=1 - 1e-7,
    )
    assert low < report.lower_bound < high


@needs_node
def test_codes_of_a_browser_enter_an_index(bridge):
    spec = spec_of(normal(40, 6, 3), 4.0)
    privatizer = JavaScriptPrivatizer(spec, bridge, 4.0)
    index = PrivateIndex(spec)
    index.add_codes(privatizer.privatize(np.ones((25, 6))))
    assert len(index) == 25
    other = PrivateIndex(replace(spec, epsilon=3.0))
    with refuses("another spec"):
        other.add_codes(privatizer.privatize(np.ones((1, 6))))


def test_the_code_is_short_and_depends_on_nothing():
    text = "".join(path.read_text(encoding="utf-8") for path in BROWSER.glob("*.js"))
    assert len(text.splitlines()) <= MAX_LINES
    assert "Math.random" not in text
    assert "node:" not in text
    assert "https:" not in text


@pytest.mark.slow
def test_export_writes_codes_spec_and_modules(tmp_path):
    spec = spec_of(normal(40, 6, 3), 4.0)
    people = [f"person {i}" for i in range(25)]
    index = filled_index(spec, np.ones((25, 6)), people)
    index.save(tmp_path / "index")
    site = tmp_path / "site"
    program = ("-W", "error", BROWSER / "export.py", "index", site)
    said = python(*program, **AT_ROOT, cwd=tmp_path)
    assert "25 codes in 50 bytes. epsilon = 4 (pure DP)" in said
    written = {path.name for path in site.iterdir()}
    modules = {"spec.js", "law.js", "codebook.js", "encode.js", "search.js"}
    assert written == {"spec.json", "codebook.f32", "codes.u16", "ids.json", *modules}
    codes = np.frombuffer((site / "codes.u16").read_bytes(), "<u2")
    np.testing.assert_array_equal(codes, index.codes.stored[:, 0])
    assert Spec.read(site / "spec.json") == spec
    ids = json.loads((site / "ids.json").read_text())
    assert ids == index.ids.tolist()


@pytest.mark.slow
def test_export_refuses_in_one_sentence(tmp_path):
    zeros = np.zeros((25, 6))
    signs = filled_index(attribute_spec("dp-signoporp-rr", 6, epsilon=4.0), zeros)
    signs.save(tmp_path / "signs")
    symbols = filled_index(spec_of(np.eye(6), 4.0), zeros)
    symbols.save(tmp_path / "symbols")
    for index, folder, fault in (
        ("signs", "new", "searches codes of record-codebook"),
        ("symbols", "signs", "is not empty"),
        ("missing", "new", "missing"),
    ):
        words = (BROWSER / "export.py", tmp_path / index, tmp_path / folder)
        done = finished(sys.executable, *words, env=AT_ROOT)
        assert done.returncode == 2
        assert fault in done.stderr
        assert len(done.stderr.splitlines()) == 1


class _Quiet(SimpleHTTPRequestHandler):
    """A static server that keeps the paths it was asked for and prints nothing."""

    def __init__(self, *arguments, paths, **options):
        self._paths = paths
        super().__init__(*arguments, **options)

    def log_message(self, *_):
        self._paths.append(self.path)


@contextmanager
def _serving(folder):
    """Yield the address of a folder, and the list of all paths that are asked for."""
    paths = []
    handler = partial(_Quiet, directory=str(folder), paths=paths)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.mark.slow
@needs_chromium
@pytest.mark.extra
def test_chromium_agrees_on_the_committed_cases(browser):
    with _serving(ROOT) as (address, _):
        page = browser.new_page()
        page.set_default_timeout(0)  # however busy the machine is
        page.goto(f"{address}/tests/browser/cases.json")
        found = page.evaluate(
            """async () => {
                const { disagreements } = await import("/tests/browser/cases.mjs");
                return disagreements(await (await fetch("/tests/browser/cases.json")).json());
            }"""
        )
        page.close()
    assert found == []


@pytest.mark.slow
@needs_chromium
@pytest.mark.extra
def test_the_page_of_the_documents_runs(browser, tmp_path):
    """The module of docs/devices.md, in the folder of an index."""
    ones = np.ones((25, 6))
    index = filled_index(spec_of(np.eye(6), 4.0), ones)
    index.save(tmp_path / "index")
    site = tmp_path / "site"
    python(BROWSER / "export.py", tmp_path / "index", site, **AT_ROOT)
    text = section("devices.md", "## In a browser")
    (module,) = code_blocks(text, "js")
    (site / "app.js").write_text(module, encoding="utf-8")
    with _serving(site) as (address, _):
        page = browser.new_page()
        page.set_default_timeout(0)  # however busy the machine is
        said = []

        def listen(line):
            if line.type == "log":
                said.append(line.text)

        page.on("console", listen)
        page.goto(f"{address}/ids.json")
        page.evaluate("import('/app.js')")
        page.close()
    assert said[0] == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    assert int(said[1]) > 52


@pytest.fixture(scope="module")
def page_folder(data_dir, tmp_path_factory):
    if not (data_dir / "clinc150_texts.txt.gz").exists():
        pytest.skip(f"no sentences at {data_dir}")
    folder = tmp_path_factory.mktemp("page")
    python(BROWSER / "make_page.py", folder, **AT_ROOT)
    return folder


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.extra
def test_the_page_answers_and_makes_no_request(browser, page_folder, size):
    width, height = SIZES[size]
    with _serving(page_folder) as (address, paths):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(0)  # however busy the machine is
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#query:enabled")
        loading = list(paths)
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        for question, word in {"my card was stolen": "stolen", "shopping list": "shopping"}.items():
            page.fill("#query", question)
            page.wait_for_selector(f"#hits li:has-text('{word}')")
            assert page.locator("#hits li").count() == 8
        page.click("#examples button >> nth=0")
        page.click("#encode")
        assert "one of 1000" in page.text_content("#code")
        page.fill("#query", "zzzz")
        page.wait_for_selector("#status:has-text('Type a question')")
        assert page.is_disabled("#encode")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert paths == loading
        assert requests == []
        assert complaints == []
        # The browser itself would refuse one.
        refused = page.evaluate("fetch('/spec.json').then(() => false, () => true)")
        assert refused
        assert paths == loading
        page.close()

"""Fixtures that several test files share."""

import gc
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import faults
from hypothesis import HealthCheck, settings

# Several workers of pytest fill the processors by themselves. Threads of BLAS and OpenMP would wait
# for each other by spinning, which takes twice as long; they are counted when numpy is imported.
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)) > 1:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# A file system in memory, where there is room: tests wait a minute for thousands of writes to reach
# a disk, and none of them takes the power away.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4e9:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # it is looked up once
# Programs of test_langchain.py and test_mutations.py; the latter imports the whole campaign.
collect_ignore = ["integrations/langchain_standard.py", "audit/seen_weaknesses.py"]
# A background job starts with Ctrl-C ignored, and so would every test that sends it.
signal.signal(signal.SIGINT, signal.default_int_handler)

LARGE_PACKAGES = (
    "langchain_core.vectorstores.base",
    "pandas",
    "sklearn.utils.estimator_checks",
)
"""What takes longest to compile of what tests import late, and is not ours."""

SHORT_ROOMS = {"independent", "index", "package", "privacy"}

ELSEWHERE = Path(__file__).parents[2] / "shared" / "data"
DATA = Path(os.environ.get("DPINDEX_DATA", ELSEWHERE))

# No test depends on how busy the machine is, nor on which examples are drawn today.
settings.register_profile(
    "same-everywhere", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-everywhere")


class _Followed:
    """Lets other workers begin when the first has compiled two thirds: they end together."""

    def __init__(self, file):
        self._file = file

    def pytest_collectreport(self, report):
        if report.nodeid == "tests/index":
            self._file.touch()


def _import_large_packages():
    for name in LARGE_PACKAGES:
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module(name)


@contextmanager
def _compiled_once(config):
    """In a fresh clone a module is compiled by one worker, and not by each, which takes 12 s.

    The second compiles large packages while the first compiles what is ours.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    compiled = Path(__file__).with_name("study") / "__pycache__"
    fresh = not compiled.exists()
    if worker is None or not fresh or sys.dont_write_bytecode:
        yield
        return
    followed = Path(config.option.basetemp).with_name("followed")
    if worker == "gw0":
        config.pluginmanager.register(_Followed(followed))
    if worker == "gw1":
        _import_large_packages()
    latest = time.monotonic() + 120
    while worker != "gw0" and not followed.exists() and time.monotonic() < latest:
        time.sleep(0.1)
    try:
        yield
    finally:
        followed.touch()
        if worker == "gw0" and "DPINDEX_COMPILED" in os.environ:
            Path(os.environ["DPINDEX_COMPILED"]).touch()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Thousands of tests are not looked through for garbage again and again, which takes 5 %.

    Nor are young objects at every 700th: that takes 2 % of large tests and 8 % of small ones.
    """
    gc.disable()
    try:
        with _compiled_once(session.config):
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        gc.enable()


def _may_hold_extras(path):
    text = path.read_text("utf-8")
    return "mark.extra" in text or "from helpers.lite import" in text


def pytest_ignore_collect(collection_path, config):
    """Where extras alone are run, do not import the other files: that takes every worker 10 s."""
    if config.option.markexpr == "extra" and collection_path.suffix == ".py":
        return not _may_hold_extras(collection_path) or None
    return None


def pytest_collection_modifyitems(items):
    """Run the fast tier first, so that a fault shows in minutes, and long tests before others.

    Else one worker still runs the last of these when the other has nothing left.
    """

    def place(item):
        slow = item.get_closest_marker("slow") is not None
        return slow, item.path.parent.name in SHORT_ROOMS

    items.sort(key=place)
    extras = {item.path for item in items if item.get_closest_marker("extra") is not None}
    hidden = [str(path) for path in extras if not _may_hold_extras(path)]
    assert not hidden, f"extras in {hidden} would not be run by -m extra"


def pytest_terminal_summary(terminalreporter):
    """Say which faults were injected, and write ids of skipped tests to a file, one a line.

    ``DPINDEX_SKIPPED`` names the file. Extras, which are run by themselves, are not in it, nor what
    would be skipped with all extras, too.
    """
    terminalreporter.write_line(faults.described())
    file = os.environ.get("DPINDEX_SKIPPED")
    if file is not None:
        reports = terminalreporter.stats.get("skipped", [])
        missed = [one for one in reports if not (_is_extra(one) or _excused(one, LACKING))]
        lines = [f"{report.nodeid}\n" for report in missed]
        Path(file).write_text("".join(lines), "utf-8")


def _is_extra(report):
    if hasattr(report, "keywords"):
        return "extra" in report.keywords
    # Of a file that was skipped when it was imported: whether all tests in it are.
    file = Path(__file__).parents[1] / report.nodeid
    text = file.read_text("utf-8")
    marked = r"^pytestmark = .*mark\.extra|^    pytest\.mark\.extra,$"
    each = text.count("\n@pytest.mark.extra\n") >= text.count("\ndef test_")
    return each or re.search(marked, text, re.MULTILINE) is not None


def _none(*programs):
    return not any(map(shutil.which, programs))


# Taken out, so that sessions which tests start are not asked for all that is installed.
COMPLETE = os.environ.pop("DPINDEX_COMPLETE", None) is not None
LACKING = {
    "no PostgreSQL is installed": _none("postgres", "initdb"),
    "no PostgreSQL with pgvector is installed": True,  # it lies beside a server's own files
    "needs Node in the path": _none("node"),
    "needs Chromium in the path": _none("chromium", "chromium-browser", "google-chrome"),
    "set DPINDEX_DATA": not DATA.is_dir(),
    "DPINDEX_AXE names no": "DPINDEX_AXE" not in os.environ,
    "all tests skipped by +SKIP option": True,  # examples that need a cluster of their own
    "this user may read every file": True,
}
"""What a machine may lack though every extra is installed, by words of a skip; whether it does."""

EXCUSES = LACKING | {
    "ray is not installed": find_spec("ray") is None,  # no extra installs engines
    "pyspark is not installed": find_spec("pyspark") is None,
    "recordlinkage is not installed": find_spec("recordlinkage") is None,
    # The page on frameworks is a recipe: no extra installs them.
    "needs pip install llama-index-core": find_spec("llama_index") is None,
    "needs pip install haystack-ai": find_spec("haystack") is None,
}
"""These, and packages that no extra brings."""


def _excused(report, excuses):
    reason = str(report.longrepr[2])
    return any(words in reason and lacks for words, lacks in excuses.items())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Where ``DPINDEX_COMPLETE`` says that all extras are installed, fail if a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not COMPLETE or reporter is None:
        return
    for report in reporter.stats.get("skipped", []):
        if not _excused(report, EXCUSES):
            reporter.line(f"SKIPPED though all is installed: {report.nodeid}: {report.longrepr[2]}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _state(tmp_path_factory, monkeypatch):
    """Logs of collectors lie apart for each test, and not in the user's folder."""
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path_factory.getbasetemp() / "state"))


_FIRST_STATES = {}


@pytest.fixture(autouse=True)
def _same_numbers(request):
    """What a test draws from the ``RNG`` of its file does not depend on which tests ran before."""
    file = getattr(request.node, "module", None)
    rng = getattr(file, "RNG", None)
    if rng is not None:
        numbers = rng.bit_generator
        numbers.state = _FIRST_STATES.setdefault(file.__name__, numbers.state)


@pytest.fixture(scope="session")
def data_dir():
    """Where the evaluation data lie: ``$DPINDEX_DATA``, or ``../shared/data``; skips if absent."""
    if not DATA.is_dir():
        pytest.skip(f"no data at {DATA}: set DPINDEX_DATA")
    return DATA


@pytest.fixture
def eager_milvus(monkeypatch):
    """Milvus's client looks every half second whether its server is done; here far oftener."""
    if find_spec("pymilvus") is not None:

        def sleep(seconds):
            time.sleep(seconds / 50)

        quick = SimpleNamespace(time=time.time, sleep=sleep)
        monkeypatch.setattr("pymilvus.client.grpc_handler.time", quick)


@pytest.fixture
def known_noise(monkeypatch):
    """Secret words from the seeds 0, 1, …: what judges quality passes always or never."""
    from helpers.streams import seed_noise

    seed_noise(monkeypatch)


@pytest.fixture(scope="module")
def one_stream_check():
    """The exact audit looks at the secret stream once for a file of tests, as it forks for that."""
    from dpindex import audit
    from dpindex.mechanism.secret_random import secret_stream

    check = audit.stream_check(secret_stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "stream_check", lambda _: check)
        yield


@pytest.fixture
def new_maps():
    """Specs share the map of a codebook, which some tests change."""
    from dpindex.mechanism.projections.dense import codeword_scores

    codeword_scores.cache_clear()


@pytest.fixture
def some_queries(monkeypatch):
    """Plans predict with 200 queries, not 600: what they promise is compared with what is found."""
    monkeypatch.setattr("dpindex.study.predictor.ALL_QUERIES", 200)
    monkeypatch.setattr("dpindex.study.predictor.QUERIES", 200)


@pytest.fixture
def few_queries(some_queries, monkeypatch):
    """Plans predict with 100 queries: for tests of what they say and advise."""
    monkeypatch.setattr("dpindex.study.predictor.ALL_QUERIES", 100)
    monkeypatch.setattr("dpindex.study.predictor.QUERIES", 100)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a line that begins with ``dpindex`` in ``tmp_path``, and return its output.

    The line must succeed. A ``> FILE`` at its end is honoured, as in a shell.
    """
    from dpindex.cli import main

    monkeypatch.chdir(tmp_path)

    def run_line(line):
        command, _, file = line.partition(" > ")
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        assert not stop.value.code, f"{line}: {output.err}"
        if file:
            (tmp_path / file).write_text(output.out, encoding="utf-8")
        return output.out

    return run_line


@pytest.fixture
def run(
    tmp_path,
    monkeypatch,
    capsys,
    known_noise,
):
    """Call the command line in ``tmp_path``: returns exit code, output and error output.

    A single argument is the line behind ``dpindex``, as a shell reads it; several are its words.
    """
    from dpindex.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*words):
        arguments = shlex.split(words[0]) if len(words) == 1 else map(str, words)
        monkeypatch.setattr(sys, "argv", ["dpindex", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def prints(run):
    """As ``run``, of a command that must succeed: returns its output."""

    def call(*words):
        code, output, error = run(*words)
        assert code == 0, error
        return output

    return call

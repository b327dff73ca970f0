"""Engines: whatever runs the shards, and however often, each vector is published once."""

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.common import (
    DIM,
    FolderView,
    all_bytes,
    attribute_spec,
    bucket_at,
    codes_of,
    counted,
    example,
    names_in,
    peak_memory,
    refuses,
    travelled,
    vectors,
    watched,
    write_dataset,
)
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.cli import main
from dpindex.data import as_source, open_dataset
from dpindex.data.dataset import as_dataset
from dpindex.mechanism.method_table import methods
from dpindex.storage.history import Terms
from dpindex.storage.journal import Journal
from dpindex.storage.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_NEW_SEGMENTS,
    FileMark,
    Manifest,
    Settings,
    file_path,
)
from dpindex.storage.shards import CodeCheck, CodeDraw
from dpindex.storage.targets import IndexOptions, build_index

SPEC = attribute_spec("dp-oporp-staircase", DIM, k=4, epsilon=3.0)
BARE = attribute_spec("none-oporp", DIM, k=4)
ROWS = 240
SEGMENTS = [f"{number:06d}" for number in range(12)]


@pytest.fixture
def data(tmp_path):
    return write_dataset(tmp_path / "data", ROWS)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "index"


def opened(data, rows=20, **options):
    """The dataset in four parts, of which segments of so many rows are made."""
    stated = {"id_column": "id", "rows_per_part": 60, **options}
    return replace(open_dataset(data, **stated), rows_at_a_time=rows)


class Killed(BaseException):
    """What ends an attempt here as SIGKILL would: nothing is tidied up by those who catch it."""


class Stopping:
    """An engine that is killed after so many shards were drawn, and keeps what it was given."""

    def __init__(self, drawn):
        self.drawn = drawn

    def __call__(self, function, shards, /):
        if not isinstance(function, CodeDraw):
            yield from map(function, shards)
            return
        self.draw = function
        self.shards = shards
        yield from map(function, shards[: self.drawn])
        raise Killed


def build(data, target, options=None, **run):
    return build_index(opened(data), target, SPEC, options, **run)


def refused(match, *build):
    with refuses(match):
        build_index(*build)


def begun(dataset, target, spec=SPEC, *arguments, drawn=0):
    """Begin a build, or go on with it; draw so many shards."""
    engine = Stopping(drawn)
    with pytest.raises(Killed):
        build_index(dataset, target, spec, *arguments, engine=engine)
    return engine


def both_passes(change):
    """An engine that checks in order, and draws by ``change``."""

    def engine(function, shards, /):
        if isinstance(function, CodeCheck):
            return map(function, shards)
        return change(function, shards)

    return engine


def staged(target, pattern="*.codes"):
    """Files of the unfinished build of a folder."""
    return sorted(target.with_name(target.name + ".unpublished").rglob(pattern))


def segments_of(attempt):
    """Those that a build which began would draw, of all its shards."""
    return [segment for shard in attempt.shards for segment in shard.segments]


def test_the_index_is_that_of_a_plain_build(data, tmp_path, target):
    ledger = dpi.Ledger(tmp_path / "ledger")
    calls = []
    with watched(FolderView(target)):
        outcome = build_index(
            opened(data),
            target,
            SPEC,
            terms=Terms(ledger),
            progress=lambda *call: calls.append(call),
        )
    assert outcome.rows == ROWS
    assert outcome.drawn == ROWS
    assert list(outcome.published.manifest.segments) == SEGMENTS
    index = dpi.open(target)
    assert sorted(index.ids) == sorted(f"n{row}" for row in range(ROWS))
    assert counted(ledger) == [(ROWS, 1)]
    assert calls[0] == (0, ROWS, "checking")
    assert calls[-1] == (ROWS, ROWS, "privatizing")
    assert not (tmp_path / "index.unpublished").exists()
    index.add(vectors(1), ["new"], ledger=ledger)
    index.save(target)  # it is an index like any other
    assert len(dpi.open(target)) == ROWS + 1


def test_codes_lie_beside_their_ids(data, target):
    """Without noise worth the name every code is that of its id's vector."""
    refused("protects nothing", opened(data), target, BARE)

    def backwards(function, shards):
        return map(function, reversed(shards))

    options = IndexOptions(allow_unprotected=True)
    build_index(
        opened(data),
        target,
        BARE,
        options,
        engine=both_passes(backwards),
    )
    index = dpi.open(target)
    order = [int(name[1:]) for name in index.ids]
    exact = codes_of(BARE, vectors(ROWS)[order])
    assert_array_equal(index.codes.to_float(), exact.to_float())


def test_the_payload_is_published_with_the_codes(data, target):
    """Columns of the dataset lie beside their ids, in the index that goes on as well."""
    dataset = opened(data, payload_columns=["row"])
    attempt = begun(dataset, target, drawn=1)
    outcome = build_index(dataset, target, SPEC)
    assert outcome.drawn == ROWS - attempt.shards[0].part.rows
    index = dpi.open(target)
    assert list(index.payload_columns) == ["row"]  # and no column that nobody named
    rows = index.payload["row"].to_pylist()
    assert [f"n{row}" for row in rows] == index.ids.tolist()
    two = index.search(vectors(1), k=3, filter="row < 2")
    assert two.ids.shape == (1, 2)
    refused("finished index", dataset, target, SPEC)


def test_what_cannot_be_a_payload(data, tmp_path, target):
    with refuses("no single column 'title'; name one of id, v, row"):
        open_dataset(data, payload_columns=["title"])
    lists = open_dataset(data, payload_columns=["v"])
    refused("payload column 'v' is of type", lists, target, SPEC)
    assert names_in(tmp_path) == ["data"]
    odd = pa.table({"id": ["x"], "v": [[0.0] * DIM], "row": ["one"]})
    pq.write_table(odd, data / "day=0" / "zzz.parquet")
    with refuses("are of the types string and those of the first file int"):
        open_dataset(data, payload_columns=["row"])
    np.save(tmp_path / "x.npy", vectors(3))
    with refuses("has no columns for a payload"):
        open_dataset(tmp_path / "x.npy", payload_columns=["row"])


@pytest.mark.parametrize("row", methods(), ids=lambda row: row.name)
def test_shards_travel_light(row, tmp_path, target):
    """With their tags; and the functions of an engine without what they cache."""
    np.save(tmp_path / "x.npy", np.zeros((9, 24)))
    dataset = open_dataset(tmp_path / "x.npy", rows_per_part=3)
    spec = example(row)
    options = IndexOptions(allow_unprotected=True)
    terms = Terms(skip_leak_check=True)
    attempt = begun(dataset, target, spec, options, terms)
    for shard in attempt.shards:
        assert len(pickle.dumps(shard)) < 3000
        arrived = travelled(shard)
        assert arrived.segments == shard.segments
        assert arrived.first_row == shard.first_row
        assert arrived.part.rows == shard.part.rows
    before = len(pickle.dumps(attempt.draw))
    draw = travelled(attempt.draw)
    assert list(draw(attempt.shards[0])) == ["000000"]
    assert len(pickle.dumps(draw)) == before


def test_checking_writes_nothing_and_is_repeatable(data, tmp_path, target):
    def killed(function, shards):
        list(map(function, shards))
        raise Killed

    with pytest.raises(Killed):
        build(data, target, engine=killed)
    assert names_in(tmp_path) == ["data"]
    first = begun(opened(data), target)
    assert not target.exists()
    second = begun(opened(data), target)
    segments = segments_of(first)
    assert segments_of(second) == segments  # tags are of one key
    assert [segment.number for segment in segments] == SEGMENTS
    assert len({segment.tag for segment in segments}) == 12


def test_attempts_at_the_same_time_publish_one(data, tmp_path, target):
    """Every shard is run six times at once: the first to come counts, and a watcher sees it."""
    drawn = []

    def six_times(function, shards):
        with ThreadPoolExecutor(8) as pool:
            for attempt in pool.map(function, list(shards) * 6):
                drawn.extend(files[f"segments/{number}.codes"] for number, files in attempt.items())
                yield attempt
        assert not target.exists()

    with watched(FolderView(target)):
        outcome = build(data, target, engine=both_passes(six_times))
    assert outcome.drawn == ROWS
    assert len(set(drawn)) == 6 * len(SEGMENTS)
    published = [(target / "segments" / f"{number}.codes").read_bytes() for number in SEGMENTS]
    assert published == drawn[: len(SEGMENTS)]
    assert len(dpi.open(target)) == ROWS
    assert not (tmp_path / "index.unpublished").exists()


def test_of_two_draws_of_one_segment_the_second_is_nowhere(tmp_path):
    """A second code of a vector would cost its epsilon again."""
    first = codes_of(SPEC, vectors(20))
    second = codes_of(SPEC, vectors(20))
    journal = Journal(tmp_path / "private", "no target")
    with journal.held():
        journal.begin({})
        for codes in (first, second):
            journal.put(file_path("codes", "000000"), codes.to_bytes())
        kept = all_bytes(tmp_path)
    assert first.stored.tobytes() in kept
    assert second.stored.tobytes() not in kept


def test_noise_is_drawn_again_for_what_is_missing_only(data, target, monkeypatch):
    begun(opened(data), target, drawn=4)
    with refuses("a build of it is unfinished, run the same build again"):
        dpi.open(target)
    monkeypatch.setattr(dpi.Privatizer, "privatize", None)  # whoever calls it fails
    assert build(data, target).drawn == 0


def test_an_attempt_that_outlives_the_build_publishes_nothing(data, tmp_path, target):
    """Even if its segment was removed from the index in the meantime."""
    attempt = begun(opened(data), target)
    build(data, target)
    index = dpi.open(target)
    index.remove(index.ids[:20])
    index.save(target)
    before = FolderView(tmp_path).digests()
    drawn = attempt.draw(attempt.shards[0])
    assert list(drawn) == SEGMENTS[:3]  # which nobody keeps
    assert FolderView(tmp_path).digests() == before
    assert len(dpi.open(target)) == ROWS - 20


def test_the_ledger_knows_every_id_before_a_code_is_there(data, tmp_path, target, monkeypatch):
    """It is told in batches, and once whoever goes on."""
    monkeypatch.setattr("dpindex.storage.release.IDS_AT_ONCE", 70)
    ledger = dpi.Ledger(tmp_path / "ledger")
    for _ in range(2):
        terms = Terms(ledger)
        begun(opened(data), target, SPEC, None, terms)
        assert counted(ledger) == [(ROWS, 1)]
        assert len(ledger.entries()) == 4
        assert not list(tmp_path.rglob("*.codes"))
    with refuses("was released before"):
        build(data, tmp_path / "other", terms=Terms(ledger))
    assert not list(tmp_path.glob("other*"))


def test_a_build_of_other_input_is_refused(data, tmp_path, target):
    ledger = dpi.Ledger(tmp_path / "ledger")
    begun(opened(data), target)
    more = write_dataset(tmp_path / "more", ROWS + 1)
    same = opened(data)
    labels = "vectors, ids or payload"
    changed = [
        ("options", same, SPEC.with_epsilon(2.0)),
        ("options", same, Settings(SPEC, "l2")),
        ("options", same, SPEC, IndexOptions(denoise="linear")),
        ("ledger", same, SPEC, None, Terms(ledger)),
        (labels, opened(data, id_column=None), SPEC),
        (labels, opened(data, payload_columns=["row"]), SPEC),
        (labels, opened(data, rows=30), SPEC),  # in other segments
        (f"number of rows and {labels}", opened(more), SPEC),
    ]
    for what, dataset, *rest in changed:
        words = rf"unfinished build of other input \(its {what} differ\)"
        refused(words, dataset, target, *rest)
    assert not (tmp_path / "ledger").exists() or not ledger.entries()
    assert not staged(target)
    os.rename(tmp_path / "index.unpublished", tmp_path / "moved.unpublished")
    refused("was begun elsewhere", same, tmp_path / "moved", SPEC)


def test_places_of_another_use(data, tmp_path, target):
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    refused("is not an empty directory", opened(data), target, SPEC)
    (target / "notes.txt").unlink()
    record = tmp_path / "index.unpublished" / "record"
    record.parent.mkdir(mode=0o700)
    record.write_text("[]")
    record.chmod(0o600)
    refused(r"index\.unpublished/record: ", opened(data), target, SPEC)
    record.unlink()
    build(data, target)
    refused("is a finished index", opened(data), target, SPEC)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_fault_in_the_last_vector_leaves_nothing(tmp_path, target, in_process):
    x = vectors(ROWS)
    x[-1, 3] = np.nan
    np.save(tmp_path / "x.npy", x)
    dataset = open_dataset(tmp_path / "x.npy", rows_per_part=100, in_process=in_process)
    terms = Terms(dpi.Ledger(tmp_path / "ledger"))
    labelled = dataset.with_labels(np.arange(ROWS))
    with dataset, refuses(r"x.npy: row 239, column 3 is NaN"):
        build_index(labelled, target, SPEC, terms=terms)
    assert names_in(tmp_path) == ["x.npy"]


@pytest.mark.parametrize(
    "ids, rows",
    [
        ([5, 1, 2, 3, 5, 4], (0, 4)),
        (["a", "b", "c", "d", "e", "b"], (1, 5)),
    ],
)
def test_ids_must_be_unique_in_all_files(tmp_path, target, ids, rows):
    np.save(tmp_path / "x.npy", vectors(6))
    dataset = open_dataset(tmp_path / "x.npy", rows_per_part=2)
    dataset = dataset.with_labels(np.array(ids))
    words = f"rows {rows[0]} and {rows[1]} have the same id"
    refused(words, dataset, target, SPEC)
    assert names_in(tmp_path) == ["x.npy"]


def changed_in_place(path, old, new):
    """Change bytes of a file, which keeps its size, its time and its number."""
    folder = FolderView(path.parent)
    before = folder.stamps()
    status = path.stat()
    content = path.read_bytes()
    assert content.count(old) == 1
    with open(path, "r+b") as file:
        file.write(content.replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert folder.stamps() == before


@pytest.mark.parametrize("in_process", [False, True])
def test_h7_vectors_that_change_in_place_are_noticed(tmp_path, target, in_process):
    """By their content: neither size nor time of the file tells."""
    x = vectors(ROWS)
    path = tmp_path / "x.npy"
    np.save(path, x)

    def dataset():
        return opened(path, id_column=None, in_process=in_process)

    row = x[70].tobytes()
    other = x[71][::-1].tobytes()

    def changing(function, shards):
        """After the check, and before the second shard is drawn."""
        for shard in shards:
            if shard.part.start == 60:
                changed_in_place(path, row, other)
            yield function(shard)

    match = r"x.npy was changed since it was checked \(rows 60 to 79\)"
    with dataset() as data, refuses(match):
        build_index(data, target, SPEC, engine=both_passes(changing))
    names = [file.name for file in staged(target)]
    assert names == [f"{name}.codes" for name in SEGMENTS[:3]]
    with dataset() as data, refuses("vectors, ids or payload differ"):
        build_index(data, target, SPEC)
    changed_in_place(path, other, row)
    with dataset() as data:
        assert build_index(data, target, SPEC).drawn == ROWS - 60


def test_h7_ids_and_payload_that_change_are_noticed(tmp_path):
    np.save(tmp_path / "x.npy", vectors(ROWS))
    ids = np.arange(ROWS)
    kinds = np.arange(ROWS) % 7
    plain = opened(tmp_path / "x.npy", id_column=None)

    def dataset():
        return plain.with_labels(ids, pa.table({"kind": kinds}))

    for number, labels in enumerate((ids, kinds)):
        target = tmp_path / f"index-{number}"
        attempt = begun(dataset(), target, drawn=1)
        labels[[100, 101]] = labels[[101, 100]]
        wrong = begun_shards(dataset(), attempt)
        attempt.draw(wrong[0])
        if labels is kinds:  # ids are read once, before the check
            with refuses(r"was changed since it was checked \(rows 100 to 119"):
                attempt.draw(wrong[1])
        refused("vectors, ids or payload differ", dataset(), target, SPEC)
        labels[[100, 101]] = labels[[101, 100]]
        drawn_before = attempt.shards[0].part.rows
        assert build_index(dataset(), target, SPEC).drawn == ROWS - drawn_before


@pytest.mark.parametrize("change_after", range(1, 4))
def test_the_ids_that_are_booked_are_those_that_are_published(data, tmp_path, target, change_after):
    """A file of ids that another process writes meanwhile, whenever it is read again."""
    readings = {}

    def changing(start, part_ids):
        readings[start] = readings.get(start, 0) + 1
        if readings[start] <= change_after:
            return part_ids
        return np.array([f"other-{name}" for name in part_ids])

    dataset = opened(data)
    parts = [
        replace(part, ids=partial(changing, number, part.ids()))
        for number, part in enumerate(dataset.parts)
    ]
    ledger = dpi.Ledger(tmp_path / "ledger")
    changed = replace(dataset, parts=parts)
    build_index(changed, target, SPEC, terms=Terms(ledger))
    published = dpi.open(target).ids
    with refuses(f"as were {ROWS} of these {ROWS} ids"):
        ledger.check(published, allow_rerelease=False)
    assert not any(name.startswith("other") for name in published)


def test_a_ledger_takes_no_part_without_ids(data, tmp_path, target):
    dataset = opened(data)
    first, *others = dataset.parts
    without = [replace(part, ids=lambda: None) for part in others]
    parts = [first, *without]
    ledger = dpi.Ledger(tmp_path / "ledger")
    mixed = replace(dataset, parts=parts)
    refused("give every vector an id", mixed, target, SPEC, None, Terms(ledger))
    assert not ledger.path.exists()


def begun_shards(dataset, attempt):
    """The shards of a build that begun, with parts that are read now."""
    pairs = zip(attempt.shards, dataset.parts, strict=True)
    return [replace(shard, part=part) for shard, part in pairs]


def test_what_lies_under_the_name_of_a_segment_is_checked(data, tmp_path, target):
    build_index(opened(data), tmp_path / "other", SPEC.with_epsilon(2.0))
    begun(opened(data), target, drawn=1)
    (first,) = staged(target, "000000.codes")
    content = first.read_bytes()
    of_another = (tmp_path / "other" / "segments" / "000000.codes").read_bytes()
    for wrong, words in (
        (of_another, "000000 is not of this release; it was changed"),
        (b"", None),
    ):
        first.write_bytes(wrong)
        refused(words, opened(data), target, SPEC)
    first.write_bytes(content)

    def forgetful(function, shards):
        yield from map(function, shards[2:])

    with refuses("gave nothing for rows from 0 on"):
        build(data, target, engine=forgetful)
    with refuses("gave nothing for segment 000003"):
        build(data, target, engine=both_passes(forgetful))
    assert not target.exists()
    (codes,) = staged(target, "000001.codes")
    codes.unlink()
    (ids,) = staged(target, "000001.ids")
    ids.write_bytes(b"")
    refused("is not of this release; it was changed", opened(data), target, SPEC)
    assert not target.exists()


@pytest.mark.slow
def test_a_worker_needs_the_memory_of_a_segment(tmp_path, target):
    """Not that of the shard, which is one large row group here."""
    numbers = np.zeros(60_000 * 128, np.float32)
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(numbers, 128)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=60_000)
    spec = attribute_spec("dp-oporp-staircase", 128, k=4, epsilon=3.0)
    data = replace(open_dataset(tmp_path / "x.parquet"), rows_at_a_time=2_000)
    attempt = begun(data, target, spec)
    (shard,) = attempt.shards
    codes_of(spec, np.zeros((1, 128)))  # caches
    assert isinstance(attempt.draw, CodeDraw)
    alone = replace(attempt.draw, threads=1)
    with peak_memory() as peak:
        drawn = alone(shard)
    assert len(drawn) == 30
    assert peak.bytes < 10 << 20  # the shard has 30 MB of vectors


def published_paths(target):
    files = (file for file in target.rglob("*") if file.is_file())
    return {file.relative_to(target).as_posix() for file in files}


SEGMENT_FILES = {
    path
    for number in SEGMENTS
    for path in (f"segments/{number}.codes", f"ids/{number}.ids", f"payload/{number}.arrows")
} | {f"calibration/{len(SEGMENTS):06}.table"}


def words_for(guesses, place, private):
    """The one thing that is said to all readers who build from guessed vectors at a place."""
    said = set()
    for guess in guesses:
        dataset = opened(guess, payload_columns=["row"])
        with refuses() as caught:
            build_index(dataset, place, SPEC, IndexOptions(private=private))
        said.add(str(caught.value))
    (words,) = said
    return words


def test_h1_a_folder_confirms_no_guess_of_the_vectors(data, tmp_path, target):
    """A reader of a target who guesses all vectors rightly learns no more than who is wrong.

    Before the commit nothing is there. After it there are codes, ids, payload and manifest, and
    the library's own code says one thing to every guess.
    """
    dataset = opened(data, payload_columns=["row"])
    attempt = begun(dataset, target, drawn=4)
    assert len(staged(target)) == len(SEGMENTS)
    assert not target.exists()
    assert (tmp_path / "index.unpublished").stat().st_mode & 0o777 == 0o700
    build_index(dataset, target, SPEC)
    assert published_paths(target) == SEGMENT_FILES | {".lock", "manifest.json"}
    assert not (tmp_path / "index.unpublished").exists()
    text = (target / "manifest.json").read_bytes()
    for segment in segments_of(attempt):
        assert segment.tag.hex().encode() not in text
    wrong = write_dataset(tmp_path / "wrong", ROWS, files=2)
    assert words_for((data, wrong), target, tmp_path / "reader")


@pytest.mark.slow
@pytest.mark.extra
def test_h1_a_bucket_confirms_no_guess_of_the_vectors(data, tmp_path, monkeypatch):
    """A mark alone, until all is drawn; another private folder is refused in a sentence."""
    url = bucket_at(tmp_path / "store", monkeypatch)
    dataset = opened(data, payload_columns=["row"])
    options = IndexOptions(private=tmp_path / "private")
    begun(dataset, url, SPEC, options, drawn=4)
    guesses = (data, write_dataset(tmp_path / "wrong", ROWS, files=2))
    (reservation,) = published_paths(tmp_path / "store")
    assert reservation == "unpublished/build"
    assert len((tmp_path / "store" / reservation).read_bytes()) == 32
    said = words_for(guesses, url, tmp_path / "reader")
    assert "holds an unfinished build that" in said
    assert published_paths(tmp_path / "store") == {reservation}
    assert not (tmp_path / "reader").exists()
    assert build_index(dataset, url, SPEC, options).drawn == 0
    assert published_paths(tmp_path / "store") == SEGMENT_FILES | {"manifest.json"}
    assert not (tmp_path / "private").exists()
    assert "is a finished index" in words_for(guesses, url, tmp_path / "reader")


@pytest.mark.parametrize("place", ["index.unpublished", "private"])
def test_files_of_the_user_are_no_private_folder(data, tmp_path, target, place):
    """What is not of the release is never removed with it."""
    options = IndexOptions()
    if place == "private":
        options = IndexOptions(private=tmp_path / place)
    begun(opened(data), target, SPEC, options)
    notes = tmp_path / place / "notes.txt"
    notes.write_text("mine")
    words = r"holds notes\.txt, which is not of a release"
    refused(words, opened(data), target, SPEC, options)
    notes.unlink()

    def late(function, shards):
        yield from map(function, shards)
        notes.write_text("mine")

    build(data, target, options, engine=late)
    assert names_in(tmp_path / place) == ["notes.txt"]


def test_an_unfinished_build_outlives_another_index_in_its_place(data, tmp_path, target):
    """What was drawn is charged, so it stays until it is published."""
    build(data, tmp_path / "other")
    options = IndexOptions(private=tmp_path / "private")
    begun(opened(data), target, SPEC, options, drawn=4)
    shutil.move(tmp_path / "other", target)
    refused("is a finished index", opened(data), target, SPEC, options)
    shutil.rmtree(target)
    assert build(data, target, options).drawn == 0


def test_the_url_of_a_folder_is_the_folder(data, tmp_path, target):
    build(data, f"file://{tmp_path}/index")
    assert len(dpi.open(target)) == ROWS
    with refuses("another machine; write file:///PATH"):
        build(data, "file://host/index")


def test_h1_two_builds_of_the_same_vectors_share_no_tag(data, tmp_path):
    """Tags are keyed, and keys are new."""
    tags = set()
    tokens = set()
    for number in range(2):
        attempt = begun(opened(data), tmp_path / str(number))
        tags |= {segment.tag for segment in segments_of(attempt)}
        tokens |= {path.name for path in (tmp_path / f"{number}.unpublished").iterdir()}
        build(data, tmp_path / str(number))
    assert len(tags) == 2 * len(SEGMENTS)
    assert len(tokens - {"record", "lock"}) == 2


def test_too_many_segments(tmp_path, target, monkeypatch):
    """It is said before anything is drawn or charged."""
    monkeypatch.setattr("dpindex.storage.targets.MAX_NEW_SEGMENTS", ROWS - 1)
    np.save(tmp_path / "x.npy", vectors(ROWS))
    dataset = opened(tmp_path / "x.npy", rows=1, id_column=None)
    refused("240 segments are too many", dataset, target, SPEC)
    assert names_in(tmp_path) == ["x.npy"]


@pytest.mark.slow
def test_a_manifest_holds_the_segments_that_a_build_may_have():
    large = FileMark(1 << 33, "0" * 64)
    numbers = [f"{number:06d}" for number in range(MAX_NEW_SEGMENTS)]
    paths = [file_path(kind, n) for n in numbers for kind in ("codes", "ids", "payload")]
    files = dict.fromkeys(paths, large)
    counts = dict.fromkeys(numbers, 65536)
    manifest = Manifest(Settings(SPEC), len(counts), counts, files=files)
    assert len(manifest.text) < 0.9 * MAX_MANIFEST_BYTES


def test_other_options(data, target):
    words = "has 12 columns where the spec says 11"
    refused(words, opened(data), target, replace(SPEC, dim=11))
    with refuses("name the ledger"):
        Terms(allow_rerelease=True)
    inside = Terms(dpi.Ledger(target / "ledger"))
    refused("lies inside", opened(data), target, SPEC, None, inside)
    no_ids = opened(data, id_column=None)
    build_index(no_ids, target, SPEC)
    assert_array_equal(dpi.open(target).ids, np.arange(ROWS))


@pytest.mark.extra
def test_an_index_in_a_store(tmp_path, monkeypatch):
    rows = 600  # enough for a denoiser
    data = write_dataset(tmp_path / "data", rows)
    url = bucket_at(tmp_path / "store", monkeypatch)
    with refuses("is not a dpindex index, or its build is not finished"):
        dpi.PrivateIndex.open(url)
    with refuses(r"name a private folder for what must not be"):
        build(data, url)
    options = IndexOptions("linear", private=tmp_path / "private")
    assert not build(data, url, options).published.not_denoised
    index = dpi.PrivateIndex.open(url)
    assert len(index) == rows
    assert index.path is None
    assert index.denoiser is not None
    with refuses("an index is saved to a folder"):
        index.save(url)
    index.save(tmp_path / "copy")
    assert len(dpi.open(tmp_path / "copy")) == rows
    codes = tmp_path / "store" / "segments" / "000002.codes"
    codes.unlink()
    with refuses(r"000002.codes is missing"):
        dpi.PrivateIndex.open(url)


@pytest.mark.parametrize(
    "arguments, address",
    [
        ("data index", None),
        ("data index --dask local", "local"),
        ("data index --dask tcp://host:8786", "tcp://host:8786"),
    ],
)
def test_where_dask_runs(arguments, address, monkeypatch):
    """On a cluster of this machine, or on one that runs."""
    asked = []

    def connected(address=None):
        asked.append(address or "local")
        raise InputError("enough")

    def built(*_, **options):
        asked.append(options.get("engine"))
        raise InputError("enough")

    def opened_data(*_, **__):
        return as_dataset(as_source(vectors(3)))

    monkeypatch.setattr("dpindex.integrations.dask.connected", connected)
    monkeypatch.setattr("dpindex.storage.targets.build_index", built)
    monkeypatch.setattr("dpindex.cli.build_commands.open_dataset", opened_data)
    spec = "--method dp-oporp-staircase --epsilon 3 --beta 1"
    line = f"dpindex build {arguments} {spec}"
    monkeypatch.setattr("sys.argv", line.split())
    with pytest.raises(SystemExit):
        main()
    assert asked == [address]

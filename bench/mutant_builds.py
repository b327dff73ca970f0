"""The weaknesses of builds that ``mutants.py`` plants: of what is drawn, kept and published."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from mutant_list import LARGE, Mutant, everywhere, instead
from mutant_paths import BESIDE_IDS, PATHS, PATHS_BOOK, averaged, during, in_force, louder, one_key

from dpindex.accounting.ledger import Ledger
from dpindex.integrations.collector import Accepted, Collector
from dpindex.storage import journal, release
from dpindex.storage.history import History
from dpindex.storage.journal import BucketJournal, Journal, PrivateFolder
from dpindex.storage.leak_check import LeakCheck
from dpindex.storage.release import CodeTarget
from dpindex.storage.shards import CodeDraw
from dpindex.storage.targets import IndexTarget

dataset = import_module("dpindex.data.dataset")
ranking = import_module("dpindex.study.matching")


def rows_changed(change: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Rows of a segment that are others, or in another order, when they are privatized."""

    def weaken(original: Any) -> Any:
        def drawn(draw: CodeDraw, shard: Any, segment: Any, chunk: Any, labels: Any) -> Any:
            if isinstance(chunk, np.ndarray) and chunk.ndim == 2:
                chunk = change(chunk, shard.part.start + segment.start)
            return original(draw, shard, segment, chunk, labels)

        return drawn

    return weaken


def by_an_attribute(chunk: Any, first_row: int) -> Any:
    return chunk[np.argsort(chunk[:, 0], kind="stable")]


def a_row_early(chunk: Any, first_row: int) -> Any:
    return np.roll(chunk, 1, axis=0) if first_row else chunk


def codebooks_alone(original: Any) -> Any:
    return lambda spec, rows: None if spec.codebook is None else original(spec, rows)


def seal_of_vectors(original: Any) -> Any:
    def drawn(draw: CodeDraw, shard: Any, segment: Any, chunk: Any, labels: Any) -> Any:
        files: dict[str, bytes] = {}
        if isinstance(chunk, np.ndarray):
            seal = hashlib.sha256(chunk.tobytes()).digest()
            files[f"segments/{segment.number}.seal"] = seal
        return files | original(draw, shard, segment, chunk, labels)

    return drawn


def shared_segments(original: Any) -> Any:
    def get(self: Any, path: str, *limit: Any) -> Any:
        found = original(self, path, *limit)
        stem, _, ending = path.rpartition(".")
        first = original(self, f"{stem[:-1]}0.{ending}", *limit)
        return found if found is None or first is None else first

    return get


def kept_beside(original: Any) -> Any:
    def put(self: Any, path: str, data: Any) -> bool:
        first = original(self, path, data)
        if not first:
            original(self, f"{path}.other", data)
        return bool(first)

    return put


def counted_louder(original: Any) -> Any:
    def weak(dataset: Any, target: Any, terms: Any = None, **how: Any) -> Any:
        counted = terms is not None and terms.ledger is not None
        with in_force(louder() if counted else lambda patch: None):
            return original(dataset, target, terms, **how)

    return weak


def claimed_by_all(original: Any) -> Any:
    """Builds reserve a store under one name: a second one takes the reservation for its own."""

    def reserve(self: BucketJournal) -> None:
        token = self.token
        self.token = "0" * 32
        original(self)
        self.token = token

    return reserve


def sent_before_drawn(original: Any) -> Any:
    """Codes go to a store as they come, and before it is written down that all are drawn."""

    def put(self: Any, path: str, data: Any) -> bool:
        if isinstance(self, BucketJournal):
            self.bucket.create(path, data)
        return bool(original(self, path, data))

    return put


def unsynced(owner: Any, name: str) -> Callable[[Any], None]:
    """Nothing is synced while a method runs."""

    def plant(patch: Any) -> None:
        patch.setattr(journal.os, "fsync", lambda handle: None)

    return during(owner, name, plant)


def shallow(original: Any) -> Any:
    """A file of a private folder whose name is not synced."""

    def create(self: Any, name: str, data: Any, **mode: Any) -> bool:
        with in_force(instead(PrivateFolder, "sync", lambda _: lambda folder, name="": None)):
            return bool(original(self, name, data, **mode))

    return create


def less_durable(change: Callable[[str], str]) -> Callable[[Any], None]:
    """SQLite whose statements are changed before they run."""

    def plant(patch: Any) -> None:
        plain = sqlite3.connect

        def connect(*where: Any, factory: Any = sqlite3.Connection, **options: Any) -> Any:
            class Weak(factory):
                def execute(self, text: str, *values: Any) -> Any:
                    return super().execute(change(text), *values)

            return plain(*where, factory=Weak, **options)

        patch.setattr(sqlite3, "connect", connect)

    return plant


def forgotten_first(patch: Any) -> None:
    """A collector that forgets the codes it confirmed before the index is saved."""
    stores: list[Any] = []
    opened = Accepted.__init__
    made = Collector.__init__

    def store(self: Any, *arguments: Any) -> None:
        opened(self, *arguments)
        stores.append(self)

    def collector(self: Any, index: Any, path: Any, save: Any, **limits: Any) -> None:
        def forgotten() -> None:
            stores[-1].forget_codes()
            save()

        made(self, index, path, forgotten, **limits)

    patch.setattr(Accepted, "__init__", store)
    patch.setattr(Collector, "__init__", collector)


def pure_tasks(patch: Any) -> None:
    """Tasks that Dask names by a hash of what they hold."""
    module = pytest.importorskip("dpindex.integrations.dask")
    original = module.engine

    def engine(client: Any) -> Any:
        class Pure:
            def submit(self, *arguments: Any, **how: Any) -> Any:
                return client.submit(*arguments, **{**how, "pure": True})

            def __getattr__(self, name: str) -> Any:
                return getattr(client, name)

        return original(Pure())

    patch.setattr(module, "engine", engine)


def texts_under_another_name(patch: Any) -> None:
    """Texts that are left out where their column is called ``text``, and there alone."""
    module = pytest.importorskip("dpindex.integrations.embed")
    parquet = pytest.importorskip("pyarrow.parquet")
    original = module.embed

    def embed(texts: Any, folder: Any, *, column: str = "text", **how: Any) -> Any:
        written = original(texts, folder, column=column, **how)
        for file in written if column != "text" else ():
            table = parquet.read_table(file)
            kept = parquet.read_table(texts).slice(0, len(table))
            parquet.write_table(table.append_column(column, kept[column]), file)
        return written

    patch.setattr(module, "embed", embed)


def other_columns(original: Any) -> Any:
    """A dataset whose payload has a column that was not named."""

    def opened(*arguments: Any, **options: Any) -> Any:
        made = original(*arguments, **options)
        if not options.get("payload_columns"):
            return made

        def more(payload: Any) -> Any:
            table = payload()
            return table.append_column("other", table[0])

        parts = [replace(part, payload=partial(more, part.payload)) for part in made.parts]
        return replace(made, parts=tuple(parts))

    return opened


def one_attack_less(name: str) -> Callable[[Any], None]:
    """A panel of attacks in which one finds nothing."""

    def weaken(original: Any) -> Any:
        def weak(*arguments: Any) -> Any:
            found = original(*arguments)
            if isinstance(found, np.ndarray):
                return np.zeros_like(found)
            return replace(found, better=np.full_like(found.better, found.candidates - 1))

        return weak

    return everywhere(ranking, name, weaken)


def into_what_is_there(_: Any) -> Any:
    def refuse_taken(self: IndexTarget, journal: Any) -> None:
        if self.path.is_dir():
            self.path.rename(self.path.with_name(f"{self.path.name}.before"))

    return refuse_taken


BUILDS = [
    Mutant("build", "a finished index is built into again",
           ("test_places_of_another_use",
            "test_an_attempt_that_outlives_the_build_publishes_nothing"),
           instead(IndexTarget, "refuse_taken", into_what_is_there)),
    Mutant("build", "two builds claim one store",
           ("test_one_store_is_claimed_by_one_build",),
           instead(BucketJournal, "reserve", claimed_by_all)),
    Mutant("build", "a private folder is known by its inode alone",
           ("test_a_copy_that_is_put_back_is_refused_whatever_its_inode",),
           everywhere(journal, "identity", lambda f: lambda path: f(path)[:1])),
    Mutant("build", "a build that goes on does not ask the ledger whether all was drawn",
           ("test_a_ledger_knows_a_release_whose_journal_went_back_in_time",),
           instead(Ledger, "digest_of", lambda _: lambda ledger, token: None)),
    Mutant("build", "the content of a file is not on the disk when it has its name",
           ("test_a_file_is_on_the_disk_before_it_has_its_name",),
           unsynced(PrivateFolder, "create")),
    Mutant("build", "names of what was drawn are not on the disk",
           ("test_names_of_what_was_drawn_are_on_the_disk_before_it_is_published",),
           instead(PrivateFolder, "create", shallow)),
    Mutant("build", "the end of a release is not on the disk",
           ("test_the_end_of_a_release_is_on_the_disk_before_anything_else_goes",),
           unsynced(PrivateFolder, "unlink")),
    Mutant("build", "what was released is not written down before it is seen",
           ("test_what_was_released_is_known_before_its_codes_are_seen",),
           instead(History, "write", lambda _: lambda history, place: None)),
    Mutant("build", "vectors that are added again are not known",
           ("test_the_same_vectors_are_known_in_any_form",),
           instead(History, "refuse_again", lambda _: lambda history, rows, named: None)),
    Mutant("build", "a ledger that an index knows may be left out",
           ("test_the_ledger_of_an_index_is_named_or_nothing_is_added",),
           instead(History, "refuse_without", lambda _: lambda history, ledger: None)),
    Mutant("build", "tasks of a cluster are named by what they hold",
           ("test_names_of_tasks_say_nothing_of_what_they_hold",), pure_tasks),
    Mutant("build", "texts are kept in a column that is not called text",
           ("test_texts_are_left_out_whatever_their_column_is_called",), texts_under_another_name),
    Mutant("build", "columns that nobody named are published",
           ("test_the_payload_is_published_with_the_codes",),
           everywhere(dataset, "open_dataset", other_columns)),
    Mutant("ledger", "it is as durable as databases usually are",
           ("test_a_ledger_is_as_durable_as_sqlite_can_be",),
           less_durable(lambda text: text.replace("EXTRA", "NORMAL"))),
    Mutant("ledger", "a Mac keeps it in the cache of its disk",
           ("test_a_ledger_is_as_durable_as_sqlite_can_be",),
           less_durable(lambda text: text.replace("fullfsync = ON", "fullfsync = OFF"))),
    Mutant("collector", "codes are forgotten before the index is saved",
           ("test_codes_are_kept_until_the_index_is_saved",), forgotten_first),
    Mutant("study", "candidates are not ranked by the law",
           ("test_candidates_are_ranked_by_the_likelihood",),
           one_attack_less("rank_by_law")),
    Mutant("study", "members are not told by the odds",
           ("test_members_are_told_by_the_odds",),
           one_attack_less("best_odds")),
    Mutant("build", "codes are sent before all are drawn",
           ("test_h1_a_bucket_confirms_no_guess_of_the_vectors",),
           instead(Journal, "put", sent_before_drawn)),
    Mutant("build", "a build averages two releases", LARGE,
           during(CodeDraw, "draw_segment", averaged())),
    Mutant("build", "chunks share a key", ("test_attempts_at_the_same_time_publish_one", *PATHS),
           during(CodeDraw, "draw_segment", one_key)),
    Mutant("build", "chunks after the first spend twice epsilon", (*BESIDE_IDS, *LARGE),
           during(CodeDraw, "draw_segment", louder(),
                  lambda draw, shard, segment, *a: shard.part.start + segment.start > 0)),
    Mutant("build", "parts after the first spend twice epsilon", (*BESIDE_IDS, *LARGE),
           during(CodeDraw, "draw_segment", louder(),
                  lambda draw, shard, *a: shard.part.start > 0)),
    Mutant("build", "what a ledger counts spends twice epsilon", PATHS,
           everywhere(release, "release", counted_louder)),
    Mutant("build", "a resumed build starts over",
           ("test_noise_is_drawn_again_for_what_is_missing_only",),
           instead(CodeTarget, "found", lambda _: lambda target, journal, segments: {})),
    Mutant("build", "chunks begin a row early", BESIDE_IDS,
           instead(CodeDraw, "draw_segment", rows_changed(a_row_early))),
    Mutant("build", "rows of a segment lie in order of an attribute", BESIDE_IDS,
           instead(CodeDraw, "draw_segment", rows_changed(by_an_attribute))),
    Mutant("build", "a published file holds a hash of the vectors",
           ("test_h1_a_folder_confirms_no_guess_of_the_vectors", *PATHS),
           instead(CodeDraw, "draw_segment", seal_of_vectors)),
    Mutant("build", "every build has the same key",
           ("test_h1_two_builds_of_the_same_vectors_share_no_tag",),
           lambda patch: patch.setattr(journal.secrets, "token_bytes", bytes)),
    Mutant("build", "segments of one ten share a file",
           ("test_the_payload_is_published_with_the_codes",),
           instead(Journal, "get", shared_segments)),
    Mutant("build", "the losing attempt's codes stay",
           ("test_of_two_draws_of_one_segment_the_second_is_nowhere",),
           instead(Journal, "put", kept_beside)),
    Mutant("build", "a codebook of the vectors themselves is taken", PATHS_BOOK,
           everywhere(release, "refuse_leaks", lambda _: lambda book, evidence: None)),
    Mutant("build", "a design of the vectors themselves is taken",
           ("test_a_design_of_the_vectors_that_are_built_is_refused",),
           lambda patch: patch.setattr(LeakCheck, "of", codebooks_alone(LeakCheck.of))),
    Mutant("ledger", "every release has one token", PATHS,
           instead(release.ReleaseRun, "tell_ledger",
                   lambda f: lambda run, _, ids: f(run, "one", ids))),
]  # fmt: skip
"""Those of builds and of everything that goes through a journal."""

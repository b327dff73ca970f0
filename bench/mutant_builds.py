"""The weaknesses of builds that ``mutants.py`` plants: of what is drawn, kept and published."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from mutant_list import LARGE, Mutant, everywhere, instead
from mutant_paths import BESIDE_IDS, PATHS, PATHS_BOOK, averaged, during, in_force, louder, one_key

from dpindex.storage import journal, release
from dpindex.storage.journal import BucketJournal, Journal
from dpindex.storage.leak_check import LeakCheck
from dpindex.storage.release import CodeDraw, CodeTarget
from dpindex.storage.targets import IndexTarget


def rows_changed(change: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Rows of a segment that are others, or in another order, when they are privatized."""

    def weaken(original: Any) -> Any:
        def privatized(spec: Any, name: str, first_row: int, chunk: Any, *rest: Any) -> Any:
            if isinstance(chunk, np.ndarray) and chunk.ndim == 2:
                chunk = change(chunk, first_row)
            return original(spec, name, first_row, chunk, *rest)

        return privatized

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
    """Builds claim a store under one name: a second one takes the claim for its own."""

    def claim(self: BucketJournal) -> None:
        token = self.token
        self.token = "0" * 32
        original(self)
        self.token = token

    return claim


def sent_before_drawn(original: Any) -> Any:
    """Codes go to a store as they come, and before it is written down that all are drawn."""

    def put(self: Any, path: str, data: Any) -> bool:
        if isinstance(self, BucketJournal):
            self.bucket.create(path, data)
        return bool(original(self, path, data))

    return put


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
           instead(BucketJournal, "claim", claimed_by_all)),
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
           everywhere(release, "privatized", rows_changed(a_row_early))),
    Mutant("build", "rows of a segment lie in order of an attribute", BESIDE_IDS,
           everywhere(release, "privatized", rows_changed(by_an_attribute))),
    Mutant("build", "a published file holds a hash of the vectors",
           ("test_h1_a_folder_confirms_no_guess_of_the_vectors", *PATHS),
           instead(CodeDraw, "draw_segment", seal_of_vectors)),
    Mutant("build", "every build has the same key",
           ("test_h1_two_builds_of_the_same_vectors_share_no_tag",),
           lambda patch: patch.setattr(journal.secrets, "token_bytes", bytes)),
    Mutant("build", "segments of one ten share a file",
           ("test_the_payload_is_published_with_the_codes",),
           instead(Journal, "get", shared_segments)),
    Mutant("build", "the losing attempt's codes stay", PATHS,
           instead(Journal, "put", kept_beside)),
    Mutant("build", "a codebook of the vectors themselves is taken", PATHS_BOOK,
           everywhere(release, "refuse_leaks", lambda _: lambda book, evidence: None)),
    Mutant("build", "a design of the vectors themselves is taken",
           ("test_a_design_of_the_vectors_that_are_built_is_refused",),
           lambda patch: patch.setattr(LeakCheck, "of", codebooks_alone(LeakCheck.of))),
    Mutant("ledger", "every release has one token", PATHS,
           instead(release.ReleaseRun, "book", lambda f: lambda run, _, ids: f(run, "one", ids))),
]  # fmt: skip
"""Those of builds and of everything that goes through a journal."""

"""Every way on which counts are released: a sketch of its own, a merged one, a stored one."""

from __future__ import annotations

import numpy as np

from dpindex.audit.decoding import Recorder, UnexplainedError
from dpindex.audit.input_checks import probe_records, with_draws
from dpindex.audit.law_verifiers import LawVerifier
from dpindex.audit.self_test.code_paths import SECOND_DECODING
from dpindex.audit.self_test.explanation import decoded
from dpindex.audit.self_test.recording import recorded, words_check
from dpindex.audit.verdict import Check
from dpindex.race import RaceSketch, SketchSpec

_COPIES = 100


def sketch_path_checks(spec: SketchSpec, verifier: LawVerifier) -> list[Check]:
    """Released counts must be the exact counts plus the draws.

    The exact counts are those of the same records with draws of zero, which other checks are about.
    """
    records = probe_records(spec)
    half = len(records) // 2
    many = np.tile(records, (_COPIES, 1))
    exact_many, exact_few = (
        with_draws(spec, x, 0).counts.astype(np.int64) for x in (many, records)
    )

    def merged() -> RaceSketch:
        other = RaceSketch(spec).fit(records[:half])
        return RaceSketch(spec).fit(records[half:]).merge(other).release()

    def stored() -> RaceSketch:
        sketch = RaceSketch(spec).partial_fit([records[:half], records[half:]]).release()
        return RaceSketch.from_bytes(sketch.to_bytes())

    def released() -> RaceSketch:
        return RaceSketch(spec).fit(many).release()

    ways = {
        "released": (released, exact_many),
        "merged": (merged, exact_few),
        "stored": (stored, exact_few),
    }
    recorders: list[Recorder] = []
    faults: list[str] = []
    for way, (release, exact) in ways.items():
        with recorded() as streams:
            counts = release().counts.astype(np.int64)
        recorders += streams
        try:
            expected = decoded(verifier, exact.reshape(1, -1), streams).reshape(counts.shape)
        except UnexplainedError:
            expected = np.full(counts.shape, -1)
        if not np.array_equal(expected, counts):
            faults.append(way)
    result = f"{len(ways)} sketches, of {len(many)} and {len(records)} records"
    if faults:
        result = f"other counts where {', '.join(faults)}"
    name = "path: released counts, merged and stored"
    counts_check = Check(name, result, "exactly count + draw", SECOND_DECODING, not faults)
    return [counts_check, words_check(recorders)]

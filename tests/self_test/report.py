"""The report of the self-test: every way on which codes or counts of a spec are released."""

import time

from dpindex.audit.verdict import ExactReport
from dpindex.mechanism.privatizer import Privatizer
from dpindex.race import RaceSketch, SketchSpec
from self_test.code_paths import path_checks
from self_test.recording import cipher_check, entropy_check
from self_test.second_reading import law_reader
from self_test.sketch_paths import sketch_path_checks


def check_paths(spec, *, large=True, only=""):
    """Release public vectors on every way and compare with a second computation.

    **This replaces the secret stream of the running process meanwhile.** Nothing else may release
    there at the same time.

    Parameters
    ----------
    large : bool
        Release more vectors than a task or a chunk holds, and through files; false: only a few.
    only : str
        The name of a way on which codes are released, if that alone is asked about.
    """
    started = time.perf_counter()
    if isinstance(spec, SketchSpec):
        stream = RaceSketch(spec).stream
        checks = sketch_path_checks(spec, law_reader(spec))
    else:
        stream = Privatizer(spec).stream
        alone = only.startswith("stream: ")
        checks = [] if alone else path_checks(spec, law_reader(spec), large, only)
    if [check.name for check in checks] != [only]:
        checks += [entropy_check(stream), cipher_check(stream)]
    return ExactReport(tuple(checks), spec, time.perf_counter() - started)

"""The self-test: every way on which codes or counts of a spec are released."""

from functools import partial

from dpindex.mechanism.privatizer import Privatizer
from dpindex.race import RaceSketch, SketchSpec
from self_test.code_paths import path_checks
from self_test.recording import cipher_fault, entropy_fault
from self_test.second_reading import law_reader
from self_test.sketch_paths import sketch_path_checks


def check_paths(spec, *, large=True, only=""):
    """Release public vectors on every way, compare with a second computation, and return faults.

    **This replaces the secret stream of the running process meanwhile.** Nothing else may release
    there at the same time.

    Parameters
    ----------
    large : bool
        Release more vectors than a task or a chunk holds, and through files; false: only a few.
    only : str
        The name of the check that runs, if one alone is asked about.

    Returns
    -------
    dict
        What was found, by the name of the check that does not hold.
    """
    if isinstance(spec, SketchSpec):
        stream = RaceSketch(spec).stream
        checks = sketch_path_checks(spec, law_reader(spec))
    else:
        stream = Privatizer(spec).stream
        checks = path_checks(spec, law_reader(spec), large)
    checks["stream: keys come from the operating system"] = partial(entropy_fault, stream)
    checks["stream: words are AES-256 in counter mode"] = partial(cipher_fault, stream)
    if only:
        checks = {only: checks[only]}
    faults = {name: check() for name, check in checks.items()}
    return {name: fault for name, fault in faults.items() if fault}

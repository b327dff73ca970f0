"""The self-test: what ships, end to end, in a process of its own.

``python -m dpindex.audit.self_test [SPEC]`` releases public vectors on every way that adds noise
and compares what comes out with a second computation from the recorded secret words. The functions
here replace the secret stream of the running process, so a program that releases vectors must not
call them.
"""

from dpindex.audit.self_test.report import check_default_paths, check_paths

__all__ = ["check_default_paths", "check_paths"]

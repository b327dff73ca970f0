"""A progress bar on a terminal and in a notebook, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeAlias

__all__ = ["Progress", "no_progress", "progress_bar"]

Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with the steps that are done, all steps, and what is done now."""


def no_progress(done: int, total: int, task: str = "") -> None:
    """Show nothing, whatever ``done``, ``total`` and ``task`` are: see :func:`progress_bar`.

    >>> no_progress(1, 2)
    """


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """A bar named ``what`` on a terminal and in a notebook with ipywidgets, silence in a pipe.

    Yields ``report(done, total, task="")``, which the ``progress`` argument of
    :func:`dpindex.plan`, :func:`dpindex.evaluate` and
    :func:`dpindex.index.build.build_index` takes.

    >>> with progress_bar("planning") as report:
    ...     report(1, 2)
    """
    if not (sys.stderr and sys.stderr.isatty()) and "IPython" not in sys.modules:
        yield lambda *_: None  # nobody waits for rich to be imported
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # rich warns about a notebook without ipywidgets and shows nothing.
    seen = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    with Progress(console=console, disable=not seen, transient=True) as progress:
        bar = progress.add_task(what, total=None)

        def report(done: int, total: int, task: str = "") -> None:
            description = f"{what}: {task}" if task else what
            progress.update(bar, completed=done, total=total, description=description)

        yield report

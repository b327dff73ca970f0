"""A progress bar on a terminal and in a notebook, silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """A bar named ``what`` on a terminal and in a notebook with ipywidgets, silence in a pipe.

    Yields ``report(done, total, task="")``, which the ``progress`` argument of
    :func:`dpindex.plan`, :func:`dpindex.evaluate.recall_curve` and
    :func:`dpindex.index.ingest.ingest` takes.

    >>> with progress_bar("planning") as report:
    ...     report(1, 2)
    """
    console = Console(stderr=True)
    with Progress(console=console, disable=not _is_seen(console), transient=True) as progress:
        bar = progress.add_task(what, total=None)

        def report(done: int, total: int, task: str = "") -> None:
            description = f"{what}: {task}" if task else what
            progress.update(bar, completed=done, total=total, description=description)

        yield report


def _is_seen(console: Console) -> bool:
    """Whether someone looks; rich warns about a notebook without ipywidgets and shows nothing."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal

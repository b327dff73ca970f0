"""The command line: thin commands, one file a group, no logic of their own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dpindex.cli import audit, evaluate, inform, ingest, ledger, plan, race, search
from dpindex.errors import InputError
from dpindex.version import __version__

__all__ = ["app", "main"]

_INTERRUPTED = "interrupted; whatever was committed is kept."

app = typer.Typer(
    name="dpindex",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (ingest, search, inform, plan, evaluate, audit, ledger, race):
    group.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpindex {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A private vector-search index: differentially private codes that anyone may search."""


def main() -> None:
    """Entry point: bad input is one sentence on standard error and exit code 2."""
    try:
        app()
    except InputError as error:
        _end(str(error), 2)
    except KeyboardInterrupt:
        _end(_INTERRUPTED, 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no one is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename or 'a file'}: {error.strerror or error}.", 2)
    except MemoryError:
        _end("there is not enough memory for this input.", 2)
    except RuntimeError as error:
        # Before Python 3.12, Ctrl-C while a class is being made (in an import) comes out as this.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end(_INTERRUPTED, 130)


def _end(sentence: str, code: int) -> None:
    print(f"dpindex: {sentence}", file=sys.stderr)
    sys.exit(code)

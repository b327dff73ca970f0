"""The command line: thin commands, one file a group, no logic of their own."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpindex.base.errors import InputError, escaped
from dpindex.version import __version__

_INTERRUPTED = "interrupted; whatever was committed is kept."
_UsageError: Any = typer.BadParameter.__base__
"""What a wrong command line raises; typer has no public name for it."""


class _Commands(TyperGroup):
    """Commands that are imported when they are looked up: all of them take a tenth of a second.

    The command is the function of its name. An interruption is reported here: typer would exit
    without a message.
    """

    modules: Mapping[str, str] = {  # in the order in which they are needed
        "embed": "release_commands",
        "plan": "study_commands",
        **dict.fromkeys(("codebook", "design", "build"), "release_commands"),
        **dict.fromkeys(("query", "info", "methods"), "search_commands"),
        **dict.fromkeys(("add", "denoise", "spec", "privatize"), "release_commands"),
        **dict.fromkeys(("publish", "serve"), "search_commands"),
        **dict.fromkeys(("evaluate", "demo"), "study_commands"),
        **dict.fromkeys(("audit", "ledger"), "audit_commands"),
    }

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = {**dict.fromkeys(self.modules), **self.commands}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.modules:
            return _command(self.modules[cmd_name], cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _end(_INTERRUPTED, 130)


class _RaceCommands(_Commands):
    """Commands of a sketch."""

    modules = dict.fromkeys(("build", "query", "info"), "race_commands")


@cache
def _command(module: str, name: str) -> Any:
    """Return the command that runs the function of that name."""
    from dpindex.cli.options import Command, as_command

    function = vars(import_module(f"dpindex.cli.{module}"))[name]
    text, _, example = inspect.cleandoc(function.__doc__).partition("\n\n$ ")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(cls=Command, help=text, epilog=example)(as_command(function))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="dpindex",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
race_app = typer.Typer(
    name="race",
    cls=_RaceCommands,
    short_help="Sketch a whole collection: density, counts.",
    help="A private sketch of a whole collection, for density and counts near a query.\n\n"
    "Every answer comes from one release under one epsilon (Coleman & Shrivastava 2020). "
    "`dpindex audit --exact SKETCH` verifies its guarantee.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(race_app)


def _version(is_asked: bool) -> None:
    """The version, and what a bug report needs to know about the machine."""
    if not is_asked:
        return
    import platform
    from importlib import metadata

    from cryptography.hazmat.backends.openssl import backend

    typer.echo(f"dpindex {__version__}")
    typer.echo(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for package in ("numpy", "scipy", "faiss-cpu", "cryptography"):
        typer.echo(f"{package} {metadata.version(package)}")
    typer.echo(backend.openssl_version_text())
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print version and build facts."
        ),
    ] = False,
) -> None:
    """A private vector-search index: differentially private codes that anyone may search."""


@cache
def commands() -> Any:
    """Return the commands as they run; building them anew at every call would take 15 ms."""
    return typer.main.get_command(app)


def main() -> None:
    """Entry point: bad input is one sentence on standard error and exit code 2."""
    try:
        sys.exit(commands()(prog_name="dpindex", standalone_mode=False))
    except InputError as error:
        _end(str(error), 2)
    except _UsageError as error:
        if "\n" in str(error.message):  # the help, for a command without arguments
            error.show()
            sys.exit(error.exit_code)
        _end(_usage(error), error.exit_code)
    except KeyboardInterrupt:
        _end(_INTERRUPTED, 130)
    except BrokenPipeError:
        # The reader of the output has closed the pipe, as `| head` does: nobody reads an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename or 'a file'}: {error.strerror or error}.", 2)
    except MemoryError as error:
        _end(
            f"there is not enough memory ({_first_line(error)}); take fewer vectors or queries at "
            f"once, or shorter codes (--code-length).",
            2,
        )
    except Exception as error:
        if not _was_interrupted(error):
            raise
        _end(_INTERRUPTED, 130)


def _usage(error: Any) -> str:
    """Return a usage error as one sentence that names the --help to read."""
    said = " ".join(error.format_message().split()).rstrip(".?").replace("Value error, ", "")
    said = re.sub(
        r"\.? (?:Did you mean|\(Possible options:) (.*?)\)?$", r"; did you mean \1?", said
    )
    shown = "."
    if error.ctx:
        shown = f"; see {error.ctx.command_path} --help."
    return f"{said[0].lower()}{said[1:]}{shown}"


def _first_line(error: BaseException) -> str:
    """Return numpy's message about an array that is too large: its size, shape and type."""
    return str(error).partition("\n")[0].rstrip(".") or "no more is free"


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused this error: Python before 3.12 wraps it when a class is created."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _end(sentence: str, code: int) -> None:
    print(escaped(f"dpindex: {sentence}"), file=sys.stderr)
    sys.exit(code)

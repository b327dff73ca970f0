"""The command line: thin commands, one file a group, no logic of their own."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click
from click.shell_completion import get_completion_class

from dpindex.base.errors import InputError
from dpindex.base.text import escaped
from dpindex.cli.command import Commands
from dpindex.version import __version__

__all__ = ["app", "main"]

_INTERRUPTED = "interrupted; whatever was committed is kept."
_SHELLS = ("bash", "zsh", "fish")


class _App(Commands):
    """Commands whose interruption is reported here: click would exit without a message."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _end(_INTERRUPTED, 130)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """The version, and what a bug report needs to know about the machine."""
    if not wanted:
        return
    import platform
    from importlib import metadata

    from cryptography.hazmat.backends.openssl import backend

    click.echo(f"dpindex {__version__}")
    click.echo(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for package in ("numpy", "scipy", "faiss-cpu", "cryptography"):
        click.echo(f"{package} {metadata.version(package)}")
    click.echo(backend.openssl_version_text())
    ctx.exit()


def _show_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    """The script that completes commands and options in a shell."""
    kind = get_completion_class(shell or "")
    if kind is None:
        return
    click.echo(kind(ctx.command, {}, "dpindex", "_DPINDEX_COMPLETE").source())
    ctx.exit()


app = _App(
    "dpindex",
    "A private vector-search index: differentially private codes that anyone may search.",
    {
        "build_command": ("build",),
        "index_commands": (
            *("privatize", "add", "denoise", "query", "info", "publish"),
            *("methods", "spec", "codebook"),
        ),
        "plan_command": ("plan",),
        "quality_commands": ("evaluate", "demo"),
        "audit_commands": ("audit", "ledger"),
        "server_commands": ("serve",),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Print version and build facts.",
        ),
        click.Option(
            ["--show-completion"],
            type=click.Choice(_SHELLS),
            is_eager=True,
            expose_value=False,
            callback=_show_completion,
            help="Print the completion script of a shell, to add to its start-up file.",
        ),
    ],
)
app.add_command(
    Commands(
        "race",
        "A private sketch of a whole collection, for density and counts near a query.\n\n"
        "Every answer comes from one release under one epsilon (Coleman & Shrivastava 2020). "
        "`dpindex audit --exact SKETCH` verifies its guarantee.",
        {"race_commands": ("build", "query", "info")},
        short_help="Sketch a whole collection: density, counts.",
    )
)


def main() -> None:
    """Entry point: bad input is one sentence on standard error and exit code 2."""
    try:
        sys.exit(app(prog_name="dpindex", standalone_mode=False))
    except InputError as error:
        _end(str(error), 2)
    except click.UsageError as error:
        if "\n" in str(error.message):  # the help, for a command without arguments
            error.show()
            sys.exit(error.exit_code)
        _end(_usage(error), error.exit_code)
    except KeyboardInterrupt:
        _end(_INTERRUPTED, 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no one is left to tell.
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


def _usage(error: click.UsageError) -> str:
    """A usage error as one sentence, and where the usage is shown."""
    said = " ".join(error.format_message().split()).rstrip(".?")
    said = re.sub(r"\.? \(?Did you mean(?: one of:)? (.*?)\??\)?$", r"; did you mean \1?", said)
    shown = "."
    if error.ctx:
        shown = f"; see {error.ctx.command_path} --help."
    return f"{said[0].lower()}{said[1:]}{shown}"


def _first_line(error: BaseException) -> str:
    """What numpy says of an array that is too large: its size, shape and type."""
    return str(error).partition("\n")[0].rstrip(".") or "no more is free"


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether this is what a library made of Ctrl-C, such as a class body of Python before 3.12."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _end(sentence: str, code: int) -> None:
    print(escaped(f"dpindex: {sentence}"), file=sys.stderr)
    sys.exit(code)

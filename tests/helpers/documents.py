"""Documents as programs: their code blocks, and how a reader runs them."""

import csv
import os
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from warnings import catch_warnings, simplefilter

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "embed",
    "build",
    "privatize",
    "add",
    "calibrate",
    "denoise",
    "query",
    "info",
    "methods",
    "spec",
    "codebook",
    "design",
    "publish",
    "plan",
    "evaluate",
    "demo",
    "audit",
    "ledger",
    "serve",
    "race build",
    "race query",
    "race info",
)
"""Of dpindex, those of a group behind its name."""

_INSTALLING = ("python3 -m venv ", "pip install ", ". .venv/bin/activate")
"""Lines of shell blocks that a test leaves out: they set up what the tests run in."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Attributes
    ----------
    language : str
        What stands behind the opening fence; may be empty.
    text : str
    """

    language: str
    text: str

    def commands(self):
        """Return the lines of a shell block but those that install, continued lines joined."""
        if self.language != "sh":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line and not line.startswith(_INSTALLING)]


def blocks(text):
    """Return the fenced blocks of a document in order."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, body) for language, body in fenced]


def code_blocks(text, language):
    """Return the texts of the blocks in one language."""
    return [block.text for block in blocks(text) if block.language == language]


def section(page, heading):
    """Return the part of a page of ``docs/`` below a heading, up to the next of the same level."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    level = heading.split(" ")[0]
    _, _, below = text.partition(f"\n{heading}\n")
    assert below, f"{page} has no {heading}"
    return re.split(rf"^{level} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def prose(text):
    """Return a document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def inline_code(text):
    """Return what stands in single backquotes outside of fenced blocks."""
    return re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", prose(text))


def run_python(code, folder):
    """Run code by itself in ``folder`` and return its output. Warnings are errors."""
    before = Path.cwd()
    printed = StringIO()
    os.chdir(folder)
    try:
        with catch_warnings(), redirect_stdout(printed):
            simplefilter("error")
            exec(code, {"__name__": "__main__"})
    finally:
        os.chdir(before)
    return printed.getvalue()


def paste(text, folder, call):
    """Run every Python and shell block of a document in order; return all output."""
    printed = ""
    for block in blocks(text):
        assert block.language in ("python", "sh"), block
        if block.language == "python":
            printed += run_python(block.text, folder)
        for command in block.commands():
            printed += call(command)
    return printed


def csv_lines(path):
    """The lines of a CSV file, each as a dictionary."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))

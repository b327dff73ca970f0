"""How ``mkdocs build`` makes the site: which files it has, and how docstrings are read.

Files have the paths of the repository, so that links are the same in both. A page
``reference/MODULE.md`` in the navigation is made of the public names of that module.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# A build makes millions of objects and ends: to look through them for garbage takes a fifth of it.
gc.disable()

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = (
    *("*.md", "LICENSE", "docs/*.md", "docs/*.png", "examples/*.ipynb", "examples/*.py"),
    *("bench/**/*.md", "bench/**/*.png", "bench/**/*.csv", "bench/**/*.txt", "bench/*.py"),
)
"""What of the repository is on the site: the documents, and what they link to."""

STYLE = """\
h1, h2, h3, h4 { overflow-wrap: anywhere; }
[data-bs-theme=light] [role=main] a, [data-bs-theme=light] footer a,
[data-bs-theme=light] .bs-sidebar .nav > li > a { color: #0b5fa5; }
[data-bs-theme=light] .bs-sidebar .nav > li > a.active { color: #083f6e; }
[data-bs-theme=light] .navbar { background: #0b5fa5 !important; }
@media (max-width: 575px) {
  .table { font-size: 0.75rem; }
  .table > * > * > * { padding: 0.2rem; }
  .table code { overflow-wrap: anywhere; }
}
"""
"""Long names in headings break, tables take less room on narrow screens, links have contrast."""

SCRIPT = """\
if (location.protocol === "file:") {
  const field = document.getElementById("mkdocs-search-query");
  field.disabled = true;
  field.placeholder = "Search needs a server: python -m http.server";
}
"""
"""Browsers let no page that is opened from a disk read the index of the search."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The published files and the reference, besides the files of the theme."""
    paths = {path for pattern in PUBLISHED for path in ROOT.glob(pattern)}
    site = Files([file for file in files if not (ROOT / "docs" / file.src_uri).exists()])
    for path in sorted(paths):
        uri = path.relative_to(ROOT).as_posix()
        site.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
    site.append(File.generated(config, "css/narrow.css", content=STYLE))
    site.append(File.generated(config, "js/disk.js", content=SCRIPT))
    commands = File.generated(config, "reference/command-line.md", content=command_line())
    site.append(commands)
    for module in re.findall(r"'reference/([\w.]+)\.md'", str(config.nav)):
        uri = f"reference/{module}.md"
        site.append(File.generated(config, uri, content=reference(module)))
    return site


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with tables and code in frames that scroll, by keyboard too."""
    html = html.replace("<pre>", '<pre tabindex="0">')
    framed = html.replace("<table", '<div class="table-responsive" tabindex="0"><table')
    return framed.replace("</table>", "</table></div>")


def on_post_page(html: str, **_: Any) -> str:
    """Return the page with a landmark, and two empty style sheets for the switch to dark mode."""
    sheets = '<style id="hljs-light"></style><style id="hljs-dark"></style>'
    bar = '<div role="navigation" aria-label="Pages" class="navbar '
    html = html.replace('<div class="navbar ', bar)
    return html.replace("</head>", f"{sheets}</head>")


def command_line() -> str:
    """The page of the command line: the help of each command, as it is printed."""
    from dpindex.cli import commands

    os.environ["COLUMNS"] = "80"
    lines = ["# Command line\n", "What `dpindex COMMAND --help` prints."]

    def add(name: str, command: Any) -> None:
        context = command.make_context(name, [], resilient_parsing=True)
        if hasattr(command, "list_commands"):
            for word in command.list_commands(context):
                add(f"{name} {word}", command.get_command(context, word))
        else:
            lines.append(f"\n## {name}\n\n```text\n{command.get_help(context)}\n```")

    add("dpindex", commands())
    return "\n".join(lines) + "\n"


def reference(name: str) -> str:
    """The page of a module: what it is for, a table of its public names, an entry for each."""
    module = import_module(name)
    lines = [f"# {name}\n", inspect.getdoc(module) or "", "\n| name | what it is |\n|---|---|"]
    entries = []
    for public in module.__all__:
        entry, path = getattr(module, public), f"{name}.{public}"
        if inspect.ismodule(entry):
            continue
        if path in sys.modules:  # a function that has the name of its file
            path = f"{entry.__module__}.{entry.__qualname__}"
        first = (inspect.getdoc(entry) or "").partition("\n\n")[0].replace("\n", " ")
        told = first.replace("|", "\\|") if callable(entry) else "A constant."
        lines.append(f"| [`{public}`](#{path}) | {told} |")
        entries.append(f"\n::: {path}")
    return _plain("\n".join(lines + entries)) + "\n"


class Docstrings(griffe.Extension):
    """Docstrings as they are written here, in the form that the numpy parser expects."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        text = _plain(obj.docstring.value)
        if "\nExamples\n---" not in text:
            text = re.sub(r"^>>> ", r"Examples\n--------\n>>> ", text, count=1, flags=re.MULTILINE)
        returned = re.search(r"\nReturns\n-+\n((?:.+\n?)+)", text)
        if returned and "\n " not in returned[1]:  # a sentence without a type above it
            kind = str(obj.returns) if isinstance(obj, griffe.Function) else "value"
            told = "\n    ".join([kind, *returned[1].splitlines()]) + "\n"
            text = text[: returned.start(1)] + told + text[returned.end(1) :]
        obj.docstring.value = text


def _plain(text: str) -> str:
    """Roles such as ``:func:`dpindex.plan``` as code, and shapes as words, not as Python."""
    shown = re.sub(r":(?:class|func|meth|mod):`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"\b(shapes?) \(", "\\1\N{NO-BREAK SPACE}(", shown)

"""How easily the documents read: words a sentence, the longest ones, kilobytes, and links.

    python bench/reading.py [--longest 20]

Sentences of prose count: no code, no tables, no headings. A list item ends a sentence. Each page is
a line; the median and the longest are of all pages together.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEDIAN, LONGEST, KILOBYTES = 16, 35, 150
"""Limits: words of the median and of the longest sentence, and size of ``docs/*.md``."""

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_BREAK = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+|\n(?=#)|\n(?=\|)")
_END = re.compile(r"(?<=[.!?])[\"”)*]*\s+(?=[A-Z`\"“(*[ε\d]|dpindex)")
_ABBREVIATED = re.compile(r"(?:\b(?:Thm|Def|Sec|Eq|Prop|No|vs|al|e\.g|i\.e)|\b[A-Z])\.$")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page."""
    prose = _COMMENT.sub("", _FENCED.sub("\n\n", text))
    prose = _LINK.sub(r"\1", prose)
    for block in _BREAK.split("\n" + prose):
        flat = " ".join(block.split())
        if not flat or flat.startswith(("#", "|")):
            continue
        held = ""
        for part in _END.split(flat):
            held = f"{held} {part}".strip()
            if not _ABBREVIATED.search(held):
                yield held
                held = ""
        if held:
            yield held


def words(sentence: str) -> int:
    """Return the number of words: what holds a letter or a digit. Code counts as one word."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    return sum(bool(re.search(r"\w", word)) for word in plain.split())


def links(text: str) -> list[str]:
    """Return where a page leads to."""
    return re.findall(r"\]\(([^)\s]+)\)", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--longest", type=int, default=10, help="long sentences to print")
    parser.add_argument("--only", default="", help="part of the name of a page")
    options = parser.parse_args()
    every: list[tuple[int, str, str]] = []
    linked = 0
    for page in PAGES:
        if options.only not in page.name:
            continue
        text = page.read_text(encoding="utf-8")
        counted = [(words(one), page.name, one) for one in sentences(text)]
        lengths = [count for count, _, _ in counted]
        linked += len(links(text))
        median = statistics.median(lengths)
        print(f"{page.name:24} {len(text.encode()):7} bytes  median {median:4}  max {max(lengths)}")
        every += counted
    size = sum(page.stat().st_size for page in PAGES if page.parent == ROOT / "docs") / 1000
    middle = statistics.median(count for count, _, _ in every)
    print(
        f"median {middle} words (at most {MEDIAN}), docs {size:.0f} KB (at most {KILOBYTES}), ",
        end="",
    )
    print(f"{sum(count > LONGEST for count, _, _ in every)} above {LONGEST} words, {linked} links")
    for count, name, sentence in sorted(every, reverse=True)[: options.longest]:
        print(f"{count:3} {name}: {sentence}")


if __name__ == "__main__":
    main()

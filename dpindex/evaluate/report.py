"""The report: one HTML file with everything in it, that a person can read, print and mail."""

from __future__ import annotations

import base64
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING

import faiss
import numpy as np
import scipy

import dpindex
from dpindex.evaluate.plots import PANEL_TITLES
from dpindex.privacy import Guarantee

if TYPE_CHECKING:
    from dpindex.evaluate.curve import Curve, Point, QueryMode

__all__ = ["Picture", "report_html"]

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1c1c1c;
       background: #fff; max-width: 62rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .2rem;
     border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p, ul { max-width: 48rem; }
.muted, figcaption { color: #5a5a5a; font-size: .9rem; }
figure { margin: 1.2rem 0; }
figure img { width: 100%; height: auto; }
figure.small img { width: auto; max-width: 100%; max-height: 26rem; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #e6e6e6;
         white-space: nowrap; }
th { font-weight: 600; } thead th { border-bottom: 2px solid #999; }
th[scope=row] { text-align: left; font-weight: 400; } thead th[scope=row] { color: #5a5a5a; }
td small { color: #6a6a6a; font-size: .8em; } td.best { font-weight: 700; }
table.dense { font-size: .82rem; } .dense th, .dense td { padding: .15rem .6rem; }
tr.baseline th, tr.baseline td { color: #666; font-style: italic; }
td.wide { text-align: center; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: 1rem 0; }
dt { color: #5a5a5a; } dd { margin: 0; }
blockquote { margin: .5rem 0; padding: .5rem 1rem; background: #f4f6f8;
             border-left: 4px solid #0072B2; max-width: 46rem; }
blockquote.weaker { border-left-color: #D55E00; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; }
  h2, h3 { break-after: avoid; } figure, tr, blockquote { break-inside: avoid; }
  .scroll { overflow: visible; } table { font-size: 8pt; } th, td { padding: .15rem .35rem; } }
"""

_METRIC_WORDS = {"cosine": "cosine", "ip": "inner product", "l2": "Euclidean distance"}
_COLUMNS = (
    ("precision@10", "precision@10", "{:.3f}"),
    ("recall@100", "recall@100", "{:.3f}"),
    ("recall@10", "recall@10", "{:.3f}"),
    ("queries_per_second", "queries/s", "{:,.0f}"),
    ("build_seconds", "build s", "{:.3g}"),
    ("bytes_per_vector", "bytes", "{:,.0f}"),
    ("rebuilt_error", "rebuilt error", "{:.3f}"),
    ("rebuilt_cosine", "rebuilt cosine", "{:.3f}"),
)
_WIDE = 6
_COSTS = ("queries_per_second", "build_seconds", "bytes_per_vector")


@dataclass(frozen=True)
class Picture:
    """A PNG and the sentence under it; ``small`` ones keep their own size."""

    png: bytes
    caption: str
    title: str = ""
    small: bool = False


def report_html(
    curve: Curve,
    charts: Sequence[Picture],
    *,
    title: str,
    notes: Iterable[str] = (),
    pictures: Iterable[Picture] = (),
) -> str:
    """The whole report as HTML that refers to nothing outside itself.

    ``charts`` stand first, ``pictures`` under headings of their own; ``notes`` are sentences about
    what was left out.
    """
    now = datetime.now(timezone.utc)
    sections = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">Measured with dpindex {dpindex.__version__}; written '
        f"{now:%Y-%m-%d %H:%M} UTC.</p>",
        _data(curve),
        "<h2>Quality by epsilon</h2>",
        *(_figure(chart) for chart in charts),
        *(_summary(curve, mode) for mode in curve.query_modes),
        *(f"<h2>{escape(p.title)}</h2>{_figure(p)}" for p in pictures),
        _protection(curve),
        _method(curve),
        _details(curve),
        _left_out(tuple(notes)),
        _versions(),
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    kind = ' class="small"' if picture.small else ""
    return (
        f'<figure{kind}><img src="data:image/png;base64,{data}" alt="{escape(picture.caption)}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _data(curve: Curve) -> str:
    rows = {
        "Indexed vectors": f"{curve.base[1]:,} of {curve.dim:,} attributes ({curve.base[0]})",
        "Queries": f"{curve.queries[1]:,} ({curve.queries[0]})",
        "True neighbours": f"the {curve.neighbours} nearest by exact {_METRIC_WORDS[curve.metric]}",
        "Repetitions": f"{curve.repetitions}, each with a fresh projection and fresh noise",
    }
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    return f"<dl>{items}</dl>"


def _summary(curve: Curve, mode: QueryMode, measure: str = "precision@10") -> str:
    """One row a method and one column an epsilon; the best DP method of each stands out."""
    lines = curve.series(mode)
    best: dict[float, Point] = {}  # among DP methods: the epsilon of iDP is another thing
    for point in (
        p for line in lines.values() for p in line if p.spec.mechanism.definition == "DP"
    ):
        leader = best.setdefault(point.spec.budget, point)
        if point.mean[measure] > leader.mean[measure]:
            best[point.spec.budget] = point
    head = "".join(f'<th scope="col">ε = {epsilon:g}</th>' for epsilon in curve.epsilons)
    kind = ' class="dense"' if len(curve.epsilons) > _WIDE else ""
    rows = [_summary_row(name, line, curve.epsilons, best, measure) for name, line in lines.items()]
    return (
        f"<h3>{measure}, {escape(PANEL_TITLES[mode])}</h3>"
        f'<div class="scroll"><table{kind}><thead><tr>'
        f'<th scope="row">{escape(curve.adjacency)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _summary_row(
    name: str,
    line: Sequence[Point],
    epsilons: Sequence[float],
    best: dict[float, Point],
    measure: str,
) -> str:
    row_head = f'<th scope="row">{escape(name)}</th>'
    if line[0].spec.epsilon is None:
        value = _html_cell(line[0], measure)
        span = f' colspan="{len(epsilons)}"' if epsilons else ""
        return (
            f'<tr class="baseline">{row_head}<td class="wide"{span}>{value} (not private)</td></tr>'
        )
    by_epsilon = {point.spec.epsilon: point for point in line}
    cells = []
    for epsilon in epsilons:
        point = by_epsilon.get(epsilon)
        if point is None:
            cells.append("<td>–</td>")
            continue
        kind = ' class="best"' if point is best.get(epsilon) else ""
        cells.append(f"<td{kind}>{_html_cell(point, measure)}</td>")
    return f"<tr>{row_head}{''.join(cells)}</tr>"


def _html_cell(point: Point, measure: str, form: str = "{:.3f}") -> str:
    mean, std = point.mean[measure], point.std[measure]
    if math.isnan(mean):
        return "–"
    spread = "" if math.isnan(std) else f" <small>± {form.format(std)}</small>"
    return form.format(mean) + spread


def _protection(curve: Curve) -> str:
    """The promise of each kind of guarantee, in its own words, at the largest epsilon measured."""
    kinds: dict[tuple[str, float], list[Point]] = {}
    for point in curve.points:
        if point.spec.epsilon is not None:
            promise = point.spec.guarantee
            kinds.setdefault((promise.definition, promise.delta), []).append(point)
    if not kinds:
        return ""
    parts = [
        "<h2>What is protected</h2>",
        "<p>Below is each promise at the largest, and so weakest, epsilon measured here; at a "
        "smaller epsilon the same sentence holds with that number.</p>",
    ]
    open_ends: dict[str, None] = {}
    for points in kinds.values():
        weakest = max(points, key=lambda p: p.spec.budget).spec.guarantee
        parts.append(_promise(weakest, [p.spec.method for p in points], curve.dim))
        open_ends |= dict.fromkeys(weakest.does_not_protect(curve.dim))
    lines = "".join(f"<li>{escape(line)}</li>" for line in open_ends)
    return "".join(parts) + f"<h3>Not protected by any of them</h3><ul>{lines}</ul>"


def _promise(guarantee: Guarantee, methods: Sequence[str], dim: int) -> str:
    names = ", ".join(dict.fromkeys(methods))
    kind = ' class="weaker"' if guarantee.definition == "iDP" else ""
    return (
        f"<h3>{escape(names)}</h3><blockquote{kind}><strong>{escape(str(guarantee))}.</strong> "
        f"{escape(guarantee.protects())}</blockquote>"
    )


def _method(curve: Curve) -> str:
    query = (
        "under the index's own epsilon"
        if curve.query_epsilon is None
        else f"under epsilon = {curve.query_epsilon:g}"
    )
    depth = curve.neighbours
    sentences = [
        f"Ground truth is the exact {_METRIC_WORDS[curve.metric]} of the vectors themselves. An "
        "answer whose true score ties with the last true neighbour's (relative tolerance 1e-5) "
        "counts as one.",
        f"precision@10 is the share of the first 10 answers among the true {depth}; recall@100 is "
        f"the share of the true {depth} among the first 100 answers (Li & Li 2023, Sec. 5.1); "
        "recall@10 is the share of the exact ten among the first ten (ann-benchmarks).",
        f"A private query is privatized {query} before it is searched; an exact query never leaves "
        "the searcher, who must then run the search.",
        "Every figure is the mean over repetitions ± one standard deviation. Every repetition has "
        "its own public seed and noise of its own from the operating system.",
        f"{_searched(curve)} Queries a second are one batch on this machine and include "
        "privatizing them; building time includes privatizing. Bytes are those of a published "
        "code.",
        "An attacker who holds all codes rebuilds vectors from them: learns from the codes what "
        "vectors here look like, denoises, and inverts the projection. The rebuilt error is the "
        "mean squared error over that of the best guess from public facts, the middle of the "
        "bounds: 1 is nothing gained, 0 is everything. The rebuilt cosine is to the original. "
        "Recall and exposure rise together: an epsilon that protects one attribute does not "
        "protect the vector.",
        "The figures are statistics of the data and are not private themselves.",
    ]
    return "<h2>How it was measured</h2><ul>" + "".join(
        f"<li>{escape(sentence)}</li>" for sentence in sentences
    ) + "</ul>"  # fmt: skip


def _searched(curve: Curve) -> str:
    if curve.storage in ("f32", "f16", "int8"):
        how = "Search is exhaustive (flat): what is lost, is lost to projection and noise."
    else:
        how = f"Search is by {curve.storage}, which loses some neighbours itself."
    if curve.denoise is None:
        return f"{how} Codes are searched as they are: nothing is denoised."
    return (
        f"{how} Codes and private queries are denoised first ({curve.denoise}), by what was "
        f"learned from the codes themselves; where there were too few, or nothing stood out of "
        f"the noise, codes are searched as they are."
    )


def _details(curve: Curve) -> str:
    # Against ten true neighbours precision@10 and recall@10 are the same number.
    columns = [c for c in _COLUMNS if c[0] != "recall@10" or curve.neighbours != 10]
    head = "".join(f'<th scope="col">{escape(words)}</th>' for _, words, _ in columns)
    rows = []
    for point in curve.points:
        epsilon = "–" if point.spec.epsilon is None else f"{point.spec.epsilon:g}"
        cells = "".join(f"<td>{_detail(point, name, form)}</td>" for name, _, form in columns)
        rows.append(
            f'<tr><th scope="row">{escape(point.label)}</th><td>{epsilon}</td>'
            f"<td>{point.query}</td>{cells}</tr>"
        )
    return (
        '<h2>Every number</h2><div class="scroll"><table class="dense"><thead><tr>'
        f'<th scope="row">{escape(curve.adjacency)}</th>'
        f'<th scope="col">ε</th><th scope="col">query</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _detail(point: Point, measure: str, form: str) -> str:
    """Shares with their spread, costs without: one machine's clock is not that exact."""
    if measure in _COSTS:
        return form.format(point.mean[measure])
    return _html_cell(point, measure, form)


def _left_out(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<h2>Left out</h2><ul>{items}</ul>"


def _versions() -> str:
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{m.__name__} {m.__version__}" for m in (dpindex, np, scipy, faiss)]
    return f'<p class="muted">{escape(", ".join(parts))}; {escape(platform.machine())}.</p>'

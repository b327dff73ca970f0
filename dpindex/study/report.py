"""The files of an evaluation: tables as CSV, and one HTML page that contains everything.

The page is for people without an installation, a server or a network. An epsilon is dragged in it,
and recall and exposure follow; uPlot draws its charts. A content security policy in it forbids
everything but its own two scripts, style and pictures. Pillow and Jinja2 are imported only to
write a report.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, row_norms, unit
from dpindex.base.errors import InputError, import_extra
from dpindex.base.files import write_file
from dpindex.data import dense_rows
from dpindex.index.search import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee, record
from dpindex.study.attacks import Attack, panel_tables
from dpindex.study.curve import (
    RUNS_FILE,
    Curve,
    Point,
    as_text,
    csv_bytes,
    recall_within,
    refuse_other_report,
)
from dpindex.study.examples import SHOWN, ExampleBuild, Examples, Sheet, Shown
from dpindex.study.specs import hides_records
from dpindex.study.texts import TextAttack
from dpindex.study.trial import LINKED
from dpindex.version import __version__

TITLE = "What an epsilon hides, and what it finds"

_FILES = Path(__file__).parent / "page"
_NEED = "a report needs jinja2 and pillow"
_RECALL = f"recall@{SHOWN}"
_DIGITS = 4
# Of charts and tables, by query mode or measure.
_HEADINGS = {
    "private": "private query: query and index are noisy",
    "exact": "exact query: only the index is noisy",
    LINKED: "known vectors whose own code fits best",
}


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What a report holds beside the curves.

    Attributes
    ----------
    notes : sequence of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    texts : TextAttack, optional
        What an attack on codes of texts gives back.
    attacks : sequence of Attack
        Figures of :func:`dpindex.study.attacks`.

    >>> Additions(notes=["raw-laplace: left out"]).attacks
    ()
    """

    notes: Sequence[str] = ()
    texts: TextAttack | None = None
    attacks: Sequence[Attack] = ()


def write_report(
    directory: str | os.PathLike[str],
    curves: Sequence[Curve],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    title: str = TITLE,
    replace: bool = False,
) -> Path:
    """Write what was measured as files; return the path of the page.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` has one line for each run; ``report.html`` contains everything, and
    epsilon is a slider in it where two or more were measured. Each file is written whole or not at
    all.

    The page shows originals beside reconstructions, so it is as private as the vectors that it was
    made of: make it of public data before it is sent around.

    Parameters
    ----------
    directory : path
        Created if missing. A report in it is replaced if this one has all its runs.
    curves : sequence of Curve
        What :func:`dpindex.evaluate` measured, at least one.
    shown : Shown, optional
        How examples are shown; without it the page has none.
    additions : Additions, optional
        Further sections of the page; ``texts.csv`` and ``attacks.csv`` if it has such.
    title : str
        Heading of the page.
    replace : bool
        Replace a report of other runs too.

    Raises
    ------
    InputError
        If Pillow or Jinja2 is missing (the CSV files are written first), the directory cannot be
        written, or it holds a report of other runs.

    >>> import tempfile
    >>> from dpindex import attribute, evaluate
    >>> from dpindex.study import spec_grid
    >>> base = np.random.default_rng(0).random((60, 8))
    >>> specs = spec_grid(8, ["dp-oporp-staircase"], [2, 20], adjacency=attribute(1.0)).specs
    >>> curves = evaluate(base, base[:5], specs, runs=1, neighbours=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(folder, curves).name
    'report.html'
    """
    folder = Path(directory)
    lines = [curve.line(run) for curve in curves for run in curve.runs]
    if not replace:
        refuse_other_report(folder, list(map(as_text, lines)).__contains__)
    means = [line for curve in curves for line in _mean_lines(curve)]
    tables = {"curve.csv": csv_bytes(means), RUNS_FILE: csv_bytes(lines)}
    more = additions or Additions()
    if more.texts is not None:
        tables["texts.csv"] = csv_bytes(list(more.texts.lines()))
    if more.attacks:
        tables["attacks.csv"] = csv_bytes([figure.line() for figure in more.attacks])
    write_all(folder, tables)
    html = page_html(curves, shown, more, title=title)
    write_all(folder, {"report.html": html.encode()})
    return folder / "report.html"


def _mean_lines(curve: Curve) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``curve.csv``."""
    for point in curve.points:
        facts = curve.cells(point)
        for name, mean in point.mean.items():
            std = point.std[name]
            yield {
                **facts,
                "measure": curve.full_name(name),
                "mean": mean,
                "std": "" if math.isnan(std) else std,
                "runs": point.runs,
            }


def write_all(path: Path, files: Mapping[str, bytes]) -> None:
    """Write each file whole or not at all; InputError if the directory cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_file(path / name, data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; choose another directory.") from error


def require_libraries() -> None:
    """Raise InputError unless Jinja2 and Pillow are installed.

    Check before hours of work.

    >>> require_libraries()
    """
    import_extra("jinja2", _NEED, "eval")
    import_extra("PIL.Image", _NEED, "eval")


@dataclass(frozen=True)
class Section:
    """The static part of one curve: what the tables and sentences below the sliders say."""

    curve: Curve

    @property
    def whole_records(self) -> bool:
        """True if any two vectors are neighbours under a guarantee of this curve."""
        return any(point.spec.adjacency == record() for point in self.curve.points)

    @property
    def best(self) -> list[Point]:
        """The DP method of highest recall@10 for each query mode and epsilon.

        Methods with iDP are left out, because their epsilon promises less.
        """
        best: dict[tuple[QueryMode, float], Point] = {}
        for point in self.curve.points:
            if point.spec.guarantee.definition == "DP":
                leader = best.setdefault((point.query, point.spec.budget), point)
                if point.mean["recall@10"] > leader.mean["recall@10"]:
                    best[point.query, point.spec.budget] = point
        return list(best.values())

    @property
    def promises(self) -> list[tuple[str, Guarantee]]:
        """Methods with the same kind of guarantee, and that guarantee at the largest epsilon."""
        groups: dict[tuple[Any, ...], list[Spec]] = {}
        for spec in (point.spec for point in self.curve.points if point.spec.epsilon is not None):
            kind = (spec.guarantee.definition, spec.delta, spec.adjacency)
            groups.setdefault(kind, []).append(spec)
        return [
            (
                ", ".join(dict.fromkeys(spec.method for spec in specs)),
                max(specs, key=lambda spec: spec.budget).guarantee,
            )
            for specs in groups.values()
        ]

    @property
    def limits(self) -> list[str]:
        """Sentences on what none of the guarantees protects."""
        lines = [p.does_not_protect(self.curve.dim) for _, p in self.promises]
        return list(dict.fromkeys(line for part in lines for line in part))


def page_html(
    curves: Sequence[Curve],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    title: str = TITLE,
) -> str:
    """Return a report as one HTML page that refers to nothing outside itself.

    Curves with an epsilon can be moved; the tables and sentences below them stand still.

    Parameters
    ----------
    curves : sequence of Curve
        One for each adjacency, at least one, all of one base and the same queries.
    shown, additions, title
        As of :func:`write_report`.

    Raises
    ------
    InputError
        If Jinja2 or Pillow is missing.
    """
    jinja = import_extra("jinja2", _NEED, "eval")
    more = additions or Additions()
    movable = [curve for curve in curves if curve.epsilons]
    data = None
    scripts: list[str] = []
    if movable:
        values = page_data(movable, shown)
        data = jinja.utils.htmlsafe_json_dumps(values, dumps=_json_text)
        licence = _read("uplot/LICENSE").replace("*/", "* /")
        scripts = [f"/*\n{licence}*/\n{_read('uplot/uPlot.iife.min.js')}", _read("page.js")]
    style = _read("uplot/uPlot.min.css") + _read("page.css")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.j2").render(
        title=title,
        data=data,
        dragged=any(len(curve.epsilons) > 1 for curve in movable),
        sections=[Section(curve) for curve in curves],
        curve=curves[0],
        texts=more.texts,
        attacks=list(panel_tables(more.attacks)),
        notes=more.notes,
        headings=_HEADINGS,
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
        style=style,
        scripts=scripts,
        style_hash=_hash(style),
        script_hashes=[_hash(script) for script in scripts],
    )
    return str(text)


def _json_text(data: Any, **options: Any) -> str:
    """Return JSON without spaces; ValueError for NaN, which JSON has not."""
    del options  # Jinja asks for sorted keys
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def page_data(curves: Sequence[Curve], shown: Shown | None = None) -> dict[str, Any]:
    """Return everything that the page moves, as JSON values; of curves with an epsilon each.

    Numbers by epsilon always; and, of curves with examples, texts and one sheet of pictures.
    """
    curve = curves[0]
    data: dict[str, Any] = {
        "version": __version__,
        "base": {"name": curve.base[0], "count": curve.base[1], "dim": curve.dim},
        "queries": {"name": curve.queries[0], "count": curve.queries[1]},
        "metric": curve.metric,
        "denoise": curve.denoise,
        "found": SHOWN,
        "candidates": list(curve.candidates),
        "views": [_view(curve) for curve in curves],
        "opens": _opening(curves, shown),
        "kind": None,
    }
    chosen = [curve.examples for curve in curves if curve.examples is not None]
    if shown is not None and len(chosen) == len(curves):
        _add_examples(data, curves, chosen, shown)
    return data


def _opening(curves: Sequence[Curve], shown: Shown | None) -> int:
    """Return the number of the view that the page opens on: whole records, unless of pictures.

    One coordinate of an embedding is nobody's secret; one pixel may be.
    """
    if shown is not None and shown.pictures:
        return 0
    kinds = [_adjacency(curve)["kind"] for curve in curves]
    if "record" in kinds:
        return kinds.index("record")
    return 0


def _add_examples(
    data: dict[str, Any], curves: Sequence[Curve], chosen: Sequence[Examples], shown: Shown
) -> None:
    """Add what is shown of single vectors to the data of a page."""
    first = chosen[0]
    rows = np.unique(np.concatenate([_rows(examples) for examples in chosen]))
    number = {int(row): i for i, row in enumerate(rows)}
    originals = dense_rows(shown.base, first.records)
    pictured = rows if shown.pictures else first.records
    sheet = Sheet(shown.shape, (float(originals.min()), float(originals.max())))
    first_tile = sheet.add(dense_rows(shown.base, pictured))
    tiles = {int(row): first_tile + i for i, row in enumerate(pictured)}
    data["queries"]["shown"] = shown.query_names(first.queries)
    data["queries"]["tile"] = None
    if shown.pictures:
        data["queries"]["tile"] = sheet.add(dense_rows(shown.queries, first.queries))
    data["kind"] = shown.kind
    data["items"] = {
        "names": shown.names(rows),
        "tiles": [tiles.get(int(row)) for row in rows],
    }
    data["records"] = [number[int(row)] for row in first.records]
    sizes = row_norms(originals)
    for curve, examples, lines in zip(curves, chosen, data["views"], strict=True):
        lines["truth"] = [[number[int(row)] for row in line] for line in examples.truth]
        samples = {sample.spec: sample for sample in examples.samples}
        series = curve.series(curve.query_modes[0])
        for line, method in zip(series.values(), lines["methods"], strict=True):
            ordered = [samples[point.spec] for point in line]
            method["hits"] = {
                mode: [_hits(sample, mode, number) for sample in ordered]
                for mode in curve.query_modes
            }
            method["rebuilt"] = [_reconstructed(sample, number, sheet, sizes) for sample in ordered]
    data["sheet"] = sheet.to_dict()


def _rows(examples: Examples) -> AnyArray:
    """Return every row of the base that the examples of one curve show."""
    found = [rows.ravel() for sample in examples.samples for rows in sample.found.values()]
    picked = [s.reconstructed.nearest for s in examples.samples if s.reconstructed is not None]
    shown = [examples.truth.ravel(), examples.records, *found, *picked]
    every: AnyArray = np.unique(np.concatenate(shown))
    return every[every >= 0]


def _view(curve: Curve) -> dict[str, Any]:
    return {
        "adjacency": _adjacency(curve),
        "epsilons": list(curve.epsilons),
        "queryEpsilon": curve.query_epsilon,
        "modes": list(curve.query_modes),
        "runs": curve.runs_per_point,
        "methods": [_method(curve, name) for name in curve.series(curve.query_modes[0])],
    }


def _adjacency(curve: Curve) -> dict[str, str]:
    """Return the kind of adjacency, and in words what a guarantee of this curve hides."""
    adjacencies = {point.spec.guarantee.adjacency for point in curve.points}
    by_kind = {adjacency.kind: adjacency for adjacency in adjacencies}
    kind = "record" if "record" in by_kind else min(by_kind)
    return {"kind": kind, "words": by_kind[kind].describe()}


def _method(curve: Curve, name: str) -> dict[str, Any]:
    """Return one line of the charts: its figures by epsilon."""
    lines = {mode: curve.series(mode)[name] for mode in curve.query_modes}
    line = lines[curve.query_modes[0]]
    spec = line[0].spec
    within = {
        mode: [_means(points, recall_within(level)) for level in curve.candidates]
        for mode, points in lines.items()
    }
    return {
        "label": name,
        "method": spec.method,
        "summary": spec.method_row.summary,
        "definition": spec.guarantee.definition,
        "promise": promise(spec.guarantee),
        "bytes": line[0].mean["bytes_per_vector"],
        "epsilons": [point.spec.epsilon for point in line],
        "recall": {mode: _means(points, _RECALL) for mode, points in lines.items()},
        "within": within,
        "spread": {mode: _spreads(points, _RECALL) for mode, points in lines.items()},
        # The error of the best guess without codes is 1: what is missing to it was recovered.
        "exposed": [
            None if error is None else round(min(1.0, max(0.0, 1.0 - error)), _DIGITS)
            for error in _means(line, "reconstruction_error")
        ],
        "linked": _means(line, LINKED),
    }


def promise(guarantee: Guarantee) -> str:
    """How far the sentence about odds holds for codes with this guarantee."""
    if guarantee.definition == "none":
        return "No noise and no promise: this is the most that a search on such codes can find."
    chance = f"except with a probability governed by δ = {guarantee.delta:g}"
    if guarantee.delta_over == "projection":
        chance += ", a chance over the public projection too"
    if guarantee.definition == "iDP":
        return (
            "The odds above do not hold for it: its promise (individual differential privacy) is "
            "weaker, and vectors can be reconstructed from its codes."
        )
    if guarantee.delta:
        return f"The odds above hold {chance}."
    return "The odds above hold without exception."


def _means(line: Sequence[Point], measure: str) -> list[float | None]:
    return [_number(point.mean.get(measure, math.nan)) for point in line]


def _spreads(line: Sequence[Point], measure: str) -> list[float | None]:
    return [_number(point.std[measure]) for point in line]


def _number(value: float) -> float | None:
    """A number as JSON has it; None for NaN."""
    if math.isnan(value):
        return None
    return round(float(value), _DIGITS)


def _hits(sample: ExampleBuild, mode: Any, number: Mapping[int, int]) -> Any:
    """The answers by candidates and query; one that is not a true neighbour is −1 − item."""
    items = np.vectorize(number.__getitem__, otypes=[int])(sample.found[mode])
    return np.where(sample.true[mode], items, -1 - items).tolist()


def _reconstructed(
    sample: ExampleBuild, number: Mapping[int, int], sheet: Sheet, sizes: AnyArray
) -> dict[str, Any] | None:
    """Return what comes back from the codes of the records, with their tiles."""
    found = sample.reconstructed
    if found is None:
        return None
    vectors = found.vectors
    if hides_records(sample.spec):  # directions, shown as bright as the originals
        vectors = unit(vectors) * sizes[:, None].astype(np.float32)
    return {
        "tile": sheet.add(vectors),
        "cosine": [round(float(cosine), 2) for cosine in found.cosines],
        "nearest": [None if row < 0 else number[int(row)] for row in found.nearest],
    }

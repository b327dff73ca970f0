"""Commands that predict and measure what a search finds: plan, evaluate, demo."""

from __future__ import annotations

import math
import shlex
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import shared as o
from dpindex.data import open_vectors, read_ids
from dpindex.data.source import check_finite
from dpindex.privacy import record

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.study import Shown, SpecGrid
    from dpindex.study.report import Additions


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Target of a plan: keywords of :func:`dpindex.plan`."""

    n: Annotated[int, "Vectors in the collection."]
    epsilon: Annotated[float | None, "Target epsilon."] = None
    recall: Annotated[
        float | None,
        "Target recall: finds the smallest epsilon, or with --epsilon the fewest candidates.",
    ] = None
    candidates: Annotated[
        str | None,
        "--candidates N",
        "Rows that you re-rank with the original vectors, or a share on average such as 5%.  "
        "[default: k; with --record 1000, or 5 % if that is fewer]",
    ] = None
    at: Annotated[int, "The k of recall@k."] = 10
    query: Annotated[Literal["exact", "private"], "Query mode, as of `dpindex query`."] = "exact"
    metric: Annotated[Literal["cosine", "l2"], "What ranks: cosine, or l2 if lengths count."] = (
        "cosine"
    )
    max_bytes: Annotated[int | None, "Maximum bytes of a code."] = None
    skip_leak_check: Annotated[bool, "Accept a sample that looks private."] = False


def plan(
    *,
    target: PlanOptions,
    public: Annotated[str, "--public FILE", "500 or more PUBLIC vectors of the same kind."],
    groups: Annotated[
        str | None,
        "--groups FILE",
        "A label for each vector of the sample: those of one label, such as captions of one "
        "picture, are never counted as answers to each other.",
    ] = None,
    public_queries: Annotated[
        str | None, "--public-queries FILE", "PUBLIC vectors like the queries, if these differ."
    ] = None,
    methods: Annotated[str, "--methods A,B", "Methods to try.  [default: all that give DP]"] = "",
    as_json: o.AsJson = False,
    save: Annotated[Path | None, "Write the plan to a file, for `dpindex build --plan`."] = None,
    plot: Annotated[Path | None, "Plot of the predictions by epsilon, .png."] = None,
    options: o.DataOptions,
) -> None:
    """Predict what a search finds, and recommend a method.

    Uses public vectors only. `dpindex build --public` plans and builds in one step.

    $ dpindex plan --public public.npy --n 20000 --record --epsilon 8
    """
    from dpindex.study.plan_plot import plan_png, require_matplotlib
    from dpindex.study.planner import plan as make_plan

    if save is not None:
        o.refuse_existing(save)
    if plot is not None:
        o.refuse_existing(plot)
        if plot.suffix != ".png":
            raise InputError(f"{plot} must end in .png.")
        require_matplotlib()
    with (
        open_vectors(public) as sample,
        open_vectors(public_queries) if public_queries else nullcontext() as queries,
        o.progress_bar("simulating", quarters=True) as progress,
    ):
        outcome = make_plan(
            sample,
            groups=o.read_if_named(read_ids, groups),
            public_queries=queries,
            methods=o.parsed_list(methods, "--methods", str) or None,
            curves=plot is not None,
            progress=progress,
            **{**vars(target), "candidates": o.number_or_share(target.candidates)},
            **options.stated(),
        )
    # First, as a file that cannot be written ends the command, and a plan takes minutes.
    if as_json:
        o.print_json(outcome.to_dict())
    else:
        typer.echo(outcome)
    if save is not None:
        outcome.save(save)
    if plot is not None:
        create_file(plot, plan_png(outcome))
    if as_json:
        return
    if plot is not None:
        o.say(f"Plot: {plot}")
    if save is not None:
        o.say(f"Build it: dpindex build VECTORS my-index --plan {shlex.quote(str(save))}")
    else:
        typer.echo(
            "Build it: add --save my.plan, then `dpindex build VECTORS my-index --plan my.plan`."
        )


_CONTRAST = "raw-gaussian"
_EPSILONS = "1,2,3,5,10"
_RECORD_EPSILONS = "6,8,10,12,16"
_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"


@dataclass(frozen=True)
class GridOptions:
    """The methods, epsilons and code lengths to compare."""

    methods: Annotated[
        str,
        "--methods A,B",
        f"Methods.  [default: {_METHODS.replace(',', ', ')}; with --record those of that name, and "
        f"{_CONTRAST}]",
    ] = ""
    epsilons: Annotated[
        str,
        "--epsilons A,B",
        f"Epsilons.  [default: {_EPSILONS}; --record: {_RECORD_EPSILONS}]",
    ] = ""
    record_methods: Annotated[
        str,
        "--record-methods A,B",
        "More methods, which hide whole records, at norm 1.",
    ] = ""
    record_epsilons: Annotated[str, "--record-epsilons A,B", "Their epsilons."] = _RECORD_EPSILONS
    code_length: Annotated[str, "--code-length A,B", "Code lengths.  [default: the methods']"] = ""
    query: Annotated[str, "--query A,B", "Query modes."] = "private,exact"

    def grids(self, dim: int, options: o.CurveOptions) -> list[SpecGrid]:
        """Return the grids of specs: of the adjacency of the options, and of whole records."""
        from dpindex.study import spec_grid

        methods = self.methods or _METHODS
        epsilons = self.epsilons or _EPSILONS
        if options.record:
            book = ""
            if options.codebook:
                book = ",record-codebook"
            methods = self.methods or f"record-cap{book},{_CONTRAST}"
            epsilons = self.epsilons or _RECORD_EPSILONS
        lengths = o.parsed_list(self.code_length, "--code-length", int) or [None]
        fields = options.stated()
        grids = [
            spec_grid(
                dim,
                o.parsed_list(methods, "--methods", str),
                o.parsed_list(epsilons, "--epsilons", float),
                lengths,
                **fields,
            )
        ]
        if self.record_methods:
            kept = {
                name: fields[name] for name in ("delta", "codebook", "subset", "seed", "ranges")
            }
            several = o.parsed_list(self.record_epsilons, "--record-epsilons", float)
            names = o.parsed_list(self.record_methods, "--record-methods", str)
            grids.append(spec_grid(dim, names, several, lengths, adjacency=record(), **kept))
        return grids


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured, and how often."""

    runs: Annotated[int, "Builds of each spec, with new seed and noise."] = 10
    neighbours: Annotated[int, "True neighbours of a query."] = 50
    metric: o.MetricOption = "cosine"
    index_type: Annotated[str, "Search structure, as of `dpindex build`."] = "f32"
    query_epsilon: Annotated[float | None, "Budget of private queries.  [default: the index's]"] = (
        None
    )
    denoise: o.FitDenoiser = None
    max_queries: Annotated[int | None, "Use only the first N queries."] = None
    skip_leak_check: Annotated[bool, "Accept a public part made of BASE."] = False


@dataclass(frozen=True)
class PageOptions:
    """What the page shows of single vectors."""

    examples: Annotated[int, "Queries and records to show; 0 shows none."] = 6
    image_shape: Annotated[
        str | None, "--image-shape HxW", "Show vectors as pictures; HxWx3 in colours."
    ] = None
    base_texts: Annotated[Path | None, "Texts of the vectors, a line each."] = None
    query_texts: Annotated[Path | None, "Texts of the queries, a line each."] = None
    ids: Annotated[str | None, "--ids FILE", "Ids to show, one for each vector."] = None
    public_texts: Annotated[
        Path | None,
        "Texts of --public or --codebook: shows which one a code leads to.",
    ] = None
    attackers: Annotated[
        str | None, "--public FILE", "PUBLIC vectors for attacks to learn from."
    ] = None
    labels: Annotated[
        tuple[str, str] | None,
        "--labels FILE FILE",
        "Labels of the vectors and of --public, which attacks infer.",
    ] = None
    title: Annotated[str | None, "Heading of the page."] = None

    def check(self, codebook: Path | None) -> None:
        """Raise InputError for texts or labels without vectors."""
        if self.public_texts is not None and not (self.attackers or codebook):
            raise InputError("--public-texts needs the vectors of these texts: --public FILE.")
        if self.labels is not None and self.attackers is None:
            raise InputError("--labels needs --public: attacks learn from public labels.")
        if self.attackers is not None:  # now: what is measured first takes minutes
            with open_vectors(self.attackers) as public:
                check_finite(public)

    def shown(self, base: Any, queries: Any) -> Shown:
        """Return how vectors are shown."""
        from dpindex.study import Shown
        from dpindex.study.examples import read_texts

        shape = None
        if self.image_shape is not None:
            dim = base.shape[1]
            sizes = self.image_shape.lower().split("x")
            if not all(size.isdecimal() for size in sizes) or math.prod(map(int, sizes)) != dim:
                raise InputError(
                    f"--image-shape must be HEIGHTxWIDTH, or HEIGHTxWIDTHx3 for colours, with "
                    f"{dim} numbers in all, such as 28x28; it is {self.image_shape!r}."
                )
            shape = tuple(map(int, sizes))
        return Shown(
            base,
            queries,
            image_shape=shape,
            texts=o.read_if_named(read_texts, self.base_texts),
            query_texts=o.read_if_named(read_texts, self.query_texts),
            ids=o.read_if_named(read_ids, self.ids),
        )

    def additions(
        self, base: Any, specs: Any, notes: list[str], options: o.CurveOptions
    ) -> Additions:
        """Return what the report adds to the curves: notes, and what attacks infer from codes."""
        from dpindex.study import Labels, attack_panel
        from dpindex.study.examples import read_texts, text_attack
        from dpindex.study.report import Additions

        public = self.attackers
        if self.public_texts is not None:
            public = public or str(options.codebook)
        if public is None:
            return Additions(notes=notes)
        labels = None
        texts = []
        attacks = []
        with open_vectors(public) as opened, o.progress_bar("attacking") as progress:
            sample = o.scaled_source(opened, options.ranges)
            if self.public_texts is not None:
                shown = o.read_if_named(read_texts, self.base_texts)
                texts = text_attack(base, specs, sample, read_texts(self.public_texts), shown)
            if self.labels is not None:
                labels = Labels(*map(read_ids, self.labels))
            if self.attackers is not None:
                attacks = attack_panel(base, specs, sample, labels, progress=progress)
        return Additions(notes=notes, texts=texts, attacks=attacks)


def evaluate(
    base: Annotated[str, typer.Argument(help="Vectors to search.")],
    queries: Annotated[str, typer.Argument(help="Query vectors.")],
    *,
    report: Annotated[Path, "--report FOLDER", "Folder for report.html and its tables."],
    replace: Annotated[bool, "Replace a report of another evaluation."] = False,
    grid: GridOptions,
    measured: MeasureOptions,
    page: PageOptions,
    options: o.CurveOptions,
) -> None:
    """Measure recall and exposure by epsilon, and write a report.

    The report is one page that works offline, with sliders. It shows the vectors themselves, so
    send around reports of public vectors only. Run again to resume.

    $ dpindex evaluate base.npy queries.npy --report report --beta 1
    --methods dp-oporp-staircase,none-oporp --epsilons 1,3,10 --runs 1
    """
    from dpindex.study import evaluate as measure
    from dpindex.study.report import TITLE, require_libraries, write_report

    require_libraries()
    page.check(options.codebook)
    with ExitStack() as stack:
        base_file = stack.enter_context(open_vectors(base))
        query_file = stack.enter_context(open_vectors(queries))
        base_source = o.scaled_source(base_file, options.ranges)
        query_source = o.scaled_source(query_file, options.ranges)
        dim = base_source.shape[1]
        grids = grid.grids(dim, options)
        refused = [sentence for each in grids for sentence in each.refused]
        for sentence in refused:
            typer.echo(f"left out: {sentence}", err=True)
        specs = [spec.without_ranges() for each in grids for spec in each.specs]
        shown = page.shown(base_source, query_source)
        with o.progress_bar("measuring", quarters=True) as progress:
            curves = measure(
                base_source,
                query_source,
                specs,
                examples=page.examples,
                query_modes=o.parsed_list(grid.query, "--query", str),
                report=report,
                replace_report=replace,
                progress=progress,
                **vars(measured),
            )
        path = write_report(
            report,
            curves,
            shown,
            page.additions(base_source, specs, refused, options),
            replace=replace,
            title=page.title or TITLE,
        )
    for curve in curves:
        typer.echo(curve)
    o.say(f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser.")


def demo(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the index and the report.")
    ] = Path("dpindex-demo"),
) -> None:
    """Run an example on bundled digits, in under a minute.

    $ dpindex demo
    """
    from dpindex.study import run_demo

    with o.progress_bar("measuring") as progress:
        result = run_demo(directory, progress=progress)
    typer.echo(result.curve)
    typer.echo(
        f"\nTen nearest answers to private queries at {result.spec.guarantee}: "
        f"{result.same_digit:.0%} show the digit asked for.\n"
        f"Index:   {result.index}   (try: dpindex info {result.index})\n"
        f"Report:  {result.report}   drag epsilon in a browser: what is found, what comes back"
    )

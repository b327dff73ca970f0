"""Commands that predict and measure what a search finds: plan, evaluate, demo."""

from __future__ import annotations

import math
import shlex
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import shared as o
from dpindex.data import open_dataset, open_vectors, read_ids
from dpindex.data.source import check_finite
from dpindex.privacy import record

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.index.search import QueryMode
    from dpindex.study import Shown, SpecGrid
    from dpindex.study.curve import Curve
    from dpindex.study.planner import Plan
    from dpindex.study.report import Additions


_SHOWN = 12
_DECIDING = 5


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Target of a plan: keywords of :func:`dpindex.plan`."""

    dim: Annotated[int, "Attributes of a vector."]
    n: Annotated[int, "Vectors in the collection."]
    epsilon: Annotated[float | None, "Target epsilon."] = None
    recall: Annotated[
        float | None,
        "Target recall: finds the smallest epsilon, or with --epsilon the fewest candidates.",
    ] = None
    candidates: Annotated[
        int | None,
        "Rows that the owner of the vectors reranks.  [default: k; with --record 1000, at most "
        "5 %]",
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
    public_sample: Annotated[
        str, "--public-sample FILE", "500 or more PUBLIC vectors of the kind."
    ],
    groups: Annotated[
        str | None,
        "--groups FILE",
        "A label of each vector of the sample. Vectors of one label resemble each other, and real "
        "queries have no such siblings: those of a query are left out.",
    ] = None,
    public_queries: Annotated[
        str | None, "--public-queries FILE", "PUBLIC vectors like queries, if these differ."
    ] = None,
    methods: Annotated[str, "--methods A,B", "Methods to try.  [default: all that give DP]"] = "",
    as_json: o.AsJson = False,
    plot: Annotated[Path | None, "Picture of predictions by epsilon, .png."] = None,
    options: o.DataOptions,
) -> None:
    """Predict what an epsilon will find.

    Uses public vectors alone, and recommends a method.

    $ dpindex plan --public-sample public.npy --dim 384 --n 20000 --record --epsilon 8
    """
    from dpindex.base.display import require_matplotlib
    from dpindex.study.planner import plan as make_plan
    from dpindex.study.planner import plan_png

    if plot is not None:
        o.refuse_existing(plot)
        if plot.suffix != ".png":
            raise InputError(f"{plot} must end in .png.")
        require_matplotlib()
    terms = options.stated()
    labels = o.read_if_named(read_ids, groups)
    with (
        open_vectors(public_sample) as public,
        open_vectors(public_queries) if public_queries else nullcontext() as queries,
        o.progress_bar("simulating", quarters=True) as progress,
    ):
        deciding = []
        ranges = terms.pop("ranges")
        if ranges is not None:
            deciding = ranges.deciding(public)
            public = ranges.source(public)
            if queries is not None:
                queries = ranges.source(queries)
        outcome = make_plan(
            public,
            groups=labels,
            public_queries=queries,
            methods=o.parsed_list(methods, "--methods", str) or None,
            curves=plot is not None,
            progress=progress,
            **vars(target),
            **terms,
        )
    if ranges is not None:  # a promise counts in ranges, and not in the units of the data
        rows = [replace(row, spec=row.spec.with_ranges(ranges)) for row in outcome.rows]
        outcome = replace(outcome, rows=tuple(rows))
    commands = _commands(outcome, public_sample, options)
    if plot is not None:
        create_file(plot, plan_png(outcome))
    if as_json:
        o.print_json({**outcome.to_dict(), "commands": commands})
        return
    _print_plan(outcome)
    if plot is not None:
        typer.echo(f"Plot: {plot}")
    for line in outcome.remarks:
        typer.echo(f"Note: {line}")
    if deciding:
        columns = ", ".join(f"{name} ({share:.0%})" for name, share in deciding[:_DECIDING])
        if len(deciding) > _DECIDING:
            columns += f" and {len(deciding) - _DECIDING} more"
        typer.echo(f"Note: these columns decide which rows of the sample are near: {columns}.")
    typer.echo("To build and search it, with your own names of files:")
    for line in commands:
        typer.echo(f"  {line}")


def _commands(outcome: Plan, public_sample: str, options: o.DataOptions) -> list[str]:
    """Return the commands for a design or codebook of the sample, an index and an answer."""
    row = outcome.best
    spec = row.spec
    file = shlex.quote(public_sample)
    suffix = Path(public_sample).suffix.partition(":")[0]
    stated = replace(options, delta=spec.delta, norm=spec.norm)
    if outcome.narrowed:
        stated = replace(stated, bounds=spec.bounds, clip=True)
    clipped = ("bounds", "clip") if stated.clip else ()
    budget = f"--epsilon {spec.epsilon:.10g}"
    commands = []
    build = [f"dpindex build vectors{suffix} my-index --method {spec.method} {budget}"]
    build += stated.as_flags()
    if spec.is_designed:
        make = [f"dpindex design {file} public.design {budget} --code-length {spec.code_length}"]
        make += ["--signs"] * row.signs
        designed = replace(stated, beta=spec.change)
        make += designed.as_flags("beta", "scale", "delta", "ranges", *clipped)
        commands.append(" ".join(make))
        build.append("--design public.design")
    elif not spec.symbols:
        build.append(f"--code-length {spec.code_length}")
    else:
        size = spec.symbols
        is_clipped = spec.compared_limits is not None
        if size < outcome.sample_rows or is_clipped:
            made = "public.codebook" if row.centroids else "codebook.npy"
            make = [f"dpindex codebook {file} {made} --size {size}"]
            make += ["--centroids"] * row.centroids
            compared = ("ranges", "scale", *clipped) if is_clipped else ("ranges",)
            make += stated.as_flags(*compared)
            commands.append(" ".join(make))
            file = made
        build.append(f"--codebook {file}")
        if spec.subset is not None:
            build.append(f"--subset {spec.subset}")
        if spec.window is not None:
            build.append(f"--window {spec.window:g}")
    if outcome.metric != "cosine":
        build.append(f"--metric {outcome.metric}")
    if row.denoiser:
        build.append(f"--denoise {row.denoiser}")
    has_ids = _has_column_of_ids(public_sample)
    build += ["--id-column id"] * has_ids
    query = [f"dpindex query my-index queries{suffix} -k {outcome.at}"]
    if outcome.candidates > outcome.at:
        query.append(f"--candidates {outcome.candidates} --rerank vectors{suffix}")
        query += [f"--rerank-ids vectors{suffix}:id"] * has_ids
    if outcome.query != "exact":
        query.append(f"--query {outcome.query}")
    return [*commands, " ".join(build), " ".join(query)]


def _has_column_of_ids(public_sample: str) -> bool:
    """Whether a sample is a Parquet file with a column ``id``, as `dpindex embed` writes it."""
    try:
        return open_dataset(public_sample, id_column="id").parts[0].ids() is not None
    except InputError:
        return False


def _print_plan(outcome: Plan) -> None:
    """Print a line of at most 80 columns for each spec, and below it what is promised."""
    typer.echo(f"Predicted for {outcome.n} vectors")
    measures = outcome.measures
    typer.echo(f"{'':44}" + "".join(f"{measure.kind:>15}" for measure in measures))
    typer.echo(f"{'':42}" + "".join(f"{measure.terms:>17}" for measure in measures))
    columns = "".join(f"{'private':>9}{'exact':>6}" for _ in measures)
    typer.echo(f"{'method':22} {'k':12}{'denoiser':9}{columns}{'bytes':>6}")
    for row in (*outcome.rows[:_SHOWN], *outcome.contrast):
        code = f"{row.method:22} {row.size}"
        shares = ""
        for measure in measures:
            shares += f"{measure.of(row.private):9.2f}{measure.of(row.exact):6.2f}"
        typer.echo(f"{code:35}{row.denoiser or '–':9}{shares}{row.bytes_per_vector:6}")
    if any(row.centroids for row in outcome.rows):
        typer.echo("K: codewords that are public vectors; C: centroids of public vectors")
    typer.echo(f"under {outcome.best.guarantee}")
    for row in outcome.contrast:
        typer.echo(
            f"for contrast, {row.method}: {row.guarantee}, which is any two vectors of norm 1"
        )
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
    typer.echo(outcome.expected)
    _print_candidates(outcome)
    typer.echo("What it protects:")
    for line in outcome.protection:
        typer.echo(f"  - {line}")


def _print_candidates(outcome: Plan) -> None:
    """Print how recall grows with the candidates that the owner of the vectors orders."""
    best = outcome.best
    numbers = sorted({*outcome.shown_candidates, outcome.candidates})
    typer.echo(
        f"If the owner of the vectors puts the first R answers in order, recall@{outcome.at} is:"
    )
    rows = [("", *(f"{number / outcome.n:.2%}" for number in numbers))]
    for mode, found in (("private", best.private), ("exact", best.exact)):
        rows.append((mode, *(f"{found.recall_within(number):.2f}" for number in numbers)))
    typer.echo(o.table(["R", *map(str, numbers)], rows))


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
            book = ",record-codebook" if options.codebook else ""
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
    max_queries: Annotated[int | None, "Use the first so many queries only."] = None
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
        "Texts of --public-sample or --codebook: shows which one an attacker infers of a record.",
    ] = None
    public_sample: Annotated[
        str | None, "--public-sample FILE", "PUBLIC vectors, from which a panel of attacks learns."
    ] = None
    labels: Annotated[
        tuple[str, str] | None,
        "--labels FILE FILE",
        "Labels of the vectors, which attacks try to infer, and of --public-sample.",
    ] = None
    title: Annotated[str | None, "Heading of the page."] = None

    def check(self, codebook: Path | None) -> None:
        """Raise InputError for texts or labels without vectors."""
        if self.public_texts is not None and not (self.public_sample or codebook):
            raise InputError(
                "--public-texts needs the vectors of these texts: --public-sample FILE."
            )
        if self.labels is not None and self.public_sample is None:
            raise InputError("--labels needs --public-sample: attacks learn from public labels.")
        if self.public_sample is not None:  # now: what is measured first takes minutes
            with open_vectors(self.public_sample) as public:
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

        public = self.public_sample
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
            if self.public_sample is not None:
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

    The report is one page that works offline, with a slider if there are several epsilons. It
    shows the vectors themselves: send around reports of public vectors only. Finished runs are
    kept: run again to resume.

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
        _print_curve(curve)
    o.say(f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser.")


def _print_curve(curve: Curve) -> None:
    """Print what is found in each query mode, also among candidates, and what codes reveal."""
    from dpindex.study.curve import recall_within

    levels = curve.candidates[1:]
    tables: list[tuple[str, QueryMode, dict[str, str]]] = [
        (
            f"{mode} queries: {curve.full_name('recall@10')}, {curve.full_name('precision@10')},\n"
            "and recall@10 after the owner of the vectors orders R candidates",
            mode,
            {
                "recall": "recall@10",
                "precision": "precision@10",
                **{f"R={level}": recall_within(level) for level in levels},
            },
        )
        for mode in curve.query_modes
    ]
    known = {"recognised": "linked", "cosine": "reconstruction_cosine"}
    title = f"known vectors that pick out their code among {curve.base[1]},\n"
    title += "and cosine of reconstructed vectors to the originals"
    tables.append((title, curve.query_modes[0], known))
    typer.echo(curve.adjacency)
    for title, mode, columns in tables:
        rows = []
        for name, line in curve.series(mode).items():
            for point in line:
                epsilon = "–" if point.spec.epsilon is None else f"{point.spec.epsilon:g}"
                values = (point.mean[measure] for measure in columns.values())
                rows.append((name, epsilon, *(f"{value:.2f}" for value in values)))
        typer.echo(f"\n{title}\n{o.table(['', 'ε', *columns], rows)}")


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
    _print_curve(result.curve)
    typer.echo(
        f"\nTen nearest answers to private queries at {result.spec.guarantee}: "
        f"{result.same_digit:.0%} show the digit asked for.\n"
        f"Index:   {result.index}   (try: dpindex info {result.index})\n"
        f"Report:  {result.report}   drag epsilon in a browser: what is found, what comes back"
    )

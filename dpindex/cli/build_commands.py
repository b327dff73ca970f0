"""Commands that lead to an index: embed, codebook, design, build.

`dpindex build` comes by its method as stated, from a saved plan, or from one made now.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dpindex.base.display import counted
from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import flag_of, options_of
from dpindex.cli import shared as o
from dpindex.data import Ranges, open_dataset, open_vectors
from dpindex.data.dataset import Dataset
from dpindex.data.source import split_key
from dpindex.data.stores import is_url

if TYPE_CHECKING:  # what plans is not loaded for a build without a plan
    from dpindex.storage.targets import BuiltIndex
    from dpindex.study.plan_result import SavedPlan


def embed(
    texts: Annotated[
        Path,
        typer.Argument(help="File or folder: .parquet, .csv, .tsv, .jsonl, .arrow (datasets)."),
    ],
    *,
    model: Annotated[
        str | None, "Folder or name of model2vec.  [default: an English model in dpindex]"
    ] = None,
    column: Annotated[str, "Column of the texts."] = "text",
    public: Annotated[int, "--public ROWS", "Rows to hold out as the public sample."] = 0,
    queries: Annotated[int, "--queries ROWS", "Rows to hold out as queries."] = 0,
    to: Annotated[Path, "--to FOLDER", "Folder to write to."] = Path(),
) -> None:
    """Turn texts into Parquet files of vectors.

    Ids and other columns are kept; texts are left out. Rows are held out at random.

    $ dpindex embed texts.csv --public 1000 --queries 20
    """
    from dpindex.integrations.embed import embed as embed_texts

    counts = embed_texts(texts, to, model=model, column=column, public=public, queries=queries)
    for file, count in counts.items():
        o.say(f"{file}: {counted(count, 'vector')}")


def codebook(
    public: Annotated[str, typer.Argument(help="PUBLIC vectors of the same kind.")],
    output: Annotated[Path, typer.Argument(help="File to write, .codebook or .npy.")],
    *,
    size: Annotated[int, "Codewords."],
    centroids: Annotated[bool, "Centroids of all vectors, not evenly spaced ones."] = False,
    compared: o.ComparedOptions,
) -> None:
    """Make a codebook file from public vectors, for --codebook.

    If more codewords than vectors are wanted, the rest are points between near neighbours.

    A .codebook of centroids also holds how neighbours spread over them. A search for a share of
    --candidates then gives more to hard queries. A .npy holds the codewords only.

    $ dpindex codebook public.npy public.codebook --size 200 --centroids
    """
    from dpindex.mechanism.codebooks import Codebook, fit_codebook

    if output.suffix not in (".npy", Codebook.suffix):
        raise InputError(f"{output} must end in {Codebook.suffix} or .npy.")
    o.refuse_existing(output)
    with open_vectors(public) as source:
        vectors = compared.compared(source)
        if centroids or size > source.shape[0]:
            book = fit_codebook(vectors, size)
        else:
            book = Codebook.spaced(vectors, size)
        if compared.ranges is not None:
            book = Codebook(Ranges.read(compared.ranges).unscale(book.stated), book.guide)
    content = book.to_bytes()
    if output.suffix == ".npy":
        archive = BytesIO()
        np.save(archive, book.stated)
        content = archive.getvalue()
    create_file(output, content)
    o.say(f"{output}: {len(book)} codewords of {book.dim} attributes, {book.digest[:12]}….")


def design(
    public: Annotated[str, typer.Argument(help="PUBLIC vectors of the same kind.")],
    output: Annotated[Path, typer.Argument(help="File to write.")],
    *,
    epsilon: Annotated[float, "Budget of one changed attribute."],
    beta: Annotated[float, "Size of that change, after --scale."],
    code_length: Annotated[int | None, "Coordinates.  [default: by epsilon]"] = None,
    delta: Annotated[float, "For Gaussian noise."] = 0.0,
    signs: Annotated[bool, "For codes of bits."] = False,
    window: Annotated[
        float | None,
        "Clip attributes to this many deviations around their mean; 0: do not.  [default: chosen "
        "on the public vectors]",
    ] = None,
    seed: Annotated[int, "Seed of the search."] = 0,
    compared: o.ComparedOptions,
) -> None:
    """Make a projection of public vectors, for --design.

    Adds up attributes that vary together, so the same noise hides less of what vectors have in
    common. A few hundred vectors are enough; some thousand are better.

    $ dpindex design public.npy public.design --epsilon 1 --beta 1 --scale 255
    """
    from dpindex.mechanism.optimiser import design as designed

    o.refuse_existing(output)
    with open_vectors(public) as source:
        made = designed(
            compared.compared(source),
            epsilon=epsilon,
            beta=beta,
            code_length=code_length,
            delta=delta,
            signs=signs,
            scale=compared.scale,
            window=window,
            seed=seed,
        )
    create_file(output, made.to_bytes())
    o.say(f"{output}: {made.dim} attributes to {made.code_length}, {made.digest[:12]}….")


def build(
    vectors: Annotated[
        str,
        typer.Argument(help="Vector file, folder or s3:// prefix of .parquet."),
        o.Takes(("vectors",)),
    ],
    index: Annotated[
        str,
        typer.Argument(help="Directory, .parquet, or s3://, gs:// or az:// prefix, to make."),
    ],
    *,
    public: Annotated[
        str | None,
        "--public FILE",
        "PUBLIC vectors to plan with; else --plan or --method.",
    ] = None,
    plan: Annotated[Path | None, "Or: file of `dpindex plan --save`."] = None,
    method: o.MethodOptions,
    options: o.SpecOptions,
    release: o.CodeReleaseOptions,
    payload: o.PayloadOptions,
    metric: o.MetricOption = "cosine",
    index_type: Annotated[str, "f32, f16, int8, SQ4, HNSW32, …"] = "f32",
    denoise: o.FitDenoiser = None,
    query_epsilon: Annotated[float | None, "Budget of private queries.  [default: epsilon]"] = None,
    id_column: Annotated[str | None, "--id-column NAME", "Column of ids in .parquet files."] = None,
    dask: Annotated[
        str | None, "--dask ADDRESS", "Run on that Dask cluster; local: all cores here."
    ] = None,
    private: Annotated[
        Path | None,
        "--private FOLDER",
        "Folder of an unfinished build, for object stores.",
    ] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Plan and build an index; run again to resume.

    $ dpindex build vectors.parquet my-index --record --epsilon 8 --public public.parquet
    """
    from dpindex.integrations.publication import table_at
    from dpindex.storage.manifest import Settings
    from dpindex.storage.statement import coverage_warning
    from dpindex.storage.targets import IndexOptions, build_index

    if id_column is not None and release.ids is not None:
        raise InputError("give --ids or --id-column, not both.")
    id_column = id_column or release.id_column(vectors)
    ids = None if id_column is not None else release.read_ids()
    terms = release.terms()
    check_choice(method, options, public, plan)
    unfinished = Unfinished.of(index, private)
    columns = payload.within(vectors)
    with ExitStack() as stack:
        opened = stack.enter_context(
            open_dataset(
                vectors, id_column=id_column, payload_columns=columns, in_process=dask is None
            )
        )
        table = None if columns else payload.read(vectors)
        dataset = opened.with_labels(ids, table)
        planned = None
        if public is not None:
            planned = plan_of(
                dataset,
                public,
                method.epsilon,
                metric,
                options,
                unfinished,
                skip_leak_check=release.skip_leak_check,
            )
            stack.enter_context(unfinished.kept())
        elif plan is not None:
            from dpindex.study.plan_result import SavedPlan

            planned = SavedPlan.read(plan)
        if planned is None:
            spec = method.spec(dataset.columns, options)
        else:
            spec = planned.spec
            metric = planned.metric
            denoise = denoise or planned.denoiser
            o.say(planned.choice)
        o.note_warnings(spec, dataset.rows)
        o.announce_size(dataset.rows, spec.format)
        publish = table_at(index, dataset)
        where = {} if dask is None else _on_dask(stack, dask)
        report = stack.enter_context(o.progress_bar("building"))
        outcome = build_index(
            dataset,
            index,
            Settings(spec, metric, index_type, query_epsilon),
            IndexOptions(denoise, allow_unprotected, private, publish),
            terms,
            progress=report,
            **where,
        )
    held = counted(outcome.rows, "vector")
    o.say(f"{index}: {held} ({outcome.drawn} privatized now).")
    o.tell_clipped(outcome.clipped)
    _tell_denoised(outcome.published)
    typer.echo(f"{spec.guarantee}.")
    o.warn_of_payload(payload.payload or payload.payload_columns)
    if ids is not None or terms.allow_rerelease:
        o.print_totals(terms.ledger, ids)
    if uncovered := coverage_warning(outcome.published.manifest.crowding):
        o.note(uncovered.removesuffix("."))
    if publish is None:
        o.say(f"What this protects and what it does not: dpindex info {shlex.quote(index)}")
    if planned is not None:
        names = release.ids
        if names is None and id_column is not None:
            file, _ = split_key(vectors)  # which may name the column of the vectors
            names = f"{file}:{id_column}"
        o.say(f"Search it: {query_line(planned, index, vectors, names)}")


def _on_dask(stack: ExitStack, address: str) -> dict[str, Any]:
    """Return how a build runs on the cluster at an address, which is let go of with the stack."""
    from dpindex.integrations.dask import connected, engine

    client = stack.enter_context(connected(None if address == "local" else address))
    return {"engine": engine(client), "threads": 1}


def _tell_denoised(built: BuiltIndex) -> None:
    if built.denoiser is not None:
        typer.echo(f"Denoised: {built.denoiser.kind}, learned from {built.denoiser.rows} codes.")
    if built.not_denoised:
        typer.echo(f"not denoised: {built.not_denoised}", err=True)


@dataclass(frozen=True)
class Unfinished:
    """Where the plan of a build lies while the build is unfinished.

    A plan that is made anew may choose otherwise, and only the same spec can finish a build.

    Attributes
    ----------
    file : Path
    begun : Path
        Exists from the moment when the build has begun until it is published.
    """

    file: Path
    begun: Path

    @classmethod
    def of(cls, index: str, private: Path | None) -> Unfinished:
        """Return the place for an index, or beside the private folder of a build."""
        from dpindex.storage.journal import RELEASE_MARK, unpublished_path

        if private is not None:
            return cls(private.with_name(f"{private.name}.plan"), private / RELEASE_MARK)
        if is_url(index):
            raise InputError(
                f"{index} is in an object store: name a private folder for what must not be "
                f"published while the build is unfinished.",
                field="private",
            )
        place = Path(index).resolve()
        return cls(place.with_name(f"{place.name}.plan"), unpublished_path(place) / RELEASE_MARK)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Run a build; afterwards the plan is kept only if the build is unfinished."""
        try:
            yield
        finally:
            if not self.begun.exists():
                self.file.unlink(missing_ok=True)

    def planned(self, stated: dict[str, str]) -> SavedPlan | None:
        """Return the plan of an unfinished build, if there is one.

        Raises
        ------
        InputError
            If it was begun with other options.
        """
        if not self.begun.exists():
            self.file.unlink(missing_ok=True)  # of a build that was killed before it began
        if not self.file.exists():
            return None
        from dpindex.study.plan_result import SavedPlan

        kept = SavedPlan.read(self.file)
        for name, value in stated.items():
            if kept.stated.get(name) != value:
                raise InputError(
                    f"the unfinished build was begun with another {name} "
                    f"({kept.stated.get(name)}); finish it with the same options, or choose "
                    f"another place."
                )
        return kept


def check_choice(
    method: o.MethodOptions, options: o.SpecOptions, public: str | None, saved: Path | None
) -> None:
    """Refuse a build whose method is stated twice or not at all.

    Raises
    ------
    InputError
        Also for options that a plan chooses.
    """
    if sum(choice is not None for choice in (method.method, public, saved)) != 1:
        raise InputError(
            "give one of --public, --plan and --method: with --public, a file of public vectors of "
            "the same kind, a plan chooses the method; `dpindex methods` lists them."
        )
    if method.method is not None:
        return
    stated = {"method"} | ({"epsilon"} | _DATA if saved is None else set())
    values = {**vars(method), **vars(options)}
    for name, option in {**options_of(o.MethodOptions), **options_of(o.SpecOptions)}.items():
        if name not in stated and values[name] != option.default:
            raise InputError(f"the plan chooses {flag_of(option)}; leave it out, or give --method.")


_DATA = {field.name for field in fields(o.DataOptions)}


def plan_of(
    dataset: Dataset, public: str, epsilon: float | None, metric: str, options: o.SpecOptions,
    place: Unfinished, *, skip_leak_check: bool = False,
) -> SavedPlan:  # fmt: skip
    """Return the plan for a dataset from public vectors, and keep it in a file.

    Raises
    ------
    InputError
        For public vectors of other columns, and what a plan refuses.
    """
    from dpindex.study.goal import LEAST_ROWS
    from dpindex.study.planner import plan

    if dataset.rows < LEAST_ROWS:
        raise InputError(
            f"{dataset.name} has {dataset.rows} vectors, and a plan is for {LEAST_ROWS} or more; "
            f"name a method instead (`dpindex methods` lists them).",
            field="method",
        )
    if epsilon is None:
        raise InputError("state the budget of one code, such as --epsilon 8.")
    data = o.DataOptions(**{name: getattr(options, name) for name in _DATA})
    terms = {**data.stated(), "epsilon": epsilon, "metric": metric}
    stated = {name: str(value) for name, value in terms.items()}
    kept = place.planned(stated)
    if kept is not None:
        return kept
    with open_vectors(public) as sample, o.progress_bar("planning", quarters=True) as report:
        if sample.shape[1] != dataset.columns:
            raise InputError(
                f"{sample.name} has {sample.shape[1]} columns, and {dataset.name} "
                f"{dataset.columns}; name public vectors of the same kind."
            )
        made = plan(
            sample, n=dataset.rows, progress=report, skip_leak_check=skip_leak_check, **terms
        )
    planned = made.saved(**stated)
    create_file(place.file, planned.to_bytes())
    return planned


def query_line(planned: SavedPlan, index: str, vectors: str, ids: str | None) -> str:
    """Return the command that searches an index as its plan assumes."""
    words = ["dpindex", "query", index, "QUERIES", "-k", str(planned.at), "--query", planned.query]
    if planned.candidates != planned.at:
        words += ["--candidates", str(planned.candidates), "--rerank", vectors]
        if ids is not None:
            words += ["--rerank-ids", ids]
    return shlex.join(words)

"""How `dpindex build` comes by its method: as stated, from a saved plan, or from one made now."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import flag_of, options_of
from dpindex.cli import shared as o
from dpindex.data import open_vectors
from dpindex.data.dataset import Dataset
from dpindex.data.stores import is_url
from dpindex.storage.journal import RELEASE_MARK, unpublished_path

if TYPE_CHECKING:  # what plans is not loaded for a build without a plan
    from dpindex.study.saved_plan import SavedPlan


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
        from dpindex.study.saved_plan import SavedPlan

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
    from dpindex.study.planner import plan
    from dpindex.study.target import LEAST_ROWS

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
    planned = made.saved(stated)
    create_file(place.file, planned.to_bytes())
    return planned


def query_line(planned: SavedPlan, index: str, vectors: str, ids: str | None) -> str:
    """Return the command that searches an index as its plan assumes."""
    words = ["dpindex", "query", index, "QUERIES", "-k", str(planned.at), "--query", planned.query]
    if planned.candidates > planned.at:
        words += ["--candidates", planned.share or str(planned.candidates), "--rerank", vectors]
        if ids is not None:
            words += ["--rerank-ids", ids]
    return shlex.join(words)

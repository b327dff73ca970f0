"""Plans that hide the whole record: cap codes, codebooks and, for contrast, Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.method_table import Method
from dpindex.mechanism.parameters import Codebook
from dpindex.mechanism.spec import Spec
from dpindex.privacy import l2, record
from dpindex.study.exposure import Exposure, Prior, predicted_exposure
from dpindex.study.planner.neighbourhood import (
    MAX_EPSILON,
    Neighbourhood,
    Request,
    Stage,
    methods_to_try,
    require_method,
)
from dpindex.study.planner.plan_result import Row, best_by_method, nearby
from dpindex.study.planner.public_sample import Facts, Sample, in_groups
from dpindex.study.planner.record_model import RecordModel, promising_subsets
from dpindex.study.planner.simulated_attack import rebuilt

__all__ = ["RecordNeighbourhood"]

# Radius 2 holds any two vectors of norm 1, so the epsilon of this method is comparable there.
_CONTRAST = "raw-gaussian"
_MAX_CODEBOOK = 1 << 16
_MIN_CODEWORDS = 64
_MIN_EPSILON = 0.5
_STEPS = 8
_MAX_CENTROIDS = 1000
_COMPARED = 4000


class _Effort(NamedTuple):
    """Numbers of specs of a method that are tried.

    Attributes
    ----------
    lengths : tuple of int
        Code lengths of methods without a codebook.
    shares : tuple of int
        Vectors of the sample for each codeword.
    centroid_shares : tuple of int
        Vectors of the sample for each centroid.
    subsets : int
        Most subset sizes for a codebook, the largest ones.
    """

    lengths: tuple[int, ...]
    shares: tuple[int, ...]
    centroid_shares: tuple[int, ...]
    subsets: int


_EVERY = _Effort((64, 128, 256, 512), (1, 4), (8, 13, 20), subsets=7)
_QUICK = _Effort((128,), (1, 4), (13,), subsets=2)


class RecordNeighbourhood(Neighbourhood):
    """A model of whole records, in which a share of the sample is the neighbourhood of a query."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        options = request.options
        if isinstance(request.public, Facts):
            sample = Sample.ungrouped(request.public.sample(options.dim))
            self.sample_rows = len(sample.vectors)
        else:
            sample = request.sample(request.public, _MAX_CODEBOOK)
            self.sample_rows = request.public.shape[0]
            self.sample_in_groups = not sample.is_grouped and in_groups(sample.vectors)
        self._sample = sample.vectors
        self._delta = request.terms["delta"]
        self._methods = self._admitted()
        self._model = RecordModel(sample, options.n)

    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        return tuple(self._predicted(self._specs(epsilon, _EVERY)))

    def quick_best(self, epsilon: float) -> Row:
        return self._predicted(self._specs(epsilon, _QUICK))[0]

    def stages(self) -> tuple[Stage, ...]:
        def row_at(epsilon: float, best: Row) -> Row:
            return self.quick_best(epsilon)

        return (Stage(row_at, MAX_EPSILON / _MIN_EPSILON, _STEPS),)

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        if not self._delta > 0:
            return ()
        options = self._request.options
        with suppress(NoGuaranteeError):  # noise that no code can hold
            spec = Spec(
                _CONTRAST, options.dim, epsilon=epsilon, delta=self._delta, adjacency=l2(2.0)
            )
            return (self._model.predict(spec, options),)
        return ()

    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        planned = rows[0].spec.budget
        lines: dict[str, list[Row]] = {}
        for epsilon in nearby(planned):
            rows_there = rows
            if epsilon != planned:
                rows_there = self._predicted(self._specs(epsilon, _QUICK))
            for row in best_by_method(rows_there):
                lines.setdefault(row.method, []).append(row)
        return tuple(tuple(line) for line in lines.values())

    def exposure(self, spec: Spec) -> Exposure:
        prior = Prior.of_sample(self._sample[:_COMPARED], spec)
        predicted = predicted_exposure(spec, self._request.options.n, prior)
        return rebuilt(
            spec, self._sample[::3], np.delete(self._sample, np.s_[::3], axis=0), None, predicted
        )

    def _admitted(self) -> list[Method]:
        """Return the methods that hide any two vectors; note why others do not."""
        names = self._request.methods
        contrasted = {_CONTRAST} if self._delta > 0 else set()
        admitted = []
        refused = []
        for method in methods_to_try(names):
            if "record" not in method.adjacencies:
                if names is not None and method.name not in contrasted:
                    refused.append(f"{method.name} has no guarantee under {record()}.")
            elif method.family.codebook and isinstance(self._request.public, Facts):
                refused.append(f"{method.name} needs a public sample: facts hold no codewords.")
            else:
                admitted.append(method)
        require_method(admitted, refused)
        self.refused = tuple(refused)
        return admitted

    def _specs(self, epsilon: float, effort: _Effort) -> list[Spec]:
        """Return the specs to try at an epsilon whose codes fit."""
        dim = self._request.options.dim
        specs = []
        for method in self._methods:
            if method.family.codebook:
                specs += self._codebook_specs(method.name, epsilon, effort)
                continue
            for k in effort.lengths:
                specs.append(Spec(method.name, dim, k, epsilon=epsilon, adjacency=record()))
        return [spec for spec in specs if self._request.fits(spec.format.max_row_bytes)]

    def _codebook_specs(self, name: str, epsilon: float, effort: _Effort) -> list[Spec]:
        """Return specs with codebooks of vectors of the sample, and of its centroids."""
        dim = self._request.options.dim
        reranked = self._request.candidates > self._request.options.at
        specs = []
        for book in self._codebooks(effort):
            for subset in promising_subsets(len(book), epsilon, reranked)[-effort.subsets :]:
                spec = Spec(
                    name, dim, epsilon=epsilon, adjacency=record(), codebook=book, subset=subset
                )
                specs.append(spec)
        return specs

    def _codebooks(self, effort: _Effort) -> Iterator[Codebook]:
        """Yield the codebooks to try, the largest of each kind first."""
        rows = len(self._sample)
        for share in effort.shares:
            yield self._model.codebook(max(_MIN_CODEWORDS, rows // share))
        for share in effort.centroid_shares:
            size = rows // share
            if _MIN_CODEWORDS <= size <= _MAX_CENTROIDS:
                yield self._model.centroids(size)

    def _predicted(self, specs: Sequence[Spec]) -> list[Row]:
        """Return a row for each spec, best first."""
        request = self._request
        if not specs:
            raise request.none_fits()
        rows = []
        for done, spec in enumerate(specs):
            request.progress(done, len(specs), f"{spec.method}, ε = {spec.budget:.3g}")
            rows.append(self._model.predict(spec, request.options))
        return request.ranked(rows)

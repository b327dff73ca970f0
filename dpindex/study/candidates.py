"""Specs that a plan compares: methods, code lengths, and public parts made of the sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from dpindex.base.arrays import issparse, spaced
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.data import VectorSource, as_source
from dpindex.mechanism.codebooks import MAX_SIZE, Codebook, fit_codebook
from dpindex.mechanism.method import Method
from dpindex.mechanism.method_table import OF_PAPERS, find_method
from dpindex.mechanism.method_table import methods as all_methods
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.optimiser import (
    MAX_STEPS,
    KnownVectors,
    best_window,
    design_of,
    known_vectors,
    noise_variance,
    usual_length,
)
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record, l2
from dpindex.study.goal import MAX_DENSE_DIM, Goal
from dpindex.study.sample import Sample
from dpindex.study.specs import spec_grid

# Bounds of methods without windows are narrowed to the middle of the sample's values, where these
# lie within such a share of a change, up to an epsilon beyond which noise costs less than clipping.
_MIDDLE = (0.125, 0.875)
_NARROW = 0.4
_NARROW_UP_TO = 8.0
# Code lengths that are tried.
_WIDE_LENGTHS = {256, 512, 1024}
_RECORD_LENGTHS = {64, 128, 256, 512}
_MIN_BINS = 8
# Attributes of which each gets a sign of its own in a design.
_MOST_SIGNS = 1024
# Steps of the search for a design that is only tried.
_TRIED_STEPS = 12
# Codewords of a softmax codebook, at most, and windows, in deviations to either side.
_SOFTMAX_CODEWORDS = 1 << 12
# Codewords for each of them, where points between near vectors are codewords too.
_GROWN = 4
# Codewords are grown where the likeliest has such a chance, on average over some that play vectors:
# of sentences at epsilon 1 it has .8, where .03 more is found, and .65 at .5, where none is.
_LIKELIEST = 0.75
_ROLES = 256
_WINDOWS = (None, 1.4, 1.0, 0.7, 0.3)
# Vectors of the sample for each codeword, and for each centroid.
_VECTORS_PER_CODEWORD = (1, 4)
_VECTORS_PER_CENTROID = (8, 20)
_MAX_CENTROIDS = 1000
# Centroids for each time that the candidates go into the collection: cells of about as many records
# as are asked for are best at small epsilons, and a report is then of the nearest centroid alone.
_CELLS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5)
_MIN_CELLS = 10
_SUBSETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
# Radius 2 holds any two vectors of norm 1, so the epsilon of this method is comparable there.
_CONTRAST = "raw-gaussian"


class SpecsToTry:
    """Specs to try under the terms of a plan, with public parts that are made of a sample.

    Parameters
    ----------
    goal : Goal
    terms : dict
        Fields of :class:`dpindex.Spec` that the plan's user stated.
    source : VectorSource
        All public vectors as they are compared, of which published parts are made.
    sample : Sample
        Some of them, on which specs are tried.

    Attributes
    ----------
    refused : list of str
        One sentence for each method or code length without a guarantee under these terms, or with
        too much noise for any code.

    Raises
    ------
    InputError
        For terms that mean nothing where whole records are hidden.
    """

    def __init__(
        self, goal: Goal, terms: dict[str, Any], source: VectorSource, sample: Sample
    ) -> None:
        if isinstance(goal.adjacency, Record):
            defaults = {field.name: field.default for field in fields(Spec)}
            changed = [name for name in terms if name != "delta" and terms[name] != defaults[name]]
            if changed:
                raise InputError(
                    f"record-level methods take any vectors, of which the direction counts: leave "
                    f"{', '.join(sorted(changed))} out."
                )
        self._goal = goal
        self._reranked = goal.counted_candidates > goal.at
        self._terms = {**terms, "adjacency": goal.adjacency}
        if sample.at_norm_1 and terms["scale"] == 1 and not isinstance(goal.adjacency, Record):
            self._terms["norm"] = terms["norm"] or 1.0
        self._source = source
        self._sample = sample
        self._narrow = self._narrow_bounds()
        self._design = cache(self._new_design)
        self._known = lru_cache(maxsize=2)(self._new_known)  # of numbers, and of signs
        self.grown = cache(self._new_grown)
        self._window_of: dict[float, float] = {}  # by the variance of noise
        self.refused: list[str] = []

    def _narrow_bounds(self) -> dict[str, Any]:
        """Return terms that clip to the middle of the sample's values, if that is worth much.

        A change is no wider than the bounds, and noise is as wide as a change, while the order of
        cosines hardly depends on the size of large values (binary embeddings keep signs alone).
        """
        adjacency = self._goal.adjacency
        stated = self._terms["clip"] or self._terms["variant"].min_norm is not None
        if stated or issparse(self._sample.vectors) or not isinstance(adjacency, Attribute):
            return {}
        middle = np.quantile(self._sample.vectors, _MIDDLE) / self._terms["scale"]
        lower, upper = (float(f"{bound:.2g}") for bound in middle)
        width = upper - lower
        if not 0 < width < _NARROW * adjacency.largest_change(self._terms["bounds"]):
            return {}
        return {"bounds": (lower, upper), "clip": True, "norm": None}

    def _terms_at(self, method: Method, epsilon: float) -> dict[str, Any]:
        if epsilon > _NARROW_UP_TO or method.family.public is not None:
            return self._terms
        return {**self._terms, **self._narrow}

    def specs(self, epsilon: float) -> list[Spec]:
        """Return the specs to try at an epsilon, and note in :attr:`refused` why others are not.

        Methods that are not named must give DP for the published projection.

        Raises
        ------
        InputError
            If no method is left.
        """
        named = self._goal.methods is not None
        specs: list[Spec] = []
        refused: list[str] = []
        for method in _methods_to_try(self._goal.methods):
            if not named and method.definition != "DP":
                continue
            obstacle = self._obstacle(method)
            if obstacle is not None:
                refused.append(f"{method.name} {obstacle}")
                continue
            try:
                parts = list(self._public_parts(method, epsilon))
            except InputError as error:
                refused.append(f"{method.name}: {error}")
                continue
            terms = self._terms_at(method, epsilon)
            grid_of = partial(spec_grid, self._goal.dim, [method.name], [epsilon], **terms)
            for part in parts:
                grid = grid_of(**part)
                if grid.specs and not part:
                    lengths = _lengths(grid.specs[0], self._goal.max_bytes)
                    grid = grid_of(ks=lengths)
                over = any(spec.guarantee.delta_over == "projection" for spec in grid.specs)
                if over and not named:
                    continue
                specs += grid.specs
                refused += grid.refused
        if not specs:
            reason = f": {refused[0]}" if refused else "."
            raise InputError(f"no method has a guarantee under these terms{reason}")
        self.refused = refused
        return specs

    def _obstacle(self, method: Method) -> str | None:
        """Return why a method is not tried at all, or None."""
        goal = self._goal
        if goal.adjacency.kind not in method.adjacencies:
            return f"has no guarantee under {goal.adjacency}."
        if method.needs_delta and not self._terms["delta"] > 0:
            return "needs a delta above 0."
        if self._terms["record_epsilon"] is not None and not method.calibration.joint:
            return "makes one promise."
        if goal.metric not in method.calibration.format.metrics:
            return f"has no codes that are ranked by {goal.metric}."
        variant = method.family.variant
        if type(self._terms["variant"]) is type(variant):
            variant = self._terms["variant"]
        if goal.dim > MAX_DENSE_DIM and not (method.family.bins or variant.for_any_dim):
            return f"is not planned above {MAX_DENSE_DIM} attributes."
        return None

    def _public_parts(self, method: Method, epsilon: float) -> Iterator[dict[str, Any]]:
        """Yield the fields that hold a public part; none for a method that needs no part.

        Raises
        ------
        InputError
            For a sample that no such part can be made of.
        """
        if method.family.public is None:
            yield {}
        elif method.family.public is Design:
            first = self._design_lengths(method, epsilon)[0]
            yield {"design": self._design(method, first, epsilon)}
        elif method.family.subset:
            for book, subset in self._books(epsilon):
                yield {"codebook": book, "subset": subset}
        else:
            size = min(len(self._sample), _SOFTMAX_CODEWORDS)
            for window in self._windows():
                yield {"codebook": self._sample.book_of_vectors(size), "window": window}
            if self._terms["record_epsilon"] is not None:
                for size in self._cells():
                    yield {"codebook": self._sample.book_of_centroids(size)}

    def _windows(self) -> tuple[float | None, ...]:
        """Return the windows to try for one attribute; a ball has none."""
        return _WINDOWS if isinstance(self._goal.adjacency, Attribute) else (None,)

    def _design_lengths(self, method: Method, epsilon: float) -> list[int]:
        """Return lengths of a design, as far as bytes allow, in the order in which they are tried.

        That is the usual one, as numbers of twice as much find as much. Of signs it is one of each
        attribute, which may find most where others find little, then the usual one and twice that.
        """
        goal = self._goal
        usual = usual_length(epsilon, goal.dim)
        lengths = [usual]
        if method.calibration.format.are_signs:
            lengths.append(min(2 * usual, goal.dim))
            if goal.dim <= _MOST_SIGNS:
                lengths.insert(0, goal.dim)
        if goal.max_bytes is not None:
            bits = min(method.calibration.format.coordinate_bits)
            longest = 8 * goal.max_bytes // bits
            lengths = [min(k, longest) for k in lengths if longest > 0]
        return list(dict.fromkeys(lengths))

    def beside(self, spec: Spec) -> list[Spec]:
        """Return the spec with a design of the length that is tried next, if there is one."""
        if not spec.is_designed:
            return []
        method = spec.method_row
        lengths = self._design_lengths(method, spec.budget)
        following = lengths[1 + lengths.index(spec.code_length) :][:1]
        designs = [self._design(method, k, spec.budget) for k in following]
        return [replace(spec, design=made, k=None) for made in designs]

    def _new_grown(self, spec: Spec) -> Spec | None:
        """Return the spec with points between near codewords, where these are vectors; or None.

        None is returned, too, where codewords are seldom those of the highest score: it is noise
        then that limits what is found, and not how many codewords there are.
        """
        if not spec.method_row.family.windows or self._sample.has_centroids(spec):
            return None
        size = spec.codewords.size
        chances = SymbolLaw.of(spec.law).of_codewords(spaced(size, _ROLES))
        if chances.max(axis=1).mean() < _LIKELIEST:
            return None
        with suppress(InputError):  # few vectors of different directions
            return replace(spec, codebook=self._sample.grown_book(size, _GROWN * size))
        return None

    def _new_design(self, method: Method, k: int, epsilon: float, whole: bool = False) -> Design:
        """Return a design of a part of the sample, or of all public vectors."""
        terms = self._terms
        signs = method.calibration.format.are_signs
        delta = terms["delta"] if method.needs_delta else 0.0
        # The window of numbers recovers within a hundredth of the most that signs can, too.
        noise = noise_variance(epsilon, delta, signs=False)
        if noise not in self._window_of:
            length = usual_length(epsilon, self._goal.dim)
            public = self._designed_for(signs, whole)
            self._window_of[noise] = best_window(public, terms["scale"], self._beta, length, noise)
        # All vectors are looked at once, and those that are tried for each length.
        known = (self._new_known if whole else self._known)(signs, self._window_of[noise], whole)
        steps = MAX_STEPS if whole else _TRIED_STEPS
        return design_of(known, epsilon, k, delta, signs, steps=steps)

    @property
    def _beta(self) -> float:
        return self._goal.adjacency.largest_change(self._terms["bounds"])

    def _designed_for(self, signs: bool, whole: bool) -> VectorSource:
        """Return the vectors that designs are made of, as they are compared."""
        if whole:
            public = self._source
        else:
            public = as_source(self._sample.compared if signs else self._sample.fitted)
        if self._terms["clip"]:
            low, high = self._terms["bounds"]
            scale = self._terms["scale"]
            public = public.clipped(low * scale, high * scale)
        return public

    def _new_known(self, signs: bool, window: float, whole: bool) -> KnownVectors:
        public = self._designed_for(signs, whole)
        return known_vectors(public, self._terms["scale"], self._beta, window, signs)

    def _books(self, epsilon: float) -> Iterator[tuple[Codebook, int]]:
        """Yield codebooks and sizes of sets of nearest codewords, the largest codebooks first."""
        rows = len(self._sample)
        for share in _VECTORS_PER_CODEWORD:
            book = self._sample.book_of_vectors(min(rows // share, MAX_SIZE))
            for subset in promising_subsets(len(book), epsilon, self._reranked):
                yield book, subset
        few = {rows // share for share in _VECTORS_PER_CENTROID}
        for size in self._cells(few):
            book = self._sample.book_of_centroids(size)
            subsets = {1}
            if size in few:
                subsets.update(promising_subsets(size, epsilon, self._reranked))
            for subset in sorted(subsets, reverse=True):
                yield book, subset

    def _cells(self, others: Iterable[int] = ()) -> list[int]:
        """Return numbers of centroids, the largest first, that leave enough vectors for each."""
        goal = self._goal
        share = goal.n // goal.counted_candidates
        sizes = {max(_MIN_CELLS, round(times * share)) for times in _CELLS}
        sizes |= {*others}
        most = len(self._sample) // min(_VECTORS_PER_CENTROID)
        fitting = [size for size in sizes if size <= min(most, _MAX_CENTROIDS)]
        return sorted(fitting, reverse=True)

    def like(self, spec: Spec, epsilon: float) -> list[Spec]:
        """Return specs of the same method and length at another epsilon; none if none is sound."""
        with suppress(NoGuaranteeError):
            if spec.is_designed:
                made = self._design(spec.method_row, spec.code_length, epsilon)
                return [replace(spec, design=made, epsilon=epsilon)]
            if spec.subset is not None and spec.symbols:
                subsets = promising_subsets(spec.symbols, epsilon, self._reranked)
                return [replace(spec, subset=w, epsilon=epsilon) for w in subsets[-2:]]
            alike = spec.with_epsilon(epsilon)
            if spec.method_row.family.windows:
                return [replace(alike, window=window) for window in self._windows()]
            return [alike]
        return []

    def published(self, spec: Spec) -> Spec:
        """Return the spec with its public part made of all public vectors."""
        if spec.is_designed:
            made = self._design(spec.method_row, spec.code_length, spec.budget, whole=True)
            return replace(spec, design=made)
        if not spec.symbols:
            return spec
        grown = spec.symbols > self._source.shape[0]
        make = fit_codebook if grown or self._sample.has_centroids(spec) else Codebook.spaced
        return replace(spec, codebook=make(self._source, spec.symbols))

    def contrast(self, epsilon: float) -> Spec | None:
        """Return Gaussian noise for any two vectors of norm 1, to compare whole records with."""
        delta = self._terms["delta"]
        if not isinstance(self._goal.adjacency, Record) or not delta > 0:
            return None
        with suppress(NoGuaranteeError):  # noise that no code can hold
            return Spec(_CONTRAST, self._goal.dim, epsilon=epsilon, delta=delta, adjacency=l2(2.0))
        return None


def promising_subsets(size: int, epsilon: float, reranked: bool) -> tuple[int, ...]:
    """Return sizes of sets of nearest codewords that are worth trying.

    Small sets say where a record lies and are seldom reported, large ones say little. A search for
    ten answers needs precise reports, of which about half may be random. One for a thousand
    candidates needs reports that are nearly always true: ``w·e^ε/K`` from 0.7 to 5 times ``ε − 1``,
    where a report carries the most information.

    >>> promising_subsets(4000, 8.0, reranked=False), promising_subsets(4000, 8.0, reranked=True)
    ((1, 2, 4, 8), (8, 12, 16, 24, 32))
    """
    odds = math.exp(epsilon) / size
    most = min(96, size // 2)
    if reranked:
        informative = max(1.0, epsilon - 1.0) / odds
        least = 0.7 * informative
        sizes = [w for w in _SUBSETS if w <= min(most, 5 * informative)]
        large = [w for w in sizes if w >= least]
        return tuple(large or sizes[-1:] or (1, 2))
    powers = [1 << i for i in range(7) if 1 << i <= most]
    inside = {w: w * odds / (w * odds + 1) for w in powers}
    promising = tuple(w for w, chance in inside.items() if 0.2 <= chance <= 0.9)
    if promising:
        return promising
    if odds > 1:
        return (powers[0],)
    return (powers[-1],)


def _methods_to_try(names: Sequence[str] | None) -> list[Method]:
    """Return the private methods of these names, without duplicates.

    Without names all but those that only papers name.
    """
    if names is None:
        return [m for m in all_methods() if m.private and m.name not in OF_PAPERS]
    chosen = [find_method(name) for name in dict.fromkeys(names)]
    for method in chosen:
        if not method.private:
            raise InputError(f"{method.name} is not private, so there is nothing to plan with it.")
    return chosen


def _lengths(spec: Spec, max_bytes: int | None) -> list[int]:
    """Return code lengths to try for a method, of which ``spec`` has the default length.

    A raw method has no other length, and :func:`spec_grid` ignores these. Numbers with one
    attribute in each bin of OPORP are those of a raw method.
    """
    signs = spec.format_type.are_signs
    family = spec.method_row.family
    if family.lengths is not None:
        lengths = _RECORD_LENGTHS
    elif spec.dim > MAX_DENSE_DIM:
        lengths = _WIDE_LENGTHS
    elif family.bins:
        attributes_in_a_bin = (1, 2, 4, 8, 16) if signs else (2, 4, 8, 16)
        bins = {spec.dim // share for share in attributes_in_a_bin}
        lengths = {k for k in bins if k >= _MIN_BINS} or {spec.dim}
    else:
        lengths = {512, 1024} if signs else {128, 256, 512}
    if max_bytes is not None:
        fitting = {8 * max_bytes // bits for bits in spec.format_type.coordinate_bits}
        longest = min(max(fitting), spec.dim) if family.bins else max(fitting)
        lengths = {k for k in lengths | fitting if 0 < k <= longest}
    return sorted(lengths, reverse=True)

"""A valid spec for any row of the method table, also for rows that come later."""

import inspect
from functools import cache, wraps

import numpy as np
import pytest

from dpindex import Codebook, Design, Spec, attribute, record
from dpindex.mechanism import families, optimiser, papers
from dpindex.mechanism.method import Family
from dpindex.mechanism.variants import NAMES, variant_of
from dpindex.privacy import Guarantee

PARAM = type(pytest.param())


def folded(names, cases):
    """As ``pytest.mark.parametrize``, with one item for all cases; the first that fails is named.

    Thousands of small cases take longer to collect, to send to a worker and to report than to run.
    For tests without fixtures, which a case would leave to the next.
    """
    keys = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    stated = []
    for case in cases:
        row = case.values if isinstance(case, PARAM) else case if len(keys) > 1 else [case]
        stated.append(dict(zip(keys, row, strict=True)))

    def fold(test):
        @wraps(test)
        def every(**others):
            for case in stated:
                try:
                    test(**case, **others)
                except Exception as error:
                    raise AssertionError(f"fails for {case}") from error

        left = [p for name, p in inspect.signature(test).parameters.items() if name not in keys]
        every.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]
        return every

    return fold


FAMILIES = {
    name: value
    for module in (families, papers)
    for name, value in vars(module).items()
    if isinstance(value, Family)
}
"""Every family of projections there is, by its name in the package."""


def attribute_spec(method, dim, *size, **fields):
    """A spec that hides a change of one attribute by 1; ``size`` is its code length and epsilon."""
    return Spec(method, dim, *size, adjacency=attribute(1.0), **fields)


def record_spec(method, dim, **fields):
    """A spec that hides whole records."""
    return Spec(method, dim, adjacency=record(), **fields)


def dp(epsilon, adjacency):
    """A promise of pure differential privacy."""
    return Guarantee(epsilon, 0.0, "DP", adjacency)


@cache
def codebook(dim):
    """Fifty codewords."""
    return Codebook(np.random.default_rng(dim).normal(size=(50, dim)))


@cache
def designed(
    dim,
    gaussian=False,
    length=None,
    signs=False,
    window=0.0,
    beta=1.0,
):
    """A design for vectors of a few common causes, of at most eight coordinates by default."""
    rng = np.random.default_rng(dim)
    public = rng.normal(size=(200, 3)) @ rng.normal(size=(3, dim)) / 4
    public += 0.05 * rng.normal(size=public.shape)
    delta = 1e-6 if gaussian else 0.0
    length = length or min(dim, 8)
    return optimiser.design(
        public,
        epsilon=2.0,
        beta=beta,
        code_length=length,
        delta=delta,
        signs=signs,
        window=window,
    )


def with_variant(stated):
    """Fields of a spec, in which the parameters of a variant stood by their names."""
    fields = {name: value for name, value in stated.items() if name not in NAMES}
    variant = {name: value for name, value in stated.items() if name in NAMES}
    return {**fields, "variant": variant_of(variant)} if variant else fields


def needed(row, dim=24):
    """What the method cannot do without, at ordinary values; its public part is made for tests."""
    fields = row.example(dim)
    for name in ("dim", "k"):
        del fields[name]
    if row.family.public is Codebook:
        fields["codebook"] = codebook(dim)
    if row.family.public is Design:
        fields["design"] = designed(dim, row.needs_delta)
    return fields


def example(row, dim=24, **changes):
    """A small spec of that method; parameters of its variant may stand among the changes."""
    fields = {**needed(row, dim), "dim": dim, "k": length(row, min(dim, 8)), **changes}
    return Spec(**with_variant(fields))


def length(row, wanted):
    """A code length as near to the one wanted as the method has; None for its only one."""
    return row.family.length_near(wanted)


@cache
def small(row):
    """The plain example, made once for all tests that only look at it."""
    return example(row)

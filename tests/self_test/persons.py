"""One vector a person: what a person gave decides that person's vector, and no other."""

from typing import Literal, get_args

import numpy as np

from dpindex.audit.verdict import Check
from dpindex.data import one_per_person

__all__ = ["persons_check"]

_How = Literal["mean", "first"]
_PERSONS = 7
_ROUNDING = 1e-9


def persons_check(rows):
    """Public rows of several persons, mixed; then the rows of each person in turn are replaced."""
    persons = np.arange(len(rows)) % _PERSONS
    wrong = []
    for how in get_args(_How):
        vectors, _ = one_per_person(rows, persons.tolist(), how)
        expected = [_vector(rows[persons == person], how) for person in range(_PERSONS)]
        wrong.append(np.abs(vectors - expected).max(axis=1) > _ROUNDING * np.abs(expected).max())
        for person in range(_PERSONS):
            others = persons != person
            changed = np.where(others[:, None], rows, rows[::-1] + 1.0)
            again, _ = one_per_person(changed, persons.tolist(), how)
            moved = (again != vectors).any(axis=1)
            wrong.append(moved & (np.arange(_PERSONS) != person))
    return Check.none(
        "path: one vector a person",
        wrong,
        "vectors that are not the person's own",
        "a promise about persons is about a release of one vector each",
    )


def _vector(rows, how):
    """Return the vector of one person, computed alone."""
    if how == "first":
        return np.asarray(rows[0])
    total = sum(row / max(float(np.linalg.norm(row)), 1e-300) for row in rows)
    return np.asarray(total / np.linalg.norm(total))

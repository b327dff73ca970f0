"""Why this one: the sentence beside a recommendation, and what else should be said."""

from __future__ import annotations

from collections.abc import Sequence

from dpindex.index import QueryMode
from dpindex.planner.result import Row
from dpindex.privacy import Attribute

__all__ = ["reason", "remarks"]

_POOR = 0.2


def reason(rows: Sequence[Row], query: QueryMode) -> str:
    """One sentence on why the first row stands first."""
    best = rows[0]
    unit = "signs" if best.spec.mechanism.codes == "signs" else "numbers"
    after = "" if best.ranking == "plain" else " and a denoiser"
    other: QueryMode = "exact" if query == "private" else "private"
    sentence = (
        f"{best.method} with {best.k} {unit} ({best.bytes_per_vector} bytes){after} should "
        f"reach precision@10 = {best.precision(query):.2f} ({other} queries: "
        f"{best.precision(other):.2f}) at {best.guarantee}"
    )
    rival = next((row for row in rows if row.method != best.method), None)
    if rival is None:
        return f"{sentence}; it is the only method that was tried."
    score = (
        f"{rival.method}, k = {rival.k}, the next method, is put at {rival.precision(query):.2f}"
    )
    return f"{sentence}: {_ground(best, rival)}; {score}."


def _ground(best: Row, rival: Row) -> str:
    if best.spec.mechanism.codes == "signs":
        return f"{best.noise:.0%} of its signs are flipped, and a sign costs one bit"
    level = f"its noise has {best.noise:.2g} times the spread of a coordinate"
    if rival.spec.mechanism.codes == "numbers" and best.noise < 0.97 * rival.noise:
        return f"{level} where the next has {rival.noise:.2g}"
    if best.ranking != "plain":
        return f"{level}, and {best.k} coordinates that tell of each other let it be taken out"
    return f"{level}, and its {best.k} coordinates keep more of a vector"


def remarks(rows: Sequence[Row], query: QueryMode, made_up: bool) -> tuple[str, ...]:
    """What else should be known before the plan is relied upon."""
    best, lines = rows[0], []
    if best.precision(query) < _POOR:
        lines.append(
            "At this epsilon no method finds much: ask for a recall to see which epsilon it needs."
        )
    if isinstance(best.spec.adjacency, Attribute):
        lines.append(
            f"This epsilon hides one attribute, not a record: all {best.spec.dim} attributes "
            f"together cost up to {best.guarantee.group(best.spec.dim):g}."
        )
    if made_up:
        lines.append("Facts are a rough substitute for a public sample: expect errors of 0.2.")
    else:
        lines.append(
            "Predictions assume that the collection is like the sample, and scatter by about 0.04 "
            "themselves."
        )
    return tuple(lines)

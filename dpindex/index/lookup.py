"""A query as a table of scores, and the SQL that ranks a table of symbols by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpindex.base.arrays import Doubles, Longs, Table
from dpindex.base.errors import InputError
from dpindex.base.tables import arrow
from dpindex.index.conditions import Condition, DuckDb, Language


class _Spark(Language):
    def column(self, name: str) -> str:
        return "`{}`".format(name.replace("`", "``"))

    def literal(self, value: Any, kind: Any, name: str) -> str:
        text = super().literal(value, kind, name)
        if isinstance(value, str):
            return text.replace("\\", "\\\\").replace("''", "\\'")
        return text.replace("double precision", "double")


DIALECTS: Mapping[str, tuple[Language, str]] = {
    "duckdb": (DuckDb(), "read_parquet('{}')"),
    "spark": (_Spark(), "parquet.`{}`"),
    "postgresql": (Language(), '"{}"'),
}
"""How each engine writes a condition, and where rows lie: in files of a path, or in a table."""

_SQL = """\
with lookup (code, score) as (values
  {values}
), found as (
  select id, code from {table} where code in ({codes}){condition}
)
select id, score from found join lookup using (code)
order by score desc, id limit {count}"""


@dataclass(frozen=True, eq=False)
class Lookup:
    """Scores of symbols for one query, and how many rows it takes.

    Attributes
    ----------
    codes : int64 array, shape (m,)
        Symbols that are looked up, best first: those that have the rows, or all of them.
    scores : float64 array, shape (m,)
        Higher is nearer.
    count : int
        Rows that the query takes at most.
    condition : Condition, optional
        Holds for the rows that are searched.
    """

    codes: Longs
    scores: Doubles
    count: int
    condition: Condition | None = None

    def table(self) -> Table:
        """An Arrow table of the columns ``code`` and ``score``, best first."""
        return arrow().table({"code": self.codes, "score": self.scores})

    def sql(self, place: str, dialect: str = "duckdb") -> str:
        """The statement that finds ids and scores, best first and of equal scores by id.

        Parameters
        ----------
        place : str
            Where rows with the columns ``id`` and ``code`` lie: a Parquet file, a folder of them
            with a slash at its end, or the name of a table in PostgreSQL. It is written as it is.
        dialect : "duckdb", "spark" or "postgresql"

        Raises
        ------
        InputError
            For another dialect.

        >>> import numpy as np
        >>> print(Lookup(np.array([7, 2]), np.array([0.5, 0.25]), 100).sql("codes.parquet"))
        with lookup (code, score) as (values
          (7, 5.0000000000000000e-01), (2, 2.5000000000000000e-01)
        ), found as (
          select id, code from read_parquet('codes.parquet') where code in (7, 2)
        )
        select id, score from found join lookup using (code)
        order by score desc, id limit 100
        """
        if dialect not in DIALECTS:
            raise InputError(f"the dialects are {', '.join(DIALECTS)}, not {dialect!r}.")
        language, table = DIALECTS[dialect]
        if dialect == "duckdb" and place.endswith("/"):
            place += "*.parquet"
        condition = ""
        if self.condition is not None:
            condition = f" and ({self.condition.said(language)})"
        pairs = zip(self.codes.tolist(), self.scores.tolist(), strict=True)
        return _SQL.format(
            # With an exponent a number is a double everywhere, and loses nothing.
            values=", ".join(f"({code}, {score:.16e})" for code, score in pairs),
            codes=", ".join(map(str, self.codes.tolist())),
            table=table.format(place),
            condition=condition,
            count=self.count,
        )

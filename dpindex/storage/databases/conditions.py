"""Conditions on rows, written in the language of a database.

Databases differ in what a missing value is to them, and some know no negation. So a condition is
written twice, as what is true of the rows that meet it and of those that do not; of a row with a
missing value neither is true, and a negation exchanges the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Column", "Condition", "Dialect"]

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True)
class Condition:
    """A condition: what is true and what is false, as two expressions.

    >>> dialect = Dialect(str, repr, ("{}_null == true", "{}_null == false"))
    >>> year = dialect.field("year")
    >>> (~(year == dialect.scalar(2020))).true
    '(year != 2020 and year_null == false)'
    """

    true: str
    false: str

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"({self.true} and {other.true})", f"({self.false} or {other.false})")

    def __or__(self, other: Condition) -> Condition:
        return Condition(f"({self.true} or {other.true})", f"({self.false} and {other.false})")

    def __invert__(self) -> Condition:
        return Condition(self.false, self.true)


@dataclass(frozen=True)
class Constant:
    """A value to compare columns with."""

    value: Any


@dataclass(frozen=True)
class Dialect:
    """How a database writes conditions; with it :func:`dpindex.index.filters.parsed` reads filters.

    Attributes
    ----------
    name, literal : callable
        How the name of a column and a value are written.
    missing : (str, str)
        True of rows without a value of column ``{}``, and of rows with one.
    equal, unequal, brackets : str
        How equality, inequality and lists are written.
    always : tuple of str
        Columns of which each row has a value.
    id_literal : callable, optional
        How an id is written, where that differs.
    """

    name: Callable[[str], str]
    literal: Callable[[Any], str]
    missing: tuple[str, str]
    equal: str = "=="
    unequal: str = "!="
    brackets: tuple[str, str] = ("[", "]")
    always: tuple[str, ...] = ("id", "code")
    id_literal: Callable[[Any], str] | None = None

    def field(self, name: str) -> Column:
        """The column of that name."""
        return Column("", "", self, name)

    def scalar(self, value: Any) -> Constant:
        """A constant."""
        return Constant(value)

    def is_in(self, name: str, values: Sequence[Any]) -> str:
        """The expression that keeps rows with one of these values."""
        return self.field(name).isin(values).true


@dataclass(frozen=True, eq=False)
class Column(Condition):
    """A column; as a condition by itself it is one of true and false."""

    dialect: Dialect
    column: str

    def __post_init__(self) -> None:
        itself = self == Constant(True)
        object.__setattr__(self, "true", itself.true)
        object.__setattr__(self, "false", itself.false)

    @property
    def _name(self) -> str:
        return self.dialect.name(self.column)

    def _literal(self, value: Any) -> str:
        write = None
        if self.column == "id":
            write = self.dialect.id_literal
        return (write or self.dialect.literal)(value)

    def _missing(self, place: int) -> str:
        """True of rows without a value (0) or with one (1); "" where each row has one."""
        always = self.column in self.dialect.always
        if always:
            return ""
        return self.dialect.missing[place].format(self._name)

    def _compared(self, sign: str, other: Any) -> Condition:
        column = isinstance(other, Column)
        text = other._name if column else self._literal(other.value)
        guards = [self._missing(1), other._missing(1) if column else ""]
        signs = {"==": self.dialect.equal, "!=": self.dialect.unequal}

        def written(sign: str) -> str:
            parts = [f"{self._name} {signs.get(sign, sign)} {text}", *filter(None, guards)]
            return f"({' and '.join(parts)})"

        return Condition(written(sign), written(_OPPOSITE[sign]))

    def __eq__(self, other: object) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("!=", other)

    def __lt__(self, other: Any) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compared(">=", other)

    def isin(self, values: Sequence[Any]) -> Condition:
        """Whether there is a value and it is one of these: a missing one is not, as in Arrow."""
        name, (left, right) = self._name, self.dialect.brackets
        if not values:
            return self._compared("!=", self) & ~self.is_null()
        listed = f"{left}{', '.join(map(self._literal, values))}{right}"
        if not self._missing(0):
            return Condition(f"({name} in {listed})", f"({name} not in {listed})")
        present = f"({name} in {listed} and {self._missing(1)})"
        other = f"{name} not in {listed}"
        return Condition(present, f"({other} or {self._missing(0)})")

    def is_null(self) -> Condition:
        """Whether there is no value."""
        if not self._missing(0):
            return self._compared("!=", self)
        return Condition(self._missing(0), self._missing(1))

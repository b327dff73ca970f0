"""Conditions over ids and payload columns: one meaning, wherever the rows lie.

A text is parsed by Python's own parser, and an expression of ``pyarrow.compute`` is read; nothing
is ever run as code. Each literal becomes an exact value of its column's type, so that no engine
rounds or casts anything. Logic has SQL's three values: what is compared with a null is neither
true nor false, and ``not`` leaves it so.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from dpindex.base.errors import InputError
from dpindex.base.tables import arrow

_MAX_TEXT = 1 << 14
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_WORDS: dict[type[ast.AST], str] = {
    ast.And: "and",
    ast.Or: "or",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_FUNCTIONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_GRAMMAR = (
    "an expression is written as in Python and compares columns with numbers or quoted strings, "
    "such as \"year >= 2020 and lang in ['en', 'de']\", \"lang == 'en'\", \"not seen\" or "
    '"title is not None"'
)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?")


class Language:
    """How a database writes a condition: SQL, but for what a subclass says otherwise."""

    words: Mapping[str, str] = {"==": "=", "!=": "<>"}
    """Operators that are not written as in Python."""

    quote: ClassVar[str] = '"'
    """What stands around the name of a column, and twice where it is in it."""

    def column(self, name: str) -> str:
        """Return the name of a column, quoted."""
        inside = name.replace(self.quote, 2 * self.quote)
        return f"{self.quote}{inside}{self.quote}"

    def literal(self, value: Any, kind: Any, name: str) -> str:
        """Return a value of an Arrow type, to be compared with a column of that name.

        InputError where the database does not compare it.
        """
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return "'{}'".format(value.replace("'", "''"))
        if kind is not None and arrow().types.is_temporal(kind):
            title = "date" if arrow().types.is_date(kind) else "timestamp"
            return f"cast('{as_text(value, kind)}' as {title})"
        if isinstance(value, float):
            return f"cast('{value!r}' as double precision)"
        return str(value)

    def compared(self, name: str, operator: str, value: Any, kind: Any, *, negated: bool) -> str:
        """Return a comparison of a column with a value, or its negation: null where that is."""
        column = self.column(name)
        word = self.words.get(operator, operator)
        text = f"{column} {word} {self.literal(value, kind, name)}"
        if operator in (">", ">=") and arrow().types.is_floating(kind):
            text = f"{text} and not ({self.is_nan(name)})"  # NaN is above all numbers in SQL
        return _signed(text, negated)

    def is_nan(self, name: str) -> str:
        """Return whether a column of floats is no number."""
        return f"{self.column(name)} = {self.literal(float('nan'), None, name)}"

    def among(self, name: str, values: Sequence[Any], kind: Any, *, negated: bool = False) -> str:
        """Return whether a column is one of some values, at least one, or its negation."""
        literals = [self.literal(value, kind, name) for value in values]
        return _signed(f"{self.column(name)} in ({', '.join(literals)})", negated)

    def truth(self, name: str, *, negated: bool) -> str:
        """Return the condition that a column of bools is, or its negation."""
        return _signed(self.column(name), negated)

    def is_null(self, name: str, *, negated: bool) -> str:
        """Return whether a column is null, or has a value."""
        return f"{self.column(name)} is {'not ' * negated}null"


class DuckDb(Language):
    """DuckDB, which takes NaN in a Parquet file for a value within statistics that leave it out.

    So it finds ``x <= 3`` true of NaN where 3 is the largest number, and ``isnan(x)`` false.
    """

    def is_nan(self, name: str) -> str:
        column = self.column(name)
        return f"not (isfinite({column}) or isinf({column}))"

    def compared(self, name: str, operator: str, value: Any, kind: Any, *, negated: bool) -> str:
        text = super().compared(name, operator, value, kind, negated=negated)
        return self._beside_nan(name, value, (operator == "!=") != negated, text)

    def among(self, name: str, values: Sequence[Any], kind: Any, *, negated: bool = False) -> str:
        text = super().among(name, values, kind, negated=negated)
        return self._beside_nan(name, values[0], negated, text)

    def _beside_nan(self, name: str, value: Any, of_nan: bool, text: str) -> str:
        if not isinstance(value, float):
            return text
        return f"case when {self.is_nan(name)} then {str(of_nan).lower()} else {text} end"


def _signed(text: str, negated: bool) -> str:
    if negated:
        return f"not ({text})"
    return text


def as_text(value: Any, kind: Any) -> str:
    """Return a value of a condition as Arrow writes it."""
    return str(scalar(value, kind).cast(arrow().string()).as_py())


class Condition(ABC):
    """Something that is true, false or null of a row."""

    @abstractmethod
    def mask(self, columns: Mapping[str, Any]) -> Any:
        """Return an Arrow array of bools and nulls, of Arrow arrays by name."""

    @abstractmethod
    def said(self, language: Language, *, negated: bool = False) -> str:
        """Return it, or its negation, in the language of a database."""


@dataclass(frozen=True)
class Compared(Condition):
    """A column compared with a value of its own type."""

    name: str
    operator: str
    value: Any
    kind: Any

    def mask(self, columns: Mapping[str, Any]) -> Any:
        from pyarrow import compute

        column = columns[self.name]
        function = getattr(compute, _FUNCTIONS[self.operator])
        return function(column, scalar(self.value, column.type))

    def said(self, language: Language, *, negated: bool = False) -> str:
        return language.compared(self.name, self.operator, self.value, self.kind, negated=negated)


@dataclass(frozen=True)
class Among(Condition):
    """A column whose value is one of some values of its type; of none, it is false."""

    name: str
    values: tuple[Any, ...]
    kind: Any

    def mask(self, columns: Mapping[str, Any]) -> Any:
        from pyarrow import compute

        column = columns[self.name]
        values = [scalar(value, column.type).as_py() for value in self.values]
        # Arrow looks up zero and minus zero as two values. False, which equals zero, has no minus.
        values += [-value for value in values if isinstance(value, float) and value == 0]
        found = compute.is_in(column, arrow().array(values, column.type))
        return compute.if_else(column.is_valid(), found, arrow().scalar(None, arrow().bool_()))

    def said(self, language: Language, *, negated: bool = False) -> str:
        if not self.values:
            present = language.is_null(self.name, negated=True)
            missing = language.is_null(self.name, negated=False)
            if negated:
                return present
            return f"({present}) and ({missing})"
        return language.among(self.name, self.values, self.kind, negated=negated)


@dataclass(frozen=True)
class IsNull(Condition):
    """Whether a column is null, which is never null itself."""

    name: str

    def mask(self, columns: Mapping[str, Any]) -> Any:
        return columns[self.name].is_null()

    def said(self, language: Language, *, negated: bool = False) -> str:
        return language.is_null(self.name, negated=negated)


@dataclass(frozen=True)
class Truth(Condition):
    """A column of bools."""

    name: str

    def mask(self, columns: Mapping[str, Any]) -> Any:
        return columns[self.name]

    def said(self, language: Language, *, negated: bool = False) -> str:
        return language.truth(self.name, negated=negated)


@dataclass(frozen=True)
class Columns(Condition):
    """Two columns of one type, compared."""

    left: str
    operator: str
    right: str

    def mask(self, columns: Mapping[str, Any]) -> Any:
        from pyarrow import compute

        function = getattr(compute, _FUNCTIONS[self.operator])
        return function(columns[self.left], columns[self.right])

    def said(self, language: Language, *, negated: bool = False) -> str:
        raise InputError(
            "a published index compares columns with values, and not with each other; give the "
            "condition as where=, in the language of its database.",
            field="filter",
        )


@dataclass(frozen=True)
class Not(Condition):
    """Neither where a condition is null."""

    condition: Condition

    def mask(self, columns: Mapping[str, Any]) -> Any:
        from pyarrow import compute

        return compute.invert(self.condition.mask(columns))

    def said(self, language: Language, *, negated: bool = False) -> str:
        return self.condition.said(language, negated=not negated)


@dataclass(frozen=True)
class Joined(Condition):
    """Conditions joined by ``and`` or ``or``."""

    word: str
    parts: tuple[Condition, ...]

    def mask(self, columns: Mapping[str, Any]) -> Any:
        from pyarrow import compute

        join = {"and": compute.and_kleene, "or": compute.or_kleene}[self.word]
        return reduce(join, [part.mask(columns) for part in self.parts])

    def said(self, language: Language, *, negated: bool = False) -> str:
        # By De Morgan's law, which holds with three values: negation stands at columns alone.
        word = self.word
        if negated:
            word = "or" if word == "and" else "and"
        parts = [f"({part.said(language, negated=negated)})" for part in self.parts]
        return f" {word} ".join(parts)


def scalar(value: Any, kind: Any) -> Any:
    """Return a value that :func:`compared` made as an Arrow scalar of its column's type."""
    pa = arrow()
    if pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.scalar(value, pa.int64()).cast(kind)
    return pa.scalar(value, kind)


def compared(name: str, kind: Any, operator: str, literal: Any) -> Condition:
    """Return a comparison of a column with a literal, in values of the column's type.

    A literal between two values of the type is compared as its neighbour: ``n < 2.5`` of whole
    numbers is ``n <= 2``.
    """
    low, high = _neighbours(name, kind, literal)
    if low is not None and low == high:
        return Compared(name, operator, low, kind)
    if operator in ("==", "!="):
        known: Condition = Among(name, (), kind)
        if operator == "!=":
            return Not(known)
        return known
    is_below = operator in ("<", "<=")
    nearest = low if is_below else high
    if nearest is None:
        return Among(name, (), kind)
    return Compared(name, "<=" if is_below else ">=", nearest, kind)


def among(name: str, kind: Any, literals: Sequence[Any]) -> Condition:
    """Return whether a column is one of some literals; one that its type lacks is left out."""
    values = []
    for literal in literals:
        low, high = _neighbours(name, kind, literal)
        if low is not None and low == high:
            values.append(low)
    return Among(name, tuple(values), kind)


def _neighbours(name: str, kind: Any, literal: Any) -> tuple[Any, Any]:
    """Return the largest value of a type that is at most a literal, and the smallest at least it.

    They are equal where the type has the literal, and None beyond its ends.
    """
    types = arrow().types
    is_bool = isinstance(literal, bool)
    if types.is_boolean(kind) and is_bool:
        return literal, literal
    if (types.is_string(kind) or types.is_large_string(kind)) and isinstance(literal, str):
        return literal, literal
    is_number = isinstance(literal, int | float | Decimal) and not is_bool
    if types.is_floating(kind) and is_number:
        return _floats(kind, literal)
    if types.is_integer(kind) and is_number:
        ends = np.iinfo(str(kind))
        return _whole(literal, int(ends.min), int(ends.max))
    if types.is_decimal(kind) and is_number:
        most = 10**kind.precision - 1
        low, high = _whole(_scaled(literal, 10**kind.scale), -most, most)
        return _decimal(low, kind.scale), _decimal(high, kind.scale)
    if (types.is_date(kind) or types.is_timestamp(kind)) and isinstance(literal, str):
        unit: int | Fraction = 1000  # of 64-bit dates
        if types.is_timestamp(kind):
            unit = _UNITS[kind.unit]
        elif types.is_date32(kind):
            unit = Fraction(1, 86400)
        seconds = _seconds(name, literal, is_zoned=getattr(kind, "tz", None) is not None)
        bits = 63
        if types.is_date32(kind):
            bits = 31
        return _whole(seconds * unit, -(2**bits), 2**bits - 1)
    raise InputError(
        f"the filter has no meaning here: column {name!r} is {kind}, and is not compared with "
        f"{literal!r:.40}.",
        field="filter",
    )


def _scaled(literal: Any, factor: int) -> Any:
    if isinstance(literal, float):
        if not np.isfinite(literal):
            return literal
        return Fraction(repr(literal)) * factor  # 1.1 as it is written, not its nearest float
    return Fraction(literal) * factor


def _decimal(digits: int | None, scale: int) -> Decimal | None:
    if digits is None:
        return None
    sign = int(digits < 0)
    return Decimal((sign, tuple(map(int, str(abs(digits)))), -scale))


def _whole(literal: Any, least: int, most: int) -> tuple[int | None, int | None]:
    if isinstance(literal, float) and np.isnan(literal):
        return None, None
    if literal < least:
        return None, least
    if literal > most:
        return most, None
    exact = Fraction(literal)
    return int(exact // 1), int(-(-exact // 1))


def _floats(kind: Any, literal: Any) -> tuple[Any, Any]:
    single = np.dtype(f"f{kind.bit_width // 8}").type
    if isinstance(literal, float) and not np.isfinite(literal):
        if np.isnan(literal):
            return None, None
        return literal, literal
    with np.errstate(over="ignore"):
        try:
            near = single(float(literal))
        except OverflowError:
            near = single(np.inf if literal > 0 else -np.inf)
    if np.isfinite(near) and Fraction(float(near)) == Fraction(literal):
        return float(near), float(near)
    if float(near) < literal:
        return float(near), float(np.nextafter(near, single(np.inf)))
    return float(np.nextafter(near, single(-np.inf))), float(near)


def _seconds(name: str, text: str, *, is_zoned: bool) -> Fraction:
    """Return the time of a text in ISO 8601, in seconds since 1970; UTC where it says no zone."""
    found = _TIME.fullmatch(text.strip())
    with suppress(ValueError):
        if found is not None:
            day, minutes, seconds, fraction, zone = found.groups()
            if zone is not None and not is_zoned:
                raise InputError(
                    f"column {name!r} has no time zone; leave {zone!r} out of {text[:40]!r}.",
                    field="filter",
                )
            offset = (zone or "Z").replace("Z", "+00:00")
            moment = datetime.fromisoformat(f"{day}T{minutes or '00:00'}{seconds or ':00'}{offset}")
            since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
            whole = since.days * 86400 + since.seconds
            return whole + Fraction(f"0{fraction or '.0'}")
    raise InputError(
        f"column {name!r} holds times, and {text[:40]!r} is not one; write it as '2024-01-31' or "
        f"'2024-01-31T12:00:00'.",
        field="filter",
    )


# From text


def parsed(text: str, kinds: Mapping[str, Any]) -> Condition:
    """The condition of a text over columns of these Arrow types.

    Known are ``and or not & | ~ == != < <= > >= in``, ``is None`` and ``is not None``, numbers,
    strings, True, False, and names of columns; ``field("two words")`` is a name that Python cannot
    write.

    Raises
    ------
    InputError
        For anything else, an unknown column, and a value that a column cannot be compared with.

    >>> import pyarrow as pa
    >>> parsed("year < 2020.5", {"year": pa.int64()})
    Compared(name='year', operator='<=', value=2020, kind=DataType(int64))
    """
    try:
        if len(text) > _MAX_TEXT:
            raise SyntaxError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        return _Translator(text, kinds).condition(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        raise InputError(
            f"the filter {text[:200]!r} cannot be read ({reason}); {_GRAMMAR}.",
            field="filter",
        ) from None


class _Translator:
    """Turns the nodes of a parsed text into conditions."""

    def __init__(self, text: str, kinds: Mapping[str, Any]) -> None:
        self._text = text
        self._kinds = kinds

    def condition(self, node: ast.expr) -> Condition:
        """Something that is true, false or null of a row."""
        match node:
            case ast.BoolOp(op=operator, values=parts):
                return self._joined(operator, parts)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as operator, right=right):
                return self._joined(operator, [left, right])
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return Not(self.condition(operand))
            case ast.Compare(left=first, ops=operators, comparators=others):
                pairs = zip([first, *others], operators, others, strict=False)
                compared = tuple(self._compared(*pair) for pair in pairs)
                if len(compared) == 1:
                    return compared[0]
                return Joined("and", compared)
            case ast.Name() | ast.Call():
                return self._truth(self._column(node))
        raise self._refused(node)

    def _joined(self, operator: ast.AST, parts: Sequence[ast.expr]) -> Condition:
        return Joined(_WORDS[type(operator)], tuple(map(self.condition, parts)))

    def _truth(self, name: str) -> Condition:
        kind = self._kinds[name]
        if not arrow().types.is_boolean(kind):
            raise InputError(
                f"the filter has no meaning here: column {name!r} is {kind}, neither true nor "
                f"false; compare it.",
                field="filter",
            )
        return Truth(name)

    def _compared(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Condition:
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._refused(right)
            is_null = IsNull(self._column(left))
            if isinstance(operator, ast.Is):
                return is_null
            return Not(is_null)
        if isinstance(operator, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set):
                raise self._refused(right)
            name = self._column(left)
            items = [self._constant(item) for item in right.elts]
            is_member = among(name, self._kinds[name], items)
            if isinstance(operator, ast.In):
                return is_member
            return Not(is_member)
        sign = _COMPARE[type(operator)]
        if not _names_column(left):
            if not _names_column(right):
                raise self._refused(left)
            left, right = right, left
            sign = _SWAPPED[sign]
        name = self._column(left)
        if _names_column(right):
            return self._of_columns(name, sign, self._column(right))
        value = self._constant(right)
        if isinstance(value, bool) and sign not in ("==", "!="):
            raise InputError("True and False are compared by == and != alone.", field="filter")
        return compared(name, self._kinds[name], sign, value)

    def _of_columns(self, left: str, operator: str, right: str) -> Condition:
        kind = self._kinds[left]
        other = self._kinds[right]
        if kind != other:
            raise InputError(
                f"columns {left!r} and {right!r} are of different types, {kind} and {other}; "
                f"convert one of them.",
                field="filter",
            )
        return Columns(left, operator, right)

    def _column(self, node: ast.expr) -> str:
        """The name of the column that a node is; InputError for another node."""
        match node:
            case ast.Name(id=name):
                pass
            case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str(name))]):
                pass
            case _:
                raise self._refused(node)
        if name not in self._kinds:
            raise InputError(
                f"the filter {self._text[:200]!r} names {name!r}; the columns are "
                f"{', '.join(self._kinds)}, and strings are quoted.",
                field="filter",
            )
        return name

    def _constant(self, node: ast.expr) -> Any:
        with suppress(ValueError, TypeError):  # what is no literal
            value = ast.literal_eval(node)
            if isinstance(value, bool | int | float | str | Decimal):
                return value
        raise self._refused(node)

    def _refused(self, node: ast.expr) -> InputError:
        # Nodes of an expression of pyarrow have no place in a text.
        part = ast.get_source_segment(self._text.strip(), node) or ast.unparse(node)
        return InputError(
            f"the filter {self._text[:200]!r} cannot be read at {part[:80]!r}; {_GRAMMAR}.",
            field="filter",
        )


def _names_column(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Call)


# From expressions of pyarrow


def of_expression(expression: Any, kinds: Mapping[str, Any]) -> Condition:
    """The condition of a ``pyarrow.compute.Expression``, with the same meaning as of a text.

    Arrow's own ``is_in`` is false of a null, so that ``~`` would keep it.
    """
    # Arrow's serial form: the nodes in prefix order as pairs of metadata, and values as columns.
    _, (data, *_) = expression.__reduce__()[:2]
    batch = arrow().ipc.open_file(data).get_batch(0)
    text = batch.schema.to_string(truncate_metadata=False, show_schema_metadata=True)
    _, _, pairs = text.partition("-- schema metadata --\n")
    nodes = [line.partition(": ") for line in pairs.split("\n")]
    steps = [(name, value[1:-1]) for name, _, value in nodes if value]
    steps.reverse()
    tree = _Reader(steps, batch, str(expression)).node()
    return _Translator(str(expression), kinds).condition(tree)


class _Reader:
    """Reads the steps of an expression as nodes of a text, from the last of a list to the first."""

    def __init__(self, steps: list[tuple[str, str]], batch: Any, text: str) -> None:
        self._steps = steps
        self._batch = batch
        self._text = text

    def node(self) -> ast.expr:
        """Read one node."""
        kind, text = self._steps.pop()
        if kind == "literal":
            return _literal(self._value(text))
        if kind == "field_ref":
            return ast.Call(ast.Name("field"), [ast.Constant(text)], [])
        arguments = []
        options = None
        while kind == "call" and self._steps[-1][0] != "end":
            if self._steps[-1][0] == "options":
                options = self._value(self._steps.pop()[1])
                del options["_type_name"]
            else:
                arguments.append(self.node())
        if arguments:
            self._steps.pop()
            if called := _called(text, arguments, options):
                return called
        named = text
        if options:
            named = f"{text} with {', '.join(options)}"
        raise InputError(
            f"the filter {self._text[:200]} has no meaning here ({named} is not known); "
            f"{_GRAMMAR}; or give a mask.",
            field="filter",
        )

    def _value(self, number: str) -> Any:
        return self._batch.column(int(number))[0].as_py()


_MATCH = 0
_SKIP = 1
"""Arrow's numbers for how ``is_in`` treats nulls: a null among the values finds nulls, or none."""


def _called(function: str, arguments: list[ast.expr], options: Any) -> ast.expr | None:
    """The node of a text that says what a function of Arrow does; None if nothing does."""
    first, *others = arguments
    if function in ("and", "and_kleene"):
        return ast.BoolOp(ast.And(), arguments)
    if function in ("or", "or_kleene"):
        return ast.BoolOp(ast.Or(), arguments)
    if function == "invert":
        return ast.UnaryOp(ast.Not(), first)
    is_null = ast.Compare(first, [ast.Is()], [ast.Constant(None)])
    if function == "is_valid":
        return ast.UnaryOp(ast.Not(), is_null)
    if function == "is_null" and not options["nan_is_null"]:
        return is_null
    if function == "is_in" and options["null_matching_behavior"] in (_MATCH, _SKIP):
        values = options["value_set"]
        known = [_literal(value) for value in values if value is not None]
        is_in = ast.Compare(first, [ast.In()], [ast.List(known)])
        if len(known) < len(values) and options["null_matching_behavior"] == _MATCH:
            return ast.BoolOp(ast.Or(), [is_in, is_null])
        return is_in
    for kind, sign in _COMPARE.items():
        if _FUNCTIONS[sign] == function:
            return ast.Compare(first, [kind()], others)
    return None


def _literal(value: Any) -> ast.expr:
    """A literal of Arrow as one of a text: times become ISO 8601."""
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    return ast.Constant(value)

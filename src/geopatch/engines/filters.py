"""Filters over metadata: which entries of a gallery a search may find.

A filter is written as a mapping, {"sex": "F", "age": {">=": 40, "<": 60}}, or as text, "sex == 'F' and 40 <= age < 60".
Text equals text, numbers equal numbers (1 is 1.0), true and false equal only themselves; `<` and the like compare
numbers. An entry that lacks a name fails every comparison with it, and therefore passes their `not` and `!=`. A name
that no entry of a gallery has is refused by the gallery, also under `not` and `!=`: it is most likely misspelt.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from geopatch.engines.entry import JOINERS, NAME, Metadata, Value, checked_value
from geopatch.errors import GalleryError

ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Equal:
    """The field is one of the values."""

    name: str
    values: tuple[Value, ...]

    def matches(self, fields: Metadata) -> bool:
        own = fields.get(self.name)
        return own is not None and any(kind(own) == kind(value) and own == value for value in self.values)


@dataclass(frozen=True)
class Order:
    """The field is a number below or above another."""

    name: str
    sign: str  # < <= > >=
    value: float

    def matches(self, fields: Metadata) -> bool:
        own = fields.get(self.name)
        return isinstance(own, (int, float)) and kind(own) == "number" and ORDERS[self.sign](own, self.value)


@dataclass(frozen=True)
class All:
    parts: tuple[Filter, ...]

    def matches(self, fields: Metadata) -> bool:
        return all(part.matches(fields) for part in self.parts)


@dataclass(frozen=True)
class Either:
    parts: tuple[Filter, ...]

    def matches(self, fields: Metadata) -> bool:
        return any(part.matches(fields) for part in self.parts)


@dataclass(frozen=True)
class Not:
    part: Filter

    def matches(self, fields: Metadata) -> bool:
        return not self.part.matches(fields)


Filter: TypeAlias = Equal | Order | All | Either | Not
Where: TypeAlias = Filter | Mapping[str, Any] | str | None


def as_filter(where: Where) -> Filter | None:
    """Read a filter from what people write.

    Parameters
    ----------
    where : mapping, str, Filter or None
        ``{"age": {">=": 40}}``, ``"age >= 40"``, a filter that was read before, or None for all entries.

    Returns
    -------
    Filter or None
        The filter; None for all entries.

    Raises
    ------
    GalleryError
        When it cannot be read.
    """
    if where is None or isinstance(where, (Equal, Order, All, Either, Not)):
        return where
    if isinstance(where, str):
        return parse_where(where)
    if isinstance(where, Mapping):
        return _from_mapping(where)
    raise GalleryError(f"expected a filter as a mapping or as text, got {type(where).__name__}")


def field_names(where: Filter | None) -> set[str]:
    """The fields that a filter compares."""
    if where is None:
        return set()
    if isinstance(where, (All, Either)):
        return {name for part in where.parts for name in field_names(part)}
    return field_names(where.part) if isinstance(where, Not) else {where.name}


def kind(value: Any) -> str:
    """What a value can be equal to: text, a flag or a number."""
    return "text" if isinstance(value, str) else "flag" if isinstance(value, bool) else "number"


def _from_mapping(where: Mapping[str, Any]) -> Filter:
    parts = [_joined(name, rest) if name in JOINERS else _compared(name, rest) for name, rest in where.items()]
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _joined(joiner: str, rest: Any) -> Filter:
    if joiner == "not":
        return Not(_part(rest))
    if not isinstance(rest, Sequence) or isinstance(rest, str):
        raise GalleryError(f"filter {joiner!r}: expected a list of filters, got {type(rest).__name__}")
    parts = tuple(_part(part) for part in rest)
    return All(parts) if joiner == "and" else Either(parts)


def _part(where: Any) -> Filter:
    part = as_filter(where)
    if part is None:
        raise GalleryError("expected a filter, got nothing; leave that part out")
    return part


def _compared(name: Any, rest: Any) -> Filter:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise GalleryError(f"expected a metadata name of letters, digits, _, - and spaces, got {name!r}")
    if not isinstance(rest, Mapping):
        return _comparison(name, "==", rest)
    parts = tuple(_comparison(name, sign, value) for sign, value in rest.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _comparison(name: str, sign: str, value: Any) -> Filter:
    if sign in ORDERS:
        return Order(name, sign, _number(name, sign, value))
    if sign in ("==", "!="):
        equal = Equal(name, (checked_value(name, value),))
    elif sign in ("in", "not in"):
        equal = Equal(name, _values(name, value))
    else:
        raise GalleryError(f"filter on {name!r}: expected one of == != < <= > >= in, not in; got {sign!r}")
    return equal if sign in ("==", "in") else Not(equal)


def _number(name: str, sign: str, value: Any) -> float:
    number = checked_value(name, value)
    if isinstance(number, (str, bool)):
        raise GalleryError(f"filter {name} {sign} {number!r}: only numbers have an order; compare text with == or in")
    return number


def _values(name: str, values: Any) -> tuple[Value, ...]:
    if isinstance(values, (str, Mapping)) or not hasattr(values, "__iter__"):
        raise GalleryError(f"filter {name!r} in: expected a list of values, got {type(values).__name__}")
    return tuple(checked_value(name, value) for value in values)


_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_WORDS = {"true": True, "false": False, "True": True, "False": False}
LONGEST_TEXT = 10_000


def parse_where(text: str) -> Filter:
    """A filter from text in Python's grammar of comparisons. The text is read, never run."""
    if len(text) > LONGEST_TEXT:
        raise GalleryError(f"a filter may have {LONGEST_TEXT} characters, got {len(text)}; give a mapping instead")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _from_tree(tree, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, GalleryError):
            raise
        raise GalleryError(
            f"cannot read the filter {text!r}; write it like: age >= 40 and lead in ('MLII', 'V1')"
        ) from error


def _from_tree(node: ast.expr, text: str) -> Filter:
    if isinstance(node, ast.BoolOp):
        parts = tuple(_from_tree(part, text) for part in node.values)
        return All(parts) if isinstance(node.op, ast.And) else Either(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Not(_from_tree(node.operand, text))
    if not isinstance(node, ast.Compare):
        raise GalleryError(f"filter {text!r}: expected a comparison, got {ast.unparse(node)!r}")
    sides = [node.left, *node.comparators]
    signs = [_SIGNS.get(type(sign), "is") for sign in node.ops]
    parts = tuple(_compared_sides(*three, text) for three in zip(sides, signs, sides[1:], strict=False))
    return parts[0] if len(parts) == 1 else All(parts)


def _compared_sides(left: ast.expr, sign: str, right: ast.expr, text: str) -> Filter:
    if _is_name(left):
        return _compared(ast.unparse(left), {sign: _literal(right, text)})
    if _is_name(right) and sign in _TURNED:
        return _compared(ast.unparse(right), {_TURNED[sign]: _literal(left, text)})
    raise GalleryError(f"filter {text!r}: expected a name on one side, as in age >= 40; text values need quotes")


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id not in _WORDS


def _literal(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        problem = f"expected a value, got {ast.unparse(node)!r}; text values need quotes"
        raise GalleryError(f"filter {text!r}: {problem}") from error

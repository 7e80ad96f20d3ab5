"""Dimensions as the contract files write them: an integer, a symbol, or a sum such as "N/4".

Knows nothing of YAML, graphs or models. `/` must divide exactly: half a row is a mistake in the
file or in a gear.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping

Dim = int | str


class ExpressionError(ValueError):
    """A dimension that cannot be read, lacks a value, or is no positive integer."""


def symbols_of(dim: Dim) -> frozenset[str]:
    """The symbols that `dim` names; empty for an integer."""
    if isinstance(dim, int):
        return frozenset()
    return frozenset(n.id for n in ast.walk(_parse_once(dim)) if isinstance(n, ast.Name))


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The positive integer that `dim` stands for.

    Raises ExpressionError naming the symbol without a value, or the inexact division.
    """
    result = dim if isinstance(dim, int) else _value(_parse_once(dim), dim, values)
    if result < 1:
        raise ExpressionError(f"dimension {dim!r} comes out as {result}; it must be at least 1")
    return result


def bind(dim: Dim, values: Mapping[str, int]) -> Dim:
    """`dim` as an integer if `values` has all of its symbols, else with known ones filled in."""
    names = symbols_of(dim)
    if names <= values.keys():
        return evaluate(dim, values)
    tree = _parse(str(dim))
    return ast.unparse(_Fill(values).visit(tree)).replace(" ", "")


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"dimension {text!r} is not an expression such as N/4") from error


@functools.cache
def _parse_once(text: str) -> ast.expr:
    """As `_parse`; the tree is shared, so it is only read."""
    return _parse(text)


def _value(node: ast.expr, text: str, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise ExpressionError(f"dimension {text!r}: no value for {node.id}")
        return values[node.id]
    if isinstance(node, ast.BinOp):
        return _operate(
            node.op, _value(node.left, text, values), _value(node.right, text, values), text
        )
    raise ExpressionError(f"dimension {text!r}: only integers, symbols and + - * / are allowed")


def _operate(operator: ast.operator, left: int, right: int, text: str) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            if right == 0 or left % right:
                raise ExpressionError(f"dimension {text!r}: {left} is not divisible by {right}")
            return left // right
    raise ExpressionError(f"dimension {text!r}: only integers, symbols and + - * / are allowed")


class _Fill(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._values[node.id]) if node.id in self._values else node

"""Faults in generated functions, each a change of the source. See `mutations`."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

Random = random.Random


class NotPossible(Exception):
    """The graph has nothing that a mutation could change."""


def pick(rng: Random, items: Any) -> Any:
    """A random item."""
    items = list(items)
    if not items:
        raise NotPossible
    return rng.choice(items)


def lines_of(source: str, kind: type[ast.stmt]) -> list[int]:
    """The lines with statements of a kind."""
    function: Any = ast.parse(source).body[0]
    return [statement.lineno - 1 for statement in function.body if isinstance(statement, kind)]


def missing_delete(source: str, rng: Random) -> str:
    """A tensor is never deleted."""
    lines = source.splitlines()
    del lines[pick(rng, lines_of(source, ast.Delete))]
    return "\n".join(lines)


def early_delete(source: str, rng: Random) -> str:
    """A tensor is deleted before its last use."""
    lines = source.splitlines()
    place = pick(rng, [line for line in lines_of(source, ast.Delete) if line > 4])
    lines.insert(rng.randrange(3, place - 1), lines.pop(place))
    return "\n".join(lines)


def late_delete(source: str, rng: Random) -> str:
    """A tensor is deleted later than after its last use."""
    lines = source.splitlines()
    place = pick(rng, [line for line in lines_of(source, ast.Delete) if line < len(lines) - 2])
    lines.insert(rng.randrange(place + 1, len(lines) - 1), lines.pop(place))
    return "\n".join(lines)


def swapped_lines(source: str, rng: Random) -> str:
    """Two statements trade places."""
    lines = source.splitlines()
    place = rng.randrange(1, len(lines) - 1)
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    return "\n".join(lines)


def dropped_line(source: str, rng: Random) -> str:
    """A statement is missing."""
    lines = source.splitlines()
    del lines[rng.randrange(1, len(lines))]
    return "\n".join(lines)


def repeated_line(source: str, rng: Random) -> str:
    """A statement is there twice."""
    lines = source.splitlines()
    place = rng.randrange(1, len(lines))
    return "\n".join([*lines[:place], lines[place], *lines[place:]])


def other_name(source: str, rng: Random) -> str:
    """A statement reads another name."""
    tree = ast.parse(source)
    names = [item for item in ast.walk(tree) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)]
    name = pick(rng, names)
    name.id = pick(rng, sorted({item.id for item in names} - {name.id}))
    return ast.unparse(tree)


def other_literal(source: str, rng: Random) -> str:
    """A number in the source is another one."""
    tree = ast.parse(source)
    literals = [item for item in ast.walk(tree) if isinstance(item, ast.Constant) and isinstance(item.value, (int, bool, type(None)))]
    literal = pick(rng, literals)
    literal.value = {True: False, False: True}.get(literal.value, 1) if isinstance(literal.value, bool) else (literal.value or 0) + 1
    return ast.unparse(tree)


def other_binding(source: str, rng: Random) -> str:
    """A result is bound to the name of another tensor or constant."""
    tree = ast.parse(source)
    names = [item for item in ast.walk(tree) if isinstance(item, ast.Name)]
    name = pick(rng, [item for item in names if isinstance(item.ctx, ast.Store)])
    name.id = pick(rng, sorted({item.id for item in names} - {name.id}))
    return ast.unparse(tree)


def list_kept(source: str, rng: Random) -> str:
    """The list of inputs is not emptied, so that they live on."""
    return "\n".join(line for line in source.splitlines() if not line.endswith(".clear()"))


Sources = Callable[[str, Random], str]
SOURCES: list[Sources] = [
    missing_delete, early_delete, late_delete, swapped_lines, dropped_line, repeated_line, other_name, other_literal,
    other_binding, list_kept,
]  # fmt: skip

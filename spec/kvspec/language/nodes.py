"""Trees of YAML values that know where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node begins, and the line where its text ends; lines and columns count from 1."""

    line: int
    column: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. ``text``: as it is written, without quotes."""

    value: str | int | float | bool | None
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Items:
    """A list of nodes, and where it stands."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping. ``keys``: where each key stands."""

    entries: dict[str, Node]
    keys: dict[str, Span]
    span: Span


Node: TypeAlias = Scalar | Items | Table
Key: TypeAlias = str | int


def plain(node: Node) -> Any:
    """The node's value as plain dicts, lists and scalars."""
    match node:
        case Scalar():
            return node.value
        case Items():
            return [plain(item) for item in node.items]
        case Table():
            return {key: plain(value) for key, value in node.entries.items()}


def find(node: Node, path: tuple[Key, ...], *, key: bool = False) -> Span:
    """Where the value at ``path`` stands, as far as the path exists.

    :param key: where the last key of the path stands, instead of its value.
    """
    span = node.span
    for number, part in enumerate(path):
        match node, part:
            case Table(entries=entries, keys=keys), str() if part in entries:
                span = keys[part]
                node = entries[part]
            case Items(items=items), int() if part < len(items):
                node = items[part]
                span = node.span
            case _:
                return span
        if number < len(path) - 1 or not key:
            span = node.span
    return span

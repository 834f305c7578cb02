"""Trees of YAML values that know where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node begins, and the line where its text ends; lines and columns count from 1."""

    line: int
    column: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. ``text``: as it is written, without quotes."""

    value: str | int | float | bool | None
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping. ``keys``: where each key stands."""

    entries: dict[str, Node]
    keys: dict[str, Place]
    place: Place


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


def find(node: Node, path: tuple[Key, ...], *, key: bool = False) -> Place:
    """The place of the value at ``path``, as far as the path exists.

    :param key: the place of the last key of the path instead of its value.
    """
    place = node.place
    for number, part in enumerate(path):
        match node, part:
            case Table(entries=entries, keys=keys), str() if part in entries:
                place = keys[part]
                node = entries[part]
            case Items(items=items), int() if part < len(items):
                node = items[part]
                place = node.place
            case _:
                return place
        if number < len(path) - 1 or not key:
            place = node.place
    return place

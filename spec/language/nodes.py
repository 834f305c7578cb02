"""YAML text to trees of values with positions, within limits.

PyYAML reads; this module keeps the place of every key and value, and refuses by name what a scenario may not
be: text that is not UTF-8, duplicate keys, tags, nesting without end, aliases that multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from yaml.constructor import SafeConstructor

from spec.language.problems import Problem
from spec.scenario import Position

MAX_FILE_BYTES = 8 << 20
MAX_DEPTH = 50
MAX_NODES = 200_000
MAX_DIGITS = 19
"""A number is at most 19 digits long, and must fit 64 bits."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_AMBIGUOUS_INT = re.compile(r"[-+]?0[0-9_]+|.*:")


class Refused(Exception):
    """A text that cannot be read any further. ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        """An error that carries ``problem``."""
        super().__init__(str(problem))
        self.problem = problem


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


def read_documents(path: Path, data: bytes) -> list[Node]:
    """The documents of a file.

    :raises Refused: the file cannot be read as YAML, or is beyond a limit.
    """
    reader = _Reader(path)
    text = reader.decode(data)
    try:
        reader.check_events(text)
        roots = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise Refused(reader.syntax(text, error)) from None
    except yaml.YAMLError as error:
        raise Refused(Problem(reader.at(1, 1), f"not YAML: {' '.join(str(error).split())}")) from None
    if not roots:
        raise Refused(Problem(reader.at(1, 1), "the file is empty", "a scenario, which begins with kvspec: 1"))
    return [reader.document(root) for root in roots]


@dataclass(frozen=True, slots=True)
class _Built:
    """A tree, with every alias written out: the number of its values, and how deep they are nested."""

    node: Node
    size: int
    height: int

    @classmethod
    def around(cls, node: Node, children: Sequence[_Built]) -> _Built:
        size = 1 + sum(child.size for child in children)
        return cls(node, size, 1 + max((child.height for child in children), default=0))


class _Reader:
    """Reads one file; keeps what the messages need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[int, _Built] = {}
        self.open: set[int] = set()
        self.scalars = SafeConstructor()

    def at(self, line: int, column: int) -> Position:
        return Position(self.path, line, column)

    def refuse(self, node: Any, message: str, expected: str | None = None) -> Refused:
        """What to raise about a PyYAML node or event."""
        return Refused(Problem(self.at(node.start_mark.line + 1, node.start_mark.column + 1), message, expected))

    def syntax(self, text: str, error: yaml.MarkedYAMLError) -> Problem:
        """What PyYAML does not understand, and where what it was reading begins."""
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        lines = text.split("\n")
        after = lines[line - 1][column - 1 :] if line <= len(lines) else ""
        if after.startswith("\t"):
            return Problem(self.at(line, column), "not YAML: a tab where the indentation ends", "spaces")
        if after.startswith("- "):
            return Problem(self.at(line, column), "not YAML: a dash with a space behind it, inside a list", "'-' in quotes")
        what = error.problem or "it cannot be read"
        if error.context and error.context_mark and error.context_mark.line + 1 < line:
            what += f", {error.context} that begins in line {error.context_mark.line + 1}"
        return Problem(self.at(line, column), f"not YAML: {what}")

    def decode(self, data: bytes) -> str:
        if len(data) > MAX_FILE_BYTES:
            raise Refused(Problem(self.at(1, 1), f"the file has more than {MAX_FILE_BYTES} bytes"))
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line, column = _line_column(data[: error.start].decode("utf-8"))
            raise Refused(Problem(self.at(line, column), f"not UTF-8: the byte 0x{data[error.start]:02x}")) from None
        text = text.removeprefix("\ufeff")
        if found := _NOT_PRINTABLE.search(text):
            line, column = _line_column(text[: found.start()])
            raise Refused(Problem(self.at(line, column), f"the character U+{ord(found.group()):04X} is not allowed in YAML"))
        return text

    def check_events(self, text: str) -> None:
        """Refuse what would be too deep or too much to build, without recursion."""
        depth = nodes = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.events.NodeEvent):
                nodes += 1
            if isinstance(event, yaml.events.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.events.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise self.refuse(event, f"nested more than {MAX_DEPTH} deep")
            if nodes > MAX_NODES:
                raise self.refuse(event, f"the file has more than {MAX_NODES} values")

    def document(self, root: yaml.Node) -> Node:
        self.done.clear()
        return self.build(root, 0).node

    def build(self, node: yaml.Node, depth: int) -> _Built:
        # An anchored node is one object wherever its alias stands: it is built once, and counted each time.
        if id(node) in self.done:
            return self.done[id(node)]
        if id(node) in self.open:
            raise self.refuse(node, "would expand without bound: an alias stands inside its own anchor")
        self.open.add(id(node))
        match node:
            case yaml.ScalarNode():
                built = _Built(self.scalar(node), 1, 1)
            case yaml.SequenceNode():
                self.check_tag(node, "seq")
                children = [self.build(child, depth + 1) for child in node.value]
                last = _last_line(node, (child.node.place for child in children))
                built = _Built.around(Items(tuple(child.node for child in children), _place(node, last)), children)
            case yaml.MappingNode():
                built = self.table(node, depth)
            case _:
                raise AssertionError("PyYAML has three kinds of node")
        if built.size > MAX_NODES:
            raise self.refuse(node, f"would expand without bound: its aliases stand for more than {MAX_NODES} values")
        if depth + built.height > MAX_DEPTH + 1:
            raise self.refuse(node, f"nested more than {MAX_DEPTH} deep")
        self.open.discard(id(node))
        self.done[id(node)] = built
        return built

    def table(self, node: yaml.MappingNode, depth: int) -> _Built:
        self.check_tag(node, "map")
        entries: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        merged: list[Table] = []
        children: list[_Built] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.refuse(key, "a key is a list or a mapping", "text")
            name, where = key.value, _place(key, key.start_mark.line + 1)
            children.append(self.build(value, depth + 1))
            child = children[-1].node
            if key.tag == _PREFIX + "merge":
                merged.extend(self.merge(value, child))
            elif name in entries:
                raise self.refuse(key, f"the key {name!r} stands here twice: the first is in line {keys[name].line}")
            else:
                entries[name], keys[name] = child, where
        last = _last_line(node, (*keys.values(), *(child.node.place for child in children)))
        for table in merged:  # a key of the mapping itself wins, then the first of the merged
            for name, child in table.entries.items():
                if name not in entries:
                    entries[name], keys[name] = child, table.keys[name]
        return _Built.around(Table(entries, keys, _place(node, last)), children)

    def merge(self, node: yaml.Node, built: Node) -> list[Table]:
        tables = built.items if isinstance(built, Items) else (built,)
        if not all(isinstance(table, Table) for table in tables):
            raise self.refuse(node, "a merge key (<<) takes a mapping or a list of mappings")
        return [table for table in tables if isinstance(table, Table)]

    def check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _PREFIX + kind:
            raise self.refuse(node, f"the tag {node.tag.replace(_PREFIX, '!!')} is not part of the language")

    def scalar(self, node: yaml.ScalarNode) -> Scalar:
        kind = node.tag.removeprefix(_PREFIX)
        text = node.value
        value: str | int | float | bool | None
        match kind:
            case "str" | "timestamp" | "value" | "merge":
                value = text
            case "null":
                value = None
            case "int":
                value = self.integer(node)
            case "bool" | "float":
                try:
                    construct = self.scalars.construct_yaml_bool if kind == "bool" else self.scalars.construct_yaml_float
                    value = construct(node)
                except (ValueError, KeyError, OverflowError):
                    raise self.refuse(node, f"{text[:40]!r} is no {kind}") from None
            case _:
                raise self.refuse(node, f"the tag {node.tag.replace(_PREFIX, '!!')} is not part of the language")
        last = node.end_mark.line + 1
        if node.end_mark.column == 0 and last > node.start_mark.line + 1:  # a block scalar ends with its line break
            last -= 1
        return Scalar(value, text, _place(node, last))

    def integer(self, node: yaml.ScalarNode) -> int:
        text = node.value
        if _AMBIGUOUS_INT.match(text):
            raise self.refuse(node, f"{text[:40]!r} is no decimal number", "a number without leading zeros, or text in quotes")
        digits = text.lstrip("+-").replace("_", "")
        try:
            if len(digits) > MAX_DIGITS + 50:
                raise OverflowError
            value = int(self.scalars.construct_yaml_int(node))
        except ValueError:
            raise self.refuse(node, f"{text[:40]!r} is no whole number") from None
        except OverflowError:
            value = 1 << 64
        if not -(1 << 63) <= value < 1 << 63:
            raise self.refuse(node, "the number does not fit 64 bits")
        return value


def _place(node: Any, last_line: int) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1, last_line)


def _last_line(node: yaml.CollectionNode, parts: Iterable[Place]) -> int:
    """The last line of a collection: its end mark, for a block one the end of its last child (not of an alias)."""
    if node.flow_style:
        return _place(node, 0).line if node.end_mark is None else node.end_mark.line + 1
    return max([_place(node, 0).line, *(part.last_line for part in parts)])


def _line_column(before: str) -> tuple[int, int]:
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1

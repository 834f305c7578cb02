"""YAML text to trees of values with positions, within limits.

PyYAML parses; this module builds, keeps where every key and value stands, and refuses by name what a scenario may
not be: text that is not UTF-8, duplicate keys, tags, nesting without end, aliases that multiply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.resolver import Resolver

from kvspec.language.nodes import Items, Node, Scalar, Span, Table
from kvspec.language.problems import Problem
from kvspec.language.slips import find_slip
from kvspec.nearest import nearest
from kvspec.scenario import Position

MAX_FILE_BYTES = 8 << 20
MAX_DEPTH = 50
MAX_NODES = 200_000
MAX_DIGITS = 70
"""Longer numbers are not even read: nothing above 64 bits is allowed, in whatever base."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_AMBIGUOUS_INT = re.compile(r"[-+]?0[0-9_]+|.*:")
_RESOLVER = Resolver()
_SCALARS = SafeConstructor()


class Refused(Exception):
    """A text that cannot be read any further. ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        """An error that carries ``problem``."""
        super().__init__(str(problem))
        self.problem = problem


def read_documents(path: Path, data: bytes) -> list[Node]:
    """The documents of a file.

    :raises Refused: the file cannot be read as YAML, or is beyond a limit.
    """
    text = _decode(path, data)
    builder = _Builder(path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise Refused(_syntax(path, text, error)) from None
    except yaml.YAMLError as error:
        raise Refused(Problem(Position(path, 1, 1), f"not YAML: {' '.join(str(error).split())}")) from None
    if not builder.roots:
        raise Refused(Problem(Position(path, 1, 1), "the file is empty", "a scenario, which begins with kvspec: 1"))
    return builder.roots


@dataclass(frozen=True, slots=True)
class _Built:
    """A tree, with every alias written out: the number of its values, and how deep they are nested."""

    node: Node
    size: int
    height: int


@dataclass(slots=True)
class _Frame:
    """A collection that is being read. ``key``: the key whose value comes next, in a mapping."""

    start: Any
    mapping: bool
    last_line: int
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Span] = field(default_factory=dict)
    merged: list[Table] = field(default_factory=list)
    key: tuple[str, Span] | None = None
    merging: bool = False
    size: int = 1
    height: int = 0

    @property
    def wants_key(self) -> bool:
        return self.mapping and self.key is None and not self.merging


class _Builder:
    """Builds the documents of one file from PyYAML's events, without recursion."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.roots: list[Node] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, _Built | None] = {}  # None: what it names is still being read
        self.values = 0

    def take(self, event: Any) -> None:
        """Take the next event."""
        kind = type(event)
        if kind is ScalarEvent:
            self.count(event)
            if self.frames and self.frames[-1].wants_key:
                self.take_key(event)
            else:
                self.add(_Built(self.scalar(event), 1, 1), event)
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            self.begin(event)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self.end(event)
        elif kind is AliasEvent:
            self.alias(event)
        elif kind is DocumentStartEvent:
            self.anchors.clear()

    def refuse(self, event: Any, message: str, expected: str | None = None, hint: str | None = None) -> Refused:
        """What to raise about an event."""
        span = _span(event)
        return Refused(Problem(Position(self.path, span.line, span.column), message, expected, hint))

    def count(self, event: Any) -> None:
        self.values += 1
        if self.values > MAX_NODES:
            raise self.refuse(event, f"the file has more than {MAX_NODES} values")

    def begin(self, event: Any) -> None:
        self.count(event)
        mapping = isinstance(event, MappingStartEvent)
        if self.frames and self.frames[-1].wants_key:
            raise self.refuse(event, "a key is a list or a mapping", "text")
        if len(self.frames) >= MAX_DEPTH:
            raise self.refuse(event, f"nested more than {MAX_DEPTH} deep")
        if event.tag not in (None, "!", _PREFIX + ("map" if mapping else "seq")):
            raise self.refuse_tag(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.frames.append(_Frame(event, mapping, event.start_mark.line + 1))

    def end(self, event: Any) -> None:
        frame = self.frames.pop()
        start = frame.start
        # The end mark of a block collection is where the next thing begins.
        last = event.end_mark.line + 1 if start.flow_style else frame.last_line
        span = Span(start.start_mark.line + 1, start.start_mark.column + 1, last)
        for table in frame.merged:  # a key of the mapping itself wins, then the first of the merged
            for name, child in table.entries.items():
                if name not in frame.entries:
                    frame.entries[name], frame.keys[name] = child, table.keys[name]
        node = Table(frame.entries, frame.keys, span) if frame.mapping else Items(tuple(frame.items), span)
        if frame.size > MAX_NODES:
            raise self.refuse(start, f"would expand without bound: its aliases stand for more than {MAX_NODES} values")
        self.add(_Built(node, frame.size, frame.height + 1), start, last)

    def alias(self, event: Any) -> None:
        self.count(event)
        if event.anchor not in self.anchors:
            raise self.refuse(event, f"no anchor {event.anchor!r} before this", None, nearest(event.anchor, self.anchors))
        built = self.anchors[event.anchor]
        if built is None:
            raise self.refuse(event, "would expand without bound: an alias stands inside its own anchor")
        if len(self.frames) + built.height > MAX_DEPTH + 1:
            raise self.refuse(event, f"nested more than {MAX_DEPTH} deep")
        if self.frames and self.frames[-1].wants_key:
            raise self.refuse(event, "a key is an alias", "text")
        self.add(built, event)

    def take_key(self, event: Any) -> None:
        frame, name, span = self.frames[-1], event.value, _span(event)
        if event.tag not in (None, "!", _PREFIX + "str"):
            raise self.refuse_tag(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Built(Scalar(name, name, span), 1, 1)
        frame.last_line = max(frame.last_line, span.last_line)
        if name == "<<" and event.implicit[0]:
            frame.merging = True
            return
        if name in frame.keys:
            raise self.refuse(event, f"the key {name!r} stands here twice: the first is in line {frame.keys[name].line}")
        frame.key = name, span

    def add(self, built: _Built, event: Any, last_line: int | None = None) -> None:
        """Put a value where it belongs; ``event`` is where it is written, which for an alias is not where it stands."""
        if not isinstance(event, AliasEvent) and event.anchor is not None:
            self.anchors[event.anchor] = built
        if not self.frames:
            self.roots.append(built.node)
            return
        frame = self.frames[-1]
        frame.last_line = max(frame.last_line, last_line or _span(event).last_line)
        frame.size += built.size
        frame.height = max(frame.height, built.height)
        if frame.merging:
            frame.merged.extend(self.merge(event, built.node))
            frame.merging = False
        elif frame.key is not None:
            name, span = frame.key
            frame.entries[name], frame.keys[name] = built.node, span
            frame.key = None
        else:
            frame.items.append(built.node)

    def merge(self, event: Any, node: Node) -> list[Table]:
        tables = node.items if isinstance(node, Items) else (node,)
        if not all(isinstance(table, Table) for table in tables):
            raise self.refuse(event, "a merge key (<<) takes a mapping or a list of mappings")
        return [table for table in tables if isinstance(table, Table)]

    def refuse_tag(self, event: Any) -> Refused:
        return self.refuse(event, f"the tag {event.tag.replace(_PREFIX, '!!')} is not part of the language")

    def scalar(self, event: Any) -> Scalar:
        text = event.value
        if event.tag not in (None, "!"):
            kind = event.tag.removeprefix(_PREFIX)
        else:
            kind = _plain_kind(text) if event.implicit[0] else "str"
        value: str | int | float | bool | None
        match kind:
            case "str" | "timestamp" | "value" | "merge":
                value = text
            case "null":
                value = None
            case "int":
                value = self.integer(event)
            case "bool" | "float":
                try:
                    value = _SCALARS.bool_values[text.lower()] if kind == "bool" else _float(text)
                except (ValueError, KeyError, OverflowError, IndexError):
                    raise self.refuse(event, f"{text[:40]!r} is no {kind}") from None
            case _:
                raise self.refuse_tag(event)
        return Scalar(value, text, _span(event))

    def integer(self, event: Any) -> int:
        text: str = event.value
        if text.isascii() and text.isdigit() and len(text) < 10 and (text[0] != "0" or text == "0"):
            return int(text)
        if _AMBIGUOUS_INT.match(text):
            raise self.refuse(event, f"{text[:40]!r} is no decimal number", "a number without leading zeros, or text in quotes")
        try:
            value = 1 << 64 if len(text) > MAX_DIGITS else _integer(text)
        except (ValueError, IndexError):
            raise self.refuse(event, f"{text[:40]!r} is no whole number") from None
        if not -(1 << 63) <= value < 1 << 63:
            raise self.refuse(event, "the number does not fit 64 bits")
        return value


@lru_cache(maxsize=4096)
def _plain_kind(text: str) -> str:
    """The type of a scalar without quotes: its tag without the prefix."""
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag.removeprefix(_PREFIX)


def _integer(text: str) -> int:
    return int(_SCALARS.construct_yaml_int(yaml.ScalarNode(_PREFIX + "int", text)))


def _float(text: str) -> float:
    return float(_SCALARS.construct_yaml_float(yaml.ScalarNode(_PREFIX + "float", text)))


def _span(event: Any) -> Span:
    start, end = event.start_mark, event.end_mark
    line, last = start.line + 1, end.line + 1
    if end.column == 0 and last > line:  # a block scalar ends with its line break
        last -= 1
    return Span(line, start.column + 1, last)


def _syntax(path: Path, text: str, error: yaml.MarkedYAMLError) -> Problem:
    """What PyYAML does not understand, and where what it was reading begins."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.split("\n")
    after = lines[line - 1][column - 1 :] if line <= len(lines) else ""
    if after.startswith("\t"):
        return Problem(Position(path, line, column), "not YAML: a tab where the indentation ends", "spaces")
    began = error.context_mark.line + 1 if error.context_mark else line
    if (slip := find_slip(text, line, began, error.problem or "")) is not None:
        return Problem(Position(path, slip.line, slip.column), slip.message, slip.expected)
    if after.startswith("- "):
        return Problem(Position(path, line, column), "not YAML: a dash with a space after it, inside a list", "'-' in quotes")
    what = error.problem or "it cannot be read"
    if error.context and error.context_mark and error.context_mark.line + 1 < line:
        what += f", {error.context} that begins in line {error.context_mark.line + 1}"
    return Problem(Position(path, line, column), f"not YAML: {what}")


def _decode(path: Path, data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise Refused(Problem(Position(path, 1, 1), f"the file has more than {MAX_FILE_BYTES} bytes"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _line_column(data[: error.start].decode("utf-8"))
        raise Refused(Problem(Position(path, line, column), f"not UTF-8: the byte 0x{data[error.start]:02x}")) from None
    text = text.removeprefix("\ufeff")
    if found := _NOT_PRINTABLE.search(text):
        line, column = _line_column(text[: found.start()])
        raise Refused(Problem(Position(path, line, column), f"the character U+{ord(found.group()):04X} is not allowed in YAML"))
    return text


def _line_column(before: str) -> tuple[int, int]:
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1

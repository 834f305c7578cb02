"""The canonical form of a scenario file: one way to write each thing, so that a change shows what has changed. Comments stay.

Keys in the order of the language page, two columns a level, lists two columns in from their key, mappings and lists in
braces and brackets with one space after each comma. Double quotes are around what needs them, ``"-"`` (which not every reader of
YAML takes plain in brackets), and names with a colon, such as ``"page:chat.0"``, which look like a mapping. An ``expect`` that
does not fit a line has a line for each expectation; nothing is wrapped.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

from kvspec.language.nodes import plain
from kvspec.language.reader import read_documents
from kvspec.ops import VERBS
from kvspec.words.document import HEAD, MANAGER, STEP

WIDTH = 130
"""An ``expect`` that would be longer is written in lines."""

_NOTHING_TO_SAY = re.compile(rf"^(  - )({'|'.join(VERBS)}): null$")
_QUOTED = re.compile(r"-|\S*:\S*")
_ORDER_BEHIND_VERB = ("returns", "raises", "note", "expect")


class CannotFormat(Exception):
    """A file that cannot be written in its canonical form without losing something; ``str()`` of it says what."""


def formatted(path: Path, text: str) -> str:
    """The text of a well-formed file in its canonical form. The same again for what it returns.

    :raises CannotFormat: values or comments would change; the file stays as it is.
    """
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 1 << 30
    yaml.preserve_quotes = False
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.Representer = _Representer
    yaml.Emitter = _Emitter
    try:
        documents = list(yaml.load_all(text))
        for document in documents:
            _document(document)
        out = io.StringIO()
        yaml.dump_all(documents, out)
    except YAMLError as error:
        raise CannotFormat(f"{path}: cannot be formatted: {' '.join(str(error).split())}") from None
    lines = [_NOTHING_TO_SAY.sub(r"\1\2:", line.rstrip()) for line in out.getvalue().splitlines()]
    result = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"
    if text.startswith("---") and not result.startswith("---"):
        result = f"---\n{result}"
    _must_say_the_same(path, text, result)
    return result


class _Emitter(Emitter):
    """Double quotes where ruamel takes single ones, unless that would need escapes."""

    def choose_scalar_style(self) -> Any:
        style = super().choose_scalar_style()
        return '"' if style == "'" and not re.search(r'["\\]', self.event.value) else style


class _Representer(RoundTripRepresenter):
    """``null`` in full; it is easily overlooked otherwise. Quotes around names with a colon."""

    def represent_str(self, data: Any) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if _QUOTED.fullmatch(data) else None)

    def represent_none(self, data: Any) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(str, _Representer.represent_str)
_Representer.add_representer(type(None), _Representer.represent_none)


def _document(document: Any) -> None:
    if not isinstance(document, CommentedMap):
        return
    _order(document, tuple(HEAD))
    if isinstance(manager := document.get("manager"), CommentedMap):
        _order(manager, tuple(MANAGER))
    for step in document.get("steps") or ():
        if not isinstance(step, CommentedMap):
            continue
        _order(step, (*(key for key in step if key not in STEP), *_ORDER_BEHIND_VERB))
        expect = step.get("expect")
        if isinstance(expect, CommentedMap) and _width(expect) + len("    expect: ") > WIDTH:
            expect.fa.set_block_style()


def _order(mapping: CommentedMap, order: tuple[str, ...]) -> None:
    """Sort keys, unless a comment stands among them: it would end up beside another."""
    wanted = [key for key in order if key in mapping]
    if wanted == list(mapping) or mapping.ca.items or any(key not in wanted for key in mapping):
        return
    for key in wanted:
        mapping.move_to_end(key)


def _width(value: Any) -> int:
    """How long a value is in braces and brackets."""
    if isinstance(value, CommentedMap | dict):
        return 2 + sum(len(str(key)) + 2 + _width(one) + 2 for key, one in value.items()) - 2 * bool(value)
    if isinstance(value, CommentedSeq | list):
        return 2 + sum(_width(one) + 2 for one in value) - 2 * bool(value)
    if isinstance(value, bool) or value is None:
        return 5
    quoted = isinstance(value, DoubleQuotedScalarString | SingleQuotedScalarString) or _QUOTED.fullmatch(str(value))
    return len(str(value)) + 2 * bool(quoted)


def _must_say_the_same(path: Path, before: str, after: str) -> None:
    old = [plain(node) for node in read_documents(path, before.encode())]
    new = [plain(node) for node in read_documents(path, after.encode())]
    if repr(old) != repr(new) and old != new:
        raise CannotFormat(f"{path}: cannot be formatted: a value would change; it stays as it is")
    if _comments(before) != _comments(after):
        raise CannotFormat(f"{path}: cannot be formatted: a comment would be lost; it stays as it is")


def _comments(text: str) -> Counter[str]:
    return Counter(found.strip() for line in text.splitlines() for found in re.findall(r"(?:^|\s)(#.*)$", line))

"""What somebody meant who wrote text that is no YAML: a space too many, a colon too few.

A YAML parser notices a slip where it can go no further, and says what it would have liked to see there. That is often the
line too late, and seldom what to do. Here the lines around are looked at for the slips that people make.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from kvspec.ops import VERBS
from kvspec.words.document import HEAD, MANAGER, STEP
from kvspec.words.expectations import EXPECTATIONS


@dataclass(frozen=True, slots=True)
class Slip:
    """What is wrong: line and column from 1, and what should stand there."""

    line: int
    column: int
    message: str
    expected: str | None


@dataclass(frozen=True, slots=True)
class _Stuck:
    """Where the parser gave up: its line from 1, the line where what it was reading began, and what it said."""

    lines: list[str]
    line: int
    began: int
    said: str

    def text(self, line: int) -> str:
        return self.lines[line - 1] if 1 <= line <= len(self.lines) else ""

    def before(self) -> int:
        """The last line with something in it before the one where it gave up."""
        return next((number for number in range(self.line - 1, 0, -1) if _content(self.text(number))), 0)


def find_slip(text: str, line: int, began: int, said: str) -> Slip | None:
    """The slip that explains why a parser gave up in ``line``; ``None`` if none of the usual ones does.

    :param began: the line where what it was reading began.
    :param said: its own words.
    """
    stuck = _Stuck(text.split("\n"), line, began, said)
    found = (look(stuck) for look in _LOOKS)
    return next((slip for slip in found if slip is not None), None)


def _strange_space(stuck: _Stuck) -> Slip | None:
    for number in sorted({stuck.began, stuck.before(), stuck.line}):
        found = strange_space(stuck.text(number))
        if found is not None:
            return Slip(number, found[0] + 1, found[1], "a space")
    return None


def strange_space(text: str) -> tuple[int, str] | None:
    """Where text has the first character, comments aside, that looks like a space and is none, and what to say of it."""
    for place, character in enumerate(text):
        if character == "#" and text[:place].strip(" ") == "":
            break
        if not character.isascii() and (character.isspace() or unicodedata.category(character) in ("Zs", "Cf")):
            name = unicodedata.name(character, "strange space").lower()
            return place, f"a {name} (U+{ord(character):04X}), which looks like a space and is none"
    return None


def _dash_without_space(stuck: _Stuck) -> Slip | None:
    for number in (stuck.line, stuck.before()):
        if found := re.match(r"( *)-([A-Za-z_]\w*)(.*)$", stuck.text(number)):
            meant = f"- {found[2]}{found[3]}".strip()
            return Slip(number, len(found[1]) + 1, "no space after the dash", repr(meant) if len(meant) < 60 else "a space")
    return None


def _colon_missing(stuck: _Stuck) -> Slip | None:
    here = re.match(r"( *(?:- +)*)(\w+) (?=[{\[])", stuck.text(stuck.line))
    if "mapping values" in stuck.said and here is not None and here[2] in (*VERBS, "expect", "manager", "levels", "layers"):
        return Slip(stuck.line, here.end(2) + 1, f"no colon after {here[2]!r}", f"'{here[2]}:'")
    if "expected ':'" in stuck.said:
        number = stuck.began
    elif "mapping values" in stuck.said and _indent(stuck.text(stuck.line)) > _indent(stuck.text(stuck.before())):
        number = stuck.before()
    else:
        return None
    body = _content(stuck.text(number))
    column = len(stuck.text(number)) - len(stuck.text(number).lstrip(" -")) + 1
    if found := re.fullmatch(r"(\w+):(\S.*)", body):
        return Slip(number, column + len(found[1]) + 1, "no space after the colon", f"'{found[1]}: {found[2]}'")
    if re.fullmatch(r"\w+", body):
        return Slip(number, column + len(body), f"no colon after {body!r}", f"'{body}:'")
    found = re.fullmatch(r"(\w+) ([\w{\[].*)", body)
    if found is not None and ": " not in body.partition("{")[0]:
        return Slip(number, column + len(found[1]), f"no colon after {found[1]!r}", f"'{found[1]}: {found[2]}'")
    return None


def _colon_in_text(stuck: _Stuck) -> Slip | None:
    text = stuck.text(stuck.line)
    found = re.fullmatch(r"( *(?:- +)*)(\w+): +([^\"'{\[|>&*#].*?)\s*", text)
    if "mapping values" not in stuck.said or found is None or ": " not in f"{found[3]} ":
        return None
    value = found[3].replace("'", "''")
    column = len(found[1]) + len(found[2]) + 2 + found[3].index(":") + 1
    return Slip(stuck.line, column, "a colon and a space inside text", f"the text in quotes: {found[2]}: '{value}'")


@dataclass(frozen=True, slots=True)
class _Open:
    """A list or a mapping that a line stands in: where its entries begin, and its first line."""

    column: int
    dash: bool
    line: int


def _indentation(stuck: _Stuck) -> Slip | None:
    if not any(
        words in stuck.said for words in ("block sequence", "expected '-'", "expected key", "mapping values", "block end")
    ):
        return None
    number, text = stuck.line, stuck.text(stuck.line)
    if not _content(text):
        return None
    indent, dash = _indent(text), text.lstrip(" ").startswith("- ")
    fitting = [one for one in _open_at(stuck) if one.dash is dash]
    if not fitting or any(one.column == indent for one in fitting):
        return None
    near = min(fitting, key=lambda one: (abs(one.column - indent), -one.column))
    if dash and near.line == _first_sibling(stuck, near) and _next_dash(stuck, number) == indent:
        # The entries after it agree with this one: it is the first that stands out.
        number, indent, near = near.line, near.column, _Open(indent, True, number)
    what = "the dash has" if dash else "the line has"
    spaces = "1 space" if indent == 1 else f"{indent} spaces"
    gap = abs(near.column - indent)
    likely = [near] if near.line > number else [one for one in fitting if abs(one.column - indent) == gap]
    likely = [one for one in likely if _alike(text, stuck.text(one.line))] or likely
    wanted = " or ".join(f"{one.column}, as in line {one.line}" for one in likely)
    return Slip(number, indent + 1, f"{what} {spaces} before it", wanted)


def _alike(text: str, other: str) -> bool:
    """Whether the keys of two lines are words that stand in one mapping."""
    keys = {_content(text).partition(":")[0], _content(other).partition(":")[0]}
    return any(keys <= words for words in _TOGETHER)


_TOGETHER = (set(HEAD), set(MANAGER), {*STEP, *VERBS}, set(EXPECTATIONS))


def _open_at(stuck: _Stuck) -> list[_Open]:
    """The lists and mappings that are open at the line where the parser gave up."""
    found: list[_Open] = []
    for number in range(1, stuck.line):
        text = stuck.text(number)
        if not _content(text):
            continue
        if text.startswith("---"):
            found = []
            continue
        indent, rest = _indent(text), text.lstrip(" ")
        found = [one for one in found if one.column <= indent]
        while rest.startswith("- "):
            if _Open(indent, True, 0) not in [_Open(one.column, one.dash, 0) for one in found]:
                found.append(_Open(indent, True, number))
            indent += 1 + len(rest[1:]) - len(rest[1:].lstrip(" "))
            rest = rest[1:].lstrip(" ")
            found = [one for one in found if one.column < indent]
        if re.match(r"[^\s{\[\"'#][^#]*?:( |$)", rest) and not any(one.column == indent and not one.dash for one in found):
            found.append(_Open(indent, False, number))
    return found


def _first_sibling(stuck: _Stuck, near: _Open) -> int:
    """The line of the only entry so far of a list; 0 if there are several."""
    several = any(
        _indent(text) == near.column and text.lstrip(" ").startswith("- ")
        for text in (stuck.text(number) for number in range(near.line + 1, stuck.line))
    )
    return 0 if several else near.line


def _next_dash(stuck: _Stuck, line: int) -> int:
    """The indentation of the next entry of a list; -1 if there is none."""
    for number in range(line + 1, len(stuck.lines) + 1):
        text = stuck.text(number)
        if text.lstrip(" ").startswith("- "):
            return _indent(text)
    return -1


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _content(text: str) -> str:
    """What a line says, without its dashes and its comment."""
    return re.sub(r"(^|\s)#.*$", "", text).strip(" -").strip()


_LOOKS: tuple[Callable[[_Stuck], Slip | None], ...] = (
    _strange_space,
    _dash_without_space,
    _colon_in_text,
    _colon_missing,
    _indentation,
)


def without_colon(word: str) -> str | None:
    """What a step means that is one text, such as ``resume chat``: the verb with its colon."""
    verb, _, rest = word.partition(":") if ":" in word else word.partition(" ")
    return f"{verb}: {rest.strip()}" if verb in VERBS and rest.strip() else None

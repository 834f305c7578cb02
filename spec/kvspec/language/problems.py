"""What can be wrong with a file, as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvspec.scenario import Position

MAX_TEXT = 1000
"""A message is cut here: names in a file can be of any length."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file.

    ``message``: what is wrong; ``expected``: what should stand there, if that is not obvious; ``hint``: the
    nearest valid name.
    """

    position: Position
    message: str
    expected: str | None = None
    hint: str | None = None

    @property
    def text(self) -> str:
        """The message without its position: what is wrong, what was expected, the nearest valid name."""
        text = self.message
        if self.expected is not None:
            text += f": expected {self.expected}"
        if self.hint is not None:
            text += f"; did you mean {self.hint!r}?"
        text = " ".join(text.split())  # a key may contain line breaks
        return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."

    def __str__(self) -> str:
        """``file:line:column: message``, one line."""
        return f"{self.position}: {self.text}"


class ScenarioFileError(Exception):
    """A file that is wrong. ``problems``: everything that was found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """An error whose text is the problems, a line each."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def listed(names: Iterable[object], word: str = "and") -> str:
    """Names as a reader would list them: ``a, b and c``."""
    texts = [str(name) for name in names]
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {word} {texts[-1]}"


def one_of(names: Sequence[str]) -> str:
    """What to expect where one of these names must stand; a long list is cut."""
    if len(names) == 1:
        return names[0]
    if len(names) > 12:
        return f"one of {', '.join(names[:10])} and {len(names) - 10} more"
    return f"one of {listed(names, 'or')}"


def shown(value: object) -> str:
    """A YAML value as a message quotes it, short."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return repr(value) if len(value) <= 60 else repr(value[:57]) + "..."
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return repr(value)

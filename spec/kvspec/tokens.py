"""Tokens and their keys: what makes two tokens the same (R2.7), and how a scenario writes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import total_ordering
from itertools import groupby
from typing import Any, Protocol, TypeAlias


@total_ordering
@dataclass(frozen=True, slots=True)
class Keyed:
    """A token that has a key. ``request``: that of its request; ``own``: its own, of a commit or a span. One that has neither
    is a plain number.
    """

    number: int
    request: str | None = None
    own: str | None = None

    def __str__(self) -> str:
        """``7@salt``, ``7@/image``, ``7@salt/image``."""
        return f"{self.number}@{self.request or ''}" + ("" if self.own is None else f"/{self.own}")

    __repr__ = __str__

    def __add__(self, step: int) -> Keyed:
        """The token so many numbers further, with the same keys."""
        return Keyed(self.number + step, self.request, self.own)

    def __lt__(self, other: Token) -> bool:
        """By number, then by keys: an order for lists that are shown."""
        return _place(self) < _place(other)


Token: TypeAlias = int | Keyed


class Marked(Protocol):
    """A part of a list of tokens that has a key: the tokens from ``start`` up to ``end``, which is not in it."""

    @property
    def start(self) -> int:
        """Its first token, from 0."""
        ...

    @property
    def end(self) -> int:
        """The token behind its last."""
        ...

    @property
    def key(self) -> str:
        """The key."""
        ...


def keyed(
    numbers: Sequence[int], request: str | None = None, own: str | None = None, spans: Iterable[Marked] = ()
) -> tuple[Token, ...]:
    """Tokens with their keys. ``request``: of the request; ``own``: of a commit of all of them, or ``spans``: of parts."""
    of_part: dict[int, str] = {}
    for span in spans:
        of_part.update(dict.fromkeys(range(span.start, span.end), span.key))
    if request is None and own is None and not of_part:
        return tuple(numbers)
    return tuple(_token(number, request, of_part.get(place, own)) for place, number in enumerate(numbers))


def numbers(tokens: Iterable[Token]) -> tuple[int, ...]:
    """The tokens without their keys."""
    return tuple(token.number if isinstance(token, Keyed) else token for token in tokens)


def written(tokens: Sequence[Token]) -> dict[str, Any]:
    """A prefix as a scenario writes it: ``tokens``, and ``key`` and ``spans`` where there are any."""
    said: dict[str, Any] = {"tokens": list(numbers(tokens))}
    if tokens and isinstance(tokens[0], Keyed) and tokens[0].request is not None:
        said["key"] = tokens[0].request
    spans, start = [], 0
    for own, run in groupby(token.own if isinstance(token, Keyed) else None for token in tokens):
        end = start + len(list(run))
        if own is not None:
            spans.append({"start": start, "end": end, "key": own})
        start = end
    if spans:
        said["spans"] = spans
    return said


def _token(number: int, request: str | None, own: str | None) -> Token:
    return number if request is None and own is None else Keyed(number, request, own)


def _place(token: Token) -> tuple[int, str, str]:
    return (token.number, token.request or "", token.own or "") if isinstance(token, Keyed) else (token, "", "")

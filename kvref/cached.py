"""What is reserved and cached of fetched history, and what fetches leave: values of the state (section 15)."""

from __future__ import annotations

from dataclasses import dataclass

from kvref.maps import Map
from kvref.order import NOTHING, Work
from kvspec.payload import Content


@dataclass(frozen=True)
class Slot:
    """A slot that holds no page: its number, and the fence that its next use runs after (R7.2)."""

    number: int
    fence: Work


@dataclass(frozen=True)
class Cached:
    """A block, or a unit of one, that is cached (R15.3, R15.11): its number, its entry (R15.11), and the contents of its page."""

    number: int
    entry: int
    content: Content | None


@dataclass(frozen=True)
class Cache:
    """What is cached of a layer, the most recent first (R15.5), and the last fetch of it."""

    cached: tuple[Cached, ...] = ()
    work: Work = NOTHING


@dataclass(frozen=True)
class Reservation:
    """The GPU slots that a request has reserved in a group (R15.2), and what is cached there by layer (R15.3).

    ``held``: they have not been given back. Those of a row as last published are remembered after that (R15.7).
    """

    id: int
    request: str
    group: int
    slots: tuple[Slot, ...] = ()
    caches: Map[str, Cache] = Map()  # noqa: RUF009 - immutable
    held: bool = True


@dataclass(frozen=True)
class Fetched:
    """What a fetch put out (R15.4): by row, as last published, who is there, the entries, and what came of each number."""

    work: Work
    layer: str
    requests: tuple[str | None, ...]
    entries: tuple[tuple[int, ...], ...]
    found: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class FetchCount:
    """What a fetch adds to the counters of a group when it has run (R15.10)."""

    work: Work
    group: int
    hits: int
    misses: int
    nbytes: int


@dataclass(frozen=True)
class CapturedFetch:
    """A fetch in a graph (R15.8): of which batch and layer, and its label."""

    batch: int
    layer: str
    label: str


Captured = tuple[int, int] | CapturedFetch
"""What a graph has: a table read, by batch and attention group, or a fetch."""

"""What a replay ends in, in names that do not depend on slots: device tables, payloads, what reads and fetches returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kvspec.harness.memory import Memory, read_positions
from kvspec.harness.naming import Index, PageKey, page_name
from kvspec.harness.payloads import payload_text
from kvspec.observation import Observation, ReadView
from kvspec.payload import Content, Part
from kvspec.refs import group_shapes
from kvspec.scenario import Scenario, Step
from kvspec.system import Outcome

Names: TypeAlias = tuple[tuple[str, ...], ...]
Table: TypeAlias = tuple[Names, tuple[int, ...], object]
"""A group's tables as they are on the device: entries by name, counts, levels."""
Payload: TypeAlias = Content | bytes | None
Cached: TypeAlias = tuple[tuple[int, Part | bytes | None], ...]
"""What is cached of a layer, the most recent first: numbers, with what is there."""
Entry: TypeAlias = tuple[str, str, int]
"""A request, a layer, and a number that is cached."""
Written: TypeAlias = tuple[frozenset[PageKey], frozenset[str], frozenset[Entry]]


@dataclass(frozen=True, slots=True)
class SideEnding:
    """How one system ends.

    ``tables``: by batch and group, what is on the device. ``payloads``: by page, with the page's name for the reader.
    ``reads``: by label, the payload that a page read returned, or every reading of the rows that a table read returned
    (publications with the same entries can be read in several ways). ``cached``: by request and layer. ``fetched``: by label, by
    row, who was in it and what came of each number.
    """

    tables: Mapping[tuple[str, str], Table]
    payloads: Mapping[PageKey, tuple[str, Payload]]
    reads: Mapping[str, Payload | frozenset[Names]]
    cached: Mapping[tuple[str, str], Cached] = field(default_factory=dict)
    fetched: Mapping[str, tuple[tuple[str | None, tuple[str, ...]], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """How both systems end, the reference first."""

    sides: tuple[SideEnding, SideEnding]


@dataclass(slots=True)
class _Seen:
    memory: Memory
    before: Index | None = None


class Endings:
    """Follows a replay by its ``look``, step by step."""

    def __init__(self, scenario: Scenario) -> None:
        """For one replay of a scenario."""
        groups = tuple(group_shapes(scenario.manager))
        self._sides = (_Seen(Memory(groups)), _Seen(Memory(groups)))

    def look(self, step: Step, reference: Observation, implementation: Observation) -> None:
        """Take in a step that held."""
        # The step held, so its error, if any, is the one that it says.
        outcome = Outcome() if step.raises is None else Outcome.failed(step.raises, "")
        for side, observation in zip(self._sides, (reference, implementation), strict=True):
            now = Index(observation)
            side.memory.update(step.number, step.op, outcome, side.before, now)
            side.before = now

    def ending(self) -> Ending:
        """What the systems show after the last step. At least one step must have been taken in."""
        written = self._written()
        one, two = (_side(side.memory, side.before, written) for side in self._sides)
        return Ending((one, two))

    def _written(self) -> Written:
        """The pages, labels of page reads and cached numbers whose content is defined: the reference names it."""
        index = self._sides[0].before
        assert index is not None
        pages = frozenset(key for key, page in zip(index.keys, index.pages, strict=True) if page.payload is not None)
        reads = frozenset(label for label, read in index.observation.reads.items() if read.payload is not None)
        cached = frozenset(
            (name, layer, one.number)
            for name, layers in index.observation.caches.items()
            for layer, view in layers.items()
            for one in view.cached or ()
            if one.payload is not None
        )
        return pages, reads, cached


def _side(memory: Memory, index: Index | None, written: Written) -> SideEnding:
    assert index is not None
    tables: dict[tuple[str, str], Table] = {}
    for name, view in index.observation.batches.items():
        last = memory.batches[name].last
        for group, entries in view.device.items():
            tables[name, group] = last.names(group, entries.page_table), entries.num_blocks, entries.page_level
    payloads = {
        key: (page_name(page), page.payload) for key, page in zip(index.keys, index.pages, strict=True) if key in written[0]
    }
    reads = {
        label: _read(memory, label, view)
        for label, view in index.observation.reads.items()
        if view.entries is not None or label in written[1]
    }
    return SideEnding(tables, payloads, reads, _cached(index.observation, written[2]), _fetched(index.observation))


def _cached(seen: Observation, defined: frozenset[Entry]) -> dict[tuple[str, str], Cached]:
    return {
        (name, layer): tuple((one.number, one.payload if (name, layer, one.number) in defined else None) for one in view.cached)
        for name, layers in seen.caches.items()
        for layer, view in layers.items()
        if view.cached is not None
    }


def _fetched(seen: Observation) -> dict[str, tuple[tuple[str | None, tuple[str, ...]], ...]]:
    return {
        label: tuple(zip(view.requests, view.found, strict=True))
        for label, view in seen.fetches.items()
        if view.found is not None
    }


def _read(memory: Memory, label: str, view: ReadView) -> Payload | frozenset[Names]:
    if view.entries is None:
        return view.payload
    target = memory.reads[label]
    found = read_positions(target, view.entries)
    return frozenset(target.batch.publications[position].names(target.group, view.entries) for position in found)


def ending_differences(first: Ending, other: Ending, names: tuple[str, str]) -> Iterator[str]:
    """How two endings of one scenario differ, one text each; nothing if they are the same.

    :param names: what the reference and the implementation are called.
    """
    for name, one, two in zip(names, first.sides, other.sides, strict=True):
        for batch, group in sorted(one.tables.keys() | two.tables.keys()):
            tables = one.tables.get((batch, group)), two.tables.get((batch, group))
            if tables[0] != tables[1]:
                yield f"{name}: device tables of {batch}.{group}: {_table(tables[0])}, then {_table(tables[1])}"
        for key in sorted(one.payloads.keys() | two.payloads.keys(), key=str):
            pages = one.payloads.get(key), two.payloads.get(key)
            if pages[0] is None or pages[1] is None:
                page = pages[0] or pages[1]
                assert page is not None
                yield f"{name}: page {page[0]} is there in only one of the two orders"
            elif pages[0][1] != pages[1][1]:
                said = [payload_text(page[1], ()) for page in pages if page is not None]
                yield f"{name}: payload of {pages[0][0]}: {said[0]}, then {said[1]}"
        yield from _read_differences(name, one, two)
        yield from _fetch_differences(name, one, two)


def _read_differences(name: str, one: SideEnding, two: SideEnding) -> Iterator[str]:
    for label in sorted(one.reads.keys() | two.reads.keys()):
        if label not in one.reads or label not in two.reads:
            yield f"{name}: read {label} has a result in only one of the two orders"
            continue
        first, other = one.reads[label], two.reads[label]
        if isinstance(first, frozenset) and isinstance(other, frozenset):
            if first.isdisjoint(other):
                yield f"{name}: table read {label}: {_rows(first)}, then {_rows(other)}"
        elif first != other:
            said = [payload_text(payload, ()) if not isinstance(payload, frozenset) else "rows" for payload in (first, other)]
            yield f"{name}: page read {label}: {said[0]}, then {said[1]}"


def _fetch_differences(name: str, one: SideEnding, two: SideEnding) -> Iterator[str]:
    for key in sorted(one.cached.keys() | two.cached.keys()):
        cached, title = [side.cached.get(key, ()) for side in (one, two)], ".".join(key)
        numbers = [[number for number, _ in each] for each in cached]
        if numbers[0] != numbers[1]:
            yield f"{name}: cached of {title}: {numbers[0]}, then {numbers[1]}"
        elif cached[0] != cached[1]:
            other = [number for (number, was), (_, now) in zip(*cached, strict=True) if was != now]
            yield f"{name}: what is cached of {title}: numbers {other} are not the same in both orders"
    for label in sorted(one.fetched.keys() | two.fetched.keys()):
        if one.fetched.get(label) != two.fetched.get(label):
            yield f"{name}: fetch {label}: {one.fetched.get(label, 'nothing')}, then {two.fetched.get(label, 'nothing')}"


def _table(table: Table | None) -> str:
    if table is None:
        return "none"
    return f"{[list(row) for row in table[0]]}, num_blocks {list(table[1])}"


def _rows(readings: frozenset[Names]) -> str:
    return " or ".join(sorted(str([list(row) for row in reading]) for reading in readings)) or "never published"

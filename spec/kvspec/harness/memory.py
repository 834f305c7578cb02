"""What the harness remembers of one system between steps: versions, publications, labels, reads.

Everything here is in that system's own numbers, with what is needed to give them names that both systems share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.harness.naming import Index, PageKey, tree_key
from kvspec.observation import BAD, BatchView, LevelChanged, Observation, PageRef, RequestStatus, SnapshotView, TableEntries
from kvspec.ops import (
    AdmitGeneration,
    BeginCapture,
    CloseGate,
    Create,
    EndCapture,
    Iterate,
    OpenGate,
    Operation,
    ReadTable,
    Replay,
    Resume,
    SetStream,
    TakeSnapshot,
)
from kvspec.refs import RefError, one_group
from kvspec.system import Outcome

Rows: TypeAlias = tuple[tuple[int, ...], ...]


class Versions:
    """At which step each version of each request was first seen (R6.4)."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._seen: dict[str, dict[int, int]] = {}

    def update(self, step: int, before: Observation | None, now: Observation) -> None:
        """Take in what a system shows after a step. A request that replaces a closed one of its name starts anew."""
        for name, view in now.requests.items():
            old = before.requests.get(name) if before is not None else None
            fresh = old is None or (old.status is RequestStatus.CLOSED and view.status is not RequestStatus.CLOSED)
            seen = self._seen.setdefault(name, {})
            if fresh:
                seen.clear()
            seen.setdefault(view.version, step)
            if view.status is RequestStatus.CLOSED and len(seen) > 2:  # it shows no other any more (R3.10)
                for version in seen.keys() - {view.version, view.acknowledged}:
                    del seen[version]

    def step_of(self, request: str, version: int) -> int | None:
        """The step after which a version was first seen; ``None``: never."""
        return self._seen.get(request, {}).get(version)

    def copy(self) -> Versions:
        """The same, to go on by itself."""
        other = Versions()
        other._seen = {request: dict(seen) for request, seen in self._seen.items()}
        return other


@dataclass(frozen=True, slots=True)
class RowRecord:
    """What a row's publication could name: its member, and by group the slot of every mapped (request, block) then.

    ``held``: likewise the slots of pages that a request referred to without having them mapped.
    """

    request: str | None
    slots: Mapping[str, Mapping[tuple[str, int], int]]
    held: Mapping[str, Mapping[tuple[str, int], int]]
    step: int
    _named: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = field(default_factory=dict, compare=False)

    def names(self, group: str, row: tuple[int, ...]) -> tuple[str, ...]:
        """A row of the table in names. Entries that it had last time have the names that they had."""
        known = self._named.get(group)
        if known is not None and known[0] == row:
            return known[1]
        names = tuple([self.entry(group, column, word) for column, word in enumerate(row)])
        if type(row) is tuple:  # a list may be another one when it is shown again
            self._named[group] = row, names
        return names

    def slot(self, group: str, name: tuple[str, int]) -> int | None:
        """Where the page of a (request, block) was, if it had one."""
        found = self.slots.get(group, {}).get(name)
        return self.held.get(group, {}).get(name) if found is None else found

    def entry(self, group: str, column: int, word: int) -> str:
        """A table word as ``-`` or ``request.block``: the member's own block if it is there, else whoever was."""
        if word == BAD:
            return "-"
        slots = self.slots.get(group, {})
        if self.request is not None and slots.get((self.request, column)) == word:
            return f"{self.request}.{column}"
        others = sorted(key for key, slot in slots.items() if slot == word)
        return f"{others[0][0]}.{others[0][1]}" if others else f"slot {word}"


@dataclass(frozen=True, slots=True)
class Publication:
    """One publication of a batch: its entries, and what the entries of each row mean. Step -1: before the first."""

    step: int
    entries: Mapping[str, TableEntries]
    rows: tuple[RowRecord | None, ...]

    def names(self, group: str, entries: Rows | None = None) -> tuple[tuple[str, ...], ...]:
        """The page table of a group, or other ``entries`` of its shape, in names."""
        table = self.entries[group].page_table if entries is None else entries
        return tuple(
            _unnamed(row) if record is None else record.names(group, row) for record, row in zip(self.rows, table, strict=False)
        )


@dataclass(slots=True)
class BatchMemory:
    """The publications of one open batch. ``settled``: the earliest that its device entries may still show."""

    publications: list[Publication]
    address: Mapping[str, tuple[int, ...]]
    dirty: frozenset[int]
    settled: int = 0
    shown: frozenset[int] = frozenset()

    @property
    def last(self) -> Publication:
        """The publication that was submitted last."""
        return self.publications[-1]

    @property
    def published(self) -> bool:
        """Whether there has been a publication at all."""
        return len(self.publications) > 1


@dataclass(frozen=True, slots=True)
class LabelMemory:
    """A labelled snapshot as it was taken. ``version_step``: when its version first appeared."""

    request: str
    group: str
    beam: int
    step: int
    view: SnapshotView
    version_step: int | None


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """Whose table a labelled read returns."""

    batch: BatchMemory
    group: str


@dataclass(slots=True)
class Memory:
    """All that the harness remembers of one system."""

    groups: tuple[str, ...]
    versions: Versions = field(default_factory=Versions)
    batches: dict[str, BatchMemory] = field(default_factory=dict)
    labels: dict[str, LabelMemory] = field(default_factory=dict)
    reads: dict[str, ReadTarget] = field(default_factory=dict)
    graphs: dict[str, ReadTarget | None] = field(default_factory=dict)
    capturing: str | None = None
    captured: ReadTarget | None = None
    gates: dict[str, int] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    tree_pages: dict[PageRef, PageKey] = field(default_factory=dict)

    def update(self, step: int, op: Operation, outcome: Outcome, before: Index | None, now: Index) -> None:
        """Take in one step: the operation, its outcome, and what the system showed before and shows now."""
        self.versions.update(step, before.observation if before else None, now.observation)
        for name in [name for name in self.batches if name not in now.observation.batches]:
            del self.batches[name]
        for name, view in now.observation.batches.items():
            self._batch(step, name, view, now.observation)
        self._streams(op, outcome)
        self._tree_pages(op, outcome, before, now)
        if outcome.error is None:
            self._labels(step, op, now.observation)

    def _batch(self, step: int, name: str, view: BatchView, now: Observation) -> None:
        memory = self.batches.get(name)
        dirty = frozenset(view.dirty_rows)
        if memory is None:
            blank = {
                group: TableEntries(
                    tuple((BAD,) * len(row) for row in entries.page_table),
                    (0,) * len(entries.num_blocks),
                    None if entries.page_level is None else tuple((BAD,) * len(row) for row in entries.page_level),
                )
                for group, entries in view.published.items()
            }
            first = Publication(-1, blank, (None,) * len(view.rows))
            memory = self.batches[name] = BatchMemory([first], view.address, frozenset(range(len(view.rows))))
        last = memory.last
        rows = list(last.rows)
        slots: Mapping[str, Mapping[tuple[str, int], int]] | None = None
        held: Mapping[str, Mapping[tuple[str, int], int]] = {}
        for row, request in enumerate(view.rows):
            if row in dirty or row >= len(rows):
                continue
            record = rows[row]
            # A clean row shows what its member shows now (R8.3), so this is the moment of its publication unless nothing
            # about it has changed since then.
            changed = (
                row in memory.dirty
                or record is None
                or record.request != request
                or (request is not None and self._version_step(now, request) == step)
                or any(_row(view.published, g, row) != _row(last.entries, g, row) for g in view.published)
            )
            if changed:
                if slots is None:
                    slots, held = _mapped(now), _held(now)
                rows[row] = RowRecord(request, slots, held, step)
        memory.dirty = dirty
        if tuple(rows) != last.rows or dict(view.published) != dict(last.entries):
            memory.publications.append(Publication(step, view.published, tuple(rows)))
        memory.shown = frozenset(
            number
            for number, publication in enumerate(memory.publications)
            if number >= memory.settled and dict(publication.entries) == dict(view.device)
        )
        if memory.shown:
            memory.settled = min(memory.shown)

    def _version_step(self, now: Observation, request: str) -> int | None:
        view = now.requests.get(request)
        return None if view is None else self.versions.step_of(request, view.version)

    def _tree_pages(self, op: Operation, outcome: Outcome, before: Index | None, now: Index) -> None:
        """Which page of the tree each block of a request had last: it may stay there when the request has let go of it.

        Also one that a commit or a close put there and let go of in the same step: it enters the tree where it is (R3.9).
        """
        if isinstance(op, Create) and outcome.error is None:
            for ref in [ref for ref in self.tree_pages if ref.request == op.request]:
                del self.tree_pages[ref]
        for ref in [ref for ref, key in self.tree_pages.items() if not now.in_tree(key)]:
            del self.tree_pages[ref]  # the tree has it no more, and whatever comes there next is another page
        again = isinstance(op, Create)  # what was forgotten of the request's name is found anew
        for number in range(len(now.pages)) if again else now.changed():
            key, page = now.keys[number], now.pages[number]
            if page.tokens is not None:
                self.tree_pages.update(dict.fromkeys(page.refs, key if page.copy_of is None else tree_key(page)))
                if before is not None and not page.refs and key not in before.by_key:
                    old = before.occupant(page.level, page.group, page.slot)
                    if old is not None and before.keys[old][0] == page.group and before.pages[old].block == page.block:
                        self.tree_pages.update(dict.fromkeys(before.pages[old].refs, key))

    def _streams(self, op: Operation, outcome: Outcome) -> None:
        """Follow the stream of each request: one that is given stays set even if the resume fails (R3.2)."""
        match op:
            case Create() if outcome.error is None:
                self.streams.pop(op.request, None)
            case Resume() if outcome.error in (None, ErrorKind.COPY_FAILED):
                if op.stream == "default":
                    self.streams.setdefault(op.request, "exec")
                elif op.stream is not None:
                    self.streams[op.request] = op.stream
            case SetStream() if outcome.error is None:
                self.streams[op.request] = op.stream
            case AdmitGeneration() if outcome.error in (None, ErrorKind.COPY_FAILED):
                self.streams.setdefault(op.request, "exec")
            case Iterate():  # an error may come after requests were resumed; until they are, their stream plays no part
                for entry in op.requests:
                    self.streams.setdefault(entry.request, "exec")

    def _labels(self, step: int, op: Operation, now: Observation) -> None:
        match op:
            case TakeSnapshot():
                view = now.labels.get(op.as_)
                group = self._group(op.group)
                if view is not None and group is not None:
                    since = self.versions.step_of(op.request, view.version)
                    self.labels[op.as_] = LabelMemory(op.request, group, op.beam, step, view, since)
            case BeginCapture():
                self.capturing, self.captured = op.stream, None
            case EndCapture():
                self.graphs[op.as_] = self.captured
                self.capturing = self.captured = None
            case ReadTable():
                group = self._group(op.group)
                if group is None or op.batch not in self.batches:
                    return
                target = ReadTarget(self.batches[op.batch], group)
                if op.stream == self.capturing:
                    self.captured = target
                self.reads[op.as_] = target
            case Iterate():
                if op.as_ is not None and op.batch in self.batches:
                    tables = self.batches[op.batch]
                    # Without a group it is the first that has tables (R11.1).
                    group = op.group if op.group is not None else next((g for g in self.groups if g in tables.last.entries), None)
                    if group is not None:
                        self.reads[op.as_] = ReadTarget(tables, group)
            case Replay():
                found = self.graphs.get(op.graph)
                if found is not None:
                    self.reads[op.as_] = found
            case CloseGate():
                self.gates[op.as_] = step
            case OpenGate():
                self.gates.pop(op.as_, None)

    def _group(self, name: str | None) -> str | None:
        try:
            return one_group(name, self.groups)
        except RefError:
            return None


def _unnamed(row: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(["-" if word == BAD else f"slot {word}" for word in row])


def read_positions(target: ReadTarget, entries: Rows) -> frozenset[int]:
    """The publications of a batch whose page table a read can have returned."""
    return frozenset(
        number
        for number, publication in enumerate(target.batch.publications)
        if target.group in publication.entries and publication.entries[target.group].page_table == entries
    )


def _row(tables: Mapping[str, TableEntries], group: str, row: int) -> object:
    entries = tables.get(group)
    if entries is None or row >= len(entries.page_table) or row >= len(entries.num_blocks):
        return None
    levels = entries.page_level[row] if entries.page_level is not None and row < len(entries.page_level) else None
    return entries.page_table[row], entries.num_blocks[row], levels


def _mapped(now: Observation) -> dict[str, dict[tuple[str, int], int]]:
    slots: dict[str, dict[tuple[str, int], int]] = {group: {} for group in now.groups}
    for name, view in now.requests.items():
        for (group, beam), snapshot in view.snapshots.items():
            if beam == 0:
                for block, slot in enumerate(snapshot.indices):
                    if slot != BAD:
                        slots.setdefault(group, {})[name, block] = slot
    return slots


def _held(now: Observation) -> dict[str, dict[tuple[str, int], int]]:
    slots: dict[str, dict[tuple[str, int], int]] = {}
    for page in now.pages:
        for ref in page.refs:
            if ref.beam == 0:
                slots.setdefault(ref.group, {})[ref.request, ref.block] = page.slot
    return slots


def there_and_back(before: Observation, now: Observation, group: str) -> bool:
    """Whether pages of a group can have left their slot and come back in one step, or others instead of them.

    By the counters (R13.1): copies both ways, or a page dropped from the tree, where an own page may have replaced it; by the
    events (R13.3): levels changed both ways.
    """
    old, new = before.lifetime.groups.get(group), now.lifetime.groups.get(group)
    if old is not None and new is not None:
        if new.offload_pages > old.offload_pages and new.onboard_pages > old.onboard_pages:
            return True
        if new.drop_pages > old.drop_pages:
            return True
    changes = [event for event in now.events if isinstance(event, LevelChanged) and event.group == group]
    return any(one.new > one.old for one in changes) and any(one.new < one.old for one in changes)


def copied(before: Observation, now: Observation, group: str) -> bool:
    """Whether pages of a group were copied on the device in a step, by the counters (R13.1)."""
    old, new = before.lifetime.groups.get(group), now.lifetime.groups.get(group)
    return old is not None and new is not None and new.copy_pages > old.copy_pages


def level_label(level: Level | None) -> str:
    """A level as scenarios write it, ``-`` for none."""
    return "-" if level is None else level.label

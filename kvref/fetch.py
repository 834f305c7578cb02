"""Fetches: which selected block is a hit, a miss or neither, what is evicted, and in which order (R15.4-R15.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvref.batch import dirty_rows, need_published, no_capture, put_batch
from kvref.cached import Cache, Cached, CapturedFetch, FetchCount, Fetched, Reservation, Slot
from kvref.failure import invalid, logic
from kvref.layout import Group
from kvref.lookup import live, need_stream, open_batch
from kvref.order import NOTHING, Work, join, pending
from kvref.pages import fence_slots, submit_visible
from kvref.queries import buffer
from kvref.reads import named_slots
from kvref.reserving import put_reservation
from kvref.state import Batch, Request, State
from kvref.tree import count
from kvref.values import replace
from kvspec import ops
from kvspec.observation import BAD
from kvspec.payload import Content

HIT, MISS, NEITHER = "hit", "miss", "-"
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """What a fetch does for a row: what it puts out, what came of each number, and the cache after it (R15.4, R15.5)."""

    entries: Numbers
    found: tuple[str, ...]
    cached: tuple[Cached, ...]


def fetched_row(
    selected: Numbers, countable: int, cached: tuple[Cached, ...], entries: int, contents: Mapping[int, Content | None]
) -> Row:
    """R15.4, R15.5: one row. ``countable``: blocks (or units) that may be asked for; ``entries``: of the reservation.

    ``contents``: of the page of each number that may be asked for.
    """
    asked = [n for n in dict.fromkeys(selected) if 0 <= n < countable]
    there = {one.number: one for one in cached}
    hits = [there[n] for n in asked if n in there]
    missed = [n for n in asked if n not in there]
    others = [one for one in cached if one.number not in asked]
    evicted = others[max(0, entries - len(hits) - len(missed)) :]  # R15.4: the least recent ones
    left = others[: len(others) - len(evicted)]
    taken = {one.entry for one in (*hits, *left)}
    free = [entry for entry in range(entries) if entry not in taken]
    misses = [Cached(n, entry, contents[n]) for n, entry in zip(missed, free, strict=False)]
    now = (*hits, *misses, *left)  # R15.5
    place = {one.number: one.entry for one in now}
    kind = {**dict.fromkeys(missed, MISS), **{one.number: HIT for one in hits}}
    return Row(tuple(place[n] if n in kind else BAD for n in selected), tuple(kind.get(n, NEITHER) for n in selected), now)


def need_fetching(state: State, layer: str) -> Group:
    """R15.1: the group of a layer that can be fetched."""
    group, _ = buffer(state, layer)
    if not group.selected:
        raise invalid(f"layer {layer!r}: nothing is reserved for fetches of its group: give it selected and reserve")
    return group


def need_lengths(group: Group, select: Mapping[str, Numbers]) -> None:
    """R15.1: at most k numbers are selected for a row."""
    for name, numbers in select.items():
        if len(numbers) > group.selected:
            raise invalid(f"{len(numbers)} numbers are selected for {name!r}: group {group.name!r} takes {group.selected}")


def selection(batch: Batch, group: Group, select: Mapping[str, Numbers]) -> list[Numbers]:
    """R15.4: by row, k numbers; -1 for nothing. Who is in which row: as last published."""
    for name in select:
        if name not in batch.members:
            raise logic(f"request {name!r} is in no published row of batch {batch.name!r}: add it and publish")
    rows = [tuple(select.get(name, ())) if name is not None else () for name in batch.members]
    return [(*numbers, *(BAD,) * (group.selected - len(numbers))) for numbers in rows]


def fetch(state: State, op: ops.Fetch) -> tuple[State, None]:
    """R15.4: fetch what is selected; R15.8: captured during a capture."""
    batch = open_batch(state, op.batch)
    for name in op.select:
        live(state, name)
    need_stream(state, op.stream)
    group = need_fetching(state, op.layer)
    need_lengths(group, op.select)
    need_published(state, batch)
    captured = state.capture is not None and state.capture.stream == op.stream
    if not captured:
        no_capture(state, "fetch")
    selected = selection(batch, group, op.select)
    if captured:
        assert state.capture is not None
        reads = (*state.capture.reads, CapturedFetch(batch.uid, op.layer, op.as_))
        return replace(state, capture=replace(state.capture, reads=reads)), None
    return run_fetch(state, batch, op.layer, selected, op.stream, op.as_), None


def check_numbers(state: State, parts: Iterable[object], select: Mapping[str, Numbers] | None) -> None:
    """R15.8: the selection of a replay, for each fetch in its graph."""
    fetches = [part for part in parts if isinstance(part, CapturedFetch)]
    if select is not None and not fetches:
        raise invalid("a selection for a graph without a fetch: leave select out")
    for part in fetches:
        need_lengths(buffer(state, part.layer)[0], select or {})


def check_rows(state: State, parts: Iterable[object], select: Mapping[str, Numbers] | None) -> None:
    """R15.8: the same of the requests that it names."""
    for part in parts:
        if isinstance(part, CapturedFetch):
            selection(state.batches[part.batch], buffer(state, part.layer)[0], select or {})


def replay_fetch(state: State, part: CapturedFetch, select: Mapping[str, Numbers], stream: str) -> State:
    """R15.8: a captured fetch, for what is last published and selected now."""
    batch = state.batches[part.batch]
    return run_fetch(state, batch, part.layer, selection(batch, buffer(state, part.layer)[0], select), stream, part.label)


def served(state: State, batch: Batch) -> list[str | None]:
    """R15.8: by row, whom a fetch serves: the member of a row that is as published."""
    dirty = set(dirty_rows(state, batch))
    return [None if row in dirty else name for row, name in enumerate(batch.rows)]


def reservations_of(state: State, batch: Batch, group: Group) -> list[Reservation | None]:
    """By row that is as published, what its member has reserved in a group."""
    held = {one.request: one for one in state.reservations.values() if one.held and one.group == group.index}
    return [None if name is None else held.get(name) for name in served(state, batch)]


def before_fetch(state: State, batch: Batch, layer: str) -> Work:
    """R15.7: what a fetch runs after besides its stream."""
    group, _ = buffer(state, layer)
    rows = reservations_of(state, batch, group)
    slots = [slot for one in rows if one is not None for slot in one.slots]
    return join(batch.uploads[-1].work, batch.fetches.get(group.index, NOTHING), *(slot.fence for slot in slots))


def run_fetch(state: State, batch: Batch, layer: str, selected: list[Numbers], stream: str, label: str) -> State:
    """R15.4-R15.7, R15.10: a fetch of all rows."""
    group, _ = buffer(state, layer)
    requests, rows = served(state, batch), reservations_of(state, batch, group)
    state, work = submit_visible(state, stream, before_fetch(state, batch, layer))
    shown = [row[state.layout.attention.index(group)] for row in batch.uploads[-1].rows]
    entries: list[Numbers] = []
    found: list[tuple[str, ...]] = []
    hits = misses = 0
    for numbers, name, one, entry in zip(selected, requests, rows, shown, strict=True):
        if name is None or one is None:
            entries.append((BAD,) * group.selected)
            found.append((NEITHER,) * group.selected)
            continue
        countable = entry.eligible * group.units
        cache = one.caches.get(layer, Cache())
        contents = {n: content_of(state, state.requests[name], group, n) for n in numbers if 0 <= n < countable}
        row = fetched_row(numbers, countable, cache.cached, len(one.slots) * group.units, contents)
        entries.append(tuple(BAD if e == BAD else raw(one, e, group.units) for e in row.entries))
        found.append(row.found)
        kinds = {n: kind for n, kind in zip(numbers, row.found, strict=True) if kind != NEITHER}
        hits += sum(kind == HIT for kind in kinds.values())
        misses += sum(kind == MISS for kind in kinds.values())
        slots = tuple(Slot(slot.number, join(slot.fence, work)) for slot in one.slots)
        state = put_reservation(state, replace(one, slots=slots, caches=one.caches.set(layer, Cache(row.cached, work))))
    nbytes = misses * sum(b.length for b in group.buffers if b.layer == layer) // group.units
    counts = FetchCount(work, group.index, hits, misses, nbytes)
    done = Fetched(work, layer, batch.members, tuple(entries), tuple(found))
    state = replace(state, counting=(*state.counting, counts), fetches=state.fetches.set(label, done))
    if batch.open:  # R15.8: of a closed one nothing is read, and no slot is held up
        state = fence_slots(state, dict.fromkeys(named_slots(state, batch), work), read=True)
    return put_batch(state, replace(batch, reads=join(batch.reads, work), fetches=batch.fetches.set(group.index, work)))


def raw(one: Reservation, entry: int, units: int) -> int:
    """R15.11: an entry, counted within a reservation, as it is put out."""
    return one.slots[entry // units].number * units + entry % units


def content_of(state: State, r: Request, group: Group, number: int) -> Content | None:
    """R15.4: the contents of the page that a number selects of."""
    return state.pages[r.pages[group.index, number // group.units, 0]].content


def counted(state: State) -> State:
    """R15.10: the counters with what fetches count that have run."""
    for one in state.counting:
        if not pending(one.work, state.gates):
            state = count(state, one.group, fetch_hits=one.hits, fetch_misses=one.misses, fetch_bytes=one.nbytes)
    left = tuple(one for one in state.counting if pending(one.work, state.gates))
    return replace(state, counting=left) if state.counting else state

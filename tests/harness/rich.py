"""A state in which every field of an observation has something in it, seen by two systems with numbers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvspec.config import Level
from kvspec.observation import (
    BatchView,
    CachedView,
    CacheView,
    Counters,
    FetchView,
    GroupCounters,
    LevelChanged,
    Observation,
    Order,
    PageRef,
    PageStatus,
    PageView,
    Phase,
    PoolView,
    ReadView,
    Removed,
    RequestStatus,
    RequestView,
    SnapshotView,
    Stored,
    TableEntries,
    TreeBlockView,
)
from kvspec.ops import CloseGate, MakeBatch, Operation, Publish, ReadPage, ReadTable, Sync, TakeSnapshot
from kvspec.payload import Content, Part, expand, seed_content
from kvspec.scenario import Step
from kvspec.system import Outcome
from tests.harness.scripted import step

BYTES = {"main": 64, "index": 32}
PREFIX = (0, 1, 2, 3)
OTHER = (9, 9, 9, 9)
HELD_UP = Order(frozenset({"g"}), {"exec": 1, "side": 0})
DONE = Order(frozenset(), {"exec": 1})
WHOLE = Order(frozenset(), {})

OPERATIONS: tuple[Operation, ...] = (
    CloseGate.model_validate({"stream": "side", "as": "g"}),
    MakeBatch(name="rows", rows=2, blocks=3, levels=True),
    Publish(batch="rows"),
    TakeSnapshot.model_validate({"request": "d", "group": "main", "as": "snap"}),
    ReadTable.model_validate({"batch": "rows", "group": "main", "as": "tab"}),
    ReadPage.model_validate({"request": "d", "group": "main", "block": 1, "as": "page"}),
    Publish(batch="late"),
    Sync(),
)
"""``late`` is a batch that stands there from the second step on; its publication is held up."""


@dataclass(frozen=True)
class Numbers:
    """How a system numbers its slots and versions, and whether it has bytes."""

    slots: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7)
    version: int = 0
    factor: int = 1
    bytes: bool = False

    def slot(self, n: int) -> int:
        return self.slots[n]

    def v(self, n: int) -> int:
        return self.version + self.factor * n


def steps() -> list[Step]:
    """The steps to play it to."""
    return [step(n, op) for n, op in enumerate(OPERATIONS)]


def script(numbers: Numbers) -> list[tuple[Outcome, Observation]]:
    """Outcomes and observations of every step, in a system's own numbers."""
    outcomes: list[Outcome] = [Outcome()] * len(OPERATIONS)
    outcomes[2] = outcomes[6] = Outcome((0, 1))
    return [(outcome, _observation(n, numbers)) for n, outcome in enumerate(outcomes)]


def _pages(numbers: Numbers) -> tuple[PageView, ...]:
    def payload(content: Content) -> Content | bytes:
        return expand(content, BYTES[content.group]) if numbers.bytes else content

    def page(
        group: str, block: int, level: Level, slot: int, refs: Sequence[str], owners: Sequence[str], **rest: Any
    ) -> PageView:
        status = PageStatus.LOCKED if owners else PageStatus.HELD if refs else PageStatus.DROPPABLE
        names = frozenset(PageRef(name, group, block) for name in refs)
        more: dict[str, Any] = {"tokens": None, "ready": DONE, "payload": payload(Content("d", group, block))} | rest
        where: dict[str, Any] = {"level": level, "slot": numbers.slot(slot), "status": status, "owners": frozenset(owners)}
        return PageView(group, block, 0, names, **where, **more)

    pending = None if numbers.bytes else seed_content(PREFIX, "main", 0)
    return (
        page("main", 0, Level.HOST, 0, ["d", "s"], ["d"], tokens=PREFIX, ready=HELD_UP, payload=pending),
        page("index", 0, Level.GPU, 0, ["d", "s"], ["d"], tokens=PREFIX, payload=payload(seed_content(PREFIX, "index", 0))),
        page("main", 1, Level.GPU, 1, ["d"], ["d"]),
        page("index", 1, Level.GPU, 1, ["d"], ["d"]),
        page("main", 2, Level.GPU, 2, ["d"], ["d"], payload=None),
        page("index", 2, Level.GPU, 2, ["d"], ["d"]),
        page("main", 0, Level.GPU, 5, [], [], tokens=OTHER),
        page("main", 1, Level.GPU, 6, ["s"], []),
    )


def _snapshot(numbers: Numbers, group: str, version: int, row: int | None) -> SnapshotView:
    host = group == "main"
    return SnapshotView(
        tuple(numbers.slot(n) for n in (0, 1, 2)),
        (Level.HOST if host else Level.GPU, Level.GPU, Level.GPU),
        1 if host else 0,
        (HELD_UP if host else DONE, DONE, DONE),
        row,
        numbers.v(version),
    )


def _requests(n: int, numbers: Numbers) -> Mapping[str, RequestView]:
    version = 1 if n < 2 else 2
    row = None if n < 1 else 0
    blank = SnapshotView((-1, -1), (None, None), 0, (None, None), None, numbers.v(5))
    return {
        "d": RequestView(
            RequestStatus.ACTIVE,
            Phase.DECODE,
            12,
            9,
            4,
            row,
            None if n < 1 else "rows",
            1,
            numbers.v(version),
            None if n < 2 else numbers.v(2),
            n < 2,
            {(group, 0): _snapshot(numbers, group, version, row) for group in BYTES},
        ),
        "s": RequestView(
            RequestStatus.SUSPENDED, Phase.PREFILL, 8, 4, 4, None, None, 1, numbers.v(5), None, True, {("main", 0): blank}
        ),
        "c": RequestView(RequestStatus.CLOSED, Phase.PREFILL, 0, 0, 0, None, None, 1, numbers.v(9), None, True, {}),
    }


def _blank() -> dict[str, TableEntries]:
    return {group: TableEntries(((-1,) * 3,) * 2, (0, 0), ((-1,) * 3,) * 2) for group in BYTES}


def _written(numbers: Numbers) -> dict[str, TableEntries]:
    row = tuple(numbers.slot(n) for n in (0, 1, 2))
    return {
        "main": TableEntries((row, (-1,) * 3), (1, 0), ((1, 0, 0), (-1,) * 3)),
        "index": TableEntries((row, (-1,) * 3), (0, 0), ((0, 0, 0), (-1,) * 3)),
    }


def _batches(n: int, numbers: Numbers) -> Mapping[str, BatchView]:
    if n < 1:
        return {}
    done = n >= 2
    address = dict.fromkeys(BYTES, (1000 * numbers.factor, 2000, 3000))
    rows = BatchView(
        ("d", None),
        3,
        () if done else (0, 1),
        _written(numbers) if done else _blank(),
        _written(numbers) if done else _blank(),
        Order(frozenset(), {"exec": 2}) if done else WHOLE,
        2,
        address,
    )
    # The second batch has no members, and its only publication is held up.
    late = replace(
        rows,
        rows=(None, None),
        dirty_rows=() if n >= 6 else (0, 1),
        published=_blank(),
        device=_blank(),
        upload=HELD_UP if n >= 6 else WHOLE,
    )
    return {"rows": rows, "late": late}


def _part(numbers: Numbers) -> Part | bytes:
    content = seed_content(PREFIX, "main", 0)
    return expand(content, 64) if numbers.bytes else Part(content, ((0, 64),))


def _observation(n: int, numbers: Numbers) -> Observation:
    pages = _pages(numbers)
    counters = {"main": GroupCounters(1, 64, 2, 128, 3, 4), "index": GroupCounters(0, 0, 1, 32, 0, 0)}
    table = _written(numbers)["main"].page_table
    read = Content("d", "main", 1)
    snap = _snapshot(numbers, "main", 2, 0)
    reads = {
        "tab": ReadView(DONE, entries=table),
        "page": ReadView(DONE, payload=expand(read, 64) if numbers.bytes else read),
        "held": ReadView(HELD_UP),
    }
    shown = {"tab": 4, "page": 5, "held": 5}
    free = {(Level.GPU, "main"): 3, (Level.GPU, "index"): 4, (Level.HOST, "main"): 7, (Level.HOST, "index"): 8}
    return Observation(
        groups=("main", "index"),
        requests=_requests(n, numbers),
        pages=pages,
        tree=(TreeBlockView(PREFIX), TreeBlockView(OTHER)),
        pools={
            key: PoolView(
                (key[1],),
                8,
                count,
                (HELD_UP, *[DONE] * (count - 1)),
                (6, 7) if key == (Level.GPU, "main") else (),
            )
            for key, count in free.items()
        },
        batches=_batches(n, numbers),
        lifetime=Counters(counters, 2, 1),
        since_reset=Counters({"main": GroupCounters(), "index": GroupCounters(drop_pages=1)}, 1, 1),
        copy_calls={"offload": 1, "onboard": 2, "copy": 3},
        events=(Stored(PREFIX), LevelChanged(PREFIX, "main", Level.GPU, Level.HOST), Removed(OTHER)),
        labels={"snap": snap} if n >= 3 else {},
        reads={label: view for label, view in reads.items() if n >= shown[label]},
        streams={"exec": DONE, "side": HELD_UP},
        reserved={"d": {"main": frozenset({numbers.slot(3), numbers.slot(4)})}},
        caches={"d": {"main": CacheView(DONE, (CachedView(0, numbers.slot(3), _part(numbers)),))}},
        fetches={
            "got": FetchView(DONE, "main", ("d", None), ((numbers.slot(3), -1), (-1, -1)), (("miss", "-"), ("-", "-"))),
            "coming": FetchView(HELD_UP, "main", ("d", None)),
        },
        faults=(),
    )

"""`tiny_manager` under the suite: ``kvspec run --system tiny_adapter:TinySystem``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import tiny_manager as tiny

from kvspec.adapter import Batch, Facts, Page, Request, Tables, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.refs import group_shapes
from kvspec.system import Setup

T = TypeVar("T")
TIERS = {tiny.FAST: "gpu", tiny.STORE: "host"}


class Unknown(LookupError):
    """A name that the manager was never given."""


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration the manager cannot do."""
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if any(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers):
        yield "windows or states"
    if len(manager.levels) > 2:
        yield "a disk"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


@adapter(
    errors={
        Unknown: ErrorKind.OUT_OF_RANGE,
        tiny.BadValue: ErrorKind.INVALID_ARGUMENT,
        tiny.WrongMoment: ErrorKind.LOGIC_ERROR,
        tiny.Full: ErrorKind.OUT_OF_PAGES,
    },
    unobserved={"payloads", "order", "tree", "eviction", "counters", "events", "device", "staging"},
    unfit=unfit,
)
class TinySystem:
    """The verbs that the manager can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        (self.group,) = group_names(setup.manager)
        (shape,) = group_shapes(setup.manager).values()
        slots = [level.slots or (level.bytes or 0) // shape.page_bytes for level in setup.manager.levels]
        store = slots[1] if len(slots) > 1 else 0
        self.levels = [level.kind.value for level in setup.manager.levels]
        self.manager = tiny.Tiny(setup.manager.tokens_per_block, slots[0], store, shape.page_bytes, shape.sparse)
        self.tables: dict[str, tiny.Rows] = {}
        self.taken: dict[str, tuple[int, list[int]]] = {}

    def create(self, request: str, tokens: tuple[int, ...] | None) -> int:
        self.manager.open(request)
        return 0  # sequences share nothing, so there is nothing to match the tokens with

    def resume(self, request: str, decode: bool | None) -> bool:
        one = self._sequence(request)
        if decode is False and one.generating:
            raise tiny.BadValue(f"{request} generates, which is for good")
        return self.manager.start(one, bool(decode))

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        return self.manager.grow(self._sequence(request), capacity, history)

    def enter_decode(self, request: str) -> bool:
        return self.manager.generate(self._sequence(request))

    def close(self, request: str) -> None:
        one = self._sequence(request)
        for table in self.tables.values():
            if one in table.members:
                table.remove(one)
        self.manager.close(one)

    def take_slots(self, level: str, count: int | str, as_: str) -> None:
        tier = self.levels.index(level)
        free = self.manager.free[tier]
        if count != "all" and int(count) > len(free):
            raise tiny.Full(f"{level} has {len(free)} free lines")
        number = len(free) if count == "all" else int(count)
        self.taken[as_] = tier, [free.pop() for _ in range(number)]

    def give_slots(self, as_: str) -> None:
        tier, lines = self._found(self.taken, as_)
        self.manager.free[tier] += lines
        del self.taken[as_]

    def batch(self, name: str, rows: int, blocks: int) -> None:
        if name in self.tables and not self.tables[name].closed:
            raise tiny.WrongMoment(f"table {name} is there")
        self.tables[name] = tiny.Rows(self.manager, rows, blocks)

    def add(self, batch: str, request: str, row: int | None) -> int:
        return self._found(self.tables, batch).add(self._sequence(request), row)

    def remove(self, batch: str, request: str) -> None:
        self._found(self.tables, batch).remove(self._sequence(request))

    def publish(self, batch: str) -> list[int]:
        return self._found(self.tables, batch).publish()

    def close_batch(self, batch: str) -> None:
        self._found(self.tables, batch).close()

    def observe(self) -> Facts:
        """What the manager shows now."""
        tables = {name: table for name, table in self.tables.items() if not table.closed}
        names = {id(one): name for name, table in tables.items() for one in table.members if one is not None}
        return Facts(
            requests={name: self._request(one, names.get(id(one))) for name, one in self.manager.sequences.items()},
            free={level: len(self.manager.free[tier]) for tier, level in enumerate(self.levels)},
            batches={name: self._batch(table) for name, table in tables.items()},
        )

    def _request(self, one: tiny.Sequence, batch: str | None) -> Request:
        return Request(
            status="closed" if one.gone else "active" if one.started else "suspended",
            phase="decode" if one.generating else "prefill",
            capacity=one.limit,
            history=one.done,
            blocks={self.group: [Page(TIERS[tier], line) for tier, line in one.lines]},
            eligible={self.group: one.in_store()},
            row=one.row,
            batch=batch,
            version=one.stamp,
            acknowledged=one.seen or None,
            dirty=one.stamp != one.seen,
        )

    def _batch(self, table: tiny.Rows) -> Batch:
        members = [None if one is None else one.name for one in table.members]
        words = Tables(table.lines, table.in_store)
        return Batch(members, table.width, table.dirty(), {self.group: words})

    def _sequence(self, name: str) -> tiny.Sequence:
        return self._found(self.manager.sequences, name)

    def _found(self, there: dict[str, T], name: str) -> T:
        if name not in there:
            raise Unknown(f"there is no {name}")
        return there[name]

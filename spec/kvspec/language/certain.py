"""Values that cannot be right whatever happens: what a file can be told of before anything runs.

A step that says ``raises`` may have any value: that is its point. Expectations may not, in any step: they could only fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspec.config import LayerKind, ManagerConfig
from kvspec.language.messages import at, named
from kvspec.language.nodes import Key
from kvspec.language.problems import Problem, listed
from kvspec.language.steps import Parsed
from kvspec.ops import (
    Add,
    BindRow,
    Close,
    Commit,
    Create,
    Evict,
    Fetch,
    Iterate,
    MakeBatch,
    Offload,
    ReadPage,
    Resize,
    ResizeBatch,
    SeedPrefix,
    SetBeamWidth,
    TakeSlots,
    TakeSnapshot,
    Write,
)
from kvspec.scenario import UNSET, Expect

_COUNTS = ("eligible", "history", "capacity", "committed", "free", "staging", "row", "reserved")


@dataclass(frozen=True, slots=True)
class _Spot:
    """A step whose values are looked at."""

    path: Path
    parsed: Parsed

    def problem(self, where: tuple[Key, ...], message: str, expected: str | None = None) -> Problem:
        return Problem(at(self.path, self.parsed.node, where), message, expected)

    def argument(self, name: str, *inside: Key) -> tuple[Key, ...]:
        return (*self.parsed.where(name), *inside)

    def least(self, where: tuple[Key, ...], called: str, value: int | None, least: int, rule: str) -> Iterator[Problem]:
        """The problem of a number that is too small."""
        if value is not None and value < least:
            yield self.problem(where, f"{called} is {value}", f"at least {least} ({rule})")


def check_values(path: Path, manager: ManagerConfig, steps: Sequence[Parsed]) -> Iterator[Problem]:
    """What can never be right: numbers out of range, lists of a length that is known to be another."""
    batches: dict[str, MakeBatch] = {}
    capacities: dict[str, frozenset[int]] = {}
    for parsed in steps:
        spot = _Spot(path, parsed)
        _follow(capacities, parsed)
        if parsed.step.raises is None:
            yield from _arguments(spot, manager, batches)
            if isinstance(op := parsed.step.op, MakeBatch):
                batches[op.name] = op
        if parsed.step.expect != Expect():
            yield from _tables(spot, parsed.step.expect, batches)
            yield from _counts(spot, parsed.step.expect)
            yield from _places(spot, parsed.step.expect, manager)
            yield from _levels(spot, parsed.step.expect, manager, capacities)


def _follow(capacities: dict[str, frozenset[int]], parsed: Parsed) -> None:
    """Keep, by request, the capacities that it may have after a step; one that may have any is left out."""
    step = parsed.step
    if step.raises is None:
        match step.op:
            case Create(request=name, tokens=tokens):
                capacities.pop(name, None)
                if not tokens:
                    capacities[name] = frozenset({0})
            case Resize(request=name, capacity=int(capacity)) if step.returns is not False:
                before = frozenset() if step.returns is True else capacities.get(name)
                if before is not None:
                    capacities[name] = before | {capacity}
            case Iterate() | ResizeBatch():
                capacities.clear()
            case Close(request=name):
                capacities.pop(name, None)
            case _:
                pass
    if not isinstance(step.op, Close):
        capacities.update({name: frozenset({value}) for name, value in (step.expect.capacity or {}).items()})


def _arguments(spot: _Spot, manager: ManagerConfig, batches: Mapping[str, MakeBatch]) -> Iterator[Problem]:
    tpb = manager.tokens_per_block
    op = spot.parsed.step.op
    if isinstance(op, Create | Commit | SeedPrefix):
        for number, token in enumerate(op.tokens or ()):
            rule = "R10.5" if isinstance(op, SeedPrefix) else "R3.9" if isinstance(op, Commit) else "R3.1"
            yield from spot.least(spot.argument("tokens", number), f"tokens[{number}]", token, 0, rule)
    if isinstance(op, Create | Commit | SeedPrefix):
        yield from _keys(spot, op)
    match op:
        case Create(prompt_length=length) if length is not None and (length < 0 or length % tpb):
            wanted = f"a multiple of tokens_per_block, {tpb} (R3.1)"
            yield spot.problem(spot.argument("prompt_length"), f"prompt_length is {length}", wanted)
        case Resize(capacity=capacity, history=history):
            yield from _lengths(spot, (), capacity, history, "R3.6")
        case Offload(blocks=blocks) | Write(blocks=blocks):
            rule = "R4.9" if isinstance(op, Offload) else "R2.1"
            for number, block in enumerate(blocks):
                yield from spot.least(spot.argument("blocks", number), f"blocks[{number}]", block, 0, rule)
        case SetBeamWidth(width=width):
            yield from spot.least(spot.argument("width"), "width", width, 1, "R3.12")
        case BindRow(row=row):
            yield from spot.least(spot.argument("row"), "row", row, 0, "R6.6")
        case Evict(pages=pages):
            yield from spot.least(spot.argument("pages"), "pages", pages, 1, "R10.5")
        case TakeSlots(count=int(count)):
            yield from spot.least(spot.argument("count"), "count", count, 1, "R10.5")
        case ReadPage(block=block, beam=beam):
            yield from spot.least(spot.argument("block"), "block", block, 0, "R1.1")
            yield from spot.least(spot.argument("beam"), "beam", beam, 0, "R3.12")
        case TakeSnapshot(beam=beam):
            yield from spot.least(spot.argument("beam"), "beam", beam, 0, "R3.12")
        case MakeBatch(rows=rows, blocks=blocks, beam_width=width):
            yield from spot.least(spot.argument("rows"), "rows", rows, 1, "R8.1")
            yield from spot.least(spot.argument("blocks"), "blocks", blocks, 1, "R8.1")
            if width != 1:
                yield spot.problem(spot.argument("beam_width"), f"beam_width is {width}", "1, which is all that there is (R8.1)")
        case Add(batch=name, row=row) if row is not None and name in batches and not 0 <= row < batches[name].rows:
            wanted = f"0 to {batches[name].rows - 1}, as the batch has {_count(batches[name].rows, 'row')} (R8.2)"
            yield spot.problem(spot.argument("row"), f"row is {row}", wanted)
        case Iterate(requests=requests):
            for number, one in enumerate(requests):
                yield from _lengths(spot, ("requests", number), one.capacity, one.history, "R3.6")
        case Fetch():
            yield from _selected(spot, op, manager)
        case ResizeBatch():
            yield from _by_row(spot, op, batches.get(op.batch), tpb)
        case _:
            pass


def _selected(spot: _Spot, op: Fetch, manager: ManagerConfig) -> Iterator[Problem]:
    """A fetch of a layer for which nothing is reserved, or of more numbers than a row selects (R15.1)."""
    most = next((layer.buffers[0].selected for layer in manager.layers if layer.name == op.layer), None)
    if most is None:
        wanted = "one whose buffers have selected and reserve (R15.1)"
        yield spot.problem(spot.argument("layer"), f"nothing is reserved for fetches of layer {op.layer}", wanted)
        return
    for name, numbers in op.select.items():
        if len(numbers) > most:
            said = f"select.{name} has {_count(len(numbers), 'number')}"
            yield spot.problem(
                spot.argument("select", name), said, f"at most {most}, which the layer's buffers have as selected (R15.1)"
            )


def _keys(spot: _Spot, op: Create | Commit | SeedPrefix) -> Iterator[Problem]:
    """Keys that are empty, and spans that are empty, overlap, or go beyond the tokens."""
    if op.key == "":
        yield spot.problem(spot.argument("key"), "key is ''", "a text that is not empty (R2.7)")
    behind, count = 0, len(op.tokens or ())
    for number, span in enumerate(op.spans if isinstance(op, Create | SeedPrefix) else ()):
        if not behind <= span.start < span.end <= count:
            said = f"spans[{number}] is [{span.start}, {span.end})"
            wanted = f"at least one token, from {behind} on, of the {_count(count, 'token')} (R2.7)"
            yield spot.problem(spot.argument("spans", number), said, wanted)
        if not span.key:
            yield spot.problem(
                spot.argument("spans", number, "key"), f"key of spans[{number}] is ''", "a text that is not empty (R2.7)"
            )
        behind = max(behind, span.end)


def _lengths(spot: _Spot, inside: tuple[Key, ...], capacity: int | None, history: int | None, rule: str) -> Iterator[Problem]:
    verb = spot.parsed.verb
    for key, value in (("capacity", capacity), ("history", history)):
        where = (verb, *inside, key)
        yield from spot.least(where, named((*inside, key), verb), value, 0, rule)
    if capacity is not None and history is not None and history > capacity >= 0:
        where = (verb, *inside, "history")
        called = named((*inside, "history"), verb)
        yield spot.problem(where, f"{called} is {history}, more than the capacity {capacity}", f"at most {capacity} ({rule})")


def _by_row(spot: _Spot, op: ResizeBatch, batch: MakeBatch | None, tpb: int) -> Iterator[Problem]:
    lists = {"capacities": op.capacities, "histories": op.histories}
    for key, values in lists.items():
        if values is None:
            continue
        if batch is not None and len(values) != batch.rows:
            yield spot.problem(spot.argument(key), f"{key} has {_count(len(values), 'entry')}", _for_rows(batch))
        for row, value in enumerate(values):
            where = spot.argument(key, row)
            yield from spot.least(where, f"{key}[{row}]", value, 0, "R8.9")
            if batch is not None and value is not None and value > batch.blocks * tpb:
                most = batch.blocks * tpb
                wanted = f"at most {most}, the tokens of {_count(batch.blocks, 'block')} (R8.9)"
                yield spot.problem(where, f"{key}[{row}] is {value}", wanted)
    for row, (capacity, history) in enumerate(zip(op.capacities or (), op.histories or (), strict=False)):
        if capacity is not None and history is not None and history > capacity >= 0:
            said = f"histories[{row}] is {history}, more than the capacity {capacity}"
            yield spot.problem(spot.argument("histories", row), said, f"at most {capacity} (R8.9)")
    returns = spot.parsed.step.returns
    if batch is not None and returns is not UNSET and len(returns) != batch.rows:
        yield spot.problem(("returns",), f"returns has {_count(len(returns), 'entry')}", _for_rows(batch))


def _counts(spot: _Spot, expect: Expect) -> Iterator[Problem]:
    for key in _COUNTS:
        for name, value in (getattr(expect, key) or {}).items():
            yield from spot.least(("expect", key, name), f"{key} of {name}", value, 0, _RULES[key])


def _tables(spot: _Spot, expect: Expect, batches: Mapping[str, MakeBatch]) -> Iterator[Problem]:
    """Lists with an entry for each row, and rows with an entry for each block."""
    rowed: dict[str, Mapping[str, Sequence[object]]] = {
        "num_blocks": expect.num_blocks or {},
        "table": expect.table or {},
        "level_table": expect.level_table or {},
    }
    for key, values in rowed.items():
        for name, rows in values.items():
            batch = batches.get(name.split(".")[0])
            if batch is None:
                continue
            if len(rows) != batch.rows:
                yield spot.problem(("expect", key, name), f"{key} of {name} has {_count(len(rows), 'row')}", _for_rows(batch))
                continue
            for row, entries in enumerate(rows):
                if isinstance(entries, tuple) and len(entries) != batch.blocks:
                    said = f"row {row} of {key} of {name} has {_count(len(entries), 'entry')}"
                    wanted = f"{batch.blocks}, one for each block of the batch"
                    yield spot.problem(("expect", key, name, row), said, wanted)
    for name, dirty in (expect.dirty_rows or {}).items():
        batch = batches.get(name)
        for number, row in enumerate(dirty):
            if batch is not None and not 0 <= row < batch.rows:
                wanted = f"0 to {batch.rows - 1}, as the batch has {_count(batch.rows, 'row')}"
                yield spot.problem(("expect", "dirty_rows", name, number), f"row {row} of {name}", wanted)


def _places(spot: _Spot, expect: Expect, manager: ManagerConfig) -> Iterator[Problem]:
    """Levels that the manager does not have."""
    there = [one.kind.value for one in manager.levels]
    wanted = f"{listed([*there, chr(39) + '-' + chr(39)], 'or')}, as the manager has no other level"
    for name, levels in (expect.levels or {}).items():
        for number, level in enumerate(levels):
            if level != "-" and level not in there:
                yield spot.problem(("expect", "levels", name, number), f"block {number} of {name} is on {level}", wanted)
    for name, level in (expect.page_level or {}).items():
        if level != "-" and level not in there:
            yield spot.problem(("expect", "page_level", name), f"{name} is on {level}", wanted)


def _levels(spot: _Spot, expect: Expect, manager: ManagerConfig, capacities: Mapping[str, frozenset[int]]) -> Iterator[Problem]:
    """Lists of levels by block, where it is known how many blocks the request has."""
    states = {layer.name for layer in manager.layers if layer.kind is LayerKind.SSM}
    for name, levels in (expect.levels or {}).items():
        request, _, group = name.partition(".")
        if request not in capacities or group in states or (not group and states):
            continue
        possible = {capacity: -(-capacity // manager.tokens_per_block) for capacity in sorted(capacities[request])}
        if len(levels) not in possible.values():
            said = f"levels of {name} has {_count(len(levels), 'entry')}"
            capacity, blocks = max(possible.items())
            wanted = f"{blocks}, one for each block of {_count(capacity, 'token')}"
            yield spot.problem(("expect", "levels", name), said, wanted)


_RULES = {
    "eligible": "R6.3",
    "history": "R3.6",
    "capacity": "R3.6",
    "committed": "R3.9",
    "free": "R1.2",
    "staging": "R7.6",
    "row": "R6.6",
    "reserved": "R15.2",
}


def _for_rows(batch: MakeBatch) -> str:
    return f"{batch.rows}, one for each row of the batch"


def _count(number: int, thing: str) -> str:
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing[:-1]}ies" if thing.endswith("y") else f"{number} {thing}s"

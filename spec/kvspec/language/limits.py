"""How much memory a scenario may ask for, checked before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kvspec.config import Level, ManagerConfig
from kvspec.language.messages import at, named
from kvspec.language.nodes import Key, Node
from kvspec.language.problems import Problem
from kvspec.language.steps import Parsed
from kvspec.ops import Iterate, MakeBatch, Resize, ResizeBatch, SetBeamWidth
from kvspec.refs import group_shapes, pool_groups

SLOT_BYTES = 1024
"""What a slot counts at least: a slot of a few bytes costs as much to keep track of."""
ENTRY_BYTES = 64
"""What a table entry counts: it is read back and compared after every step."""
MAX_BLOCKS = 1 << 20
"""How many blocks a request may be resized to: each is an entry of every snapshot."""
MAX_BEAMS = 1 << 10


def check_memory(path: Path, node: Node, manager: ManagerConfig, steps: Sequence[Parsed], limit: int) -> Iterator[Problem]:
    """What asks for more than ``limit`` bytes of pools or tables, or for absurdly many blocks."""
    yield from _check_pools(path, node, manager, limit)
    yield from _check_steps(path, manager, steps, limit)


def _check_pools(path: Path, node: Node, manager: ManagerConfig, limit: int) -> Iterable[Problem]:
    shapes = group_shapes(manager)
    groups = pool_groups(manager)
    total = 0
    for number, config in enumerate(manager.levels):
        # A pool group's slot is as large as the page of any group that it serves (R1.6).
        sizes = [shapes[names[0]].page_bytes for names in groups[config.kind.level]]
        slots = config.slots if config.slots is not None else (config.bytes or 0) // sum(sizes)
        if slots == 0 and config.kind.level is Level.GPU:
            where = at(path, node, ("manager", "levels", number, "bytes"))
            yield Problem(where, f"the gpu level needs at least one slot (R1.2): one of each pool group takes {sum(sizes)} bytes")
        total += sum(slots * max(size, SLOT_BYTES) for size in sizes)
        if total > limit:
            where = at(path, node, ("manager", "levels", number))
            what = f"the pools ask for {total} bytes up to this level"
            yield Problem(where, f"{what}, more than the limit of {limit} bytes (--max-pool-bytes)")
            return


def _check_steps(path: Path, manager: ManagerConfig, steps: Sequence[Parsed], limit: int) -> Iterable[Problem]:
    tables = 0
    for parsed in steps:
        match parsed.step.op:
            case MakeBatch(rows=rows, blocks=blocks, levels=levels):
                entries = max(rows, 1) * max(blocks, 1) * len(group_shapes(manager)) * (2 if levels else 1)
                tables += entries * ENTRY_BYTES
                if tables > limit:
                    where = at(path, parsed.node, (parsed.verb,))
                    yield Problem(
                        where, f"the tables of the batches ask for {tables} bytes, more than the limit of {limit} bytes"
                    )
                    return
            case Resize(capacity=capacity, history=history):
                yield from _check_blocks(path, manager, parsed, {("capacity",): capacity, ("history",): history})
            case ResizeBatch(capacities=capacities, histories=histories):
                lists = {"capacities": capacities or (), "histories": histories or ()}
                tokens: dict[tuple[Key, ...], int | None] = {
                    (name, row): value for name, values in lists.items() for row, value in enumerate(values)
                }
                yield from _check_blocks(path, manager, parsed, tokens)
            case Iterate(requests=requests):
                asked: dict[tuple[Key, ...], int | None] = {}
                for number, one in enumerate(requests):
                    asked["requests", number, "capacity"] = one.capacity
                    asked["requests", number, "history"] = one.history
                yield from _check_blocks(path, manager, parsed, asked)
            case SetBeamWidth(width=width) if width > MAX_BEAMS:
                where = at(path, parsed.node, (parsed.verb, "width"))
                yield Problem(where, f"a beam width of {width} is more than the limit of {MAX_BEAMS}")
            case _:
                pass


def _check_blocks(
    path: Path, manager: ManagerConfig, parsed: Parsed, tokens: dict[tuple[Key, ...], int | None]
) -> Iterable[Problem]:
    for where, count in tokens.items():
        blocks = -(-(count or 0) // manager.tokens_per_block)
        if blocks > MAX_BLOCKS:
            position = at(path, parsed.node, (parsed.verb, *where))
            yield Problem(position, f"{named(where, parsed.verb)} asks for {blocks} blocks, more than the limit of {MAX_BLOCKS}")

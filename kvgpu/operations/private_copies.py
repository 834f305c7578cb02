"""What a resume or a prefetch makes with private ownership: copies, and backings out of the copies of others (R14.4, R14.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.operations import places
from kvgpu.operations.offload import NONE
from kvgpu.operations.state import Core, TreeEvent
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, distinct
from kvgpu.storage.pages import NO_NODE, NOBODY
from kvspec.config import Level


class Pair(NamedTuple):
    """A page to copy from, a page to copy to."""

    source: int
    target: int


@dataclass(slots=True)
class Wants:
    """What there is to do for the pages of a request, by where they are when it is asked.

    ``fill``: those whose payload it needs in a copy of its own. ``back``: copies of others, of which backings are to be made.
    ``plain``: all that have no several places, and backings that it maps. Its copies are in none of these.
    """

    fill: Int32
    back: Int32
    plain: Int32


def find(tx: Transaction, request: Request, numbers: Int32, stay: Int32) -> Wants:
    """Adopt what can be adopted, and see what is to be done for the rest. ``stay``: what is not needed on the GPU (R14.5)."""
    core, pages = tx.core, tx.core.pages
    backings = core.backings
    if backings is None:
        return Wants(NONE, NONE, numbers)
    on_gpu = numbers[backings.is_backing(numbers) & (pages.level[numbers] == Level.GPU)]
    places.adopt(tx, on_gpu.tolist(), request)
    placed = backings.has_places(numbers)
    own = pages.copy_of[numbers] == request.uid
    stays = np.isin(numbers, stay)
    fill = placed & ~own & ~stays
    back = placed & ~own & stays & (pages.copy_of[numbers] != NOBODY)
    return Wants(numbers[fill], numbers[back], numbers[~fill & ~back & ~own])


def blocks_of(core: Core, numbers: Int32) -> list[tuple[int, int]]:
    """Group and block of pages."""
    return list(zip(core.pages.group[numbers].tolist(), core.pages.block[numbers].tolist(), strict=True))


def sources_now(request: Request, where: Sequence[tuple[int, int]]) -> list[int]:
    """What the blocks of a request refer to by now: an eviction may have made a backing of another place (R14.6)."""
    return [int(request.groups[group].page[0, block]) for group, block in where]


def new_copies(
    tx: Transaction, request: Request, sources: Int32, more: Sequence[tuple[int, int]], slots: dict[SlotKey, Int32]
) -> list[Pair]:
    """New pages in reserved GPU slots: copies of ``sources``, and pages for ``more``, (source, block), that are no copies (R3.4).

    Slots are handed out in the order in which the copies will be submitted (R7.2), behind those of what comes up. Nobody has the
    new pages yet.
    """
    core, pages = tx.core, tx.core.pages
    numbers = np.array([*sources.tolist(), *(source for source, _ in more)], dtype=np.int32)
    blocks = np.array([*pages.block[sources].tolist(), *(block for _, block in more)], dtype=np.int32)
    made = np.empty_like(numbers)
    groups = pages.group[numbers]
    targets = core.pool_group[groups, Level.GPU]
    for pool_group in distinct(targets):
        key = (Level.GPU, pool_group)
        where = np.flatnonzero(targets == pool_group)
        where = where[np.argsort(pages.level[numbers[where]], kind="stable")]  # of a group, so of one pool group on each level
        taken = slots[key][-len(where) :]
        for group in distinct(groups[where]):
            mine = groups[where] == group
            at = where[mine]
            made[at] = tx.new_pages(group, blocks[at], np.zeros_like(blocks[at]), key, taken[mine], request.priority)
    places.join_copies(tx, made[: len(sources)], sources, request.uid)
    return [Pair(*pair) for pair in zip(numbers.tolist(), made.tolist(), strict=True)]


def give_copies(tx: Transaction, request: Request, pairs: Sequence[Pair]) -> None:
    """New copies are the request's own, HELD, and what its blocks refer to (R14.2)."""
    pages = tx.core.pages
    numbers = np.array([pair.target for pair in pairs], dtype=np.int32)
    numbers = numbers[pages.copy_of[numbers] == request.uid]
    groups = pages.group[numbers]
    for group in distinct(groups):
        mine = numbers[groups == group]
        places.replace_all(tx, request, group, pages.block[mine], mine)
    tx.make_evictable(numbers)


def new_backings(tx: Transaction, sources: Sequence[int], slots: dict[SlotKey, Int32]) -> None:
    """Backings in reserved host slots, made of copies of others, which stay (R14.5). Raises ``CopyFailed``.

    By GPU pool group, one submission each, like an offload (R4.5).
    """
    core, pages = tx.core, tx.core.pages
    left = dict(slots)
    for gpu in sorted({core.key_of(page) for page in sources}):
        made = []
        for source in (page for page in sources if core.key_of(page) == gpu):
            group = int(pages.group[source])
            key = (Level.HOST, int(core.pool_group[group, Level.HOST]))
            slot, left[key] = np.split(left[key], [1])
            block = pages.block[source : source + 1].copy()
            page = tx.new_pages(group, block, np.zeros_like(block), key, slot, int(pages.priority[source]))
            places.join(tx, int(page[0]), source, NOBODY)
            made.append(Pair(source, int(page[0])))
        submit(tx, made)
        for pair in sorted(made, key=lambda pair: (pages.block[pair.source], pages.group[pair.source])):  # R13.3
            places.new_backing(tx, pair.target)
            if pages.node[pair.target] != NO_NODE:
                text = core.tree.node(int(pages.node[pair.target])).prefix()
                tx.events.append(TreeEvent("level", text, int(pages.group[pair.target]), Level.GPU, Level.HOST))


def submit(tx: Transaction, pairs: Sequence[Pair]) -> None:
    """The copies, by pool group of the target, then level and pool group of the source (R4.5). Raises ``CopyFailed``.

    Those of sparse groups wait for their sources alone (R14.12).
    """
    core = tx.core
    by_key: dict[tuple[SlotKey, SlotKey], list[Pair]] = {}
    for pair in pairs:
        by_key.setdefault((core.key_of(pair.target), core.key_of(pair.source)), []).append(pair)
    for _, same in sorted(by_key.items()):
        sources, targets = np.array(same, dtype=np.int32).T
        private = core.backings is not None and core.layout.groups[int(core.pages.group[sources[0]])].sparse
        tx.copies.copy(sources, targets, private=private)

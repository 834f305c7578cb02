"""A rebase with private ownership: the request's own page stays, as another place of the tree's page (R14.7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.operations import places
from kvgpu.operations.journal import released_work
from kvgpu.operations.offload import joined
from kvgpu.operations.private_copies import give_copies, new_copies, submit
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvgpu.storage.fences import Point
from kvgpu.storage.pages import NO_PAGE, NOBODY
from kvspec.config import Level


def keep_own(tx: Transaction, request: Request, pairs: Sequence[tuple[int, int]]) -> Int32:
    """Make places of the tree's pages of the request's own, or release these. ``pairs``: its page, and the tree's, by group.

    Returns the backings that it maps now. In decode that is all: its complete history has left the GPU (R14.6).
    """
    pages = tx.core.pages
    mapped: list[Int32] = []
    work: list[Point] = []
    for own, theirs in pairs:
        one, backing = np.array([own], dtype=np.int32), int(pages.backing[theirs])
        if pages.level[own] == Level.HOST and backing != NO_PAGE and pages.level[backing] == Level.HOST:
            mapped.append(_map_backing(tx, request, one, backing))
            continue
        assert request.stream is not None
        work = work or [
            tx.core.fences.record(request.stream, "R6.4 work before a commit", "R6.4 readiness: work before the commit")
        ]
        tx.join_readiness(one, work)
        if pages.level[own] == Level.GPU:
            _become_copy(tx, request, own, theirs)
        else:
            places.join(tx, own, theirs, NOBODY)
            places.become_backing(tx, own)
            mapped.append(one)
    return joined(mapped)


def fill(tx: Transaction, request: Request, mapped: Int32, slots: dict[SlotKey, Int32]) -> Int32:
    """A request in prefill, which maps backings, gets copies of its own in reserved slots (R14.4). The copies; ``CopyFailed``."""
    pages = tx.core.pages
    if not mapped.size:
        return mapped
    pairs = new_copies(tx, request, mapped, (), slots)
    submit(tx, pairs)
    tx.put("needs", mapped, pages.needs[mapped] - 1)
    give_copies(tx, request, pairs)
    copies = np.array([pair.target for pair in pairs], dtype=np.int32)
    tx.lock(copies, True)
    return copies


def _map_backing(tx: Transaction, request: Request, own: Int32, backing: int) -> Int32:
    """The request's own page on the host is released, and the backing mapped."""
    pages = tx.core.pages
    group, block = int(pages.group[own[0]]), int(pages.block[own[0]])
    one = np.array([backing], dtype=np.int32)
    tx.fence_slots(own, released_work(tx.core, request))
    tx.unlock(own, not request.decoding)
    places.replace(tx, request, group, block, backing)
    tx.free(own)
    tx.lock(one, not request.decoding)
    return one


def _become_copy(tx: Transaction, request: Request, own: int, theirs: int) -> None:
    """The request's own page on the GPU is its copy; there is no backing on the GPU beside it."""
    pages = tx.core.pages
    backing = int(pages.backing[theirs])
    places.join(tx, own, theirs, request.uid)
    if backing == NO_PAGE:
        return
    if pages.level[backing] == Level.GPU:
        places.free_backing(tx, backing, own)
    else:
        tx.lock(np.array([backing], dtype=np.int32), False)

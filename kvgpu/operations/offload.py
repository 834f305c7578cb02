"""Offload of sparse history: which pages may move, how many slots they need, moving them (section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.operations import places
from kvgpu.operations.state import Core
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, counted, distinct, read
from kvspec.config import Level

NONE: Int32 = np.empty(0, dtype=np.int32)

Found = list[tuple[Int32, dict[SlotKey, Int32]]]


def joined(parts: Sequence[Int32]) -> Int32:
    """One array of several, which may be none."""
    if len(parts) < 2:
        return parts[0] if parts else NONE
    return np.concatenate(parts)


def eligible_pages(core: Core, request: Request, first: int, end: int) -> Int32:
    """Pages of blocks ``first..end-1`` of an active request that are at level 0 and sparse: eligible once it decodes (R4.1)."""
    found = []
    for group, blocks in enumerate(request.groups):
        if request.sparse[group]:
            pages = blocks.page[:, first:end][blocks.locked[:, first:end]]
            found.append(pages[read(core.pages.level, pages) == 0])
    return joined(found)


def movable(core: Core, numbers: Int32, own_needs: int) -> Int32:
    """Those that no prefill owner needs on the GPU, but for the ``own_needs`` of the request itself (R4.2)."""
    if core.backings is not None:  # no request needs another's copy (R14.6)
        return numbers
    found: Int32 = numbers[read(core.pages.needs, numbers) == own_needs]
    return found


def host_counts(core: Core, numbers: Int32) -> dict[SlotKey, int]:
    """How many host slots pages need, by pool group, in order."""
    if not numbers.size:  # there may be no such level
        return {}
    groups = core.pool_group[read(core.pages.group, numbers), Level.HOST]
    return {(Level.HOST, group): count for group, count in counted(groups).items()}


def without_backing(core: Core, numbers: Int32) -> Int32:
    """The pages among them that take a host slot as they leave the GPU: the host has no backing to attach to (R14.6)."""
    return numbers if core.backings is None else numbers[~core.backings.on_host(numbers)]


def offload_or_attach(tx: Transaction, request: Request, leaving: Int32, claimed: Int32, prefill: bool) -> int:
    """Have pages of a request leave the GPU, with private ownership (R14.6). How many have to stay, for want of a host slot.

    ``claimed``: those that a host slot was claimed for. Whether there is a backing is asked now, after the evictions.
    ``prefill``: the request has them locked as one in prefill does.
    """
    core = tx.core
    moving = without_backing(core, claimed)
    offload(tx, [(moving, tx.room.take(host_counts(core, moving)))], [request])
    assert core.backings is not None
    places.become_backings(tx, moving[core.backings.has_places(moving)])
    rest = leaving[~np.isin(leaving, moving)]
    attached = rest[core.backings.on_host(rest)]
    places.attach(tx, attached, request, prefill)
    return len(rest) - len(attached)


def offload(tx: Transaction, found: Found, more_owners: Sequence[Request] = ()) -> None:
    """Move GPU pages into reserved host slots: one submission per pair of pool groups, in order of pool group (R4.5)."""
    core = tx.core
    numbers = joined([part for part, _ in found])
    if not numbers.size:
        return
    keys = sorted({key for _, slots in found for key in slots})
    left = {key: joined([slots[key] for _, slots in found if key in slots]) for key in keys}
    sources = core.pool_group[read(core.pages.group, numbers), 0]
    found_sources = distinct(sources)
    for source in found_sources:
        part = numbers if len(found_sources) == 1 else numbers[sources == source]
        key = (Level.HOST, int(core.pool_group[core.pages.group[part[0]], Level.HOST]))
        slots, left[key] = left[key][: len(part)], left[key][len(part) :]
        tx.copies.move(part, key, slots, more_owners)


def bring_up(tx: Transaction, numbers: Int32, slots: dict[SlotKey, Int32], level: int) -> None:
    """Move pages up into reserved slots, each once for all its owners (R5.1).

    By pool group of the target, then level of the source (R4.5).
    """
    core, pages = tx.core, tx.core.pages
    if not numbers.size:
        return
    targets = core.pool_group[pages.group[numbers], level]
    for target in distinct(targets):
        part = numbers[targets == target]
        left = slots[(level, target)]
        for _, same in list(core.by_key(part)):
            tx.copies.move(same, (level, target), left[: len(same)])
            left = left[len(same) :]


def slot_counts(core: Core, numbers: Int32, level: int, more_groups: Sequence[int] = ()) -> dict[SlotKey, int]:
    """How many slots pages, and new pages of ``more_groups``, need on a level: by pool group, in order."""
    groups = np.concatenate([core.pages.group[numbers], np.array(more_groups, dtype=np.int16)])
    if not groups.size:  # there may be no such level
        return {}
    return {(level, group): count for group, count in counted(core.pool_group[groups, level]).items()}

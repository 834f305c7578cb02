"""Taking and giving back the GPU slots that decoding requests reserve for fetched history (R15.2)."""

from __future__ import annotations

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.operations.state import Core
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.requests.reservation import Reservation
from kvgpu.storage.pools import RESERVED
from kvspec.config import Level


def lacking(core: Core, request: Request, history: int) -> dict[int, int]:
    """By group, how many slots a decoding request with this history has to reserve, besides those that it has."""
    if not core.reserving or request.beam_width != 1:
        return {}
    blocks, held = history // request.tokens_per_block, request.reserved
    wanted = {group.number: min(group.reserve, blocks) for group in core.layout.groups if group.reserve}
    return {group: count - (len(held[group].slots) if group in held else 0) for group, count in wanted.items()}


def with_reserved(core: Core, counts: dict[SlotKey, int], wanted: dict[int, int]) -> dict[SlotKey, int]:
    """Counts of GPU slots, and those to reserve: claimed together, by pool group, in order (R3.14)."""
    both = dict(counts)
    for key, count in reserved_counts(core, wanted).items():
        both[key] = both.get(key, 0) + count
    return dict(sorted(both.items()))


def reserved_counts(core: Core, wanted: dict[int, int]) -> dict[SlotKey, int]:
    """The slots to reserve, by pool group."""
    counts: dict[SlotKey, int] = {}
    for group, count in wanted.items():
        key = (Level.GPU, int(core.pool_group[group, Level.GPU]))
        counts[key] = counts.get(key, 0) + count
    return {key: count for key, count in counts.items() if count}


def reserve(tx: Transaction, request: Request, wanted: dict[int, int]) -> None:
    """Take claimed slots, the first that the operation takes, by group (R7.2)."""
    core = tx.core
    core.versions += bool(wanted)
    for group, count in wanted.items():
        key = (Level.GPU, int(core.pool_group[group, Level.GPU]))
        held = request.reserved.get(group)
        if held is None:
            core.reservations += 1
            held = Reservation(core.reservations, key)
            tx.put_attribute(request, "reserved", {**request.reserved, group: held})
        if count:
            slots = tx.room.take({key: count})[key]
            pool = core.pool(key)
            tx.begin_slots(pool, slots)
            tx.put_slots(pool, "page", slots, RESERVED)
            tx.put_attribute(held, "slots", np.concatenate([held.slots, slots]))


def give_back(tx: Transaction, request: Request) -> None:
    """They become free, behind the fetches of them and the reads recorded on them."""
    core = tx.core
    for _, held in sorted(request.reserved.items()):
        if held.slots.size:
            pool = tx.pool(held.key)
            readers = tx.take_over_readers(pool, held.slots)
            tx.put_slots(pool, "fence", held.slots, core.fences.united(pool.fence[held.slots], readers))
            tx.vacate(pool, held.slots)
    if request.reserved:
        core.versions += 1
        tx.put_attribute(request, "reserved", {})

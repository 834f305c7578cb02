"""Deferred pages, and their retries: with an operation of the request, and with a publication of its batch (R4.3, R4.7)."""

from __future__ import annotations

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.operations.bare_offload import move_to_host
from kvgpu.operations.offload import eligible_pages, joined, movable, offload, offload_or_attach, without_backing
from kvgpu.operations.state import Core, Scope
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, distinct
from kvspec.config import Level


def claim_retries(tx: Transaction, numbers: Int32) -> tuple[Int32, dict[SlotKey, int]]:
    """Slots for older deferred pages, in order of block, then group; those that found one, and the claims (R4.4, R4.7)."""
    pages, core = tx.core.pages, tx.core
    chosen: list[Int32] = []
    claims: dict[SlotKey, int] = {}
    if numbers.size:
        groups = core.pool_group[pages.group[numbers], Level.HOST]
        for group in distinct(groups):
            part = numbers[groups == group]
            part = part[np.lexsort((pages.beam[part], pages.group[part], pages.block[part]))]
            claims[(Level.HOST, group)] = tx.room.claim_some((Level.HOST, group), len(part))
            chosen.append(part[: claims[(Level.HOST, group)]])
    return joined(chosen), claims


def retry_deferred(core: Core, scope: Scope, request: Request, lenient: bool) -> None:
    """Move the deferred pages of an active decoding request that may move, all or nothing (R4.3, R8.4).

    ``scope``: the publication, in which other requests may have been retried. ``lenient``: what finds no host slot stays (R8.6).
    Raises ``OutOfPages``, unless lenient, and ``CopyFailed``.
    """
    eligible = eligible_pages(core, request, 0, request.history_blocks)
    numbers = movable(core, eligible, 0)
    staying = len(eligible) - len(numbers)
    if numbers.size and lenient:
        staying += _move_those_that_fit(core, scope, request, numbers)
    elif numbers.size:
        move_to_host(core, scope, request, numbers, f"deferred pages of {request.name}")
    request.maybe_deferred = staying > 0


def _move_those_that_fit(core: Core, scope: Scope, request: Request, numbers: Int32) -> int:
    """Move the pages that find a host slot or a backing there, in order of block, then group (R4.7). How many stay."""
    with Transaction(core, scope) as tx:
        fitting, claims = claim_retries(tx, without_backing(core, numbers))
        tx.copies.evict()
        if core.backings is None:
            offload(tx, [(fitting, tx.room.take(claims))])
            staying = len(numbers) - len(fitting)
        else:
            staying = offload_or_attach(tx, request, numbers, fitting, False)
        tx.commit()
    return staying

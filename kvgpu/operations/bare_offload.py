"""The bare offload: blocks that the caller names go to the host, whatever the phase and the owners (R4.9)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.errors import LogicError, OutOfPages
from kvgpu.operations.named_blocks import need_named
from kvgpu.operations.offload import host_counts, joined, offload, offload_or_attach, without_backing
from kvgpu.operations.room import NoRoom
from kvgpu.operations.state import Core, Scope
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvspec.config import Level


def offload_blocks(core: Core, request: Request, blocks: Sequence[int], groups: Sequence[int] | None) -> None:
    """Move blocks of complete history to the host, without a look at the phase or the owners (R4.9)."""
    need_named(request, f"offload of {request.name}", blocks, groups)
    if not request.active:
        raise LogicError(f"offload of {request.name}: it is {request.status.value}, only an active request offloads")
    chosen = [group for group in range(request.group_count) if request.sparse[group]] if groups is None else sorted(set(groups))
    found = []
    for group in chosen if blocks else ():  # no block, no page of whatever group
        if not request.sparse[group]:
            raise LogicError(f"offload of {request.name}: group {core.layout.groups[group].name} is not sparse")
        found.append(_history_pages(request, request.groups[group], sorted(set(blocks)), core.layout.groups[group].name))
    numbers = joined(found)
    numbers = numbers[core.pages.level[numbers] == Level.GPU]
    if numbers.size:
        move_to_host(core, core.scope(), request, numbers, f"offload of {request.name}")


def _history_pages(request: Request, own: GroupBlocks, blocks: list[int], group: str) -> Int32:
    for block in blocks:
        if block >= request.history_blocks:
            raise LogicError(f"offload of {request.name}.{group}.{block}: the block is no complete history")
        if not own.locked[0, block]:
            raise LogicError(f"offload of {request.name}.{group}.{block}: no page is mapped there")
    columns = np.array(blocks, dtype=np.int32)
    return own.page[:, columns][own.locked[:, columns]]


def move_to_host(core: Core, scope: Scope, request: Request, numbers: Int32, what: str) -> None:
    """Move GPU pages that a request has locked to the host, all or nothing. ``OutOfPages``, ``CopyFailed``."""
    try:
        with Transaction(core, scope) as tx:
            needing = without_backing(core, numbers)
            claims = tx.room.claim(host_counts(core, needing))
            tx.copies.evict()
            if core.backings is None:
                offload(tx, [(numbers, tx.room.take(claims))])
            else:
                offload_or_attach(tx, request, numbers, needing, not request.decoding)
            tx.commit()
    except NoRoom as error:
        raise OutOfPages(f"{what}: {error}") from error

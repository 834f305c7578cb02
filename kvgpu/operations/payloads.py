"""Payloads: which pages a write goes to, writing them, reading them (R2.1)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from kvgpu.device.api import DeviceError, Memory, Stream
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError
from kvgpu.operations.named_blocks import need_named
from kvgpu.operations.state import Core, WriteTarget
from kvgpu.requests.request import Request
from kvgpu.storage.copier import Buffer, Side
from kvgpu.storage.pages import NO_NODE, NO_PAGE
from kvspec.config import Level

_read_numbers = itertools.count(1)


class PageRead:
    """A read of a page that was submitted: its result, once that has run."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        """``memory``: where the read puts the payload."""
        self._memory = memory
        self._nbytes = nbytes

    def payload(self) -> bytes:
        """The bytes read, pools in the order of R1.6."""
        return self._memory.read_now(0, self._nbytes)


def writable(core: Core, request: Request, blocks: Sequence[int], groups: Sequence[int] | None) -> list[WriteTarget]:
    """The pages that a ``write`` goes to, all beam rows; the errors of R2.1."""
    name = f"write of {request.name}"
    need_named(request, name, blocks, groups)
    if not request.active:
        raise LogicError(f"{name}: it is {request.status.value}, only an active request writes")
    targets: list[WriteTarget] = []
    for block in dict.fromkeys(blocks):
        for group in range(request.group_count) if groups is None else dict.fromkeys(groups):
            first, end = core.layout.groups[group].stale(request.history, request.tokens_per_block)
            if groups is None and (first <= block < end or (request.ssm[group] and block > 0)):
                continue  # stale, or no such block in a group of this kind
            targets += _targets(core, request, group, block)
    return targets


def _targets(core: Core, request: Request, group: int, block: int) -> list[WriteTarget]:
    what = f"write of {request.name}.{core.layout.groups[group].name}.{block}"
    own = request.groups[group]
    if block >= request.entries(group) or not own.locked[0, block]:
        raise LogicError(f"{what}: no page is mapped there")
    if block < request.history_blocks and not request.ssm[group]:  # a state changes at every step (R1.3)
        raise LogicError(f"{what}: the block is wholly history, and that is immutable")
    found = []
    for beam in np.flatnonzero(own.locked[:, block]).tolist():
        page = int(own.page[beam, block])
        if core.pages.node[page] != NO_NODE:
            raise LogicError(f"{what}: the page is committed, and that is immutable")
        if core.pages.level[page] != Level.GPU:
            raise LogicError(f"{what}: the page is not on the GPU")
        found.append(WriteTarget(page, group, block, beam))
    return found


def unwritten(core: Core, request: Request, first: int, end: int) -> list[WriteTarget]:
    """GPU pages of blocks ``first..end-1`` that nobody has written, by block, group, beam row; those kept for a commit too."""
    found, table = [], core.pages
    for group, own in enumerate(request.groups):
        stop = 1 if request.ssm[group] else end
        pages = own.page[:, first:stop][(own.locked | own.kept)[:, first:stop]]
        for page in pages[(table.level[pages] == Level.GPU) & ~table.written[pages] & (table.node[pages] == NO_NODE)].tolist():
            found.append(WriteTarget(page, group, int(table.block[page]), int(table.beam[page])))
    return sorted(found, key=lambda target: (target.block, target.group, target.beam))


def write(core: Core, request: Request, writes: Sequence[tuple[WriteTarget, bytes]]) -> None:
    """Write whole GPU pages on the request's stream, in one submission per pool group.

    Raises ``CopyFailed`` without pinned memory for the payloads.
    """
    assert request.stream is not None
    by_pool: dict[int, list[tuple[int, bytes]]] = {}
    for target, payload in writes:
        by_pool.setdefault(int(core.pool_group[target.group, Level.GPU]), []).append((target.page, payload))
    for number, parts in sorted(by_pool.items()):
        pool = core.pools[Level.GPU][number]
        pages = np.array([page for page, _ in parts], dtype=np.int32)
        buffer = fill_buffer(core, [payload for _, payload in parts])
        core.copier.on_stream(
            core.fences.live(request.stream),
            Side(np.arange(len(parts), dtype=np.int32), None, buffer),
            Side(core.pages.slot[pages], pool),
            "payload write of a request",
            "R7.6 a payload buffer has been read",
            "R7.6 payload buffer",
        )
        core.pages.written[pages] = True
        core.pages.origin[pages] = -1


def fill_buffer(core: Core, payloads: Sequence[bytes]) -> Buffer:
    """Payloads of one size in a pinned buffer, one after the other. Raises ``CopyFailed`` if there is no memory for it."""
    whole = b"".join(payloads)
    try:
        buffer = core.copier.buffers.take(len(whole))
    except DeviceError as error:
        raise CopyFailed(f"{len(payloads)} payloads cannot be written: {error}") from error
    buffer.memory.host_array()[: len(whole)] = np.frombuffer(whole, dtype=np.uint8)
    return buffer


def read(core: Core, request: Request, group: int, block: int, beam: int, stream: Stream) -> PageRead:
    """Read a payload on a stream from where the request has it; waits for nothing."""
    name = f"read of {request.name}.{core.layout.groups[group].name}.{block}"
    own = request.groups[group]
    if not 0 <= beam < request.beam_width or block < 0:
        raise InvalidArgument(f"{name}: block {block}, beam {beam}: there is no such block or beam row")
    if block >= request.entries(group) or not own.locked[beam, block]:
        raise LogicError(f"{name}: no page is mapped there")
    if core.fences.live(stream) is not stream:
        raise LogicError(f"{name}: stream {stream.name} is in capture, end it first (R8.8)")
    page = int(own.page[beam, block])
    assert page != NO_PAGE
    pool = core.pool(core.key_of(page))
    number = next(_read_numbers)
    memory = core.device.allocate("pinned", pool.spec.page_bytes, f"page read {number}")
    core.copier.on_stream(
        stream,
        Side(core.pages.slot[page : page + 1].copy(), pool),
        Side(np.zeros(1, dtype=np.int32), None, Buffer(-number, memory)),
        "page read of a user",
        "R7.6 a page read has run",
        "R7.6 page read",
    )
    return PageRead(memory, pool.spec.page_bytes)

"""The cache manager: the public face of ``kvgpu``, one method per operation of the rules.

Every method takes the manager's lock, checks in the order of section 9, and hands over to the module of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgpu.device.api import Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfRange
from kvgpu.manager_base import ManagerBase
from kvgpu.operations import bare_offload, create, growth, lifecycle, payloads, recorded_reads, seeding
from kvgpu.operations import commit as committing
from kvgpu.operations.keys import Span, marked
from kvgpu.operations.payloads import PageRead
from kvgpu.operations.state import WriteTarget
from kvgpu.requests.request import Request, Snapshot, take_snapshot, wait_snapshot
from kvspec.config import DEFAULT_PRIORITY


class Manager(ManagerBase):
    """A cache manager on one device.

    Lengths are in tokens. A *group* is a layer group's number, a *level* 0 (GPU), 1 (host) or 2 (disk), a *block* counts from 0.
    Device work is ordered by streams and events; no method waits for it on the CPU.

    Errors are those of section 9, each a class of ``kvgpu``. With every method that takes a request, ``LogicError`` if it is
    closed, of another manager, or (where active is required) suspended (R3.13), and if somebody else captures its stream (R8.8).
    ``CopyFailed``: a copy was refused. After an error, and after a false result, nothing has changed (R3.14), but for what R3.9
    and R4.8 say.
    """

    # ---- requests (section 3) --------------------------------------------------------------------------------------

    def request(self, name: str) -> Request:
        """The request of that name, closed or not. Raises ``OutOfRange`` if there never was one (R3.13)."""
        with self._lock.shared():
            found = self._by_name.get(name)
            if found is None:
                raise OutOfRange(f"no request {name!r}: there are {', '.join(self._by_name) or 'none'}")
            return found

    def requests(self) -> tuple[Request, ...]:
        """All requests, closed ones included, in order of creation; of several with one name the last."""
        with self._lock.shared():
            return tuple(self._by_name.values())

    def create(
        self,
        name: str,
        tokens: Sequence[int] | None = None,
        prompt_length: int | None = None,
        priority: int = DEFAULT_PRIORITY,
        *,
        key: str | None = None,
        spans: Sequence[Span] = (),
    ) -> Request:
        """A new suspended request in prefill, matched against the prefix tree (R3.1).

        ``tokens``: those to look for; ``request.history`` is the number of them that matched, ``request.capacity`` the same.
        ``prompt_length``: in tokens, a multiple of ``tokens_per_block``: later blocks may have beams (R3.12). ``priority``: of
        its pages; lower ones are evicted first (R10.2). ``key``: of all tokens that it will ever have; ``spans``: (first, end,
        key) of parts of ``tokens`` (R2.7).

        Raises ``InvalidArgument`` (a negative token or prompt length, or no multiple, a key that is empty or no text, spans that
        are empty, overlap or go beyond the tokens), ``LogicError`` (the name is in use).
        """
        with self._lock.exclusive():
            create.check_create(self._core, self._by_name.get(name), name, tokens, prompt_length, key, spans)
            self._by_name.pop(name, None)
            self._made += 1
            self._by_name[name] = request = create.create(
                self._core, self, name, self._made, marked(tokens or (), key, spans), prompt_length or 0, priority, key
            )
            return request

    def resume(self, request: Request, stream: Stream | None = None, decode: bool | None = None) -> bool:
        """Make a suspended request active: lock every block that is not stale where it has to be (R3.2-R3.5).

        ``stream``: what its device work is ordered by from now on; needed the first time, and kept even if this fails.
        ``decode``: true enters decode as well, false insists on prefill, ``None`` keeps the phase.

        False: not now, as GPU use is above ``max_util_for_resume``, or slots run out (R3.5). Raises ``InvalidArgument`` (no
        stream yet, ``decode=False`` while decoding), ``LogicError`` (active already), ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._live(request)
            if stream is None and request.stream is None:
                raise InvalidArgument(f"resume of {request.name}: it has no stream yet, so one must be given")
            if decode is False and request.decoding:
                raise InvalidArgument(f"resume of {request.name}: it is decoding, and there is no way back to prefill")
            if request.active:
                raise LogicError(f"resume of {request.name}: it is active already")
            self._core.refuse_capture(request, stream or request.stream)
            if stream is not None:
                self._change_stream(request, stream)
            return lifecycle.resume(self._core, request, request.decoding or bool(decode))

    def resize(self, request: Request, capacity: int | None = None, history: int | None = None) -> bool:
        """Set capacity and history of an active request, in tokens; ``None`` keeps (R3.6).

        Growth takes GPU pages, a shrink frees those at the end, and a decoding request offloads the blocks that it completes.
        Deferred pages are tried again (R4.3). False: slots run out.

        Raises ``InvalidArgument`` (negative, history that shrinks or exceeds the capacity, or, decoding with a sparse group, the
        old capacity), ``LogicError`` (growth after the end of committing, R3.9), ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._live(request)
            lengths = growth.check_lengths(request, capacity, history)
            self._active(request, "resize")
            growth.check_growth(request, *lengths)
            return growth.resize(self._core, request, *lengths)

    def enter_decode(self, request: Request) -> bool:
        """Bring an active request from prefill into decode, with all eligible pages of its complete history offloaded (R3.8).

        A decoding request tries its deferred pages again, and that is all (R4.3). False, and still in prefill: host slots run
        out. Raises ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._active(request, "enter_decode")
            if request.decoding:
                return growth.resize(self._core, request, request.capacity, request.history)
            return growth.enter_decode(self._core, request)

    def commit(self, request: Request, tokens: Sequence[int], end: bool = False, *, key: str | None = None) -> None:
        """Append tokens to those committed; each block that they fill enters the prefix tree (R3.9).

        The history grows to at least the committed count. A block that the tree has already is taken from there. ``end``: a last
        partial block enters too, and neither capacity nor history grows, nor does a commit follow. ``key``: of these tokens,
        beside that of the request (R2.7).

        Raises ``InvalidArgument`` (a negative token, more tokens than the capacity, a bad key), ``LogicError`` (committing has
        ended, more than one beam), ``OutOfPages`` and ``CopyFailed``: blocks before the one that failed stay committed, so repeat
        the call with the tokens beyond ``request.committed``.
        """
        with self._lock.exclusive():
            self._live(request)
            committing.check_commit(request, tokens, key)
            self._core.refuse_capture(request)
            committing.commit(self._core, request, list(tokens), end, key)

    def stop_committing(self, request: Request) -> None:
        """No commit will follow: kept stale pages are released (R3.7, R3.9). Adds nothing; active or suspended."""
        with self._lock.exclusive():
            self._live(request)
            committing.end_committing(self._core, request)

    def suspend(self, request: Request) -> None:
        """Suspend an active request: its pages are held and may be evicted; indices read BAD until it resumes (R3.10)."""
        with self._lock.exclusive():
            self._active(request, "suspend")
            committing.suspend_request(self._core, request)

    def close(self, request: Request) -> None:
        """Close a request: it stops committing, releases all its pages and leaves its row (R3.10). Idempotent.

        It still answers ``status``, ``phase``, its lengths and its committed count.
        """
        with self._lock.exclusive():
            if request.closed:
                return
            self._own(request)
            self._core.refuse_capture(request)
            batch, request.batch, request.row = request.batch, None, None
            committing.close(self._core, request)
            if batch is not None:
                batch.member_closed(request)

    def prefetch(self, request: Request, level: int) -> bool:
        """Bring the pages of a suspended request up to ``level``, or to where a resume would lock them if that is colder (R3.11).

        Only a hint: it locks nothing. False: slots run out. Raises ``InvalidArgument`` (no such level), ``LogicError`` (active),
        ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._live(request)
            seeding.check_level(self._core, level)
            if request.active:
                raise LogicError(f"prefetch of {request.name}: it is active, only a suspended request prefetches")
            return lifecycle.prefetch(self._core, request, level)

    def offload(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> None:
        """Move blocks of complete history to the host, whatever the phase and whoever else owns them (R4.9): the caller vouches.

        ``groups``: ``None`` for all sparse ones. Pages on the host already are skipped.

        Raises ``OutOfRange`` (no such group), ``InvalidArgument`` (a negative block), ``LogicError`` (not complete history, a
        dense or partial page, none, or not its own), ``OutOfPages`` (no host slot), ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._live(request)
            bare_offload.offload_blocks(self._core, request, blocks, groups)

    def set_beam_width(self, request: Request, width: int) -> bool:
        """Give the blocks after the prompt ``width`` beam rows, once, in prefill, before any of them is history (R3.12).

        New rows have new pages, whose contents are undefined until they are written. False: slots run out.

        Raises ``InvalidArgument`` (``width`` below 1), ``LogicError`` (a second time, decoding, history past the prompt, a batch
        member).
        """
        with self._lock.exclusive():
            self._live(request)
            return growth.set_beam_width(self._core, request, width)

    def set_stream(self, request: Request, stream: Stream) -> None:
        """Give the request another stream, which is ordered after the work so far on the old one (R7.8)."""
        with self._lock.exclusive():
            self._live(request)
            self._change_stream(request, stream)

    def snapshot(self, request: Request, group: int, beam: int = 0) -> Snapshot:
        """Indices, levels, eligible count and readiness of a group and beam row, as they are now: a copy that stays (R6.1).

        Raises ``OutOfRange`` (no such group), ``InvalidArgument`` (no such beam row).
        """
        with self._lock.exclusive():
            self._own(request)
            self._group(group)
            if not 0 <= beam < request.beam_width:
                raise InvalidArgument(f"snapshot of {request.name}: no beam row {beam} of {request.beam_width}")
            return take_snapshot(self._core.fences, request, group, beam)

    def wait_snapshot(self, snapshot: Snapshot, stream: Stream) -> None:
        """Order ``stream`` after the readiness of all pages in a snapshot: then they can be read there (R6.1)."""
        with self._lock.exclusive():
            wait_snapshot(self._core.fences, snapshot, stream)

    def acknowledge(self, request: Request, version: int) -> bool:
        """Note that ``version`` of the request has been seen; false, and nothing noted, if it is not the newest (R6.5)."""
        with self._lock.exclusive():
            self._live(request)
            return request.acknowledge(version)

    def bind_row(self, request: Request, row: int | None) -> None:
        """Give a row number to a request in no batch, or, with ``None``, take it away again; its version is newer (R6.6).

        Raises ``LogicError`` (a negative row, a batch member).
        """
        with self._lock.exclusive():
            self._own(request)
            lifecycle.bind_row(self._core, request, row)

    def record_read(self, request: Request, stream: Stream) -> None:
        """Say that work so far on ``stream`` reads the pages that an active request has mapped: nothing disturbs it then (R7.7).

        Ordered after it are later use of their slots, whoever has them then, and later work of the request's own stream. Raises
        ``LogicError`` (a batch member: record the batch's reads; a capture, R8.8).
        """
        with self._lock.exclusive():
            self._active(request, "record_read")
            if request.batch is not None:
                raise LogicError(f"record_read of {request.name}: it is in batch {request.batch.name}, record the batch's reads")
            self._capture.refuse(f"record_read of {request.name}", stream)
            recorded_reads.of_request(self._core, request, stream)

    # ---- payloads --------------------------------------------------------------------------------------------------

    def writable(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> list[WriteTarget]:
        """The pages that a write of these blocks of an active request goes to, in all beam rows (R2.1).

        ``groups``: ``None`` for those in which the block is not stale. Raises ``OutOfRange`` (no such group),
        ``InvalidArgument`` (a negative block), ``LogicError`` (no page, not on the GPU, wholly history, or committed).
        """
        with self._lock.shared():
            self._live(request)
            return payloads.writable(self._core, request, blocks, groups)

    def write_payloads(self, request: Request, writes: Sequence[tuple[WriteTarget, bytes]]) -> None:
        """Write whole pages on the request's stream, one submission for each pool group.

        ``writes``: targets of ``writable`` or of the payload hook, and the bytes of each page: its pools in the order of R1.6.
        Raises ``CopyFailed`` if there is no pinned memory for them.
        """
        with self._lock.exclusive():
            payloads.write(self._core, request, writes)

    def read_page(self, request: Request, group: int, block: int, beam: int, stream: Stream) -> PageRead:
        """Read a page on ``stream``, from where the request has it now. It waits for nothing by itself: see ``wait_snapshot``.

        The result has the bytes, pools in the order of R1.6, once the stream has run. Raises ``OutOfRange`` (no such group),
        ``InvalidArgument`` (no such block or beam row), ``LogicError`` (no page is mapped there, or the stream is in capture),
        ``DeviceError`` (no pinned memory).
        """
        with self._lock.exclusive():
            self._live(request)
            self._group(group)
            return payloads.read(self._core, request, group, block, beam, stream)

    # ---- tree and pools (section 10) -------------------------------------------------------------------------------

    def seed_prefix(
        self,
        tokens: Sequence[int],
        level: int,
        groups: Sequence[int] | None = None,
        priority: int = DEFAULT_PRIORITY,
        *,
        content: Callable[[tuple[int, ...], int, int], bytes],
        key: str | None = None,
        spans: Sequence[Span] = (),
    ) -> None:
        """Put the blocks of ``tokens`` that the prefix tree lacks into it, with pages on ``level``; what is there stays (R10.5).

        ``groups``: those that get pages; ``None`` for all. ``content(prefix, group, block)``: the bytes of a new page, pools in
        the order of R1.6, where ``prefix`` is all tokens up to the end of the block. ``key``, ``spans``: of the tokens, as for
        ``create``.

        Raises ``InvalidArgument`` (no such level, a negative token, a bad key or span), ``OutOfRange`` (no such group),
        ``OutOfPages`` (no room can be made), ``CopyFailed``.
        """
        with self._lock.exclusive():
            seeding.seed(self._core, tokens, level, groups, priority, content, key, spans)

    def evict(self, level: int, pool_group: int, pages: int) -> None:
        """Move the first ``pages`` evictable pages of a pool group one level down, or drop them (R10.1, R10.5).

        Raises ``InvalidArgument`` (no such level, fewer than 1), ``OutOfRange`` (no such pool group), ``OutOfPages`` (so many
        cannot leave), ``CopyFailed``.
        """
        with self._lock.exclusive():
            self._pool(level, pool_group)
            seeding.evict(self._core, level, pool_group, pages)

    def clear_reusable(self) -> None:
        """Drop every droppable page, on every level (R10.5): no request needs them, only the tree keeps them."""
        with self._lock.exclusive():
            seeding.clear(self._core)

    def take_slots(self, label: str, level: int, pool_group: int, count: int | None) -> None:
        """Take ``count`` free slots of a pool group (``None``: all of them) and keep them under a label; evicts nothing (R10.5).

        Raises ``InvalidArgument`` (no such level, fewer than 1), ``OutOfRange`` (no such pool group), ``LogicError`` (a label in
        use), ``OutOfPages`` (fewer are free).
        """
        with self._lock.exclusive():
            pool = self._pool(level, pool_group)
            self._taken.take(pool, label, count)

    def give_slots(self, label: str) -> None:
        """Give back the slots under a label (R10.5). Raises ``OutOfRange`` for an unknown one."""
        with self._lock.exclusive():
            self._taken.give(label)

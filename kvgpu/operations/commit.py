"""Commit, rebase, the end of committing, closing (R3.9, R3.10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.errors import InvalidArgument, LogicError, OutOfPages
from kvgpu.operations import places, private_rebase
from kvgpu.operations.growth import set_lengths
from kvgpu.operations.journal import released_work
from kvgpu.operations.keys import check_keys
from kvgpu.operations.lifecycle import behind, every_locked_page, every_page, suspend
from kvgpu.operations.offload import NONE, bring_up, joined, offload, slot_counts
from kvgpu.operations.reserving import give_back
from kvgpu.operations.room import NoRoom
from kvgpu.operations.state import Core, Scope
from kvgpu.operations.transaction import Transaction
from kvgpu.operations.tree_changes import give_page, insert_node, set_tail, stop_committing
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvgpu.storage.fences import Point
from kvgpu.storage.pages import NO_PAGE, NOBODY
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import Text
from kvspec.config import Level
from kvspec.observation import RequestStatus


def check_commit(request: Request, tokens: Sequence[int], key: str | None = None) -> None:
    """The errors of a commit that need no action, in the order of section 9."""
    name = f"commit of {request.name}"
    if any(token < 0 for token in tokens):
        raise InvalidArgument(f"{name}: tokens are integers from 0, got {min(tokens)}")
    check_keys(name, len(tokens), key)
    if request.committed + len(tokens) > request.capacity:
        raise InvalidArgument(
            f"{name}: {len(tokens)} tokens after {request.committed} are beyond the capacity {request.capacity}: resize first"
        )
    if not request.active:
        raise LogicError(f"{name}: it is {request.status.value}, only an active request commits")
    if request.beam_width > 1:
        raise LogicError(f"{name}: its beam width is {request.beam_width}, commit needs 1")
    if tokens and not request.committing:
        raise LogicError(f"{name}: its committing has ended (end, stop_committing, or its path left the tree)")


def commit(core: Core, request: Request, tokens: Sequence[int], end: bool, key: str | None = None) -> None:
    """Append tokens, enter full blocks into the tree, end if asked to; the request and the tokens were checked (R3.9).

    ``key``: of these tokens (R2.7).
    """
    scope, size = core.scope(), request.tokens_per_block
    if tokens:
        total = request.committed + len(tokens)
        if total > request.history:
            _grow(core, scope, request, total)
        every = request.text_with(tokens, key)
        for block in range(request.committed // size, total // size):
            if not request.committing:
                raise LogicError(f"commit of {request.name}: its path left the tree, its committing has ended")
            prefix = every.part(0, (block + 1) * size)
            _commit_block(core, scope, request, block, prefix)
            request.hold(prefix)
        request.hold(every)
    if end and not request.ended:
        with Transaction(core, scope) as tx:
            if request.committing:
                enter_rest(tx, request)
                stop_committing(tx, request)
            tx.put_attribute(request, "ended", True)
            tx.commit()


def _grow(core: Core, scope: Scope, request: Request, history: int) -> None:
    if request.ended:
        raise LogicError(f"commit of {request.name}: it has ended, its history grows no more")
    try:
        with Transaction(core, scope) as tx:
            _pin_path(tx, request)
            set_lengths(tx, request, request.capacity, history)
            tx.commit()
    except NoRoom as error:
        raise OutOfPages(f"commit of {request.name}: {error}") from error


def _commit_block(core: Core, scope: Scope, request: Request, block: int, prefix: Text) -> None:
    """One full block, the last of ``prefix``, enters the tree, or the request rebases onto the tree's."""
    text = prefix.part(block * request.tokens_per_block, len(prefix.tokens))
    try:
        with Transaction(core, scope) as tx:
            existing = request.tail.children.get(text)
            _pin_path(tx, request)
            if existing is None:
                node = insert_node(tx, request.tail, text, prefix)
                _give_own(tx, request, node, range(request.group_count))
            else:
                node = existing
                _rebase(tx, request, node)
            set_tail(tx, request, node)
            tx.touch(request)
            tx.commit()
    except NoRoom as error:
        raise OutOfPages(f"commit of {request.name}, block {block}: {error}") from error


def _pin_path(tx: Transaction, request: Request) -> None:
    """The blocks that new ones are put below are about to be used (R3.14)."""
    tx.room.pin_blocks(request.tail.path())


def _give_own(tx: Transaction, request: Request, node: Node, groups: Sequence[int]) -> None:
    """The request's own pages of a block turn committed, where they are; those kept for that are let go of (R3.7)."""
    joined_work: list[Point] = []
    for group in groups:
        own = request.groups[group]
        page = int(own.page[0, node.depth]) if node.depth < own.page.shape[1] else NO_PAGE
        if request.ssm[group] or page == NO_PAGE:
            continue
        if not joined_work and request.stream is not None:
            joined_work = [
                tx.core.fences.record(request.stream, "R6.4 work before a commit", "R6.4 readiness: work before the commit")
            ]
        one = np.array([page], dtype=np.int32)
        give_page(tx, page, node)
        tx.join_readiness(one, joined_work)
        if own.kept[0, node.depth]:
            _forget_kept(tx, request, group, node.depth)


def _forget_kept(tx: Transaction, request: Request, group: int, block: int) -> None:
    own = request.groups[group]
    one = own.page[0, block : block + 1].copy()
    where = (np.zeros(1, dtype=np.intp), np.array([block]))
    tx.put_blocks(own, "kept", where, False)
    tx.put_blocks(own, "page", where, NO_PAGE)
    tx.fence_slots(one, released_work(tx.core, request))
    tx.release(one, request)


# ---- rebase ----------------------------------------------------------------------------------------------------------


def _rebase(tx: Transaction, request: Request, node: Node) -> None:
    """Give up the own pages of a block and lock the tree's instead (R3.9)."""
    core, block, size = tx.core, node.depth, request.tokens_per_block
    theirs: list[int] = []
    given_up: list[tuple[int, int]] = []
    missing: list[int] = []
    own_places: list[tuple[int, int]] = []
    for group in core.layout.groups:
        own = request.groups[group.number]
        page = node.pages[group.number]
        first, end = group.stale(request.history, size)
        if group.ssm:
            continue
        if page == NO_PAGE:
            missing.append(group.number)
        elif first <= block < end:
            if own.kept[0, block]:
                _forget_kept(tx, request, group.number, block)
        else:
            if core.backings is not None and group.sparse:
                own_places.append((int(own.page[0, block]), page))
                continue
            theirs.append(page)
            given_up.append((group.number, int(own.page[0, block])))
    tree_pages = np.array(theirs, dtype=np.int32)
    tx.room.pin_shown(node)
    _give_up_own(tx, request, block, given_up)
    _lock_theirs(tx, request, block, tree_pages, private_rebase.keep_own(tx, request, own_places))
    _give_own(tx, request, node, missing)


def _give_up_own(tx: Transaction, request: Request, block: int, given_up: list[tuple[int, int]]) -> None:
    numbers = np.array([page for _, page in given_up], dtype=np.int32)
    tx.fence_slots(numbers, released_work(tx.core, request) if numbers.size else [])
    tx.unlock(numbers, not request.decoding)
    where = (np.zeros(1, dtype=np.intp), np.array([block]))
    for group, _ in given_up:
        tx.put_blocks(request.groups[group], "locked", where, False)
        tx.put_blocks(request.groups[group], "page", where, NO_PAGE)
    tx.release(numbers, request)


def _lock_theirs(tx: Transaction, request: Request, block: int, numbers: Int32, mapped: Int32) -> None:
    """Bring the tree's pages to where R3.2 locks them, offload those that are eligible, lock them.

    ``mapped``: of ``private_rebase.keep_own``, locked already.
    """
    core, pages = tx.core, tx.core.pages
    sparse = np.array(request.sparse)[pages.group[numbers]]
    stays = sparse if request.decoding else np.zeros_like(sparse)
    to_host = numbers[stays & (pages.level[numbers] == Level.DISK)]
    leaving = numbers[stays & (pages.level[numbers] == Level.GPU) & (pages.needs[numbers] == 0)]
    up = numbers[~stays & (pages.level[numbers] != Level.GPU)]
    tx.room.claim(slot_counts(core, joined([to_host, leaving]), Level.HOST))
    filled = NONE if request.decoding else mapped
    gpu_claims = tx.room.claim(slot_counts(core, joined([up, filled]), Level.GPU))
    tx.copies.evict()
    gpu, below = tx.room.take(gpu_claims), tx.room.take(slot_counts(core, to_host, Level.HOST))
    bring_up(tx, up, gpu, Level.GPU)
    bring_up(tx, to_host, below, Level.HOST)
    copied = private_rebase.fill(tx, request, filled, gpu)
    ready, reads = behind(core, joined([numbers, mapped if request.decoding else copied]))
    # Only now: a slot that a page has just left is free at once (R5.2), and may be the first to be handed out (R7.2).
    offload(tx, [(leaving, tx.room.take(slot_counts(core, leaving, Level.HOST)))], [request])
    tx.add_user(numbers, request)
    tx.lock(numbers, not request.decoding)
    where = (np.zeros(1, dtype=np.intp), np.array([block]))
    for page in numbers.tolist():
        own = request.groups[int(pages.group[page])]
        tx.put_blocks(own, "page", where, page)
        tx.put_blocks(own, "locked", where, True)
    assert request.stream is not None
    core.fences.wait(request.stream, ready, "R7.9 readiness of a page that a rebase locks")
    core.fences.wait(request.stream, reads, where="R7.9 readers of the pages that a rebase locks")
    request.maybe_deferred |= request.decoding


# ---- the end ---------------------------------------------------------------------------------------------------------


def enter_rest(tx: Transaction, request: Request) -> None:
    """A final partial block enters the tree, unless a child there begins with its tokens (R3.9)."""
    size = request.tokens_per_block
    block = request.committed // size
    left = request.committed - block * size
    rest = request.text().part(block * size, request.committed)
    if not left or any(child.text.part(0, left) == rest for child in request.tail.children.values()):
        return
    groups = [
        group
        for group, own in enumerate(request.groups)
        if not request.ssm[group] and block < own.page.shape[1] and own.page[0, block] != NO_PAGE
    ]
    if groups:
        _give_own(tx, request, insert_node(tx, request.tail, rest, request.text()), groups)
        tx.touch(request)


def end_committing(core: Core, request: Request) -> None:
    """End committing without adding anything (R3.9)."""
    if request.committing:
        with Transaction(core, core.scope()) as tx:
            stop_committing(tx, request)
            tx.commit()


def suspend_request(core: Core, request: Request) -> None:
    """Suspend an active request (R3.10)."""
    with Transaction(core, core.scope()) as tx:
        # Of pages that it keeps though they are stale it let go before (R3.7): the work since then has no part in them.
        tx.fence_slots(every_locked_page(request), released_work(core, request))
        suspend(tx, request)
        give_back(tx, request)
        core.counters.suspended()
        tx.commit()


def _own_places(core: Core, request: Request, numbers: Int32) -> Int32:
    """The pages of a request, without the copies of others that it refers to while it is suspended (R14.2)."""
    if core.backings is None:
        return numbers
    copy_of = core.pages.copy_of[numbers]
    own: Int32 = numbers[(copy_of == NOBODY) | (copy_of == request.uid)]
    return own


def close(core: Core, request: Request) -> None:
    """Stop committing, release everything (R3.10). The caller has seen to its batch."""
    with Transaction(core, core.scope()) as tx:
        # Of what it only refers to, another's copy, it has read nothing (R14.12).
        tx.fence_slots(_own_places(core, request, every_page(request)), released_work(core, request))
        if request.active:
            suspend(tx, request)
        if request.committing:
            enter_rest(tx, request)
            stop_committing(tx, request)
        if core.backings is None:
            tx.release(every_page(request), request)
        else:
            places.release_all(tx, request)
        give_back(tx, request)
        request.tail.tails.discard(request.uid)
        request.status = RequestStatus.CLOSED
        tx.touch(request)
        tx.commit()
    del core.by_uid[request.uid]
    request.forget(core.tree.root)

"""The invariants of operations."""

from __future__ import annotations

from collections.abc import Iterator

from kvref.batch import entries_of
from kvref.invariants.registry import Invariant, history, invariant, live, name_of, owned, pool_of, shown
from kvref.state import EMPTY, NEVER, Page, Request, State
from kvspec import ops
from kvspec.config import Level
from kvspec.observation import RequestStatus
from kvspec.ops import Operation, Retry
from kvspec.system import Outcome

OF_STEPS: list[Invariant] = []
"""What holds of every operation: of the state before, the operation, its outcome, and the state after."""
FITTING = (ops.Resume, ops.Resize, ops.EnterDecode, ops.AdmitGeneration, ops.Prefetch, ops.SetBeamWidth, ops.Acknowledge)
"""What is false where it does not fit, or does not count: then nothing has happened (R3.14, R6.5)."""
RETRYING = (ops.Resume, ops.Resize, ops.EnterDecode, ops.AdmitGeneration)
"""What tries the older deferred pages of a request again (R4.3)."""
PUBLISHING = (ops.Publish, ops.ResizeBatch, ops.Iterate)
GROWING = (ops.Resize, ops.ResizeBatch, ops.Iterate)
"""What completes blocks that have to fit (R4.7)."""
BRINGING = (ops.Resume, ops.Prefetch, ops.Commit, ops.AdmitGeneration, ops.Iterate)
"""What brings a page to the GPU that others have locked on the host (R5.1)."""


def failed(op: Operation, outcome: Outcome) -> bool:
    """Whether an operation came to nothing: an error, or false."""
    return outcome.error is not None or (outcome.value is False and isinstance(op, FITTING))


def may_stay(op: Operation, outcome: Outcome) -> bool:
    """Whether a rule lets part of a failed operation stand.

    Earlier blocks of a commit (R3.9), members whose retry was done (R8.6), rows that were resized (R8.9), what an iteration has
    prepared (R11.1).
    """
    found_full = outcome.error is not None and outcome.error.value in ("out_of_pages", "copy_failed")
    return isinstance(op, (ops.Iterate, ops.ResizeBatch)) or (found_full and isinstance(op, (ops.Commit, ops.Publish)))


@invariant(OF_STEPS, "a failed operation changed nothing", "R3.14, R4.8, section 9")
def a_failed_operation_changed_nothing(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """After an error, or false, all is as before, but for a resume's stream and what a refused copy leaves: payloads, order."""
    if not failed(op, outcome) or may_stay(op, outcome) or before.layout.policies.failed_operation != "evicts_nothing":
        return
    refused = outcome.error is not None and outcome.error.value == "copy_failed"
    for name in ("nodes", "taken", "gates", "labels", "reads", "graphs", "capture", "fetches", "counters", "calls"):
        if getattr(before, name) != getattr(after, name):
            yield f"{name} changed"
    if before.faults != after.faults and not refused:
        yield "a refusal was used up"
    if [(pool, [s.number for s in slots]) for pool, slots in before.free.items()] != [
        (pool, [s.number for s in slots]) for pool, slots in after.free.items()
    ]:
        yield "the free slots changed"
    if [(b.name, b.open, b.rows, b.published, b.uploads[-1:]) for b in before.batches.values()] != [
        (b.name, b.open, b.rows, b.published, b.uploads[-1:]) for b in after.batches.values()
    ]:
        yield "a batch changed"
    if {n: one.held for n, one in before.reservations.items()} != {n: one.held for n, one in after.reservations.items()}:
        yield "what is reserved changed"
    if before.pages.keys() != after.pages.keys() or before.requests.keys() != after.requests.keys():
        yield "a page or a request came or went"
        return
    for page, now in zip(before.pages.values(), after.pages.values(), strict=True):
        if _of_page(page, refused) != _of_page(now, refused):
            yield f"{name_of(before, page)} changed"
    for r, is_now in zip(before.requests.values(), after.requests.values(), strict=True):
        if _of_request(r, op) != _of_request(is_now, op) or (r.version != is_now.version and not refused):
            yield f"{r.name} changed"


def _of_page(p: Page, refused: bool) -> tuple[object, ...]:
    place = p.id, p.level, p.slot, p.priority, p.since, p.node, p.entered, p.identity, p.copy_of
    return place if refused else (*place, p.written, p.content, p.ready, p.move)


def _of_request(r: Request, op: Operation) -> tuple[object, ...]:
    lengths = r.uid, r.status, r.phase, r.capacity, r.history, r.tokens, r.path, r.pages, r.row, r.width, r.ended, r.resumed
    resumes = isinstance(op, (ops.Resume, ops.AdmitGeneration))
    return lengths if resumes else (*lengths, r.stream)


@invariant(OF_STEPS, "nothing leaves while it is locked", "R2.5, R4.2, R5.1")
def nothing_leaves_while_it_is_locked(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """A page that stays locked moves only by an offload, of owners that all decode, or up for a prefill; never to the disk.

    And an active request keeps the page of a block, but where a commit takes the tree's.
    """
    then, now = owned(before), owned(after)
    for pid, had in then.items():
        page = before.pages[pid]
        stayed = {r.uid for r in had} & {r.uid for r in now.get(pid, ())}
        if not stayed:
            continue
        at = after.pages[pid]
        if (page.level, page.slot) == (at.level, at.slot):
            continue
        offloaded = (page.level, at.level) == (Level.GPU, Level.HOST)
        vouched = isinstance(op, ops.Offload) or all(r.decoding for r in now[pid])
        brought = (page.level, at.level) == (Level.HOST, Level.GPU) and isinstance(op, BRINGING)
        if not ((offloaded and vouched) or brought):
            whose = ", ".join(f"{r.name} ({r.phase.value})" for r in now[pid])
            yield f"{name_of(before, page)}, locked by {whose}, went from {page.level.label} to {at.level.label}"
    if isinstance(op, ops.Commit) or before.layout.private:
        return
    uids = {r.uid: r for r in live(after)}
    for r in live(before):
        same = uids.get(r.uid)
        if r.active and same is not None and same.active:
            kept = shown(after, same)
            for key, page in shown(before, r).items():
                if key in kept and kept[key].id != page.id:
                    yield f"{r.name} has another page of block {key[1]} of {before.layout.groups[key[0]].name}"


@invariant(OF_STEPS, "what is deferred has a reason", "R3.8, R4.2, R4.3, R4.7, R8.6, R14.6")
def what_is_deferred_has_a_reason(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """After a retry, complete history of a decoding request that is on the GPU has an owner in prefill, or found no host slot.

    The second holds only of what was deferred before, and after a publication only of a lenient batch.
    """
    if failed(op, outcome) or not isinstance(op, (*RETRYING, *PUBLISHING)):
        return
    by, published = owned(after), isinstance(op, PUBLISHING)
    batches = [b for b in after.batches.values() if published and b.open and b.name == getattr(op, "batch", "")]
    rows = [name for b in batches for name in b.rows]
    strict = any(b.retry is Retry.STRICT for b in batches)
    for r in (r for r in live(after) if r.name in (rows if published else [getattr(op, "request", "")])):
        was = before.requests.get(r.name)
        new_phase = was is None or not was.decoding
        for key, page in shown(after, r).items():
            if not (r.decoding and history(after, r, key) and page.level is Level.GPU):
                continue
            if not after.layout.private and not all(owner.decoding for owner in by.get(page.id, ())):
                continue
            older = was is not None and was.active and history(before, was, key)
            grown = was is not None and was.active and not older and isinstance(op, GROWING)
            must = strict or new_phase or grown
            pool = Level.HOST, after.layout.groups[page.group].pools[Level.HOST]
            came_up = sum(_came_up(before, one, pool) for one in after.pages.values())
            backed = any(
                p.identity is not None and p.identity == page.identity and p.level is Level.HOST for p in after.pages.values()
            )
            if must or backed or len(after.free[pool]) > came_up:
                yield f"{name_of(after, page)} of {r.name} stayed on the gpu; free host slots: {len(after.free[pool])}"


def _came_up(before: State, page: Page, pool: tuple[Level, int]) -> bool:
    """Whether a page has come to the GPU from a host pool: the slot that it left was no room for the operation itself (R3.14)."""
    was = before.pages.get(page.id)
    return was is not None and pool_of(before, was) == pool and page.level is Level.GPU


@invariant(OF_STEPS, "a version tells of what is shown", "R6.4, R6.5")
def a_version_tells_of_what_is_shown(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """A version is newer exactly where what the request shows has changed, a block of it was committed, or a row bound."""
    uids = {r.uid: r for r in before.requests.values()}
    for r in after.requests.values():
        was = uids.get(r.uid)
        if was is None or was is r:
            if was is not None and _shows(before, was) != _shows(after, r):
                yield f"{r.name} shows something else, and its version is the same"
            continue
        changed = _shows(before, was) != _shows(after, r)
        if changed and r.version == was.version:
            yield f"{r.name} shows something else, and its version is the same"
        told = changed or r.path != was.path or isinstance(op, (ops.Commit, ops.BindRow))
        if r.version != was.version and not told and before.layout.policies.versions == "exactly":
            yield f"{r.name} shows the same, and its version is newer"
        if r.version < was.version:
            yield f"the version of {r.name} is older than it was"


def _shows(state: State, r: Request) -> tuple[object, ...]:
    pages = {key: (page.slot, page.level, page.move) for key, page in shown(state, r).items()}
    blocks = 0 if r.status is RequestStatus.CLOSED else -(-r.capacity // state.layout.tpb)
    return r.status, r.phase, r.row, blocks, pages


@invariant(OF_STEPS, "a publication leaves no row dirty", "R8.4, R6.5")
def a_publication_leaves_no_row_dirty(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """After a publication every row shows what its member has now, and the members' versions are acknowledged."""
    if outcome.error is not None or not isinstance(op, PUBLISHING):
        return
    for batch in (b for b in after.batches.values() if b.open and b.name == op.batch):
        for row, (name, version) in enumerate(zip(batch.rows, batch.published, strict=True)):
            if version != (EMPTY if name is None else after.requests[name].version):
                yield f"row {row} of {batch.name} is dirty"
            if batch.uploads[-1].rows[row] != entries_of(after, None if name is None else after.requests[name], batch.blocks):
                yield f"row {row} of {batch.name} shows something else than {name}"


@invariant(OF_STEPS, "a dirty row explains every difference", "R8.3, R6.4")
def a_dirty_row_explains_every_difference(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """A row that is not dirty shows in the tables what its member, or nobody, would show now."""
    for batch in after.batches.values():
        for number, (name, version) in enumerate(zip(batch.rows, batch.published, strict=True)):
            member = None if name is None else after.requests[name]
            clean = batch.open and version != NEVER and version == (EMPTY if member is None else member.version)
            if clean and batch.uploads[-1].rows[number] != entries_of(after, member, batch.blocks):
                yield f"row {number} of {batch.name} ({name}) is clean, and the tables show something else"


@invariant(OF_STEPS, "counts in tables are prefixes", "R6.3, R8.5")
def counts_in_tables_are_prefixes(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """A count in the tables is of leading blocks that were on the host when the row was published."""
    for uid, batch in after.batches.items():
        was = before.batches.get(uid)
        if was is not None and was.uploads[-1:] == batch.uploads[-1:]:
            continue
        for number, row in enumerate(batch.uploads[-1].rows if batch.uploads else ()):
            for g, entries in zip(after.layout.attention, row, strict=True):
                if any(level is not Level.HOST for level in entries.levels[: entries.eligible]):
                    yield f"row {number} of {batch.name} counts {entries.eligible} of {g.name}, at {entries.levels}"


@invariant(OF_STEPS, "what is committed stays", "R2.1, R3.6, section 3")
def what_is_committed_stays(before: State, op: Operation, outcome: Outcome, after: State) -> Iterator[str]:
    """The contents of a committed page never change; history and committed tokens never shrink; decode is for good."""
    for page in before.pages.values():
        now = after.pages.get(page.id)
        if now is not None and page.entered and now.content != page.content:
            yield f"{name_of(before, page)} was committed, and has other contents"
    keeps = before.layout.policies.suspend == "hold"
    uids = {r.uid: r for r in live(after)}
    for was in live(before):
        r = uids.get(was.uid)
        if r is None:
            continue
        if keeps and (r.history < was.history or r.tokens[: len(was.tokens)] != was.tokens):
            yield f"{r.name} had history {was.history} and committed {was.tokens}; now {r.history} and {r.tokens}"
        if was.decoding and not r.decoding:
            yield f"{r.name} was decoding, and is not any more"

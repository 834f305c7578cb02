"""Where a page is and why: who keeps it there, by which rule, and what would move it. From what a system shows, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvspec.config import LayerConfig, LayerKind, Level, ManagerConfig
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index
from kvspec.harness.timeline.reasons import first_layers, owners_of, pool_of, why_here
from kvspec.harness.timeline.wording import arguments, folded, listed, shown_name
from kvspec.observation import Observation, PageRef, PageStatus, PageView, Phase, RequestStatus, RequestView
from kvspec.scenario import Step
from kvspec.system import Turn


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing to say. ``title``: what of; ``rules``: those that say so."""

    title: str
    text: str
    rules: tuple[str, ...] = ()


def whereabouts(
    manager: ManagerConfig, now: Index, memory: Memory, ref: PageRef, turns: Sequence[Turn] = ()
) -> Iterator[Statement]:
    """All that there is to say of the page that a request refers to as a block, after a step; or of why there is none.

    :param turns: of the pages of ``now``, if the system says so.
    """
    view = now.observation
    index = now.by_ref.get(ref)
    if index is None:
        yield from _absent(manager, view, ref)
        key = memory.tree_pages.get(ref)
        index = now.by_key.get(key) if key is not None else None
        if index is None:
            return
        yield Statement("the page it had", f"is in the tree still, {shown_name(now.pages[index])}", ("R3.7",))
    page = now.pages[index]
    layer = first_layers(manager)[page.group]
    yield Statement("where", f"{page.level.label}, slot {page.slot}", ("R2.4",))
    yield _kept(view, page)
    if page.tokens is not None:
        yield Statement("in the tree", f"committed, as the end of {folded(page.tokens)}", ("R2.1",))
    if page.ready.gates:
        yield Statement("pending", f"its payload is valid there once {listed(page.ready.gates)} has opened", ("R2.4",))
    match page.status:
        case PageStatus.LOCKED:
            yield from _locked(manager, layer, view, page)
        case PageStatus.HELD:
            yield from _held(manager, layer, view, page, index)
        case PageStatus.DROPPABLE:
            yield from _droppable(view, page, index)
    yield from _order(now, page, index, turns)
    yield from _published(view, memory, ref, page)


def _absent(manager: ManagerConfig, view: Observation, ref: PageRef) -> Iterator[Statement]:
    """Why a request has no page of a block."""
    request = view.requests[ref.request]
    layer = first_layers(manager)[ref.group]
    tpb = manager.tokens_per_block
    blocks = 1 if layer.kind is LayerKind.SSM else -(-request.capacity // tpb)
    if request.status is RequestStatus.CLOSED:
        yield Statement("no page", f"{ref.request} is closed: it has released everything", ("R3.10",))
    elif ref.block >= blocks:
        state = ": a state is its block 0 alone" if layer.kind is LayerKind.SSM else f" (capacity {request.capacity})"
        yield Statement(
            "no page", f"{ref.request} has {blocks} block{'s' if blocks != 1 else ''} in {ref.group}{state}", ("R1.1",)
        )
    elif layer.kind is LayerKind.SSM:
        yield Statement("no page", f"the state of {ref.request} begins at its first resume", ("R1.3",))
    elif layer.sliding_window is not None and not layer.sparse:
        window = f"a window of {layer.sliding_window} tokens" + (
            f" and {layer.sink_tokens} sink tokens" if layer.sink_tokens else ""
        )
        yield Statement(
            "no page", f"the block is stale at history {request.history}, with {window}: it was let go", ("R1.8", "R3.7")
        )
    elif ref.beam >= request.beam_width or ref.beam:
        yield Statement("no page", f"{ref.request} has no row of beam {ref.beam} in this block", ("R3.12",))
    else:
        yield Statement("no page", f"{ref.request} has none of this block", ("R2.1",))


def _kept(view: Observation, page: PageView) -> Statement:
    def told(name: str) -> str:
        request = view.requests[name]
        return f"{name} ({request.phase.value}, history {request.history})"

    if page.status is PageStatus.LOCKED:
        return Statement("locked by", ", ".join(told(name) for name in sorted(page.owners) if name in view.requests), ("R2.3",))
    holders = sorted({ref.request for ref in page.refs})
    if holders:
        return Statement("held by", ", ".join(f"{name} ({view.requests[name].status.value})" for name in holders), ("R2.2",))
    return Statement("kept by", "the tree alone: droppable", ("R2.2",))


def _locked(manager: ManagerConfig, layer: LayerConfig, view: Observation, page: PageView) -> Iterator[Statement]:
    owners = owners_of(view, page)
    names = listed(owners)
    decoding = {name: one for name, one in owners.items() if one.phase is Phase.DECODE}
    unlock = Statement(
        "would move it", f"once {names} suspended or closed, an eviction; a locked page is never evicted", ("R2.5", "R10.1")
    )
    if not layer.sparse:
        kind = "a state" if layer.kind is LayerKind.SSM else "a dense page"
        yield Statement("why", f"{kind} is at level 0 while it is locked, and no offload takes it", ("R3.2", "R4.1"))
        if layer.sliding_window is not None:
            yield Statement("would move it", "a history at which the window has left it: then it is let go", ("R1.8", "R3.7"))
        yield unlock
        return
    if page.level is Level.HOST:
        prefill = sorted(owners.keys() - decoding.keys())
        if prefill:
            yield Statement("why", f"a bare offload took it, although {listed(prefill)} is in prefill", ("R4.9",))
        else:
            yield Statement(
                "why", f"it is complete history of {names}, decoding: offloaded, and read from there", ("R4.6", "R3.2")
            )
        yield Statement(
            "would move it",
            "a request that resumes or rebases onto it in prefill: back to the GPU, for all its owners",
            ("R5.1",),
        )
        yield unlock
        return
    yield from _on_gpu(manager, view, page, owners, decoding)
    yield unlock


def _on_gpu(
    manager: ManagerConfig, view: Observation, page: PageView, owners: dict[str, RequestView], decoding: dict[str, RequestView]
) -> Iterator[Statement]:
    """A locked sparse page at level 0: not to be moved yet, or deferred."""
    tpb = manager.tokens_per_block
    end = (page.block + 1) * tpb
    if not decoding:
        yield Statement("why", f"pages of a request in prefill stay on the GPU: {listed(owners)}", ("R3.2", "R4.1"))
        short = [name for name, one in owners.items() if one.history < end]
        more = f", and a history of {end} tokens: {listed(short)} has less" if short else ""
        yield Statement("would move it", f"the decode entry of all its owners{more}", ("R3.8", "R4.1"))
        return
    why = why_here(manager, view, page)
    assert why is not None
    if why.rule == "R4.1":
        told = ", ".join(f"that of {name} is {one.history}" for name, one in decoding.items())
        yield Statement("why", f"not complete history: the block ends at token {end}, and the history goes on: {told}", ("R4.1",))
        yield Statement("would move it", f"a resize or commit that takes the history to {end} tokens", ("R3.6", "R4.7"))
        return
    yield Statement("why", why.text, (why.rule,))
    holding = sorted(owners.keys() - decoding.keys())
    batches = sorted({one.batch for one in decoding.values() if one.batch is not None})
    retry = f"enter_decode, resize or resume of {listed(decoding)}" + (f", publish of {listed(batches)}" if batches else "")
    if holding:
        yield Statement("would move it", f"enter_decode of {listed(holding)}, which takes it along", ("R3.8", "R4.3"))
        yield Statement("would move it", f"suspend or close of {listed(holding)}, and then the next retry: {retry}", ("R4.3",))
        return
    host = pool_of(view, Level.HOST, page.group)
    if host is not None and not host[1].free:
        there = f"1 host slot needed, {host[1].free} free, {len(host[1].evictable)} evictable"
        yield Statement("needs", there, ("R4.7",))
    yield Statement("would move it", f"the next retry: {retry}", ("R4.3",))


def _held(manager: ManagerConfig, layer: LayerConfig, view: Observation, page: PageView, index: int) -> Iterator[Statement]:
    holders = {ref.request: view.requests[ref.request] for ref in sorted(page.refs) if ref.request in view.requests}
    active = [name for name, one in holders.items() if one.status is RequestStatus.ACTIVE]
    if active and layer.sliding_window is not None:
        yield Statement("why", f"stale for {listed(active)}, and kept as it may still be committed", ("R3.7",))
        yield Statement(
            "would move it", "a commit of its block: it enters the tree and is let go; the end of committing: released", ("R3.7",)
        )
    else:
        yield Statement("why", "it stays where it was when its last owner suspended, or where it was matched", ("R3.10", "R3.1"))
    yield from _eviction(view, page, index)
    suspended = [name for name, one in holders.items() if one.status is RequestStatus.SUSPENDED]
    for name in suspended:
        one = holders[name]
        history = layer.sparse and page.block < one.history // manager.tokens_per_block
        does = "brings it to level 0" if page.level is not Level.GPU else "locks it where it is"
        if one.phase is Phase.DECODE and history:
            does = "locks it where it is" if page.level is not Level.DISK else "brings it to the host"
        yield Statement("would move it", f"resume of {name} {does}", ("R3.2",))


def _droppable(view: Observation, page: PageView, index: int) -> Iterator[Statement]:
    yield Statement("why", "no request refers to it: it waits for one that matches its tokens", ("R2.2", "R3.1"))
    yield from _eviction(view, page, index)


def _eviction(view: Observation, page: PageView, index: int) -> Iterator[Statement]:
    """Where a page stands in the order of eviction, and what becomes of it then."""
    pool = pool_of(view, page.level, page.group)
    if pool is None or index not in pool[1].evictable:
        return
    order = pool[1].evictable
    below = next((pool_of(view, level, page.group) for level in Level if level == page.level + 1), None)
    down = f"to the {Level(page.level + 1).label}, where {_free_slots(below[1].free)}" if below is not None else ""
    if page.status is PageStatus.DROPPABLE:
        what = f"{down}, or it is dropped" if down else "dropped"
    else:
        what = f"{down}; a held page is never dropped" if down else "nowhere: nothing is below, and a held page is never dropped"
    text = f"an eviction, in which it is {order.index(index) + 1} of {len(order)} in {page.level.label}.{pool[0]}: {what}"
    yield Statement("would move it", text, ("R10.1", "R10.2"))


def _free_slots(count: int) -> str:
    return f"{count or 'no'} slot is free" if count in (0, 1) else f"{count} slots are free"


def _order(now: Index, page: PageView, index: int, turns: Sequence[Turn]) -> Iterator[Statement]:
    """What decides when a page is evicted, and which page goes just before it."""
    if not turns:
        return
    turn = turns[index]
    if page.status is PageStatus.LOCKED:
        text = f"priority {turn.priority}; it gets its turn in the order when it leaves LOCKED"
        yield Statement("its turn", text, ("R10.2",))
        return
    pool = pool_of(now.observation, page.level, page.group)
    order = pool[1].evictable if pool is not None else ()
    where = order.index(index) if index in order else 0
    ahead = "no page goes before it"
    if where:
        other, theirs = now.pages[order[where - 1]], turns[order[where - 1]]
        if theirs.priority != turn.priority:
            why = f"of priority {theirs.priority}"
        elif theirs.since != turn.since:
            why = f"waiting since step {theirs.since}"
        elif other.block != page.block:
            why = "of the same step, a higher block"
        else:
            why = "of the same step, of a lower group or older"
        ahead = f"goes after {shown_name(other)}, {why}"
    yield Statement("its turn", f"priority {turn.priority}, waiting since step {turn.since}; {ahead}", ("R10.2",))


def _published(view: Observation, memory: Memory, ref: PageRef, page: PageView) -> Iterator[Statement]:
    """What the tables of its batch say of the block."""
    request = view.requests.get(ref.request)
    if request is None or request.batch is None or request.row is None or request.batch not in memory.batches:
        return
    last = memory.batches[request.batch].last
    if ref.group not in last.entries or last.rows[request.row] is None:
        yield Statement("in the table", f"row {request.row} of {request.batch} has not been published with it", ("R8.4",))
        return
    entries = last.entries[ref.group]
    record = last.rows[request.row]
    slot = entries.page_table[request.row][ref.block] if ref.block < len(entries.page_table[request.row]) else -1
    step = record.step if record is not None else last.step
    state = "dirty since" if request.row in view.batches[request.batch].dirty_rows else "up to date"
    inside = "counted as eligible" if ref.block < entries.num_blocks[request.row] else "not counted as eligible"
    shown = f"slot {slot}, {inside}" if slot >= 0 else "no slot"
    yield Statement(
        "in the table", f"row {request.row} of {request.batch}, published in step {step}: {shown}; {state}", ("R8.4", "R8.5")
    )


def story(steps: Sequence[tuple[Step, Index]], ref: PageRef) -> Iterator[tuple[Step, str]]:
    """What became of the page that a request refers to after the last of these steps, from its first step on."""
    last = steps[-1][1]
    index = last.by_ref.get(ref)
    found: list[tuple[Step, str]] = []
    for number in range(len(steps) - 1, -1, -1):
        if index is None:
            break
        step, now = steps[number]
        before = steps[number - 1][1] if number else None
        old = now.successor_of(index, before) if before is not None else None
        page = now.pages[index]
        if old is None or before is None:
            found.append((step, f"new at {page.level.label}"))
            break
        was = before.pages[old]
        if was.level is not page.level:
            found.append((step, f"{was.level.label} -> {page.level.label}"))
        elif was.owners != page.owners:
            found.append((step, f"locked by {listed(page.owners)}" if page.owners else page.status.value))
        elif was.tokens != page.tokens:
            found.append((step, "enters the tree" if page.tokens is not None else "out of the tree"))
        index = old
    yield from reversed(found)


def step_text(step: Step) -> str:
    """A step in a few words."""
    return f"{step.op.verb} {arguments(step.op)}".strip()

"""The invariants of states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvref.invariants.registry import Invariant, history, invariant, live, name_of, owned, pool_of, shown
from kvref.state import Page, State, eligible_count, owners, status
from kvspec.config import Level
from kvspec.observation import PageStatus, RequestStatus

OF_STATES: list[Invariant] = []
"""What holds of every state."""


@invariant(OF_STATES, "slots are conserved", "R2.4, R7.2, R15.2")
def slots_are_conserved(state: State) -> Iterator[str]:
    """Every slot is free, or taken, or reserved, or has one page: none is used twice, none is lost."""
    used = Counter((pool_of(state, page), page.slot) for page in state.pages.values())
    used.update((pool, slot.number) for pool, slots in state.taken.values() for slot in slots)
    used.update((pool, slot.number) for pool, slots in state.free.items() for slot in slots)
    for one in state.reservations.values():
        pool = Level.GPU, state.layout.groups[one.group].pools[Level.GPU]
        used.update((pool, slot.number) for slot in one.slots if one.held)
    every = {(pool, n) for pool in state.layout.pool_groups() for n in range(state.layout.slots[pool[0]][pool[1]])}
    for (pool, number), count in used.items():
        if count > 1 or (pool, number) not in every:
            yield f"slot {number} of {pool[0].label} pool group {pool[1]} is used {count} times"
    for pool, number in sorted(every - used.keys()):
        yield f"slot {number} of {pool[0].label} pool group {pool[1]} is lost"


@invariant(OF_STATES, "a page is in one place", "R2.1, R2.4, R14.1")
def a_page_is_in_one_place(state: State) -> Iterator[str]:
    """A page that was never committed is of one request; a tree block has one page of a group, or its backing and copies."""
    keepers = Counter(pid for r in state.requests.values() for pid in r.pages.values())
    for page in state.pages.values():
        if not page.entered and keepers[page.id] != 1:
            yield f"{name_of(state, page)} was never committed, and {keepers[page.id]} requests keep it"
    if state.layout.policies.dedupe == "keep_both":
        return
    there: dict[tuple[int, int], set[int]] = {}
    for page in state.pages.values():
        if page.node is not None:
            there.setdefault((page.node, page.group), set()).add(page.identity or page.id)
    for (node, group), pages in there.items():
        if len(pages) > 1:
            yield f"tree block {node} has {len(pages)} pages of {state.layout.groups[group].name}"


@invariant(OF_STATES, "a copy is of one request", "R14.1, R14.2")
def a_copy_is_of_one_request(state: State) -> Iterator[str]:
    """A page has one backing at most, and one copy a request; none is backed on the GPU while an active request refers to it."""
    places: dict[int, list[Page]] = {}
    for page in state.pages.values():
        if page.identity is not None:
            places.setdefault(page.identity, []).append(page)
        elif page.copy_of is not None or (page.node is not None and state.layout.copied(page.group)):
            yield f"{name_of(state, page)} is a copy, or in the tree, of no page"
    for there in places.values():
        page = there[0]
        whose = [one.copy_of for one in there]
        if len(set(whose)) < len(whose) or len({one.node for one in there}) > 1:
            yield f"{name_of(state, page)} has places of {whose}"
        known = {one.id for one in there}
        using = [r for r in live(state) if r.pages.get(page.key) in known]
        for one in there:
            if one.copy_of is not None and (
                one.level is not Level.GPU or one.id not in state.requests[one.copy_of].pages.values()
            ):
                yield f"{name_of(state, one)} is a copy on the {one.level.label}, which {one.copy_of} does not use"
            if one.copy_of is None and one.level is Level.GPU and any(r.active for r in using):
                yield f"{name_of(state, one)} is a backing on the gpu though an active request refers to its page"
        for r in using:
            own = [one.id for one in there if one.copy_of == r.name]
            backings = [one.id for one in there if one.copy_of is None]
            at = state.pages[r.pages[page.key]]
            if at.id != [*own, *backings, *(one.id for one in there)][0]:
                yield f"{r.name} refers to place {at.id} of {name_of(state, page)}"
            if r.active and at.copy_of not in (None, r.name):
                yield f"{r.name} is active and maps the copy of {at.copy_of}"


@invariant(OF_STATES, "a page is kept", "R2.2, R3.10")
def a_page_is_kept(state: State) -> Iterator[str]:
    """A request that is not closed, or a tree block, keeps every page; what a request keeps is there."""
    kept = {pid for r in live(state) for pid in r.pages.values()}
    kept_too = {state.pages[pid].identity for pid in kept if pid in state.pages} - {None}
    for page in state.pages.values():
        if page.node is not None and page.node not in state.nodes:
            yield f"{name_of(state, page)} is in tree block {page.node}, which is not there"
        if page.node is None and page.id not in kept and page.identity not in kept_too:
            yield f"{name_of(state, page)} is kept by nobody"
    for r in state.requests.values():
        if r.status is RequestStatus.CLOSED and r.pages:
            yield f"{r.name} is closed, and keeps {len(r.pages)} pages"
        if lost := [pid for pid in r.pages.values() if pid not in state.pages]:
            yield f"{r.name} keeps pages {lost}, which are not there"


@invariant(OF_STATES, "an owner is active", "R2.2, R2.3, R14.8")
def an_owner_is_active(state: State) -> Iterator[str]:
    """Owners of a page are the active requests that map it, and no others; a page with an owner is LOCKED."""
    by = owned(state)
    used = {page.identity for r in live(state) for page in shown(state, r).values()} - {None}
    for page in state.pages.values():
        names = sorted(r.name for r in by.get(page.id, ()))
        said = sorted(r.name for r in owners(state, page))
        if said != names:
            yield f"{name_of(state, page)} has the owners {said}; {names} map it and are active"
        locked = bool(names) or (page.backing and page.identity in used)
        if locked != (status(state, page) is PageStatus.LOCKED):
            yield f"{name_of(state, page)} is {status(state, page).value} with the owners {names}"


@invariant(OF_STATES, "lengths are in order", "section 3")
def lengths_are_in_order(state: State) -> Iterator[str]:
    """0 <= committed <= history <= capacity."""
    for r in live(state):
        if not 0 <= len(r.tokens) <= r.history <= r.capacity:
            yield f"{r.name}: committed {len(r.tokens)}, history {r.history}, capacity {r.capacity}"


@invariant(OF_STATES, "a request has its blocks", "R3.2, R3.6, R3.7, R10.1")
def a_request_has_its_blocks(state: State) -> Iterator[str]:
    """A request has a page of every block that is not stale, and of none beyond its capacity; if active, every state (R1.3)."""
    for r in live(state):
        for g in state.layout.groups:
            has = {key[1:] for key in r.pages if key[0] == g.index}
            if g.ssm:
                if r.active and (0, 0) not in has:
                    yield f"{r.name} is active and has no state of {g.name}"
                continue
            blocks = range(-(-r.capacity // state.layout.tpb))
            rows = {b: 1 if (b + 1) * state.layout.tpb <= r.prompt else r.width for b in blocks}
            wanted = {(b, row) for b in blocks if not state.layout.stale(g.index, b, r.history) for row in range(rows[b])}
            if lacking := wanted - has:
                yield f"{r.name} has no page of blocks {sorted(lacking)} of {g.name}"
            if beyond := {at for at in has if at[0] not in blocks}:
                yield f"{r.name} has pages of blocks {sorted(beyond)} of {g.name}, beyond its capacity {r.capacity}"


@invariant(OF_STATES, "history is on the host, all else on the GPU", "R3.2, R4.1, R4.9")
def pages_are_where_they_are_used(state: State) -> Iterator[str]:
    """What an active request has locked is on the GPU, or on the host if it is sparse complete history; never on the disk."""
    for r in live(state):
        for key, page in shown(state, r).items():
            coldest = Level.HOST if history(state, r, key) else Level.GPU
            if page.level > coldest:
                yield f"{r.name} ({r.phase.value}, history {r.history}) maps {name_of(state, page)} on the {page.level.label}"


@invariant(OF_STATES, "counts are prefixes", "R6.3")
def counts_are_prefixes(state: State) -> Iterator[str]:
    """An eligible count is of the leading blocks of complete history that are on the host, up to the first that is not."""
    for r in live(state):
        for g in state.layout.attention:
            mapped = shown(state, r)
            count = 0
            if r.decoding and g.sparse:
                while (page := mapped.get((g.index, count, 0))) and page.level is Level.HOST and history(state, r, page.key):
                    count += 1
            if eligible_count(state, r, g.index) != count:
                yield f"{r.name}.{g.name}: {eligible_count(state, r, g.index)}, and {count} leading blocks are on the host"


@invariant(OF_STATES, "a member has one row", "R8.1, R8.2, R3.10")
def a_member_has_one_row(state: State) -> Iterator[str]:
    """A request is in one row at most, which is its own; a closed one, and a batch that is closed, has none."""
    at = [(name, row) for b in state.batches.values() for row, name in enumerate(b.rows) if name is not None]
    for name, count in Counter(name for name, _ in at).items():
        if count > 1:
            yield f"{name} is in {count} rows"
    for name, row in at:
        if state.requests[name].row != row or state.requests[name].status is RequestStatus.CLOSED:
            yield f"{name} is in row {row}, its row is {state.requests[name].row} ({state.requests[name].status.value})"
    if any(not b.open and any(name is not None for name in b.rows) for b in state.batches.values()):
        yield "a closed batch has members"


@invariant(OF_STATES, "the tree is one", "R2.6, R3.9, R10.3")
def the_tree_is_one(state: State) -> Iterator[str]:
    """The parent of a tree block is there and full; siblings differ; of a path whose block is gone, all below it is, too.

    No block is only the way to others: each has a page, or entered as a link where every group has a window.
    """
    tpb, having = state.layout.tpb, {page.node for page in state.pages.values()}
    kept = state.layout.policies.on_drop == state.layout.policies.on_drop_windowed == "subtree"
    windows = all(g.window is not None and not g.sparse for g in state.layout.attention)
    for node in state.nodes.values():
        above = () if node.parent is None else state.nodes[node.parent].prefix if node.parent in state.nodes else None
        if above is None or len(above) % tpb or node.prefix != above + node.tokens or not 1 <= len(node.tokens) <= tpb:
            yield f"tree block {node.id} hangs below {node.parent}, and its tokens are {node.tokens}"
        if kept and node.id not in having and not windows:
            yield f"tree block {node.id} has no page"
    siblings = Counter((node.parent, node.tokens) for node in state.nodes.values())
    for (parent, tokens), count in siblings.items():
        if count > 1:
            yield f"{count} tree blocks below {parent} have the tokens {tokens}"
    for r in live(state):
        there = [node in state.nodes for node in r.path]
        if sorted(there, reverse=True) != there:
            yield f"{r.name} has lost a block in the middle of its path"
        if all(there) and r.path and state.nodes[r.path[-1]].prefix != r.tokens[: len(r.path) * tpb]:
            yield f"{r.name} committed {r.tokens}, and its path is of {state.nodes[r.path[-1]].prefix}"


@invariant(OF_STATES, "what is reserved hangs on the history", "R15.2, R15.3")
def what_is_reserved_hangs_on_the_history(state: State) -> Iterator[str]:
    """A decoding active request holds min(n, complete blocks) slots of a group, any other none; each entry has one number."""
    for g in state.layout.groups:
        for r in state.requests.values():
            held = [one for one in state.reservations.values() if one.held and (one.request, one.group) == (r.name, g.index)]
            reserves = r.active and r.decoding and r.width == 1
            wanted = min(g.reserve, r.history // state.layout.tpb) if reserves else 0
            if len(held) > 1 or sum(len(one.slots) for one in held) != wanted:
                yield f"{r.name} has reserved {[len(one.slots) for one in held]} slots of {g.name}, expected {wanted}"
            for one in held:
                for layer, cache in one.caches.items():
                    numbers, entries = [c.number for c in cache.cached], [c.entry for c in cache.cached]
                    twice = len(set(numbers)) < len(numbers) or len(set(entries)) < len(entries)
                    if twice or any(not 0 <= entry < len(one.slots) * g.units for entry in entries):
                        yield f"{r.name} has cached {numbers} of {layer} at {entries}"

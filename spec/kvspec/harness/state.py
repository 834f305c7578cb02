"""Comparing requests, snapshots, pages, tree, pools, counters and events of two systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from kvspec.config import Level, Ownership
from kvspec.harness.compare import Comparison, named
from kvspec.harness.difference import Difference
from kvspec.harness.memory import copied, level_label, there_and_back
from kvspec.harness.naming import page_name, prefix_of, slot_name
from kvspec.harness.newer import may_be_newer
from kvspec.harness.order import fence_problems, order_problems, order_text
from kvspec.harness.payloads import payload_equal, payload_text
from kvspec.harness.side import Side
from kvspec.observation import (
    Cleared,
    Counters,
    GroupCounters,
    LevelChanged,
    Observation,
    PageRef,
    PageStatus,
    PageView,
    RequestView,
    SnapshotView,
    Stored,
    TreeEvent,
)

EXACT = ("status", "phase", "capacity", "history", "committed", "row", "batch", "beam_width", "dirty")


def compare_state(c: Comparison) -> Iterator[Difference]:
    """Every difference of the state outside batches and reads."""
    one, two = c.reference.now.observation, c.implementation.now.observation
    if one.groups != two.groups:
        yield c.differ("groups", "layer groups", one.groups, two.groups)
    yield from _names(c, "status", "requests", one.requests, two.requests)
    for name in [name for name in one.requests if name in two.requests]:  # in an order that is the same in every run
        yield from _request(c, name, one.requests[name], two.requests[name])
    yield from _pages(c)
    known = [Counter([prefix_of(block.tokens) for block in side.tree]) for side in (one, two)]
    if known[0] != known[1]:
        trees = [sorted(block.tokens for block in side.tree) for side in (one, two)]
        gone = [list(tokens) for tokens in trees[0] if tokens not in trees[1]]
        new = [list(tokens) for tokens in trees[1] if tokens not in trees[0]]
        detail = (f"only in the reference: {gone}", f"only in the implementation: {new}")
        yield c.differ("tree", "blocks of the prefix tree", f"{len(trees[0])} blocks", f"{len(trees[1])} blocks", detail=detail)
    yield from _pools(c, one, two)
    yield from _counters(c, "counters", one.lifetime, two.lifetime)
    yield from _counters(c, "counters since the last reset", one.since_reset, two.since_reset)
    for direction in sorted(one.copy_calls.keys() | two.copy_calls.keys()):
        calls = [side.copy_calls.get(direction, 0) for side in (one, two)]
        if calls[0] != calls[1]:
            yield c.differ("copy calls", f"copy submissions in all, {direction}", calls[0], calls[1])
    yield from _events(c, one.events, two.events)


def _names(c: Comparison, identity: str, what: str, one: Mapping[str, object], two: Mapping[str, object]) -> Iterator[Difference]:
    if one.keys() != two.keys():
        yield c.differ(identity, what, sorted(one), sorted(two))


def _request(c: Comparison, name: str, one: RequestView, two: RequestView) -> Iterator[Difference]:
    for field in EXACT:
        values = getattr(one, field), getattr(two, field)
        if values[0] != values[1] or type(values[0]) is not type(values[1]):
            if field == "dirty" and may_be_newer(c) and values[1] is True:
                continue
            title = field.replace("_", " ")
            yield c.differ(title, f"{title} of {name}", *values)
    yield from version_differences(c, name, one.version, two.version, f"version of {name}")
    acknowledged = [_acknowledged(side, name, view) for side, view in ((c.reference, one), (c.implementation, two))]
    if acknowledged[0] != acknowledged[1] and not may_be_newer(c):
        yield c.differ("acknowledged", f"acknowledged version of {name}", *acknowledged)
    if one.snapshots.keys() != two.snapshots.keys():
        keys = [sorted(f"{group} beam {beam}" for group, beam in view.snapshots) for view in (one, two)]
        yield c.differ("snapshot", f"snapshots of {name}", *keys)
    for group, beam in sorted(one.snapshots.keys() & two.snapshots.keys()):
        yield from snapshot_differences(c, (name, group, beam), one.snapshots[group, beam], two.snapshots[group, beam])


def _acknowledged(side: Side, name: str, view: RequestView) -> str:
    if view.acknowledged is None:
        return "none"
    step = side.memory.versions.step_of(name, view.acknowledged)
    return "a version that it never had after a step" if step is None else f"the version of step {step}"


def version_differences(c: Comparison, name: str, one: int, two: int, subject: str) -> Iterator[Difference]:
    """Whether a version is that of the same step in both systems (R6.4)."""
    steps = c.reference.memory.versions.step_of(name, one), c.implementation.memory.versions.step_of(name, two)
    if steps[0] is not None and steps[1] is not None and steps[0] < steps[1] and may_be_newer(c):
        return
    if steps[0] != steps[1] or steps[0] is None:
        said = ["never seen" if s is None else "newer now" if s == c.step.number else f"that of step {s}" for s in steps]
        yield c.differ("version", subject, *said)


def snapshot_differences(
    c: Comparison, of: tuple[str, str, int], one: SnapshotView, two: SnapshotView, label: str = ""
) -> Iterator[Difference]:
    """Every difference of two snapshots of (request, group, beam) that were taken now."""
    name, group, beam = of
    title = f"{name}.{group}" + (f" beam {beam}" if beam else "") + (f" in snapshot {label}" if label else "")
    lengths = [(len(view.indices), len(view.levels), len(view.ready)) for view in (one, two)]
    if lengths[0] != lengths[1] or len({*lengths[0]}) != 1 or len({*lengths[1]}) != 1:
        said = [f"{n[0]} indices, {n[1]} levels, {n[2]} readinesses" for n in lengths]
        yield c.differ("snapshot", f"number of blocks of {title}", *said)
        return
    blocks: Iterable[int] = range(len(one.indices))
    if c.closely is not None and not label and one.levels == two.levels:
        blocks = c.closely.blocks(of, (c.reference, c.implementation))
    for block in blocks:
        yield from _block(c, PageRef(name, group, block, beam), title, block, one, two)
    if one.eligible != two.eligible:
        yield c.differ("eligible", f"eligible count of {title}", one.eligible, two.eligible)
    if one.row != two.row:
        yield c.differ("row", f"row in the snapshot of {title}", one.row, two.row)
    yield from version_differences(c, name, one.version, two.version, f"version in the snapshot of {title}")


def _block(c: Comparison, ref: PageRef, title: str, block: int, one: SnapshotView, two: SnapshotView) -> Iterator[Difference]:
    levels = one.levels[block], two.levels[block]

    def names() -> list[str]:
        return [
            slot_name(side.now, view.levels[block], ref.group, view.indices[block])
            for side, view in ((c.reference, one), (c.implementation, two))
        ]

    if levels[0] != levels[1]:
        yield c.differ(
            "level", f"level of {title} block {block}", *map(level_label, levels), detail=_raw("index", names()), page=str(ref)
        )
    pairs = []
    for side, view in ((c.reference, one), (c.implementation, two)):
        level, index = view.levels[block], view.indices[block]
        found = side.now.occupant(level, ref.group, index) if level is not None else None
        pairs.append(c.pair_in(side, found))
        # BAD and no level go together (R6.2), and an index that is there shows the page of that request and block.
        if (level is None) != (index == -1) or found != (side.now.by_ref.get(ref) if level is not None else None):
            mine = side.now.by_ref.get(ref)
            where = _where(side.now.pages[mine]) if mine is not None else "no page"
            yield c.differ(
                "index",
                f"index of {title} block {block} does not show the page ({side.name})",
                *names(),
                detail=(f"the page of {ref} in {side.name}: {where}",),
                page=str(ref),
            )
    if pairs[0] != pairs[1]:
        yield c.differ("index", f"index of {title} block {block}", *names(), page=str(ref))
    ready = one.ready[block], two.ready[block]
    if ready[0] is None or ready[1] is None:
        if ready[0] is not ready[1]:
            yield c.differ("ready", f"readiness of {title} block {block}", *map(order_text, ready), page=str(ref))
        return
    mine = c.implementation.now.by_ref.get(ref)
    allowed = c.allowed(mine) if mine is not None else frozenset()
    if problems := order_problems(ready[0], ready[1], allowed):
        yield c.differ(
            "ready", f"readiness of {title} block {block}", *map(order_text, ready), detail=tuple(problems), page=str(ref)
        )


def _pages(c: Comparison) -> Iterator[Difference]:
    ref, impl = c.reference, c.implementation
    for number in c.matching.missing:
        page = ref.now.pages[number]
        if not page.refs and "tree" in c.shared.unobserved:
            continue
        yield c.differ("page", f"page {page_name(page)}", _where(page), "no such page", page=page_name(page))
    for number in c.matching.surplus:
        page = impl.now.pages[number]
        yield c.differ("page", f"page {page_name(page)}", "no such page", _where(page), page=page_name(page))
    pairs = c.matching.pairs if c.closely is None else [c.matching.pairs[c.matching.of_reference[one]] for one in c.closely.pages]
    for one, two in pairs:
        yield from _page(c, one, two)


def _page(c: Comparison, number: int, other: int) -> Iterator[Difference]:
    one, two = c.reference.now.pages[number], c.implementation.now.pages[other]
    if (one.group, one.block, one.beam) != (two.group, two.block, two.beam):
        said = [f"{page.group} block {page.block} beam {page.beam}" for page in (one, two)]
        name = page_name(one)
        yield c.differ("page", f"identity of page {name}", *said, page=name)
    for identity, title, values in (
        ("references", "requests that refer to", (one.refs, two.refs)),
        ("tokens", "tree tokens of", (_prefix(one), _prefix(two))),
        ("page status", "status of", (one.status, two.status)),
        ("owners", "owners of", (one.owners, two.owners)),
        ("copies", "request that has a copy of", (one.copy_of, two.copy_of)),
        ("copies", "levels of other locations of", (_other_levels(one), _other_levels(two))),
    ):
        if values[0] != values[1]:
            name = page_name(one)
            yield c.differ(identity, f"{title} page {name}", *values, page=name)
    if one.level != two.level:
        name = page_name(one)
        yield c.differ("level", f"level of page {name}", _where(one), _where(two), page=name)
    for side, page in ((c.reference, number), (c.implementation, other)):
        yield from _stays_put(c, side, page, one)
    if problems := order_problems(one.ready, two.ready, c.allowed(other)):
        name, said = page_name(one), [order_text(one.ready), order_text(two.ready)]
        yield c.differ("ready", f"readiness of page {name}", *said, detail=tuple(problems), page=name)
    if not c.unwritten(number):
        yield from _payload(c, one, two)


def _other_levels(page: PageView) -> list[str]:
    """R14.1: where the other locations of a page are; which slots these are the two systems need not agree on."""
    return sorted(level.label for level, _ in page.others)


def _prefix(page: PageView) -> object:
    return None if page.tokens is None else prefix_of(page.tokens)


def _stays_put(c: Comparison, side: Side, number: int, one: PageView) -> Iterator[Difference]:
    if side.before is None:
        return
    old = side.now.successor_of(number, side.before)
    if old is None:
        return
    was, page = side.before.pages[old], side.now.pages[number]
    if was.level != page.level or was.slot == page.slot:
        return
    # A system without counters cannot say that a page went and came back: the reference's say whether it should have.
    counting = c.reference if "counters" in c.shared.unobserved and c.reference.before is not None else side
    assert counting.before is not None
    old_counts, new_counts = counting.before.observation, counting.now.observation
    if page.level is not Level.DISK and there_and_back(old_counts, new_counts, page.group):
        return
    if page.tokens is None and copied(old_counts, new_counts, page.group):
        return  # a private copy replaces a page that only this request still kept (R3.4, R10.3)
    if page.tokens is None and page.level is Level.HOST and was.status is PageStatus.HELD and len(c.shared.manager.levels) > 2:
        return  # an own page's way to the disk and back, in an iteration, is neither counted nor an event (R13.1, R13.3)
    private = c.shared.manager.ownership is Ownership.PRIVATE
    if private and page.level is Level.HOST and _left_for_disk(new_counts, page):
        return  # another's own page has taken its place at a rebase (R14.7)
    if side is c.implementation and "tree" in c.shared.unobserved and _another_page(c.reference, was):
        return  # a page that only the tree kept is shown by nobody, so the request's own seems to have become it (R3.9)
    said = f"slot {was.slot} before, {page.slot} now, at {page.level.label}, without a move"
    values = (said, "-") if side is c.reference else ("-", said)
    name = page_name(one)
    yield c.differ("slot", f"slot of page {name}", *values, page=name)


def _left_for_disk(now: Observation, page: PageView) -> bool:
    """Whether a page of the tree went from the host to the disk in this step, as the events say (R13.3)."""
    changes = [event for event in now.events if isinstance(event, LevelChanged) and event.new is Level.DISK]
    return any(event.group == page.group and event.tokens == page.tokens for event in changes)


def _another_page(reference: Side, was: PageView) -> bool:
    """Whether in the reference a request that had a page has another now, which is not what became of that one."""
    assert reference.before is not None
    for ref in was.refs:
        before, now = reference.before.by_ref.get(ref), reference.now.by_ref.get(ref)
        if before is not None and now is not None and reference.now.successor_of(now, reference.before) != before:
            return True
    return False


def _payload(c: Comparison, one: PageView, two: PageView) -> Iterator[Difference]:
    if one.payload is None or one.ready.pending or two.ready.pending:
        return
    nbytes = c.shared.page_bytes.get(one.group, 0)
    for page, side in ((one, c.reference), (two, c.implementation)):
        if isinstance(page.payload, bytes) and len(page.payload) != nbytes:
            said = f"{len(page.payload)} bytes"
            values = (said, f"{nbytes} expected") if side is c.reference else (f"{nbytes} expected", said)
            name = page_name(one)
            yield c.differ("payload", f"size of page {name}", *values, page=name)
            return
    if two.payload is None or not payload_equal(one.payload, two.payload, nbytes):
        name, known = page_name(one), c.shared.contents
        yield c.differ("payload", f"payload of page {name}", *(payload_text(p.payload, known) for p in (one, two)), page=name)


def _pools(c: Comparison, one: Observation, two: Observation) -> Iterator[Difference]:
    if one.pools.keys() != two.pools.keys():
        said = [sorted(f"{level.label}.{group}" for level, group in side.pools) for side in (one, two)]
        yield c.differ("pool", "pool groups", *said)
    for key in sorted(one.pools.keys() & two.pools.keys()):
        first, second = one.pools[key], two.pools[key]
        title = f"{key[0].label}.{key[1]}"
        for identity, subject, values in (
            ("pool", "layer groups of pool group", (first.groups, second.groups)),
            ("slots", "slots of", (first.slots, second.slots)),
            ("free", "free slots of", (first.free, second.free)),
        ):
            if values[0] != values[1]:
                yield c.differ(identity, f"{subject} {title}", *values)
        for side, pool in ((c.reference, first), (c.implementation, second)):
            if len(pool.fences) != pool.free:
                count = f"{len(pool.fences)} fences for {pool.free} free slots"
                yield c.differ("fences", f"fences of {title}", *((count, "-") if side is c.reference else ("-", count)))
        if problems := fence_problems(first.fences, second.fences, c.shared.gates):
            pending = [f"{sum(fence.pending for fence in pool.fences)} pending" for pool in (first, second)]
            yield c.differ("fences", f"fences of the free slots of {title}", *pending, detail=tuple(problems))
        pairs = [
            list(map(pair_of.get, pool.evictable))
            for pair_of, pool in ((c.matching.of_reference, first), (c.matching.of_implementation, second))
        ]
        if pairs[0] != pairs[1] or None in pairs[0]:
            said = [
                [named(side, n if 0 <= n < len(side.now.pages) else None) for n in pool.evictable]
                for side, pool in ((c.reference, first), (c.implementation, second))
            ]
            yield c.differ("evictable", f"eviction order of {title}", *said)


def _counters(c: Comparison, title: str, one: Counters, two: Counters) -> Iterator[Difference]:
    if type(one) is type(two) is Counters and one == two:
        return
    for identity in ("suspends", "resumes"):
        values = getattr(one, identity), getattr(two, identity)
        if values[0] != values[1]:
            yield c.differ("counters", f"{identity} ({title})", *values)
    for group in sorted(one.groups.keys() | two.groups.keys()):
        first, second = one.groups.get(group), two.groups.get(group)
        if first is None or second is None:
            yield c.differ("counters", f"group {group} ({title})", *("absent" if g is None else "there" for g in (first, second)))
            continue
        for field in fields(GroupCounters):
            values = getattr(first, field.name), getattr(second, field.name)
            if values[0] != values[1]:
                yield c.differ("counters", f"{field.name} of {group} ({title})", *values)


def _events(c: Comparison, one: Sequence[TreeEvent], two: Sequence[TreeEvent]) -> Iterator[Difference]:
    if tuple(one) == tuple(two):
        return
    said = [[event_text(event) for event in events] for events in (one, two)]
    length = max(map(len, said))
    first = next(n for n in range(length) if n >= len(said[0]) or n >= len(said[1]) or one[n] != two[n])
    values = [events[first] if first < len(events) else "no more events" for events in said]
    yield c.differ(
        "events",
        f"tree event {first} of this step",
        *values,
        detail=tuple(f"{s}: {e}" for s, e in zip(_SIDES, said, strict=True)),
    )


_SIDES = ("reference", "implementation")


def event_text(event: TreeEvent) -> str:
    """A tree event for the reader, as scenarios write it."""
    if isinstance(event, LevelChanged):
        return f"level {list(event.tokens)} {event.group}: {event.old.label} -> {event.new.label}"
    if isinstance(event, Cleared):
        return "cleared"
    return f"{'stored' if isinstance(event, Stored) else 'removed'} {list(event.tokens)}"


def _where(page: PageView) -> str:
    return f"{page.level.label} slot {page.slot}"


def _raw(what: str, names: Sequence[str]) -> tuple[str, ...]:
    return (f"{what}: {names[0]} in the reference, {names[1]} in the implementation",)

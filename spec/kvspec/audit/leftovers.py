"""Leftovers of a failed call: the state before it against the state after it, in one system (R3.14, section 9).

Everything must be as it was. What the rules except is in `Allowed`, made for one call from what the same call does when nothing
fails: the pages that it copies and their owners (R4.8), the requests and the batch whose progress stays (R3.9, R8.6, R8.9,
R11.1), and whether payloads may have been written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvspec.harness.naming import Index, PageKey, page_name
from kvspec.harness.order import order_text
from kvspec.observation import Observation, Order, PoolView, RequestView, SnapshotView


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may differ. ``copied``: pages whose readiness may be later, if ``queued``: then fences, staging and streams too.

    ``newer``: requests whose version may be newer for that. ``wrote``: payloads of pages that stay may have been written.
    ``stream``: a stream was given to a request and stays set (R3.2), behind its old one (R7.8).
    ``lengthened``: the request of a commit, if a part of the commit stays (R3.9). ``batch``: the batch of a call that acts on
    several requests, each by itself (R8.6, R8.9, R11.1), whose members may have gone ahead. ``label``: of a read that is made
    whoever waits (R11.1).
    """

    copied: frozenset[PageKey] = frozenset()
    newer: frozenset[str] = frozenset()
    queued: bool = False
    wrote: bool = False
    stream: bool = False
    lengthened: str | None = None
    batch: str | None = None
    label: str | None = None

    @property
    def partly(self) -> bool:
        """Whether a part of the call may stay done."""
        return self.lengthened is not None or self.batch is not None


def leftovers(before: Index, after: Index, allowed: Allowed) -> Iterator[str]:
    """What a failed call changed and should not have, one text each.

    Of orders only the gates count: an edge behind every step so far grows by itself when a step submits nothing, and edges are
    compared between the systems.
    """
    old, new = before.observation, after.observation
    ahead = _ahead(old, new, allowed)
    yield from _requests(old, new, allowed, ahead)
    yield from _batches(old, new, allowed)
    if _kept(old, allowed.label) != _kept(new, allowed.label):
        yield "labels of snapshots or reads have changed"
    if not (allowed.queued or allowed.wrote or allowed.stream or ahead) and _gates(old.streams) != _gates(new.streams):
        yield f"streams {_keys(old.streams, new.streams)} run after other work now"
    if ahead:
        return  # what of pages, tree and counters belongs to the part that stays is seen when the call is repeated
    yield from _pages(before, after, allowed)
    yield from _fetched(old, new)
    if sorted(block.tokens for block in old.tree) != sorted(block.tokens for block in new.tree):
        yield "the tree has other blocks"
    for key in sorted(old.pools):
        title = f"{key[0].label}.{key[1]}"
        yield from (f"{text} of {title}" for text in _pool(before, after, old.pools[key], new.pools[key], allowed))
    for what in ("lifetime", "since_reset", "copy_calls"):
        if getattr(old, what) != getattr(new, what):
            yield f"counters ({what}): {getattr(old, what)}, now {getattr(new, what)}"
    if new.events:
        yield f"there are tree events: {new.events}"


def _kept(seen: Observation, but: str | None) -> object:
    snapshots = {
        label: (view.indices, view.levels, view.eligible, view.row, view.version, [_order(order) for order in view.ready])
        for label, view in seen.labels.items()
    }
    return snapshots, {label: (view.order.gates, view.entries) for label, view in seen.reads.items() if label != but}


def _ahead(old: Observation, new: Observation, allowed: Allowed) -> bool:
    """Whether a part of the call did stay."""
    if allowed.batch is not None:
        return True
    if allowed.lengthened is None:
        return False
    was, now = old.requests[allowed.lengthened], new.requests[allowed.lengthened]
    return (was.history, was.committed) != (now.history, now.committed)


def _requests(old: Observation, new: Observation, allowed: Allowed, ahead: bool) -> Iterator[str]:
    if old.requests.keys() != new.requests.keys():
        yield f"requests: {sorted(old.requests)}, now {sorted(new.requests)}"
        return
    batch = old.batches.get(allowed.batch) if allowed.batch is not None else None
    members = frozenset(name for name in batch.rows if name is not None) if batch is not None else frozenset()
    for name, was in old.requests.items():
        now = new.requests[name]
        free: frozenset[str] = frozenset()
        if name in members:
            free = frozenset(("status", "phase", "capacity", "history"))
        elif name == allowed.lengthened:
            free = frozenset(("history", "committed"))
        for field in ("status", "phase", "capacity", "history", "committed", "row", "batch", "beam_width", "acknowledged"):
            if field == "acknowledged" and ahead and allowed.batch is not None:
                continue  # a publication that stands acknowledged what it wrote (R8.9)
            if getattr(was, field) != getattr(now, field) and field not in free:
                yield f"{field} of {name}: {getattr(was, field)}, now {getattr(now, field)}"
        if not ahead:
            yield from _views(name, was, now, allowed)


def _views(name: str, was: RequestView, now: RequestView, allowed: Allowed) -> Iterator[str]:
    if was.version != now.version and name not in allowed.newer:
        yield f"the version of {name} is newer"
    if was.dirty != now.dirty and name not in allowed.newer:
        yield f"{name} is {'dirty' if now.dirty else 'clean'} now"
    if was.snapshots.keys() != now.snapshots.keys():
        yield f"{name} has other groups and beams"
        return
    for (group, beam), first in was.snapshots.items():
        second = now.snapshots[group, beam]
        title = f"{name}.{group}"
        if (first.indices, first.levels) != (second.indices, second.levels):
            yield f"indices and levels of {title}: {_where(first)}, now {_where(second)}"
            continue
        if (first.eligible, first.row) != (second.eligible, second.row):
            yield f"eligible count and row of {title}: {first.eligible}, {first.row}, now {second.eligible}, {second.row}"
        for block, (one, two) in enumerate(zip(first.ready, second.ready, strict=True)):
            if _order(one) != _order(two) and name not in allowed.newer:  # the readiness of each page is looked at below
                yield f"readiness of {title} block {block}: {_order(one)}, now {_order(two)}"


def _where(view: SnapshotView) -> str:
    return " ".join(
        "-" if level is None else f"{level.label}:{index}" for level, index in zip(view.levels, view.indices, strict=True)
    )


def _order(order: Order | None) -> str:
    return "-" if order is None else order_text(order)


def _gates(orders: Mapping[str, Order]) -> dict[str, frozenset[str]]:
    return {name: order.gates for name, order in orders.items()}


def _pages(before: Index, after: Index, allowed: Allowed) -> Iterator[str]:
    if before.by_key.keys() != after.by_key.keys():
        gone = [page_name(before.pages[n]) for key, n in before.by_key.items() if key not in after.by_key]
        new = [page_name(after.pages[n]) for key, n in after.by_key.items() if key not in before.by_key]
        yield f"pages: gone {gone or 'none'}, new {new or 'none'}"
    for key in before.by_key.keys() & after.by_key.keys():
        was, now = before.pages[before.by_key[key]], after.pages[after.by_key[key]]
        for field in ("block", "refs", "tokens", "level", "slot", "status", "owners"):
            if getattr(was, field) != getattr(now, field):
                yield f"{field} of page {page_name(was)}: {getattr(was, field)}, now {getattr(now, field)}"
        if _order(was.ready) != _order(now.ready) and not (allowed.queued and key in allowed.copied):
            yield f"readiness of page {page_name(was)}: {_order(was.ready)}, now {_order(now.ready)}"
        # Bytes are compared with the names that the reference gives; here it is the names that must not change.
        if was.payload != now.payload and not isinstance(was.payload, bytes) and not isinstance(now.payload, bytes):
            fresh = was.payload is None or was.ready.pending or now.ready.pending
            if not (allowed.wrote and fresh) and not (allowed.queued and now.ready.pending):
                yield f"payload of page {page_name(was)}: {was.payload}, now {now.payload}"


def _fetched(old: Observation, new: Observation) -> Iterator[str]:
    """R15.2, R15.3: what is reserved and cached, and where."""
    if old.reserved != new.reserved:
        yield f"reserved slots: {_slots(old)}, now {_slots(new)}"
    for what, one, two in (("cached", _cached(old), _cached(new)), ("fetches", _put_out(old), _put_out(new))):
        if one != two:
            yield f"{what}: {one}, now {two}"


def _slots(seen: Observation) -> dict[str, list[int]]:
    return {f"{name}.{group}": sorted(slots) for name, groups in seen.reserved.items() for group, slots in groups.items()}


def _cached(seen: Observation) -> dict[str, object]:
    """By request and layer, the numbers with their entries; what is in them by name, where there are names."""
    return {
        f"{name}.{layer}": view.cached and [(one.number, one.entry, _named(one.payload)) for one in view.cached]
        for name, layers in seen.caches.items()
        for layer, view in layers.items()
    }


def _named(payload: object) -> object:
    return None if isinstance(payload, bytes) else payload


def _put_out(seen: Observation) -> dict[str, object]:
    return {label: (view.requests, view.entries, view.found) for label, view in seen.fetches.items()}


def _pool(before: Index, after: Index, was: PoolView, now: PoolView, allowed: Allowed) -> Iterator[str]:
    if was.free != now.free:
        yield f"{was.free} free slots, now {now.free},"
    orders = [[index.keys[n] for n in pool.evictable] for index, pool in ((before, was), (after, now))]
    if orders[0] != orders[1]:
        yield f"eviction order {orders[0]}, now {orders[1]},"
    if not allowed.queued and _sorted(was.fences) != _sorted(now.fences):
        yield f"fences {_sorted(was.fences)}, now {_sorted(now.fences)},"


def _sorted(fences: tuple[Order, ...]) -> list[str]:
    return sorted(_order(fence) for fence in fences)


def _batches(old: Observation, new: Observation, allowed: Allowed) -> Iterator[str]:
    if old.batches.keys() != new.batches.keys():
        yield f"batches: {sorted(old.batches)}, now {sorted(new.batches)}"
        return
    for name, was in old.batches.items():
        now = new.batches[name]
        if (was.rows, was.blocks, was.address) != (now.rows, now.blocks, now.address):
            yield f"rows or addresses of {name} have changed"
        if name == allowed.batch:
            continue  # which publication stands depends on what failed: both systems agree, and the repeated call shows the rest
        member_marked = allowed.newer.intersection(row for row in was.rows if row is not None)
        if was.dirty_rows != now.dirty_rows and not member_marked and not allowed.partly:
            yield f"dirty rows of {name}: {was.dirty_rows}, now {now.dirty_rows}"
        if (was.published, was.device) != (now.published, now.device):
            yield f"tables of {name} have changed"
        if (was.upload.gates, was.staging) != (now.upload.gates, now.staging):
            yield f"upload or staging of {name}: {_order(was.upload)}, {was.staging}, now {_order(now.upload)}, {now.staging}"


def _keys(old: Mapping[str, Order], new: Mapping[str, Order]) -> str:
    return ", ".join(
        f"{name} ({_order(old.get(name))}, now {_order(new.get(name))})"
        for name in sorted(old.keys() | new.keys())
        if _order(old.get(name)) != _order(new.get(name))
    )

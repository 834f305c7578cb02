"""Comparing what is reserved and cached of fetched history, and what fetches put out (section 15).

Which entry a block gets is the implementation's choice (R15.4). So an entry is named by what is cached there after its fetch, and
must stay with that block until it is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvspec.config import Level
from kvspec.harness.compare import Comparison
from kvspec.harness.difference import Difference
from kvspec.harness.order import order_problems, order_text
from kvspec.harness.payloads import part_equal, part_text
from kvspec.harness.side import Side
from kvspec.observation import BAD, CachedView, CacheView, FetchView, Observation

FETCHING = frozenset({"fetch", "replay", "open"})
"""The verbs after which something may have been fetched."""


def compare_fetching(c: Comparison) -> Iterator[Difference]:
    """Every difference of reservations, caches and fetches."""
    one, two = c.reference.now.observation, c.implementation.now.observation
    counts = [
        {f"{name}.{group}": len(slots) for name, groups in side.reserved.items() for group, slots in groups.items()}
        for side in (one, two)
    ]
    for key in sorted(counts[0].keys() | counts[1].keys()):
        if counts[0].get(key, 0) != counts[1].get(key, 0):
            yield c.differ("reserved", f"reserved slots of {key}", *(count.get(key, 0) for count in counts))
    for side in (c.reference, c.implementation):
        yield from _slots(c, side)
    caches = [{(name, layer): view for name, by in side.caches.items() for layer, view in by.items()} for side in (one, two)]
    if caches[0].keys() != caches[1].keys():
        yield c.differ("cache", "requests and layers with a cache", *(sorted(".".join(key) for key in by) for by in caches))
    for place in sorted(caches[0].keys() & caches[1].keys()):
        yield from _cache(c, place, caches[0][place], caches[1][place])
    if one.fetches.keys() != two.fetches.keys():
        yield c.differ("fetch", "labels of fetches", sorted(one.fetches), sorted(two.fetches))
    for label in sorted(one.fetches.keys() & two.fetches.keys()):
        yield from _fetch(c, label, one.fetches[label], two.fetches[label])


def _one_sided(c: Comparison, side: Side, identity: str, subject: str, said: object) -> Difference:
    values = (said, "-") if side is c.reference else ("-", said)
    return c.differ(identity, f"{subject} ({side.name})", *values)


def _slots(c: Comparison, side: Side) -> Iterator[Difference]:
    """R15.2: no slot is reserved twice, holds a page, or is out of range; R15.3: a cache is inside of what is reserved."""
    now, seen = side.now.observation, Counter[tuple[str, int]]()
    for name, groups in now.reserved.items():
        for group, slots in groups.items():
            pool = side.now.pools.get((Level.GPU, group), group)
            for slot in slots:
                seen[pool, slot] += 1
                if side.now.occupant(Level.GPU, group, slot) is not None:
                    yield _one_sided(c, side, "reserved", f"a slot reserved for {name}.{group} holds a page", f"slot {slot}")
                if not 0 <= slot < now.pools[Level.GPU, pool].slots:
                    yield _one_sided(c, side, "reserved", f"a slot reserved for {name}.{group} is out of range", f"slot {slot}")
    for (pool, slot), times in seen.items():
        if times > 1:
            yield _one_sided(c, side, "reserved", f"gpu slot {slot} of {pool} is reserved {times} times", times)
    for name, layers in now.caches.items():
        for layer, view in layers.items():
            group, units = c.shared.fetching.get(layer, ("", 1))
            inside = {slot * units + at for slot in now.reserved.get(name, {}).get(group, frozenset()) for at in range(units)}
            entries = [one.entry for one in view.cached or ()]
            stray = [entry for entry in entries if entry not in inside and "reserved" not in c.shared.unobserved]
            if stray or len(set(entries)) < len(entries):
                said = f"entries {stray} are not reserved" if stray else f"entries {entries}"
                yield _one_sided(c, side, "cache", f"entries of {name}.{layer}", said)


def _cache(c: Comparison, key: tuple[str, str], one: CacheView, two: CacheView) -> Iterator[Difference]:
    title = ".".join(key)
    if problems := order_problems(one.order, two.order):
        yield c.differ("fetch order", f"last fetch of {title}", *map(order_text, (one.order, two.order)), detail=tuple(problems))
    if one.cached is None or two.cached is None:
        if (one.cached is None) != (two.cached is None):
            yield c.differ("cache", f"cached of {title}", *("pending" if v.cached is None else "known" for v in (one, two)))
        return
    numbers = [[entry.number for entry in view.cached or ()] for view in (one, two)]
    if numbers[0] != numbers[1]:
        yield c.differ("cache", f"cached of {title}, the most recent first", *numbers)
        return
    nbytes = c.shared.page_bytes[c.shared.fetching[key[1]][0]]
    for first, second in zip(one.cached, two.cached, strict=True):
        if first.payload is not None and not part_equal(first.payload, second.payload, nbytes):
            said = [part_text(entry.payload, nbytes, c.shared.contents) for entry in (first, second)]
            yield c.differ("cached payload", f"what is cached of {title}, number {first.number}", *said)
    for side, view in ((c.reference, one), (c.implementation, two)):
        yield from _stays(c, side, key, view)


def _stays(c: Comparison, side: Side, key: tuple[str, str], view: CacheView) -> Iterator[Difference]:
    """A block that stays cached stays where it is; without a fetch nothing changes."""
    before = None if side.before is None else side.before.observation.caches.get(key[0], {}).get(key[1])
    if before is None or before.cached is None or c.step.op.verb in ("replay", "open"):
        return
    was, now = _places(before.cached), _places(view.cached or ())
    moved = [number for number in was.keys() & now.keys() if was[number] != now[number]]
    if moved or (c.step.op.verb not in FETCHING and [*was] != [*now]):
        said = f"{was} became {now}"
        yield _one_sided(c, side, "cache", f"cached of {'.'.join(key)} changed without a fetch of it", said)


def _places(cached: tuple[CachedView, ...]) -> dict[int, int]:
    return {one.number: one.entry for one in cached}


def _fetch(c: Comparison, label: str, one: FetchView, two: FetchView) -> Iterator[Difference]:
    if problems := order_problems(one.order, two.order):
        yield c.differ("fetch order", f"fetch {label}", *map(order_text, (one.order, two.order)), detail=tuple(problems))
    for what in ("layer", "requests", "found"):
        values = getattr(one, what), getattr(two, what)
        if values[0] != values[1]:
            yield c.differ("fetch", f"{what} of fetch {label}", *values)
            return
    for side, view in ((c.reference, one), (c.implementation, two)):
        before = None if side.before is None else side.before.observation.fetches.get(label)
        if before is not None and c.step.op.verb not in FETCHING and before.entries != view.entries:
            yield _one_sided(c, side, "fetch", f"entries of fetch {label} changed", f"{before.entries} became {view.entries}")
    if one.entries is None or two.entries is None:
        if one.entries is not two.entries:
            yield c.differ("fetch", f"fetch {label}", *("pending" if v.entries is None else "done" for v in (one, two)))
        return
    shapes = [[[entry == BAD for entry in row] for row in view.entries or ()] for view in (one, two)]
    if shapes[0] != shapes[1]:
        yield c.differ("fetch", f"entries of fetch {label}", one.entries, two.entries)
        return
    if _newest(c, label, one):
        sides = c.reference.now.observation, c.implementation.now.observation
        rows = _as_it_left_them(sides[0], one)
        names = [_named(side, view, rows) for side, view in zip(sides, (one, two), strict=True)]
        if names[0] != names[1] or any("?" in row for row in names[0]):
            yield c.differ("fetch", f"entries of fetch {label}, by what is cached there", *names)


def _newest(c: Comparison, label: str, view: FetchView) -> bool:
    """Whether nothing else has been fetched of the layer since, in this step, so that the cache is as this fetch left it."""
    if c.step.op.verb not in FETCHING or "caches" in c.shared.unobserved:
        return False
    before = {} if c.reference.before is None else c.reference.before.observation.fetches
    now = c.reference.now.observation.fetches
    new = [name for name, other in now.items() if other.layer == view.layer and _is_new(before.get(name), other)]
    return new == [label] and (c.step.op.verb != "open" or label not in before or before[label].entries is None)


def _is_new(before: FetchView | None, now: FetchView) -> bool:
    return now.entries is not None and (before is None or before.entries is None or before.order != now.order)


def _as_it_left_them(now: Observation, view: FetchView) -> list[int]:
    """The rows whose caches are as a fetch left them: the last fetch of each is this one.

    Of another row the request has given its slots back since, and perhaps reserved others, or it was not served.
    """
    caches = [now.caches.get(request or "", {}).get(view.layer) for request in view.requests]
    return [row for row, one in enumerate(caches) if one is not None and one.cached is not None and one.order == view.order]


def _named(now: Observation, view: FetchView, rows: list[int]) -> list[list[str]]:
    """The entries of some rows by the numbers that are cached there."""
    found = []
    for row in rows:
        cache = now.caches.get(view.requests[row] or "", {}).get(view.layer)
        numbers = {one.entry: str(one.number) for one in (cache.cached if cache is not None else None) or ()}
        found.append(["-" if entry == BAD else numbers.get(entry, "?") for entry in (view.entries or ())[row]])
    return found

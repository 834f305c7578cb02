"""The outline of a state: what must be equal when a call that failed once has been repeated (R3.14).

Slots, versions, fences and readiness have no part in it: slots are a system's own choice, and a refused copy that had been
queued makes versions newer and readiness later (R4.8).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvspec.harness.naming import Index
from kvspec.observation import BAD

LOOSE = ("dirty", "eviction order")
"""Parts that may legally differ after a part of a call stayed done, or after queued work was refused."""


def outline(index: Index) -> dict[str, object]:
    """The parts of the state by name, to be compared."""
    seen = index.observation
    found: dict[str, object] = {}
    for name, view in seen.requests.items():
        for field in ("status", "phase", "capacity", "history", "committed", "row", "batch", "beam_width"):
            found[f"{field} of {name}"] = getattr(view, field)
        found[f"dirty {name}"] = view.dirty
        for (group, beam), snapshot in view.snapshots.items():
            found[f"levels of {name}.{group} beam {beam}"] = snapshot.levels
            found[f"eligible count of {name}.{group} beam {beam}"] = (snapshot.eligible, snapshot.row)
    for number, key in enumerate(index.keys):
        page = index.pages[number]
        found[f"page {key}"] = (page.block, page.refs, page.tokens, page.level, page.status, page.owners)
    found["tree"] = sorted(block.tokens for block in seen.tree)
    for (level, group), pool in seen.pools.items():
        found[f"free slots of {level.label}.{group}"] = pool.free
        found[f"eviction order of {level.label}.{group}"] = [index.keys[n] for n in pool.evictable]
    for name, batch in seen.batches.items():
        found[f"rows of {name}"] = batch.rows
        found[f"dirty rows of {name}"] = batch.dirty_rows
        for group, entries in batch.published.items():
            shape = tuple(tuple(word == BAD for word in row) for row in entries.page_table)
            found[f"tables of {name}.{group}"] = (entries.num_blocks, entries.page_level, shape)
    for name, groups in seen.reserved.items():
        found |= {f"reserved slots of {name}.{group}": len(slots) for group, slots in groups.items()}
    for name, layers in seen.caches.items():
        for layer, cache in layers.items():
            found[f"cached of {name}.{layer}"] = cache.cached and [one.number for one in cache.cached]
    for label, fetch in seen.fetches.items():
        found[f"fetch {label}"] = (fetch.requests, fetch.found)
    found["counters"] = seen.lifetime
    found["counters since the last reset"] = seen.since_reset
    return found


def departures(wanted: Index, have: Index) -> Iterator[tuple[str, str]]:
    """The parts in which a state is not the one that it should be: the name of each, and both values."""
    one, two = outline(wanted), outline(have)
    for name in dict.fromkeys((*one, *two)):
        if one.get(name) != two.get(name):
            yield name, f"{name}: {two.get(name)}, without the failure {one.get(name)}"

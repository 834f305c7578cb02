"""A state in dense lines: one for each request, page, pool group and published row, and why a page is where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvspec.config import ManagerConfig
from kvspec.harness.naming import page_name
from kvspec.harness.timeline.changes import row_text
from kvspec.harness.timeline.facts import fetch_text
from kvspec.harness.timeline.reasons import why_here
from kvspec.harness.timeline.wording import folded, shown_name
from kvspec.observation import BAD, BatchView, Observation, PageStatus, PageView, RequestStatus, RequestView, SnapshotView


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``key``: what it is about, the same in every step. ``why``: a remark. ``requests``: whom it concerns."""

    key: str
    text: str
    why: str = ""
    requests: frozenset[str] = frozenset()


def state_lines(manager: ManagerConfig, now: Observation) -> Iterator[Line]:
    """A whole state: requests, pages, what is reserved and cached of fetched history, free slots, batches, fetches."""
    for name, request in now.requests.items():
        yield _request(name, request)
    for page in sorted(now.pages, key=lambda page: (page.group, page_name(page))):
        yield _page(manager, now, page)
    yield from _cached(now)
    free = "  ".join(f"{level.label}.{group} {pool.free}/{pool.slots}" for (level, group), pool in now.pools.items())
    yield Line("free", f"free slots  {free}")
    for name, batch in now.batches.items():
        yield from _batch(name, batch)
    for label, fetch in now.fetches.items():
        members = frozenset(filter(None, fetch.requests))
        yield Line(f"fetch {label}", f"fetch {label}  layer {fetch.layer}  {fetch_text(fetch)}", requests=members)


def _cached(now: Observation) -> Iterator[Line]:
    """What each request has reserved (R15.2), and what is where in it, the most recent first (R15.3)."""
    for name, groups in now.reserved.items():
        mine = frozenset((name,))
        for group, slots in groups.items():
            text = f"reserved {name}.{group}  gpu {' '.join(map(str, sorted(slots)))}"
            yield Line(f"reserved {name}.{group}", text, requests=mine)
        for layer, cache in now.caches.get(name, {}).items():
            known = " ".join(f"{one.number}@{one.entry}" for one in cache.cached or ()) or "nothing"
            pending = f"pending behind {', '.join(sorted(cache.order.gates))}"
            text = f"cached {name}.{layer}  {pending if cache.cached is None else known}"
            yield Line(f"cached {name}.{layer}", text, requests=mine)


def _request(name: str, view: RequestView) -> Line:
    if view.status is RequestStatus.CLOSED:
        return Line(f"request {name}", f"request {name}  closed", requests=frozenset((name,)))
    parts = [view.status.value, view.phase.value, f"history {view.history}/{view.capacity}"]
    if view.committed:
        parts.append(f"committed {view.committed}")
    if view.row is not None:
        parts.append(f"row {view.row}" + (f" of {view.batch}" if view.batch is not None else ""))
    parts += [f"{title} {_blocks(snapshot)}" for title, snapshot in _titled(view.snapshots).items()]
    if view.dirty:
        parts.append("dirty")
    return Line(f"request {name}", f"request {name}  {'  '.join(parts)}", requests=frozenset((name,)))


def _titled(snapshots: Mapping[tuple[str, int], SnapshotView]) -> dict[str, SnapshotView]:
    return {group if beam == 0 else f"{group} beam {beam}": view for (group, beam), view in sorted(snapshots.items())}


def _blocks(view: SnapshotView) -> str:
    levels = row_text(view.levels)
    return levels + (f" eligible {view.eligible}" if view.eligible else "")


def _page(manager: ManagerConfig, now: Observation, page: PageView) -> Line:
    name = shown_name(page)
    parts = [f"{page.level.label} {page.slot}", page.status.value]
    others = sorted(str(ref) for ref in page.refs if str(ref) != name)
    if page.status is PageStatus.LOCKED:
        parts.append(f"owners {', '.join(sorted(page.owners))}")
    if others:
        parts.append(f"also {', '.join(others)}")
    if page.tokens is not None and page.refs:
        parts.append(f"in the tree as {folded(page.tokens)}")
    if page.ready.gates:
        parts.append(f"pending behind {', '.join(sorted(page.ready.gates))}")
    why = why_here(manager, now, page)
    return Line(
        f"page {page_name(page)}",
        f"page {name}  {'  '.join(parts)}",
        str(why) if why else "",
        frozenset(ref.request for ref in page.refs),
    )


def _batch(name: str, view: BatchView) -> Iterator[Line]:
    pending = f"  upload pending behind {', '.join(sorted(view.upload.gates))}" if view.upload.gates else ""
    dirty = ", ".join(map(str, view.dirty_rows)) or "none"
    members = frozenset(filter(None, view.rows))
    shown = " ".join(row or "-" for row in view.rows)
    yield Line(f"batch {name}", f"batch {name}  rows {shown}  dirty {dirty}{pending}", requests=members)
    for group, tables in view.published.items():
        for row, (indices, count) in enumerate(zip(tables.page_table, tables.num_blocks, strict=False)):
            words = " ".join("-" if index == BAD else str(index) for index in indices)
            member = frozenset(filter(None, view.rows[row : row + 1]))
            text = f"table {name}.{group} row {row}  [{words}]  num_blocks {count}"
            yield Line(f"table {name}.{group} {row}", text, requests=member)

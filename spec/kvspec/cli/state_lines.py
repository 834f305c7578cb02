"""A state in dense lines: one for each request, page, pool group and published row, and why a page is where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvspec.config import Level, ManagerConfig, group_names
from kvspec.harness.naming import page_name
from kvspec.observation import BAD, BatchView, Observation, PageStatus, PageView, Phase, RequestStatus, RequestView, SnapshotView

LETTERS = {None: ".", Level.GPU: "G", Level.HOST: "H", Level.DISK: "D"}
"""How the levels of a request's blocks are written, block by block."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``key``: what it is about, the same in every step. ``why``: the remark at its end."""

    key: str
    text: str
    why: str = ""


def state_lines(manager: ManagerConfig, now: Observation) -> Iterator[Line]:
    """A whole state: requests, pages, free slots, batches."""
    for name, request in now.requests.items():
        yield _request(name, request)
    for page in sorted(now.pages, key=lambda page: (page.group, page_name(page))):
        yield _page(manager, now, page)
    free = "  ".join(f"{level.label}.{group} {pool.free}/{pool.slots}" for (level, group), pool in now.pools.items())
    yield Line("free", f"free slots  {free}")
    for name, batch in now.batches.items():
        yield from _batch(name, batch)


def why_here(manager: ManagerConfig, now: Observation, page: PageView) -> str:
    """Why a page of a sparse group is on the GPU although a decoding request has it, or where that cannot be: nothing."""
    if page.level is not Level.GPU or page.group not in _sparse(manager):
        return ""
    owners = {name: now.requests[name] for name in page.owners if name in now.requests}
    decoding = {name: view for name, view in owners.items() if view.phase is Phase.DECODE}
    if not decoding:
        return ""
    complete = any(page.block < view.history // manager.tokens_per_block for view in decoding.values())
    if not complete:
        return "not complete history (R4.1)"
    holding = sorted(owners.keys() - decoding.keys())
    if holding:
        return f"deferred by {', '.join(holding)}, in prefill (R4.2)"
    for (level, _), pool in now.pools.items():
        if level is Level.HOST and page.group in pool.groups and not pool.free and not pool.evictable:
            return "deferred, as no host slot is free (R4.7)"
    return "deferred, and nobody objects: the next retry may take it (R4.3)"


def _sparse(manager: ManagerConfig) -> frozenset[str]:
    sparse = {layer.name for layer in manager.layers if layer.sparse}
    return frozenset(name for name in group_names(manager) if name in sparse)


def _request(name: str, view: RequestView) -> Line:
    if view.status is RequestStatus.CLOSED:
        return Line(f"request {name}", f"request {name}  closed")
    parts = [view.status.value, view.phase.value, f"history {view.history}/{view.capacity}"]
    if view.committed:
        parts.append(f"committed {view.committed}")
    if view.row is not None:
        parts.append(f"row {view.row}" + (f" of {view.batch}" if view.batch is not None else ""))
    parts += [f"{title} {_blocks(snapshot)}" for title, snapshot in _titled(view.snapshots).items()]
    if view.dirty:
        parts.append("dirty")
    return Line(f"request {name}", f"request {name}  {'  '.join(parts)}")


def _titled(snapshots: Mapping[tuple[str, int], SnapshotView]) -> dict[str, SnapshotView]:
    return {group if beam == 0 else f"{group} beam {beam}": view for (group, beam), view in sorted(snapshots.items())}


def _blocks(view: SnapshotView) -> str:
    levels = "".join(LETTERS[level] for level in view.levels) or "-"
    return levels + (f" eligible {view.eligible}" if view.eligible else "")


def _page(manager: ManagerConfig, now: Observation, page: PageView) -> Line:
    name = page_name(page)
    parts = [f"{page.level.label} {page.slot}", page.status.value]
    others = sorted(str(ref) for ref in page.refs if str(ref) != name)
    if page.status is PageStatus.LOCKED:
        parts.append(f"owners {', '.join(sorted(page.owners))}")
    if others:
        parts.append(f"also {', '.join(others)}")
    if page.tokens is not None and page.refs:
        parts.append(f"in the tree as {list(page.tokens)}")
    if page.ready.gates:
        parts.append(f"pending behind {', '.join(sorted(page.ready.gates))}")
    return Line(f"page {name}", f"page {name}  {'  '.join(parts)}", why_here(manager, now, page))


def _batch(name: str, view: BatchView) -> Iterator[Line]:
    pending = f"  upload pending behind {', '.join(sorted(view.upload.gates))}" if view.upload.gates else ""
    dirty = ", ".join(map(str, view.dirty_rows)) or "none"
    yield Line(f"batch {name}", f"batch {name}  rows {' '.join(row or '-' for row in view.rows)}  dirty {dirty}{pending}")
    for group, words in view.published.items():
        for row, (indices, count) in enumerate(zip(words.page_table, words.num_blocks, strict=False)):
            shown = " ".join("-" if index == BAD else str(index) for index in indices)
            yield Line(f"table {name}.{group} {row}", f"table {name}.{group} row {row}  [{shown}]  num_blocks {count}")

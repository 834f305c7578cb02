"""Reached states of private ownership: what a page's backing and its copies come to (section 14 of the rules).

A page is known by its tokens while it is in the tree; what happens to it outside is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvspec import ops
from kvspec.audit.moment import Moment
from kvspec.audit.states.registry import state
from kvspec.config import Level, Ownership
from kvspec.harness.naming import Index, PageKey
from kvspec.observation import PageView


@dataclass(slots=True)
class Locations:
    """Where a page of a sparse group is. ``copies``: by request."""

    backing: PageView | None = None
    copies: dict[str, PageView] = field(default_factory=dict)


def locations(m: Moment, seen: Index) -> dict[PageKey, Locations]:
    """The locations of every page of the tree that is of a sparse group, before or after a step."""
    found: dict[PageKey, Locations] = {}
    if m.manager.ownership is Ownership.SHARED:
        return found
    for page in seen.pages:
        if page.tokens is not None and m.layer(page.group).sparse:
            one = found.setdefault((page.group, page.tokens, page.beam), Locations())
            if page.copy_of is None:
                one.backing = page
            else:
                one.copies[page.copy_of] = page
    return found


def steps(m: Moment) -> Iterator[tuple[Locations, Locations]]:
    """Every page that some place held before and after the step."""
    if m.manager.ownership is Ownership.SHARED:
        return
    before, after = locations(m, m.before), locations(m, m.after)
    for key, now in after.items():
        if key in before:
            yield before[key], now


def _on_host(page: PageView | None) -> bool:
    return page is not None and page.level is Level.HOST


@state("copy, no backing", "a request gets its copy from another's, as there is no backing")
def _copied(m: Moment) -> bool:
    return any(
        was.backing is None and was.copies and set(now.copies) - set(was.copies) and m.verb != "commit" for was, now in steps(m)
    )


@state("adopted", "a backing on the GPU becomes the copy of a request that needs the page")
def _adopted(m: Moment) -> bool:
    return any(
        was.backing is not None
        and was.backing.level is Level.GPU
        and any(copy.slot == was.backing.slot for name, copy in now.copies.items() if name not in was.copies)
        for was, now in steps(m)
    )


@state("backing left behind", "the last copy of a page is let go of and is its backing, on the GPU")
def _left_behind(m: Moment) -> bool:
    return any(
        was.backing is None and not now.copies and now.backing is not None and now.backing.level is Level.GPU
        for was, now in steps(m)
    )


def _attached(m: Moment) -> Iterator[PageView]:
    """The backings that requests, which had a copy before, map since the step."""
    for was, now in steps(m):
        if now.backing is not None and _on_host(was.backing):
            for name in was.copies.keys() - now.copies.keys():
                if name in now.backing.owners:
                    yield now.backing


@state("attach", "a request gives up its copy of a page that the host has")
def _attach(m: Moment) -> bool:
    return any(True for _ in _attached(m))


@state("attach, gates", "a request attaches to a backing that is still being written behind a gate")
def _attach_gated(m: Moment) -> bool:
    return any(backing.ready.pending for backing in _attached(m))


@state("backing of a copy that stays", "a decoding request has the backing made from another's copy, which stays")
def _made(m: Moment) -> bool:
    return any(
        was.backing is None and _on_host(now.backing) and was.copies.keys() == now.copies.keys() and was.copies
        for was, now in steps(m)
    )


@state("offload over disk", "a backing on the disk is replaced by an offload")
def _over_disk(m: Moment) -> bool:
    return any(
        was.backing is not None
        and was.backing.level is Level.DISK
        and _on_host(now.backing)
        and len(now.copies) < len(was.copies)
        for was, now in steps(m)
    )


@state("held copy freed", "a copy of a suspended request is evicted where its page has a backing")
def _freed(m: Moment) -> bool:
    return any(
        was.backing is not None and now.backing is not None and name not in m.actors and not copy.owners
        for was, now in steps(m)
        for name, copy in was.copies.items()
        if name not in now.copies
    )


@state("held copy moved", "the copy of a suspended request is evicted where its page has no backing")
def _moved(m: Moment) -> bool:
    return any(
        was.backing is None
        and now.backing is not None
        and now.backing.level is not Level.GPU
        and any(name not in m.actors and not copy.owners for name, copy in was.copies.items() if name not in now.copies)
        for was, now in steps(m)
    )


@state("rebase, copy", "a request's own page becomes its copy of a page that the tree has")
def _rebased(m: Moment) -> bool:
    return isinstance(m.op, ops.Commit) and any(
        m.op.request in now.copies and m.op.request not in was.copies for was, now in steps(m)
    )


@state("rebase, backing", "a request's page on the host becomes the backing of a page that had copies alone")
def _rebased_on_host(m: Moment) -> bool:
    return (
        isinstance(m.op, ops.Commit)
        and m.decoded(m.op.request)
        and any(was.backing is None and _on_host(now.backing) and m.op.request in _owners(now) for was, now in steps(m))
    )


def _owners(now: Locations) -> frozenset[str]:
    return frozenset() if now.backing is None else frozenset(now.backing.owners)


@state("prefetch, copy", "a prefetch gives a suspended request a copy of its own")
def _prefetched(m: Moment) -> bool:
    return isinstance(m.op, ops.Prefetch) and any(
        m.op.request in now.copies and m.op.request not in was.copies for was, now in steps(m)
    )

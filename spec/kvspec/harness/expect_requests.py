"""Expectations of requests, snapshots, versions and counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvspec.harness.checks import Check, check
from kvspec.harness.evidence import Evidence, Nothing, found
from kvspec.harness.memory import level_label
from kvspec.harness.outcomes import counters
from kvspec.observation import Counters
from kvspec.scenario import CopyCalls, MovedPages, SnapshotExpect


def levels(e: Evidence, wanted: Mapping[str, tuple[str, ...]]) -> Iterator[Check]:
    """``levels``: per ``request.group`` the level of each block, beam row 0."""
    for key, row in wanted.items():
        for name, view in e.snapshots(key):
            actual = tuple(level_label(level) for level in view.levels) if view is not None else ()
            yield check(("levels", key), f"levels of {name}", tuple(row), actual, page=_first(name, tuple(row), actual))


def eligible(e: Evidence, wanted: Mapping[str, int]) -> Iterator[Check]:
    """``eligible``: per ``request.group`` the eligible count (R6.3)."""
    for key, count in wanted.items():
        for name, view in e.snapshots(key):
            yield check(("eligible", key), f"eligible count of {name}", count, view.eligible if view is not None else 0)


def fields(key: str) -> Any:
    """The evaluator of an expectation that is a field of each request's view."""

    def evaluate(e: Evidence, wanted: Mapping[str, Any]) -> Iterator[Check]:
        for request, value in wanted.items():
            yield check((key, request), f"{key} of {request}", value, getattr(e.request(request), key))

    return evaluate


def version(e: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """``version``: per request, against the step before (R6.4)."""
    for request, freshness in wanted.items():
        now = e.request(request)
        old = e.before.requests.get(request) if e.before is not None else None
        if old is None:
            raise Nothing(f"request {request} did not exist before this step, so its version can be neither same nor newer")
        actual = "same" if old.version == now.version else "newer"
        yield check(("version", request), f"version of {request}", freshness, actual)


def version_since(e: Evidence, wanted: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    """``version_since``: per request and labelled snapshot, against the version in it."""
    for request, by_label in wanted.items():
        now = e.request(request)
        for label, freshness in by_label.items():
            taken = e.label(label)
            if taken.request != request:
                raise Nothing(f"snapshot {label} is one of {taken.request}, not of {request}")
            actual = "same" if taken.view.version == now.version else "newer"
            yield check(("version_since", request, label), f"version of {request} since {label}", freshness, actual)


def snapshot(e: Evidence, wanted: Mapping[str, SnapshotExpect]) -> Iterator[Check]:
    """``snapshot``: per label, levels, eligible count and row as taken."""
    for label, parts in wanted.items():
        e.label(label)
        view = e.now.labels[label]
        if parts.levels is None and parts.eligible is None and parts.row == "unset":
            raise Nothing(f"the expectation of snapshot {label} is empty")
        path = ("snapshot", label)
        if parts.levels is not None:
            actual = tuple(level_label(level) for level in view.levels)
            yield check((*path, "levels"), f"levels in snapshot {label}", tuple(parts.levels), actual)
        if parts.eligible is not None:
            yield check((*path, "eligible"), f"eligible count in snapshot {label}", parts.eligible, view.eligible)
        if parts.row != "unset":
            yield check((*path, "row"), f"row in snapshot {label}", parts.row, view.row)


def moved(e: Evidence, wanted: Mapping[str, MovedPages]) -> Iterator[Check]:
    """``moved``: per group, pages moved in this step, by the counters that are never reset."""
    for group, parts in wanted.items():
        now = found(e.now.lifetime.groups, group, "layer group")
        old = e.before.lifetime.groups.get(group) if e.before is not None else None
        counts = {
            "offload": parts.offload,
            "onboard": parts.onboard,
            "copy": parts.copy_,
            "drop": parts.drop,
            "attach": parts.attach,
        }
        said = _parts(f"moved of {group}", counts)
        for key, count in said.items():
            field = f"{key}_pages"
            actual = getattr(now, field) - (getattr(old, field) if old is not None else 0)
            yield check(("moved", group, key), f"pages moved in this step, {group}, {key}", count, actual)


def copy_calls(e: Evidence, wanted: CopyCalls) -> Iterator[Check]:
    """``copy_calls``: submissions made and kept in this step, by direction."""
    said = _parts("copy_calls", {"offload": wanted.offload, "onboard": wanted.onboard, "copy": wanted.copy_})
    for key, count in said.items():
        old = e.before.copy_calls.get(key, 0) if e.before is not None else 0
        yield check(("copy_calls", key), f"copy submissions in this step, {key}", count, e.now.copy_calls.get(key, 0) - old)


def stats(e: Evidence, wanted: Mapping[str, Mapping[str, int]]) -> Iterator[Check]:
    """``stats``: counters since the last reset, read before the reset of a ``stats`` step."""
    value = e.side.outcome.value
    have = counters(value if isinstance(value, Counters) else e.now.since_reset)
    for group, parts in wanted.items():
        mine = found(have, group, "layer group")
        said = _parts(f"stats of {group}", parts if isinstance(parts, Mapping) else dict(parts))
        for key, count in said.items():
            yield check(("stats", group, key), f"{key} of {group}", count, found(mine, key, "counter"))


def _parts(what: str, parts: Mapping[str, int | None]) -> dict[str, int]:
    said = {key: count for key, count in parts.items() if count is not None}
    if not said:
        raise Nothing(f"the expectation {what} is empty")
    return said


def _first(name: str, wanted: tuple[str, ...], actual: tuple[str, ...]) -> str | None:
    blocks = (n for n, (a, b) in enumerate(zip(wanted, actual, strict=False)) if a != b)
    block = next(blocks, None)
    return None if block is None else f"{name}.{block}"

"""The counters of fetches beside the others (R15.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvgpu.fetch.caches import GroupCaches
from kvgpu.storage.counters import CounterView


def with_fetches(view: CounterView, caches: Mapping[int, GroupCaches], since_reset: bool) -> CounterView:
    """The view with what fetches have counted that have run, read from the device."""
    if not caches:
        return view
    groups = tuple(
        {**counts, **caches[number].counts(since_reset)} if number in caches else counts
        for number, counts in enumerate(view.groups)
    )
    return replace(view, groups=groups)

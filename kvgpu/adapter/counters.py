"""Counters in the words of the observation (R13.1)."""

from __future__ import annotations

from collections.abc import Sequence

from kvgpu.storage.counters import CounterView
from kvspec.observation import Counters, GroupCounters


def counters(groups: Sequence[str], view: CounterView) -> Counters:
    """The counters of a manager, by the names of its layer groups."""
    named = {name: GroupCounters(**values) for name, values in zip(groups, view.groups, strict=True)}
    return Counters(named, suspends=view.suspends, resumes=view.resumes)

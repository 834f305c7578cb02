"""Facts of many steps in few bytes: each step as what differs from the step before, keys and texts written once.

The form, which ``timeline.js`` reads:

- ``keys``: every key, once. ``texts``: every text, once; in a value a text is ``[index in texts]``.
- a step: a list of ``[change, keys]``. ``keys``: the numbers of those that change so, as ``[first, count, first, count, ...]``.
- a change: ``0`` gone; ``[1, value]`` the whole value; ``[2, length, index, new, index, new, ...]`` the value at these indexes,
  cut or filled with null to a length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kvspec.harness.timeline.facts import Facts, Key, Plain

Packed: TypeAlias = list[list[Any]]


class Packer:
    """Packs the facts of one step after the other."""

    def __init__(self) -> None:
        """Before the first step there is nothing."""
        self.keys: dict[Key, int] = {}
        self.texts: dict[str, int] = {}
        self.now: Facts = {}

    def pack(self, facts: Facts) -> Packed:
        """What differs from the facts packed before; they are the ones before the next."""
        changes = self.difference(self.now, facts)
        self.now = facts
        return changes

    def difference(self, old: Facts, new: Facts) -> Packed:
        """What makes ``new`` of ``old``."""
        by_change: dict[str, list[int]] = {}
        for key in old.keys() - new.keys():
            by_change.setdefault("0", []).append(self.keys[key])
        for key, value in new.items():
            if old.get(key) != value:
                number = self.keys.setdefault(key, len(self.keys))
                by_change.setdefault(_json(self._change(old.get(key), value)), []).append(number)
        return [[json.loads(change), _runs(sorted(numbers))] for change, numbers in by_change.items()]

    def head(self) -> dict[str, list[Any]]:
        """The keys and texts that the packed steps refer to."""
        return {"keys": [list(key) for key in self.keys], "texts": list(self.texts)}

    def _change(self, old: tuple[Plain, ...] | None, new: tuple[Plain, ...]) -> list[Any]:
        whole = [1, [self._plain(one) for one in new]]
        if old is None:
            return whole
        patch: list[Any] = [2, len(new)]
        for index, value in enumerate(new):
            if value != (old[index] if index < len(old) else None):
                patch += [index, self._plain(value)]
        return patch if len(patch) < len(new) + 2 else whole

    def _plain(self, value: Plain) -> Any:
        return [self.texts.setdefault(value, len(self.texts))] if isinstance(value, str) else value


def unpack(head: Mapping[str, list[Any]], steps: Iterable[Packed]) -> list[Facts]:
    """The facts of each step, as they were packed."""
    keys = [tuple(key) for key in head["keys"]]
    texts = head["texts"]
    now: Facts = {}
    found: list[Facts] = []
    for step in steps:
        now = dict(now)
        for change, runs in step:
            for first, count in zip(runs[::2], runs[1::2], strict=True):
                for key in keys[first : first + count]:
                    if change == 0:
                        del now[key]
                    else:
                        now[key] = _applied(now.get(key, ()), change, texts)
        found.append(now)
    return found


def _applied(old: tuple[Plain, ...], change: list[Any], texts: list[str]) -> tuple[Plain, ...]:
    def plain(value: Any) -> Plain:
        return texts[value[0]] if isinstance(value, list) else value

    if change[0] == 1:
        return tuple(plain(value) for value in change[1])
    length = change[1]
    value = [*old[:length], *[None] * (length - len(old))]
    for index, new in zip(change[2::2], change[3::2], strict=True):
        value[index] = plain(new)
    return tuple(value)


def _runs(numbers: list[int]) -> list[int]:
    runs: list[int] = []
    for number in numbers:
        if runs and number == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return runs


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

"""Expectations that could not fail: each is changed into another valid one, which must not hold.

A scenario is run once, by the reference alone, which stands on both sides of the comparison. After every step each value that
the step expects, returns or raises is changed in turn, and the harness is asked about the changed step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvspec.errors import ErrorKind
from kvspec.harness.compare import Comparison, Shared
from kvspec.harness.expectations import compare_expectations
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index
from kvspec.harness.outcomes import compare_outcomes
from kvspec.harness.side import Side
from kvspec.harness.systems import Factory, find_system, lacking, setup_for
from kvspec.observation import PageStatus, Phase, RequestStatus
from kvspec.refs import RefError, entry, group_shapes
from kvspec.scenario import UNSET, ClearedExpect, Expect, LevelExpect, Position, RemovedExpect, Scenario, Step, StoredExpect

if TYPE_CHECKING:
    from kvspec.cluster.cluster import Cluster
    from kvspec.harness.workers import Ended, Workers

LEVELS = ("gpu", "host", "disk", "-")
OTHER_FRESHNESS = {"same": "newer", "newer": "same"}


@dataclass(frozen=True, slots=True)
class Change:
    """A changed step. ``path``: of what was changed, its key first; ``was`` and ``now``: the values."""

    path: tuple[str, ...]
    was: object
    now: object
    step: Step


@dataclass(frozen=True, slots=True)
class Survivor:
    """An expectation that holds as it is and changed: what it says of the step is nothing."""

    position: Position
    step: int
    path: tuple[str, ...]
    was: object
    now: object

    def __str__(self) -> str:
        """One line, with where it stands in the file."""
        return f"{self.position}: step {self.step}, {'.'.join(self.path)}: {self.was!r} holds, and {self.now!r} does too"


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of one scenario. ``changes``: how many were tried. ``wrong``: why it could not be audited, or empty."""

    changes: int = 0
    survivors: tuple[Survivor, ...] = ()
    wrong: str = ""


def audit_each(
    scenarios: Sequence[Scenario], reference: str, workers: Workers | Cluster | None
) -> Iterator[tuple[int, Audited | Ended]]:
    """What came of each scenario, with its number, as they come. ``reference``: a name. Without workers, in this process."""
    if workers is None:
        for number, scenario in enumerate(scenarios):
            yield number, _audit_one(scenario, reference)
        return
    for number, scenario in enumerate(scenarios):
        workers.ask(number, _audit_one, scenario, reference)
    for key, answer in workers.answers():
        assert isinstance(key, int)
        yield key, answer


def _audit_one(scenario: Scenario, reference: str) -> Audited:
    return audit(scenario, find_system(reference))


def audit(scenario: Scenario, reference: Factory, options: Mapping[str, str] | None = None) -> Audited:
    """Change every value that a scenario expects, one at a time."""
    lack = lacking(scenario, reference)
    if lack:
        return Audited(wrong=f"the reference lacks {', '.join(lack)}")
    system = reference(setup_for(scenario, options or {}))
    groups = tuple(group_shapes(scenario.manager))
    memories, shared = (Memory(groups), Memory(groups)), Shared.of(scenario.manager)
    before: Index | None = None
    tried = 0
    survivors: list[Survivor] = []
    try:
        for step in scenario.steps:
            outcome = system.apply(step.op)
            now = Index(system.observe())
            sides = []
            for name, memory in zip(("reference", "the same"), memories, strict=True):
                memory.update(step.number, step.op, outcome, before, now)
                sides.append(Side(name, memory, before, now, outcome))
            comparison = Comparison.of(step, sides[0], sides[1], shared)
            if _outcome_red(comparison, step) or _expect_red(comparison, step):
                return Audited(tried, tuple(survivors), f"step {step.number} fails as it is: kvspec run shows why")
            for change in changes(step):
                if _one_number(now, change):
                    continue
                tried += 1
                red = _outcome_red if change.path[0] in ("returns", "raises") else _expect_red
                if not red(comparison, change.step):
                    position = _place(step, change.path)
                    survivors.append(Survivor(position, step.number, change.path, change.was, change.now))
            before = now
    finally:
        system.close()
    return Audited(tried, tuple(survivors))


def _outcome_red(comparison: Comparison, step: Step) -> bool:
    return any(True for _ in compare_outcomes(replace(comparison, step=step)))


def _expect_red(comparison: Comparison, step: Step) -> bool:
    return any(True for _ in compare_expectations(replace(comparison, step=step)))


def _one_number(now: Index, change: Change) -> bool:
    """Whether two entries of a table are one number: slots of different levels, which no table tells apart (R8.5)."""
    if change.path[0] not in ("table", "sees"):
        return False
    try:
        one, two = entry(str(change.was)), entry(str(change.now))
    except RefError:
        return False
    if one is None or two is None or one[0] != two[0] or one[0] not in now.observation.requests:
        return False
    views = [view.indices for view in now.observation.requests[one[0]].snapshots.values()]
    return any(max(one[1], two[1]) < len(view) and view[one[1]] == view[two[1]] for view in views)


def _place(step: Step, path: tuple[str, ...]) -> Position:
    positions = (step.positions.get(path[:length]) for length in range(len(path), 0, -1))
    return next((one for one in positions if one is not None), step.position)


# ---- what can be changed, and into what ----------------------------------------------------------------------------------


def changes(step: Step) -> Iterator[Change]:
    """The step with one value changed, in every way that is tried."""
    if step.raises is not None:
        other = next(kind for kind in ErrorKind if kind is not step.raises)
        yield Change(("raises",), step.raises.value, other.value, replace(step, raises=other))
        yield Change(("raises",), step.raises.value, "no error", replace(step, raises=None))
    if step.returns is not UNSET:
        for path, was, now, value in _values(step.returns, ("returns",)):
            yield Change(path, was, now, replace(step, returns=value))
    for key in type(step.expect).model_fields:
        value = getattr(step.expect, key)
        if value is None:
            continue
        if key in _ASIDE:
            for path, was, now, update in _ASIDE[key](step.expect):
                yield Change(path, was, now, _expecting(step, update))
            continue
        for path, was, now, changed in _of_key(key, value):
            yield Change(path, was, now, _expecting(step, {key: changed}))


def _expecting(step: Step, alone: dict[str, Any]) -> Step:
    """The step with this alone to expect."""
    return replace(step, expect=Expect().model_copy(update=alone))


Way = tuple[tuple[str, ...], object, object, Any]
"""Path, value before, value after, and the whole that stands around the value after the change."""


def _values(value: Any, path: tuple[str, ...]) -> Iterator[Way]:
    """A plain value and everything in it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            for inner, was, now, changed in _values(part, (*path, str(key))):
                yield inner, was, now, {**value, key: changed}
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for at, part in enumerate(value):
            for inner, was, now, changed in _values(part, (*path, str(at))):
                yield inner, was, now, [*value[:at], changed, *value[at + 1 :]]
        if not value:
            yield path, value, [0], [0]
        else:
            yield path, value, list(value[:-1]), list(value[:-1])
    else:
        now = _other(value)
        yield path, value, now, now


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case None:
            return 0
        case "ran":
            return "waiting"
        case "waiting" | "refused":
            return "ran"
        case "-":
            return "nobody.0"
        case str():
            return "-"
    return None


def _of_key(key: str, value: Any) -> Iterator[Way]:
    change = _LEAVES.get(key, _one)
    if isinstance(value, Mapping):
        for name, part in value.items():
            for inner, was, now, changed in change(part):
                yield (key, str(name), *inner), was, now, {name: changed}
    else:
        for inner, was, now, changed in change(value):
            yield (key, *inner), was, now, changed


def _one(value: Any) -> Iterator[Way]:
    now = _other(value)
    yield (), value, now, now


def _choice(*choices: Any) -> Any:
    def change(value: Any) -> Iterator[Way]:
        for other in choices:
            if other != value:
                yield (), value, other, other

    return change


def _each(change: Any) -> Any:
    """Every element of a list, and the list without its last."""

    def elements(values: Any) -> Iterator[Way]:
        for at, value in enumerate(values):
            for inner, was, now, changed in change(value):
                yield (str(at), *inner), was, now, (*values[:at], changed, *values[at + 1 :])
        if values:
            yield (), values, values[:-1], tuple(values[:-1])

    return elements


def _names(values: Any) -> Iterator[Way]:
    for at, value in enumerate(values):
        yield (), values, f"without {value}", (*values[:at], *values[at + 1 :])
    yield (), values, "and one more", (*values, "nobody")


def _row_numbers(values: Any) -> Iterator[Way]:
    for at, value in enumerate(values):
        yield (), values, f"without {value}", (*values[:at], *values[at + 1 :])
    yield (), values, "and one more", (*values, max(values, default=-1) + 1)


def _rows(values: Any) -> Iterator[Way]:
    """A table: every entry becomes ``-``, or another block of its request; two requests may well share a page."""
    named = sorted({word for row in values for word in row if word != "-"})
    for number, row in enumerate(values):
        for at, word in enumerate(row):
            mine = [other for other in named if other != word and other.split(".")[0] == word.split(".")[0]]
            for other in ["-", *mine[:1]] if word != "-" else named[:1] or ["nobody.0"]:
                if other != word:
                    changed = (*row[:at], other, *row[at + 1 :])
                    yield (str(number),), word, other, (*values[:number], changed, *values[number + 1 :])
    yield (), values, "without the last row", tuple(values[:-1])


def _parts(value: Any) -> Iterator[Way]:
    """A model of counts: each that is given, one more."""
    for name in type(value).model_fields:
        count = getattr(value, name)
        if count is not None:
            yield (name,), count, count + 1, value.model_copy(update={name: count + 1})


def _snapshot(value: Any) -> Iterator[Way]:
    if value.levels is not None:
        for inner, was, now, changed in _each(_choice(*LEVELS))(value.levels):
            yield ("levels", *inner), was, now, value.model_copy(update={"levels": changed})
    if value.eligible is not None:
        yield ("eligible",), value.eligible, value.eligible + 1, value.model_copy(update={"eligible": value.eligible + 1})
    if value.row != "unset":
        other = _other(value.row)
        yield ("row",), value.row, other, value.model_copy(update={"row": other})


def _since(value: Any) -> Iterator[Way]:
    for label, freshness in value.items():
        other = OTHER_FRESHNESS[freshness]
        yield (label,), freshness, other, {**value, label: other}


def _fetched(value: Any) -> Iterator[Way]:
    """By request, what came of each number: each becomes another."""
    for name, kinds in value.items():
        for at, kind in enumerate(kinds):
            other = "miss" if kind != "miss" else "hit"
            yield (name, str(at)), kind, other, {**value, name: (*kinds[:at], other, *kinds[at + 1 :])}


def _counts(value: Any) -> Iterator[Way]:
    if not isinstance(value, Mapping):
        yield from _parts(value)
        return
    for name, count in value.items():
        yield (name,), count, count + 1, {**value, name: count + 1}


def _other_tokens(tokens: Any) -> list[int]:
    return [*tokens[:-1], tokens[-1] + 1_000_003]


def _no_spans(spans: Any) -> tuple[()]:
    return ()


def _tree(blocks: Any) -> Iterator[Way]:
    for number, block in enumerate(blocks):
        levels = [part for name, part in block.items() if name not in ("tokens", "key", "spans")]
        absent = bool(levels) and all(part == "absent" for part in levels)
        for key, value in block.items():
            others: list[Any]
            if key in ("tokens", "key", "spans"):
                # A page is absent from other tokens and under other keys, too; its level is not.
                other_of: dict[str, Any] = {"tokens": _other_tokens, "key": "{}x".format, "spans": _no_spans}
                others = [] if absent else [other_of[key](value)]
            else:
                others = [level for level in ("gpu", "host", "disk", "absent") if level != value]
            for other in others:
                yield (str(number), key), value, other, (*blocks[:number], {**block, key: other}, *blocks[number + 1 :])


def _evicted(entries: Any) -> Iterator[Way]:
    """A leading part of an order: two neighbours are swapped; one alone becomes none."""
    if not entries:
        yield (), entries, "a page", ((1_000_003,),)
    elif len(entries) == 1:
        yield (), entries, [], ()
    for at in range(len(entries) - 1):
        changed = (*entries[:at], entries[at + 1], entries[at], *entries[at + 2 :])
        yield (str(at),), entries[at], entries[at + 1], changed


def _events(events: Any) -> Iterator[Way]:
    one_more = (*events, StoredExpect(stored=(1_000_003,)))
    yield (), events, "and one more", one_more
    for at, event in enumerate(events):
        match event:
            case StoredExpect():
                other: Any = RemovedExpect(removed=event.stored)
            case RemovedExpect():
                other = StoredExpect(stored=event.removed)
            case ClearedExpect():
                other = RemovedExpect(removed=(1_000_003,))
            case LevelExpect():
                other = event.model_copy(update={"from_": event.to, "to": event.from_})
        yield (str(at),), event, other, (*events[:at], other, *events[at + 1 :])
        yield (), events, "without one", (*events[:at], *events[at + 1 :])


_LEAVES: Mapping[str, Any] = {
    "levels": _each(_choice(*LEVELS)),
    "owners": _names,
    "num_blocks": _each(_one),
    "table": _rows,
    "status": _choice(*RequestStatus),
    "phase": _choice(*Phase),
    "dirty_rows": _row_numbers,
    "version": _choice("same", "newer"),
    "page_status": _choice(*PageStatus),
    "backing": _choice("gpu", "host", "disk", "none"),
    "copies": _names,
    "moved": _parts,
    "copy_calls": _parts,
    "page_level": _choice(*LEVELS),
    "version_since": _since,
    "tree": _tree,
    "level_table": _each(_each(_choice("gpu", "host", "-"))),
    "would_evict": _evicted,
    "snapshot": _snapshot,
    "events": _events,
    "stats": _counts,
    "payload": _choice("ok", "undefined"),
    "sees": _rows,
    "fetched": _fetched,
    "resident": _row_numbers,
}
"""How the value of each key changes; a plain value that is not here becomes another of its kind."""


Aside = tuple[tuple[str, ...], object, object, dict[str, Any]]


def _opposite(key: str, other: str) -> Any:
    """A list of labels whose opposite is another key: each label goes over to it."""

    def change(expect: Expect) -> Iterator[Aside]:
        labels = getattr(expect, key)
        for label in labels:
            yield (key, label), key, other, {other: (label,)}

    return change


def _pairs(key: str, other: str) -> Any:
    """A list of pages that are one, or that differ: each two next to each other are said to be the opposite."""

    def change(expect: Expect) -> Iterator[Aside]:
        pages = getattr(expect, key)
        for one, two in itertools.pairwise(pages):
            yield (key,), f"{key} {one}, {two}", other, {other: (one, two)}

    return change


_ASIDE: Mapping[str, Any] = {
    "pending": _opposite("pending", "done"),
    "done": _opposite("done", "pending"),
    "same_page": _pairs("same_page", "different_page"),
    "different_page": _pairs("different_page", "same_page"),
}
"""Keys whose change touches another key."""

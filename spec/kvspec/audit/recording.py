"""What a system answers and shows, written into a scenario file as a draft of its expectations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspec.audit.emit import inline
from kvspec.harness.outcomes import counters
from kvspec.harness.policies import settled
from kvspec.harness.replay import Raised, guarded
from kvspec.harness.systems import Factory, lacking, setup_for
from kvspec.observation import Observation, RequestStatus, RequestView
from kvspec.scenario import UNSET, Expect, Scenario, Step
from kvspec.system import Outcome

MARK = "# draft"
"""What stands after each line that nobody has confirmed."""
TAG = "draft"


class CannotRecord(Exception):
    """Nothing can be recorded; ``str()`` of it says why."""


def recorded(text: str, scenarios: Sequence[Scenario], factory: Factory, name: str) -> tuple[str, int, list[str]]:
    """The text of a file with what a system says of the steps that say nothing: no ``returns``, ``raises`` or ``expect``.

    :returns: the text, the number of steps with a draft, and why steps were left out.
    :raises CannotRecord: the system cannot do what the scenario asks, or raises.
    """
    lines = text.splitlines()
    count = 0
    left: list[str] = []
    for scenario in reversed(scenarios):  # from the end, so that the lines of the steps before stay where they are
        drafts = _drafts(scenario, factory, name)
        done = 0
        for step in reversed(scenario.steps):
            said = drafts[step.number]
            if step.returns is not UNSET or step.raises is not None or step.expect != Expect() or not said:
                continue
            if not _is_block(lines, step):
                left.append(f"{step.position}: a step in braces has no room for a draft: write it in lines")
                continue
            indent = " " * (step.position.column - 1)
            lines[step.last_line : step.last_line] = [f"{indent}{line}  {MARK}" for line in said]
            done += 1
        if done:
            _tag(lines, scenario)
        count += done
    return "\n".join(lines) + "\n", count, left


def _drafts(scenario: Scenario, factory: Factory, name: str) -> list[list[str]]:
    """For each step the lines that say what came of it."""
    if lack := lacking(scenario, factory):
        raise CannotRecord(f"{scenario.position}: {name} lacks {', '.join(lack)}")
    built = guarded(lambda: factory(setup_for(settled(scenario, factory), {})))
    if isinstance(built, Raised):
        raise CannotRecord(f"{scenario.position}: {name} raised while it was built: {built.text}")
    found = []
    try:
        before: Observation | None = None
        for step in scenario.steps:
            outcome = guarded(lambda step=step: built.apply(step.op))  # type: ignore[misc]
            now = guarded(built.observe)
            if isinstance(outcome, Raised) or isinstance(now, Raised):
                raised = outcome if isinstance(outcome, Raised) else now
                assert isinstance(raised, Raised)
                raise CannotRecord(f"{step.position}: {name} raised in {step.op.verb}: {raised.text}")
            found.append(list(_lines(outcome, before, now)))
            before = now
    finally:
        guarded(built.close)
    return found


def _lines(outcome: Outcome, before: Observation | None, now: Observation) -> Iterator[str]:
    if outcome.error is not None:
        yield f"raises: {outcome.error.value}"
        return
    if isinstance(outcome.value, bool | int | tuple):
        value = list(outcome.value) if isinstance(outcome.value, tuple) else outcome.value
        yield f"returns: {inline(value)}"
    expect = dict(_expected(before, now))
    if expect:
        yield "expect:"
        yield from (f"  {key}: {inline(value)}" for key, value in expect.items())


def _expected(before: Observation | None, now: Observation) -> Iterator[tuple[str, Any]]:
    """What the step has changed, as expectations."""
    old = before.requests if before is not None else {}
    changed: dict[str, dict[str, Any]] = {}
    for name, view in now.requests.items():
        for key, value in _of_request(name, view).items():
            expectation, of = key
            if _of_request(name, old[name]).get(key) != value if name in old else True:
                changed.setdefault(expectation, {})[of] = value
    yield from changed.items()
    yield from _of_batches(before, now)
    moved = _moved(before, now)
    if moved:
        yield "moved", moved


def _of_request(name: str, view: RequestView) -> Mapping[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("status", name): view.status.value,
        ("phase", name): view.phase.value,
        ("capacity", name): view.capacity,
        ("history", name): view.history,
        ("committed", name): view.committed,
        ("row", name): view.row,
    }
    if view.status is RequestStatus.ACTIVE:
        for (group, beam), snapshot in view.snapshots.items():
            if beam == 0 and snapshot.levels:
                found["levels", f"{name}.{group}"] = ["-" if level is None else level.label for level in snapshot.levels]
                found["eligible", f"{name}.{group}"] = snapshot.eligible
    return found


def _of_batches(before: Observation | None, now: Observation) -> Iterator[tuple[str, Any]]:
    old = before.batches if before is not None else {}
    counts: dict[str, list[int]] = {}
    rows: dict[str, list[int]] = {}
    for name, view in now.batches.items():
        was = old.get(name)
        if was is None or was.dirty_rows != view.dirty_rows:
            rows[name] = list(view.dirty_rows)
        for group, entries in view.published.items():
            if was is not None and was.published[group] != entries:
                counts[f"{name}.{group}"] = list(entries.num_blocks)
    if counts:
        yield "num_blocks", counts
    if rows:
        yield "dirty_rows", rows


def _moved(before: Observation | None, now: Observation) -> dict[str, dict[str, int]]:
    """Pages moved in this step: what the counters have grown by."""
    if before is None:
        return {}
    one, two = counters(before.lifetime), counters(now.lifetime)
    found: dict[str, dict[str, int]] = {}
    for group in two:
        grown = {kind: two[group].get(f"{kind}_pages", 0) - one[group].get(f"{kind}_pages", 0) for kind in _KINDS}
        if group != "manager" and any(grown.values()) and min(grown.values()) >= 0:
            found[group] = {kind: count for kind, count in grown.items() if count}
    return found


_KINDS = ("offload", "onboard", "copy", "drop")


def _is_block(lines: list[str], step: Step) -> bool:
    """Whether lines can be added to a step; a verb alone is given its colon for it."""
    number, start = step.position.line - 1, step.position.column - 1
    text = lines[number][start:]
    if text.startswith(("{", "*", "&")):
        return False
    word, space, comment = text.partition(" ")
    if word == step.op.verb:  # `- sync`
        lines[number] = lines[number][:start] + f"{word}:{space}{comment}"
    return True


def _tag(lines: list[str], scenario: Scenario) -> None:
    """Give the scenario the tag, if it has not got it."""
    if TAG in scenario.tags:
        return
    tags = inline([*scenario.tags, TAG])
    first = scenario.position.line - 1
    for number in range(first, scenario.steps[0].position.line - 1):
        if lines[number].startswith("tags:"):
            end = number + 1
            while lines[end].startswith((" ", "-")):
                end += 1
            lines[number:end] = [f"tags: {tags}"]
            return
    for number in range(first, scenario.steps[0].position.line - 1):
        if lines[number].startswith("manager:"):
            while not lines[number - 1].strip():
                number -= 1
            lines.insert(number, f"tags: {tags}")
            return

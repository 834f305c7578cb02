"""A scenario's replay as it was seen: everything that a page over time shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType

from kvspec.harness.difference import Failure, Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import failure_report, reproduce_command
from kvspec.harness.systems import find_system
from kvspec.harness.timeline.delta import Packed, Packer
from kvspec.harness.timeline.record import Divergence, Recorder, Seen, walk
from kvspec.harness.timeline.wording import arguments, said
from kvspec.scenario import Scenario

Take = Callable[[Seen], None]
"""Called with each step as it is seen."""


@dataclass(slots=True)
class Timeline:
    """What was seen of one scenario.

    ``systems``: the names of the reference and of the system under test, or of the only one. ``steps``: what the page shows of
    each, without facts; ``packed``: the facts of each. ``divergence``: those of the system under test, as what differs from
    the reference's, and the marks. ``report``: of a failure; ``stopped``: why the replay ended early without one.
    """

    scenario: Scenario
    systems: tuple[str, ...]
    packer: Packer = field(default_factory=Packer)
    steps: list[dict[str, Any]] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    divergence: dict[str, Any] | None = None
    failure: Failure | None = None
    report: RenderableType | None = None
    stopped: str = ""
    raised: bool = False

    @property
    def failed(self) -> bool:
        """Whether the systems differ, or one let an exception out."""
        return self.failure is not None or self.raised

    @property
    def last(self) -> int:
        """The number of the last step: the one that failed, if one did."""
        return self.failure.step if self.failure is not None else len(self.scenario.steps) - 1

    def take(self, seen: Seen) -> None:
        """Keep what a step shows, packed as what differs from the step before."""
        step, outcome = seen.step, seen.outcome
        self.packed.append(self.packer.pack(seen.facts))
        self.steps.append(
            {
                "number": step.number,
                "verb": step.op.verb,
                "arguments": arguments(step.op),
                "said": said(outcome),
                "error": outcome.error is not None,
                "message": outcome.message,
                "note": step.note or "",
                "lines": [step.position.line, step.last_line],
                "changes": [[one.subject, one.text, one.why] for one in seen.changes],
            }
        )
        if seen.divergence is not None:
            self.divergence = self._packed(seen, seen.divergence)

    def _packed(self, seen: Seen, other: Divergence) -> dict[str, Any]:
        difference = self.packer.difference(seen.facts, other.facts)
        keys = self.packer.keys
        marks = [[keys[key], list(indexes)] for key, indexes in sorted(other.marks.items(), key=lambda item: keys[item[0]])]
        return {"facts": difference, "marks": marks, "said": said(other.outcome), "message": other.outcome.message}


def recorder_of(timeline: Timeline, take: Take | None) -> Recorder:
    """A recorder that keeps each step in a timeline and hands it on."""

    def both(seen: Seen) -> None:
        timeline.take(seen)
        if take is not None:
            take(seen)

    return Recorder(timeline.scenario.manager, both)


def see_one(
    scenario: Scenario, system: str, options: Mapping[str, str], take: Take | None = None, timeout: float = 0.0
) -> Timeline:
    """See a scenario carried out by one system, in a limited time (``walk``). Nothing is compared."""
    timeline = Timeline(scenario, (system,))
    raised = walk(scenario, system, find_system(system), options, recorder_of(timeline, take), timeout)
    timeline.raised = bool(raised)
    timeline.stopped = f"{system} {raised}; kvspec run shows where" if raised else ""
    return timeline


def see_both(
    scenario: Scenario,
    system: str,
    against: str,
    options: Mapping[str, str],
    take: Take | None = None,
    timeout: float = 0.0,
) -> Timeline:
    """See a scenario replayed through two systems, up to and with the first step at which they differ, in a limited time."""
    timeline = Timeline(scenario, (against, system))
    recorder = recorder_of(timeline, take)
    names = Named(system, find_system(system)), Named(against, find_system(against))
    result = replay(scenario, *names, options, watch=recorder.watch, timeout=timeout)
    finish(timeline, recorder, result, options)
    return timeline


def finish(timeline: Timeline, recorder: Recorder, result: Result, options: Mapping[str, str]) -> None:
    """Take in how a replay of two systems ended."""
    against, system = timeline.systems
    timeline.failure = result.failure
    if result.failure is not None:
        timeline.report = failure_report(result, (against, system), reproduce_command(result, system, against, options))
    elif result.verdict is Verdict.SKIPPED:
        timeline.stopped = result.reason
    if recorder.broken:
        timeline.stopped = f"from step {len(timeline.steps)} on it cannot be drawn: {recorder.broken}"

"""Running many scenarios in processes of their own: a system that ends one, or hangs in one, fails one scenario."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.context import BaseContext
from pathlib import Path

from kvspec.harness.difference import Difference, Failure, Kind, Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.harness.watch import DEFAULT_SECONDS
from kvspec.harness.workers import Ended, Workers
from kvspec.language import load_file
from kvspec.scenario import Scenario

FEW = 24
"""Up to so many scenarios, starting more processes costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run: the names of the system under test and of the reference, and the options of both.

    ``max_pool_bytes``: the memory limit of a file. ``timeout``: of a scenario, in seconds; 0 for none.
    ``timelines``: keep what was seen of each scenario that fails.
    """

    system: str
    against: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_pool_bytes: int = 1 << 30
    timeout: float = DEFAULT_SECONDS
    timelines: bool = False


def default_jobs(scenarios: int, device: str) -> int:
    """How many processes to use: one for few scenarios and on a GPU, else one a core."""
    return 1 if scenarios <= FEW or device == "cuda" else min(os.cpu_count() or 1, scenarios)


def run_all(plan: Plan, scenarios: Sequence[Scenario], jobs: int) -> Iterator[tuple[int, Result]]:
    """Run scenarios; yields the number of each in ``scenarios`` with its result, in the order in which they finish.

    :raises SystemNotFound: a system of the plan is not there.
    """
    with Running(plan, scenarios, jobs) as running:
        yield from running.results()


class Running:
    """Scenarios that are being run. Leaving its block ends whatever still runs."""

    def __init__(self, plan: Plan, scenarios: Sequence[Scenario], jobs: int) -> None:
        """Start processes, and the first scenarios in them.

        :raises SystemNotFound: a system of the plan is not there.
        """
        self._scenarios = scenarios
        forkserver = process_context("kvspec.harness.runner", plan.system, plan.against)
        context = forkserver if jobs > 1 or not _may_fork() else multiprocessing.get_context("fork")
        self._workers = Workers(min(jobs, max(len(scenarios), 1)), context, forkserver)
        for number, one in enumerate(scenarios):
            self._workers.ask(number, _run_one, plan, one.position.path, one.index, seconds=plan.timeout)

    def results(self) -> Iterator[tuple[int, Result]]:
        """The number of each scenario with its result, in the order in which they finish."""
        for number, answer in self._workers.answers():
            assert isinstance(number, int)
            yield number, self._result(number, answer)

    def interrupt(self) -> list[Result]:
        """Stop: how far each scenario that was under way has come, as the failure that it is not, in their order."""
        found = {number: answer for number, answer in self._workers.interrupt() if isinstance(number, int)}
        return [self._result(number, found[number]) for number in sorted(found)]

    def __enter__(self) -> Running:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """End all processes."""
        self._workers.stop()

    def _result(self, number: int, answer: object) -> Result:
        if isinstance(answer, Ended):
            return _silent(self._scenarios[number], answer)
        assert isinstance(answer, Result)
        return answer


def process_context(module: str, *systems: str) -> BaseContext:
    """How to start processes that drive systems, given by their names, by code of ``module``.

    A server process that has imported all of them and touched no device hands such processes out cheaply.
    """
    context = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([module, *(find_system(name).__module__ for name in systems)])
    return context


def _may_fork() -> bool:
    """Whether this process may be copied as it is, which is the quickest: not where it may have touched a GPU."""
    return "fork" in multiprocessing.get_all_start_methods() and not os.path.exists("/dev/nvidiactl")


def _silent(scenario: Scenario, ended: Ended) -> Result:
    """The result of a scenario whose process ended without one."""
    step = scenario.steps[max(ended.step, 0)]
    doing = f"in {step.op.verb}" if ended.step >= 0 else "before the first step"
    difference = Difference(Kind.SILENT, doing, ended.why, ended.why, identity="process ended", detail=ended.frames)
    failure = Failure(step.number, step.op.verb, step.position, step.last_line, (difference,))
    return Result(
        scenario.name,
        scenario.position,
        scenario.index,
        scenario.rules,
        Verdict.FAILED,
        max(ended.step, 0),
        0.0,
        reason=ended.why,
        failure=failure,
    )


def _run_one(plan: Plan, path: Path, index: int) -> Result:
    implementation, reference = _systems(plan.system, plan.against)
    scenario = _loaded(path, plan.max_pool_bytes)[index]
    if not plan.timelines:
        return replay(scenario, implementation, reference, plan.options, timeout=plan.timeout)
    from kvspec.harness.timeline.page import replay_seen  # nothing else needs the page

    return replay_seen(scenario, implementation, reference, plan.options, plan.timeout)


@lru_cache(maxsize=4)
def _systems(system: str, against: str) -> tuple[Named, Named]:
    return Named(system, find_system(system)), Named(against, find_system(against))


@lru_cache(maxsize=8)
def _loaded(path: Path, max_pool_bytes: int) -> list[Scenario]:
    return load_file(path, max_pool_bytes=max_pool_bytes)

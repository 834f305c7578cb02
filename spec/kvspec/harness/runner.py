"""Running many scenarios, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.context import BaseContext
from pathlib import Path

from kvspec.harness.difference import Difference, Failure, Kind, Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.scenario import Scenario

FEW = 24
"""Up to so many scenarios, starting more processes costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run: the names of the system under test and of the reference, the options of both, the memory limit of a file.

    ``timelines``: keep what was seen of each scenario that fails.
    """

    system: str
    against: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_pool_bytes: int = 1 << 30
    timelines: bool = False


def default_jobs(scenarios: int, device: str) -> int:
    """How many processes to use: one for few scenarios and on a GPU, else one a core."""
    return 1 if scenarios <= FEW or device == "cuda" else min(os.cpu_count() or 1, scenarios)


def run_all(plan: Plan, scenarios: Sequence[Scenario], jobs: int) -> Iterator[tuple[int, Result]]:
    """Run scenarios; yields the place of each in ``scenarios`` with its result, in the order in which they finish.

    :raises SystemNotFound: a system of the plan is not there.
    """
    if jobs <= 1:
        implementation, reference = _systems(plan.system, plan.against)
        for number, scenario in enumerate(scenarios):
            yield number, _replay(plan, scenario, implementation, reference)
        return
    context = process_context("kvspec.harness.runner", plan.system, plan.against)
    rest = dict(enumerate(scenarios))
    for number, result in _in_pool(plan, rest, jobs, context):
        del rest[number]
        yield number, result
    # A system that ends its process takes the pool with it. What is left runs alone, so that it is known which one did.
    for number, scenario in rest.items():
        yield next(_in_pool(plan, {number: scenario}, 1, context), (number, _died(scenario)))


def process_context(module: str, *systems: str) -> BaseContext:
    """How to start processes that drive systems, given by their names, by code of ``module``.

    A server process that has imported all of them and touched no device hands such processes out cheaply.
    """
    context = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([module, *(find_system(name).__module__ for name in systems)])
    return context


def _in_pool(plan: Plan, scenarios: Mapping[int, Scenario], jobs: int, context: BaseContext) -> Iterator[tuple[int, Result]]:
    """Results as they come; it ends early if a process of the pool ends."""
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        futures = {pool.submit(_run_one, plan, one.position.path, one.index): number for number, one in scenarios.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            return
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _died(scenario: Scenario) -> Result:
    step = scenario.steps[0]
    said = "the process ended without an answer"
    subject = "nothing, but its process ended in the middle of this scenario"
    difference = Difference(Kind.RAISED, subject, said, said, identity="process ended")
    failure = Failure(step.number, step.op.verb, step.position, step.last_line, (difference,))
    return Result(
        scenario.name, scenario.position, scenario.index, scenario.rules, Verdict.FAILED, 0, 0.0, reason=said, failure=failure
    )


def _run_one(plan: Plan, path: Path, index: int) -> Result:
    implementation, reference = _systems(plan.system, plan.against)
    return _replay(plan, _loaded(path, plan.max_pool_bytes)[index], implementation, reference)


def _replay(plan: Plan, scenario: Scenario, implementation: Named, reference: Named) -> Result:
    if not plan.timelines:
        return replay(scenario, implementation, reference, plan.options)
    from kvspec.harness.timeline.page import replay_seen  # nothing else needs the page

    return replay_seen(scenario, implementation, reference, plan.options)


@lru_cache(maxsize=4)
def _systems(system: str, against: str) -> tuple[Named, Named]:
    return Named(system, find_system(system)), Named(against, find_system(against))


@lru_cache(maxsize=8)
def _loaded(path: Path, max_pool_bytes: int) -> list[Scenario]:
    return load_file(path, max_pool_bytes=max_pool_bytes)

"""The sweep of many scenarios, in this process or in several, and adding up what comes of it."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kvspec.audit.injections import Injection
from kvspec.audit.sweep import Finding, Sweeper, SweepResult
from kvspec.harness.replay import Named
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.scenario import Scenario


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """How to sweep: names of the systems, their options, the memory limit of a file; ``only``: one injection alone."""

    system: str
    against: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_pool_bytes: int = 1 << 30
    only: Injection | None = None


@dataclass(slots=True)
class Report:
    """All scenarios together. ``findings``: the number of the scenario and what was found, in order."""

    scenarios: int = 0
    seconds: float = 0.0
    tested: Counter[tuple[str, str]] = field(default_factory=Counter)
    absorbed: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, Finding]] = field(default_factory=list)

    def add(self, number: int, result: SweepResult) -> None:
        """Add the result of the scenario with this number."""
        if result.skipped:
            self.skipped[result.skipped] += 1
            return
        self.scenarios += 1
        self.tested.update(result.tested)
        self.absorbed.update(result.absorbed)
        self.left_out.update(result.left_out)
        self.findings += [(number, finding) for finding in result.findings]


def sweeper(plan: SweepPlan, choose: Callable[[Scenario, Injection], bool] | None = None) -> Sweeper:
    """The sweeper of a plan. Raises `SystemNotFound`."""
    only = plan.only
    if choose is None:
        choose = (lambda scenario, injection: True) if only is None else (lambda scenario, injection: injection == only)
    return Sweeper(
        Named(plan.system, find_system(plan.system)), Named(plan.against, find_system(plan.against)), plan.options, choose
    )


def sweep_all(plan: SweepPlan, scenarios: Sequence[Scenario], jobs: int) -> Report:
    """Sweep scenarios in ``jobs`` processes, and add up what comes of it. Raises `SystemNotFound`."""
    start = time.perf_counter()
    report = Report()
    for number, result in sorted(_each(plan, scenarios, jobs), key=lambda entry: entry[0]):
        report.add(number, result)
    report.seconds = time.perf_counter() - start
    return report


def _each(plan: SweepPlan, scenarios: Sequence[Scenario], jobs: int) -> Iterator[tuple[int, SweepResult]]:
    mine = sweeper(plan)
    if jobs <= 1:
        for number, scenario in enumerate(scenarios):
            yield number, mine.sweep(scenario)
        return
    context = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        # The longest first, so that no process is left with one at the end.
        order = sorted(range(len(scenarios)), key=lambda number: -len(scenarios[number].steps))
        futures = {pool.submit(_one, plan, scenarios[number].position.path, scenarios[number].index): number for number in order}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _one(plan: SweepPlan, path: Path, index: int) -> SweepResult:
    return sweeper(plan).sweep(_loaded(path, plan.max_pool_bytes)[index])


@lru_cache(maxsize=8)
def _loaded(path: Path, max_pool_bytes: int) -> list[Scenario]:
    return load_file(path, max_pool_bytes=max_pool_bytes)

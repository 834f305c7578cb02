"""Named breaks of an implementation, and which scenario notices each.

A package announces its breaks in the entry-point group ``kvspec.mutants``, under the name of its system: a function without
arguments that returns them. A break of a fence must be noticed by its order: by the device's own ordering check, with no
reference at hand, or by what is pending or done, or by an edge that the reference demands. Any other break must be noticed.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kvspec.audit.packed import packed, unpacked
from kvspec.harness.difference import Failure, Kind, Verdict
from kvspec.harness.policies import settled
from kvspec.harness.replay import Named, Raised, guarded, replay
from kvspec.harness.systems import Factory, find_system, lacking, setup_for
from kvspec.harness.workers import Ended
from kvspec.scenario import Scenario
from kvspec.system import System

if TYPE_CHECKING:
    from kvspec.cluster.cluster import Cluster
    from kvspec.harness.workers import Workers

ENTRY_POINTS = "kvspec.mutants"
"""The entry-point group in which breaks are announced."""

FENCE = "fence"
"""The kind of a break that drops an order of device work."""

ORDER: Mapping[Kind, frozenset[str]] = {
    Kind.STATE: frozenset({"ready", "fences", "upload", "read", "stream", "label"}),
    Kind.EXPECTATION: frozenset({"pending", "done"}),
}
"""What the harness compares of the order of device work, and what scenarios expect of it."""

_ORDER_FAULT = "unordered accesses"
_STEP = re.compile(r"step (\d+): (\w+)\)")


class Mutant(Protocol):
    """A break, as a package announces it."""

    @property
    def name(self) -> str:
        """Unique among the breaks of the system."""
        ...

    @property
    def rule(self) -> str:
        """The rule that it breaks."""
        ...

    @property
    def kind(self) -> str:
        """``fence``, or anything else."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Options of the setup that it needs."""
        ...

    def broken(self) -> AbstractContextManager[None]:
        """The system is broken while the context is open."""
        ...


class How(StrEnum):
    """How a break is noticed."""

    CHECK = "ordering check"
    ORDER = "order of device work"
    EXPECTATION = "outcome or expectation"
    DIVERGENCE = "divergence"
    RAISED = "exception"


@dataclass(frozen=True, slots=True)
class Kill:
    """A scenario notices a break. ``scenario``: its file and its number in the file. ``step``: where; ``text``: what it said."""

    path: Path
    index: int
    name: str
    step: int
    verb: str
    how: How
    text: str

    def enough(self, mutant: Mutant) -> bool:
        """Whether it is noticed in the way that it must be: a fence by its order."""
        return mutant.kind != FENCE or self.how in (How.CHECK, How.ORDER)


@dataclass(frozen=True, slots=True)
class MutantPlan:
    """How to look for kills: names of the systems, options of both; ``every``: all kills."""

    system: str
    against: str
    options: Mapping[str, str] = field(default_factory=dict)
    every: bool = False


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What came of one break: its kills, the first that is enough last unless all were asked for."""

    mutant: str
    rule: str
    kind: str
    kills: tuple[Kill, ...]
    killed: bool


class NoMutants(LookupError):
    """A system announces no breaks. ``str()`` of it says what to do."""


def find_mutants(system: str) -> tuple[Mutant, ...]:
    """The breaks of a system, by its name.

    :raises NoMutants: none are announced.
    """
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == system:
            return tuple(point.load()())
    raise NoMutants(
        f"system {system!r} announces no breaks: a package does so with an entry point of that name in the group {ENTRY_POINTS}"
    )


def in_order(scenarios: Sequence[Scenario], mutant: Mutant) -> list[Scenario]:
    """The scenarios, those that name the rule of the break first; the shorter first."""
    return sorted(scenarios, key=lambda scenario: (mutant.rule not in scenario.rules, len(scenario.steps)))


def try_mutant(mutant: Mutant, scenarios: Sequence[Scenario], plan: MutantPlan) -> MutantResult:
    """Try scenarios on a broken system until one notices; with ``plan.every``, all of them.

    :raises SystemNotFound: a system of the plan is not there.
    """
    kills: list[Kill] = []
    for kill in _kills(mutant, in_order(scenarios, mutant), plan):
        kills.append(kill)
        if kill.enough(mutant) and not plan.every:
            break
    return MutantResult(mutant.name, mutant.rule, mutant.kind, tuple(kills), any(kill.enough(mutant) for kill in kills))


def _kills(mutant: Mutant, scenarios: Sequence[Scenario], plan: MutantPlan) -> Iterator[Kill]:
    implementation = Named(plan.system, find_system(plan.system))
    reference = Named(plan.against, find_system(plan.against))
    options = {**plan.options, **mutant.options}
    found: set[tuple[Path, int]] = set()
    if mutant.kind == FENCE:
        for scenario in scenarios:
            kill = check_alone(mutant, scenario, implementation.factory, options)
            if kill is not None:
                found.add((scenario.position.path, scenario.index))
                yield kill
    for scenario in scenarios:
        if (scenario.position.path, scenario.index) in found:
            continue
        kill = compare_broken(mutant, scenario, implementation, reference, options)
        if kill is not None:
            yield kill


def noticed_by(scenario: Scenario, mutants: Sequence[Mutant], plan: MutantPlan) -> str | None:
    """The name of a break that a scenario notices, of those of its own rules if it can be; ``None``: it notices none.

    :raises SystemNotFound: a system of the plan is not there.
    """
    implementation = Named(plan.system, find_system(plan.system))
    reference = Named(plan.against, find_system(plan.against))
    for mutant in sorted(mutants, key=lambda mutant: mutant.rule not in scenario.rules):
        if compare_broken(mutant, scenario, implementation, reference, {**plan.options, **mutant.options}) is not None:
            return mutant.name
    return None


def check_alone(mutant: Mutant, scenario: Scenario, factory: Factory, options: Mapping[str, str]) -> Kill | None:
    """Whether the ordering check of the broken system itself finds something, with nothing to compare it with."""
    if lacking(scenario, factory):
        return None
    faults: tuple[str, ...] = ()
    with mutant.broken():
        setup = setup_for(settled(scenario, factory), options)
        system = guarded(lambda: factory(setup))
        if not isinstance(system, Raised):
            faults = _faults(system, scenario)
            guarded(system.close)
    for fault in faults:
        if fault.startswith(_ORDER_FAULT):
            steps = _STEP.findall(fault)
            number, verb = (int(steps[-1][0]), steps[-1][1]) if steps else (len(scenario.steps) - 1, "-")
            return _kill(scenario, number, verb, How.CHECK, fault.splitlines()[0])
    return None


def _faults(system: System, scenario: Scenario) -> tuple[str, ...]:
    """What a system finds by itself in a scenario; exceptions of a broken one are none of its findings."""
    for step in scenario.steps:
        guarded(lambda op=step.op: system.apply(op))  # type: ignore[misc]
    seen = guarded(system.observe)
    return () if isinstance(seen, Raised) else seen.faults


def compare_broken(
    mutant: Mutant, scenario: Scenario, implementation: Named, reference: Named, options: Mapping[str, str]
) -> Kill | None:
    """Whether a replay of the broken system against the reference fails."""
    with mutant.broken():
        result = replay(scenario, implementation, reference, options)
    if result.verdict is not Verdict.FAILED or result.failure is None:
        return None
    failure = result.failure
    text = failure.differences[0].subject if failure.differences else "-"
    return _kill(scenario, failure.step, failure.verb, _how(failure, mutant.kind), text)


def _how(failure: Failure, kind: str) -> How:
    """What noticed a break. Of a fence it is the order that counts, of anything else what the scenario says."""
    kinds = {difference.kind for difference in failure.differences}
    order = [difference for difference in failure.differences if difference.identity in ORDER.get(difference.kind, ())]
    if any(difference.kind is Kind.FAULT and _ORDER_FAULT in difference.identity for difference in failure.differences):
        return How.CHECK
    if order and (kind == FENCE or len(order) == len(failure.differences)):
        return How.ORDER
    if kinds & {Kind.RAISED, Kind.SILENT, Kind.FAULT}:
        return How.RAISED
    return How.EXPECTATION if kinds & {Kind.EXPECTATION, Kind.OUTCOME} else How.DIVERGENCE


def _kill(scenario: Scenario, step: int, verb: str, how: How, text: str) -> Kill:
    return Kill(scenario.position.path, scenario.index, scenario.name, step, verb, how, text)


def try_mutants(
    plan: MutantPlan, mutants: Sequence[Mutant], scenarios: Sequence[Scenario], workers: Workers | Cluster
) -> Iterator[MutantResult | tuple[str, Ended]]:
    """Every break in turn, in the order in which they finish; with its name, one whose process ended.

    :raises SystemNotFound: a system of the plan is not there.
    """
    data = packed(scenarios)
    for mutant in mutants:
        workers.ask(mutant.name, _one, plan, mutant.name, data)
    for name, answer in workers.answers():
        yield (str(name), answer) if isinstance(answer, Ended) else answer


def _one(plan: MutantPlan, name: str, data: bytes) -> MutantResult | Ended:
    if plan.options.get("device") == "cuda":
        return _apart(plan, name, data)
    return _here(plan, name, data)


def _here(plan: MutantPlan, name: str, data: bytes) -> MutantResult:
    return try_mutant(_by_name(plan.system)[name], unpacked(data), plan)


def _apart(plan: MutantPlan, name: str, data: bytes) -> MutantResult | Ended:
    """In a process of its own: a break may leave the GPU's context of its process unusable for the next one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_here, plan, name, data).result()
        except BrokenProcessPool:
            return Ended("the driver or the break ended it", -1, ())


@lru_cache(maxsize=2)
def _by_name(system: str) -> Mapping[str, Mutant]:
    return {mutant.name: mutant for mutant in find_mutants(system)}

"""Random lifecycles through two systems; a failure is shrunk to a short scenario that fails in the same way."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kvspec import ops
from kvspec.audit.emit import document, step_mapping
from kvspec.audit.leftovers import files_left, leftovers, own_folder
from kvspec.audit.managers import Profile, random_manager
from kvspec.audit.workload import STREAMS, Chooser
from kvspec.config import ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.harness.difference import Failure, Result, Verdict
from kvspec.harness.replay import Named, Raised, guarded, replay
from kvspec.language.loader import read_bytes
from kvspec.observation import Observation
from kvspec.scenario import Scenario, Step
from kvspec.system import Setup, System


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A manager and the operations that were carried out on it, chosen with the reference's state in view.

    ``whole``: the last of them let go of everything.
    """

    seed: int
    manager: ManagerConfig
    operations: tuple[ops.Operation, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A lifecycle on which two systems differ: the replay's result, and the shortest scenario found so far, as YAML text."""

    life: Lifecycle
    result: Result
    text: str

    @property
    def seed(self) -> int:
        """The seed of the lifecycle."""
        return self.life.seed

    @property
    def at_the_end(self) -> bool:
        """Whether what is wrong is what is left at the end: then every operation may have a part in it."""
        return self.result.failure is not None and self.result.failure.step == len(self.life.operations)


@dataclass(frozen=True, slots=True)
class Hunted:
    """What came of the lifecycle of a seed. ``found``: where the systems differ. ``unfinished``: why it was not gone through."""

    found: Found | None = None
    unfinished: str = ""


def generate(seed: int, steps: int, reference: Named, profile: Profile) -> Lifecycle:
    """The lifecycle of a seed: ``steps`` operations, then everything is let go of."""
    rng = Random(seed)
    manager = random_manager(rng, profile)
    chooser = Chooser(rng, manager, profile)
    system = reference.factory(Setup(manager, STREAMS))
    chosen: list[ops.Operation] = []
    whole = True
    for number in range(steps + 1):
        seen = guarded(system.observe)
        if isinstance(seen, Raised):  # a mistake of the reference: the replay meets it again, and reports it
            whole = False
            break
        for op in [chooser.next(seen)] if number < steps else chooser.finish(seen):
            chosen.append(op)
            guarded(lambda op=op: system.apply(op))  # type: ignore[misc]
    guarded(system.close)
    return Lifecycle(seed, manager, tuple(chosen), whole)


def as_yaml(name: str, manager: ManagerConfig, operations: Sequence[ops.Operation], reference: Named) -> str:
    """A scenario of these operations. The reference says which of them are errors, so that each has its ``raises``."""
    system = reference.factory(Setup(manager, STREAMS))
    try:
        steps = [step_mapping(op, _error(system, op)) for op in operations]
    finally:
        guarded(system.close)
    return document(name, manager, STREAMS, steps)


def run(life: Lifecycle, implementation: Named, reference: Named, options: Mapping[str, str]) -> Result:
    """Replay a lifecycle through both systems. At its end, if it was not cut short, nothing may be left.

    What is left is a failure of a step behind the last.
    """
    name = f"lifecycle {life.seed}"
    scenario = _scenario(as_yaml(name, life.manager, life.operations, reference))
    last: list[tuple[Observation, Observation]] = []

    def look(step: Step, one: Observation, two: Observation) -> None:
        last[:] = [(one, two)]

    with own_folder() as folder:
        result = replay(scenario, implementation, reference, options, look)
    if result.verdict is not Verdict.PASSED or not life.whole:
        return result
    left = (*leftovers(life.manager, *last[0]), *files_left(folder))
    if not left:
        return result
    step = scenario.steps[-1]
    failure = Failure(len(scenario.steps), step.op.verb, step.position, step.last_line, left)
    return replace(result, verdict=Verdict.FAILED, failure=failure)


def shrink(found: Found, implementation: Named, reference: Named, options: Mapping[str, str], seconds: float = math.inf) -> Found:
    """Leave out operations for as long as the same failure stays: halves first, then ever smaller pieces.

    :param seconds: after so long the shortest scenario so far is good enough.
    """
    life, best = found.life, found.result
    if best.failure is None or found.at_the_end:
        return found
    end = time.monotonic() + seconds
    wanted = best.failure.identity
    kept = list(life.operations[: best.failure.step + 1])
    size = max(1, len(kept) // 2)
    while time.monotonic() < end:
        start, progress = 0, False
        while start < len(kept) and time.monotonic() < end:
            shorter = kept[:start] + kept[start + size :]
            if not shorter:  # a scenario has at least one step
                start += size
                continue
            again = run(Lifecycle(life.seed, life.manager, tuple(shorter)), implementation, reference, options)
            if again.failure is not None and again.failure.identity == wanted:
                kept, best, progress = shorter[: again.failure.step + 1], again, True
            else:
                start += size
        if size == 1 and not progress:
            break
        size = max(1, size // 2)
    return Found(life, best, as_yaml(_title(life), life.manager, kept, reference))


def hunt(seed: int, steps: int, implementation: Named, reference: Named, options: Mapping[str, str], profile: Profile) -> Hunted:
    """Generate and replay the lifecycle of a seed; a failure comes back with the operations up to it."""
    life = generate(seed, steps, reference, profile)
    result = run(life, implementation, reference, options)
    if result.verdict is not Verdict.FAILED:
        return Hunted(unfinished=result.reason)
    last = len(life.operations) if result.failure is None else result.failure.step + 1
    return Hunted(Found(life, result, as_yaml(_title(life), life.manager, life.operations[:last], reference)))


def _title(life: Lifecycle) -> str:
    return f"found by lifecycle {life.seed}"


def _error(system: System, op: ops.Operation) -> ErrorKind | None:
    """The kind of error that an operation is answered with; none also if the system lets an exception out."""
    outcome = guarded(lambda: system.apply(op))
    return None if isinstance(outcome, Raised) else outcome.error


def _scenario(text: str) -> Scenario:
    loaded = read_bytes(Path("lifecycle.yaml"), text.encode())
    if loaded.problems:
        raise AssertionError("a generated scenario is wrong: " + "; ".join(map(str, loaded.problems)) + "\n" + text)
    return loaded.scenarios[0]

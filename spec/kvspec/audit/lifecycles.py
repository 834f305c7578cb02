"""Random lifecycles through two systems; a failure is shrunk to a short scenario that fails in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from kvspec import ops
from kvspec.audit.able import Able, Scout
from kvspec.audit.drawing import STREAMS
from kvspec.audit.emit import document, step_mapping
from kvspec.audit.fitting import Range
from kvspec.audit.managers import Profile, fetching, owned
from kvspec.audit.reached import Reached, Watched, watched
from kvspec.audit.steering import Steering
from kvspec.audit.still_held import files_left, own_folder, still_held
from kvspec.audit.workload import Chooser
from kvspec.config import ManagerConfig
from kvspec.harness.difference import Failure, Result, Verdict
from kvspec.harness.policies import with_policies
from kvspec.harness.replay import Choose, Named, Refused, replay_chosen
from kvspec.language.loader import read_bytes
from kvspec.observation import Observation
from kvspec.scenario import Position, Scenario, Step
from kvspec.system import Setup

FILE = Path("lifecycle.yaml")
"""What the text of a failure is called in reports."""


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
class LifecycleResult:
    """What came of the lifecycle of a seed. ``found``: where the systems differ. ``unfinished``: why it was not finished.

    ``reached``: the named states that the reference came to. ``passed_over``: calls that the implementation said it cannot do.
    """

    found: Found | None = None
    unfinished: str = ""
    reached: Reached = field(default_factory=Reached)
    passed_over: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class PassedOver:
    """Calls that the implementation said it cannot do, by verb and what it lacks; ``at_the_end``: one that was to let go."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    at_the_end: bool = False


def run(
    life: Lifecycle, implementation: Named, reference: Named, options: Mapping[str, str], timeout: float = 0.0
) -> tuple[Result, tuple[Step, ...]]:
    """Replay a lifecycle through both systems; the steps come back as far as they were carried out, each with its error.

    :param timeout: of the replay, in seconds; 0 for no limit.
    """
    rest = iter(life.operations)
    return _gone_through(life, lambda _: next(rest, None), implementation, reference, options, timeout)


def _gone_through(
    life: Lifecycle,
    choose: Choose,
    implementation: Named,
    reference: Named,
    options: Mapping[str, str],
    timeout: float,
    refused: Refused | None = None,
    passed_over: PassedOver | None = None,
) -> tuple[Result, tuple[Step, ...]]:
    """Have both systems go through operations on the manager of a lifecycle. At its end, if it is whole, nothing may be left.

    What is left is a failure of a step after the last. Where a failure stands is said of the lifecycle as YAML.
    """
    head = Scenario(f"lifecycle {life.seed}", (), (), (), life.manager, STREAMS, (), Position(FILE, 1, 1), 0)
    last: list[tuple[Observation, Observation]] = []

    def look(step: Step, one: Observation, two: Observation) -> None:
        last[:] = [(one, two)]

    with own_folder() as folder:
        result, steps = replay_chosen(head, choose, implementation, reference, options, look, timeout, refused)
    whole = life.whole and not (passed_over is not None and passed_over.at_the_end)
    if result.verdict is Verdict.PASSED and whole and last:
        left = (*still_held(life.manager, *last[0]), *files_left(folder))
        if left:
            remains = Failure(len(steps), steps[-1].op.verb, head.position, 1, left)
            result = replace(result, verdict=Verdict.FAILED, failure=remains)
    failure = result.failure
    if failure is None or not steps:
        return result, steps
    written = loaded(as_yaml(life, steps)).steps[min(failure.step, len(steps) - 1)]
    return replace(result, failure=replace(failure, position=written.position, last_line=written.last_line)), steps


def as_yaml(life: Lifecycle, steps: Sequence[Step]) -> str:
    """A scenario of steps on the manager of a lifecycle, with ``raises`` where the reference had an error."""
    written = [step_mapping(step.op, step.raises) for step in steps]
    used = {getattr(step.op, "stream", None) for step in steps}
    streams = [name for name in STREAMS if name == STREAMS[0] or name in used]
    return document(f"found by lifecycle {life.seed}", life.manager, streams, written)


def loaded(text: str) -> Scenario:
    """The scenario of a lifecycle that was written as YAML."""
    found = read_bytes(FILE, text.encode())
    if found.problems:
        raise AssertionError("a generated scenario is wrong: " + "; ".join(map(str, found.problems)) + "\n" + text)
    return found.scenarios[0]


def try_lifecycle(
    seed: int,
    steps: int,
    implementation: Named,
    reference: Named,
    options: Mapping[str, str],
    profile: Profile,
    timeout: float = 0.0,
) -> LifecycleResult:
    """The lifecycle of a seed: ``steps`` operations, chosen with the reference's state in view, then everything is let go of.

    Both systems go through it as it is chosen. A failure comes back with the operations up to it.

    :param timeout: of going through it, in seconds; 0 for no limit.
    """
    reached = Reached()
    rng = Random(seed)
    able = Able((implementation.factory, reference.factory), profile.allowed)
    fits = Range.of(able)
    if fits is None:
        return LifecycleResult(unfinished="no manager fits both systems")
    drawn = fits.manager(rng, profile)
    private = owned(drawn, seed, profile.ownership)
    chosen = drawn if able.lacks(private) else private
    reserving = fetching(chosen, seed, profile.fetches) if "fetch" in able.verbs else chosen
    manager = with_policies(chosen if able.lacks(reserving) else reserving, implementation.factory)
    scout = None
    if not (able.misuse and able.partial):
        scout = Scout(able, reference.factory, Setup(manager, STREAMS, dict(options)))
    everything = fits.whole and able.everything
    steering = Steering(reached.cells) if profile.steer else None
    chooser = Chooser(rng, manager, able.narrowed(profile), None if everything else able, scout, steering)
    left = iter(range(steps))
    ending: list[ops.Operation] | None = None

    def choose(seen: Observation) -> ops.Operation | None:
        nonlocal ending
        if next(left, None) is not None and (chosen := chooser.next(seen)) is not None:
            return chosen
        if ending is None:
            ending = chooser.finish(seen)
        while ending or chooser.draw.queue:
            op = chooser.possible((chooser.draw.queue or ending).pop(0))
            if op is not None:
                return op
        return None

    passed_over = PassedOver()

    def refused(op: ops.Operation, lack: str) -> None:
        passed_over.calls[op.verb, lack] += 1
        passed_over.at_the_end |= ending is not None
        if scout is not None:
            scout.take_back()

    def made(system: Watched) -> None:
        if steering is not None:
            steering.watched = system

    life = Lifecycle(seed, manager, (), whole="clear_reusable" in able.verbs)
    watching = watched(reference, reached, made)
    try:
        result, taken = _gone_through(life, choose, implementation, watching, options, timeout, refused, passed_over)
    finally:
        if scout is not None:
            scout.close()
    if reached.fetched:
        reached.fetched["lifecycles"] = 1
    if result.verdict is not Verdict.FAILED:
        unfinished = result.reason or ("" if taken else "no operation could be made")
        return LifecycleResult(unfinished=unfinished, reached=reached, passed_over=passed_over.calls)
    life = replace(life, operations=tuple(step.op for step in taken), whole=life.whole and not passed_over.at_the_end)
    return LifecycleResult(Found(life, result, as_yaml(life, taken)), reached=reached, passed_over=passed_over.calls)

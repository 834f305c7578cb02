"""``kvspec fuzz``: random lifecycles through both systems."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvspec.cli.refusing import found_system, must_be_schedule, must_build, must_differ, refuse
from kvspec.cli.run import Device
from kvspec.harness.watch import DEFAULT_SECONDS

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.able import Able
    from kvspec.audit.fitting import Range
    from kvspec.audit.lifecycles import Found, LifecycleResult
    from kvspec.audit.managers import Profile
    from kvspec.audit.reached import Reached
    from kvspec.harness.difference import Failure
    from kvspec.harness.replay import Named
    from kvspec.harness.workers import Ended, Workers

Tell: TypeAlias = "Callable[[Found | None], None]"
GPU_PROCESSES = 12
"""So many processes at most may share a GPU, unless more are asked for: each takes hardware queues of it, and these are few."""
SHRINK_SECONDS = 30.0
"""How long a failure is made shorter."""


SMALL, BIG = "small", "big"
ANY = "any"
"""Shared or private ownership, as it is drawn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every process is told. ``profile``: ``small``, ``big``, or one of the suite (`kvspec.profiles`)."""

    steps: int
    system: str
    against: str
    options: dict[str, str]
    gates: bool
    faults: bool
    profile: str
    timeout: float
    ownership: str = ANY

    def contents(self) -> Profile:
        """What its lifecycles may contain."""
        from kvspec.audit.managers import Profile
        from kvspec.config import Ownership
        from kvspec.profiles import profile

        allowed = None if self.profile in (SMALL, BIG) else profile(self.profile)
        ownership = None if self.ownership == ANY else Ownership(self.ownership)
        return Profile(gates=self.gates, faults=self.faults, big=self.profile == BIG, allowed=allowed, ownership=ownership)


@dataclass(slots=True)
class Tally:
    """What has come out so far.

    ``unfinished``: why some were not finished. ``lost``: by seed, what came instead of an answer.
    ``under_way``: seeds that were stopped, with the failure that says where each was, if it is known.
    ``reached``: of each seed, the states that its lifecycle came to.
    """

    done: int = 0
    unfinished: list[str] = field(default_factory=list)
    found: dict[int, Found] = field(default_factory=dict)
    lost: dict[int, Ended] = field(default_factory=dict)
    under_way: dict[int, Failure | Ended | None] = field(default_factory=dict)
    reached: dict[int, Reached] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many lifecycles failed."""
        return len(self.found) + len(self.lost)


def fuzz(
    seeds: Annotated[int, typer.Option(min=1, help="Number of lifecycles.")] = 200,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Number of operations in each lifecycle.")] = 60,
    system: Annotated[str, typer.Option(help="The system under test.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference.")] = "kvref",
    device: Annotated[Device, typer.Option(help="The device that the system under test runs on.")] = Device.AUTO,
    schedule: Annotated[str, typer.Option(help="fifo, adversarial or seed=N.")] = "fifo",
    seconds: Annotated[
        float | None, typer.Option(help="Start no lifecycle after this many seconds, even if some are left.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The longest that one replay may take; 0 for no limit.")
    ] = DEFAULT_SECONDS,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes. Left out: one for each core, but at most 12 unless the device is sim."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the scenario of each failure into this folder.")] = None,
    keep_going: Annotated[bool, typer.Option(help="Continue after the first failure.")] = False,
    gates: Annotated[bool, typer.Option(help="Include operations that close and open gates.")] = True,
    faults: Annotated[bool, typer.Option(help="Include refused copies.")] = True,
    profile: Annotated[
        str,
        typer.Option(
            help="small: few slots, much contention; big: hundreds of blocks a request, many rows, tokens up to 2**40 (slower); "
            "or small ones that keep to a profile of the suite: prefix, prefix+host, ... (docs/profiles.md)."
        ),
    ] = SMALL,
    ownership: Annotated[
        str,
        typer.Option(
            help="Who owns the GPU pages of sparse groups: shared, private (section 14 of the rules), or any: as drawn."
        ),
    ] = ANY,
) -> None:
    """Run random lifecycles through both systems. Whatever differs is shrunk to a short scenario."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    from kvspec.audit.able import Able
    from kvspec.audit.drawing import STREAMS
    from kvspec.audit.reached import Reached
    from kvspec.cli.calls import print_calls, tell_what_is_left
    from kvspec.cli.reached import print_states
    from kvspec.config import Ownership
    from kvspec.harness.policies import unusual_policies
    from kvspec.system import Setup

    must_be_schedule(schedule)
    must_differ(system, against)
    if seconds is not None and not seconds >= 0:
        refuse(f"--seconds {seconds}: expected 0 or more")
    if output is not None:
        _must_be_folder(output)
    console = Console()
    start = time.monotonic()
    plan = Plan(
        steps, system, against, {"device": device.value, "schedule": schedule}, gates, faults, profile, timeout, ownership
    )
    _must_be_ownership(ownership)
    able = Able((found_system(system), found_system(against)), _allowed(plan))
    fits = tell_what_is_left(console, able, system)
    if ownership == Ownership.PRIVATE:
        _must_have_private(able, fits, system, profile)
    if device is Device.CUDA:
        must_build(system, able.factories[0], Setup(fits.manager(Random(first), plan.contents()), STREAMS, plan.options))
    cores = os.cpu_count() or 1
    jobs = jobs or (cores if device is Device.SIM else min(cores, GPU_PROCESSES))
    tally = Tally()
    columns = (TextColumn("{task.completed} lifecycles"), TextColumn("{task.description}"), TimeElapsedColumn())
    stopped = ""
    before = signal.signal(signal.SIGTERM, _interrupt)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def tell(found: Found | None) -> None:
            if found is not None:
                _report_at_once(console, found, output, time.monotonic() - start)
            progress.update(bar, completed=tally.done, description=f"{tally.failed} failed")

        try:
            _run(plan, range(first, first + seeds), seconds, jobs, keep_going, tally, tell)
        except KeyboardInterrupt:
            stopped = "stopped early: "
        finally:
            signal.signal(signal.SIGTERM, before)
    for one in sorted(tally.found.values(), key=lambda found: found.seed):
        _report(console, one, plan, output)
    for seed, ended in sorted(tally.lost.items()):
        _report_lost(console, seed, ended, plan)
    if policies := unusual_policies(able.factories[0]):
        console.print(f"policies of {system}: {policies}", style="yellow", markup=False)
    states = Reached()
    for seed in sorted(tally.reached):  # in this order whoever was first
        states.add(tally.reached[seed])
    if states.steps:
        print_states(console, states, every=fits.whole and able.everything)
        print_calls(console, states, sorted(able.verbs))
    counts = [f"{tally.done} lifecycles of {steps} steps", f"{tally.failed} failed"]
    if tally.unfinished:
        console.print(f"not finished: {tally.unfinished[0]}", soft_wrap=True)
        counts.append(f"{len(tally.unfinished)} not finished")
    console.print(f"{stopped}{', '.join(counts)}, {time.monotonic() - start:.1f} s")
    if stopped and tally.under_way:
        _tell_under_way(console, tally)
    if tally.failed or stopped:
        raise typer.Exit(1)
    if tally.done == len(tally.unfinished):
        refuse("no lifecycle was finished, which is not a pass")


def _allowed(plan: Plan) -> frozenset[str] | None:
    """The extensions that lifecycles keep to, if it is a profile of the suite; leaves if it is no profile at all."""
    from kvspec.profiles import ProfileError

    try:
        return plan.contents().allowed
    except ProfileError as error:
        refuse(f"--profile {error}; or {SMALL}, or {BIG}")


def _must_be_ownership(ownership: str) -> None:
    """Leave if an ownership is none."""
    from kvspec.config import Ownership

    known = [ANY, *(one.value for one in Ownership)]
    if ownership not in known:
        refuse(f"--ownership {ownership}: expected {', '.join(known[:-1])} or {known[-1]}")


def _must_have_private(able: Able, fits: Range, system: str, profile: str) -> None:
    """Leave if no manager of private ownership fits."""
    from kvspec.audit.managers import Profile, owned
    from kvspec.config import Ownership

    one = owned(fits.manager(Random(0), Profile()), 0, Ownership.PRIVATE)
    if lacks := able.lacks(one):
        refuse(f"--ownership private: {system} with profile {profile} lacks: {', '.join(lacks)}")


def _must_be_folder(output: Path) -> None:
    """Leave if failures could not be written there, before any is looked for."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(f"--output {output}: expected a folder to write into: {(error.strerror or 'no reason given').lower()}")
    if not os.access(output, os.W_OK):
        refuse(f"--output {output}: cannot be written: permission denied")


def _run(plan: Plan, seeds: range, seconds: float | None, jobs: int, keep_going: bool, tally: Tally, tell: Tell) -> None:
    """Fill ``tally``, and ``tell`` of each change. Failures are made shorter while others run."""
    from kvspec.harness.runner import process_context
    from kvspec.harness.workers import Workers

    end = None if seconds is None else time.monotonic() + seconds
    queue = iter(seeds)
    context = process_context("kvspec.audit.lifecycles", plan.system, plan.against)
    with Workers(jobs, context) as workers:

        def more() -> None:
            late = end is not None and time.monotonic() > end
            if not late and (keep_going or not tally.failed):
                for seed in itertools.islice(queue, 2 * jobs - workers.unanswered):
                    # It is gone through, and both systems are closed: each of the two interrupts itself.
                    workers.ask(seed, _one, seed, plan, seconds=2 * plan.timeout)

        try:
            more()
            for seed, answer in workers.answers():
                assert isinstance(seed, int)
                _take(seed, answer, plan, workers, tally, tell)
                more()
        except KeyboardInterrupt:
            tally.under_way = {seed: _where(answer) for seed, answer in workers.interrupt() if isinstance(seed, int)}
            raise


def _take(seed: int, answer: LifecycleResult | Ended, plan: Plan, workers: Workers, tally: Tally, tell: Tell) -> None:
    from kvspec.harness.workers import Ended

    again = seed in tally.found  # it was being made shorter
    tally.done += not again
    if isinstance(answer, Ended):
        if not again:  # else what it was before stays
            tally.lost[seed] = answer
            tell(None)
        return
    if again:
        if answer.found is not None:
            tally.found[seed] = answer.found
        return
    tally.reached[seed] = answer.reached
    if answer.unfinished:
        tally.unfinished.append(answer.unfinished)
    if answer.found is not None:
        tally.found[seed] = answer.found
        workers.ask(seed, _shorter, answer.found, plan)
    tell(answer.found)


def _where(answer: LifecycleResult | Ended) -> Failure | Ended | None:
    from kvspec.harness.workers import Ended

    if isinstance(answer, Ended):
        return answer
    return None if answer.found is None else answer.found.result.failure


def _one(seed: int, plan: Plan) -> LifecycleResult:
    from kvspec.audit.lifecycles import try_lifecycle

    return try_lifecycle(seed, plan.steps, *_systems(plan), plan.options, plan.contents(), plan.timeout)


def _shorter(found: Found, plan: Plan) -> LifecycleResult:
    from kvspec.audit.lifecycles import LifecycleResult
    from kvspec.audit.shrinking import shrink

    return LifecycleResult(shrink(found, *_systems(plan), plan.options, SHRINK_SECONDS, plan.timeout))


def _systems(plan: Plan) -> tuple[Named, Named]:
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import find_system

    return Named(plan.system, find_system(plan.system)), Named(plan.against, find_system(plan.against))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell_under_way(console: Console, tally: Tally) -> None:
    """Which lifecycles were stopped, and where each was."""
    for seed, where in sorted(tally.under_way.items()):
        step, frames = _step_and_frames(where)
        console.print(f"running: lifecycle {seed}{step}", style="bold", markup=False)
        for frame in frames:
            console.print(f"  {frame}", style="dim", markup=False, soft_wrap=True)
    seeds = ", ".join(map(str, sorted(tally.under_way)))
    console.print(f"these were running: {seeds}; run one alone with --first SEED --seeds 1", soft_wrap=True)


def _step_and_frames(where: Failure | Ended | None) -> tuple[str, tuple[str, ...]]:
    if where is None:
        return "", ()
    if hasattr(where, "frames"):
        return f" at step {where.step}" if where.step >= 0 else "", where.frames
    return f" at step {where.step}, {where.verb}", where.differences[0].detail


def _report_lost(console: Console, seed: int, ended: Ended, plan: Plan) -> None:
    """A lifecycle that took its process with it."""
    step, frames = _step_and_frames(ended)
    console.print(f"lifecycle {seed} gave no answer{step}: {ended.why}", style="bold red", markup=False, soft_wrap=True)
    for frame in frames:
        console.print(f"  {frame}", style="dim", markup=False, soft_wrap=True)
    console.print(f"reproduce: {_command(seed, plan)}", markup=False, soft_wrap=True)


def _report_at_once(console: Console, found: Found, output: Path | None, seconds: float) -> None:
    """It is known how long it took to find it, and nothing is lost if the run is stopped while the failure is made shorter."""
    failure = found.result.failure
    where = "" if failure is None else f" at step {failure.step}, {failure.verb}"
    path = _write(found, output)
    console.print(
        f"lifecycle {found.seed} differs{where}, after {seconds:.1f} s: shrinking it{f'; {path}' if path else ''}",
        soft_wrap=True,
    )


def _report(console: Console, found: Found, plan: Plan, output: Path | None) -> None:
    from rich.syntax import Syntax

    from kvspec.cli.wrapping import print_report
    from kvspec.harness.report import failure_report

    print_report(console, failure_report(found.result, (plan.against, plan.system), _command(found.seed, plan)))
    path = _write(found, output)
    if path is None:
        console.print(Syntax(found.text, "yaml", word_wrap=True))
    else:
        console.print(f"[bold]{path}[/bold]")


def _command(seed: int, plan: Plan) -> str:
    """The line that repeats a lifecycle; it says what is not the default."""
    parts = ["kvspec", "fuzz", "--first", str(seed), "--seeds", "1"]
    asked = {"steps": str(plan.steps), "system": plan.system, "against": plan.against, **plan.options}
    for name, value in asked.items():
        if value != {"steps": "60", "system": "kvgpu", "against": "kvref", "device": "auto", "schedule": "fifo"}[name]:
            parts += [f"--{name}", value]
    parts += [] if plan.profile == SMALL else ["--profile", plan.profile]
    parts += [] if plan.ownership == ANY else ["--ownership", plan.ownership]
    parts += [f"--no-{name}" for name, on in (("gates", plan.gates), ("faults", plan.faults)) if not on]
    return shlex.join(parts)


def _write(found: Found, output: Path | None) -> Path | None:
    if output is None:
        return None
    path = output / f"lifecycle-{found.seed}.yaml"
    path.write_text(found.text)
    return path

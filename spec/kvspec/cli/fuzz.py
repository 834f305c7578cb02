"""``kvspec fuzz``: random lifecycles through both systems."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.answering import Scheduler, answering, tell_of_workers
from kvspec.cli.fuzzing.going import go_through
from kvspec.cli.fuzzing.plan import ANY, BIG, SMALL, Plan, Tally
from kvspec.cli.fuzzing.record import Record
from kvspec.cli.fuzzing.telling import report, report_at_once, report_lost, tell_under_way
from kvspec.cli.refusing import found_system, must_be_folder, must_be_schedule, must_build, must_differ, refuse
from kvspec.cli.run import Device
from kvspec.cli.stopping import terminated_like_ctrl_c
from kvspec.harness.watch import DEFAULT_SECONDS

if TYPE_CHECKING:
    from kvspec.audit.able import Able
    from kvspec.audit.fitting import Range
    from kvspec.audit.lifecycles import LifecycleResult
    from kvspec.harness.workers import Ended

GPU_PROCESSES = 12
"""So many processes at most may share a GPU, unless more are asked for: each takes hardware queues of it, and these are few."""
MODULE = "kvspec.audit.lifecycles"


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
    fetches: Annotated[
        str,
        typer.Option(
            help="Which lifecycles have fetches of selected history (section 15 of the rules): all, none, or any: as drawn."
        ),
    ] = ANY,
    steer: Annotated[
        bool, typer.Option("--steer", help="Steer each lifecycle towards what it has not come to yet (docs/coverage.md).")
    ] = False,
    json: Annotated[
        Path | None,
        typer.Option(help="Add a line of JSON for each lifecycle to this file, and skip those that it has already."),
    ] = None,
    scheduler: Scheduler = None,
) -> None:
    """Run random lifecycles through both systems. Whatever differs is shrunk to a short scenario."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    from kvspec.audit.drawing import STREAMS
    from kvspec.audit.managers import Fetches
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
        must_be_folder("--output", output)
    console = Console()
    start = time.monotonic()
    options = {"device": device.value, "schedule": schedule}
    plan = Plan(steps, system, against, options, gates, faults, profile, timeout, ownership, fetches, steer)
    able = must_be_lifecycles(plan)
    fits = tell_what_is_left(console, able, system)
    if ownership == Ownership.PRIVATE:
        _must_have_private(able, fits, system, profile)
    if fetches == Fetches.ALL:
        _must_have_fetches(able, fits, system, profile)
    if device is Device.CUDA:
        must_build(system, able.factories[0], Setup(fits.manager(Random(first), plan.contents()), STREAMS, plan.options))
    cores = os.cpu_count() or 1
    jobs = jobs or (cores if device is Device.SIM else min(cores, GPU_PROCESSES))
    record = None if json is None else Record.opened(json, plan)
    asked = range(first, first + seeds)
    known = {} if record is None else record.results
    tally = Tally() if record is None else record.tally(asked)
    if tally.done:
        console.print(f"{tally.done} lifecycles have gone through before: {json}", style="dim", markup=False, soft_wrap=True)
    columns = (TextColumn("{task.completed} lifecycles"), TextColumn("{task.description}"), TimeElapsedColumn())
    stopped = ""
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def tell(seed: int, answer: LifecycleResult | Ended) -> None:
            if record is not None:
                record.add(seed, answer)
            if not hasattr(answer, "frames") and answer.found is not None:
                report_at_once(console, answer.found, output, time.monotonic() - start)
            progress.update(bar, completed=tally.done, description=f"{tally.failed} failed")

        try:
            with terminated_like_ctrl_c(), answering(MODULE, (system, against), jobs, scheduler) as workers:
                go_through(plan, (seed for seed in asked if seed not in known), workers, seconds, keep_going, tally, tell)
                tell_of_workers(console, workers)
        except KeyboardInterrupt:
            stopped = "stopped early: "
    for one in sorted(tally.found.values(), key=lambda found: found.seed):
        report(console, one, plan, output)
    for seed, ended in sorted(tally.lost.items()):
        report_lost(console, seed, ended, plan)
    if policies := unusual_policies(able.factories[0]):
        console.print(f"policies of {system}: {policies}", style="yellow", markup=False)
    for seed in tally.before:
        console.print(f"lifecycle {seed} failed in an earlier run of {json}", style="bold red", markup=False, soft_wrap=True)
    if tally.reached.steps:
        print_states(console, tally.reached, every=fits.whole and able.everything)
        print_calls(console, tally.reached, sorted(able.verbs))
    for (verb, lack), count in tally.passed_over.most_common():
        console.print(f"passed over {count} times, {verb}: {system} lacks {lack}", markup=False, soft_wrap=True)
    counts = [f"{tally.done} lifecycles of {steps} steps", f"{tally.failed} failed"]
    if tally.unfinished:
        console.print(f"not finished: {next(iter(tally.unfinished))}", soft_wrap=True)
        counts.append(f"{tally.unfinished.total()} not finished")
    console.print(f"{stopped}{', '.join(counts)}, {time.monotonic() - start:.1f} s")
    if stopped and tally.under_way:
        tell_under_way(console, tally)
    if tally.failed or stopped:
        raise typer.Exit(1)
    if tally.done == tally.unfinished.total():
        refuse("no lifecycle was finished, which is not a pass")


def must_be_lifecycles(plan: Plan) -> Able:
    """What the systems of a plan can do; leaves if there are no lifecycles as the plan says."""
    from kvspec.audit.able import Able

    _must_be_ownership(plan.ownership)
    _must_be_fetches(plan.fetches)
    return Able((found_system(plan.system), found_system(plan.against)), _allowed(plan))


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


def _must_be_fetches(fetches: str) -> None:
    """Leave if it is not said which lifecycles have fetches."""
    from kvspec.audit.managers import Fetches

    known = [one.value for one in Fetches]
    if fetches not in known:
        refuse(f"--fetches {fetches}: expected {', '.join(known[:-1])} or {known[-1]}")


def _must_have_fetches(able: Able, fits: Range, system: str, profile: str) -> None:
    """Leave if nothing can be fetched."""
    from kvspec.audit.managers import Fetches, Profile, fetching
    from kvspec.ops import Fetch

    one = fetching(fits.manager(Random(0), Profile()), 0, Fetches.ALL)
    if lacks := able.lacks(one, Fetch.model_validate({"batch": "b0", "layer": one.layers[0].name, "select": {}})):
        refuse(f"--fetches all: {system} with profile {profile} lacks: {', '.join(lacks)}")

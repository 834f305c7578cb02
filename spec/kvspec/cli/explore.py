"""``kvspec explore``: every state of a small model of the reference, breadth first."""

from __future__ import annotations

import contextlib
import json as json_module
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvspec.cli.answering import Scheduler, answering, tell_of_workers
from kvspec.cli.refusing import found_system, must_be_folder, must_be_writable, must_differ, refuse
from kvspec.cli.run import Device
from kvspec.cli.stopping import terminated_like_ctrl_c

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.explore.expanding import Plan
    from kvspec.audit.explore.models import SmallModel
    from kvspec.audit.explore.search import Answering, Explored

MODULE = "kvspec.audit.explore.expanding"
REPLAYING = "kvspec.audit.explore.replaying"
REPLAYED = 5
"""How deep transitions are replayed where nothing is said."""
MOST_SHOWN = 5
"""So many broken invariants of a state are shown."""


def explore(
    depth: Annotated[int | None, typer.Option(min=1, help="How many operations deep. Left out: as the model says.")] = None,
    model: Annotated[str | None, typer.Option(help="The small model (docs/explore.md). Left out: standard.")] = None,
    ownership: Annotated[
        str | None,
        typer.Option(
            help="Who owns the GPU pages of sparse groups: shared, private (section 14 of the rules). Left out: shared."
        ),
    ] = None,
    against: Annotated[str, typer.Option(help="The reference that is explored.")] = "kvref",
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Left out: one for each core.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the scenario of what is broken into this file; it is printed otherwise.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures into this file, as JSON.")] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Write scenarios that have every kind of transition of all models into this folder, and do no more."),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Replay every transition through a system under test, too; --depth is 5 if left out.")
    ] = False,
    system: Annotated[str, typer.Option(help="With --replay: the system under test.")] = "kvgpu",
    device: Annotated[Device, typer.Option(help="With --replay: the device that it runs on.")] = Device.AUTO,
    scheduler: Scheduler = None,
) -> None:
    """Go through every state of a small model of the reference, breadth first, and check what must always hold.

    States that differ only in names, in slots and in numbers that only grow are one. What is broken is shown with the shortest
    path to it, as a scenario.

    Exit status: 0 everything holds, 1 something does not, 2 wrong usage.
    """
    from rich.console import Console

    plan, small = _plan(model or "standard", ownership or "shared", against)
    deepest = depth or small.deepest
    for option, path in (("--output", output), ("--json", json)):
        if path is not None:
            must_be_writable(option, path)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    jobs = jobs or os.cpu_count() or 1
    if write is not None:
        if given := [f"--{name}" for name, value in (("model", model), ("ownership", ownership), ("json", json)) if value]:
            refuse(f"--write {write}: scenarios are of all models: leave {' and '.join(given)} out")
        _write(console, write, against, jobs, scheduler, depth)
        return
    console.print(f"{small.name}, {plan.ownership}: {small.text}", style="dim", markup=False)
    if replay:
        agree = _replayed(console, plan, depth or REPLAYED, system, device, jobs, scheduler, output)
        raise typer.Exit(0 if agree else 1)
    start = time.monotonic()
    done, stopped = _gone_through(plan, deepest, jobs, scheduler, console)
    seconds = time.monotonic() - start
    _table(console, done)
    if json is not None:
        figures = {
            **_figures(done),
            "jobs": jobs,
            "seconds": round(seconds, 3),
            "processor_seconds": round(done.seconds, 3),
            "stopped": stopped,
        }
        json.write_text(json_module.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if done.violations:
        _tell_violation(console, done, output)
    for ended in done.lost:
        console.print(f"states were lost: {ended.why}", style="bold red", markup=False, soft_wrap=True)
    count = f"{done.states:,} states, {done.transitions:,} operations, depth {done.layers[-1].depth}"
    if stopped:
        count = f"stopped early: {count}, of which not all states were gone on from"
    elif not done.layers[-1].states:
        count += ": there is no other state"
    rate = done.transitions / max(done.seconds, 1e-9)
    console.print(f"{count}, {seconds:.1f} s ({done.seconds:.1f} s of processors, {rate:,.0f} operations a second of these)")
    bad = bool(done.violations or done.lost or stopped)
    if not bad:
        console.print("no invariant is broken")
    raise typer.Exit(1 if bad else 0)


def _replayed(
    console: Console,
    plan: Plan,
    depth: int,
    system: str,
    device: Device,
    jobs: int,
    scheduler: str | None,
    output: Path | None,
) -> bool:
    """Whether a system agrees on every transition."""
    from kvspec.cli.explore_replay import replay

    must_differ(system, plan.against)
    found_system(system)
    with terminated_like_ctrl_c(), _answering(plan, jobs, scheduler, console, system) as workers:
        return replay(console, plan, depth, system, {"device": device.value}, workers, output)


def _write(console: Console, folder: Path, against: str, jobs: int, scheduler: str | None, depth: int | None) -> None:
    """Write the scenarios of all kinds into a folder, a file a model."""
    from kvspec.audit.explore.writing import DEPTH, all_kinds, file_name, written_plans

    must_be_folder("--write", folder)
    with _answering(written_plans(against)[0], jobs, scheduler, console) as workers:
        for plan, text, count in all_kinds(against, workers, depth or DEPTH):
            path = folder / file_name(plan)
            path.write_text(text, encoding="utf-8")
            console.print(f"{path}: {count} scenarios", markup=False, soft_wrap=True)


def _plan(model: str, ownership: str, against: str) -> tuple[Plan, SmallModel]:
    """The plan; leaves if there is no such model, ownership or reference, or it cannot be explored."""
    from kvspec.audit.explore.expanding import CannotExplore, Plan, exploring_of
    from kvspec.audit.explore.models import NoModel
    from kvspec.config import Ownership

    known = [one.value for one in Ownership]
    if ownership not in known:
        refuse(f"--ownership {ownership}: expected {' or '.join(known)}")
    found_system(against)
    plan = Plan(model, ownership, against)
    try:
        small = plan.small()
        exploring_of(against)
    except NoModel as error:
        refuse(f"--model {model}: {error}")
    except CannotExplore as error:
        refuse(f"--against {against}: {error}")
    return plan, small


@contextlib.contextmanager
def _answering(plan: Plan, jobs: int, scheduler: str | None, console: Console, system: str | None = None) -> Iterator[Answering]:
    """Whoever goes on from states, and replays walks: this process, several, or the workers of a cluster."""
    from kvspec.audit.explore.search import Here

    if jobs == 1 and scheduler is None:
        yield Here()
        return
    systems = (plan.against,) if system is None else (system, plan.against)
    with answering(MODULE if system is None else REPLAYING, systems, jobs, scheduler, size=1) as workers:
        yield workers
        tell_of_workers(console, workers)


def _gone_through(plan: Plan, depth: int, jobs: int, scheduler: str | None, console: Console) -> tuple[Explored, bool]:
    """What was gone through, and whether it was stopped."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    from kvspec.audit.explore.search import explore as search

    columns = (TextColumn("depth {task.fields[depth]}"), TextColumn("{task.description}"), TimeElapsedColumn())
    start = time.monotonic()
    known: list[Explored] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None, depth=0)

        def tell(done: Explored) -> None:
            known[:] = [done]
            layer = done.layers[-1]
            rate = done.transitions / max(time.monotonic() - start, 1e-9)
            text = f"{layer.expanded:,} of {layer.asked:,} gone on from; {done.states:,} states, {rate:,.0f} operations a second"
            progress.update(bar, description=text, depth=layer.depth)

        try:
            with terminated_like_ctrl_c(), _answering(plan, jobs, scheduler, console) as workers:
                return search(plan, depth, workers, tell), False
        except KeyboardInterrupt:  # perhaps more than one
            if not known:
                raise
            return known[0], True


def _table(console: Console, done: Explored) -> None:
    """By depth, what was found; by operation, what came of it."""
    from rich.table import Table

    table = Table("depth", "new states", "operations", box=None, pad_edge=False)
    table.columns[1].justify = table.columns[2].justify = "right"
    for layer in done.layers:
        table.add_row(str(layer.depth), f"{layer.states:,}", f"{layer.transitions:,}")
    console.print(table)
    results = sorted({result for _, result in done.outcomes}, key=lambda one: (one != "done", one != "false", one))
    verbs = Table("", *results, box=None, pad_edge=False)
    for column in verbs.columns[1:]:
        column.justify = "right"
    for verb in sorted({verb for verb, _ in done.outcomes}):
        verbs.add_row(verb, *(f"{done.outcomes[verb, result]:,}" if done.outcomes[verb, result] else "" for result in results))
    console.print(verbs)


def _tell_violation(console: Console, done: Explored, output: Path | None) -> None:
    """The first of what is broken, with the shortest path to it."""
    from rich.syntax import Syntax

    from kvspec.audit.explore.writing import violation_text

    first = done.violations[0]
    told = [str(one) for one in first.broken]
    for line in told[:MOST_SHOWN]:
        console.print(f"BROKEN {line}", style="bold red", markup=False, soft_wrap=True)
    if len(told) > MOST_SHOWN:
        console.print(f"and {len(told) - MOST_SHOWN} more")
    console.print(f"the shortest path to it: {len(first.path)} operations from where the model begins")
    text = violation_text(done.plan, first.path, told)
    if output is None:
        console.print(Syntax(text, "yaml", word_wrap=True))
    else:
        output.write_text(text, encoding="utf-8")
        console.print(f"{output}: written. Try: kvspec show {output}", markup=False, soft_wrap=True)


def _figures(done: Explored) -> dict[str, Any]:
    return {
        "model": done.plan.model,
        "ownership": done.plan.ownership,
        "against": done.plan.against,
        "states": done.states,
        "operations": done.transitions,
        "layers": [{"depth": one.depth, "states": one.states, "operations": one.transitions} for one in done.layers],
        "outcomes": [{"verb": verb, "result": result, "count": count} for (verb, result), count in sorted(done.outcomes.items())],
        "broken": [
            {"invariant": one.invariant, "rule": one.rule, "text": one.text, "operations": len(first.path)}
            for first in done.violations[:1]
            for one in first.broken
        ],
    }

"""``kvspec vacuity``: expectations that could not fail, and scenarios that notice no break."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.answering import Scheduler, answering, tell_of_workers
from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, refuse
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.scenario import Scenario

MODULE = "kvspec.audit.vacuity"


def vacuity(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    against: Annotated[str, typer.Option(help="The reference to run.")] = "kvref",
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    unhelpful: Annotated[
        bool, typer.Option("--scenarios", help="Also list scenarios that notice no named break (takes minutes).")
    ] = False,
    system: Annotated[str, typer.Option(help="With --scenarios: the system to break.")] = "kvgpu",
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Left out: one for each core.")] = None,
    scheduler: Scheduler = None,
) -> None:
    """Change each expectation, one at a time; the scenario must then fail.

    Exit status: 0 it always does, 1 some expectation checks nothing, 2 a wrong file or wrong usage.
    """
    from rich.console import Console

    from kvspec.audit.vacuity import Audited, audit_each

    found_system(against)
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    start = time.perf_counter()
    processes = min(jobs or os.cpu_count() or 1, len(scenarios))
    if processes == 1 and scheduler is None:
        audits = dict(audit_each(scenarios, against, None))
    else:
        with answering(MODULE, (against,), processes, scheduler) as workers:
            audits = dict(audit_each(scenarios, against, workers))
            tell_of_workers(console, workers)
    tried = found = wrong = 0
    for number, scenario in enumerate(scenarios):
        audited = audits[number]
        if not isinstance(audited, Audited):
            audited = Audited(wrong=f"the process of the reference ended: {audited.why}")
        tried += audited.changes
        found += len(audited.survivors)
        for survivor in audited.survivors:
            console.print(str(survivor), style="red", markup=False, soft_wrap=True)
        if audited.wrong:
            wrong += 1
            console.print(f"{scenario.position}: {scenario.name}: {audited.wrong}", style="red", markup=False, soft_wrap=True)
    seconds = time.perf_counter() - start
    console.print(
        f"{tried} expectations changed in {len(scenarios)} scenarios: {found or 'none'} held all the same ({seconds:.0f} s)"
    )
    if unhelpful:
        _unhelpful(console, scenarios, system, against)
    raise typer.Exit(1 if found or wrong else 0)


def _unhelpful(console: Console, scenarios: Sequence[Scenario], system: str, against: str) -> None:
    """A list for the reader: a scenario may be worth having that notices none of the breaks that have a name."""
    from kvspec.audit.mutants import MutantPlan, NoMutants, find_mutants, noticed_by
    from kvspec.cli.mutants import OPTIONS

    try:
        mutants = find_mutants(system)
    except NoMutants as error:
        refuse(str(error))
    plan = MutantPlan(system, against, OPTIONS)
    idle = [scenario for scenario in scenarios if noticed_by(scenario, mutants, plan) is None]
    for scenario in idle:
        console.print(f"{scenario.position}: notices no break: {scenario.name}", style="yellow", markup=False, soft_wrap=True)
    console.print(f"{len(scenarios) - len(idle)} of {len(scenarios)} scenarios notice one of {len(mutants)} breaks")

"""``kvspec coverage``: which kinds of state each operation was called in, how it ended, and what never happened."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvspec.cli.check import suite_or_exit
from kvspec.cli.fuzzing.plan import ANY, SMALL, Plan
from kvspec.cli.refusing import found_system, must_be_writable, refuse
from kvspec.harness.watch import DEFAULT_SECONDS

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.coverage.cells import Cell, Counts
    from kvspec.audit.coverage.reasons import Judged

MOST_GAPS = 20
"""So many gaps are listed, unless all are asked for."""
MODULE = "kvspec.audit.lifecycles"


def coverage(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    fuzz: Annotated[int, typer.Option(min=0, metavar="N", help="Also count random lifecycles: so many seeds.")] = 0,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Number of operations in each lifecycle.")] = 60,
    profile: Annotated[str, typer.Option(help="What lifecycles contain, as for kvspec fuzz.")] = SMALL,
    ownership: Annotated[str, typer.Option(help="shared, private or any, as for kvspec fuzz.")] = ANY,
    fetches: Annotated[str, typer.Option(help="all, none or any, as for kvspec fuzz.")] = ANY,
    steer: Annotated[bool, typer.Option("--steer", help="Steer lifecycles towards what they have not come to yet.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Left out: one for each core.")] = None,
    system: Annotated[str, typer.Option(help="The system that lifecycles go through beside the reference.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference, whose states are counted.")] = "kvref",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every gap.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the tables, one for each verb, as a page for a browser.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every cell as JSON.")] = None,
) -> None:
    """Count which kinds of state each operation was called in and how it ended, and say what never happened, and why.

    A cell that no scenario comes to needs a reason why it cannot happen, or is a gap. Exits with 1 if there is one.
    """
    from rich.console import Console

    from kvspec.audit.coverage.reasons import Judged, WrongReason, reasons

    for option, path in (("--html", html), ("--json", json)):
        if path is not None:
            must_be_writable(option, path)
    try:
        why = reasons()
    except WrongReason as error:
        refuse(str(error))
    suite, count = _of_scenarios(paths, against)
    console = Console()
    options = {"device": "sim", "schedule": "fifo"}
    plan = Plan(steps, system, against, options, True, True, profile, DEFAULT_SECONDS, ownership, fetches, steer)
    found = _of_lifecycles(console, plan, range(first, first + fuzz), jobs)
    judged = Judged(suite, found, why, fuzz)
    _print(console, judged, verbose)
    if json is not None:
        json.write_text(json_module.dumps(_as_json(judged), indent=1) + "\n", encoding="utf-8")
    if html is not None:
        from kvspec.audit.coverage.page import write_page

        write_page(html, judged, count)
        console.print(f"{html}: written; open it in a browser", markup=False, highlight=False, soft_wrap=True)
    if judged.wrong or (judged.gaps and paths is None):
        raise typer.Exit(1)


def _of_scenarios(paths: list[Path] | None, against: str) -> tuple[Counts, int]:
    from kvspec.audit.reached import reached_by
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import setup_for
    from kvspec.language.loader import load_paths
    from kvspec.suite import scenario_files

    reference = Named(against, found_system(against))
    scenarios, problems = load_paths(scenario_files(paths or [suite_or_exit()]))
    for problem in problems:
        typer.echo(str(problem), err=True)
    if problems:
        raise typer.Exit(2)
    reached = reached_by(((setup_for(one, {}), [step.op for step in one.steps]) for one in scenarios), reference)
    return reached.cells, len(scenarios)


def _of_lifecycles(console: Console, plan: Plan, seeds: range, jobs: int | None) -> Counts:
    """The cells that random lifecycles come to."""
    from kvspec.cli.answering import answering
    from kvspec.cli.fuzz import must_be_lifecycles
    from kvspec.cli.fuzzing.going import go_through
    from kvspec.cli.fuzzing.plan import Tally

    tally = Tally()
    if not seeds:
        return tally.reached.cells
    must_be_lifecycles(plan)
    with answering(MODULE, (plan.system, plan.against), jobs or os.cpu_count() or 1, None) as workers:
        go_through(plan, seeds, workers, None, True, tally, lambda seed, answer: None)
    if tally.failed:
        console.print(f"{tally.failed} lifecycles failed: kvspec fuzz says how", style="bold red")
    return tally.reached.cells


def _print(console: Console, judged: Judged, verbose: bool) -> None:
    """A line for each verb, then what is wrong, then the gaps."""
    from collections import Counter

    from rich.table import Table

    from kvspec.audit.coverage.cells import cells, cells_of
    from kvspec.ops import VERBS

    table = Table("operation", box=None)
    titles = ["cells", "suite", "impossible", "gaps"]
    titles[2:2] = ["fuzz", "both"] if judged.lifecycles else []
    for title in titles:
        table.add_column(title, justify="right")
    gaps = Counter(cell.verb for cell in judged.gaps)
    for verb in [*VERBS, ""]:
        some = cells_of(verb) if verb else tuple(cells())
        numbers = {
            "cells": len(some),
            "suite": sum(bool(judged.suite[cell]) for cell in some),
            "fuzz": sum(bool(judged.fuzz[cell]) for cell in some),
            "both": sum(bool(judged.suite[cell] and judged.fuzz[cell]) for cell in some),
            "impossible": sum(not judged.happened(cell) and cell in judged.why for cell in some),
            "gaps": gaps[verb] if verb else len(judged.gaps),
        }
        shown = [str(numbers[title]) for title in titles]
        shown[-1] = f"[red]{shown[-1]}[/]" if numbers["gaps"] else "-"
        table.add_row(verb or "[bold]all", *shown)
    console.print(table)
    for cell in judged.wrong:
        text = f"there is a reason why it cannot: {judged.why[cell]}" if cell in judged.why else "its verb should not end so"
        console.print(f"happened: {cell}: {text}", style="red", markup=False, soft_wrap=True, highlight=False)
    shown_gaps = judged.gaps if verbose else judged.gaps[:MOST_GAPS]
    for cell in shown_gaps:
        there = f"; in {judged.fuzz[cell]} steps of lifecycles" if judged.fuzz[cell] else ""
        console.print(f"gap: {cell}: no scenario comes to it{there}", markup=False, soft_wrap=True, highlight=False)
    if len(shown_gaps) < len(judged.gaps):
        console.print(f"and {len(judged.gaps) - len(shown_gaps)} more gaps: --verbose lists them all")


def _as_json(judged: Judged) -> list[dict[str, Any]]:
    """Every cell that is in the table, or happened."""
    from kvspec.audit.coverage.cells import cells

    return [_cell_as_json(judged, cell) for cell in dict.fromkeys((*cells(), *judged.wrong))]


def _cell_as_json(judged: Judged, cell: Cell) -> dict[str, Any]:
    reason = judged.why.get(cell)
    values = {**cell._asdict(), "suite": judged.suite[cell], "fuzz": judged.fuzz[cell], "state": judged.state(cell)}
    return values if reason is None else {**values, "reason": reason.text, "rules": list(reason.rules)}

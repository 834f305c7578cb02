"""``kvspec reached``: how often scenarios come to each named state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.check import suite_or_exit
from kvspec.cli.refusing import found_system

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.reached import Reached


def reached(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    against: Annotated[str, typer.Option(help="The reference.")] = "kvref",
) -> None:
    """Count how often scenarios reach each of the named rare states."""
    from rich.console import Console

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
    found = reached_by(((setup_for(one, {}), [step.op for step in one.steps]) for one in scenarios), reference)
    console = Console()
    print_states(console, found)
    console.print(f"{len(scenarios)} scenarios, {found.steps} steps")


def print_states(console: Console, reached: Reached, every: bool = True) -> None:
    """A table of the named states and how often each was reached, by which verbs; then those that never were.

    :param every: also those that were not reached; without, what a system cannot come to is not held against it.
    """
    from rich.markup import escape
    from rich.table import Table

    from kvspec.audit.states import STATES

    table = Table("state", box=None)
    table.add_column("reached", justify="right")
    table.add_column("by", overflow="fold")
    for name in STATES if every else [name for name in STATES if reached.of(name)]:
        verbs = ", ".join(f"{verb} {count}" for verb, count in reached.verbs(name).items())
        table.add_row(escape(name), str(reached.of(name)), verbs or "-")
    if table.row_count:
        console.print(table)
    for name in reached.never if every else ():
        console.print(f"never reached: {name}: {STATES[name].title}", soft_wrap=True, highlight=False, markup=False)

"""``kvspec gates``: every order of opening the gates of each scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.check import suite_or_exit
from kvspec.cli.refusing import found_system, must_be_schedule, refuse
from kvspec.cli.run import Device

if TYPE_CHECKING:
    from kvspec.audit.gates import Permuted
    from kvspec.scenario import Scenario


def gates(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    system: Annotated[str, typer.Option(help="The system under test: a name, or package.module:Class.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference that it is compared with.")] = "kvref",
    device: Annotated[Device, typer.Option(help="The device that the system under test runs on.")] = Device.SIM,
    schedule: Annotated[str, typer.Option(help="Order of work on the simulated device: fifo, adversarial or seed=N.")] = "fifo",
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
) -> None:
    """Open the gates of each scenario in every order; the end must be the same.

    Exit status: 0 it always is, 1 it is not, 2 a wrong file or wrong usage.
    """
    # Imported here, so that the help is quick.
    from rich.console import Console

    from kvspec.audit.gates import has_gates, permute
    from kvspec.harness.replay import Named

    must_be_schedule(schedule)
    chosen = [scenario for scenario in _scenarios(paths, expression) if has_gates(scenario)]
    if not chosen:
        refuse("nothing to do: no scenario closes a gate")
    named = (Named(system, found_system(system)), Named(against, found_system(against)))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    options = {"device": device.value, "schedule": schedule}
    found = [permute(scenario, *named, options) for scenario in chosen]
    _show(console, found, (against, system))
    verdicts = {one.verdict.value for one in found}
    if verdicts == {"skipped"}:
        refuse("nothing was run: every scenario was skipped, which is not a pass")
    raise typer.Exit(1 if "failed" in verdicts else 0)


def _scenarios(paths: list[Path] | None, expression: str | None) -> list[Scenario]:
    from kvspec.harness.select import SelectionError, select
    from kvspec.language import load_paths
    from kvspec.suite import scenario_files

    scenarios, problems = load_paths(scenario_files(paths or [suite_or_exit()]))
    for problem in problems:
        typer.echo(str(problem), err=True)
    if problems:
        refuse("nothing was run: correct the files")
    if expression is None:
        return scenarios
    try:
        return select(scenarios, expression)
    except SelectionError as error:
        refuse(str(error))


def _show(console: object, found: list[Permuted], names: tuple[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from kvspec.harness.report import failure_report, reproduce_command

    assert isinstance(console, Console)
    for one in found:
        if one.verdict.value == "passed":
            continue
        console.print(f"{one.scenario.position}: {one.scenario.name}: gates opened in the order {one.order}", markup=False)
        if one.result is not None and one.result.failure is not None:
            command = reproduce_command(one.result, names[1], names[0], {}).replace("kvspec run", "kvspec gates", 1)
            console.print(failure_report(one.result, names, command), soft_wrap=True)
        elif one.result is not None:
            console.print(f"  skipped: {one.result.reason}", markup=False)
        for text in one.differences:
            console.print(f"  {text}", markup=False, soft_wrap=True)
        console.print()
    table = Table("scenario", "file", "gates", "orders", "result", box=None, pad_edge=False)
    table.columns[2].justify = table.columns[3].justify = "right"
    style = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    for one in found:
        verdict = f"[{style[one.verdict.value]}]{one.verdict.value}"
        table.add_row(
            escape(one.scenario.name), escape(one.scenario.position.path.name), str(one.gates), str(one.orders), verdict
        )
    console.print(table)
    failed = sum(one.verdict.value == "failed" for one in found)
    scenarios = "1 scenario" if len(found) == 1 else f"{len(found)} scenarios"
    console.print(f"{scenarios} with gates, {sum(one.orders for one in found)} orders, {failed} failed")

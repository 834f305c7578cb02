"""``kvspec sweep``: every call inside a step that can fail is made to fail in turn, and nothing may be left over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import refuse
from kvspec.cli.run import Device
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.sweep_all import Report
    from kvspec.scenario import Scenario

MAX_REPORTS = 10
"""How many findings are shown in full without ``--verbose``."""
MAX_TEXTS = 6
"""How many lines of one finding are shown."""


def sweep(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    system: Annotated[str, typer.Option(help="The system under test: a name, or package.module:Class.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference that it is compared with.")] = "kvref",
    device: Annotated[Device, typer.Option(help="The device that the system under test runs on.")] = Device.AUTO,
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="STEP:KIND:N", help="Only this failure, named as in a report: 8:offload:2+queued.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Left out: one for each core.")] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Print which verbs failed in which ways, and the reason for each gap.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every failure with leftovers.")] = False,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Make each copy, allocation and file access of each step fail in turn.

    After each failure the state must be what it was before the step.

    Exit status: 0 it always is, 1 something was left over, 2 a wrong file or wrong usage.
    """
    from rich.console import Console

    from kvspec.audit.injections import Injection, InjectionError
    from kvspec.audit.sweep_all import SweepPlan, sweep_all
    from kvspec.harness.runner import default_jobs
    from kvspec.harness.systems import SystemNotFound

    chosen = None
    if only is not None:
        try:
            chosen = Injection.parse(only)
        except InjectionError as error:
            refuse(f"--only: {error}")
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    plan = SweepPlan(system, against, {"device": device.value}, max_pool_bytes, chosen)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    try:
        report = sweep_all(plan, scenarios, jobs or default_jobs(len(scenarios), device.value))
    except SystemNotFound as error:
        refuse(str(error))
    _findings(console, plan_text(system, against, device), scenarios, report, verbose)
    if chosen is not None and not report.tested and not report.absorbed and not report.findings:
        refuse(f"--only {only}: the step makes no such call, or there is no such step; nothing was made to fail")
    _table(console, report)
    gaps = _matrix(console, report) if matrix else 0
    raise typer.Exit(1 if report.findings or gaps else 0)


def plan_text(system: str, against: str, device: Device) -> list[str]:
    """The options of a command that are not the default ones."""
    parts = []
    for name, value, default in (("system", system, "kvgpu"), ("against", against, "kvref"), ("device", device.value, "auto")):
        if value != default:
            parts += [f"--{name}", value]
    return parts


def _findings(console: Console, options: list[str], scenarios: list[Scenario], report: Report, verbose: bool) -> None:
    import shlex

    from kvspec.harness.report import path_text

    shown = report.findings if verbose else report.findings[:MAX_REPORTS]
    for number, finding in shown:
        scenario = scenarios[number]
        where = f"{path_text(scenario.position.path)}:{scenario.position.line}"
        console.print(f"[bold red]LEFTOVERS[/] [bold]{_escaped(scenario.name)}[/]\n{_escaped(where)}")
        what = f"{finding.injection}, {finding.verb}: " if finding.injection is not None else ""
        console.print(f"  {what}{finding.stage}", markup=False)
        for text in finding.texts[:MAX_TEXTS]:
            for line in text.splitlines():
                console.print(f"      {line}", markup=False, soft_wrap=True)
        if len(finding.texts) > MAX_TEXTS:
            console.print(f"      and {len(finding.texts) - MAX_TEXTS} more")
        command = ["kvspec", "sweep", path_text(scenario.position.path), "-k", scenario.name, *options]
        if finding.injection is not None:
            command += ["--only", str(finding.injection)]
        else:
            command = ["kvspec", "run", *command[2:]]
        console.print(f"  reproduce: {shlex.join(command)}\n", markup=False, soft_wrap=True)
    if len(shown) < len(report.findings):
        console.print(f"and {len(report.findings) - len(shown)} more findings: --verbose shows them all\n")


def _table(console: Console, report: Report) -> None:
    from rich.table import Table

    table = Table("verb", "failure", "injected", "absorbed", box=None, pad_edge=False)
    table.columns[2].justify = table.columns[3].justify = "right"
    for verb, sort in sorted(report.tested.keys() | report.absorbed.keys()):
        table.add_row(verb, sort, str(report.tested.get((verb, sort), 0)), str(report.absorbed.get((verb, sort), 0)))
    console.print(table)
    for reason, count in sorted(report.left_out.items()):
        console.print(f"left out {count}: {reason}", style="yellow", markup=False)
    for reason, count in sorted(report.skipped.items()):
        console.print(f"skipped {count} scenarios: {reason}", style="yellow", markup=False)
    tested, absorbed = sum(report.tested.values()), sum(report.absorbed.values())
    with_leftovers = len(report.findings)
    console.print(
        f"{tested} failures injected in {report.scenarios} scenarios, {with_leftovers or 'none'} with leftovers; "
        f"{absorbed} more were absorbed: the step did not need what was taken away ({report.seconds:.0f} s)"
    )


def _matrix(console: Console, report: Report) -> int:
    """Verbs by kinds of failure; how many empty cells have no reason."""
    from rich.table import Table

    from kvspec.audit.matrix import SORTS, VERBS, reasons

    known = reasons()
    table = Table("verb", *SORTS, box=None, pad_edge=False)
    table.columns[0].no_wrap, table.columns[0].min_width = True, max(map(len, VERBS))
    for column in table.columns[1:]:
        column.justify = "right"
    gaps = []
    why: dict[str, list[str]] = {}
    for verb in VERBS:
        cells = []
        for sort in SORTS:
            count = report.tested.get((verb, sort), 0)
            reason = known.get(verb, {}).get(sort)
            if not count and reason is None:
                gaps.append(f"{verb}, {sort}")
            elif not count:
                assert reason is not None
                why.setdefault(reason, []).append(f"{verb}, {sort}")
            cells.append(str(count) if count else "-" if reason is not None else "?")
        table.add_row(verb, *cells)
    console.print(table)
    for reason, cells in why.items():
        console.print(f"- {reason} ({'; '.join(cells)})", markup=False, style="dim", soft_wrap=True)
    for gap in gaps:
        console.print(
            f"? {gap}: no scenario fails so, and spec/kvspec/audit/unreached.yaml has no reason", style="red", markup=False
        )
    return len(gaps)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)

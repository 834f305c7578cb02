"""``kvspec show``: what every step of a scenario has changed, in the terminal or as a page for a browser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, must_be_schedule, must_be_writable, refuse
from kvspec.cli.run import Device
from kvspec.harness.watch import DEFAULT_SECONDS
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES
from kvspec.scenario import Scenario

if TYPE_CHECKING:
    from kvspec.harness.timeline.timeline import Timeline


def show(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Only this step; the first is step 0.")] = None,
    request: Annotated[str | None, typer.Option(metavar="NAME", help="Only what concerns this request.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show the whole state after each step, not only what changed.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a web page that draws the pages over time.")] = None,
    system: Annotated[str, typer.Option(help="The system under test: a name, or package.module:Class.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The system whose state is shown; where the two differ, both are.")] = "kvref",
    device: Annotated[Device, typer.Option(help="The device that the system under test runs on.")] = Device.AUTO,
    schedule: Annotated[
        str | None, typer.Option(help="Order of device work on the simulated device: fifo, adversarial or seed=N.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The longest that one scenario may take; 0 for no limit.")
    ] = DEFAULT_SECONDS,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Show what each step changed: which request has which page where, and why a page was not moved.

    If the two systems differ, this ends with the step at which they do, and the exit status is 1. If --system and --against are
    the same, that system is shown and nothing is compared. Blocks in a row: G on the GPU, H on the host, D on disk, . no page.
    """
    # Imported here, so that the help is quick.
    from rich.console import Console

    from kvspec.cli.step_lines import Printer

    must_be_schedule(schedule)
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    for name in (system, against):
        found_system(name)
    _must_be_there(scenarios, step, request)
    if html is not None:
        must_be_writable("--html", html)
        if any(html.resolve() == one.position.path.resolve() for one in scenarios):
            refuse(f"--html {html} would overwrite the scenario: name another file")
    options = {"device": device.value, **({} if schedule is None else {"schedule": schedule})}
    console = Console(highlight=False, emoji=False)
    failed = False
    timelines: list[Timeline] = []
    for number, scenario in enumerate(scenarios):
        if step is not None and step >= len(scenario.steps):
            continue
        printer = None
        if html is None:
            if number:
                console.print()
            printer = Printer(console, scenario, step, request, full)
        timeline = _see(scenario, system, against, options, printer, timeout)
        timelines.append(timeline)
        failed = failed or timeline.failed
        if printer is not None:
            printer.end(timeline)
    if html is not None:
        _write(html, timelines)
    raise typer.Exit(1 if failed else 0)


def _see(scenario: Scenario, system: str, against: str, options: Mapping[str, str], printer: object, timeout: float) -> Timeline:
    """Replay a scenario and see every step; leaves with the reason if a system cannot carry it out."""
    from kvspec.cli.step_lines import Printer
    from kvspec.harness.systems import lacking
    from kvspec.harness.timeline.timeline import see_both, see_one

    for name in dict.fromkeys((system, against)):
        lack = lacking(scenario, found_system(name))
        if lack:
            refuse(f"{scenario.position}: {name} lacks {', '.join(lack)}; --system {against} shows {against} alone")
    take = printer.take if isinstance(printer, Printer) else None
    if system == against:
        return see_one(scenario, system, options, take, timeout)
    return see_both(scenario, system, against, options, take, timeout)


def _must_be_there(scenarios: list[Scenario], step: int | None, request: str | None) -> None:
    if step is not None and all(step >= len(one.steps) for one in scenarios):
        last = max(len(one.steps) for one in scenarios) - 1
        refuse(f"--step {step}: there is no such step: the last one is {last}")
    if request is not None:
        names = sorted({step.op.request for one in scenarios for step in one.steps if step.op.verb == "create"})  # type: ignore[attr-defined]
        if request not in names:
            refuse(f"--request {request}: no step creates it: there are {', '.join(names) or 'none'}")


def _write(path: Path, timelines: list[Timeline]) -> None:
    from kvspec.harness.timeline.page import write_page

    try:
        size = write_page(path, timelines)
    except OSError as error:
        refuse(f"--html {path}: cannot be written: {(error.strerror or 'no reason given').lower()}")
    steps = sum(len(one.steps) for one in timelines)
    typer.echo(f"{path}: {steps} steps, {size / 1000:.0f} kB; open it in a browser")

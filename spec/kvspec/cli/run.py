"""``kvspec run``: scenarios through two systems, compared after every step."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kvspec.cli.check import MAX_SHOWN, suite_or_exit
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES, read
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.harness.difference import Result
    from kvspec.harness.runner import Plan
    from kvspec.harness.systems import Factory
    from kvspec.system import Setup


class Device(StrEnum):
    """Where the system under test works."""

    AUTO = "auto"
    SIM = "sim"
    CUDA = "cuda"


def run(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files, or folders to search; the suite if left out.")] = None,
    system: Annotated[str, typer.Option(help="The system under test: a name, or package.module:Class.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference that it is compared with.")] = "kvref",
    device: Annotated[Device, typer.Option(help="Where the system under test works.")] = Device.AUTO,
    require_cuda: Annotated[bool, typer.Option("--require-cuda", help="Fail where there is no GPU.")] = False,
    schedule: Annotated[
        str | None, typer.Option(help="Order of device work on the simulated device: fifo, adversarial or seed=N.")
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match: 'R4 and not sharing'."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many processes; one a core if left out, one for few scenarios.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the results as one HTML page.")] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check the order of device accesses.")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List skipped scenarios too, and show every failure.")] = False,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse scenarios that ask for more memory than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Replay scenarios through two systems: exit 0 if all pass, 1 if one diverges or fails, 2 for a wrong file or usage."""
    # Imported here, so that the help is quick.
    from rich.console import Console

    from kvspec.harness.runner import Plan, default_jobs

    must_be_schedule(schedule)
    if require_cuda and device is Device.SIM:
        refuse("--require-cuda and --device sim contradict each other")
    chosen = Device.CUDA if require_cuda else device
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    _must_be_outputs({"--junit": junit, "--html": html}, scenarios)
    options = {"device": chosen.value, "check": "on" if check else "off"}
    if schedule is not None:
        options["schedule"] = schedule
    plan = Plan(system, against, options, max_pool_bytes, timelines=html is not None)
    jobs = jobs if jobs is not None else default_jobs(len(scenarios), chosen.value)
    if chosen is Device.CUDA:
        _probe(plan, scenarios, require_cuda)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    results = _run(plan, scenarios, jobs, console)
    _show(console, plan, results, verbose, junit, html)
    failed = any(result.verdict.value == "failed" for result in results)
    unchecked = sum(result.verdict.value != "skipped" and result.device != "cuda" for result in results)
    if require_cuda and unchecked:
        console.print(f"--require-cuda: {unchecked} scenarios did not run on a GPU", style="red")
        failed = True
    if all(result.verdict.value == "skipped" for result in results):
        refuse("nothing was run: every scenario was skipped, which is not a pass")
    raise typer.Exit(1 if failed else 0)


def refuse(message: str, code: int = 2) -> NoReturn:
    """Leave with a message about the usage."""
    typer.echo(message, err=True)
    raise typer.Exit(code)


def _must_be_outputs(outputs: dict[str, Path | None], scenarios: list[Scenario]) -> None:
    """Leave if an output cannot be written, would overwrite a scenario that is run, or the other output."""
    taken = {scenario.position.path.resolve(): f"{scenario.position.path}, which is run" for scenario in scenarios}
    for option, path in outputs.items():
        if path is None:
            continue
        must_be_writable(option, path)
        if (other := taken.get(path.resolve())) is not None:
            refuse(f"{option} {path} would overwrite {other}: name another file")
        taken[path.resolve()] = f"what {option} writes"


def must_be_writable(option: str, path: Path) -> None:
    """Leave if a file cannot be written, before anything is run for it."""
    if path.is_dir():
        refuse(f"{option} {path}: cannot be written: it is a folder")
    if not path.absolute().parent.is_dir():
        refuse(f"{option} {path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        refuse(f"{option} {path}: cannot be written: permission denied")


def _probe(plan: Plan, scenarios: list[Scenario], require_cuda: bool) -> None:
    """Build the system once before everything, so that a machine without a GPU is one message and not one a scenario."""
    from kvspec.harness.systems import lacking, setup_for

    factory = found_system(plan.system)
    able = next((scenario for scenario in scenarios if not lacking(scenario, factory)), None)
    if able is not None:
        must_build(plan.system, factory, setup_for(able, plan.options), 1 if require_cuda else 2)


def must_build(name: str, factory: Factory, setup: Setup, code: int = 2) -> None:
    """Leave with ``code`` and the reason if a system cannot be built with device cuda."""
    try:
        factory(setup).close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a system raises where its device is not there
        text = " ".join(str(error).split()) or type(error).__name__
        refuse(f"{name} cannot be built with device cuda: {text}", code)


def must_be_schedule(schedule: str | None) -> None:
    """Leave with what a schedule is if this is none."""
    if schedule is not None and re.fullmatch(r"fifo|adversarial|seed=\d{1,18}", schedule) is None:
        refuse(f"--schedule {schedule}: expected fifo, adversarial or seed=N")


def found_system(name: str) -> Factory:
    """The factory of a system; leaves with what there is if there is none of that name."""
    from kvspec.harness.systems import SystemNotFound, find_system

    try:
        return find_system(name)
    except SystemNotFound as error:
        refuse(str(error))


def chosen_scenarios(paths: list[Path] | None, expression: str | None, max_pool_bytes: int) -> list[Scenario]:
    """The scenarios that a command line asks for; leaves with what is wrong if there are none, or a file is wrong."""
    from kvspec.harness.select import SelectionError, select

    asked = paths or [suite_or_exit()]
    scenarios: list[Scenario] = []
    wrong = 0
    for path in scenario_files(asked):
        loaded = read(path, max_pool_bytes=max_pool_bytes)
        for problem in loaded.problems[:MAX_SHOWN]:
            typer.echo(str(problem), err=True)
        if len(loaded.problems) > MAX_SHOWN:
            typer.echo(f"{path}: and {len(loaded.problems) - MAX_SHOWN} more problems", err=True)
        wrong += bool(loaded.problems)
        scenarios += loaded.scenarios
    if wrong:
        refuse(f"{wrong} {'file is' if wrong == 1 else 'files are'} wrong: nothing was run")
    if not scenarios:
        refuse(f"nothing to run: no scenario in {', '.join(map(str, asked))}: expected YAML files that say kvspec:")
    if expression is None:
        return scenarios
    try:
        chosen = select(scenarios, expression)
    except SelectionError as error:
        refuse(str(error))
    if not chosen:
        refuse(f"nothing to run: -k {expression!r} matches none of {len(scenarios)} scenarios, by name, tag or rule")
    return chosen


def _run(plan: Plan, scenarios: list[Scenario], jobs: int, console: Console) -> list[Result]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kvspec.harness.runner import run_all

    for name in (plan.system, plan.against):
        found_system(name)
    found: dict[int, Result] = {}
    failed = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=len(scenarios), now="")
        for number, result in run_all(plan, scenarios, jobs):
            found[number] = result
            failed += result.verdict.value == "failed"
            progress.update(task, advance=1, now=f"{failed} failed" if failed else "")
    return [found[number] for number in range(len(scenarios))]


def _show(console: Console, plan: Plan, results: list[Result], verbose: bool, junit: Path | None, html: Path | None) -> None:
    from kvspec.cli.listing import counts, print_results
    from kvspec.harness.html import write_html
    from kvspec.harness.junit import write_junit
    from kvspec.harness.report import failure_report, plain, reproduce_command
    from kvspec.harness.systems import unobserved_by
    from kvspec.harness.unobserved import not_compared

    names = (plan.against, plan.system)
    reports = {}
    commands = {}
    for number, result in enumerate(results):
        if result.failure is not None:
            commands[number] = reproduce_command(result, plan.system, plan.against, plan.options)
            reports[number] = failure_report(result, names, commands[number])
    print_results(console, results, reports, commands, verbose)
    failed = bool(reports)
    console.print(counts(results), style="bold red" if failed else "bold green")
    console.print(f"{plan.system} against {plan.against}", style="dim", markup=False)
    unobserved = unobserved_by(found_system(plan.system), found_system(plan.against))
    if unobserved:
        console.print(f"not compared: {not_compared(unobserved)}", style="yellow", markup=False)
    unchecked = sum(result.device != "cuda" for result in results)
    if unchecked:
        console.print(f"{unchecked} of {len(results)} scenarios were not checked on a GPU")
    texts = {number: plain(report) for number, report in reports.items()}
    option, path = "--junit", junit
    try:
        if junit is not None:
            write_junit(junit, results, texts)
        option, path = "--html", html
        if html is not None:
            write_html(html, plan, results, texts)
    except OSError as error:
        refuse(f"{option} {path}: cannot be written: {(error.strerror or 'no reason given').lower()}")

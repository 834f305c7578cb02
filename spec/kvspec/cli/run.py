"""``kvspec run``: scenarios through two systems, compared after every step."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.profiles import fits, n_of_n, of_its_policies, of_profile
from kvspec.cli.refusing import found_system, must_be_schedule, must_be_writable, must_build, must_differ, refuse
from kvspec.harness.watch import DEFAULT_SECONDS
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES
from kvspec.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kvspec.harness.difference import Result
    from kvspec.harness.runner import Plan


class Device(StrEnum):
    """The device that the system under test runs on."""

    AUTO = "auto"
    SIM = "sim"
    CUDA = "cuda"


def run(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files, folders, or FILE:LINE for one scenario. Left out: the whole suite.")
    ] = None,
    system: Annotated[str, typer.Option(help="The system under test: a name, or package.module:Class.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference that it is compared with.")] = "kvref",
    device: Annotated[Device, typer.Option(help="The device that the system under test runs on.")] = Device.AUTO,
    require_cuda: Annotated[bool, typer.Option("--require-cuda", help="Fail if there is no GPU.")] = False,
    schedule: Annotated[
        str | None, typer.Option(help="Order of device work on the simulated device: fifo, adversarial or seed=N.")
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match: 'R4 and not sharing'."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Only scenarios of this profile: prefix, prefix+host, ... (docs/profiles.md). All must pass, none be skipped."
        ),
    ] = None,
    last_failed: Annotated[
        bool, typer.Option("--last-failed", help="Only scenarios that failed in the last run here; all of them if none failed.")
    ] = False,
    only_list: Annotated[bool, typer.Option("--list", help="List the scenarios as FILE:LINE and name, and run nothing.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, help="Number of processes. Left out: one for each core, or a single one for few scenarios."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The longest that one scenario may take; 0 for no limit.")
    ] = DEFAULT_SECONDS,
    first: Annotated[bool, typer.Option("-x", help="Stop at the first failure.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the results as one HTML page.")] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check that fences order all accesses on the simulated device.")
    ] = True,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print a line for each scenario, and every failure in full.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only failures and the line of counts.")] = False,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Replay scenarios through two systems and compare them after every step.

    Exit status: 0 all pass, 1 a scenario fails, 2 a wrong file or wrong usage.
    """
    # Imported here, so that the help is quick.
    from rich.console import Console

    from kvspec.cli.last_failed import failed_last, remember
    from kvspec.harness.runner import Plan, default_jobs

    must_be_schedule(schedule)
    must_differ(system, against)
    if require_cuda and device is Device.SIM:
        refuse("--require-cuda and --device sim contradict each other")
    if quiet and verbose:
        refuse("--quiet and --verbose contradict each other")
    chosen = Device.CUDA if require_cuda else device
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    if profile is not None:
        scenarios = of_profile(of_its_policies(scenarios, system), profile, against)
    if last_failed:
        scenarios = failed_last(scenarios)
    if only_list:
        _list(scenarios)
        return
    _must_be_outputs({"--junit": junit, "--html": html}, scenarios)
    options = {"device": chosen.value, "check": "on" if check else "off"}
    if schedule is not None:
        options["schedule"] = schedule
    plan = Plan(system, against, options, max_pool_bytes, timeout, timelines=html is not None)
    jobs = jobs if jobs is not None else default_jobs(len(scenarios), chosen.value)
    if chosen is Device.CUDA:
        _probe(plan, scenarios, require_cuda)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # a log has no edge
    results, under_way, interrupted = _run(plan, scenarios, jobs, console, first)
    remember(results)
    _show(console, plan, results, verbose, quiet, junit, html)
    if profile is not None:
        console.print(f"profile {profile}: {n_of_n(results)}", style="bold", markup=False)
    elif any(result.lacks for result in results) and not quiet:
        for line in fits(of_its_policies(scenarios, system), results, against):
            console.print(f"profile {line}", markup=False)
    drafts = sum("draft" in one.tags for one in scenarios)
    if drafts and not quiet:
        console.print(f"{drafts} with the tag draft: recorded values that nobody has confirmed", style="yellow", markup=False)
    if interrupted:
        _tell_under_way(console, under_way)
        console.print(f"interrupted: {len(results)} of {len(scenarios)} scenarios have run", style="bold red")
        raise typer.Exit(EXIT_INTERRUPTED)
    if len(results) < len(scenarios):
        console.print(f"stopped at the first failure: {len(scenarios) - len(results)} scenarios were not run", style="yellow")
    failed = any(result.verdict.value == "failed" for result in results)
    unchecked = sum(result.verdict.value != "skipped" and result.device != "cuda" for result in results)
    if require_cuda and unchecked:
        console.print(f"--require-cuda: {unchecked} scenarios did not run on a GPU", style="red")
        failed = True
    if profile is not None and any(result.verdict.value != "passed" for result in results):
        failed = True  # what is skipped is not passed: a profile is for managers that can do all of it
    if all(result.verdict.value == "skipped" for result in results):
        if any(result.alone for result in results):
            refuse(f"{system} was not run, which is not a pass: it can do none of the scenarios; {against} alone was checked")
        refuse("nothing was run: every scenario was skipped, which is not a pass")
    raise typer.Exit(1 if failed else 0)


EXIT_INTERRUPTED = 130
"""As a shell reports SIGINT."""


def _list(scenarios: Sequence[Scenario]) -> None:
    from kvspec.harness.report import path_text

    for one in scenarios:
        typer.echo(f"{path_text(one.position.path)}:{one.position.line}  {one.name}")


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


def _probe(plan: Plan, scenarios: list[Scenario], require_cuda: bool) -> None:
    """Build the system once before everything, so that a machine without a GPU is one message and not one a scenario."""
    from kvspec.harness.systems import lacking, setup_for

    factory = found_system(plan.system)
    able = next((scenario for scenario in scenarios if not lacking(scenario, factory)), None)
    if able is not None:
        must_build(plan.system, factory, setup_for(able, plan.options), 1 if require_cuda else 2)


def _run(
    plan: Plan, scenarios: list[Scenario], jobs: int, console: Console, first: bool
) -> tuple[list[Result], list[Result], bool]:
    """The results in the order of the scenarios, what was under way at an interruption, and whether there was one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kvspec.harness.runner import Running

    for name in (plan.system, plan.against):
        found_system(name)
    found: dict[int, Result] = {}
    under_way: list[Result] = []
    failed, interrupted = 0, False
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with (
        Running(plan, scenarios, jobs) as running,  # before the progress bar, which has a thread
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("replaying", total=len(scenarios), now="")
        try:
            for number, result in running.results():
                found[number] = result
                failed += result.verdict.value == "failed"
                progress.update(task, advance=1, now=f"{failed} failed" if failed else "")
                if first and failed:
                    break
        except KeyboardInterrupt:
            interrupted = True
            under_way = running.interrupt()
    return [found[number] for number in sorted(found)], under_way, interrupted


def _tell_under_way(console: Console, results: Sequence[Result]) -> None:
    """Where each scenario was when the user lost patience."""
    from kvspec.harness.report import path_text

    for result in results:
        failure = result.failure
        if failure is None:  # it has just come to its end
            continue
        where = f"{path_text(failure.position.path)}:{failure.position.line}"
        console.print(f"running: {result.name!r} at step {failure.step}, {failure.verb}", style="bold", markup=False)
        console.print(f"  {where}", markup=False, soft_wrap=True)
        for frame in failure.differences[0].detail:
            console.print(f"  {frame}", style="dim", markup=False, soft_wrap=True)


def _show(
    console: Console, plan: Plan, results: list[Result], verbose: bool, quiet: bool, junit: Path | None, html: Path | None
) -> None:
    from rich.text import Text

    from kvspec.cli.listing import counts, print_results
    from kvspec.cli.wrapping import print_line
    from kvspec.harness.html import write_html
    from kvspec.harness.junit import write_junit
    from kvspec.harness.policies import unusual_policies
    from kvspec.harness.report import by_policy, failure_report, plain, reproduce_command
    from kvspec.harness.systems import unobserved_by
    from kvspec.harness.unobserved import not_compared

    names = (plan.against, plan.system)
    reports: dict[int, RenderableType] = {}
    for number, result in enumerate(results):
        if result.failure is not None:
            command = reproduce_command(result, plan.system, plan.against, plan.options)
            reports[number] = failure_report(result, names, command)
    print_results(console, results, reports, verbose, quiet)
    console.print(counts(results), style="bold red" if reports else "bold green")
    if not quiet and not all(result.alone for result in results):
        console.print(f"{plan.system} against {plan.against}", style="dim", markup=False)
    policies = unusual_policies(found_system(plan.system))
    if policies:
        console.print(f"policies of {plan.system}: {policies}", style="yellow", markup=False)
    for line in by_policy(results, plan.system, plan.against):
        console.print(line, style="yellow", markup=False)
    unobserved = unobserved_by(found_system(plan.system), found_system(plan.against))
    if unobserved:
        print_line(console, Text(f"not compared: {not_compared(unobserved)}", "yellow"), 4)
    unchecked = sum(result.device != "cuda" for result in results)
    if (
        unchecked
        and not quiet
        and not all(result.verdict.value == "skipped" for result in results)
        and plan.options["device"] != Device.CUDA
    ):
        console.print(f"{unchecked} of {len(results)} scenarios were not checked on a GPU")
    texts = {number: plain(report) for number, report in reports.items()}
    option, path = "--junit", junit
    try:
        if junit is not None:
            write_junit(junit, results, texts, policies)
        option, path = "--html", html
        if html is not None:
            write_html(html, plan, results, texts)
            if not quiet:
                console.print(f"{html}: open it in a browser", markup=False, soft_wrap=True)
    except OSError as error:
        refuse(f"{option} {path}: cannot be written: {(error.strerror or 'no reason given').lower()}")

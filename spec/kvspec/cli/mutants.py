"""``kvspec mutants``: every named break of the implementation must be noticed by a scenario; breaks drawn at random, too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.answering import Scheduler, answering, tell_of_workers
from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import must_be_writable, refuse
from kvspec.cli.run import Device
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.mutants import Kill, Mutant, MutantPlan, MutantResult
    from kvspec.harness.workers import Ended
    from kvspec.scenario import Scenario

MODULE = "kvspec.audit.mutants"
OPTIONS = {"device": "sim"}
"""Breaks are looked for with the default schedule on the simulated device, checks and poison being on."""

ORDER = ("ordering check", "order of device work")
"""How a dropped fence must be noticed."""


def mutants(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    system: Annotated[str, typer.Option(help="The system to break. It must announce its breaks under this name.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference that it is compared with.")] = "kvref",
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Only breaks whose name contains this text.")] = None,
    fences: Annotated[bool, typer.Option("--fences", help="Only breaks that drop a wait or an event record.")] = False,
    guards: Annotated[bool, typer.Option("--guards", help="Only the other breaks.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Find every scenario that notices a break, not only the first.")] = False,
    write: Annotated[Path | None, typer.Option(help="Write the table to this Markdown file.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Left out: one for each core.")] = None,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
    random: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Instead of the named breaks, make N random changes to the source code."),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --random: the seed of the draw.")] = 0,
    package: Annotated[
        str, typer.Option(help="With --random: the code to change: kvgpu, kvref, harness, or a package.")
    ] = "kvgpu",
    lifecycles: Annotated[int, typer.Option(min=0, help="With --random: also try this many random lifecycles.")] = 0,
    tests: Annotated[
        list[Path] | None,
        typer.Option(help="With --random: also run these test files or folders. In a clone of kvspec: those of the package."),
    ] = None,
    pick: Annotated[str | None, typer.Option(metavar="3,10-19", help="With --random: try only these of the N.")] = None,
    seconds: Annotated[float | None, typer.Option(help="With --random: start no change after this many seconds.")] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="With --random: add a line of JSON for each change to this file, and skip those that it has already."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="With --json: try again what survived.")] = False,
    survivors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of --random: try what survived in such a file again, after any edits."),
    ] = None,
    device: Annotated[
        Device,
        typer.Option(help="For named breaks: the device. On a GPU nothing checks the order but gates and what they hold up."),
    ] = Device.SIM,
    scheduler: Scheduler = None,
) -> None:
    """Break the system on purpose, in every named way or in random ones, and see whether scenarios notice.

    Exit status: 0 all breaks are noticed, 1 a break survives, 2 a wrong file or wrong usage.
    """
    import os

    if random is not None or survivors is not None:
        from kvspec.cli.random_mutants import Asked, random_mutants

        if only or fences or guards or every or write or device is not Device.SIM:
            refuse("--only, --fences, --guards, --all, --write and --device are for named breaks: leave them out with --random")
        if random is not None and survivors is not None:
            refuse("--survivors tries what is in its file: leave out --random")
        asked = Asked(
            package,
            random,
            seed,
            system,
            against,
            lifecycles,
            tests or [],
            pick,
            seconds,
            json,
            again,
            jobs,
            scheduler,
            survivors,
        )
        random_mutants(asked, chosen_scenarios(paths, expression, max_pool_bytes), max_pool_bytes)
    if tests or pick or seconds is not None or json or again or lifecycles:
        refuse("--lifecycles, --tests, --pick, --seconds, --json and --again are for breaks drawn at random: expected --random N")

    from rich.console import Console

    from kvspec.audit.mutants import MutantPlan, NoMutants, find_mutants, try_mutants
    from kvspec.harness.systems import SystemNotFound

    try:
        chosen = _chosen(find_mutants(system), only or [], fences, guards)
    except NoMutants as error:
        refuse(str(error))
    if write is not None:
        must_be_writable("--write", write)
    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a log has no edge
    start = time.perf_counter()
    plan = MutantPlan(system, against, {**OPTIONS, "device": device.value}, every)
    processes = jobs if jobs is not None else min(os.cpu_count() or 1, len(chosen))
    by_name: dict[str, MutantResult] = {}
    ended: list[tuple[str, Ended]] = []
    try:
        _green(plan, scenarios, processes)
        with answering(MODULE, (system, against), processes, scheduler, 4) as workers:
            for came in try_mutants(plan, chosen, scenarios, workers):
                if isinstance(came, tuple):
                    ended.append(came)
                else:
                    by_name[came.mutant] = came
            tell_of_workers(console, workers)
    except SystemNotFound as error:
        refuse(str(error))
    results = [by_name[mutant.name] for mutant in chosen if mutant.name in by_name]
    _table(console, results, every)
    unnoticed = [result for result in results if not result.killed]
    for name, why in ended:
        console.print(f"not tried: {name}: its process ended: {why.why}", style="red", markup=False, soft_wrap=True)
    for result in unnoticed:
        console.print(f"survives: {result.mutant}: {_why(result)}", style="red", markup=False, soft_wrap=True)
    if write is not None:
        write.write_text(markdown(results), encoding="utf-8")
    ways = Counter(last_kill(result).how.value for result in results if result.killed)
    said = ", ".join(f"{count} by {how}" for how, count in ways.most_common()) or "none"
    console.print(
        f"{len(results) - len(unnoticed)} of {len(chosen)} breaks noticed: {said} ({time.perf_counter() - start:.0f} s)"
    )
    raise typer.Exit(1 if unnoticed or ended else 0)


def _chosen(known: Sequence[Mutant], only: Sequence[str], fences: bool, guards: bool) -> list[Mutant]:
    from kvspec.audit.mutants import FENCE

    kinds = {FENCE: fences or not guards}
    chosen = [mutant for mutant in known if kinds.get(mutant.kind, guards or not fences)]
    chosen = [mutant for mutant in chosen if not only or any(text in mutant.name for text in only)]
    if not chosen:
        refuse(f"no break has {' or '.join(map(repr, only))} in its name; there are {len(known)}, kvspec mutants lists them")
    return chosen


def _green(plan: MutantPlan, scenarios: Sequence[Scenario], jobs: int) -> None:
    """Leave if a scenario fails while nothing is broken: it would seem to notice everything."""
    from kvspec.harness.difference import Verdict
    from kvspec.harness.runner import Plan, default_jobs, run_all

    whole = Plan(plan.system, plan.against, dict(plan.options))
    results = [result for _, result in run_all(whole, scenarios, min(jobs, default_jobs(len(scenarios), plan.options["device"])))]
    red = [result.name for result in results if result.verdict is Verdict.FAILED]
    if red:
        refuse(f"{len(red)} scenarios fail with nothing broken, the first is {red[0]!r}: kvspec run shows why")


def last_kill(result: MutantResult) -> Kill:
    """The kill that a table shows: the first that is enough, else the first."""
    wanted = [kill for kill in result.kills if result.kind != "fence" or kill.how.value in ORDER]
    return (wanted or list(result.kills))[0]


def _why(result: MutantResult) -> str:
    if not result.kills:
        return "no scenario notices; write one that does, or say why none can"
    kill = result.kills[0]
    where = f"the {kill.how.value} of {kill.name!r} (step {kill.step}: {kill.text})"
    return f"a dropped fence is noticed by {where} alone, and not by the order of device work"


def _table(console: Console, results: Sequence[MutantResult], every: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("break", "rule", "killed by", "step", "how", *(["scenarios"] if every else []), box=None, pad_edge=False)
    table.columns[0].no_wrap = table.columns[3].no_wrap = table.columns[4].no_wrap = True
    for result in results:
        if not result.kills:
            table.add_row(escape(result.mutant), result.rule, "[red]nothing", "", "", *(["0"] if every else []))
            continue
        kill = last_kill(result)
        how = kill.how.value if result.killed else f"[red]{kill.how.value}"
        count = [str(len(result.kills))] if every else []
        table.add_row(escape(result.mutant), result.rule, escape(kill.name), f"{kill.step}: {kill.verb}", how, *count)
    console.print(table)


HEAD = """# Named breaks, and which scenario notices each

Written by `kvspec mutants --write docs/mutants.md`; a test replays every line. A *fence* is dropped (a wait or an event record,
by the name of its site), a *guard* is patched out. "How" says what noticed it: the device's *ordering check*, the *order of
device work* that the reference demands, an *outcome or expectation*, another *divergence* from the reference, or an
*exception*.

| break | rule | kind | file | scenario | step | how |
| --- | --- | --- | --- | --- | --- | --- |
"""


def markdown(results: Sequence[MutantResult]) -> str:
    """The table as Markdown."""
    from kvspec.harness.report import path_text

    lines = []
    for result in results:
        if result.kills:
            kill = last_kill(result)
            cells = [path_text(kill.path), kill.name, f"{kill.step} {kill.verb}", kill.how.value]
        else:
            cells = ["-", "-", "-", "survives"]
        lines.append("| " + " | ".join([result.mutant, result.rule, result.kind, *cells]) + " |\n")
    return HEAD + "".join(lines)

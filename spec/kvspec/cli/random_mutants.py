"""``kvspec mutants --random N``: breaks that are drawn from a package's source, and which scenario notices each."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from kvspec.cli.answering import on_cluster, tell_of_workers
from kvspec.cli.refusing import found_system, must_be_writable, refuse
from kvspec.cli.results_file import NotResults, OfAnotherRun, add_result, read_or_begin, read_results
from kvspec.cli.stopping import terminated_like_ctrl_c

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.mutant_drawing import Drawn
    from kvspec.audit.random_mutants import Baseline, Campaign, Report
    from kvspec.cluster.cluster import Cluster
    from kvspec.scenario import Scenario

HARNESS = "kvspec.harness"
PACKAGES = {"harness": HARNESS}
"""Short names."""
HARNESS_TESTS = (
    *("tests/harness", "tests/timeline", "tests/adapter", "tests/language/test_cli.py"),
    *("tests/policies/test_declaring.py", "tests/audit/test_mutants.py", "tests/audit/test_vacuity.py"),
)
"""What the harness is held against besides the scenarios: what must fail must still fail."""
TESTS = {
    HARNESS: HARNESS_TESTS,
    "kvref": ("tests/kvref", "tests/policies/test_declaring.py", "tests/policies/test_scenarios.py"),
    "kvgpu": ("tests/kvgpu",),
}
"""What a package of this repository is held against besides the scenarios, in a clone of it and without a cluster."""
OPTIONS = {"device": "sim"}
LOCAL = "local"
"""The scheduler whose workers are on this machine."""
FILE = "breaks drawn at random"
"""What the first line of a file of results says that it is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says. ``survivors``: a file of results, of which those that survived are tried, not ``count``."""

    package: str
    count: int | None
    seed: int
    system: str
    against: str
    lifecycles: int
    tests: list[Path]
    pick: str | None
    seconds: float | None
    file: Path | None
    again: bool
    jobs: int | None
    scheduler: str | None
    survivors: Path | None = None


def random_mutants(asked: Asked, scenarios: Sequence[Scenario], max_pool_bytes: int) -> NoReturn:
    """Try breaks drawn at random; leaves with 0 if all are noticed or known to be equivalent, else with 1."""
    from rich.console import Console

    from kvspec.audit.cases import Setting
    from kvspec.audit.changed_import import NoPackage
    from kvspec.audit.forks import can_fork
    from kvspec.audit.mutant_drawing import KnownError, draw, fingerprint, load_known, sources_of, stale
    from kvspec.audit.random_mutants import Campaign, found_again

    if not can_fork():
        refuse("--random needs a system that forks processes, such as Linux")
    if asked.again and asked.file is None:
        refuse("--again tries what survived in the file of --json again: add --json FILE")
    earlier = None if asked.survivors is None else _survivors(asked.survivors)
    package = PACKAGES.get(asked.package, asked.package) if earlier is None else earlier[0]
    if asked.scheduler not in (None, LOCAL) and (asked.tests or package == HARNESS):
        refuse(f"--scheduler {asked.scheduler}: tests are files of this machine: expected {LOCAL}, or a package without them")
    for name in (asked.system, asked.against):
        found_system(name)
    try:
        known = load_known()
        sources = sources_of(package, known)
    except (NoPackage, KnownError) as error:
        refuse(str(error))
    gone: list[Report] = []
    if earlier is None:
        drawn = draw(sources, asked.seed, asked.count or 0)
        head: dict[str, Any] = {"file": FILE, "package": package, "seed": asked.seed}
        of = f"{package}, seed {asked.seed}"
    else:
        drawn, gone = found_again(earlier[1], sources)
        head = {"file": FILE, "package": package, "survivors": [report.index for report in earlier[1]]}
        of = f"{package} that survived"
    drawn = _picked(drawn, asked)
    head["source"] = fingerprint(sources)
    before = [] if asked.file is None else _read(asked.file, head, asked.again, drawn)
    have = {report.index for report in before}
    setting = Setting(package, asked.system, asked.against, OPTIONS, asked.lifecycles)
    campaign = Campaign(
        setting,
        sources,
        [one for one in drawn if one.index not in have],
        known,
        [(scenario.position.path, scenario.index) for scenario in scenarios],
        _tests(asked, package),
        asked.jobs or os.cpu_count() or 1,
        asked.seconds,
        max_pool_bytes,
    )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a log has no edge
    start = time.monotonic()
    reports, stopped = _run(campaign, asked, head, console) if campaign.drawn else ([], "")
    reports = sorted([*before, *reports], key=lambda report: report.index)
    wrong = _show(console, reports)
    for entry in stale(known, sources, package):
        console.print(f"equivalent.yaml: no such change any more: {entry.file}: {entry.line}: {entry.change}", style="red")
        wrong = True
    for report in gone:
        console.print(f"gone {report.index}: {_place(report)}: {report.what}", style="dim", markup=False, soft_wrap=True)
    missing = [one.index for one in drawn if one.index not in {report.index for report in reports}]
    console.print(_summary(reports, of), f"({time.monotonic() - start:.0f} s)", soft_wrap=True)
    if missing:
        console.print(f"{stopped or 'out of time'}: not tried: --pick {ranges(missing)}", style="red", soft_wrap=True)
    raise typer.Exit(1 if wrong or stopped or missing else 0)


def _picked(drawn: list[Drawn], asked: Asked) -> list[Drawn]:
    if asked.pick is None:
        return drawn
    wanted: set[int] = set()
    last = max((one.index for one in drawn), default=0)
    for part in asked.pick.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            refuse(f"--pick {asked.pick}: expected numbers and ranges, such as 3,10-19")
        wanted.update(range(int(match[1]), min(int(match[2] or match[1]), last) + 1))
    chosen = [one for one in drawn if one.index in wanted]
    if not chosen:
        refuse(f"--pick {asked.pick}: none of these is among the {len(drawn)} that are drawn: 0 to {last}")
    return chosen


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as ``--pick`` takes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _tests(asked: Asked, package: str) -> list[Path]:
    import importlib.util

    from kvspec.audit.cases import test_files

    paths = asked.tests or [Path(name) for name in TESTS.get(package, ())]
    missing = [path for path in paths if not path.exists()]
    if not asked.tests and package != HARNESS and (missing or asked.scheduler is not None):
        return []  # the scenarios notice most of it alone
    if missing and not asked.tests:
        refuse(f"the harness is tested by its own tests, but there is no {missing[0]}: run this in a clone of the repository")
    if missing:
        refuse(f"--tests {missing[0]}: there is no such file or folder")
    if paths and importlib.util.find_spec("pytest") is None:
        refuse("tests need pytest, which is not installed: pip install 'kvspec[test]'")
    return test_files(paths)


def _survivors(path: Path) -> tuple[str, list[Report]]:
    """The package of a file of results, and what survived in it."""
    found: dict[int, Report] = {}

    def take(values: Any) -> None:
        report = _result(values)
        found[report.index] = report

    try:
        head = read_results(path, take)
        if head["file"] != FILE:
            raise NotResults
        package = str(head["package"])
    except (NotResults, KeyError, TypeError):
        refuse(f"--survivors {path}: is not a file of results: expected one that --json has written")
    survived = [report for report in found.values() if not report.outcome.killed]
    if not survived:
        refuse(f"--survivors {path}: nothing survived")
    return package, survived


def _result(values: Any) -> Report:
    from kvspec.audit.random_mutants import Outcome, Report

    return Report(**{**values, "outcome": Outcome(values["outcome"])})


# ---- the file of results ---------------------------------------------------------------------------------------------


def _read(path: Path, head: dict[str, Any], again: bool, drawn: Sequence[Drawn]) -> list[Report]:
    """The results that a file has already; leaves if it is of something else. A file that is not there is begun."""
    must_be_writable("--json", path)
    found: dict[int, Report] = {}

    def take(values: Any) -> None:
        found[values["index"]] = _result(values)

    try:
        read_or_begin(path, head, take)
    except NotResults:
        refuse(f"--json {path}: is not a file of results: name another one")
    except OfAnotherRun:
        refuse(f"--json {path}: has results of another package, seed or source: name another file")
    wanted = {one.index for one in drawn}
    kept = [report for report in found.values() if report.index in wanted]
    return [report for report in kept if report.outcome.killed or not again]


def _run(campaign: Campaign, asked: Asked, head: dict[str, Any], console: Console) -> tuple[list[Report], str]:
    """The results, each written as it comes, and why there are no more."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kvspec.audit.random_mutants import Baseline, ServerEnded, run_campaign

    reports: list[Report] = []
    stopped = ""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with (
            terminated_like_ctrl_c(),
            _cluster(campaign, asked.scheduler, console) as cluster,
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ):
            bar = progress.add_task("measuring", total=len(campaign.drawn))
            for said in run_campaign(campaign, cluster):
                if isinstance(said, Baseline):
                    _must_be_green(said)
                    console.print(f"{said.cases} cases measured with nothing changed ({said.seconds:.0f} s)", style="dim")
                    progress.update(bar, description="trying")
                    continue
                reports.append(said)
                progress.update(bar, advance=1)
                if asked.file is not None:
                    add_result(asked.file, asdict(said))
    except KeyboardInterrupt:
        stopped = "stopped early"
    except ServerEnded as error:
        stopped = str(error)
    return reports, stopped


@contextlib.contextmanager
def _cluster(campaign: Campaign, scheduler: str | None, console: Console) -> Iterator[Cluster | None]:
    """The workers of a cluster, if they are to try the breaks."""
    if scheduler is None:
        yield None
        return
    setting = campaign.setting
    module = "kvspec.audit.random_mutants"
    with on_cluster(scheduler, module, (setting.system, setting.against), campaign.jobs, 1) as cluster:
        yield cluster
        tell_of_workers(console, cluster)


def _must_be_green(baseline: Baseline) -> None:
    if baseline.red:
        name, why = baseline.red[0]
        refuse(f"{len(baseline.red)} of {baseline.cases} cases fail with nothing changed, the first is {name}: {why}")


# ---- what came of it -------------------------------------------------------------------------------------------------


def _show(console: Console, reports: Sequence[Report]) -> bool:
    """Print all, what is noticed first and briefly. Whether something is wrong."""

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    for report in reports:
        if report.outcome.killed:
            how = "" if report.outcome.value == "noticed" else f" ({report.outcome.value})"
            line(f"noticed {report.index}: {_place(report)}: {report.what}: by {report.by}: {report.text}{how}", "dim")
    equal = [report for report in reports if report.equivalent is not None and not report.outcome.killed]
    for report in equal:
        line(f"equivalent {report.index}: {_place(report)}: {report.what}: {report.equivalent}")
    wrong = False
    for report in reports:
        if report.equivalent is not None and report.outcome.killed:
            line(
                f"not equivalent {report.index}: {_place(report)}: {report.what}: noticed by {report.by}: mend equivalent.yaml",
                "red",
            )
            wrong = True
        if not _survives(report):
            continue
        wrong = True
        line(f"survives {report.index}: {_place(report)}: {report.what}", "red")
        line(f"    before: {report.before}")
        line(f"    after:  {report.after}")
        line(f"    {_tried(report)}")
    return wrong


def _survives(report: Report) -> bool:
    return not report.outcome.killed and report.equivalent is None


def _place(report: Report) -> str:
    return f"{report.file}:{report.line}" + (f" in {report.function}" if report.function else "")


def _tried(report: Report) -> str:
    lifecycles = f", {report.lifecycles} random lifecycles" if report.lifecycles else ""
    if report.reached is None:
        return f"executed when it is imported: {report.ran} cases tried{lifecycles}"
    if report.reached == 0:
        return f"not reached: no case executes it{lifecycles}"
    return f"executed by {report.reached} cases, all tried{lifecycles}"


def _summary(reports: Sequence[Report], of: str) -> str:
    ways = Counter(report.outcome.value for report in reports if report.outcome.killed)
    survivors = [report for report in reports if _survives(report)]
    unreached = sum(report.reached == 0 for report in survivors)
    equal = sum(report.equivalent is not None for report in reports)
    details = "".join(f", {count} {way}" for way, count in ways.items() if way != "noticed")
    return (
        f"{len(reports)} breaks of {of}: {sum(ways.values())} noticed{details}, {len(survivors)} survived "
        f"({unreached} of them not reached), {equal} equivalent"
    )

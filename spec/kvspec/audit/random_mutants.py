"""A campaign of breaks drawn at random: each is tried in a process of its own, until something notices it.

One server process measures once which lines every case executes; only those that execute the changed statement can notice the
change, and short ones are tried first. It forks a process for each break, or the workers of a cluster do.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspec.audit.cases import IMPORT, Case, Measured, Setting, measure, try_changed
from kvspec.audit.changes import Change, before_and_after, changed
from kvspec.audit.executed import Lines, reaches
from kvspec.audit.forks import Begin, Ended, in_forks
from kvspec.audit.mutant_drawing import Drawn, Known, Source
from kvspec.audit.packed import packed, unpacked
from kvspec.language import load_file
from kvspec.scenario import Scenario

if TYPE_CHECKING:
    from kvspec.cluster.cluster import Cluster

CHUNKS = 4
"""Cases are measured in so many portions for each process."""


class Outcome(StrEnum):
    """What came of a break."""

    NOTICED = "noticed"
    LATE = "took too long"
    ENDED = "ended its process"
    SURVIVED = "survived"

    @property
    def killed(self) -> bool:
        """Whether something noticed it."""
        return self is not Outcome.SURVIVED


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one break.

    ``by``, ``text``: the case that noticed, and what it said. ``reached``: how many cases execute the statement; ``None`` if an
    import does, and any might notice. ``ran``: how many cases were tried. ``equivalent``: why it is said to change nothing.
    """

    index: int
    file: str
    line: int
    function: str
    what: str
    nth: int
    before: str
    after: str
    outcome: Outcome
    by: str
    text: str
    reached: int | None
    ran: int
    lifecycles: int
    seconds: float
    equivalent: str | None = None


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is tried, and how. ``scenarios``: file of each, and its number in the file. ``tests``: files of tests."""

    setting: Setting
    sources: Mapping[str, Source]
    drawn: Sequence[Drawn]
    known: Known
    scenarios: Sequence[tuple[Path, int]]
    tests: Sequence[Path]
    jobs: int
    seconds: float | None
    max_pool_bytes: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """All cases with nothing changed. ``red``: those that are not green, and why. ``seconds``: how long it took."""

    cases: int
    red: Sequence[tuple[str, str]]
    seconds: float


def found_again(reports: Sequence[Report], sources: Mapping[str, Source]) -> tuple[list[Drawn], list[Report]]:
    """The breaks of reports of earlier sources as they are drawn from these, and the reports whose line has gone or changed."""
    there: dict[tuple[str, str, str, str, int], Change] = {}
    for file in dict.fromkeys(report.file for report in reports):
        for change in sources[file].changes if file in sources else ():
            before = before_and_after(sources[file].text, change)[0]
            there[file, change.function, before, change.what, change.nth] = change
    found = [there.get((report.file, report.function, report.before, report.what, report.nth)) for report in reports]
    again = [Drawn(report.index, change) for report, change in zip(reports, found, strict=True) if change is not None]
    return again, [report for report, change in zip(reports, found, strict=True) if change is None]


class ServerEnded(RuntimeError):
    """The process that forks the others ended before the campaign did; ``str()`` of it says what it said last."""


def run_campaign(campaign: Campaign, cluster: Cluster | None = None) -> Iterator[Baseline | Report]:
    """The baseline, then the breaks as they finish. After a red baseline, and ``seconds`` after the start, nothing is begun.

    :param cluster: who tries them; processes of this machine if left out. What is measured before is measured here.
    :raises ServerEnded: nothing more can come.
    """
    start = time.monotonic()
    said = _server(campaign, cluster is not None)
    for one in said:
        if isinstance(one, _Try):
            assert cluster is not None
            end = None if campaign.seconds is None else start + campaign.seconds
            yield from _on_cluster(campaign, itertools.chain([one], said), cluster, end)
            return
        yield one


def _server(campaign: Campaign, elsewhere: bool) -> Iterator[Any]:
    """What a process of its own says: the baseline, then what came of each break; for ``elsewhere``, what to try of each."""
    # A process that nothing has been imported in, with no threads: forks of this one might have both.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    server = context.Process(target=_serve, args=(campaign, elsewhere, there))
    server.start()
    there.close()
    try:
        while True:
            try:
                said: Any = here.recv()
            except EOFError:
                raise ServerEnded("the process that tries the breaks ended without an answer") from None
            if said is None:
                server.join()
                return
            if isinstance(said, ServerEnded):
                raise said
            yield said
    finally:
        here.close()
        server.terminate()
        server.join()


def _serve(campaign: Campaign, elsewhere: bool, connection: Connection) -> None:
    import signal

    # Then the processes that are under way are ended, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for said in _campaign(campaign, elsewhere):
            connection.send(said)
        connection.send(None)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except ServerEnded as error:
        connection.send(error)
    except Exception as error:
        connection.send(ServerEnded(f"{type(error).__name__}: {error}"))


def _campaign(campaign: Campaign, elsewhere: bool) -> Iterator[Baseline | Report | _Try]:
    start = time.monotonic()
    end = None if campaign.seconds is None else start + campaign.seconds
    scenarios = _loaded(campaign)
    _warm(campaign)
    imported, measured = _measured(campaign, scenarios)
    red = [(one.case.name, one.red) for one in measured if one.red]
    if not any(one.lines for one in measured):
        raise ServerEnded(f"no case executes anything of {campaign.setting.package}: there is nothing to hold it against")
    yield Baseline(len(measured), red, time.monotonic() - start)
    if red:
        return
    tries = (_Try(drawn, *_chosen(drawn, imported, measured)) for drawn in campaign.drawn)
    if elsewhere:
        # What a case executes is large, and of no use there.
        yield from (replace(one, cases=[replace(case, lines={}) for case in one.cases]) for one in tries)
        return
    begun: dict[int, float] = {}
    work = partial(_tried, campaign, scenarios)
    for task, came in in_forks(_timed(tries, begun), work, campaign.jobs, end):
        yield _report(campaign, task, came, time.monotonic() - begun.pop(task.drawn.index))


@dataclass(frozen=True, slots=True)
class _Try:
    drawn: Drawn
    cases: Sequence[Measured]
    reached: int | None = field(default=None)


def _timed(tries: Iterator[_Try], begun: dict[int, float]) -> Iterator[_Try]:
    for one in tries:
        begun[one.drawn.index] = time.monotonic()
        yield one


def _on_cluster(campaign: Campaign, tries: Iterator[_Try], cluster: Cluster, end: float | None) -> Iterator[Report]:
    """What came of each break, as the ranges come. One whose worker's process ended has no report: it is not tried."""
    data = packed(_loaded(campaign))
    asked: dict[int, _Try] = {}

    def more() -> None:
        if end is not None and time.monotonic() > end:
            return
        for one in itertools.islice(tries, max(0, cluster.ahead - cluster.unanswered)):
            asked[one.drawn.index] = one
            source = campaign.sources[one.drawn.change.file].text
            cluster.ask(one.drawn.index, try_one, one, changed(source, one.drawn.change), campaign.setting, data)

    more()
    for index, answer in cluster.answers():
        if isinstance(answer, tuple):
            assert isinstance(index, int)
            yield _report(campaign, asked[index], *answer)
        more()


def try_one(task: _Try, source: bytes, setting: Setting, data: bytes) -> tuple[Any, float]:
    """Asked of a worker: what came of a break, and after how many seconds.

    :param source: the changed file, and ``data``: the scenarios, packed.
    """
    start = time.monotonic()
    scenarios = unpacked(data)
    _import_libraries(setting)

    def work(task: _Try, begin: Begin) -> Any:
        return try_changed(task.drawn.change.file, source, task.cases, scenarios, setting, begin)

    [(_, came)] = in_forks([task], work, 1)
    return came, time.monotonic() - start


def _loaded(campaign: Campaign) -> list[Scenario]:
    paths = dict.fromkeys(path for path, _ in campaign.scenarios)
    files = {path: load_file(path, max_pool_bytes=campaign.max_pool_bytes) for path in paths}
    return [files[path][index] for path, index in campaign.scenarios]


def _import_libraries(setting: Setting) -> None:
    """Import what forks need besides the package, which they forget: the libraries below it stay."""
    from kvspec.harness.systems import find_system

    for name in (setting.system, setting.against):
        find_system(name)
    if setting.lifecycles:
        importlib.import_module("kvspec.audit.lifecycles")


def _warm(campaign: Campaign) -> None:
    _import_libraries(campaign.setting)
    if campaign.tests:
        importlib.import_module("pytest")


def _measured(campaign: Campaign, scenarios: Sequence[Scenario]) -> tuple[Lines, list[Measured]]:
    cases = [Case(_name(scenario), number, length=len(scenario.steps)) for number, scenario in enumerate(scenarios)]
    tests = [Case(path.as_posix(), path=str(path)) for path in campaign.tests]
    portions = min(len(cases), CHUNKS * campaign.jobs)
    # Files of tests take long, and import much of their own: each has a process of its own, the first ones.
    tasks = [(test,) for test in tests] + [tuple(cases[number::portions]) for number in range(portions)]

    def work(task: tuple[Case, ...], begin: Begin) -> Any:
        return measure(task, scenarios, campaign.setting, begin)

    imported: Lines = {}
    found: dict[Case, Measured] = {}
    for task, came in in_forks(tasks, work, campaign.jobs):
        if isinstance(came, Ended):
            found.update({case: Measured(case, f"{came.part}: {came.why}", 0.0, {}) for case in task})
            continue
        for file, lines in came[0].items():
            imported[file] = imported.get(file, 0) | lines
        found.update({case: Measured(case, *values) for case, values in zip(task, came[1], strict=True)})
    return imported, [found[case] for case in (*cases, *tests)]


def _chosen(drawn: Drawn, imported: Lines, measured: Sequence[Measured]) -> tuple[list[Measured], int | None]:
    """The cases that may notice a break, the likely and short ones first, and how many execute the statement.

    What an import executes, such as a constant, may show anywhere: first where anything of the file is executed.
    """
    change = drawn.change
    lines = (change.file, change.first, change.last)
    reached = [one for one in measured if reaches(one.lines, *lines)]
    if not reaches(imported, *lines):
        return sorted(reached, key=lambda one: one.case.length), len(reached)
    near = {one.case.name for one in measured if one.lines.get(change.file)}
    return sorted(measured, key=lambda one: (one.case.name not in near, one.case.length)), None


def _name(scenario: Scenario) -> str:
    return f"{scenario.position.path.as_posix()}: {scenario.name}"


def _tried(campaign: Campaign, scenarios: Sequence[Scenario], task: _Try, begin: Begin) -> Any:
    change = task.drawn.change
    source = changed(campaign.sources[change.file].text, change)
    return try_changed(change.file, source, task.cases, scenarios, campaign.setting, begin)


def _report(campaign: Campaign, task: _Try, came: Any, seconds: float) -> Report:
    change = task.drawn.change
    if isinstance(came, Ended):
        outcome = Outcome.LATE if came.late else Outcome.ENDED
        by, text, ran, lifecycles = came.part, came.why, _ran(task, came.part), 0
    else:
        by, text, ran, lifecycles = came
        outcome = Outcome.NOTICED if by else Outcome.SURVIVED
    before, after = before_and_after(campaign.sources[change.file].text, change)
    return Report(
        task.drawn.index,
        change.file,
        change.line,
        change.function,
        change.what,
        change.nth,
        before,
        after,
        outcome,
        by,
        " ".join(text.split()),
        task.reached,
        ran,
        lifecycles,
        round(seconds, 2),
        campaign.known.reason(change),
    )


def _ran(task: _Try, part: str) -> int:
    names = [one.case.name for one in task.cases]
    return names.index(part) + 1 if part in names else 0 if part == IMPORT else len(names)

"""What ``kvspec run`` prints at its end: the table, then what was skipped and why, then failures, then one line of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from kvspec.cli.wrapping import print_report
from kvspec.harness.difference import Result
from kvspec.harness.report import REFERENCE_ONLY, first_difference, path_text, summary, told

STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow", REFERENCE_ONLY: "cyan"}
"""By what is told of a result, in the order of columns."""
NUMBERS = 2 + 2 + 5 + 2 + 7 + 2 + 9
"""The width of a line of the table without the scenario's name."""
MAX_REPORTS = 10
"""How many failures, each with another first difference, are shown in full without ``--verbose``."""
MAX_POSITIONS = 3
"""How many of the scenarios that begin with the same difference are named."""
MAX_REASONS = 4
"""Up to so many different reasons are printed as they are; more are taken apart and counted."""
MAX_LACKS = 12
"""How many things that a system lacks are listed without ``--verbose``."""


def print_results(
    console: Console,
    results: Sequence[Result],
    reports: Mapping[int, RenderableType],
    verbose: bool = False,
    quiet: bool = False,
) -> None:
    """Print the results of a run, what was skipped, and the failures, which come last so that nobody has to scroll.

    :param reports: by the number of a failed result, its report.
    :param verbose: a line for each scenario instead of one for each folder, and every failure in full.
    :param quiet: the failures alone.
    """
    if not quiet:
        shown = [result for result in results if verbose or told(result) != "skipped"]
        for line in (_table(shown, console.width) if verbose else _folders(results)) if shown else ():
            console.print(line, soft_wrap=True)
        if shown:
            console.print()
        for reason in _skips(results, verbose):
            console.print(reason, style="yellow", markup=False)
    groups = _alike(results, reports)
    for number, group in enumerate(groups):
        if number == MAX_REPORTS and not verbose:
            break
        for number in group if verbose else group[:1]:
            print_report(console, reports[number])
            console.print()
        if not verbose and len(group) > 1:
            console.print(f"{len(group) - 1} more begin with: {_first(results[group[0]])}", style="bold red", markup=False)
            _positions(console, [results[number] for number in group[1:]])
            console.print()
    rest = [] if verbose else groups[MAX_REPORTS:]
    for group in rest:
        console.print(f"{len(group)} begin with: {_first(results[group[0]])}", style="bold red", markup=False)
        _positions(console, [results[number] for number in group])
    if rest:
        console.print()
    if not verbose and (len(groups) < len(reports) or rest):
        console.print("-v shows every failure in full", style="dim")


def _alike(results: Sequence[Result], reports: Mapping[int, RenderableType]) -> list[list[int]]:
    """The numbers of the failures, those that begin with the same difference together, and the shortest scenario first."""
    groups: dict[str, list[int]] = {}
    for number in sorted(reports, key=lambda number: (_length(results[number]), number)):
        groups.setdefault(_first(results[number]).partition(" [")[0], []).append(number)
    return list(groups.values())


def _length(result: Result) -> int:
    """How many steps have to be understood."""
    return 0 if result.failure is None else result.failure.step + 1


def _first(result: Result) -> str:
    """What a failure begins with: ``version after suspend [R6.4]``."""
    assert result.failure is not None
    return first_difference(result.failure)


def _positions(console: Console, results: Sequence[Result]) -> None:
    for result in results[:MAX_POSITIONS]:
        where = f"{path_text(result.position.path)}:{result.position.line}"
        console.print(f"  {where}  {result.name}", style="dim", markup=False, soft_wrap=True)
    if len(results) > MAX_POSITIONS:
        console.print(f"  and {len(results) - MAX_POSITIONS} more", style="dim", markup=False)


def counts(results: Sequence[Result]) -> str:
    """One line: verdicts, steps, time."""
    seconds = sum(result.seconds for result in results)
    steps = sum(result.steps for result in results)
    return f"{summary(results)} of {len(results)} scenarios, {steps} steps in {seconds:.1f} s of replay"


def _folders(results: Sequence[Result]) -> Iterator[Text]:
    """A line per folder: how many of its scenarios passed, failed and were skipped, and how long that took."""
    folders: dict[str, list[Result]] = {}
    for result in results:
        folders.setdefault(path_text(result.position.path.parent), []).append(result)
    lines = []
    for name, inside in folders.items():
        files = {path_text(result.position.path) for result in inside}
        lines.append((files.pop() if len(files) == 1 else name, inside))  # a single file says more than its folder
    width = max(len(name) for name, _ in lines)
    there = {told(result) for result in results}
    shown = [said for said in STYLES if said in there]
    for name, inside in lines:
        tally = Counter(told(result) for result in inside)
        line = Text(f"{name:{width}}")
        for said in shown:
            line.append(f"  {tally[said]:4d} {said}", STYLES[said] if tally[said] else "dim")
        line.append(f"  {sum(result.seconds for result in inside) * 1000:6.0f} ms", "dim")
        yield line


def _table(results: Sequence[Result], width: int) -> Iterator[Text]:
    """A line per scenario, under a line per file. The numbers always fit; the names have what is left."""
    files: dict[str, list[Result]] = {}
    for result in results:
        files.setdefault(path_text(result.position.path), []).append(result)
    names = min(max(len(result.name) for result in results), max(16, width - NUMBERS))
    yield Text(f"  {'scenario':{names}}  steps  result       time", "dim")
    for file, inside in files.items():
        tally = Counter(told(result) for result in inside)
        head = Text(file, "bold")
        for said in STYLES:
            if tally[said]:
                head.append(f"  {tally[said]} {said}", STYLES[said])
        yield head
        for result in inside:
            line = Text("  ")
            name = Text(result.name)
            name.truncate(names, overflow="ellipsis", pad=True)
            line.append_text(name)
            line.append(f"  {result.steps:5d}  ")
            line.append(f"{told(result):7}", STYLES[told(result)])
            line.append(f"  {result.seconds * 1000:6.0f} ms", "dim")
            yield line


def _skips(results: Sequence[Result], verbose: bool) -> Iterator[str]:
    skipped = [result for result in results if told(result) == "skipped"]
    if skipped:
        yield from _limits([result for result in skipped if not result.lacks], verbose)
        yield from _lacks([result for result in skipped if result.lacks], verbose)
        yield ""


def _limits(skipped: Sequence[Result], verbose: bool) -> Iterator[str]:
    listed = skipped if verbose else skipped[:MAX_REASONS]
    yield from (f"skipped {result.name!r} {result.reason}" for result in listed)
    if len(skipped) > len(listed):
        yield f"skipped {len(skipped) - len(listed)} more that the device could not go through; -v lists them"


def _lacks(skipped: Sequence[Result], verbose: bool) -> Iterator[str]:
    reasons = Counter(result.reason for result in skipped)
    if len(reasons) <= MAX_REASONS:
        yield from (f"skipped {count}: {reason}" for reason, count in sorted(reasons.items()))
        return
    # A system of one's own lacks many things in many mixtures: what each thing costs says which to do next.
    needed = Counter(lack for result in skipped for lack in result.lacks)
    alone = Counter(result.lacks[0] for result in skipped if len(result.lacks) == 1)
    listed = sorted(needed, key=lambda lack: (-alone[lack], -needed[lack], lack))
    width = max(map(len, listed))
    yield f"skipped {len(skipped)}, as the system lacks:"
    yield f"  {'':{width}}  scenarios  that lack nothing else"
    for lack in listed if verbose else listed[:MAX_LACKS]:
        yield f"  {lack:{width}}  {needed[lack]:9d}  {alone[lack]:5d}"
    if not verbose and len(listed) > MAX_LACKS:
        yield f"  and {len(listed) - MAX_LACKS} more things; -v lists them, and every scenario that was skipped"

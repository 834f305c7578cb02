"""What ``kvspec run`` prints at its end: the table, then what was skipped and why, then failures, then one line of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from kvspec.harness.difference import Result, Verdict
from kvspec.harness.report import path_text, summary

STYLES = {Verdict.PASSED: "green", Verdict.FAILED: "bold red", Verdict.SKIPPED: "yellow"}
NUMBERS = 2 + 2 + 5 + 2 + 7 + 2 + 9
"""The width of a line of the table without the scenario's name."""
MAX_REPORTS = 10
"""How many failures are shown in full without ``--verbose``."""
MAX_REASONS = 4
"""Up to so many different reasons are printed as they are; more are taken apart and counted."""
MAX_LACKS = 12
"""How many things that a system lacks are listed without ``--verbose``."""


def print_results(
    console: Console, results: Sequence[Result], reports: Mapping[int, RenderableType], commands: Mapping[int, str], verbose: bool
) -> None:
    """Print the table of a run, what was skipped, and the failures, which come last so that nobody has to scroll.

    :param reports: by the place of a failed result, its report; ``commands``: the line that repeats it.
    :param verbose: list skipped scenarios too, and show every failure in full.
    """
    shown = [result for result in results if verbose or result.verdict is not Verdict.SKIPPED]
    if shown:
        for line in _table(shown, console.width):
            console.print(line, soft_wrap=True)
        console.print()
    for reason in _skips(results, verbose):
        console.print(reason, style="yellow", markup=False)
    whole = list(reports) if verbose else list(reports)[:MAX_REPORTS]
    for number in whole:
        console.print(reports[number], soft_wrap=True)
        console.print()
    if len(whole) < len(reports):
        console.print(f"{len(reports) - len(whole)} more failed; -v shows them in full", style="bold red", markup=False)
        for number in list(reports)[len(whole) :]:
            console.print(f"reproduce: {commands[number]}", markup=False, soft_wrap=True)
        console.print()


def counts(results: Sequence[Result]) -> str:
    """One line: verdicts, steps, time."""
    seconds = sum(result.seconds for result in results)
    steps = sum(result.steps for result in results)
    return f"{summary(results)} of {len(results)} scenarios, {steps} steps in {seconds:.1f} s of replay"


def _table(results: Sequence[Result], width: int) -> Iterator[Text]:
    """A line per scenario, under a line per file. The numbers always fit; the names have what is left."""
    files: dict[str, list[Result]] = {}
    for result in results:
        files.setdefault(path_text(result.position.path), []).append(result)
    names = min(max(len(result.name) for result in results), max(16, width - NUMBERS))
    yield Text(f"  {'scenario':{names}}  steps  result       time", "dim")
    for file, inside in files.items():
        tally = Counter(result.verdict for result in inside)
        head = Text(file, "bold")
        for verdict in Verdict:
            if tally[verdict]:
                head.append(f"  {tally[verdict]} {verdict.value}", STYLES[verdict])
        yield head
        for result in inside:
            line = Text("  ")
            name = Text(result.name)
            name.truncate(names, overflow="ellipsis", pad=True)
            line.append_text(name)
            line.append(f"  {result.steps:5d}  ")
            line.append(f"{result.verdict.value:7}", STYLES[result.verdict])
            line.append(f"  {result.seconds * 1000:6.0f} ms", "dim")
            yield line


def _skips(results: Sequence[Result], verbose: bool) -> Iterator[str]:
    skipped = [result for result in results if result.verdict is Verdict.SKIPPED]
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

"""What ``kvspec run`` prints at its end: the table, then what was skipped and why, then failures, then one line of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from spec.harness.difference import Result, Verdict
from spec.harness.report import path_text, summary

STYLES = {Verdict.PASSED: "green", Verdict.FAILED: "bold red", Verdict.SKIPPED: "yellow"}
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
        console.print(_table(shown, console.width))
        console.print()
    for line in _skips(results, verbose):
        console.print(line, style="yellow", markup=False)
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


def folders(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by the folder of their file, in the order in which they come."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(path_text(result.position.path.parent), []).append(result)
    return found


def _table(results: Sequence[Result], width: int) -> Table:
    """A line per scenario, under a line per folder."""
    table = Table("scenario", "file", "steps", "result", "time", box=None, pad_edge=False, header_style="dim")
    longest = max(len(result.position.path.name) for result in results)
    files = table.columns[1]
    files.min_width = files.max_width = max(4, min(longest, width // 3))
    for place in (0, 1):
        table.columns[place].no_wrap, table.columns[place].overflow = True, "ellipsis"
    for place, fits in ((2, 5), (3, 7), (4, 8)):
        table.columns[place].min_width, table.columns[place].no_wrap = fits, True
    table.columns[2].justify = table.columns[4].justify = "right"
    for folder, inside in folders(results).items():
        tally = Counter(result.verdict for result in inside)
        said = ", ".join(f"[{STYLES[verdict]}]{tally[verdict]} {verdict.value}[/]" for verdict in Verdict if tally[verdict])
        table.add_row(f"[bold]{escape(folder)}[/]  {said}")
        for result in inside:
            table.add_row(
                f"  {escape(result.name)}",
                f"[dim]{escape(result.position.path.name)}[/]",
                str(result.steps),
                f"[{STYLES[result.verdict]}]{result.verdict.value}[/]",
                f"{result.seconds * 1000:.0f} ms",
            )
    return table


def _skips(results: Sequence[Result], verbose: bool) -> Iterator[str]:
    skipped = [result for result in results if result.verdict is Verdict.SKIPPED]
    reasons = Counter(result.reason for result in skipped)
    if len(reasons) <= MAX_REASONS:
        yield from (f"skipped {count}: {reason}" for reason, count in sorted(reasons.items()))
    else:
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
    if skipped:
        yield ""

"""``kvspec explore --replay``: every transition of a small model, up to a depth, through a system under test."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.explore.expanding import Path as Moves
    from kvspec.audit.explore.expanding import Plan
    from kvspec.audit.explore.replaying import Replayed
    from kvspec.audit.explore.search import Answering
    from kvspec.audit.explore.touring import Tour


@dataclass(slots=True)
class Campaign:
    """What has come of the replays. ``failed``: the walk on which the systems differ, the first of them, ``failing`` its
    number. ``lost``: why there was no answer.
    """

    walks: int = 0
    steps: int = 0
    unfinished: str = ""
    lost: str = ""
    failed: tuple[Moves, Replayed] | None = None
    failing: int = 0


def replay(
    console: Console, plan: Plan, depth: int, system: str, options: Mapping[str, str], answering: Answering, output: Path | None
) -> bool:
    """Replay everything; whether the systems agree. Ends at the first difference, which is shown with the shortest path to it."""
    from kvspec.audit.explore.expanding import Walker
    from kvspec.audit.explore.search import explore
    from kvspec.audit.explore.touring import Tour

    start = time.monotonic()
    done = explore(plan, depth - 1, answering) if depth > 1 else explore(plan, 0, answering)
    tour = Tour(done, Walker(plan), depth)
    campaign = _go_through(console, tour, plan, system, options, answering)
    seconds = time.monotonic() - start
    if campaign.failed is not None:
        _tell(console, tour, plan, campaign.failed, system, options, answering, output)
    for what in (campaign.lost, campaign.unfinished):
        if what:
            console.print(f"not finished: {what}", style="bold red", markup=False, soft_wrap=True)
    agree = not (campaign.failed or campaign.lost or campaign.unfinished)
    console.print(
        f"{len(tour.had):,} transitions of {len(tour.numbers):,} states to depth {depth}: {campaign.walks:,} walks, "
        f"{campaign.steps:,} steps through {system}, {seconds:.1f} s, {'no difference' if agree else 'stopped there'}",
        soft_wrap=True,
    )
    return agree


def _go_through(
    console: Console, tour: Tour, plan: Plan, system: str, options: Mapping[str, str], answering: Answering
) -> Campaign:
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    from kvspec.audit.explore.replaying import replay_walk
    from kvspec.harness.watch import DEFAULT_SECONDS
    from kvspec.harness.workers import Ended

    campaign, asked, walks = Campaign(), {}, enumerate(tour.walks())

    def more() -> None:
        if not (campaign.failed or campaign.lost):
            for number, walk in itertools.islice(walks, max(0, answering.ahead - answering.unanswered)):
                asked[number] = walk
                answering.ask(number, replay_walk, plan, walk, system, options, number, DEFAULT_SECONDS)

    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        more()
        while answering.unanswered:
            for number, answer in answering.answers():
                assert isinstance(number, int)
                walk = asked.pop(number)
                if isinstance(answer, Ended):
                    campaign.lost = answer.why
                    continue
                campaign.walks += 1
                campaign.steps += answer.steps
                campaign.unfinished = campaign.unfinished or answer.unfinished
                if answer.found is not None and (campaign.failed is None or number < campaign.failing):
                    campaign.failed, campaign.failing = (walk, answer), number
                text = f"{campaign.walks:,} walks, {campaign.steps:,} steps, {len(tour.had):,} transitions"
                progress.update(bar, description=text)
                more()
    return campaign


def _tell(
    console: Console,
    tour: Tour,
    plan: Plan,
    failed: tuple[Moves, Replayed],
    system: str,
    options: Mapping[str, str],
    answering: Answering,
    output: Path | None,
) -> None:
    """The difference, by the shortest path that shows it."""
    from rich.syntax import Syntax

    from kvspec.audit.explore.replaying import Replayed, at_operation, replay_first
    from kvspec.cli.wrapping import print_report
    from kvspec.harness.report import failure_report
    from kvspec.harness.watch import DEFAULT_SECONDS

    walk, replayed = failed
    assert replayed.found is not None
    failure = replayed.found.result.failure
    number = -1 if failure is None else at_operation(plan, walk, failure.step)
    shorter = tour.shortest(walk, number) if number >= 0 else []
    length = number + 1
    if shorter:
        answering.ask("shorter", replay_first, plan, shorter, system, options, DEFAULT_SECONDS)
        for _, answer in answering.answers():
            if isinstance(answer, Replayed) and answer.found is not None:
                replayed, length = answer, len(shorter[0])
    found = replayed.found
    assert found is not None
    where = output or Path("explored.yaml")
    print_report(console, failure_report(found.result, (plan.against, system), f"kvspec run {where} --system {system}"))
    console.print(f"the shortest path to it: {length} operations from where the model begins")
    if output is None:
        console.print(Syntax(found.text, "yaml", word_wrap=True))
    else:
        output.write_text(found.text, encoding="utf-8")
        console.print(f"{output}: written", markup=False, soft_wrap=True)

"""What is said of lifecycles: at once, at the end, and of those that were stopped."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kvspec.cli.fuzzing.plan import ANY, SMALL, Plan, Tally
from kvspec.cli.random_mutants import ranges

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.lifecycles import Found
    from kvspec.harness.difference import Failure
    from kvspec.harness.workers import Ended

MOST_NAMED = 16
"""Of so many stopped lifecycles at most it is said where each was."""


def tell_under_way(console: Console, tally: Tally) -> None:
    """Which lifecycles were stopped, and where each was."""
    for seed, where in sorted(tally.under_way.items()) if len(tally.under_way) <= MOST_NAMED else ():
        step, frames = _step_and_frames(where)
        console.print(f"running: lifecycle {seed}{step}", style="bold", markup=False)
        for frame in frames:
            console.print(f"  {frame}", style="dim", markup=False, soft_wrap=True)
    order = sorted(tally.under_way)
    seeds = ", ".join(map(str, order) if len(order) <= MOST_NAMED else ranges(order).split(","))
    console.print(f"these were running: {seeds}; run one alone with --first SEED --seeds 1", soft_wrap=True)


def _step_and_frames(where: Failure | Ended | None) -> tuple[str, tuple[str, ...]]:
    if where is None:
        return "", ()
    if hasattr(where, "frames"):
        return f" at step {where.step}" if where.step >= 0 else "", where.frames
    return f" at step {where.step}, {where.verb}", where.differences[0].detail


def report_lost(console: Console, seed: int, ended: Ended, plan: Plan) -> None:
    """A lifecycle that took its process with it."""
    step, frames = _step_and_frames(ended)
    console.print(f"lifecycle {seed} gave no answer{step}: {ended.why}", style="bold red", markup=False, soft_wrap=True)
    for frame in frames:
        console.print(f"  {frame}", style="dim", markup=False, soft_wrap=True)
    console.print(f"reproduce: {_command(seed, plan)}", markup=False, soft_wrap=True)


def report_at_once(console: Console, found: Found, output: Path | None, seconds: float) -> None:
    """It is known how long it took to find it, and nothing is lost if the run is stopped while the failure is made shorter."""
    failure = found.result.failure
    where = "" if failure is None else f" at step {failure.step}, {failure.verb}"
    path = write(found, output)
    console.print(
        f"lifecycle {found.seed} differs{where}, after {seconds:.1f} s: shrinking it{f'; {path}' if path else ''}",
        soft_wrap=True,
    )


def report(console: Console, found: Found, plan: Plan, output: Path | None) -> None:
    """A failure with the scenario that shows it, which is written if there is a folder for it."""
    from rich.syntax import Syntax

    from kvspec.cli.wrapping import print_report
    from kvspec.harness.report import failure_report

    print_report(console, failure_report(found.result, (plan.against, plan.system), _command(found.seed, plan)))
    path = write(found, output)
    if path is None:
        console.print(Syntax(found.text, "yaml", word_wrap=True))
    else:
        console.print(f"[bold]{path}[/bold]")


def _command(seed: int, plan: Plan) -> str:
    """The line that repeats a lifecycle; it says what is not the default."""
    parts = ["kvspec", "fuzz", "--first", str(seed), "--seeds", "1"]
    asked = {"steps": str(plan.steps), "system": plan.system, "against": plan.against, **plan.options}
    for name, value in asked.items():
        if value != {"steps": "60", "system": "kvgpu", "against": "kvref", "device": "auto", "schedule": "fifo"}[name]:
            parts += [f"--{name}", value]
    parts += [] if plan.profile == SMALL else ["--profile", plan.profile]
    parts += [] if plan.ownership == ANY else ["--ownership", plan.ownership]
    parts += [] if plan.fetches == ANY else ["--fetches", plan.fetches]
    parts += ["--steer"] if plan.steer else []
    parts += [f"--no-{name}" for name, on in (("gates", plan.gates), ("faults", plan.faults)) if not on]
    return shlex.join(parts)


def write(found: Found, output: Path | None) -> Path | None:
    """Write the scenario of a failure into a folder, if there is one: the file."""
    if output is None:
        return None
    path = output / f"lifecycle-{found.seed}.yaml"
    path.write_text(found.text)
    return path

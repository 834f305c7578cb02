"""``kvspec fuzz``: random lifecycles through both systems."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spec.audit.lifecycles import Found


def fuzz(
    seeds: Annotated[int, typer.Option(min=1, help="How many lifecycles.")] = 200,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Operations in each.")] = 60,
    system: Annotated[str, typer.Option(help="The system under test.")] = "kvgpu",
    against: Annotated[str, typer.Option(help="The reference.")] = "kvref",
    device: Annotated[str, typer.Option(help="auto, sim or cuda.")] = "auto",
    schedule: Annotated[str, typer.Option(help="fifo, adversarial or seed=N.")] = "fifo",
    seconds: Annotated[float | None, typer.Option(help="Stop after so long, whatever is left.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a core.")] = None,
    output: Annotated[Path | None, typer.Option(help="A folder for the scenarios of failures.")] = None,
    keep_going: Annotated[bool, typer.Option(help="Go on after the first failure.")] = False,
    gates: Annotated[bool, typer.Option(help="Close and open gates.")] = True,
    faults: Annotated[bool, typer.Option(help="Have copies refused.")] = True,
) -> None:
    """Run random lifecycles through both systems, and shrink whatever differs to a short scenario."""
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

    from rich.console import Console
    from rich.syntax import Syntax

    from spec.harness.report import failure_report

    console = Console()
    options = {"device": device, "schedule": schedule}
    start = time.monotonic()
    found: list[Found] = []
    done = 0
    queue = iter(range(first, first + seeds))
    with ProcessPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        running: set[Future[Found | None]] = set()
        more = True
        while more or running:
            while more and len(running) < 4 * (jobs or os.cpu_count() or 1):
                seed = next(queue, None)
                late = seconds is not None and time.monotonic() - start > seconds
                if seed is None or late or (found and not keep_going):
                    more = False
                    break
                running.add(pool.submit(_one, seed, steps, system, against, options, gates, faults))
            if not running:
                break
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                done += 1
                result = future.result()
                if result is not None:
                    found.append(result)
    for one in sorted(found, key=lambda f: f.seed):
        command = f"kvspec fuzz --first {one.seed} --seeds 1 --steps {steps} --system {system} --against {against}"
        console.print(failure_report(one.result, (against, system), command))
        if output is None:
            console.print(Syntax(one.text, "yaml", word_wrap=True))
        else:
            output.mkdir(parents=True, exist_ok=True)
            path = output / f"lifecycle-{one.seed}.yaml"
            path.write_text(one.text)
            console.print(f"[bold]{path}[/bold]")
    console.print(f"{done} lifecycles of {steps} steps, {len(found)} failed, {time.monotonic() - start:.1f} s")
    if found:
        raise typer.Exit(1)


def _one(seed: int, steps: int, system: str, against: str, options: dict[str, str], gates: bool, faults: bool) -> Found | None:
    from spec.audit.lifecycles import hunt
    from spec.audit.managers import Profile
    from spec.harness.replay import Named
    from spec.harness.systems import find_system

    profile = Profile(gates=gates, faults=faults)
    named = (Named(system, find_system(system)), Named(against, find_system(against)))
    return hunt(seed, steps, *named, options, profile)

"""``kvspec check``: whether scenario files are right, without running them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES, read
from kvspec.language.titles import repeated_names
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files, suite_path

MAX_SHOWN = 50
"""How many problems of one file are printed."""


def check(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Check scenario files without running them.

    Exit status: 0 all files are valid, 2 a file is not.
    """
    asked = paths or [suite_or_exit()]
    files = scenario_files(asked)
    if not files:
        typer.echo(f"no scenario in {', '.join(map(str, asked))}: expected YAML files that say kvspec:", err=True)
        raise typer.Exit(2)
    scenarios: list[Scenario] = []
    problems = 0
    wrong: set[Path] = set()
    for path in files:
        loaded = read(path, max_pool_bytes=max_pool_bytes)
        for problem in loaded.problems[:MAX_SHOWN]:
            typer.echo(str(problem))
        if len(loaded.problems) > MAX_SHOWN:
            typer.echo(f"{path}: and {len(loaded.problems) - MAX_SHOWN} more problems")
        if not loaded.problems:
            steps = sum(len(scenario.steps) for scenario in loaded.scenarios)
            typer.echo(f"{path}: ok, {_count(len(loaded.scenarios), 'scenario')}, {_count(steps, 'step')}")
            scenarios += loaded.scenarios
        else:
            problems += len(loaded.problems)
            wrong.add(path)
    for problem in repeated_names(scenarios):
        typer.echo(str(problem))
        problems += 1
        wrong.add(problem.position.path)
    if problems:
        typer.echo(f"{_count(problems, 'problem')} in {len(wrong)} of {_count(len(files), 'file')}")
        raise typer.Exit(2)
    typer.echo(f"{_count(len(files), 'file')}, {_count(len(scenarios), 'scenario')}, all right")


def suite_or_exit() -> Path:
    """The folder of the suite; where there is none, a message and exit 2."""
    try:
        return suite_path()
    except FileNotFoundError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

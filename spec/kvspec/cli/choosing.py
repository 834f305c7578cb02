"""The scenarios that a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from kvspec.cli.check import MAX_SHOWN, suite_or_exit
from kvspec.cli.refusing import refuse
from kvspec.language.loader import read
from kvspec.language.titles import repeated_names
from kvspec.scenario import Scenario
from kvspec.suite import Asked, asked_files


def chosen_scenarios(paths: Sequence[Path] | None, expression: str | None, max_pool_bytes: int) -> list[Scenario]:
    """The scenarios that a command line asks for; leaves with what is wrong if there are none, or a file is wrong."""
    from kvspec.harness.select import SelectionError, select

    asked = paths or [suite_or_exit()]
    scenarios: list[Scenario] = []
    read_so_far: list[Scenario] = []
    wrong = 0
    for file in asked_files(asked):
        loaded = read(file.path, max_pool_bytes=max_pool_bytes)
        for problem in loaded.problems[:MAX_SHOWN]:
            typer.echo(str(problem), err=True)
        if len(loaded.problems) > MAX_SHOWN:
            typer.echo(f"{file.path}: and {len(loaded.problems) - MAX_SHOWN} more problems", err=True)
        wrong += bool(loaded.problems)
        scenarios += _at_lines(file, loaded.scenarios)
        read_so_far += loaded.scenarios
    for problem in repeated_names(read_so_far):
        typer.echo(str(problem), err=True)
        wrong += 1
    if wrong:
        refuse(f"{wrong} {'file is' if wrong == 1 else 'files are'} wrong: nothing was run")
    if not scenarios:
        refuse(f"nothing to run: no scenario in {', '.join(map(str, asked))}: expected YAML files that say kvspec:")
    if expression is None:
        return scenarios
    try:
        chosen = select(scenarios, expression)
    except SelectionError as error:
        refuse(str(error))
    if not chosen:
        refuse(f"nothing to run: -k {expression!r} matches none of {len(scenarios)} scenarios, by name, tag or rule")
    return chosen


def _at_lines(file: Asked, scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios of a file that its lines, if it was asked for by lines, belong to: those whose text ends at or after one."""
    if not file.lines or not scenarios:
        return list(scenarios)
    chosen = {
        next((number for number, one in enumerate(scenarios) if one.steps[-1].last_line >= line), len(scenarios) - 1)
        for line in file.lines
    }
    return [scenarios[number] for number in sorted(chosen)]

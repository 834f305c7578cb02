"""``kvspec vectors``: what must come of every step, as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, refuse
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES


def vectors(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write to; it is made if need be.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Files, or folders to search; the suite if left out.")] = None,
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    system: Annotated[str, typer.Option(help="Whose outcomes and states.")] = "kvref",
) -> None:
    """Write what every step returns and what is seen after it: a JSON file for each scenario file, the same bytes every time.

    For those who cannot drive a process; docs/vectors.md says how to compare. `kvspec schema --vectors` is their schema.
    """
    from kvspec.wire import vectors as made

    scenarios = chosen_scenarios(paths, expression, DEFAULT_MAX_POOL_BYTES)
    factory = found_system(system)
    try:
        names = made.places(scenarios)
        steps = 0
        for file, several in itertools.groupby(scenarios, key=lambda one: one.position.path.resolve()):
            found = [made.vectors(scenario, factory) for scenario in several]
            steps += sum(len(one.steps) for one in found)
            _write(output / f"{names[file]}.json", made.written(f"{names[file]}{file.suffix}", found))
    except made.NoVectors as error:
        refuse(str(error), 1)
    typer.echo(f"{output}: {len(names)} files, {len(scenarios)} scenarios, {steps} steps")


def _write(path: Path, lines: Iterator[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        refuse(f"--output {path}: cannot be written: {(error.strerror or 'no reason given').lower()}")

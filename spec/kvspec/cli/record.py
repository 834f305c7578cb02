"""``kvspec record``: what the reference answers, as a draft of what a scenario expects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, refuse
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES


def record(
    file: Annotated[Path, typer.Argument(help="A scenario file. It is changed, unless --print is given.")],
    only_print: Annotated[bool, typer.Option("--print", help="Print the result instead of changing the file.")] = False,
    system: Annotated[str, typer.Option(help="The system whose answers are written.")] = "kvref",
) -> None:
    """Fill in what the reference answers at each step that expects nothing yet, marked as a draft.

    A draft tests nothing until a person has checked it. Each new line ends in `# draft`, and the scenario gets the tag `draft`,
    so that every run reminds you. Check each value against the rules, then remove the marks.
    """
    from kvspec.audit.recording import CannotRecord, recorded

    scenarios = chosen_scenarios([file], None, DEFAULT_MAX_POOL_BYTES)
    path = scenarios[0].position.path
    text = path.read_text(encoding="utf-8")
    try:
        after, count, left = recorded(text, scenarios, found_system(system), system)
    except CannotRecord as error:
        refuse(str(error), 1)
    for reason in left:
        typer.echo(reason, err=True)
    if only_print:
        typer.echo(after, nl=False)
        return
    if not count:
        typer.echo(f"{path}: nothing to record: every step says something already")
        return
    path.write_text(after, encoding="utf-8")
    steps = "1 step has" if count == 1 else f"{count} steps have"
    typer.echo(f"{path}: {steps} a draft now: confirm each against the rules, then take away the marks `# draft` and the tag")

"""``kvspec conform``: whether a command speaks the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvspec.cli.refusing import found_system, refuse
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES
from kvspec.system import COMMAND


def conform(
    command: Annotated[str, typer.Argument(help="The command, with or without cmd: before it.")],
    manager: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A scenario whose manager it can build; else the smallest there is.")
    ] = None,
) -> None:
    """Check that a command speaks the protocol of docs/protocol.md: each message, wrong ones, and the end of the input.

    Exit 0 if it does, 1 if not. Whether it does the right thing is for kvspec run and kvspec fuzz.
    """
    from kvspec.cli.choosing import chosen_scenarios
    from kvspec.wire.client import Command
    from kvspec.wire.conform import conform as checked

    asked = None if manager is None else chosen_scenarios([manager], None, DEFAULT_MAX_POOL_BYTES)[0].manager
    factory = found_system(command if command.startswith(COMMAND) else COMMAND + command)
    assert isinstance(factory, Command)
    wrong = 0
    for one in checked(factory, asked):
        typer.echo(f"{'WRONG' if one.wrong else 'ok   '}  {one.title}")
        if one.wrong:
            wrong += 1
            typer.echo(f"       {one.wrong}")
    if wrong:
        refuse(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong", 1)

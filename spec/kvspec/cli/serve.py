"""``kvspec serve``: a system behind standard input and output."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from kvspec.cli.refusing import found_system


def serve(system: Annotated[str, typer.Option(help="The system: a name, or package.module:Class.")] = "kvref") -> None:
    """Answer the messages of docs/protocol.md, a JSON object a line, until the input ends: to step a system from any language.

    What the system itself prints goes to standard error, since standard output is for answers alone.
    """
    from kvspec.wire.server import Server

    factory = found_system(system)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers, os.fdopen(os.dup(sys.stdin.fileno()), "rb") as messages:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        Server(system, factory).serve(messages, answers)

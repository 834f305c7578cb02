"""The entry point of ``kvspec``: finds the command, and lets no traceback reach a user.

A command is a function with typer options in a module of its own, which is imported only when the command is
asked for or listed; such a module imports whatever is slow (numpy, numba, systems) inside the function.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kvspec.nearest import nearest

COMMANDS: dict[str, str] = {
    "run": "kvspec.cli.run:run",
    "check": "kvspec.cli.check:check",
    "show": "kvspec.cli.show:show",
    "explain": "kvspec.cli.explain:explain",
    "rules": "kvspec.cli.rules:rules",
    "profiles": "kvspec.cli.profiles:profiles",
    "new": "kvspec.cli.new:new",
    "record": "kvspec.cli.record:record",
    "fmt": "kvspec.cli.fmt:fmt",
    "schema": "kvspec.cli.schema:schema",
    "compare": "kvspec.cli.compare:compare",
    "serve": "kvspec.cli.serve:serve",
    "vectors": "kvspec.cli.vectors:vectors",
    "conform": "kvspec.cli.conform:conform",
    "fuzz": "kvspec.cli.fuzz:fuzz",
    "reached": "kvspec.cli.reached:reached",
    "coverage": "kvspec.cli.coverage:coverage",
    "explore": "kvspec.cli.explore:explore",
    "gates": "kvspec.cli.gates:gates",
    "sweep": "kvspec.cli.sweep:sweep",
    "mutants": "kvspec.cli.mutants:mutants",
    "vacuity": "kvspec.cli.vacuity:vacuity",
}
"""Every command and where its function is, in the order of the help."""

EXIT_WRONG = 2
"""A file or the usage is wrong."""
EXIT_INTERNAL = 70
"""kvspec itself is wrong (EX_SOFTWARE)."""
EXIT_INTERRUPTED = 130
"""As a shell reports SIGINT."""
EXIT_PIPE = 141
"""As a shell reports SIGPIPE."""


class _Commands(TyperGroup):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; a usage error, with the nearest name, if there is none."""
        if cmd_name not in COMMANDS:
            near = nearest(cmd_name, COMMANDS)
            ctx.fail(f"No such command {cmd_name!r}." + (f" Did you mean {near!r}?" if near else ""))
        module, _, function = COMMANDS[cmd_name].partition(":")
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(_guarded(getattr(importlib.import_module(module), function)))
        return typer.main.get_command(one)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvspec {importlib.metadata.version('kvspec')}")
        raise typer.Exit


@app.callback()
def _kvspec(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Describe in YAML what a KV-cache workload does, and check a cache manager against the reference after every step."""


def main() -> None:
    """Run the command line. Exits: 0 all is well, 1 a failure, 2 a wrong file or usage."""
    for stream in (sys.stdout, sys.stderr):
        # A file name or a token that the terminal cannot show is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _leave_pipe()
    except Exception as error:
        _explain(error)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_pipe()


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    """The function, with exits of its own for what typer would report in its way."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _leave_pipe()

    return call


def _leave_pipe() -> None:
    """Exit quietly: nobody reads any more, and the interpreter must not try to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(EXIT_PIPE)


def _explain(error: Exception) -> None:
    """Exit with one line about a mistake in kvspec itself."""
    if os.environ.get("KVSPEC_DEBUG"):
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    text = " ".join(str(error).split()) or "no message"
    print(f"kvspec: internal error at {where}: {type(error).__name__}: {text}", file=sys.stderr)
    print("This is a mistake in kvspec; with KVSPEC_DEBUG=1 it prints the traceback.", file=sys.stderr)
    sys.exit(EXIT_INTERNAL)

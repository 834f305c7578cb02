"""``kvspec fmt``: scenario files in their canonical form."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated

import typer

from kvspec.cli.check import MAX_SHOWN, suite_or_exit
from kvspec.cli.refusing import refuse
from kvspec.language.loader import read_bytes
from kvspec.suite import scenario_files


def fmt(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print what would change.")] = False,
) -> None:
    """Rewrite scenario files in one standard form. Comments stay; an invalid file is left alone."""
    from kvspec.language.formatting import CannotFormat, formatted

    asked = paths or [suite_or_exit()]
    files = scenario_files(asked)
    if not files:
        refuse(f"no scenario in {', '.join(map(str, asked))}: expected YAML files that say kvspec:")
    changed = wrong = 0
    for path in files:
        try:
            data = path.read_bytes()
        except OSError as error:
            refuse(f"{path}: cannot be read: {(error.strerror or 'no reason given').lower()}")
        loaded = read_bytes(path, data)
        for problem in loaded.problems[:MAX_SHOWN]:
            typer.echo(str(problem), err=True)
        if loaded.problems:
            wrong += 1
            continue
        before = data.decode("utf-8-sig")
        try:
            after = formatted(path, before)
        except CannotFormat as error:
            typer.echo(str(error), err=True)
            wrong += 1
            continue
        if after == before:
            continue
        changed += 1
        if diff:
            lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
            typer.echo("".join(difflib.unified_diff(*lines, str(path), str(path))), nl=False)
        elif check:
            typer.echo(f"{path}: not in its canonical form")
        else:
            _write(path, after)
            typer.echo(f"{path}: formatted")
    kept = len(files) - changed - wrong
    done = "would change" if check or diff else "changed"
    typer.echo(f"{changed} {done}, {kept} as they were" + (f", {wrong} could not be formatted" if wrong else ""))
    if wrong or (check and changed):
        raise typer.Exit(2 if wrong else 1)


def _write(path: Path, text: str) -> None:
    """Replace the file at once: half a scenario must never stand there."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        refuse(f"{path}: cannot be written: {(error.strerror or 'no reason given').lower()}")

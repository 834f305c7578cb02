"""Which scenarios failed when they last ran, kept by the folder where kvspec was called, in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvspec.scenario import Scenario

if TYPE_CHECKING:
    from kvspec.harness.difference import Result


def failed_last(scenarios: list[Scenario]) -> list[Scenario]:
    """Those that failed when they last ran; all, and a word about it, if none of them did."""
    failed = _read()
    chosen = [one for one in scenarios if _name(one) in failed]
    if not chosen:
        typer.echo("none of these failed when it last ran here: all are run", err=True)
    return chosen or scenarios


def remember(results: Sequence[Result]) -> None:
    """Take over what has run; what has not is remembered as it was. Where nothing can be written, nothing is remembered."""
    failed = _read()
    now = {name for name in failed if name not in {_name(one) for one in results}}
    now |= {_name(one) for one in results if one.verdict.value == "failed"}
    if now == failed:
        return
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(sorted(now), file)
        os.replace(file.name, path)


def _path() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kvspec" / f"failed-{hashlib.sha256(os.fsencode(os.getcwd())).hexdigest()[:16]}.json"


def _read() -> set[tuple[str, str]]:
    try:
        return {(str(path), str(name)) for path, name in json.loads(_path().read_text())}
    except (OSError, ValueError, TypeError):
        return set()


def _name(one: Scenario | Result) -> tuple[str, str]:
    return str(one.position.path.resolve()), one.name

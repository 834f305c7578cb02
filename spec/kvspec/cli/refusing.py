"""Leaving with a message about the usage, before anything is run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from kvspec.harness.systems import Factory
    from kvspec.system import Setup


def refuse(message: str, code: int = 2) -> NoReturn:
    """Leave with a message about the usage."""
    typer.echo(message, err=True)
    raise typer.Exit(code)


def must_be_writable(option: str, path: Path) -> None:
    """Leave if a file cannot be written, before anything is run for it."""
    if path.is_dir():
        refuse(f"{option} {path}: cannot be written: it is a folder")
    if not path.absolute().parent.is_dir():
        refuse(f"{option} {path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        refuse(f"{option} {path}: cannot be written: permission denied")


def must_be_folder(option: str, path: Path) -> None:
    """Leave if nothing could be written into a folder, which is made if need be, before anything is run for it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(f"{option} {path}: expected a folder to write into: {(error.strerror or 'no reason given').lower()}")
    if not os.access(path, os.W_OK):
        refuse(f"{option} {path}: cannot be written: permission denied")


def must_build(name: str, factory: Factory, setup: Setup, code: int = 2) -> None:
    """Leave with ``code`` and the reason if a system cannot be built with device cuda."""
    try:
        factory(setup).close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a system raises where its device is not there
        text = " ".join(str(error).split()) or type(error).__name__
        refuse(f"{name} cannot be built with device cuda: {text}", code)


def must_be_schedule(schedule: str | None) -> None:
    """Leave with what a schedule is if this is none."""
    if schedule is not None and re.fullmatch(r"fifo|adversarial|seed=\d{1,18}", schedule) is None:
        refuse(f"--schedule {schedule}: expected fifo, adversarial or seed=N")


def must_differ(system: str, against: str) -> None:
    """Leave if a system is compared with itself, which finds nothing."""
    if system == against:
        refuse(f"--system {system} --against {against}: a system always agrees with itself: name two")


def found_system(name: str) -> Factory:
    """The factory of a system; leaves with what there is if there is none of that name."""
    from kvspec.harness.systems import SystemNotFound, find_system

    try:
        return find_system(name)
    except SystemNotFound as error:
        refuse(str(error))

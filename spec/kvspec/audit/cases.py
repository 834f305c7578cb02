"""What a changed program is held against, one case after the other: scenarios, files of tests, random lifecycles.

All of this runs in a process of its own, in which the package has been forgotten: nothing here may be imported before from the
harness, or from what uses it, since the harness may be what is changed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvspec.audit.changed_import import clear_caches, folder_above, forget, import_changed, module_of, package_folder
from kvspec.audit.executed import Lines, executed
from kvspec.audit.forks import Begin
from kvspec.scenario import Scenario

IMPORT = "import"
"""The part of the work in which the package is imported."""
FACTOR = 20.0
"""So many times what it takes on the CPU with nothing changed, a case may take besides ``Setting.patience``."""

USERS = ("kvspec.harness", "kvspec.audit", "kvspec.cli", "kvspec.plugin", "tests")
"""What must be imported anew with the harness, or with what it is made of."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is green with nothing changed: a scenario, or with ``scenario`` -1 a file of tests.

    ``length``: steps of a scenario; tests take longer than any.
    """

    name: str
    scenario: int = -1
    path: str = ""
    length: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Measured:
    """A case with nothing changed. ``red``: why it is not green. ``seconds``: on the CPU. ``lines``: what it executed."""

    case: Case
    red: str
    seconds: float
    lines: Lines = field(hash=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """What the cases run with: the package, names of the systems and options of both, random lifecycles, how many and how long.

    ``patience``: seconds on the CPU that any case may take.
    """

    package: str
    system: str
    against: str
    options: Mapping[str, str]
    lifecycles: int = 0
    steps: int = 60
    patience: float = 5.0


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a changed program. ``by``: the case that noticed, or empty. ``ran``: how many were tried."""

    by: str
    text: str
    ran: int
    lifecycles: int


def measure(cases: Sequence[Case], scenarios: Sequence[Scenario], setting: Setting, begin: Begin) -> Any:
    """The cases with nothing changed: the lines that an import executes, and of each case ``red``, seconds and lines."""
    folders = package_folder(setting.package), folder_above(setting.package)
    begin(IMPORT, 600.0)
    _forget(setting.package)
    with executed(*folders) as imported:
        _import_all(setting)
    found = []
    for case in cases:
        begin(case.name, 1200.0)
        clear_caches(setting.package)
        start = time.process_time()
        with executed(*folders) as lines:
            red = _red(case, scenarios, setting)
        found.append((red, time.process_time() - start, lines))
    return imported, found


def try_changed(
    file: str, source: bytes, cases: Sequence[Measured], scenarios: Sequence[Scenario], setting: Setting, begin: Begin
) -> tuple[str, str, int, int]:
    """Import a package with a changed module, and run cases until one notices: the values of ``Tried``."""
    begin(IMPORT, 60.0)
    _forget(setting.package)
    import_changed(module_of(file), source)
    try:
        _import_all(setting)
    except BaseException as error:
        return IMPORT, f"{type(error).__name__}: {error}", 0, 0
    for number, measured in enumerate(cases):
        begin(measured.case.name, setting.patience + FACTOR * measured.seconds)
        try:
            red = _red(measured.case, scenarios, setting)
        except BaseException as error:  # of the harness, which is what is changed
            red = f"{type(error).__name__}: {error}"
        if red:
            return measured.case.name, red, number + 1, 0
    for seed in range(setting.lifecycles):
        name = f"lifecycle {seed}"
        begin(name, 120.0)
        try:
            red = _lifecycle(seed, setting)
        except BaseException as error:
            red = f"{type(error).__name__}: {error}"
        if red:
            return name, red, len(cases), seed + 1
    return "", "", len(cases), setting.lifecycles


def _forget(package: str) -> None:
    shared = package == "kvspec" or package.startswith("kvspec.")
    forget((package, *(USERS if shared else ("tests",))))


def _import_all(setting: Setting) -> None:
    from kvspec.harness.systems import find_system

    for name in (setting.system, setting.against):
        find_system(name)
    if setting.package.startswith("kvspec"):
        importlib.import_module("kvspec.harness.replay")


def _red(case: Case, scenarios: Sequence[Scenario], setting: Setting) -> str:
    return _replayed(scenarios[case.scenario], setting) if case.scenario >= 0 else _tested(case.path)


def _replayed(scenario: Scenario, setting: Setting) -> str:
    from kvspec.harness.difference import Verdict
    from kvspec.harness.replay import Named, replay
    from kvspec.harness.systems import find_system

    named = [Named(name, find_system(name)) for name in (setting.system, setting.against)]
    result = replay(scenario, named[0], named[1], setting.options)
    if result.verdict is not Verdict.FAILED:
        return ""
    failure = result.failure
    if failure is None or not failure.differences:
        return "failed"
    return f"step {failure.step}, {failure.verb}: {failure.differences[0].subject}"


def _lifecycle(seed: int, setting: Setting) -> str:
    from kvspec.audit.lifecycles import try_lifecycle
    from kvspec.audit.managers import Profile
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import find_system

    system, against = (Named(name, find_system(name)) for name in (setting.system, setting.against))
    found = try_lifecycle(seed, setting.steps, system, against, setting.options, Profile()).found
    if found is None or found.result.failure is None:
        return ""
    failure = found.result.failure
    return f"step {failure.step}, {failure.verb}: {failure.differences[0].subject}"


class _Watch:
    """A pytest plugin that remembers the first test that failed."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = str(report.nodeid)


def _tested(path: str) -> str:
    import pytest

    watch = _Watch()
    own = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
    status = int(pytest.main([*own, path], plugins=[watch]))
    return "" if status == 0 else watch.failed or f"pytest ended with status {status}"


def test_files(paths: Sequence[Path]) -> list[Path]:
    """The files of tests that paths stand for."""
    files: dict[Path, None] = {}
    for path in paths:
        files.update(dict.fromkeys(sorted(path.rglob("test_*.py")) if path.is_dir() else [path]))
    return [file for file in files if os.path.basename(file).startswith("test_")]

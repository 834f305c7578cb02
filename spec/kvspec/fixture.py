"""The pytest fixture ``kvspec_replay``: scenarios inside one's own tests."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

# What is slow to import stays inside functions: this module is loaded in every pytest run where kvspec is installed.
if TYPE_CHECKING:
    from kvspec.harness.difference import Result
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import Factory
    from kvspec.scenario import Scenario

Replay: TypeAlias = "Callable[..., list[Result]]"
"""``replay(what, *, system=None, against=None, **options)``, see ``kvspec_replay``."""


@pytest.fixture
def kvspec_replay(request: pytest.FixtureRequest) -> Replay:
    """Replays scenarios through two systems: ``kvspec_replay("rows.yaml", system=MySystem)``.

    What it is called with: a file (a relative path starts where the test's file is), or a ``kvspec.Scenario``. ``system``,
    ``against``: a system's name or what builds one from a ``kvspec.Setup`` (a class, a function); left out, those of the
    command line or the ini file. Further keywords are options of the ``Setup``: ``device="sim"``, ``schedule="adversarial"``,
    ``check="off"``.

    The test fails with the report of the first scenario that does, is skipped if a system lacks what all of them need, and
    otherwise gets a ``kvspec.Result`` for each scenario of the file.
    """

    def replay_all(
        what: str | Path | Scenario,
        *,
        system: str | Factory | None = None,
        against: str | Factory | None = None,
        **options: str,
    ) -> list[Result]:
        __tracebackhide__ = True
        from kvspec.harness.difference import Verdict
        from kvspec.harness.replay import replay

        scenarios = _scenarios(request, what)
        named = [
            _named(request, "--kvspec-system" if role == "system" else "--kvspec-against", given)
            for role, given in (("system", system), ("against", against))
        ]
        given = {**options_of(request.config), **options}
        timeout = max(0.0, request.config.getoption("--kvspec-timeout"))
        results = []
        for scenario in scenarios:
            result = replay(scenario, named[0], named[1], given, timeout=timeout)
            if result.verdict is Verdict.FAILED:
                command = shlex.join(["pytest", request.node.nodeid])
                pytest.fail(report_of(result, (named[1].name, named[0].name), command), pytrace=False)
            results.append(result)
        if all(result.verdict is Verdict.SKIPPED for result in results):
            pytest.skip("; ".join(dict.fromkeys(result.reason for result in results)))
        return results

    return replay_all


def _scenarios(request: pytest.FixtureRequest, what: str | Path | Scenario) -> list[Scenario]:
    __tracebackhide__ = True
    from kvspec.language import ScenarioFileError, load_file
    from kvspec.scenario import Scenario

    if isinstance(what, Scenario):
        return [what]
    path = request.path.parent / what
    try:
        return list(load_file(path))
    except ScenarioFileError as error:
        raise pytest.fail.Exception("\n".join(str(problem) for problem in error.problems), pytrace=False) from None


def _named(request: pytest.FixtureRequest, option: str, given: str | Factory | None) -> Named:
    __tracebackhide__ = True
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import SystemNotFound, find_system

    if given is None:
        given = str(request.config.getoption(option) or request.config.getini(option.strip("-").replace("-", "_")))
    if not isinstance(given, str):
        return Named(getattr(given, "__name__", "system"), given)
    try:
        return Named(given, find_system(given))
    except SystemNotFound as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def options_of(config: pytest.Config) -> dict[str, str]:
    """The options of the command line, as systems get them in their ``Setup``."""
    options = {"device": config.getoption("--kvspec-device"), "check": "off" if config.getoption("--kvspec-no-check") else "on"}
    if (schedule := config.getoption("--kvspec-schedule")) is not None:
        options["schedule"] = schedule
    return options


def report_of(result: Result, names: tuple[str, str], command: str) -> str:
    """The report of a scenario that failed, as plain text. ``names``: of the reference and of the system under test."""
    from kvspec.harness.report import failure_report, plain

    return plain(failure_report(result, names, command))

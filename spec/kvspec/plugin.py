"""The pytest plugin: scenario files as test items, one a scenario.

Nothing is collected unless the ini option ``kvspec_paths`` names folders; only YAML files below them that say
``kvspec:`` are. ``-p no:kvspec`` or ``kvspec_enabled = false`` switches it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvspec.fixture import kvspec_replay as kvspec_replay
from kvspec.fixture import options_of, report_of

# What is slow to import stays inside functions: this module is loaded in every pytest run where kvspec is installed.
if TYPE_CHECKING:
    from kvspec.scenario import Scenario

DEVICES = ("auto", "sim", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini options."""
    group = parser.getgroup("kvspec", "scenarios of KV-cache managers")
    group.addoption("--kvspec-system", default="kvgpu", metavar="NAME", help="the system under test (kvgpu)")
    group.addoption("--kvspec-against", default="kvref", metavar="NAME", help="the reference that it is compared with (kvref)")
    group.addoption("--kvspec-device", default="auto", choices=DEVICES, help="where the system under test works (auto)")
    group.addoption("--kvspec-schedule", default=None, metavar="ORDER", help="fifo, adversarial or seed=N")
    group.addoption("--kvspec-no-check", action="store_true", help="do not check the order of device accesses")
    parser.addini("kvspec_paths", "folders whose scenario files are collected", type="paths", default=[])
    parser.addini("kvspec_enabled", "whether scenario files are collected at all", type="bool", default=True)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that says ``kvspec:`` below one of the configured folders."""
    config = parent.config
    if file_path.suffix not in (".yaml", ".yml") or not config.getini("kvspec_enabled"):
        return None
    folders = [Path(folder).resolve() for folder in config.getini("kvspec_paths")]
    path = file_path.resolve()
    if not any(path.is_relative_to(folder) for folder in folders):
        return None
    from kvspec.suite import says_kvspec

    if not says_kvspec(path):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not compared, where a system of one's own cannot show everything."""
    names = {config.getoption("--kvspec-system"), config.getoption("--kvspec-against")} - {"kvgpu", "kvref"}
    if not names or not config.getini("kvspec_paths") or not config.getini("kvspec_enabled"):
        return
    from kvspec.harness.systems import SystemNotFound, find_system, unobserved_by
    from kvspec.harness.unobserved import not_compared

    try:
        unobserved = unobserved_by(*map(find_system, sorted(names)))
    except SystemNotFound:  # its scenarios have said so
        return
    if unobserved:
        terminalreporter.write_line(f"kvspec: not compared: {not_compared(unobserved)}", yellow=True)


class ScenarioFile(pytest.File):
    """A scenario file."""

    def collect(self) -> Iterator[ScenarioItem]:
        """One item per scenario, sorted by name, the same in every process."""
        from kvspec.language import ScenarioFileError, load_file

        try:
            scenarios = load_file(self.path)
        except ScenarioFileError as error:
            raise self.CollectError("\n".join(str(problem) for problem in error.problems)) from None
        names: dict[str, int] = {}
        for scenario in sorted(scenarios, key=lambda one: (one.name, one.index)):
            names[scenario.name] = names.get(scenario.name, 0) + 1
            number = names[scenario.name]
            name = scenario.name if number == 1 else f"{scenario.name} ({number})"
            yield ScenarioItem.from_parent(self, name=name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """A scenario."""

    def __init__(self, *, scenario: Scenario, **kwargs: Any) -> None:
        """An item for a scenario; ``-k`` of pytest sees its tags and rules."""
        super().__init__(**kwargs)
        self.scenario = scenario
        self.extra_keyword_matches.update((*scenario.tags, *scenario.rules))

    def runtest(self) -> None:
        """Replay the scenario.

        :raises ScenarioFailed: with the report.
        """
        from kvspec.harness.difference import Verdict
        from kvspec.harness.replay import Named, replay
        from kvspec.harness.systems import SystemNotFound, find_system

        get = self.config.getoption
        system, against = get("--kvspec-system"), get("--kvspec-against")
        options = options_of(self.config)
        try:
            named = [Named(name, find_system(name)) for name in (system, against)]
        except SystemNotFound as error:
            raise ScenarioFailed(str(error)) from None
        result = replay(self.scenario, named[0], named[1], options)
        if result.verdict is Verdict.SKIPPED:
            pytest.skip(result.reason)
        if result.verdict is Verdict.FAILED:
            from kvspec.harness.report import reproduce_command

            command = reproduce_command(result, system, against, options)
            raise ScenarioFailed(report_of(result, (against, system), command))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone; a traceback only for a mistake in kvspec itself."""
        if isinstance(excinfo.value, ScenarioFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the scenario begins."""
        return self.path, self.scenario.position.line - 1, self.name


class ScenarioFailed(Exception):
    """A scenario failed; ``str()`` of it is the report."""

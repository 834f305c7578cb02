"""The pytest plugin: scenario files as test items, one a scenario.

Nothing is collected unless the ini option ``kvspec_paths`` names folders; only YAML files below them that say
``kvspec:`` are. ``-p no:kvspec`` or ``kvspec_enabled = false`` switches it off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvspec.fixture import kvspec_replay as kvspec_replay
from kvspec.fixture import options_of, report_of

# What is slow to import stays inside functions: this module is loaded in every pytest run where kvspec is installed.
if TYPE_CHECKING:
    from kvspec.harness.difference import Result
    from kvspec.scenario import Scenario

DEVICES = ("auto", "sim", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini options."""
    group = parser.getgroup("kvspec", "scenarios of KV-cache managers")
    group.addoption("--kvspec-system", default=None, metavar="NAME", help="the system under test; the ini option kvspec_system")
    group.addoption(
        "--kvspec-against", default=None, metavar="NAME", help="what it is compared with; the ini option kvspec_against"
    )
    group.addoption("--kvspec-device", default="auto", choices=DEVICES, help="where the system under test works (auto)")
    group.addoption("--kvspec-schedule", default=None, metavar="ORDER", help="fifo, adversarial or seed=N")
    group.addoption("--kvspec-timeout", default=60.0, type=float, metavar="SECONDS", help="of a scenario (60); 0 for none")
    group.addoption("--kvspec-no-check", action="store_true", help="do not check the order of device accesses")
    parser.addini("kvspec_system", "the system under test: a name, package.module:Class or cmd:COMMAND", default="kvgpu")
    parser.addini("kvspec_against", "the reference that it is compared with", default="kvref")
    parser.addini("kvspec_paths", "folders whose scenario files are collected", type="paths", default=[])
    parser.addini("kvspec_enabled", "whether scenario files are collected at all", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Make modules below the rootdir importable, and commands start there; refuse a system compared with itself."""
    if not _on(config):
        return
    system, against = _systems(config)
    if system == against:
        raise pytest.UsageError(f"kvspec: {system} against itself always agrees: name two systems")
    root = str(config.rootpath)
    if ":" in system + against and root not in sys.path:
        sys.path.insert(0, root)
    if any(name.startswith("cmd:") for name in (system, against)):
        from kvspec.harness.systems import command_folder

        command_folder[0] = config.rootpath


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which systems are compared."""
    if not _on(config):
        return None
    system, against = _systems(config)
    return f"kvspec: {system} against {against}, device {config.getoption('--kvspec-device')}"


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Warn where scenarios were to be collected and none was: nobody notices tests that are not there."""
    folders = [Path(folder) for folder in config.getini("kvspec_paths")]
    worker = getattr(config, "workerinput", {"workerid": "gw0"})["workerid"]
    if not _on(config) or worker != "gw0" or config.stash.get(_COLLECTED, False) or not _looked_at(config, folders):
        return
    for folder in folders:
        why = f"no YAML file below {folder} says kvspec:"
        if not folder.is_dir():
            why = f"there is no folder {folder}"
        elif any(_scenarios_below(folder)):
            why = f"pytest did not look into {folder}: add it to testpaths"
        config.issue_config_time_warning(pytest.PytestConfigWarning(f"kvspec_paths: no scenario was collected: {why}"), 2)


_COLLECTED = pytest.StashKey[bool]()
"""Whether a scenario file was collected."""


def _on(config: pytest.Config) -> bool:
    return bool(config.getini("kvspec_paths")) and bool(config.getini("kvspec_enabled"))


def _systems(config: pytest.Config) -> tuple[str, str]:
    """The names of the system under test and of the reference: the command line goes before the ini file."""
    system = config.getoption("--kvspec-system") or config.getini("kvspec_system")
    return system, config.getoption("--kvspec-against") or config.getini("kvspec_against")


def _looked_at(config: pytest.Config, folders: list[Path]) -> bool:
    """Whether the scenarios were asked for: nothing in particular was, or a folder of them."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return True
    asked = [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]
    folders = [folder.resolve() for folder in folders]
    return any(folder.is_relative_to(one) or one.is_relative_to(folder) for one in asked for folder in folders)


def _scenarios_below(folder: Path) -> Iterator[Path]:
    from kvspec.suite import scenario_files

    return iter(scenario_files([folder]))


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
    config.stash[_COLLECTED] = True
    return ScenarioFile.from_parent(parent, path=file_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where each failure begins, and what was not compared, where a system of one's own cannot show everything."""
    _tell_first_differences(terminalreporter)
    names = set(_systems(config)) - {"kvgpu", "kvref"}
    if not names or not _on(config):
        return
    from kvspec.harness.policies import unusual_policies
    from kvspec.harness.systems import SystemNotFound, find_system, unobserved_by
    from kvspec.harness.unobserved import not_compared

    system = _systems(config)[0]
    try:
        unobserved = unobserved_by(*map(find_system, sorted(names)))
        policies = unusual_policies(find_system(system))
    except SystemNotFound:  # its scenarios have said so
        return
    if policies:
        terminalreporter.write_line(f"kvspec: policies of {system}: {policies}", yellow=True)
    if unobserved:
        terminalreporter.write_line(f"kvspec: not compared: {not_compared(unobserved)}", yellow=True)


def _tell_first_differences(reporter: pytest.TerminalReporter) -> None:
    """A line for each failed scenario: pytest's own has no space for it after the scenario's name."""
    failed = [report for report in reporter.getreports("failed") if getattr(report, "keywords", {}).get(_KEYWORD)]
    crashes = [crash for report in failed if (crash := getattr(report.longrepr, "reprcrash", None)) is not None]
    if not crashes:
        return
    from kvspec.harness.report import path_text

    reporter.write_sep("-", "kvspec: where each begins to differ")
    for crash in crashes[:MAX_SHORT]:
        reporter.write_line(f"{path_text(Path(crash.path))}:{crash.lineno} {crash.message}")
    if len(crashes) > MAX_SHORT:
        reporter.write_line(f"and {len(crashes) - MAX_SHORT} more")


MAX_SHORT = 20
"""Of how many failures the first difference is listed."""
_KEYWORD = "kvspec_scenario"


class ScenarioFile(pytest.File):
    """A scenario file: pytest collects an item for each scenario in it."""

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
    """A scenario: passes, fails or is skipped as in ``kvspec run``."""

    def __init__(self, *, scenario: Scenario, **kwargs: Any) -> None:
        """An item for a scenario; ``-k`` of pytest sees its tags and rules."""
        super().__init__(**kwargs)
        self.scenario = scenario
        self.extra_keyword_matches.update((*scenario.tags, *scenario.rules))
        self.keywords[_KEYWORD] = True

    def runtest(self) -> None:
        """Replay the scenario.

        :raises ScenarioFailed: with the report.
        """
        from kvspec.harness.difference import Verdict
        from kvspec.harness.replay import Named, replay
        from kvspec.harness.systems import SystemNotFound, find_system

        system, against = _systems(self.config)
        options, timeout = options_of(self.config), max(0.0, self.config.getoption("--kvspec-timeout"))
        try:
            named = [Named(name, find_system(name)) for name in (system, against)]
        except SystemNotFound as error:
            raise ScenarioFailed(str(error)) from None
        result = replay(self.scenario, named[0], named[1], options, timeout=timeout)
        if result.verdict is Verdict.SKIPPED:
            pytest.skip(result.reason)
        if result.verdict is Verdict.FAILED:
            raise ScenarioFailed(_report(result, system, against, options), *_in_short(result, system, against))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone; a traceback only for a mistake in kvspec itself."""
        if isinstance(excinfo.value, ScenarioFailed):
            # As pytest's own, so that the short summary has a message, and that of another process too.
            from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

            text = str(excinfo.value)
            entry = ReprEntryNative([f"{one}\n" for one in text.split("\n")])
            crash = ReprFileLocation(str(self.path), excinfo.value.line or self.scenario.position.line, excinfo.value.short)
            return ReprExceptionInfo(reprtraceback=ReprTraceback([entry], None, "native"), reprcrash=crash)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The file, the line at which the scenario begins, and its name."""
        return self.path, self.scenario.position.line - 1, self.name


class ScenarioFailed(Exception):
    """A scenario failed; ``str()`` of it is the report.

    ``short``: the step and the first difference, in a line. ``line``: where the step begins in the file.
    """

    def __init__(self, report: str, short: str = "", line: int = 0) -> None:
        """An error whose text is ``report``."""
        super().__init__(report)
        self.short = short or report
        self.line = line


def _report(result: Result, system: str, against: str, options: Mapping[str, str]) -> str:
    from kvspec.harness.report import reproduce_command

    return report_of(result, (against, system), reproduce_command(result, system, against, options))


def _in_short(result: Result, system: str, against: str) -> tuple[str, int]:
    from kvspec.harness.difference import side_names

    failure = result.failure
    assert failure is not None
    first = failure.differences[0]
    expected = "" if first.expected is None else f"expected {first.expected}, "
    one, two = side_names(against, system)
    values = f"{expected}{one} {first.reference}" + ("" if result.alone else f", {two} {first.implementation}")
    return f"step {failure.step}, {failure.verb}: {first.subject}: {values}", failure.position.line

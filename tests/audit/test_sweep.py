"""The sweep: it finds what it should, and finds nothing in the suite (R3.14, section 9)."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.audit.injections import Injection, InjectionError
from kvspec.audit.matrix import reasons
from kvspec.audit.sweep import SweepResult
from kvspec.audit.sweep_all import SweepPlan, sweeper
from kvspec.cli.main import app
from kvspec.language import load_file
from kvspec.language.loader import read_bytes
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files, suite_path

SHARE = 3
"""One injection in so many is made here; the command makes all of them."""
TOPICS = sorted(path.name for path in suite_path().iterdir() if path.is_dir() and scenario_files([path]))

STORY_FILE = str(Path(__file__).with_name("story.yaml"))
STORY = Path(STORY_FILE).read_text()


def scenario(text: str) -> Scenario:
    loaded = read_bytes(Path("story.yaml"), text.encode())
    assert not loaded.problems
    return loaded.scenarios[0]


def sweep_story(system: str, only: str | None = None) -> SweepResult:
    name = f"tests.audit.leaky:{system}" if system != "kvref" else "kvref"
    plan = SweepPlan(name, name, only=Injection.parse(only) if only is not None else None)
    return sweeper(plan).sweep(scenario(STORY))


@pytest.mark.parametrize("topic", TOPICS)
def test_the_suite_has_no_leftovers(topic: str) -> None:
    """Every scenario, a sample of its injections: which ones depends on their names alone.

    A replay of the large ones takes seconds, and so does each injection.
    """
    share = 100 * SHARE if topic == "limits" else SHARE

    def chosen(scenario: Scenario, injection: Injection) -> bool:
        return zlib.crc32(f"{scenario.name} {injection}".encode()) % share == 0

    mine = sweeper(SweepPlan("kvgpu", "kvref", {"device": "sim"}), chosen)
    for path in scenario_files([suite_path() / topic]):
        for one in load_file(path):
            findings = mine.sweep(one).findings
            shown = [f"kvspec sweep {path} -k '{one.name}' --only {f.injection}: {f.stage}: {f.texts}" for f in findings]
            assert not shown, "\n".join(shown)


def test_what_can_fail_is_made_to_fail() -> None:
    done = sweep_story("kvref")
    assert not done.findings
    # Growth to 3 blocks with 0 to 2 slots left; the entry moves 2 pages with 0 or 1; growth by 1 block and one page to the host.
    assert done.tested == {
        ("resize", "gpu slots"): 3 + 1,
        ("resize", "host slots"): 1,
        ("resize", "offload"): 1,
        ("resize", "offload, queued"): 1,
        ("enter_decode", "host slots"): 2,
        ("enter_decode", "offload"): 1,
        ("enter_decode", "offload, queued"): 1,
    }


@pytest.mark.parametrize(
    ("system", "only", "stage"),
    [
        ("LeakyGrowth", "2:gpu.main:1", "is not as before"),
        ("HalfDone", "3:offload:1", "is not as before"),
        ("WrongKind", "3:offload:1", "not the declared one"),
        ("Unrefusable", "3:offload:1", "the step succeeded all the same"),
        ("Grudge", "3:host.main:1", "later, in step 5 (suspend"),
        ("NeverAgain", "4:gpu.main:0", "when the step was repeated"),
        ("Raises", "3:offload:1+queued", "let an exception out"),
        ("NewVersion", "3:host.main:0", "is not as before"),
    ],
)
def test_leftovers_are_found(system: str, only: str, stage: str) -> None:
    findings = sweep_story(system, only).findings
    assert len(findings) == 1
    assert stage in findings[0].stage
    assert str(findings[0].injection) == only
    assert not sweep_story("kvref", only).findings


@pytest.mark.parametrize(
    ("system", "stage", "said"),
    [
        ("ForgetsCached", "in the step that fails", "cached of a.main changed without a fetch of it"),  # any replay sees it
        ("KeepsReserved", "is not as before", "reserved slots: {'a.main': [3]}, now {'a.main': [3, 7]}"),
        ("ForgetsFetches", "is not as before", "fetches: {'f': "),
    ],
)
def test_leftovers_of_fetches_are_found(system: str, stage: str, said: str) -> None:
    def swept(name: str) -> SweepResult:
        text = Path(__file__).with_name("fetch_story.yaml").read_text()
        return sweeper(SweepPlan(name, name, only=Injection.parse("8:gpu.main:0"))).sweep(scenario(text))

    (finding,) = swept(f"tests.audit.leaky:{system}").findings
    assert stage in finding.stage
    assert [text for text in finding.texts if text.startswith(said)], finding.texts
    assert swept("kvref").tested == {("resize", "gpu slots"): 1}
    assert not swept("kvref").findings


@pytest.mark.parametrize("system", ["LeakyGrowth", "HalfDone", "WrongKind", "Grudge", "NeverAgain", "NewVersion"])
def test_no_plain_run_would_have_found_it(system: str) -> None:
    name = f"tests.audit.leaky:{system}"
    result = CliRunner().invoke(app, ["run", STORY_FILE, "--system", name, "--against", "kvref", "--jobs", "1"])
    assert result.exit_code == 0, result.output


def test_names_of_injections() -> None:
    for text in ("3:offload:2+queued", "0:gpu.main:0", "12:file:1", "7:upload:1"):
        assert str(Injection.parse(text)) == text
    for text in ("", "3", "3:offload", "x:offload:1", "3:sideways:1", "3:gpu:1", "3:offload:1+later", "3:tape.main:1"):
        with pytest.raises(InjectionError, match="names no failure"):
            Injection.parse(text)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sweep", *arguments, "--jobs", "1"])
    return result.exit_code, result.output


def test_the_command_says_what_it_did() -> None:
    code, output = invoke(STORY_FILE, "--system", "kvref")
    assert code == 0
    assert "11 failures injected in 1 scenarios, none with leftovers" in output


def test_the_command_shows_how_to_reproduce_leftovers() -> None:
    leaky = ("--system", "tests.audit.leaky:HalfDone", "--against", "tests.audit.leaky:HalfDone")
    code, output = invoke(STORY_FILE, *leaky)
    assert code == 1
    assert "2 with leftovers" in output
    assert "status of a: active, now suspended" in output
    line = next(line for line in output.splitlines() if "--only 3:offload:1+queued" in line)
    assert "kvspec sweep tests/audit/story.yaml -k 'a request that grows, decodes and rests'" in line
    assert " ".join(leaky) in line
    again, output = invoke(STORY_FILE, *leaky, "--only", "3:offload:1+queued")
    assert again == 1
    assert "1 failures injected in 1 scenarios, 1 with leftovers" in output


def test_wrong_usage() -> None:
    assert invoke(STORY_FILE, "--only", "nonsense")[0] == 2
    code, output = invoke(STORY_FILE, "--system", "kvref", "--only", "0:offload:1")
    assert (code, "nothing was made to fail" in output) == (2, True)
    assert invoke(STORY_FILE, "--system", "nobody")[0] == 2


def test_a_scenario_that_fails_by_itself_is_no_pass() -> None:
    one = scenario(STORY.replace("levels: {a: [host, host, gpu]}", "levels: {a: [gpu, gpu, gpu]}"))
    done = sweeper(SweepPlan("kvref", "kvref")).sweep(one)
    assert [finding.stage for finding in done.findings] == ["without any failure"]
    assert not done.tested


def test_the_matrix_has_reasons_or_counts() -> None:
    code, output = invoke(STORY_FILE, "--system", "kvref", "--matrix")
    assert code == 1  # one scenario fills few cells
    assert "? resume, onboard: no scenario fails so" in output
    assert "private copies are made by the first resume alone" in output
    assert "gpu slots" not in reasons()["enter_decode"]  # it reserves (R15.2)
    assert reasons()["evict"]["gpu slots"].startswith("they take no slot on the GPU")

"""A process that does wrong costs its scenario alone, says what it was, and is never left behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kvspec.harness.difference import Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import failure_report, plain
from kvspec.harness.systems import SystemNotFound, find_system
from kvspec.language import load_file
from kvspec.scenario import Scenario
from kvspec.wire.client import Command
from tests.paths import PATHS

DRIVER = Path(__file__).with_name("driver.py")
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
PLUGIN = [] if any(point.name == "kvspec" for point in entry_points(group="pytest11")) else ["-p", "kvspec.plugin"]
SCENARIO = """\
kvspec: 1
name: {name}
rules: [R3.1]
manager: {{tokens_per_block: 4, levels: [{{kind: gpu, slots: 4}}], layers: [{{name: main, buffers: [{{role: key, bytes: 64}}]}}]}}
steps:
  - create: a
  - create: b
"""


def command(mode: str, folder: Path) -> str:
    return f"cmd:{shlex.join([sys.executable, str(DRIVER), mode, str(folder)])}"


def scenarios(folder: Path, count: int = 1) -> list[Scenario]:
    path = folder / "suite.yaml"
    path.write_text("---\n".join(SCENARIO.format(name=f"number {number}") for number in range(count)))
    return load_file(path)


def played(mode: str, folder: Path, timeout: float = 30.0) -> Result:
    name = command(mode, folder)
    reference = Named("kvref", find_system("kvref"))
    return replay(scenarios(folder)[0], Named(name, find_system(name)), reference, timeout=timeout)


def processes(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def running(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def none_left(folder: Path) -> bool:
    end = time.monotonic() + 20
    while any(map(running, processes(folder))) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(processes(folder)) and not any(map(running, processes(folder)))


def test_right(tmp_path: Path) -> None:
    result = played("right", tmp_path)
    assert (result.verdict, result.steps, result.device) == (Verdict.PASSED, 2, "sim")


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("exits", ["its process ended with exit code 3 in create", "stderr: this is exits"]),
        ("exits within a line", ['its process ended with exit code 0 in create, in the middle of a line: \'{"id": 3, "val\'']),
        ("crashes", ["its process was ended by SIGSEGV in create", "stderr: this is crashes"]),
        ("closes its output", ["it closed its standard output, instead of an answer in create"]),
        ("prints", ["the answer to apply is no JSON: 'creating a request'; standard output is for answers alone"]),
        ("prints much", ["the answer to apply is no JSON: 'xxx"]),
        ("no object", ["the answer to apply is no JSON object: '[1]'"]),
        ("wrong id", ["the answer to apply has the id 3, expected 2: one answer a message, in order"]),
        ("text as value", ['value: expected true, false, a whole number, null or a list of these, this is "yes"']),
        ("misspelt key", ["the answer to apply cannot be read: valeu: there is no such key"]),
        ("unknown error", ["error: Input should be 'invalid_argument', 'logic_error'", 'this is "no_memory"']),
        ("text as number", ['facts.free.gpu: Input should be a valid integer, this is "four"', "observed after create"]),
        ("misspelt fact", ["the answer to observe cannot be read: facts.reqests: there is no such key"]),
        ("raises", ["OutOfMemory: 0 of 4 slots", "manager.cc:17 in grow"]),
        ("wrong", ["it did not understand apply of create: what is a request?"]),
        ("cannot build", ["NoDevice: there is no card", "while it was built"]),
    ],
)
def test_what_it_does_wrong_is_said(tmp_path: Path, mode: str, says: list[str]) -> None:
    result = played(mode, tmp_path)
    assert result.verdict is Verdict.FAILED
    assert result.failure is not None and result.failure.step == 0
    report = plain(failure_report(result, ("kvref", "mine"), "-"))
    for text in says:
        assert text in report, report
    assert os.path.join("kvspec", "wire") not in report, "the frames of kvspec say nothing to the reader"


def test_a_limit_of_the_device_skips(tmp_path: Path) -> None:
    result = played("limit", tmp_path)
    assert (result.verdict, result.reason) == (Verdict.SKIPPED, "from step 0, create, on: no card")


def test_what_the_system_finds_out_that_it_cannot_do_skips_and_counts_as_lacking(tmp_path: Path) -> None:
    result = played("unsupported", tmp_path)
    assert (result.verdict, result.lacks) == (Verdict.SKIPPED, ("more than a block",))


def test_no_answer_in_time_fails_and_ends_the_process(tmp_path: Path) -> None:
    result = played("hangs with a child", tmp_path, 0.5)
    assert result.failure is not None
    report = plain(failure_report(result, ("kvref", "mine"), "-"))
    for text in ("no answer within 0.5 s", f"waiting for the answer of {sys.executable} in create", "stderr: this is hangs"):
        assert text in report
    assert len(processes(tmp_path)) == 2
    assert none_left(tmp_path)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("another version", "it speaks version 2 of the protocol, this is version 1"),
        ("misspelt argument", "arguments of create: there is no 'requst'. Did you mean 'request'?"),
        ("misspelt aspect", "unobserved has 'speed'"),
    ],
)
def test_a_wrong_hello_is_no_system(tmp_path: Path, mode: str, says: str) -> None:
    with pytest.raises(SystemNotFound, match=r"^system .cmd:") as error:
        find_system(command(mode, tmp_path))
    assert says in str(error.value)
    assert none_left(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cmd:", "expected a command after cmd:"),
        ("cmd:'a", "cannot be split into words: No closing quotation"),
        ("cmd:./there_is_none --fast", "'./there_is_none' cannot be started: no such file or directory"),
        (f"cmd:{shlex.quote(str(DRIVER))}", "cannot be started: permission denied"),
        ("cmd:true", "its process ended with exit code 0 to hello"),
        ("cmd:cat", "the answer to hello cannot be read: "),
    ],
)
def test_what_is_no_system_is_refused_with_the_reason(name: str, says: str) -> None:
    with pytest.raises(SystemNotFound) as error:
        find_system(name)
    assert says in str(error.value)


def test_one_process_is_used_for_many_scenarios(tmp_path: Path) -> None:
    factory = find_system(command("right", tmp_path))
    for scenario in scenarios(tmp_path, 5):
        assert replay(scenario, Named("mine", factory), Named("kvref", find_system("kvref"))).verdict is Verdict.PASSED
    assert len(processes(tmp_path)) == 1


def test_after_a_crash_the_next_scenario_has_a_fresh_process(tmp_path: Path) -> None:
    factory = find_system(command("exits once", tmp_path))
    reference = Named("kvref", find_system("kvref"))
    verdicts = [replay(one, Named("mine", factory), reference).verdict for one in scenarios(tmp_path, 3)]
    assert verdicts == [Verdict.FAILED, Verdict.PASSED, Verdict.PASSED]
    assert len(processes(tmp_path)) == 2


def test_two_systems_at_once_have_a_process_each(tmp_path: Path) -> None:
    factory = find_system(command("right", tmp_path))
    assert isinstance(factory, Command)
    from kvspec.harness.systems import setup_for

    setup = setup_for(scenarios(tmp_path)[0], {})
    one, two = factory(setup), factory(setup)
    one.apply(scenarios(tmp_path)[0].steps[0].op)
    assert (len(one.observe().requests), len(two.observe().requests), len(processes(tmp_path))) == (1, 0, 2)
    one.close()
    one.close()
    two.close()


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "80", "XDG_CACHE_HOME": str(folder / "cache")}
    line = [sys.executable, "-c", RUN, *args]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path, jobs: str) -> None:
    scenarios(tmp_path, 3)
    name = command("hangs with a child", tmp_path)
    process = start(tmp_path, "run", "suite.yaml", "--system", name, "--jobs", jobs)
    end = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, ""), out
    assert "'number 0' at step 0, create" in out, out
    assert none_left(tmp_path)


def test_a_kvspec_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    scenarios(tmp_path)
    process = start(tmp_path, "show", "suite.yaml", "--system", command("hangs", tmp_path))
    end = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)
    assert none_left(tmp_path)


def test_a_run_of_the_command_line(tmp_path: Path) -> None:
    scenarios(tmp_path, 3)
    name = command("crashes", tmp_path)
    process = start(tmp_path, "run", "suite.yaml", "--system", name, "--jobs", "2")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")
    assert "its process was ended by SIGSEGV in create" in out
    assert f"reproduce: kvspec run suite.yaml:1 --system {shlex.quote(name)}" in out
    assert "0 passed, 3 failed, 0 skipped" in out
    assert none_left(tmp_path)


def test_pytest_starts_a_command_where_its_ini_file_is(tmp_path: Path) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "one.yaml").write_text(SCENARIO.format(name="one"))
    (tmp_path / "driver.py").write_text(DRIVER.read_text())
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nkvspec_paths = suite\nkvspec_system = cmd:{sys.executable} driver.py right suite\n"
    )
    environment = {**os.environ, "PYTHONPATH": PATHS}
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *PLUGIN, "."]
    done = subprocess.run(line, cwd=tmp_path / "suite", env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "not compared: contents of pages" in done.stdout


def test_a_worker_that_is_killed_takes_with_it_what_it_has_started(tmp_path: Path) -> None:
    """With what that has started in turn: the process that drives the workers knows the groups."""
    scenarios(tmp_path)
    name = command("hangs with a child", tmp_path)
    process = start(tmp_path, "run", "suite.yaml", "--system", name, "--jobs", "1")
    end = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < end:
        time.sleep(0.05)
    (driver,) = [one for one in processes(tmp_path) if parent(parent(one)) == process.pid]
    os.kill(parent(driver), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, ""), out
    assert "its process was ended by SIGKILL" in out
    assert none_left(tmp_path)


def parent(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0

"""The built wheel, installed beside a project that has packages called `spec` and `tests` of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment with the wheel and, after it, whatever else is installed here, but for what the checkout adds to it."""
    folder = tmp_path_factory.mktemp("environment")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    python = str(folder / "bin" / "python")
    site = Path(_run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).stdout.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    here = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "others.pth").write_text("\n".join(dict.fromkeys(here)))
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests', 'scenarios']\nkvspec_paths = ['scenarios']\n",
        "spec/__init__.py": "ANSWER = 42\n",
        "spec/config.py": "OWN = True\n",
        "tests/__init__.py": "",
        "tests/helpers.py": "from spec.config import OWN\n",
        "tests/test_own.py": OWN_TEST,
        "scenarios/rows.yaml": SCENARIO,
        "script.py": SCRIPT,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


OWN_TEST = """\
import sys
from pathlib import Path

import kvgpu, kvref, kvspec
import spec
from tests.helpers import OWN


def test_own_packages_stay_own():
    assert (spec.ANSWER, OWN) == (42, True)
    assert Path(spec.__file__).parents[1] == Path(__file__).parents[1]
    for package in (kvspec, kvref, kvgpu):
        assert Path(package.__file__).is_relative_to(sys.prefix), package


def test_a_scenario_inside_a_test(kvspec_replay):
    (result,) = kvspec_replay("../scenarios/rows.yaml", device="sim")
    assert result.steps == 4
"""

SCENARIO = """\
kvspec: 1
name: complete history moves
rules: [R4.1]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
steps:
  - create: chat
  - resume: chat
  - resize: {request: chat, capacity: 8, history: 8}
  - enter_decode: chat
    returns: true
    expect: {levels: {chat: [host, host]}}
"""

SCRIPT = """\
from kvgpu import Batch, Manager, Prepared, buffer_address, open_device
from kvref import State, initial, observe, step
from kvspec import ManagerConfig, Named, Outcome, Setup, find_system, load_file, ops, replay, show


def prefill(manager: Manager, batch: Batch) -> tuple[int, ...]:
    device = manager.device
    request = manager.create("chat")
    stream = device.stream("exec")
    ran: bool = manager.resume(request, stream) and manager.resize(request, capacity=8)
    assert ran
    batch.add(request)
    address: int = buffer_address(manager, "main").address
    assert address
    return batch.publish(stream)


def accept(prepared: Prepared) -> bool:
    return bool((prepared.snapshots()["main"].levels == 0).all())


def what_if(config: ManagerConfig, state: State) -> str:
    outcome: Outcome
    state, outcome = step(state, ops.Create(request="chat", tokens=(1, 2)))
    return show(config, observe(state)) if outcome.error is None else outcome.message


(scenario,) = load_file("scenarios/rows.yaml")
result = replay(scenario, Named("kvgpu", find_system("kvgpu")), Named("kvref", find_system("kvref")), {"device": "sim"})
manager = Manager(scenario.manager, open_device("sim"))
print(result.verdict, prefill(manager, Batch(manager, "rows", rows=1, blocks=4)))
print(what_if(scenario.manager, initial(Setup(scenario.manager))).splitlines()[0])
"""


def test_the_wheel_has_the_three_packages_and_what_they_need(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"kvspec", "kvref", "kvgpu"}
    assert {f"{package}/py.typed" for package in ("kvspec", "kvref", "kvgpu")} <= set(names)
    assert "kvspec/data/rules.md" in names
    suite = {f"kvspec/data/{path.relative_to(ROOT)}" for path in (ROOT / "scenarios").rglob("*.yaml")}
    assert suite <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_a_project_with_its_own_spec_and_tests_runs_its_tests(python: str, project: Path) -> None:
    done = _run([python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist"], project)
    assert "3 passed" in done.stdout
    assert "scenarios/rows.yaml::complete history moves PASSED" in done.stdout


def test_the_command_runs_there(python: str, project: Path) -> None:
    assert "1 passed, 0 failed" in _run([python, "-m", "kvspec", "run", "--jobs", "1", "--device", "sim"], project).stdout
    assert "R4.1" in _run([python, "-m", "kvspec", "explain", "R4.1"], project).stdout


def test_a_users_script_is_typed_against_the_wheel_and_runs(python: str, project: Path) -> None:
    command = [python, "-m", "mypy", "--strict", "--cache-dir", str(project / "cache"), "script.py"]
    assert "Success: no issues found in 1 source file" in _run(command, project).stdout
    assert _run([python, "script.py"], project).stdout.splitlines() == [
        "passed (0,)",
        "request chat  suspended  prefill  history 0/0  main -  dirty",
    ]
    (project / "script.py").write_text(SCRIPT.replace("-> tuple[int, ...]:", "-> list[int]:"))
    wrong = subprocess.run(command, cwd=project, env=_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert 'Incompatible return value type (got "tuple[int, ...]", expected "list[int]")' in wrong.stdout


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")} | {"COLUMNS": "160"}


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done

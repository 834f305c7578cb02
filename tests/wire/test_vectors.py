"""Vectors are the same bytes every time, satisfy their schema, and are what the reference does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvspec.harness.systems import find_system, setup_for
from kvspec.language import load_file
from kvspec.wire.schema import vectors_schema
from kvspec.wire.vectors import NoVectors, VectorFile, places, vectors
from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
FOLDERS = ("scenarios/commit", "scenarios/order", "scenarios/ssm", "scenarios/counters")
VALIDATOR = jsonschema.Draft202012Validator(vectors_schema())


def kvspec(*args: str, seed: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "PYTHONHASHSEED": str(seed)}
    line = [sys.executable, "-c", RUN, *args]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=cwd)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The vectors of some scenarios, written twice by processes that hash differently."""
    folders = []
    for seed in (1, 2):
        folders.append(tmp_path_factory.mktemp("vectors") / "new" / "folder")
        done = kvspec("vectors", *FOLDERS, "-o", str(folders[-1]), seed=seed)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert " files, " in done.stdout and str(folders[-1]) in done.stdout
    return folders


def read(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_second_run_writes_the_same_bytes(made: list[Path]) -> None:
    one, two = map(read, made)
    files = {
        path.relative_to(ROOT / "scenarios").with_suffix(".json").as_posix()
        for name in FOLDERS
        for path in (ROOT / name).rglob("*.yaml")
    }
    assert one.keys() == files
    assert one == two


def test_they_satisfy_the_schema_and_can_be_read_back(made: list[Path]) -> None:
    smallest = sorted(read(made[0]).values(), key=len)[:6]
    for text in smallest:
        error = next(VALIDATOR.iter_errors(json.loads(text)), None)
        assert error is None, error and error.message
        assert VectorFile.model_validate_json(text).vectors == 1


def test_they_are_what_the_reference_does(made: list[Path]) -> None:
    path = ROOT / "scenarios" / "counters" / "counters.yaml"
    scenarios = load_file(path)
    file = VectorFile.model_validate_json((made[0] / "counters" / "counters.json").read_text())
    assert (file.file, [one.name for one in file.scenarios]) == ("counters/counters.yaml", [one.name for one in scenarios])
    for scenario, found in zip(scenarios, file.scenarios, strict=True):
        system = find_system("kvref")(setup_for(scenario, {}))
        assert found.before == system.observe()
        for step, vector in zip(scenario.steps, found.steps, strict=True):
            outcome = system.apply(step.op)
            assert (vector.verb, vector.error) == (step.op.verb, outcome.error)
            assert type(step.op).model_validate(dict(vector.arguments)) == step.op
            assert vector.observation == system.observe()
    assert found.steps[-1].step == len(scenario.steps) - 1


def test_a_step_is_a_line_with_every_key(made: list[Path]) -> None:
    lines = (made[0] / "counters" / "counters.json").read_text().splitlines()
    steps = [json.loads(line.rstrip(",")) for line in lines if line.startswith('{"step":')]
    assert len(steps) == sum(len(one.steps) for one in load_file(ROOT / "scenarios" / "counters" / "counters.yaml"))
    assert all(list(step) == ["step", "verb", "arguments", "value", "error", "observation"] for step in steps)
    stats = next(step["value"] for step in steps if step["verb"] == "stats")
    assert {"groups", "suspends", "resumes"} == set(stats)


@pytest.mark.parametrize("change", [{"vectors": "1"}, {"more": 1}, {"scenarios": [{}]}, {"file": None}], ids=str)
def test_what_is_no_vector_does_not_satisfy_the_schema(change: dict[str, Any]) -> None:
    empty = {"vectors": 1, "file": "a.yaml", "scenarios": []}
    assert VALIDATOR.is_valid(empty)
    assert not VALIDATOR.is_valid({**empty, **change})


def test_a_single_file_is_written_by_its_name(tmp_path: Path) -> None:
    done = kvspec("vectors", str(ROOT / "scenarios" / "counters" / "counters.yaml"), "-o", "here", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(read(tmp_path)) == ["here/counters.json"]
    assert json.loads((tmp_path / "here" / "counters.json").read_text())["file"] == "counters.yaml"


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = kvspec("vectors", "scenarios/counters", "-o", str(tmp_path / "file"))
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("--output ") and "cannot be written: " in wrong.stderr
    missing = kvspec("vectors", "scenarios/counters")
    assert missing.returncode == 2 and "--output" in missing.stderr


def test_two_files_in_one_place_are_refused(tmp_path: Path) -> None:
    text = (ROOT / "scenarios" / "counters" / "counters.yaml").read_text()
    for name in ("same.yaml", "same.yml"):
        (tmp_path / name).write_text(text)
    with pytest.raises(NoVectors, match=r"same\.json: rename one"):
        places([one for name in ("same.yaml", "same.yml") for one in load_file(tmp_path / name)])


def test_a_system_that_lacks_something_has_none() -> None:
    (scenario, *_) = load_file(ROOT / "scenarios" / "counters" / "counters.yaml")

    class Small:
        capabilities = frozenset({"create"})

    with pytest.raises(NoVectors, match=r"counters\.yaml:\d+:\d+: the system lacks verb "):
        vectors(scenario, Small)  # type: ignore[arg-type]

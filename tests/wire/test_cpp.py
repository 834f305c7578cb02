"""The example in C++ is built and run: green as it is, and red with each of its planted bugs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PATHS, ROOT

COMPILER = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
EXAMPLE = ROOT / "docs" / "examples" / "cpp"
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a compiler: c++, g++ or clang++")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cpp") / "driver"
    assert COMPILER is not None
    line = [COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", str(path), str(EXAMPLE / "driver.cpp")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return path


def kvspec(driver: Path, *args: str, bug: str = "") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "120"}
    name = f"cmd:{driver}" + (f" --bug={bug}" if bug else "")
    line = [sys.executable, "-c", RUN, *(name if arg == "DRIVER" else arg for arg in args)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def test_it_speaks_the_protocol(driver: Path) -> None:
    code, said = kvspec(driver, "conform", "DRIVER")
    assert code == 0, said


def test_it_does_what_the_rules_say(driver: Path) -> None:
    code, said = kvspec(
        driver, "run", "--system", "DRIVER", "--jobs", "1", "scenarios/matching", "scenarios/eviction", "scenarios/policies"
    )
    assert code == 0, said
    assert "policies of cmd:" in said and "match: block, partial_blocks: none" in said


@pytest.mark.parametrize(
    ("bug", "says"),
    [
        ("parent", "differs number of blocks of"),
        ("recent", "expected eviction order of"),
        ("leak", "differs free slots of"),
        ("held", "differs number of blocks of"),
    ],
)
def test_each_planted_bug_is_found(driver: Path, bug: str, says: str) -> None:
    code, said = kvspec(driver, "run", "--system", "DRIVER", "--jobs", "1", "scenarios", bug=bug)
    assert code == 1
    assert says in said


def test_random_lifecycles_agree_and_find_a_bug(driver: Path) -> None:
    code, said = kvspec(driver, "fuzz", "--system", "DRIVER", "--jobs", "1", "--seeds", "10", "--steps", "40")
    assert code == 0, said
    assert "10 lifecycles of 40 steps, 0 failed" in said
    code, said = kvspec(driver, "fuzz", "--system", "DRIVER", "--jobs", "1", "--seeds", "10", "--steps", "40", bug="leak")
    assert code == 1 and "differs free slots of" in said, said


def test_what_it_does_not_know_is_told(driver: Path) -> None:
    done = subprocess.run([str(driver), "--fast"], capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stderr) == (2, "--fast: expected --bug=parent, recent, leak or held\n")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (rb'{"id": 3, "message": "hello", "protocol": 1.0}', b'{"id":3,"wrong":"expected a whole number, this is 1.000000"}'),
        (rb'{"id": 3, "message": "\u00e9\ud83d\ude00\n\"\\"}', b'{"id":3,"wrong":"expected hello as the first message"}'),
        (b'{"id": 3, "message": "observe"', b'{"id":null,"wrong":"no JSON: it ends too early"}'),
        (b'{"id": 3} x', b'{"id":null,"wrong":"no JSON: more behind the value"}'),
        (b'{"id": 99999999999999999999}', b'{"id":null,"wrong":"no JSON: expected a value"}'),
        (
            b'{"id": 3, "message": [1, 2, {"a": null, "b": true}]}',
            b'{"id":3,"wrong":"expected text, this is [1,2,{\\"a\\":null,\\"b\\":true}]"}',
        ),
    ],
)
def test_its_json(driver: Path, line: bytes, answer: bytes) -> None:
    done = subprocess.run([str(driver)], input=line + b"\n", capture_output=True, timeout=10, check=False)
    assert (done.returncode, done.stdout) == (0, answer + b"\n")

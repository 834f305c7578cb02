"""Style, types, and the one direction in which the packages depend on each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kvspec.language.formatting import formatted
from kvspec.suite import scenario_files

ROOT = Path(__file__).parent.parent
FORBIDDEN = {"spec": {"kvref", "kvgpu"}, "kvref": {"kvgpu", "numpy", "numba", "torch"}, "kvgpu": {"kvref"}}


@pytest.mark.parametrize("command", [["ruff", "check"], ["mypy"]], ids=["ruff", "mypy"])
def test_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_dependencies_point_one_way(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                names = [node.module]
            for name in names:
                assert name.split(".")[0] not in FORBIDDEN[package], f"{path.relative_to(ROOT)}:{node.lineno} imports {name}"


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "scenarios").iterdir()))
def test_scenarios_are_in_the_form_that_fmt_gives_them(folder: str) -> None:
    for path in scenario_files([ROOT / "scenarios" / folder]):
        text = path.read_text(encoding="utf-8")
        assert formatted(path, text) == text, f"kvspec fmt {path.relative_to(ROOT)}"

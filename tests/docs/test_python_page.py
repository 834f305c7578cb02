"""Every example of docs/python.md runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from kvgpu.device.open import why_no_gpu
from tests.docs.pages import Block, blocks
from tests.paths import ROOT

PAGE = ROOT / "docs" / "python.md"
INSTALLED = any(point.name == "kvspec" for point in entry_points(group="pytest11"))


def run(block: Block, names: dict[str, Any]) -> str:
    """Run an example and return what it printed; its line numbers are those of the page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, str(PAGE), "exec"), names)
    return printed.getvalue()


def run_all(device: str) -> int:
    """Run the program that the page is on a device; returns the number of blocks whose output was compared."""
    names: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    compared = 0
    for block in blocks(PAGE):
        if block.mark.startswith("file:") or (block.mark == "only on a GPU" and device == "sim"):
            printed = None
        elif block.kind == "python":
            assert printed in (None, ""), f"line {block.line}: the example before prints what the page does not show: {printed}"
            printed = run(replace(block, text=block.text.replace('open_device("sim")', f"open_device({device!r})")), names)
        elif block.kind == "text" and printed is not None:
            assert printed == block.text, f"line {block.line}"
            printed, compared = None, compared + 1
    return compared


def test_the_examples_run_on_the_simulated_device() -> None:
    assert run_all("sim") == sum(block.kind == "text" for block in blocks(PAGE)) - 1


@pytest.mark.cuda
@pytest.mark.skipif(why_no_gpu() is not None, reason=f"needs a GPU: {why_no_gpu()}")
def test_the_examples_run_on_a_gpu() -> None:
    import torch

    from kvgpu.device.cuda.driver import ordinal_of_worker

    with torch.cuda.device(ordinal_of_worker(torch.cuda.device_count())):
        assert run_all("cuda") == sum(block.kind == "text" for block in blocks(PAGE))


def test_the_examples_of_the_fixture_pass(tmp_path: Path) -> None:
    files = [block for block in blocks(PAGE) if block.mark.startswith("file: ")]
    assert len(files) == 2
    for block in files:
        (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text)
    done = _pytest(tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


FAILING = """\
def test_wrong(kvspec_replay):
    kvspec_replay("wrong.yaml", system="kvref.system:Reference", against="kvref.system:Reference")

def test_nobody(kvspec_replay):
    kvspec_replay("rows.yaml", system="nobody")

def test_missing(kvspec_replay):
    kvspec_replay("there_is_none.yaml")

def test_lacking(kvspec_replay):
    class Small:
        capabilities = frozenset({"create"})
    kvspec_replay("rows.yaml", system=Small)

def test_scenario(kvspec_replay):
    from pathlib import Path
    from kvspec import load_file
    (scenario,) = load_file(Path(__file__).with_name("rows.yaml"))
    (result,) = kvspec_replay(scenario)
    assert result.name == "complete history moves"
"""


def test_what_the_fixture_says_when_something_is_wrong(tmp_path: Path) -> None:
    (rows,) = (block.text for block in blocks(PAGE) if block.mark == "file: rows.yaml")
    (tmp_path / "rows.yaml").write_text(rows)
    (tmp_path / "wrong.yaml").write_text(rows.replace("[host, host]", "[host, gpu]"))
    (tmp_path / "test_wrong.py").write_text(FAILING)
    done = _pytest(tmp_path, "-rs")
    assert "3 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    for text in (
        "FAILED complete history moves",
        "expect: {levels: {chat: [host, gpu]}}",
        "no system is called 'nobody'",
        "there_is_none.yaml",
        "Small lacks verb enter_decode",
        "reproduce: pytest test_wrong.py::test_wrong",
    ):
        assert text in done.stdout, text + "\n" + done.stdout
    for text in ("Traceback", "During handling", "fixture.py"):
        assert text not in done.stdout


def _pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    plugin = [] if INSTALLED else ["-p", "kvspec.plugin"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "spec"), str(ROOT)]), "COLUMNS": "160"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *plugin, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)

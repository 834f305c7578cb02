"""The example of docs/prefix-cache.md: green as it is, short, and each mistake planted in it is found by random lifecycles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PATHS, ROOT

EXAMPLES = ROOT / "docs" / "examples"
FILES = ("prefix_cache.py", "prefix_adapter.py")
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
BUGS = {
    "stale hash": ("del self.known[block.prefix]", "pass"),
    "touch": ("self.idle.pop(block, None)", "pass"),
    "newest first": ("for block in self.idle if block", "for block in reversed(self.idle) if block"),
    "leak": ("if not block.users and block.prefix is None:", "if block.users < 0:"),
    "head first": ("in reversed(one.blocks):", "in one.blocks:"),
    "room counted twice": ("if count > len(self.blank) + len(old):", "if count > len(self.blank) + len(self.idle):"),
    "hash without the parent": (
        "self.known[tokens[:end]][0]",
        "next(b for p, bs in self.known.items() if p[-self.size:] == tokens[end-self.size:end] for b in bs)",
    ),
}
"""By name, a line of the cache and what stands there instead."""


def kvspec(*args: str, where: Path = EXAMPLES) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "100"}
    command = [sys.executable, "-c", RUN, *args, "--profile", "prefix", "--system", "prefix_adapter:PrefixSystem", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=where, env=environment, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_all_that_it_can_do_of_the_profile_passes() -> None:
    _, said = kvspec("run", str(ROOT / "scenarios"))
    found = re.search(r"(\d+) passed, 0 failed", said)
    assert found is not None and int(found[1]) >= 59, said
    _, _, table = said.partition("as the system lacks:")
    lacks = set(re.findall(r"^  (\S.*?)  +\d+ +\d+$", table, re.MULTILINE))
    assert lacks == {"windows", "several layer groups", "priority of create", "priority of seed_prefix", "groups of seed_prefix"}


def test_random_lifecycles_agree() -> None:
    code, said = kvspec("fuzz", "--seeds", "12")
    assert code == 0, said
    assert "12 lifecycles of 60 steps, 0 failed" in said


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_mistake_is_found(bug: str, tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(EXAMPLES / name, tmp_path)
    cache = tmp_path / FILES[0]
    right, wrong = BUGS[bug]
    text = cache.read_text()
    assert right in text
    cache.write_text(text.replace(right, wrong))
    code, said = kvspec("fuzz", "--seeds", "60", where=tmp_path)
    assert code == 1, said
    assert "FAILED lifecycle" in said and "steps:" in said


def test_cache_and_adapter_are_of_about_a_hundred_lines() -> None:
    for name in FILES:
        lines = [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]
        assert len(lines) <= 105, name


def test_the_page_shows_the_adapter() -> None:
    page = (ROOT / "docs" / "prefix-cache.md").read_text()
    adapter = (EXAMPLES / "prefix_adapter.py").read_text()
    shown = re.findall(r"(?<!-->\n)```python\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 2
    for block in shown:
        for part in block.split("\n\n"):
            assert part.strip("\n") in adapter

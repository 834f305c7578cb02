"""The example of docs/prefix-cache.md: green as it is, and random lifecycles find each of its planted bugs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.paths import PATHS, ROOT

EXAMPLES = ROOT / "docs" / "examples"
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
SYSTEM = ("--system", "prefix_adapter:PrefixSystem")


def kvspec(*args: str, bug: str = "") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "100", "PREFIX_BUG": bug}
    command = [sys.executable, "-c", RUN, *args, *SYSTEM, "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES, env=environment, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_green_on_what_it_can_do_of_the_suite() -> None:
    code, said = kvspec("run", "../../scenarios")
    assert code == 0, said
    found = re.search(r"(\d+) passed, 0 failed", said)
    assert found is not None and int(found[1]) >= 5, said


def test_random_lifecycles_agree() -> None:
    code, said = kvspec("fuzz", "--profile", "prefix", "--seeds", "12")
    assert code == 0, said
    assert "12 lifecycles of 60 steps, 0 failed" in said


@pytest.mark.parametrize("bug", ["stale_hash", "head_first", "forgets_parent", "touch", "leak"])
def test_each_planted_bug_is_found(bug: str) -> None:
    code, said = kvspec("fuzz", "--profile", "prefix", "--seeds", "60", bug=bug)
    assert code == 1, said
    assert "FAILED lifecycle" in said and "steps:" in said


def test_the_page_shows_the_adapter_and_names_its_bugs() -> None:
    page = (ROOT / "docs" / "prefix-cache.md").read_text()
    adapter = (EXAMPLES / "prefix_adapter.py").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        for part in block.split("\n\n"):
            assert part.strip("\n") in adapter
    bugs = re.findall(r'BUG == "(\w+)"', (EXAMPLES / "prefix_cache.py").read_text())
    assert sorted(set(bugs)) == ["forgets_parent", "head_first", "leak", "stale_hash", "touch"]
    assert [bug for bug in bugs if bug not in page] == []

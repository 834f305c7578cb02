"""The example for SGLang's radix cache: green as far as it goes, and each mistake planted in it is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
THERE = find_spec("sglang") is not None or bool(os.environ.get("KVSPEC_SGLANG"))
BUGS = ("stale_node", "no_lock_on_match", "newest_first", "leak", "counted_twice", "parent_ignored", "match_renews_nothing")
pytestmark = pytest.mark.skipif(not THERE, reason="needs SGLang, or its unpacked wheel in KVSPEC_SGLANG")


def kvspec(*args: str, bug: str = "") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "100", "KVSPEC_SGLANG_BUG": bug}
    command = [sys.executable, "-c", RUN, *args, "--profile", "prefix", "--system", "tests.stubs.sglang_system:SglangSystem"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def counts(said: str) -> tuple[int, int]:
    found = re.search(r"^(\d+) passed, (\d+) failed", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1]), int(found[2])


def test_what_it_can_do_of_its_profile_passes() -> None:
    _, said = kvspec("run", "-q")
    passed, failed = counts(said)
    assert failed == 0 and passed > 40, said
    assert "held: pinned, match_renews: yes, failed_operation: may_have_evicted" in " ".join(said.split())


def test_random_lifecycles_agree() -> None:
    code, said = kvspec("fuzz", "--seeds", "10")
    assert code == 0, said
    assert "10 lifecycles of 60 steps, 0 failed" in said


@pytest.mark.parametrize("bug", BUGS)
def test_each_mistake_planted_in_it_is_found(bug: str) -> None:
    code, said = kvspec("run", "-q", bug=bug)
    assert code == 1 and counts(said)[1] > 0, said

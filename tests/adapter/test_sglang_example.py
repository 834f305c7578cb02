"""The example for SGLang's radix cache: green as far as it goes, and each mistake planted in it is found."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.adapter.installed import counts, kvspec_on

THERE = find_spec("sglang") is not None or bool(os.environ.get("KVSPEC_SGLANG"))
BUGS = ("stale_node", "no_lock_on_match", "newest_first", "leak", "counted_twice", "parent_ignored", "match_renews_nothing")
pytestmark = pytest.mark.skipif(not THERE, reason="needs SGLang, or its unpacked wheel in KVSPEC_SGLANG")
kvspec = kvspec_on("tests.stubs.sglang_system:SglangSystem", "KVSPEC_SGLANG_BUG")


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

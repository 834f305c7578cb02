"""The example for SGLang's radix cache: green as far as it goes, and each mistake planted in it is found."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

import pytest

from tests.adapter.installed import caught_by, counts, kvspec_on

THERE = find_spec("sglang") is not None or bool(os.environ.get("KVSPEC_SGLANG"))
BUGS = (
    *("stale_node", "no_lock_on_match", "newest_first", "leak", "counted_twice"),
    *("parent_ignored", "first_token_alone", "match_renews_nothing"),
)
pytestmark = pytest.mark.skipif(not THERE, reason="needs SGLang, or its unpacked wheel in KVSPEC_SGLANG")
kvspec = kvspec_on("tests.stubs.sglang_system:SglangSystem", "KVSPEC_SGLANG_BUG")


def test_what_it_can_do_of_its_profile_passes() -> None:
    _, said = kvspec("run", "-q")
    passed, failed = counts(said)
    assert failed == 0 and passed > 40, said
    assert "held: pinned, match_renews: yes, failed_operation: may_have_evicted" in " ".join(said.split())


def test_random_lifecycles_agree_and_all_are_finished() -> None:
    code, said = kvspec("fuzz", "--seeds", "10")
    assert code == 0, said
    assert re.search(r"^10 lifecycles of 60 steps, 0 failed, [\d.]+ s$", said, re.MULTILINE), said


@pytest.mark.parametrize("bug", BUGS)
def test_scenarios_catch_each_mistake_planted_in_it(bug: str) -> None:
    code, said = kvspec("run", "-q", bug=bug)
    assert code == 1 and counts(said)[1] > 0, said


def test_random_lifecycles_tell_pages_apart_that_begin_alike() -> None:
    assert caught_by(kvspec, "first_token_alone") >= 0

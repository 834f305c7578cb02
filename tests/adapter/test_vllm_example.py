"""The example for vLLM's manager: green but for what that manager lacks, and each mistake planted in vLLM is found."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

import pytest

from tests.adapter.installed import caught_by, counts, kvspec_on

THERE = find_spec("vllm") is not None or bool(os.environ.get("KVSPEC_VLLM"))
BUGS = {
    "stale_hash": "differs tree tokens of page",
    "touch": "differs eviction order of gpu",
    "newest_first": "differs eviction order of gpu",
    "window_off_by_one": "differs index of a.main block 2",
    "leak": "differs free slots of gpu",
    "head_first": "differs eviction order of gpu",
    "counted_twice": "differs free slots of gpu",
    "hash_without_parent": "differs status of page main[1, 2]",
}
"""By name, and a difference of those that scenarios show."""
LACKS = {
    "groups whose pages differ in size",
    "priority of create",
    "priority of seed_prefix",
    "sink tokens",
    "growth without the blocks that are behind the window at once",
    "giving back blocks of a request that runs",
}
"""What of the profile vLLM does not have."""
pytestmark = pytest.mark.skipif(not THERE, reason="needs vLLM, or the unpacked source distribution of vllm-tpu in KVSPEC_VLLM")
kvspec = kvspec_on("tests.stubs.vllm_system:VllmSystem", "KVSPEC_VLLM_BUG")


def test_its_profile_passes_but_for_what_it_lacks() -> None:
    code, said = kvspec("run")
    passed, failed = counts(said)
    assert (code, failed) == (1, 0) and passed >= 79, said  # what is skipped of a profile is not passed
    assert "dedupe: keep_both, held: pinned, recency: let_go, release_order: by_group" in " ".join(said.split())
    _, _, table = said.partition("as the system lacks:")
    lacks = set(re.findall(r"^  (\S.*?)  +\d+ +\d+$", table, re.MULTILINE))
    assert lacks == LACKS, said


def test_random_lifecycles_agree_and_all_are_finished() -> None:
    code, said = kvspec("fuzz", "--seeds", "10")
    assert code == 0, said
    assert "managers: full attention, windows; the GPU alone; several layer groups" in " ".join(said.split())
    assert re.search(r"^10 lifecycles of 60 steps, 0 failed, [\d.]+ s$", said, re.MULTILINE), said


@pytest.mark.parametrize(("bug", "shows"), BUGS.items(), ids=list(BUGS))
def test_scenarios_catch_each_mistake_planted_in_it(bug: str, shows: str) -> None:
    code, said = kvspec("run", "-q", bug=bug)
    assert code == 1 and counts(said)[1] > 0, said
    assert shows in said


@pytest.mark.parametrize("bug", BUGS)
def test_random_lifecycles_catch_each_mistake_planted_in_it(bug: str) -> None:
    assert caught_by(kvspec, bug) >= 0

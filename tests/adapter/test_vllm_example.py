"""The example for vLLM's manager: green as far as it goes, and each mistake planted in vLLM is found."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.adapter.installed import counts, kvspec_on

THERE = find_spec("vllm") is not None or bool(os.environ.get("KVSPEC_VLLM"))
BUGS = ("stale_hash", "touch", "newest_first", "leak", "head_first", "hash_without_parent")
pytestmark = pytest.mark.skipif(not THERE, reason="needs vLLM, or the unpacked source distribution of vllm-tpu in KVSPEC_VLLM")
kvspec = kvspec_on("tests.stubs.vllm_system:VllmSystem", "KVSPEC_VLLM_BUG")


def test_what_it_can_do_of_its_profile_passes() -> None:
    _, said = kvspec("run", "-q")
    passed, failed = counts(said)
    assert failed == 0 and passed > 40, said
    assert "dedupe: keep_both, held: pinned, match_renews: yes, on_drop: page_alone" in " ".join(said.split())


def test_random_lifecycles_agree() -> None:
    code, said = kvspec("fuzz", "--seeds", "10")
    assert code == 0, said
    assert "10 lifecycles of 60 steps, 0 failed" in said


@pytest.mark.parametrize("bug", BUGS)
def test_each_mistake_planted_in_it_is_found(bug: str) -> None:
    code, said = kvspec("run", "-q", bug=bug)
    assert code == 1 and counts(said)[1] > 0, said

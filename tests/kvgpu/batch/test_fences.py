"""Each fence around the tables is really there: without it, the ordering check finds two unordered accesses in one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kvgpu.adapter.system import Implementation
from kvspec.config import ManagerConfig
from kvspec.ops import VERBS
from kvspec.system import Setup

from .scene import CONFIG

Step = Mapping[str, Mapping[str, Any]]

START: list[Step] = [
    {"create": {"request": "a"}},
    {"resume": {"request": "a"}},
    {"resize": {"request": "a", "capacity": 12, "history": 8}},
    {"batch": {"name": "rows", "rows": 1, "blocks": 3}},
    {"add": {"batch": "rows", "request": "a"}},
]
READ: Step = {"read_table": {"batch": "rows", "group": "main", "stream": "side", "as": "r"}}
FENCES: dict[str, list[Step]] = {
    "R8.1 first publication: the tables have their first values": [{"publish": {"batch": "rows"}}],
    "R8.1 the tables have their first values": [{"publish": {"batch": "rows"}}],
    "R8.7 exported array: the consumer's stream": [{"publish": {"batch": "rows"}}, READ],
    "R7.5 publication: the tables are written": [{"publish": {"batch": "rows"}}, READ],
    # A suspended member has no pages whose readiness would order the publications.
    "R7.5 publication: the previous publication": [
        {"publish": {"batch": "rows"}},
        {"suspend": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "side"}},
    ],
    "R7.5 publication: recorded reads of the tables": [
        {"publish": {"batch": "rows"}},
        READ,
        {"record_read": {"batch": "rows", "stream": "side"}},
        {"suspend": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "other"}},
    ],
    "R7.7 record_read: the reads of the tables so far": [
        {"publish": {"batch": "rows"}},
        READ,
        {"record_read": {"batch": "rows", "stream": "side"}},
        {"enter_decode": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "other"}},
    ],
    "R7.6 staging buffer: its upload has run": [
        {"publish": {"batch": "rows"}},
        {"enter_decode": {"request": "a"}},
        {"publish": {"batch": "rows"}},
        {"suspend": {"request": "a"}},
        {"publish": {"batch": "rows"}},
    ],
    "R7.5 publication: readiness of the pages in its rows": [
        {"publish": {"batch": "rows"}},
        {"enter_decode": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "other"}},
        {"wait_ready": {"batch": "rows", "stream": "side"}},
        {"read_page": {"request": "a", "block": 0, "group": "main", "stream": "side", "as": "p"}},
    ],
    "R8.7 wait_ready: the publication": [
        {"publish": {"batch": "rows"}},
        {"enter_decode": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "other"}},
        {"wait_ready": {"batch": "rows", "stream": "side"}},
        {"read_page": {"request": "a", "block": 0, "group": "main", "stream": "side", "as": "p"}},
    ],
    "R8.4 nothing dirty: the stream follows the last publication": [
        {"enter_decode": {"request": "a"}},
        {"publish": {"batch": "rows", "stream": "other"}},
        {"publish": {"batch": "rows", "stream": "side"}},
        {"read_page": {"request": "a", "block": 0, "group": "main", "stream": "side", "as": "p"}},
    ],
    # The row is not published, so that no slot of the member is named: only its stream is ordered after the read.
    "R7.7 record_read: the stream of an active member": [
        {"wait_snapshot": {"snapshot": "s", "stream": "side"}},
        {"read_page": {"request": "a", "block": 2, "group": "main", "stream": "side", "as": "p"}},
        {"record_read": {"batch": "rows", "stream": "side"}},
        {"write": {"request": "a", "blocks": [2]}},
    ],
    "R8.8 replay: the last publication of a table it reads": [
        {"publish": {"batch": "rows"}},
        {"begin_capture": {"stream": "side"}},
        READ,
        {"end_capture": {"stream": "side", "as": "g"}},
        {"replay": {"graph": "g", "stream": "other", "as": "w"}},
    ],
    "R8.8 replay: the result of the replay before has been copied": [
        {"publish": {"batch": "rows"}},
        {"begin_capture": {"stream": "side"}},
        READ,
        {"end_capture": {"stream": "side", "as": "g"}},
        {"replay": {"graph": "g", "stream": "other", "as": "w"}},
        {"replay": {"graph": "g", "stream": "side", "as": "v"}},
    ],
}
FENCES["R8.8 replay: its result has been copied"] = FENCES["R8.8 replay: the result of the replay before has been copied"]


def faults_of(steps: Sequence[Step], mutant: str = "") -> tuple[str, ...]:
    options = {"device": "sim", "mutant": mutant}
    system = Implementation(Setup(ManagerConfig.model_validate(CONFIG), ("exec", "side", "other"), options))
    try:
        for step in (*START, {"snapshot": {"request": "a", "group": "main", "as": "s"}}, *steps):
            [(verb, arguments)] = step.items()
            outcome = system.apply(VERBS[verb].model_validate(arguments))
            assert outcome.error is None, outcome.message
        return system.observe().faults
    finally:
        system.close()


@pytest.mark.parametrize("site", FENCES)
def test_without_the_fence_the_check_finds_it(site: str) -> None:
    assert faults_of(FENCES[site]) == ()
    assert any("unordered accesses" in fault for fault in faults_of(FENCES[site], site))

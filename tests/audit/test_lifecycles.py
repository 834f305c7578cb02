"""Random lifecycles end with nothing left: no page, no slot in use, no file; and what is left would be found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kvspec.audit.lifecycles import as_yaml, loaded, run, try_lifecycle
from kvspec.audit.managers import Fetches, Profile
from kvspec.audit.reached import Reached
from kvspec.audit.still_held import own_folder
from kvspec.audit.workload import STREAMS
from kvspec.harness.replay import Named
from kvspec.harness.report import failure_report, plain
from kvspec.harness.systems import find_system
from tests.audit.hoarders import KeepsFiles, KeepsSlots

CHUNK = 10


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
def test_both_systems_agree_and_let_go_of_everything(first: int) -> None:
    systems = (Named("kvgpu", find_system("kvgpu")), Named("kvref", find_system("kvref")))
    for seed in range(first, first + CHUNK):
        found = try_lifecycle(seed, 40, *systems, {"device": "sim"}, Profile()).found
        assert found is None, plain(failure_report(found.result, ("kvref", "kvgpu"), f"kvspec fuzz --first {seed} --seeds 1"))


def test_lifecycles_with_fetches_agree_however_the_device_orders_its_work() -> None:
    systems = (Named("kvgpu", find_system("kvgpu")), Named("kvref", find_system("kvref")))
    reached = Reached()
    for seed in range(30):
        schedule = "adversarial" if seed % 2 else f"seed={seed}"
        result = try_lifecycle(seed, 50, *systems, {"device": "sim", "schedule": schedule}, Profile(fetches=Fetches.ALL))
        line = f"kvspec fuzz --first {seed} --seeds 1 --steps 50 --fetches all --schedule {schedule}"
        found = result.found
        assert found is None, plain(failure_report(found.result, ("kvref", "kvgpu"), line))
        reached.add(result.reached)
    assert reached.fetched["lifecycles"] >= 10
    assert reached.fetched["hits"] > 20 and reached.fetched["misses"] > 20
    assert reached.calls["replay", "done"] > 10


def test_what_was_gone_through_is_what_its_text_says() -> None:
    systems = (Named("keeps", KeepsSlots), Named("keeps", KeepsSlots))
    errors = set()
    for seed in range(20):
        found = try_lifecycle(seed, 40, *systems, {}, Profile()).found
        assert found is not None and found.at_the_end
        result, steps = run(found.life, *systems, {})
        assert result.failure == found.result.failure
        scenario = loaded(as_yaml(found.life, steps))
        assert found.text == as_yaml(found.life, steps)
        assert scenario.manager == found.life.manager
        assert set(scenario.streams) <= set(STREAMS)
        assert [(step.op, step.raises) for step in scenario.steps] == [(step.op, step.raises) for step in steps]
        errors.update(step.raises for step in steps)
    assert len(errors) > 3


def test_slots_in_use_at_the_end_are_found() -> None:
    system = Named("keeps", KeepsSlots)
    found = try_lifecycle(1, 20, system, system, {}, Profile(gates=False)).found
    assert found is not None and found.result.failure is not None
    subjects = [difference.subject for difference in found.result.failure.differences]
    assert subjects and all(subject.startswith("left at the end: slots of ") for subject in subjects)
    assert {difference.implementation for difference in found.result.failure.differences} == {"1 in use"}
    assert "clear_reusable" in found.text


def test_files_at_the_end_are_found() -> None:
    system, reference = Named("keeps", KeepsFiles), Named("kvref", find_system("kvref"))
    found = try_lifecycle(1, 10, system, reference, {}, Profile()).found
    assert found is not None and found.result.failure is not None
    (difference,) = found.result.failure.differences
    assert difference.subject == "files left at the end"
    assert difference.implementation.startswith("hoard-")


def test_temporary_files_go_to_the_folder_and_nowhere_else_afterwards() -> None:
    before = tempfile.gettempdir()
    with own_folder() as folder:
        Path(tempfile.mkdtemp(), "page").write_bytes(b"x")
    assert len(folder.left) == 2
    assert tempfile.gettempdir() == before
    assert not folder.path.exists()

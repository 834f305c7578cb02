"""Attention over what is fetched and a request's own pages equals dense attention over the blocks that are selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kvgpu.adapter.payloads
from kvgpu.device.open import why_no_gpu
from kvgpu.errors import InvalidArgument
from kvgpu.serving.executor import Executor
from kvgpu.serving.fetched import FetchedAttention
from kvgpu.testing.fetches import FETCHES
from kvspec.config import Ownership
from tests.consumer.fetching import FetchingWorkload
from tests.consumer.workload import LAYERS, Workload, decoding, floats

STEPS = 200
BLOCKS = {"selected": 4, "reserve": 6}
UNITS = {"selected": 6, "reserve": 4, "unit": 2}
ROOMS = {Ownership.SHARED: 24 + 3 * 6, Ownership.PRIVATE: 100 + 3 * 6}
"""GPU slots: as without fetches, and the reservations of three requests."""
Start = Callable[..., FetchingWorkload]
OWNERSHIP = pytest.mark.parametrize("ownership", Ownership, ids=lambda one: one.value)


@pytest.fixture(params=["sim", pytest.param("cuda", marks=pytest.mark.cuda)])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    if request.param == "cuda" and (reason := why_no_gpu()):
        pytest.skip(f"needs a GPU: {reason}")
    monkeypatch.setattr(kvgpu.adapter.payloads, "expand", floats)
    started: list[FetchingWorkload] = []

    def begin(fetching: dict[str, int], ownership: Ownership = Ownership.SHARED, **kwargs: Any) -> FetchingWorkload:
        work = FetchingWorkload(request.param, fetching, gpu=ROOMS[ownership], ownership=ownership, **kwargs)
        started.append(work)
        return work

    yield begin
    for work in started:
        work.close()


def _go(work: FetchingWorkload, steps: int, captured: bool) -> None:
    """Decode and compare each step; ``captured``: by replays of a graph, from the second step on."""
    for number, step in enumerate(decoding(work, steps)):
        if captured and number == 1:
            work.attention.capture(work.stream)
        work.compare()
        work.built._device.at_step(step, "consumer")


def _must_have_shown_all(work: FetchingWorkload, ownership: Ownership) -> None:
    seen, asked, lifetime = work.seen, work.asked, work.reference.observe().lifetime
    found = work.built._run.manager.counters().groups[0]
    assert seen.compared > 2 * STEPS * 3 // 4
    assert found["fetch_hits"] + found["fetch_misses"] == asked.below_the_count
    assert found["fetch_hits"] > 500 and found["fetch_misses"] > 300
    assert asked.at_or_beyond > 30 and asked.twice > 30 and asked.own > 300
    assert seen.onboarded > 20
    assert lifetime.suspends == 2
    if ownership is Ownership.SHARED:
        assert seen.behind_a_gap > 20
    else:
        assert lifetime.groups["first"].attach_pages > 20
    assert work.built.observe().faults == ()


@OWNERSHIP
@pytest.mark.parametrize("captured", [False, True], ids=["plain", "replayed"])
def test_attention_over_fetched_entries(
    start: Start, ownership: Ownership, captured: bool, record_property: Callable[[str, object], None]
) -> None:
    work = start(BLOCKS, ownership, schedule="adversarial" if captured else "fifo")
    _go(work, STEPS, captured)
    _must_have_shown_all(work, ownership)
    record_property("largest relative error", work.seen.worst)
    print(f"largest relative error {work.seen.worst:.2e} over {work.seen} {work.asked}")


@pytest.mark.parametrize("captured", [False, True], ids=["plain", "replayed"])
def test_attention_over_fetched_units(start: Start, captured: bool) -> None:
    work = start(UNITS, schedule="adversarial")
    _go(work, STEPS, captured)
    _must_have_shown_all(work, Ownership.SHARED)


def test_it_is_the_consumer_of_an_iteration(start: Start) -> None:
    work = start(BLOCKS)
    manager, rows = work.built._run.manager, work.built._run.names.batches["rows"]
    executor = Executor(manager, rows, work.stream, work.attention)
    for _ in decoding(work, 24):
        work.compare(lambda: executor.iterate([]))
    assert work.seen.compared > 48
    assert work.built.observe().faults == ()


@pytest.mark.parametrize("captured", [False, True], ids=["plain", "replayed"])
@pytest.mark.parametrize(
    "name",
    [
        "a block at the count is fetched",
        "a unit is taken from the beginning of its page",
        "the device is not told which rows are served",
    ],
)
def test_it_notices_broken_fetches(monkeypatch: pytest.MonkeyPatch, name: str, captured: bool) -> None:
    monkeypatch.setattr(kvgpu.adapter.payloads, "expand", floats)
    broken = next(patch for title, _, patch in FETCHES if title == name)
    work = FetchingWorkload("sim", UNITS, gpu=ROOMS[Ownership.SHARED])
    with broken(), pytest.raises(AssertionError, match="relative error"):
        _go(work, 75, captured)
    work.close()


def test_a_layer_that_reserves_nothing() -> None:
    work = Workload("sim")
    manager, rows = work.built._run.manager, work.built._run.names.batches["rows"]
    with pytest.raises(InvalidArgument, match="no selected and reserve"):
        FetchedAttention(manager, rows, LAYERS[0])
    work.close()

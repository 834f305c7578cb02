"""What is published is enough: a consumer that knows the tables alone finds all of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kvgpu.adapter.payloads
from kvgpu.device.open import why_no_gpu
from kvgpu.errors import InvalidArgument, OutOfRange
from kvgpu.serving.consumer import SparseAttention
from kvgpu.serving.executor import Executor
from kvspec.config import Ownership
from tests.consumer.workload import Workload, decoding, floats

STEPS = 200
Start = Callable[..., Workload]


@pytest.fixture(params=["sim", pytest.param("cuda", marks=pytest.mark.cuda)])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    if request.param == "cuda" and (reason := why_no_gpu()):
        pytest.skip(f"needs a GPU: {reason}")
    monkeypatch.setattr(kvgpu.adapter.payloads, "expand", floats)
    started: list[Workload] = []

    def begin(**kwargs: Any) -> Workload:
        started.append(Workload(request.param, **kwargs))
        return started[-1]

    yield begin
    for work in started:
        work.close()


def _must_have_shown_all(work: Workload) -> None:
    seen = work.seen
    assert seen.compared > 2 * STEPS * 3 // 4
    assert seen.from_host > 1000
    assert seen.from_gpu > 1000
    assert seen.behind_a_gap > 20
    assert seen.onboarded > 20
    assert work.reference.observe().lifetime.suspends == 2
    assert work.built.observe().faults == ()


@pytest.mark.parametrize("schedule", ["fifo", "adversarial"])
def test_attention_over_a_decoding_workload(start: Start, schedule: str, record_property: Callable[[str, object], None]) -> None:
    work = start(schedule=schedule)
    for step in decoding(work, STEPS):
        work.compare()
        work.built._device.at_step(step, "consumer")
    _must_have_shown_all(work)
    record_property("largest relative error", work.seen.worst)
    print(f"largest relative error {work.seen.worst:.2e} over {work.seen}")


@pytest.mark.parametrize("schedule", ["fifo", "adversarial"])
def test_attention_with_private_ownership(start: Start, schedule: str) -> None:
    work = start(schedule=schedule, gpu=100, ownership=Ownership.PRIVATE)
    for step in decoding(work, STEPS):
        work.compare()
        work.built._device.at_step(step, "consumer")
    seen, observation = work.seen, work.reference.observe()
    assert seen.compared > 2 * STEPS * 3 // 4
    assert seen.from_host > 1000 and seen.from_gpu > 300 and seen.onboarded > 20
    assert seen.behind_a_gap == 0, "nothing is deferred because of another request (R14.6)"
    assert observation.lifetime.groups["first"].attach_pages > 20
    assert observation.lifetime.suspends == 2
    assert work.built.observe().faults == ()


def test_attention_under_graph_replay(start: Start, record_property: Callable[[str, object], None]) -> None:
    work = start()
    steps = decoding(work, STEPS)
    next(steps)
    work.compare()
    work.attention.capture(work.stream)
    for _ in steps:
        work.compare()
    _must_have_shown_all(work)
    record_property("largest relative error", work.seen.worst)
    print(f"largest relative error {work.seen.worst:.2e} over {work.seen}")


def test_attention_as_the_consumer_of_an_iteration(start: Start) -> None:
    work = start()
    manager, rows = work.built._run.manager, work.built._run.names.batches["rows"]
    executor = Executor(manager, rows, work.stream, work.attention)
    for _ in decoding(work, 24):
        work.compare(lambda: executor.iterate([]))
    assert work.seen.compared > 48
    assert work.built.observe().faults == ()


def test_a_wrong_byte_in_a_host_page_is_seen(start: Start) -> None:
    work = start()
    for step in decoding(work, 8):
        work.compare()
        if step == 7:
            break
    host = work.built._run.manager.pool_memory(1, 0).host_array().view(np.float32)
    host += np.float32(1.0)
    with pytest.raises(AssertionError, match="relative error"):
        work.compare()


def test_history_without_a_page_gives_no_number(start: Start) -> None:
    work = start()
    for _ in decoding(work, 4):
        pass
    work.compare()
    work.attention.set_inputs(np.ones((4, 16), np.float32), [200, 0, 0, 0])
    work.attention.run(work.stream)
    work.built._device.sync(work.stream)
    result = work.attention.result()
    assert np.isnan(result[0]).all()
    assert not result[1:].any()


def test_layers_and_batches_that_it_cannot_read(start: Start) -> None:
    work = start()
    manager, rows = work.built._run.manager, work.built._run.names.batches["rows"]
    with pytest.raises(InvalidArgument, match="'index' is not sparse"):
        SparseAttention(manager, rows, "index", "key", "key")
    with pytest.raises(OutOfRange, match=r"no buffer first\.scale"):
        SparseAttention(manager, rows, "first", "key", "scale")
    plain = type(rows)(manager, "plain", 1, 1)
    with pytest.raises(InvalidArgument, match="no page_level"):
        SparseAttention(manager, plain, "first")
    plain.close()

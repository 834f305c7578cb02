"""Positions of device work become gates by label and steps."""

from kvgpu.adapter.order import Gates, Orders, StepMarks
from kvgpu.device.api import Stream
from kvgpu.device.sim import SimDevice


class Scene:
    def __init__(self) -> None:
        self.device = SimDevice()
        self.streams: dict[str, Stream] = {name: self.device.stream(name) for name in ("exec", "side")}
        self.gates = Gates(self.device)
        self.marks = StepMarks(self.device, self.streams)
        self.orders = Orders(self.device, self.gates, self.marks)

    def work(self, step: int, stream: str) -> None:
        self.marks.begin(step)
        self.device.host_task(self.streams[stream], lambda: None, tuple, "work")
        self.marks.user_work(self.streams[stream])


def test_an_event_covers_the_steps_with_work_that_it_follows() -> None:
    scene = Scene()
    scene.work(0, "exec")
    event = scene.device.record(scene.streams["exec"], "event")
    scene.marks.begin(1)
    assert scene.orders.of(event).after == {"exec": 0}
    scene.work(2, "side")
    scene.work(3, "exec")
    assert scene.orders.of(event).after == {"exec": 0}
    assert scene.orders.of(scene.streams["exec"]).after == {"exec": 3}
    scene.device.wait(scene.streams["side"], event, "wait")
    assert scene.orders.of(scene.streams["side"]).after == {"exec": 0, "side": 2}


def test_work_of_the_first_step_that_is_not_covered_names_no_step() -> None:
    scene = Scene()
    event = scene.device.record(scene.streams["exec"], "event")
    scene.work(0, "exec")
    assert scene.orders.of(event).after == {}


def test_only_the_last_work_of_a_step_counts_and_only_that_of_users() -> None:
    scene = Scene()
    scene.work(0, "exec")
    early = scene.device.record(scene.streams["exec"], "event")
    scene.work(0, "exec")
    late = scene.device.record(scene.streams["exec"], "event")
    internal = scene.device.stream("copies")
    scene.marks.user_work(internal)
    assert scene.orders.of(early).after == {}
    assert scene.orders.all_of([early, late]).after == {"exec": 0}
    assert scene.orders.all_of([]).after == {}


def test_a_label_used_again_does_not_hold_up_old_work() -> None:
    scene = Scene()
    scene.gates.close("g", scene.streams["exec"])
    held = scene.device.position(scene.streams["exec"])
    assert scene.orders.at(held).gates == {"g"}
    scene.gates.open("g")
    scene.gates.close("g", scene.streams["side"])
    assert scene.orders.at(held).gates == frozenset()
    assert scene.orders.of(scene.streams["side"]).gates == {"g"}
    assert scene.gates.known == {"g"}

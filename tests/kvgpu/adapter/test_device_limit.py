"""What the device cannot do is told as such, whatever the manager makes of it: no rule says that the operation should fail."""

from __future__ import annotations

import pytest

from kvgpu.device.api import StreamsHeld
from kvgpu.device.sim import SimDevice
from kvspec.system import DeviceLimit
from tests.kvgpu.scene import apply, done, system

HELD = "gates hold up 24 streams"


@pytest.mark.parametrize(
    "step",
    [
        "- enter_decode: a",
        "- seed_prefix: {tokens: [1, 2, 3, 4], level: host}",
        "- begin_capture: side",
        "- batch: {name: more, rows: 1, blocks: 1}",
        "- publish: {batch: rows, stream: side}",
        "- iterate: {batch: rows, requests: [{request: a, decode: true}]}",
    ],
)
def test_too_many_held_streams_are_a_limit_and_not_a_refused_copy(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = system()
    done(
        it, "- create: a\n- resume: a\n- resize: {request: a, capacity: 8, history: 4}\n- batch: {name: rows, rows: 1, blocks: 2}"
    )
    done(it, "- add: {batch: rows, request: a}")

    def held(*args: object) -> None:
        raise StreamsHeld(HELD)

    for name in ("wait", "launch"):
        monkeypatch.setattr(SimDevice, name, held)
    with pytest.raises(DeviceLimit, match=HELD):
        apply(it, step)
    monkeypatch.undo()
    it.close()

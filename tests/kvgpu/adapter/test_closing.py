"""A system of the harness gives everything back once, whatever it was in the middle of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvgpu.device.sim import SimDevice
from kvgpu.manager import Manager
from tests.kvgpu.scene import done, system


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    calls: list[object] = []
    old: Callable[[object], None] = getattr(owner, name)

    def call(self: object) -> None:
        calls.append(self)
        old(self)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_system_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shut, closed = counted(monkeypatch, Manager, "shut"), counted(monkeypatch, SimDevice, "close")
    it = system()
    done(it, "  - create: r\n  - resume: r\n  - gate: {stream: exec, as: shut}\n  - batch: {name: rows, rows: 1, blocks: 2}")
    it.close()
    it.close()
    assert (len(shut), len(closed)) == (1, 1)
    assert it._device._bytes == 0  # type: ignore[attr-defined]


def test_a_system_that_could_not_be_built_closes_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, *args: object, **more: object) -> None:
        raise KeyError("manager")

    monkeypatch.setattr(Manager, "__init__", fail)
    closed = counted(monkeypatch, SimDevice, "close")
    with pytest.raises(KeyError):
        system()
    assert len(closed) == 1

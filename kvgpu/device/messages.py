"""Checks and errors that both devices share."""

from __future__ import annotations

from collections.abc import Iterable

from kvgpu.device.api import DeviceBlocked, DeviceError


def blocked(stream: str, labels: Iterable[str]) -> DeviceBlocked:
    """The error of a sync of ``stream`` that closed gates hold up."""
    names = sorted(labels)
    gates = f"gate {names[0]!r} holds" if len(names) == 1 else "gates " + ", ".join(map(repr, names)) + " hold"
    them = "it" if len(names) == 1 else "them"
    return DeviceBlocked(
        f"sync of stream {stream!r} would never end: the closed {gates} it up; open {them} first, or wait for an event instead"
    )


def check_range(name: str, size: int, offset: int, nbytes: int) -> None:
    """Raise ``DeviceError`` unless ``nbytes`` bytes from ``offset`` lie inside the memory ``name`` of ``size`` bytes."""
    if offset < 0 or nbytes < 0 or offset + nbytes > size:
        raise DeviceError(f"bytes [{offset}, {offset + nbytes}) are outside memory {name!r} of {size} bytes")


def check_allocation(kind: str, nbytes: int, name: str) -> None:
    """Raise ``DeviceError`` for a kind of memory that there is not, or a negative size."""
    if kind not in ("device", "pinned") or nbytes < 0:
        raise DeviceError(
            f"cannot allocate {nbytes} bytes of {kind!r} memory for {name!r}: expected 'device' or 'pinned', and a size from 0"
        )


def check_launch(kernel: str, blocks: int, threads: int) -> None:
    """Raise ``DeviceError`` for an empty grid."""
    if blocks < 1 or threads < 1:
        raise DeviceError(f"kernel {kernel!r} launched with {blocks} blocks of {threads} threads: expected at least 1 of each")


def in_capture(what: str, stream: str) -> DeviceError:
    """The error of ``what`` on a stream in capture."""
    return DeviceError(f"{what} on stream {stream!r}, which is in capture: end the capture first")


def capture_runs(stream: str) -> DeviceError:
    """The error of a second ``begin_capture``."""
    return DeviceError(f"stream {stream!r} is in capture already: end that capture first")


def no_capture(stream: str) -> DeviceError:
    """The error of ``end_capture`` without a capture."""
    return DeviceError(f"stream {stream!r} is not in capture: call begin_capture on it first")


def name_taken(stream: str) -> DeviceError:
    """The error of a second stream of one name."""
    return DeviceError(f"stream {stream!r} exists already: give each stream of a device its own name")


def gone(stream: str) -> DeviceError:
    """The error of work for a stream that was given back."""
    return DeviceError(f"stream {stream!r} was given back: nothing can be submitted to it; make another")


def foreign(what: object, device: str, kind: str) -> DeviceError:
    """The error of a ``kind`` (stream, memory, event) that is another device's."""
    made = {"stream": "stream() or external_stream()", "memory": "allocate()", "event": "record()"}[kind]
    return DeviceError(f"{what!r} is no {kind} of this {device} device: use its {made}")


def failed_work(site: str, where: str, step: tuple[int, str], error: Exception) -> str:
    """The fault of work that raised."""
    at = f"{where}, " if where else ""
    return f"work failed: {site} ({at}step {step[0]}: {step[1]}): {type(error).__name__}: {error}"


CLOSED = "the device is closed: open another one"

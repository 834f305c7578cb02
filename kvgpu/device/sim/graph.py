"""Captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvgpu.device.api import Access, Accesses, Stream


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured submission. ``accesses`` is asked anew at each replay."""

    work: Callable[[], None]
    accesses: Accesses
    site: str


@dataclass(frozen=True, slots=True)
class SimGraph:
    """Captured submissions in order. ``submit`` is the device's."""

    work: tuple[Captured, ...]
    submit: Callable[[Stream, Callable[[], None], Accesses, str], None]

    def launch(self, stream: Stream, site: str) -> None:
        """Submit a replay: one submission, whose accesses are those of all captured work as it would make them now."""
        inner = ", ".join(dict.fromkeys(each.site for each in self.work))
        self.submit(stream, self._run, self._accesses, f"{site} [{inner}]" if inner else site)

    def _run(self) -> None:
        for each in self.work:
            each.work()

    def _accesses(self) -> Sequence[Access]:
        return [access for each in self.work for access in each.accesses()]

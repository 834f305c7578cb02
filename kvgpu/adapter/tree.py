"""The tree events of the last operation (R13.3)."""

from __future__ import annotations

from kvgpu.adapter.tokens import shown
from kvgpu.manager import Manager
from kvgpu.operations.state import TreeEvent
from kvspec import observation
from kvspec.config import Level


class TreeLog:
    """Listens to a manager and keeps the events of the operation that runs, or ran last."""

    def __init__(self, manager: Manager) -> None:
        """Listen from now on."""
        self._groups = tuple(group.name for group in manager.layout.groups)
        self._events: list[observation.TreeEvent] = []
        manager.listen(self._hear)

    @property
    def events(self) -> tuple[observation.TreeEvent, ...]:
        """The events of the last operation, in order."""
        return tuple(self._events)

    def begin(self) -> None:
        """A new operation begins: the events so far belong to the one before."""
        self._events.clear()

    def _hear(self, event: TreeEvent) -> None:
        match event.kind:
            case "stored":
                self._events.append(observation.Stored(shown(event.text)))
            case "removed":
                self._events.append(observation.Removed(shown(event.text)))
            case _:
                old, new = Level(event.old), Level(event.new)
                self._events.append(observation.LevelChanged(shown(event.text), self._groups[event.group], old, new))

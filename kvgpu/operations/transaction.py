"""All or nothing (R3.14): every change of an operation goes through a transaction, which can take all of them back.

An operation gives up what it gives up, makes room, reserves slots and submits copies in a transaction. If slots run out nothing
has been submitted yet, and undoing is exact. If a copy is refused, what had been queued stays in the fences (R4.8).
"""

from __future__ import annotations

from types import TracebackType

from kvgpu.operations.copies import Copies
from kvgpu.operations.journal import Journal
from kvgpu.operations.room import Room
from kvgpu.operations.state import Core, Scope


class Transaction(Journal):
    """One operation; a context manager that undoes its changes unless ``commit`` was called.

    ``room`` makes room, ``copies`` submits copies.
    """

    def __init__(self, core: Core, scope: Scope) -> None:
        """Begin. Nothing is changed yet."""
        super().__init__(core, scope)
        self.room = Room(self)
        self.copies = Copies(self, self.room)
        self._committed = False

    def __enter__(self) -> Transaction:
        """Nothing more."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Undo everything unless it was committed."""
        if not self._committed:
            self.undo()
            for request in self.copies.after_undo():
                self.core.renew(request)

    def commit(self) -> None:
        """Keep everything: count it (R13.2), tell the owners of moved pages and the listener, make versions newer (R6.4)."""
        self._committed = True
        self.copies.keep()
        self.keep()

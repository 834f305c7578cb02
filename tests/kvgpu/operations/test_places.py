"""What the page table says of pages with several places holds together after every call (R14.1, R14.2, R14.8)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvgpu.storage.pages import NO_PAGE, NOBODY
from kvspec.config import Level, Ownership
from tests.kvgpu.operations.calls import CONFIG, OF_ALL, STEPS, Calls

LEVELS = tuple(level.model_copy(update={"slots": 2 * level.slots}) for level in CONFIG.levels if level.slots)
PRIVATE = CONFIG.model_copy(update={"ownership": Ownership.PRIVATE, "levels": LEVELS})
OF_REQUESTS = [*["resume", "grow"] * 3, *["step", "publish"] * 3, *["enter", "suspend", "commit"] * 2, "add", "remove"]


class Table:
    """A look at the page table, from outside."""

    def __init__(self, calls: Calls, seen: Counter[str]) -> None:
        self._calls, self.seen, self._looks = calls, seen, 0

    def look(self) -> None:
        """After each call; after the last one everything is closed."""
        self._check()
        self._looks += 1
        if self._looks == STEPS:
            assert _left(self._calls.manager) == []

    def _check(self) -> None:
        pages, core = self._calls.manager.pages, self._calls.manager._core
        assert core.backings is not None
        living = np.flatnonzero(pages.alive).tolist()
        assert all(pages.next_place[page] == NO_PAGE for page in np.flatnonzero(~pages.alive))
        for page in living:
            referring = self._referring(page)
            assert pages.users[page] == len(referring)
            assert {request.uid for request in referring} == set(pages.users_of(page))
            if pages.next_place[page] == NO_PAGE:
                assert pages.copy_of[page] == NOBODY and pages.backing[page] == NO_PAGE
                continue
            self._one_page(core.backings.places(page))
        for node in core.tree.walk():
            for group, page in enumerate(node.pages):
                if page != NO_PAGE and core.layout.groups[group].sparse:
                    assert page == core.backings.shown(page) and pages.node[page] == node.number

    def _referring(self, page: int) -> list[Request]:
        return [
            request
            for request in self._calls.manager.requests()
            if not request.closed and any((own.page == page).any() for own in request.groups)
        ]

    def _one_page(self, places: list[int]) -> None:
        pages, by_uid = self._calls.manager.pages, self._calls.manager._core.by_uid
        for name in ("group", "block", "beam", "node", "backing"):
            assert len(set(getattr(pages, name)[places].tolist())) == 1, name
        backing = int(pages.backing[places[0]])
        copies = sorted((place for place in places if pages.copy_of[place] != NOBODY), key=lambda place: int(pages.serial[place]))
        assert [place for place in places if place not in copies] == ([] if backing == NO_PAGE else [backing])
        assert len({int(pages.copy_of[copy]) for copy in copies}) == len(copies)
        for copy in copies:
            holder = by_uid[int(pages.copy_of[copy])]
            assert pages.level[copy] == Level.GPU
            assert holder in self._referring(copy)
            assert pages.locks[copy] == int(holder.active)
        referring = [request for place in places for request in self._referring(place)]
        shown = backing if backing != NO_PAGE else copies[0]
        for request in referring:
            own = [copy for copy in copies if pages.copy_of[copy] == request.uid]
            assert request in self._referring(own[0] if own else shown)
        active = sum(request.active for request in referring)
        if backing == NO_PAGE:
            self.seen["copies alone"] += len(copies) > 1
            return
        assert pages.locks[backing] == active
        assert not (active and pages.level[backing] == Level.GPU)
        self.seen["backing and copies"] += bool(copies)


def _left(manager: Manager) -> list[str]:
    """What there still is after everything was closed and cleared."""
    for request in manager.requests():
        manager.close(request)
    manager.clear_reusable()
    left = [f"page {page}" for page in np.flatnonzero(manager.pages.alive)]
    for level, pools in enumerate(manager.layout.levels):
        for pool in pools:
            info = manager.pool_info(level, pool.number)
            left += [f"slots of {level}.{pool.number}"] if info.free != info.slots or info.evictable else []
    return left


def test_places_hold_together_and_nothing_is_left() -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        calls = Calls(seed, PRIVATE, of_all=[*["one"] * 8, *OF_ALL], of_a_request=OF_REQUESTS)
        table = Table(calls, seen)
        calls.run(table.look)
    assert min(seen[state] for state in ("copies alone", "backing and copies")) > 10, seen

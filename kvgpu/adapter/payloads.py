"""The contents that a scenario's writes put into pages.

What is kept here is only which contents were written last, to number the writes of one source. What a page holds is read from
the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvgpu.adapter.order import StepMarks
from kvgpu.adapter.tokens import spans_of
from kvgpu.manager import Manager
from kvgpu.operations.state import WriteTarget
from kvgpu.requests.request import Request
from kvspec.ops import SeedPrefix
from kvspec.payload import Content, expand, next_content, seed_content
from kvspec.tokens import keyed


class Payloads:
    """Writes payloads, and remembers what they were by the serial number of the page."""

    def __init__(self, marks: StepMarks) -> None:
        """Nothing is written yet. ``bind`` it to its manager before the first operation."""
        self._marks = marks
        self._manager: Manager | None = None
        self._contents: dict[int, Content] = {}
        self._forget_at = 1024

    @property
    def manager(self) -> Manager:
        """The manager whose pages are written, set once it is built."""
        assert self._manager is not None
        return self._manager

    def bind(self, manager: Manager) -> None:
        """The manager whose pages are written; its payload hook is ``write``."""
        self._manager = manager

    def write(self, request: Request, targets: Sequence[WriteTarget]) -> None:
        """Write whole pages on the request's stream, with contents that belong to it."""
        if not targets:
            return
        self._forget()
        pages = self.manager.pages
        writes = []
        for target in targets:
            serial = int(pages.serial[target.page])
            group = self.manager.layout.groups[target.group]
            content = next_content(self._last(target.page), request.name, group.name, target.block, target.beam)
            self._contents[serial] = content
            writes.append((target, expand(content, group.page_bytes)))
        self.manager.write_payloads(request, writes)
        assert request.stream is not None
        self._marks.user_work(request.stream)

    def seed(self, op: SeedPrefix, groups: Sequence[int] | None) -> None:
        """Put blocks into the tree, with the contents of seeded pages. ``groups``: those of the operation, by number."""
        whole = keyed(op.tokens, op.key, spans=op.spans)
        made: dict[tuple[int, int], Content] = {}
        of_block: dict[int, Content] = {}

        def content(prefix: tuple[int, ...], group: int, block: int) -> bytes:
            of_group = self.manager.layout.groups[group]
            if block not in of_block:  # a long prefix takes long to spell, and the groups of a block have the same one
                of_block[block] = seed_content(whole[: len(prefix)], of_group.name, block)
            made[len(prefix), group] = written = replace(of_block[block], group=of_group.name)
            return expand(written, of_group.page_bytes)

        self._forget()
        pages = self.manager.pages
        before = set(pages.serial[pages.living()].tolist())
        self.manager.seed_prefix(
            op.tokens, int(op.level.level), groups, op.priority, content=content, key=op.key, spans=spans_of(op.spans)
        )
        for info in self.manager.page_infos():
            if info.serial not in before and info.text is not None:  # it makes no others
                self._contents[info.serial] = made[len(info.text.tokens), info.group]

    def _forget(self) -> None:
        """Forget what was in pages that are no more, and that no page was copied from, if there is much of it."""
        if len(self._contents) > self._forget_at:
            pages = self.manager.pages
            living = pages.living()
            known = {*pages.serial[living].tolist(), *pages.origin[living].tolist()}
            self._contents = {serial: content for serial, content in self._contents.items() if serial in known}
            self._forget_at = max(1024, 2 * len(self._contents))

    def _last(self, page: int) -> Content | None:
        pages = self.manager.pages
        origin = int(pages.origin[page])
        # A private copy holds what the page held that it was made from, or that that was.
        return self._contents.get(int(pages.serial[page]) if origin < 0 else origin)

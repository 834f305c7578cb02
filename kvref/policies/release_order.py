"""Policy ``release_order``: which of the pages leave first that became young in one operation (R10.2)."""

from __future__ import annotations

from kvref.state import Page, State


def turn(state: State, page: Page) -> tuple[int, int]:
    """The place of a page among those: by higher block, then group (``by_block``), or the other way round (``by_group``)."""
    if state.layout.policies.release_order == "by_block":
        return -page.block, page.group
    return page.group, -page.block

"""Policy ``evict_unit``: what leaves at a time (R10.1)."""

from __future__ import annotations

from kvref.state import Page, State


def with_it(state: State, page: Page) -> list[Page]:
    """The pages that leave with a page, if they can: none (``page``), or those of its tree block on its level (``node``)."""
    if state.layout.policies.evict_unit == "page" or page.node is None:
        return []
    rest = [p for p in state.pages.values() if p.node == page.node and p.level is page.level and p.id != page.id]
    return sorted(rest, key=lambda p: (p.group, p.id))

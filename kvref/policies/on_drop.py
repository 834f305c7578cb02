"""Policies ``on_drop`` and ``on_drop_windowed``: what goes when a block of the tree has lost its last page (R10.3)."""

from __future__ import annotations

from kvref.state import Page, State


def alone(state: State, page: Page) -> bool:
    """Whether a block whose last page this is leaves the tree alone (``page_alone``), or all below it goes too (``subtree``).

    R1.8: a sparse group drops nothing behind a window, so that it counts as one without.
    """
    group, policies = state.layout.groups[page.group], state.layout.policies
    windowed = group.window is not None and not group.sparse
    return (policies.on_drop_windowed if windowed else policies.on_drop) == "page_alone"

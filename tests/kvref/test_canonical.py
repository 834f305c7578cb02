"""The canonical form of a state: every field of it is in the form, or left out with a reason."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import kvref.canonical
from kvref.cached import Cache, Cached, Reservation, Slot
from kvref.state import Batch, Fault, Node, Page, Request, State

SOURCE = Path(kvref.canonical.__file__).read_text(encoding="utf-8")
GROWS, SEEN, NAME, DERIVED = "a number that only grows", "what was seen or counted", "a name", "follows from the rest"
LEFT_OUT: dict[type, dict[str, str]] = {
    State: {
        **dict.fromkeys(("counters", "reset", "calls", "reads", "fetches", "counting", "trace"), SEEN),
        **dict.fromkeys(("step", "serial"), GROWS),
    },
    Page: {"slot": NAME, "move": GROWS, "content": SEEN},
    Node: {},
    Request: {"uid": GROWS, "versioned": DERIVED, "closed_with": SEEN},
    Batch: {"uid": GROWS, "staging": GROWS},
    Slot: {"number": NAME},
    Cached: {"entry": NAME, "content": SEEN},
    Cache: {},
    Reservation: {"id": GROWS},
    Fault: {},
}


@pytest.mark.parametrize("kind", LEFT_OUT, ids=lambda kind: kind.__name__)
def test_every_field_is_in_the_form_or_left_out(kind: type) -> None:
    for field in fields(kind):
        assert (f".{field.name}" in SOURCE) or field.name in LEFT_OUT[kind], (
            f"{kind.__name__}.{field.name}: does it decide anything?"
        )
    assert LEFT_OUT[kind].keys() <= {field.name for field in fields(kind)}

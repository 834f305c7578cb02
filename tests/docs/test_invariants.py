"""The page on exploring has the invariants of the reference."""

from __future__ import annotations

import os

from kvref.invariants import OF_STATES, OF_STEPS
from tests.paths import ROOT

BEGIN, END = "<!-- invariants -->\n", "<!-- end of invariants -->"


def test_the_page_has_all_invariants() -> None:
    """With ``KVSPEC_WRITE_DOCS=1`` the page gets them."""
    page = ROOT / "docs" / "explore.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    rows = [f"| {one.name} | {one.rules} | {one.text} |" for one in (*OF_STATES, *OF_STEPS)]
    wanted = "\n".join(["| invariant | rules | what it says |", "| --- | --- | --- |", *rows, ""])
    if os.environ.get("KVSPEC_WRITE_DOCS"):
        page.write_text(before + BEGIN + wanted + END + rest.split(END)[1], encoding="utf-8")
    else:
        assert rest.split(END)[0] == wanted

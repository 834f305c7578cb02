"""The glossary is what ``kvspec explain`` says, and names words and rules that there are."""

from __future__ import annotations

import re

from kvspec.rules import rule_ids
from kvspec.words.glossary import page
from kvspec.words.lookup import entries
from kvspec.words.terms import GLOSSARY, TERMS
from tests.paths import ROOT


def test_the_page_is_up_to_date() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert text == page(), "python -m kvspec.words.glossary > docs/glossary.md"


def test_every_term_is_said_once_and_its_rules_exist() -> None:
    assert len(TERMS) == sum(map(len, GLOSSARY.values()))
    known = set(rule_ids())
    sections = {rule.partition(".")[0] for rule in known}
    for name, term in TERMS.items():
        assert set(term.rules) <= known | sections, name
        assert term.text.endswith(".") and "|" not in term.text, name
        (entry,) = [one for one in entries(name) if one.kind == "term"]
        assert entry.lines == (term.text,)


def test_there_is_no_second_glossary() -> None:
    for path in ("docs/rules.md", "docs/architecture.md", "README.md"):
        assert not re.search(r"\| word \|", (ROOT / path).read_text(encoding="utf-8")), path

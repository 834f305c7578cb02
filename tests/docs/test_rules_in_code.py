"""The table of where the rules are in the code is what the sources say, and no rule is missing in either system."""

import pytest

from kvspec.audit.citations import citations, cited, table
from kvspec.rules import load_rules
from tests.paths import ROOT

ELSEWHERE = {
    "kvref": {
        "R9": "the errors are in every check",
        "R12.1": "a reference has no threads",
        "R12.2": "likewise",
    },
    "kvgpu": {
        "R1.4": "the configuration of the vocabulary refuses it",
        "R5.4": "follows from where the pages are",
        "R9": "the errors are in every check",
        "R15.6": "follows from what is reserved",
        "R15.9": "nothing that moves a page touches a cache",
        "R16.1": "it follows the defaults alone, and its adapter declares nothing else",
    },
}
"""Rules that no function cites, and why."""


def test_the_table_is_up_to_date() -> None:
    page = (ROOT / "docs" / "rules-in-code.md").read_text(encoding="utf-8")
    assert page == table(["kvref", "kvgpu"]), "python -m kvspec.audit.citations kvref kvgpu > docs/rules-in-code.md"


@pytest.mark.parametrize("package", sorted(ELSEWHERE))
def test_every_rule_is_cited_or_has_a_reason(package: str) -> None:
    found = citations(package)
    assert {rule.id for rule in load_rules() if not found[rule.id]} == set(ELSEWHERE[package])


def test_ranges_are_all_their_rules() -> None:
    assert cited("(R3.6-R3.8, R4.9): see R8.4") == {"R3.6", "R3.7", "R3.8", "R4.9", "R8.4"}
    assert cited("R99.1 and R3.77 are no rules") == set()

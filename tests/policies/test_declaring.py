"""Policies: what may be declared and asked for, and that a replay follows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

from kvref.policies import OFFERED
from kvref.system import Reference
from kvspec.adapter import Facts, adapter
from kvspec.config import ManagerConfig
from kvspec.harness.difference import Result, Verdict
from kvspec.harness.policies import own_policies, unusual_policies
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import by_policy, failure_report, plain, summary
from kvspec.harness.systems import SystemNotFound, find_system
from kvspec.language.loader import read_bytes
from kvspec.policies import (
    EVERYTHING,
    POLICIES,
    USUAL,
    Offer,
    Policies,
    PolicyError,
    checked_offer,
    default,
    policy_text,
    value_text,
)
from kvspec.scenario import Scenario
from tests.paths import ROOT

HEAD = """
kvspec: 1
name: a match inside a block
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 16}]}]
"""
STEPS = """
steps:
  - seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7], level: gpu}
  - create: {request: chat, tokens: [0, 1, 2, 3, 4, 5, 9]}
    returns: 6
    expect: {history: {chat: 6}, free: {gpu: 2}}
  - resume: chat
    returns: true
    expect: {free: {gpu: 1}}
"""


def scenario(policy: str = "", steps: str = STEPS) -> Scenario:
    loaded = read_bytes(Path("x.yaml"), f"{HEAD}{f'  policy: {policy}' if policy else ''}{steps}".encode())
    assert loaded.problems == ()
    return loaded.scenarios[0]


class Blocks(Reference):
    """A manager that matches whole blocks alone, and says so."""

    policies: ClassVar[Offer] = checked_offer({"match": "block"})


class Silent(Reference):
    """A manager that matches whole blocks alone, and says nothing."""

    policies: ClassVar[Offer] = USUAL

    def __init__(self, setup: Any) -> None:
        block = setup.manager.model_copy(update={"policy": Policies(match="block")})
        super().__init__(type(setup)(block, setup.streams, setup.options))


def result(one: Scenario, system: type, reference: type = Reference) -> Result:
    return replay(one, Named("mine", system), Named("kvref", reference))


def test_the_model_and_the_table_say_the_same() -> None:
    assert list(Policies.model_fields) == list(POLICIES)
    for name, field in Policies.model_fields.items():
        assert [*POLICIES[name].values] == ([False, True] if field.annotation is bool else [*get_args(field.annotation)])
        assert field.default == default(name)
        assert all(text and POLICIES[name].text.endswith(".") for text in POLICIES[name].values.values())


def test_every_policy_is_named_below_the_rule_that_it_varies_and_on_the_page_of_the_language() -> None:
    rules = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "scenario-language.md").read_text(encoding="utf-8").partition("## Policies")[2]
    for name, policy in POLICIES.items():
        row = next(line for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line.split("|")[1])
        assert all(f"`{value_text(value)}`" in row for value in policy.values) and policy.rules[0] in row
        (text,) = re.findall(rf"^- ({re.escape(policy.rules[0])} (?:.|\n)*?)(?=^- R|^## )", rules, re.M)
        assert f"Policy `{name}: {value_text(default(name))}`" in text


def test_the_reference_follows_every_value() -> None:
    assert dict(OFFERED) == dict(EVERYTHING)


def test_a_system_that_follows_its_policy_agrees_and_what_is_expected_for_another_says_nothing() -> None:
    played = result(scenario(), Blocks)
    assert (played.verdict, played.passed_over) == (Verdict.PASSED, 3)
    assert list(by_policy([played], "mine", "kvref")) == [
        "3 expectations in 1 scenarios are for other policies: there it was compared with kvref alone"
    ]
    assert result(scenario(), Reference).passed_over == 0


def test_a_system_that_does_not_say_what_it_does_is_found_out() -> None:
    played = result(scenario(), Silent)
    assert played.verdict is Verdict.FAILED and played.failure is not None and played.failure.step == 1


def test_a_wrong_value_is_a_difference_under_another_policy_too() -> None:
    class Wrong(Blocks):
        """It says that it matches blocks, and matches tokens."""

        def __init__(self, setup: Any) -> None:
            super().__init__(type(setup)(ManagerConfig(**{**dict(setup.manager), "policy": Policies()}), setup.streams))

    played = result(scenario(), Wrong)
    assert played.verdict is Verdict.FAILED and played.failure is not None and played.failure.step == 1


def test_what_is_expected_holds_where_the_scenario_asks_for_the_policy() -> None:
    wrong = result(scenario("{match: block}"), Blocks)
    assert wrong.verdict is Verdict.FAILED and wrong.passed_over == 0
    right = STEPS.replace("returns: 6", "returns: 4").replace("chat: 6", "chat: 4").replace("gpu: 1", "gpu: 2")
    assert result(scenario("{match: block}", right), Blocks).verdict is Verdict.PASSED


def test_a_system_without_the_policy_skips_it_and_the_reference_alone_is_held_to_it() -> None:
    right = STEPS.replace("returns: 6", "returns: 4").replace("chat: 6", "chat: 4").replace("gpu: 1", "gpu: 2")
    played = result(scenario("{match: block}", right), Silent)
    assert (played.verdict, played.alone, played.lacks) == (Verdict.SKIPPED, True, ("policy match: block",))
    assert played.reason == "mine lacks policy match: block; kvref alone does what is expected"
    assert played.steps == 3
    wrong = result(scenario("{match: block}"), Silent)
    assert wrong.verdict is Verdict.FAILED and wrong.alone
    assert summary([played]) == "0 passed, 0 failed, 0 skipped, 1 reference only"
    said = "1 ask for policies that mine does not have: kvref alone was run, and does what they expect"
    assert next(by_policy([played], "mine", "kvref")) == said
    assert "mine:" not in (report := plain(failure_report(wrong, ("kvref", "mine"), "kvspec run"))) and "kvref:" in report
    assert "mine was not run" in report and "kvref alone was checked" in report


def test_a_reference_that_cannot_follow_is_a_reason_to_skip() -> None:
    played = result(scenario(), Blocks, Silent)
    assert (played.verdict, played.alone) == (Verdict.SKIPPED, False)
    assert played.reason == "kvref lacks policy match: block"


def test_a_system_may_offer_several_values() -> None:
    class Both(Reference):
        """A manager that can be told how to match."""

        policies: ClassVar[Offer] = checked_offer({"match": ["block", "token"]})

    assert own_policies(Both).match == "block"
    assert result(scenario("{match: token}"), Both).passed_over == 0
    assert result(scenario(), Both).passed_over == 3


def test_what_is_declared_wrongly_is_one_message() -> None:
    for declared, said in (
        ({"mach": "block"}, "policies has 'mach'. Did you mean 'match'? There are: match, partial_blocks, "),
        ({"match": "blocks"}, "policy match is 'blocks'. Did you mean 'block'? It has the values: token, block"),
        ({"dedupe": "keep both"}, "policy dedupe is 'keep both'. Did you mean 'keep_both'? It has the values: rebase, keep_both"),
        ({"match": True}, "policy match is 'yes'. It has the values: token, block"),
        ({"match_renews": 1}, "policy match_renews is 1. It has the values: no, yes"),
        (["match"], "policies is ['match']: expected values by the names of policies, such as {'match': 'block'}"),
    ):
        with pytest.raises(PolicyError) as error:
            adapter(errors={}, policies=declared)(Nothing)  # type: ignore[arg-type]
        assert str(error.value).startswith(said)
    assert checked_offer({"match_renews": "yes"})["match_renews"] == (True,)
    with pytest.raises(SystemNotFound, match=r"policy match is 'tokens'. Did you mean 'token'\?"):
        find_system("tests.policies.test_declaring:Misspelt")


class Nothing:
    """A manager that can do nothing."""

    def __init__(self, setup: object) -> None: ...

    def observe(self) -> Facts:
        return Facts({}, {})


class Misspelt(Reference):
    """A manager that declares what there is not."""

    policies: ClassVar[Any] = {"match": "tokens"}


def test_what_is_not_usual_is_told_as_yaml_writes_it() -> None:
    assert unusual_policies(Blocks) == "match: block"
    assert unusual_policies(Silent) == ""
    assert policy_text(Policies(match_renews=True, match="token").unusual) == "match_renews: yes"
    assert Policies(match="token").asked == {"match": "token"}

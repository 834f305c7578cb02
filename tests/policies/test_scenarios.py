"""The scenarios of policies: each would fail if the reference did not follow the policy that it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvref.policies import OFFERED
from kvref.system import Reference
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay
from kvspec.language import load_file
from kvspec.policies import Policies
from kvspec.scenario import Scenario
from tests.paths import ROOT

SCENARIOS = [one for path in sorted((ROOT / "scenarios" / "policies").glob("*.yaml")) for one in load_file(path)]
KVREF = Named("kvref", Reference)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_fails_without_the_policy_that_it_asks_for(scenario: Scenario) -> None:
    assert replay(scenario, KVREF, KVREF).verdict is Verdict.PASSED
    usual = replace(scenario, manager=scenario.manager.model_copy(update={"policy": Policies()}))
    assert replay(usual, KVREF, KVREF).verdict is Verdict.FAILED


def test_every_value_that_is_not_the_default_has_scenarios() -> None:
    asked = {(name, value) for one in SCENARIOS for name, value in one.manager.policy.asked.items()}
    # What policy `versions` allows is for the system that is compared (test_versions).
    assert {(name, value) for name, values in OFFERED.items() for value in values[1:] if name != "versions"} <= asked

"""Choosing scenarios by an expression: words joined by ``and``, ``or``, ``not`` and parentheses, as pytest's ``-k``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kvspec.scenario import Scenario

Predicate = Callable[[Scenario], bool]

_TOKEN = re.compile(r"""\s*(?:(?P<paren>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()"']+))""")


class SelectionError(ValueError):
    """An expression that cannot be read; ``str()`` of it says where and what was expected."""


def scenario_id(scenario: Scenario) -> str:
    """What a scenario is called in lists: its file's stem and its name, ``deferral::a gap``."""
    return f"{scenario.position.path.stem}::{scenario.name}"


def selection(expression: str) -> Predicate:
    """The predicate that an expression stands for.

    A word, or a text in quotes, matches a scenario whose id (file stem and name) contains it whatever the case, or that has it
    as a tag or covers it as a rule (``R4`` stands for all of section 4). An expression that is exactly the name or id of a
    scenario always matches that one alone, whatever words it contains.

    :raises SelectionError: malformed.
    """
    whole = expression.strip()
    if not whole:
        raise SelectionError("-k: the expression is empty: expected words joined by and, or, not")
    predicate: Predicate | SelectionError
    try:
        predicate = _Parser(whole).parse()
    except SelectionError as error:
        predicate = error
    return _Selection(whole, predicate)


def select(scenarios: list[Scenario], expression: str) -> list[Scenario]:
    """The scenarios that an expression chooses: those of exactly that name or id if there are any, else by its words.

    :raises SelectionError: malformed, and no scenario has that name.
    """
    chosen = _Selection(expression.strip(), SelectionError("unused"))
    exact = [scenario for scenario in scenarios if chosen.exactly(scenario)]
    if exact:
        return exact
    predicate = selection(expression)
    return [scenario for scenario in scenarios if predicate(scenario)]


@dataclass(frozen=True)
class _Selection:
    whole: str
    predicate: Predicate | SelectionError

    def exactly(self, scenario: Scenario) -> bool:
        return self.whole in (scenario.name, scenario_id(scenario))

    def __call__(self, scenario: Scenario) -> bool:
        if self.exactly(scenario):
            return True
        if isinstance(self.predicate, SelectionError):
            raise self.predicate
        return self.predicate(scenario)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        end = 0
        while end < len(text):
            found = _TOKEN.match(text, end)
            if found is None:
                raise SelectionError(f"-k {text!r}: cannot read {text[end:].strip()!r}: is a quote missing?")
            kind = found.lastgroup or ""
            self.tokens.append((kind, found.group(kind), found.start(kind)))
            end = found.end()
        self.at = 0

    def parse(self) -> Predicate:
        predicate = self._either()
        if self.at < len(self.tokens):
            _, value, start = self.tokens[self.at]
            raise SelectionError(
                f"-k {self.text!r}: {value!r} at column {start + 1} was not expected: join words by and, or, or quote them"
            )
        return predicate

    def _take(self, *keywords: str) -> bool:
        if self.at < len(self.tokens):
            kind, value, _ = self.tokens[self.at]
            if kind in ("word", "paren") and value in keywords:
                self.at += 1
                return True
        return False

    def _either(self) -> Predicate:
        terms = [self._both()]
        while self._take("or"):
            terms.append(self._both())
        return lambda scenario: any(term(scenario) for term in terms)

    def _both(self) -> Predicate:
        terms = [self._not()]
        while self._take("and"):
            terms.append(self._not())
        return lambda scenario: all(term(scenario) for term in terms)

    def _not(self) -> Predicate:
        if self._take("not"):
            inner = self._not()
            return lambda scenario: not inner(scenario)
        if self._take("("):
            inner = self._either()
            if not self._take(")"):
                raise SelectionError(f"-k {self.text!r}: a closing parenthesis is missing")
            return inner
        if self.at >= len(self.tokens):
            raise SelectionError(f"-k {self.text!r}: ends where a word was expected")
        kind, value, start = self.tokens[self.at]
        if kind == "paren" or (kind == "word" and value in ("and", "or")):
            raise SelectionError(f"-k {self.text!r}: {value!r} at column {start + 1}, where a word was expected")
        self.at += 1
        return lambda scenario: _matches(value, scenario)


def _matches(word: str, scenario: Scenario) -> bool:
    if word in scenario.tags or word in scenario.rules or any(rule.startswith(f"{word}.") for rule in scenario.rules):
        return True
    return word.lower() in scenario_id(scenario).lower()

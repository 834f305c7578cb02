"""Answers as they are read: each mistake in one is a message that says where."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError, create_model

from kvspec.observation import Counters
from kvspec.system import OffsetTable, RemoteError, Value
from kvspec.wire.messages import ANSWERS, INSTEAD, Answer, Failed, Part, Wrong
from kvspec.wire.process import shown

AnswerT = TypeVar("AnswerT", bound=Answer)

MAX_MISTAKES = 3
"""How many mistakes of one answer a message lists."""


class NotUnderstood(RemoteError):
    """A line that is no right answer."""


def answer(line: bytes, message: str, number: int) -> Answer:
    """The answer to a message: its own, or one of those in its place.

    :param number: the id that it must have.
    :raises NotUnderstood: it is none.
    """
    model = ANSWERS[message]
    try:
        found: Answer = model.model_validate_json(line)
    except ValidationError as error:
        found = _instead(line, message, error)
    if found.id != number and not (isinstance(found, Wrong) and found.id is None):
        raise NotUnderstood(f"the answer to {message} has the id {found.id}, expected {number}: one answer a message, in order")
    return found


def mistakes(error: ValidationError, *head: str | int) -> str:
    """What pydantic found, in a line."""
    said = []
    for one in error.errors(include_url=False)[:MAX_MISTAKES]:
        place = ".".join(str(part) for part in (*head, *one["loc"]))
        given = "" if one["type"] in _TEXTS else f", this is {_short(one['input'])}"
        said.append(f"{place}: {_TEXTS.get(one['type'], one['msg'])}{given}" if place else one["msg"])
    more = error.error_count() - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


_TEXTS = {
    "missing": "missing",
    "extra_forbidden": "there is no such key",
    "unexpected_keyword_argument": "there is no such key",
}


def value(verb: str, given: Any) -> Value:
    """What an operation returned, from JSON.

    :raises NotUnderstood: it is nothing that an operation returns.
    """
    if isinstance(given, dict):
        form = _FORMS.get(verb, dict[str, str])
        try:
            held: Any = _holder(form).model_validate_json(json.dumps({"value": given}))
        except ValidationError as error:
            raise NotUnderstood(f"the answer to apply cannot be read: {mistakes(error)}") from None
        found: Value = held.value
        return found
    plain = _tuples(given)
    if not _returnable(plain):
        raise NotUnderstood(
            f"the answer to apply: value: expected true, false, a whole number, null or a list of these, this is {_short(given)}"
        )
    return plain  # type: ignore[no-any-return]


_FORMS: dict[str, Any] = {"stats": Counters, "dense_offsets": OffsetTable}
"""What the verbs return that return a mapping, if it is not from names to words."""


@lru_cache(maxsize=8)
def _holder(form: Any) -> type[Part]:
    return create_model("Returned", __base__=Part, value=(form, ...))


def _tuples(given: Any) -> Any:
    return tuple(_tuples(one) for one in given) if isinstance(given, list) else given


def _returnable(given: Any) -> bool:
    if isinstance(given, tuple):
        return all(one is None or isinstance(one, int) for one in given)
    return given is None or isinstance(given, int)


def _instead(line: bytes, message: str, error: ValidationError) -> Answer:
    """One of the answers that may stand in the place of any, where the answer to the message it is not."""
    try:
        given = json.loads(line)
    except ValueError:
        hint = "; standard output is for answers alone, what is for the reader belongs to standard error"
        raise NotUnderstood(f"the answer to {message} is no JSON: {shown(line)}{hint}") from None
    if not isinstance(given, dict):
        raise NotUnderstood(f"the answer to {message} is no JSON object: {shown(line)}")
    for key, model in INSTEAD.items():
        if key in given:
            try:
                return model.model_validate_json(line)
            except ValidationError as other:
                error = other
                break
    raise NotUnderstood(f"the answer to {message} cannot be read: {mistakes(error)}")


def or_raise(found: Answer, wanted: type[AnswerT], message: str) -> AnswerT:
    """The answer that was wanted; raises for the others what they stand for, a `Limit` apart.

    :raises RemoteError: the system did not understand, or is broken.
    """
    if isinstance(found, Wrong):
        raise NotUnderstood(f"it did not understand {message}: {found.wrong}")
    if isinstance(found, Failed):
        raise RemoteError(found.failed, found.lines)
    if not isinstance(found, wanted):
        raise NotUnderstood(f"it cannot answer {message} with {type(found).__name__.lower()}")
    return found


def _short(given: Any) -> str:
    text = json.dumps(given, default=repr)
    return text if len(text) <= 60 else f"{text[:56]} ..."

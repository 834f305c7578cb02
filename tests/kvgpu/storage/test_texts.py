"""Tokens with keys (R2.7), held against pairs of a token and its key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvgpu.storage.texts import NO_KEY, Key, Text, joined, text_of

PAIRS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([NO_KEY, NO_KEY, ("a", None), (None, "a"), ("a", "b")])), max_size=9
)


def text(pairs: list[tuple[int, Key]]) -> Text:
    return text_of(tuple(token for token, _ in pairs), tuple(key for _, key in pairs))


@given(PAIRS, PAIRS)
def test_texts_are_equal_and_begin_alike_as_their_pairs_do(one: list[tuple[int, Key]], two: list[tuple[int, Key]]) -> None:
    assert (text(one) == text(two)) == (one == two)
    alike = 0
    while alike < min(len(one), len(two)) and one[alike] == two[alike]:
        alike += 1
    assert text(one).common(text(two)) == alike


@given(PAIRS, st.integers(0, 9), st.integers(0, 9))
def test_a_part_and_what_is_joined_are_those_of_the_pairs(pairs: list[tuple[int, Key]], start: int, end: int) -> None:
    assert text(pairs).part(start, end) == text(pairs[start:end])
    assert joined([text(pairs[:start]), text(pairs[start:])]) == text(pairs)
    assert [text(pairs).key(place) for place in range(len(pairs))] == [key for _, key in pairs]

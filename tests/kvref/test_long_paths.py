"""Paths of the tree that are longer than Python nests calls."""

from __future__ import annotations

import sys

from kvref.tree import add_node, below, prefix
from tests.kvref.driving import reference

MANAGER = """
tokens_per_block: 1
levels: [{kind: gpu, slots: 1}]
layers: [{name: kv, buffers: [{role: key, bytes: 16}]}]
"""


def test_a_path_may_be_longer_than_python_nests_calls() -> None:
    blocks = sys.getrecursionlimit() + 10
    state, node, first = reference(MANAGER).state, None, None
    for token in range(blocks):
        state, node = add_node(state, node, (token,))
        first = node if first is None else first
    assert node is not None and first is not None
    assert prefix(state, node) == tuple(range(blocks))
    assert below(state, first)[-1] == node


def test_what_is_below_a_block_stands_parents_first_and_older_children_first() -> None:
    state, root = add_node(reference(MANAGER).state, None, (0,))
    state, left = add_node(state, root, (1,))
    state, right = add_node(state, root, (2,))
    state, deep = add_node(state, left, (3,))
    assert below(state, root) == (root, left, deep, right)

"""Grouping, pools and stale ranges (R1.2, R1.5-R1.8)."""

from __future__ import annotations

import pytest
import yaml

from kvref.layout import Layout, layout
from kvspec.config import Level, ManagerConfig
from tests.kvref.driving import apply, reference


def of(text: str) -> Layout:
    return layout(ManagerConfig.model_validate(yaml.safe_load(text)))


LAYERS = """
tokens_per_block: 8
levels: [{kind: gpu, bytes: 20000}, {kind: host, slots: 7}]
layers:
  - {name: a, buffers: [{role: k, bytes: 512, sparse: true}, {role: v, bytes: 512, sparse: true}]}
  - {name: b, buffers: [{role: k, bytes: 512}, {role: v, bytes: 512}]}
  - {name: c, sliding_window: 16, buffers: [{role: k, bytes: 1024}]}
  - {name: d, buffers: [{role: k, bytes: 256, tokens_per_block: 4}, {role: s, bytes: 8}]}
  - {name: e, kind: ssm, buffers: [{role: state, bytes: 1024, tokens_per_block: 4}]}
"""


def test_layers_of_a_kind_form_a_group_numbered_by_the_first() -> None:
    assert [(g.name, g.layers) for g in of(LAYERS).groups] == [("a", ("a",)), ("b", ("b", "d")), ("c", ("c",)), ("e", ("e",))]


def test_buffers_of_equal_expanded_size_share_a_pool_largest_slot_first() -> None:
    groups = of(LAYERS).groups
    assert groups[1].slot_sizes == (512 * 3, 8)  # 256 bytes a block of 4 tokens are 512 a block of 8
    assert [(b.role, b.slot_bytes, b.offset) for b in groups[1].buffers] == [
        ("k", 1536, 0),
        ("v", 1536, 512),
        ("k", 1536, 1024),
        ("s", 8, 0),
    ]
    assert groups[3].slot_sizes == (1024,)  # a state has its size whatever tokens_per_block


def test_gpu_pools_go_by_shape_and_sparsity_host_pools_by_page_size() -> None:
    groups = of(LAYERS).groups
    assert [g.pools for g in groups] == [(0, 0), (1, 1), (2, 0), (2, 0)]


def test_bytes_are_shared_out_as_the_same_number_of_slots() -> None:
    made = of(LAYERS)
    assert made.slots[Level.GPU] == (20000 // (1024 + 1544 + 1024),) * 3
    assert made.slots[Level.HOST] == (7, 7)


def test_a_gpu_without_a_slot_is_refused() -> None:
    with pytest.raises(ValueError, match=r"smaller than one slot.*R1\.2"):
        of(LAYERS.replace("20000", "3000"))


@pytest.mark.parametrize(
    ("window", "sinks", "history", "stale"),
    [
        (4, 0, 0, []),
        (4, 0, 6, []),  # (6 + 1 - 4) // 4 = 0
        (4, 0, 7, [0]),
        (1, 0, 8, [0, 1]),
        (4, 5, 16, [2]),  # two blocks of sinks, (16 + 1 - 4) // 4 = 3
        (1, 12, 8, []),  # sinks reach beyond the history
        (100, 0, 16, []),
    ],
)
def test_stale_blocks_lie_between_sinks_and_window(window: int, sinks: int, history: int, stale: list[int]) -> None:
    made = of(f"""
tokens_per_block: 4
levels: [{{kind: gpu, slots: 4}}, {{kind: host, slots: 4}}]
layers:
  - {{name: w, sliding_window: {window}, sink_tokens: {sinks}, buffers: [{{role: k, bytes: 16}}]}}
  - {{name: s, sliding_window: {window}, sink_tokens: {sinks}, buffers: [{{role: k, bytes: 16, sparse: true}}]}}
""")
    assert [block for block in range(8) if made.stale(0, block, history)] == stale
    assert not any(made.stale(1, block, history) for block in range(8))  # sparse history is never dropped


def test_scale_counts_pages_of_a_buffer_in_its_slot() -> None:
    system = reference(LAYERS)
    assert apply(system, "page_index_scale: {layer: d, role: k}").value == 1536 // 256
    assert apply(system, "page_index_scale: {layer: d, role: s}").value == 1
    assert apply(system, "is_sparse: {layer: a, role: v}").value is True

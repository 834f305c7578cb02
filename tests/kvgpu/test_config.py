"""Groups, pools, pool groups, stale blocks (section 1)."""

from __future__ import annotations

import pytest

from kvgpu.config import build_layout
from kvgpu.errors import ConfigurationError, OutOfRange
from kvspec.config import LevelConfig, LevelKind, ManagerConfig
from tests.kvgpu.build import configuration, layer


def test_layers_of_one_kind_window_sinks_and_sparsity_are_one_group() -> None:
    layout = build_layout(
        configuration(
            layer("a", 64, sparse=True),
            layer("b", 64),
            layer("c", 64, sparse=True),
            layer("d", 64, sliding_window=8),
            layer("e", 64, sliding_window=8, sink_tokens=4),
            layer("f", 64, kind="ssm"),
        )
    )
    assert [(group.name, group.layers) for group in layout.groups] == [
        ("a", ("a", "c")),
        ("b", ("b",)),
        ("d", ("d",)),
        ("e", ("e",)),
        ("f", ("f",)),
    ]


def test_buffers_of_equal_expanded_size_share_a_pool_and_pools_go_by_size() -> None:
    layout = build_layout(configuration(layer("a", 64, 256), layer("b", 64, 128)))
    group = layout.groups[0]
    assert group.slot_bytes == (256, 128, 128)
    assert [(buffer.layer, buffer.role, buffer.pool, buffer.offset) for buffer in group.buffers] == [
        ("a", "b1", 0, 0),
        ("a", "b0", 1, 0),
        ("b", "b0", 1, 64),
        ("b", "b1", 2, 0),
    ]
    assert layout.scale("b", "b0") == 2
    assert layout.buffer("b", "b0")[1].index_offset == 1


def test_own_tokens_per_block_expands_a_buffer_but_not_a_state() -> None:
    config = configuration(layer("a", 32))
    raw = config.model_dump(mode="json")
    raw["layers"][0]["buffers"][0]["tokens_per_block"] = 2
    raw["layers"].append({"name": "s", "kind": "ssm", "buffers": [{"role": "state", "bytes": 48}]})
    layout = build_layout(ManagerConfig.model_validate(raw))
    assert [group.page_bytes for group in layout.groups] == [64, 48]
    assert layout.scale("a") == 2


def test_gpu_pool_groups_go_by_shape_and_sparsity_cold_ones_by_page_size() -> None:
    layout = build_layout(
        configuration(
            layer("a", 64, 32), layer("b", 96, sparse=True), layer("c", 64, 32, sliding_window=4), layer("d", 96, kind="ssm")
        )
    )
    assert [group.pool_groups for group in layout.groups] == [(0, 0), (1, 0), (0, 0), (2, 0)]
    assert [pool.groups for pool in layout.levels[0]] == [(0, 2), (1,), (3,)]
    assert [pool.groups for pool in layout.levels[1]] == [(0, 1, 2, 3)]
    assert layout.levels[0][0].below == 0


def test_a_level_in_bytes_has_the_same_slots_for_each_pool_group() -> None:
    levels = (LevelConfig(kind=LevelKind.GPU, bytes=1000), LevelConfig(kind=LevelKind.HOST, bytes=1000))
    layout = build_layout(ManagerConfig(tokens_per_block=1, levels=levels, layers=(layer("a", 64, sparse=True), layer("b", 36))))
    assert [pool.slots for pool in layout.levels[0]] == [10, 10]
    assert [pool.slots for pool in layout.levels[1]] == [10, 10]


def test_a_gpu_without_a_slot_is_refused() -> None:
    levels = (LevelConfig(kind=LevelKind.GPU, bytes=63),)
    with pytest.raises(ConfigurationError, match="smaller than one slot"):
        build_layout(ManagerConfig(tokens_per_block=1, levels=levels, layers=(layer("a", 64),)))


@pytest.mark.parametrize(
    ("window", "sinks", "history", "expected"),
    [
        (None, None, 100, (0, 0)),
        (4, None, 0, (0, 0)),
        (4, None, 6, (0, 0)),
        (4, None, 7, (0, 1)),
        (4, None, 16, (0, 3)),
        (1, None, 8, (0, 2)),
        (4, 3, 16, (1, 3)),
        (4, 5, 16, (2, 3)),
        (4, 5, 3, (1, 1)),
        (100, 4, 8, (1, 1)),
    ],
)
def test_stale_blocks(window: int | None, sinks: int | None, history: int, expected: tuple[int, int]) -> None:
    group = build_layout(configuration(layer("a", 64, sliding_window=window, sink_tokens=sinks))).groups[0]
    assert group.stale(history, 4) == expected


def test_a_sparse_group_is_never_stale() -> None:
    group = build_layout(configuration(layer("a", 64, sparse=True, sliding_window=1))).groups[0]
    assert group.stale(100, 4) == (0, 0)


def test_an_unknown_buffer_names_those_that_there_are() -> None:
    layout = build_layout(configuration(layer("a", 64)))
    with pytest.raises(OutOfRange, match=r"a\.b0"):
        layout.scale("a", "value")

"""References: what each form resolves to, and what is refused."""

from __future__ import annotations

import pytest

from kvspec.config import BufferConfig, LayerConfig, LayerKind, Level, LevelConfig, LevelKind, ManagerConfig
from kvspec.observation import PageRef
from kvspec.refs import (
    GroupRef,
    RefError,
    Work,
    batch_group,
    entry,
    group_shapes,
    level_group,
    one_group,
    page,
    pages,
    pool_groups,
    request_group,
    work,
)

TWO = ("main", "index")
ONE = ("main",)


def layer(
    name: str, *sizes: int, kind: LayerKind = LayerKind.ATTENTION, own: int | None = None, window: int | None = None
) -> LayerConfig:
    buffers = tuple(BufferConfig(role=f"r{n}", bytes=size, tokens_per_block=own) for n, size in enumerate(sizes))
    return LayerConfig(name=name, kind=kind, buffers=buffers, sliding_window=window)


def manager(*layers: LayerConfig) -> ManagerConfig:
    levels = (LevelConfig(kind=LevelKind.GPU, slots=4), LevelConfig(kind=LevelKind.HOST, slots=4))
    return ManagerConfig(tokens_per_block=8, levels=levels, layers=layers)


def test_request_group() -> None:
    assert request_group("a.index", TWO) == GroupRef("a", ("index",))
    assert request_group("a", TWO) == GroupRef("a", TWO)
    assert request_group("a", ONE, single=True) == GroupRef("a", ONE)
    assert batch_group("rows.main", TWO) == GroupRef("rows", ("main",))
    with pytest.raises(RefError, match="'a' needs a group: the manager has main and index"):
        request_group("a", TWO, single=True)


@pytest.mark.parametrize("text", ["", ".main", "a.", "a.main.0", "."])
def test_request_group_malformed(text: str) -> None:
    with pytest.raises(RefError, match=r"expected request\.group"):
        request_group(text, TWO)


def test_pages() -> None:
    assert pages("a.index.3", TWO) == (PageRef("a", "index", 3),)
    assert pages("a.index.3.1", TWO) == (PageRef("a", "index", 3, 1),)
    assert pages("a.3", ONE) == (PageRef("a", "main", 3),)
    assert pages("a.3.1", ONE) == (PageRef("a", "main", 3, 1),)
    assert pages("a.3", TWO) == (PageRef("a", "main", 3), PageRef("a", "index", 3))
    assert page("a.main.0", TWO) == PageRef("a", "main", 0)


def test_a_group_named_by_a_number_wins() -> None:
    assert pages("a.0.1", ("0", "1")) == (PageRef("a", "0", 1),)
    assert pages("a.0", ("0",)) == (PageRef("a", "0", 0),)


@pytest.mark.parametrize(
    "text", ["a", "a.", "a.main", "a.main.x", "a.main.-1", "a.main.0.0.0", "a..0", "a.0.0.0", "a.9999999999999"]
)
def test_pages_malformed(text: str) -> None:
    with pytest.raises(RefError, match=r"request\.group\.block|unknown group"):
        pages(text, TWO)


def test_page_is_one() -> None:
    with pytest.raises(RefError, match="needs a group"):
        page("a.0", TWO)


def test_unknown_group_offers_the_groups() -> None:
    with pytest.raises(RefError) as error:
        pages("a.mian.0", TWO)
    assert (error.value.name, error.value.choices) == ("mian", TWO)
    with pytest.raises(RefError, match="needs a group"):
        one_group(None, TWO)
    assert one_group(None, ONE) == "main"


def test_level_group() -> None:
    pools = {Level.GPU: (("main",), ("index",)), Level.HOST: (("main", "index"),)}
    assert level_group("gpu.index", pools) == (Level.GPU, "index")
    assert level_group("host.index", pools) == (Level.HOST, "main")
    assert level_group("host", pools) == (Level.HOST, "main")
    for text, message in [
        ("gpu", "'gpu' needs a group"),
        ("disk", "no disk level"),
        ("gup", "unknown level"),
        ("gpu.x", "unknown group"),
        ("gpu.", "unknown group"),
    ]:
        with pytest.raises(RefError, match=message):
            level_group(text, pools)


def test_entry() -> None:
    assert entry("-") is None
    assert entry("a.2") == ("a", 2)
    for text in ("a", "a.b", ".1", "a.", "", "a.1.0"):
        with pytest.raises(RefError):
            entry(text)


def test_work() -> None:
    pools = {Level.GPU: (("main", "index"),)}
    assert work("publish:rows", TWO, pools) == Work("publish", name="rows")
    assert work("read:r", TWO, pools) == Work("read", name="r")
    assert work("page:a.main.0", TWO, pools) == Work("page", pages=(PageRef("a", "main", 0),))
    assert work("slot:gpu.index", TWO, pools) == Work("slot", pool=(Level.GPU, "main"))
    for text in ("publish", "publish:", "pages:a.0", "page:a", "slot:gup", ""):
        with pytest.raises(RefError):
            work(text, TWO, pools)


def test_shapes_follow_the_rules() -> None:
    # R1.6: equal expanded sizes are coalesced, largest pool first; a state does not grow with the page.
    shapes = group_shapes(
        manager(
            layer("a", 100, 50),
            layer("b", 50),
            layer("half", 100, own=4, window=8),
            layer("state", 10, kind=LayerKind.SSM),
        )
    )
    assert [shape.slots for shape in shapes.values()] == [(100, 100), (200,), (10,)]
    assert [shape.page_bytes for shape in shapes.values()] == [200, 200, 10]


def test_pool_groups_are_keyed_by_shape_on_the_gpu_and_by_size_below() -> None:
    config = manager(layer("a", 100, 50), layer("w", 100, own=None, window=8), layer("v", 150, window=16))
    pools = pool_groups(config)
    assert pools[Level.GPU] == (("a",), ("w",), ("v",))
    assert pools[Level.HOST] == (("a", "v"), ("w",))
    assert pool_groups(manager(layer("a", 64), layer("w", 64, window=8)))[Level.GPU] == (("a", "w"),)

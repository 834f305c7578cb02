"""Exported arrays: views of the same memory, read-only, ordered, alive (R8.7)."""

import gc
import weakref

import numpy as np
import pytest

from kvgpu.batch import dlpack
from kvgpu.batch.export import ExportedArray, TableStorage
from kvgpu.device.api import Event
from kvgpu.device.sim import SimDevice
from kvgpu.locks import ManagerLock
from kvgpu.upload.table_layout import TableLayout


def storage_with_words(device: SimDevice) -> TableStorage:
    storage = TableStorage(device, TableLayout(groups=1, rows=2, blocks=3, levels=False), "tables", ManagerLock())
    storage.layout.page_table(storage.memory.host_array())[:] = [[[0, 1, 2], [3, 4, -1]]]
    return storage


def table_of(storage: TableStorage, event: Event) -> ExportedArray:
    return ExportedArray(storage, 0, (2, 3), np.int32, lambda: event)


def test_from_dlpack_is_a_read_only_view() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    seen = np.from_dlpack(table)
    assert seen.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert not seen.flags.writeable
    storage.layout.page_table(storage.memory.host_array())[0, 0, 0] = 9
    assert seen[0, 0] == 9
    assert np.shares_memory(np.asarray(table), seen)
    assert not np.asarray(table).flags.writeable


def test_torch_sees_the_same_memory() -> None:
    import torch

    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    seen = torch.from_dlpack(table)
    assert seen.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert seen.data_ptr() == table.address


def test_the_memory_outlives_the_storage_and_the_export() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    views = [np.from_dlpack(table), np.asarray(table)]
    alive = weakref.ref(storage)
    del storage, table
    gc.collect()
    assert alive() is not None
    assert [view.tolist() for view in views] == [[[0, 1, 2], [3, 4, -1]]] * 2
    views.clear()
    gc.collect()
    assert alive() is None


def test_a_consumer_without_a_stream_needs_the_publication_to_have_run() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    gate = device.gate(storage.stream, "g")
    table = table_of(storage, device.record(storage.stream, "published"))
    with pytest.raises(BufferError, match="has not run yet"):
        np.from_dlpack(table)
    side = device.stream("side")
    table.__dlpack__(stream="side", max_version=(1, 0))
    assert device.position(side).gates == {"g"}
    gate.open()
    assert np.from_dlpack(table).shape == (2, 3)


def test_copies_are_refused() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    with pytest.raises(BufferError, match="never copied to"):
        table.__dlpack__(max_version=(1, 0), dl_device=(dlpack.CUDA, 0), copy=False)
    with pytest.raises(BufferError, match="without a copy only"):
        table.__dlpack__(max_version=(1, 0), copy=True)
    with pytest.raises(ValueError, match=r"[Uu]nable to avoid copy"):
        table.__array__(np.dtype(np.int64), copy=False)


class OldConsumer:
    """Asks as consumers did before DLPack 1.0: with no version."""

    def __init__(self, table: ExportedArray) -> None:
        self.table = table

    def __dlpack__(self, stream: object = None, **_: object) -> object:
        return self.table.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.table.__dlpack_device__()


def test_a_consumer_that_names_no_version_gets_the_same_memory() -> None:
    import torch

    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    alive = weakref.ref(storage)
    seen = torch.from_dlpack(OldConsumer(table))
    old = np.from_dlpack(OldConsumer(table))
    assert seen.tolist() == old.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert seen.data_ptr() == old.ctypes.data == table.address
    assert '"dltensor"' in repr(table.__dlpack__())
    assert '"dltensor"' in repr(table.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(table.__dlpack__(max_version=(1, 2)))
    del storage, table
    gc.collect()
    assert seen.tolist() == [[0, 1, 2], [3, 4, -1]]
    del seen, old
    gc.collect()
    assert alive() is None


class Foreign:
    """A producer over memory that NumPy does not own, as a GPU's is."""

    def __init__(self, words: np.ndarray, owner: object, versioned: bool) -> None:
        self.words, self.owner, self.versioned = words, owner, versioned

    def __dlpack__(self, **_: object) -> object:
        where, shape = self.words.ctypes.data, self.words.shape
        return dlpack.signed_capsule(where, shape, 32, (dlpack.CPU, 0), self.owner, versioned=self.versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)


class Owner:
    pass


@pytest.mark.parametrize("versioned", [True, False])
def test_own_capsules_keep_their_owner_until_the_consumer_is_gone(versioned: bool) -> None:
    words = np.arange(12, dtype=np.int32).reshape(3, 4)
    owner = Owner()
    alive = weakref.ref(owner)
    foreign = Foreign(words, owner, versioned)
    seen = np.from_dlpack(foreign)
    del owner, foreign
    gc.collect()
    assert seen.tolist() == words.tolist()
    assert not seen.flags.writeable
    assert alive() is not None
    del seen
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("versioned", [True, False])
def test_own_capsules_that_nobody_takes_are_given_back(versioned: bool) -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = dlpack.signed_capsule(0, (0,), 8, (dlpack.CPU, 0), owner, versioned=versioned)
    del owner
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None

from kvgpu.device.open import open_device
from kvgpu.manager import Manager
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

CONFIG = ManagerConfig(
    tokens_per_block=4,
    levels=(LevelConfig(kind=LevelKind.GPU, slots=4), LevelConfig(kind=LevelKind.HOST, slots=4)),
    layers=(LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64, sparse=True),)),),
)


def test_two_managers_move_pages_on_one_device() -> None:
    device = open_device("sim")
    stream = device.stream("exec")
    for name in ("first", "second"):
        manager = Manager(CONFIG, device)
        request = manager.create(name)
        assert manager.resume(request, stream)
        assert manager.resize(request, 8, 8)
        assert manager.enter_decode(request)
        assert request.levels(0).tolist() == [1, 1]
    device.settle()
    assert not device.faults()

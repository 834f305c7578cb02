"""A read that the user asked for and ordered after nothing is told from a fence that kvgpu forgot."""

from tests.kvgpu.scene import config, done, system


def test_the_fault_says_that_the_read_is_the_users_own() -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - resize: {request: r, capacity: 4, history: 4}")
    done(it, "  - read_page: {request: r, group: kv, block: 0, stream: side, as: read}")
    (fault,) = it.observe().faults
    assert "unordered accesses to gpu slot 0 of pool group 0" in fault
    assert "The second is the user's own" in fault
    it.close()


def test_a_read_that_was_not_recorded_is_told_as_well() -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - resize: {request: r, capacity: 4}\n  - sync: exec")
    done(it, "  - read_page: {request: r, group: kv, block: 0, stream: side, as: read}\n  - write: {request: r, blocks: [0]}")
    (fault,) = it.observe().faults
    assert "The first is the user's own" in fault and "record_read" in fault
    it.close()

"""``kvgpu`` as a system under test: what the harness builds, drives and observes."""

from __future__ import annotations

from typing import ClassVar

from kvgpu.adapter.apply import apply
from kvgpu.adapter.fetches import Fetcher
from kvgpu.adapter.names import Names
from kvgpu.adapter.observe import observe
from kvgpu.adapter.options import make_device, whole_number
from kvgpu.adapter.order import Gates, StepMarks
from kvgpu.adapter.payloads import Payloads
from kvgpu.adapter.reads import Reader
from kvgpu.adapter.run import Run
from kvgpu.adapter.tree import TreeLog
from kvgpu.device.api import DeviceError, StreamsHeld
from kvgpu.errors import CacheError
from kvgpu.manager import Manager
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.policies import USUAL, Offer
from kvspec.system import DeviceLimit, Outcome, Setup

FEATURES = ("async", "capture", "disk", "beams", "ssm", "faults", "keys", "private")
"""What it can do beside the verbs: held-up work that is seen, graph captures, and so on."""


def _limit(error: BaseException | None) -> StreamsHeld | None:
    """What the device itself could not do, if that caused an error: no rule says that the operation should have failed."""
    while error is not None and not isinstance(error, StreamsHeld):
        error = error.__cause__ or error.__context__
    return error


class Implementation:
    """The cache manager on a simulated or real device, as a ``System`` of the harness. Its policies are the defaults (R16.1).

    Options of the setup: those of ``kvgpu.adapter.options.make_device``, and ``fail_file``: the number of the access to a file,
    from 1, that is refused.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset((*VERBS, *FEATURES))
    policies: ClassVar[Offer] = USUAL

    def __init__(self, setup: Setup) -> None:
        """Build the manager. Raises ``ConfigurationError``, and ``DeviceError`` for a device that is not there."""
        bad_file_access = whole_number(setup.options, "fail_file", 0)
        self._device = make_device(setup.options)
        self._step = -1
        self._closed = False
        try:
            streams = {name: self._device.stream(name) for name in setup.streams}
            marks = StepMarks(self._device, streams)
            payloads = Payloads(marks)
            manager = Manager(setup.manager, self._device, payload_hook=payloads.write)
            payloads.bind(manager)
            manager.faults.arm_file(bad_file_access)
            self._tree = TreeLog(manager)
            self._run = Run(
                manager,
                self._device,
                Names(manager, streams),
                Gates(self._device),
                marks,
                payloads,
                Reader(self._device),
                Fetcher(self._device, marks),
            )
        except BaseException:
            self._device.close()
            raise

    @property
    def device(self) -> str:
        """Which device it runs on: ``sim`` or ``cuda``."""
        return self._device.kind

    @property
    def file_accesses(self) -> int:
        """How many accesses to files were submitted or refused so far."""
        return self._run.manager.faults.file_accesses

    def apply(self, op: Operation) -> Outcome:
        """Carry out one operation; an error of a known kind is an outcome."""
        self._step += 1
        self._device.at_step(self._step, op.verb)
        self._run.marks.begin(self._step)
        self._tree.begin()
        try:
            return Outcome(apply(self._run, op))
        except (CacheError, DeviceError) as error:
            if limit := _limit(error):
                raise DeviceLimit(str(limit)) from error
            if isinstance(error, CacheError):
                return Outcome.failed(error.kind, str(error))
            raise

    def observe(self) -> Observation:
        """Everything that the harness compares. Lets the device run what no closed gate holds up, and changes nothing else."""
        self._device.settle()
        return observe(self._run, self._tree)

    def close(self) -> None:
        """Open every gate, then give back every resource. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._run.gates.open_all()
        for batch in self._run.names.batches.values():
            batch.close()
        self._run.manager.shut()
        self._device.close()

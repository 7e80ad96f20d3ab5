"""One NPU: its owner thread, context and stream, the deadline of its work, and what `doctor` asks
of it.

Knows no memory layout and no model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter_ns
from typing import TypeVar

from acl_runtime.binding import Binding
from acl_runtime.errors import (
    STREAM_SYNC_TIMEOUT,
    AclCallError,
    AclError,
    AclUnavailable,
    DeviceFault,
    EngineDegraded,
)
from acl_runtime.owner import OwnerThread
from profiling.spans import carried, device_span, span

log = logging.getLogger(__name__)
T = TypeVar("T")

# How long a job may stay away beyond its deadlines before the thread counts as stuck: synchronous
# calls (memcpy, malloc, execute_async) take no time limit of their own.
_STUCK_AFTER_S = 30.0
_RELEASE_LIMIT_S = 60.0
_SETTLE_MS = 30_000  # how long the device's own watchdog may take to end a hung task
_DRAIN_TRIES = 256  # more tasks than one step queues


class Device:
    """A device set for this process, with one context and one stream; every call runs on its owner
    thread.

    deadline_ms: how long one step (what is queued on the stream up to a `synchronize`) may take.
    After a device fault `degraded` holds the reason and `call` refuses work; `release` still runs.
    Raises AclUnavailable for a number that is not there. The opener closes it, after everything
    that lives on it.
    """

    def __init__(self, binding: Binding, index: int = 0, deadline_ms: int = 1500) -> None:
        self.binding = binding
        self.index = index
        self.deadline_ms = deadline_ms
        self.degraded: str | None = None
        self.stream = 0
        self._queued: tuple[str, int, int] | None = None
        self._undo = ExitStack()
        self._closed = False
        count = binding.rt.get_device_count()
        if not 0 <= index < count:
            raise AclUnavailable(
                f"device {index} is not there: this process sees {count} device(s), numbered from 0"
                " (npu-smi info; ASCEND_RT_VISIBLE_DEVICES renumbers them)"
            )
        self._owner = OwnerThread(f"npu {index}")
        try:
            self._owner.call(self._open, _STUCK_AFTER_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, job: Callable[[], T], limit_s: float = 0.0) -> T:
        """The result of `job` on the owner thread; limit_s is what its device work may take at
        most.

        Raises EngineDegraded after an earlier fault; a DeviceFault raised by the job degrades the
        device.
        """
        if self.degraded:
            raise EngineDegraded(
                f"device {self.index} failed before ({self.degraded}); close the engine and open"
                " it again"
            )

        def guarded() -> T:
            try:
                return job()
            except AclError:
                self.drain(
                    self.stream, self.deadline_ms
                )  # nothing queued may touch memory that is used again
                raise

        try:
            return self._owner.call(carried(guarded), limit_s + _STUCK_AFTER_S)
        except DeviceFault as fault:
            if not self.degraded:
                self.degraded = str(fault)
                log.warning("device %d is degraded: %s", self.index, fault)
            raise

    def release(self, job: Callable[[], None]) -> None:
        """Runs a releasing job even on a degraded device; a failure is logged, never raised.

        A vendor call that fails to release leaves its memory to `reset_device`, which ends
        everything at the close.
        """
        try:
            self._owner.call(job, _RELEASE_LIMIT_S)
        except AclError as error:
            log.warning("device %d: while releasing: %s", self.index, error)

    def queued(self, work: str) -> None:
        """Notes for the trace what the stream runs until the next `synchronize`."""
        self._queued = (work, self.index, perf_counter_ns())

    def synchronize(self, deadline_ms: int | None = None) -> None:
        """Waits on the owner thread until the stream is done; asynchronous errors surface here.

        Raises DeviceTimeout when that takes longer than `deadline_ms` (by default the device's).
        """
        limit_ms = deadline_ms or self.deadline_ms
        with span("wait"):
            self.binding.rt.synchronize_stream_with_timeout(self.stream, limit_ms)
        if self._queued is not None:
            device_span(*self._queued)
            self._queued = None
        self._owner.progress()

    def drain(self, stream: int, limit_ms: int) -> None:
        """Waits for whatever is still queued after a failure, on the owner thread; never raises.

        A stream goes on after a failed task, and each failure surfaces in a wait of its own."""
        for _ in range(_DRAIN_TRIES):
            try:
                self.binding.rt.synchronize_stream_with_timeout(stream, limit_ms)
                return
            except AclCallError as error:
                log.debug("device %d: while draining: %s", self.index, error)
                if error.code == STREAM_SYNC_TIMEOUT:
                    return

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes, without what the system reserves."""
        return self.call(lambda: memory_info(self.binding))

    def finish(self) -> None:
        """Ends the stream, so that no task of it can touch memory or a model that is released
        next; the first thing to close, idempotent, never raises."""

        def job() -> None:
            stream, self.stream = self.stream, 0
            if stream:
                self.drain(stream, _SETTLE_MS if self.degraded else self.deadline_ms)
                let_go(self.binding.rt.destroy_stream, stream)

        self.release(job)

    def close(self) -> None:
        """Ends stream, context and device; idempotent, never raises."""
        if not self._closed:
            self._closed = True
            self.finish()
            self.release(self._undo.close)
            self._owner.stop()

    def _open(self) -> None:
        rt = self.binding.rt
        rt.set_device(self.index)
        self._later(rt.reset_device, self.index)
        context = rt.create_context(self.index)
        self._later(rt.destroy_context, context)
        self.stream = rt.create_stream()
        log.info("device %d open: %s", self.index, self.binding.soc_name())

    def _later(self, undo: Callable[[int], None], handle: int) -> None:
        self._undo.callback(let_go, undo, handle)


def let_go(undo: Callable[[int], None], handle: int) -> None:
    """Calls a releasing function, once more if it fails (a busy driver), and logs what still fails.

    What cannot be released is left to `reset_device`; the releases after it must run in any case.
    """
    try:
        undo(handle)
    except AclError as first:
        log.debug("releasing again after: %s", first)
        try:
            undo(handle)
        except AclError as error:
            log.warning("not released: %s", error)


def memory_info(binding: Binding) -> tuple[int, int]:
    """(free, total) bytes of the current device: HBM where there is any, else DDR (asking a DDR
    chip for HBM is answered with DDR, but older runtimes give zeros)."""
    for attribute in (1, 0):  # aclrtMemAttr: ACL_HBM_MEM, ACL_DDR_MEM
        free, total = binding.rt.get_mem_info(attribute)
        if total:
            return int(free), int(total)
    return 0, 0

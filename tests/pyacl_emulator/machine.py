"""The one emulated machine of a process: its devices, handles, memory and lifecycle.

pyACL is a C library with process-wide state; this object is that state. It is reset in place, so
that functions which a program has already looked up keep working.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from .counters import Counters
from .faults import Faults
from .handles import Handles
from .memory import Memory
from .settings import Settings
from .violation import EmulatorViolation

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from .bundle import Bundle
    from .callback import Report
    from .context import Context, Device
    from .model import Model
    from .profiler import Profiling, Recorder
    from .stream import Stream

_RETIRED = 2  # memories of earlier processes that stay mapped
FRESH, READY, FINALIZED = (
    "before acl.init",
    "between acl.init and acl.finalize",
    "after acl.finalize",
)


class Machine:
    """State of the process; `lock` is held by calls that for real hold the interpreter lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.faults = Faults()
        self.counters = Counters()
        self.settings = Settings()
        self.memory = Memory(False, self.counters)
        self._retired: deque[Memory] = deque()
        self.reset()

    def reset(self, settings: Settings | None = None) -> None:
        """Back to a process that has not called anything."""
        with self.lock:
            self.settings = settings or Settings.from_environment()
            self.memory.retire()
            self._retired.append(self.memory)
            while len(self._retired) > _RETIRED:
                self._retired.popleft().close()
            self.faults.clear()
            self.counters = Counters()
            self.handles = Handles()
            self.memory = Memory(self.settings.chip.rc, self.counters)
            self.devices: dict[int, Device] = {}
            self.local = threading.local()
            self.phase = FRESH
            self.inits = 0
            self.violations: list[EmulatorViolation] = []
            self.leaks: list[str] = []
            self.next_model_id = 1
            self.models: dict[int, Model] = {}
            self.bundles: dict[int, Bundle] = {}
            self.dumping = False
            self.recorder: Recorder | None = None
            self._profiling: Profiling | None = None
            self.hangs = threading.Event()
            self.busy: set[Stream] = set()
            self.inboxes: dict[int, SimpleQueue[Report]] = {}
            self.exception_callback: Callable[[int], object] | None = None

    def context(self) -> Context | None:
        """The context that is current in the calling thread, if it still lives."""
        context: Context | None = getattr(self.local, "context", None)
        if context is not None and not context.live:
            return None
        return context

    @property
    def profiling(self) -> Profiling:
        """State of acl.prof."""
        if self._profiling is None:
            from .profiler import Profiling

            self._profiling = Profiling()
        return self._profiling

    def report(self, code: int, message: str) -> int:
        """Stores the text that acl.get_recent_err_msg returns in this thread; returns the code."""
        self.local.message = message
        self.local.last_error = code
        return code

    def wait(self, seconds: float) -> None:
        """Lets emulated time pass; a reset or a release of hangs ends it early."""
        scaled = seconds * self.settings.time_scale
        if scaled > 0:
            self.hangs.wait(scaled)

    def now(self) -> float:
        """Seconds on the device's clock."""
        return time.perf_counter()


MACHINE = Machine()

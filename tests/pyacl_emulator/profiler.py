"""acl.prof: what is recorded between start and stop, and who may ask for it.

The calls write the folder that `msprof --export` would make (see `prof_folder`). Device times come
from a roofline of the chip's table and are marked emulated; host times are those of this process.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .binding import api, code
from .description import Gear
from .machine import MACHINE
from .model import Model
from .violation import EmulatorViolation

INVALID = code("INVALID_PARAM")
NOT_RUN = code("PROF_NOT_RUN")
CONFLICT = code("PROF_API_CONFLICT")
_FLAGS = 0xFFFF
_DEVICES = 64


@dataclass(slots=True)
class ApiTimes:
    """Times of one function in microseconds."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = 0.0

    def add(self, us: float) -> None:
        """One more call."""
        self.count += 1
        self.total += us
        self.squares += us * us
        self.least, self.most = min(self.least, us), max(self.most, us)


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a model; times in seconds since the epoch."""

    model: Model
    gear: Gear | None
    start: float
    end: float


@dataclass(slots=True)
class Recorder:
    """Everything seen while profiling runs."""

    apis: dict[str, ApiTimes] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    offset: float = field(default_factory=lambda: time.time() - time.perf_counter())

    def timed(self, name: str, run: Callable[[tuple[Any, ...]], Any], args: tuple[Any, ...]) -> Any:
        """Runs a call and records how long it took."""
        start = time.perf_counter()
        try:
            return run(args)
        finally:
            us = (time.perf_counter() - start) * 1e6
            self.apis.setdefault(name, ApiTimes()).add(us)

    def executed(self, model: Model, gear: Gear | None, start: float, end: float) -> None:
        """Records a run; times on the machine's clock."""
        self.executions.append(Execution(model, gear, start + self.offset, end + self.offset))


@dataclass(slots=True)
class Profiling:
    """State of acl.prof in this process."""

    path: Path | None = None
    recorder: Recorder | None = None
    running: int = 0
    folders: list[Path] = field(default_factory=list)
    subscribers: dict[int, int] = field(default_factory=dict)  # model id -> file descriptor
    stack: int = 0


@dataclass(slots=True, eq=False)
class ProfConfig:
    """A configuration of create_config."""

    devices: tuple[int, ...]
    metrics: int
    flags: int


@api("acl.prof.init")
def init(path: str) -> int:
    """The folder for results; before start."""
    if MACHINE.profiling.path is not None:
        return code("PROF_ALREADY_RUN")
    if len(path) > 4096 or not path:
        return INVALID
    folder = Path(path)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return MACHINE.report(code("INVALID_FILE"), f"EK0001: result path {path} is not a folder")
    MACHINE.profiling.path = folder
    MACHINE.profiling.recorder = Recorder()
    return 0


@api("acl.prof.finalize")
def finalize() -> int:
    """Writes the PROF folder."""
    from .prof_folder import write

    state = MACHINE.profiling
    if state.path is None or state.recorder is None:
        return NOT_RUN
    if state.running:
        raise EmulatorViolation(
            "acl.prof.finalize while profiling runs", "aclprofFinalize.md: call aclprofStop first"
        )
    state.folders.append(write(state.path, state.recorder, MACHINE.settings.chip))
    state.path = state.recorder = None
    return 0


@api("acl.prof.create_config")
def create_config(devices: list[int], metrics: int, events: int, flags: int) -> int:
    """A handle, or 0 when a value is out of range."""
    known = all(type(d) is int and 0 <= d < MACHINE.settings.visible_devices for d in devices)
    metrics_ok = 0 <= metrics <= 8 or metrics == 0xFF
    if not known or len(devices) > _DEVICES or not metrics_ok or events or flags & ~_FLAGS:
        return 0
    return MACHINE.handles.add(ProfConfig(tuple(devices), metrics, flags))


@api("acl.prof.set_config")
def set_config(kind: int, config: str) -> int:
    """Extra options; at most 256 characters."""
    return 0 if 0 < kind < 17 and 0 < len(config) <= 256 else INVALID


@api("acl.prof.start")
def start(handle: int) -> int:
    """Begins recording."""
    if handle == 0:
        return INVALID
    MACHINE.handles.get(handle, ProfConfig)
    state = MACHINE.profiling
    if state.recorder is None:
        return NOT_RUN
    if state.subscribers:
        return CONFLICT
    state.running += 1
    MACHINE.recorder = state.recorder
    return 0


@api("acl.prof.stop")
def stop(handle: int) -> int:
    """Ends recording; every device must be synchronised."""
    if handle == 0:
        return INVALID
    MACHINE.handles.get(handle, ProfConfig)
    state = MACHINE.profiling
    if not state.running:
        return NOT_RUN
    state.running -= 1
    if not state.running:
        MACHINE.recorder = None
    return 0


@api("acl.prof.destroy_config")
def destroy_config(handle: int) -> int:
    """Destroys a configuration."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, ProfConfig)
    return 0

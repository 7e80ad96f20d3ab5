"""acl.prof: what is recorded between start and stop, and who may ask for it.

The calls write the folder that `msprof --export` would make (see `prof_folder`). Device times come from
a roofline of the chip's table and are marked emulated; host times are those of this process.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .binding import api, code
from .context import current
from .description import Gear
from .machine import MACHINE
from .model import Model, find
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


@dataclass(slots=True, eq=False)
class SubscribeConfig:
    """A configuration of create_subscribe_config."""

    switch: int
    metrics: int
    descriptor: int


@dataclass(slots=True, eq=False)
class Stamp:
    """A mark of msproftx."""

    message: str = ""


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
    known = all(type(d) is int and 0 <= d < MACHINE.settings.device_count for d in devices)
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


@api("acl.prof.create_subscribe_config")
def create_subscribe_config(switch: int, metrics: int, descriptor: int) -> int:
    """switch 1: times; descriptor: the write end of a pipe."""
    if switch not in (0, 1) or descriptor < 0:
        return 0
    return MACHINE.handles.add(SubscribeConfig(switch, metrics, descriptor))


@api("acl.prof.destroy_subscribe_config")
def destroy_subscribe_config(handle: int) -> int:
    """Destroys it."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, SubscribeConfig)
    return 0


@api("acl.prof.model_subscribe")
def model_subscribe(model_id: int, handle: int) -> int:
    """Sends a record of every operator of the model's runs through the pipe."""
    context = current()
    if isinstance(context, int):
        return context
    if handle == 0:
        return INVALID
    model = find(model_id)
    if isinstance(model, int):
        return model
    state = MACHINE.profiling
    if state.path is not None:
        return CONFLICT
    if model_id in state.subscribers:
        return code("PROF_REPEAT_SUBSCRIBE")
    state.subscribers[model_id] = MACHINE.handles.get(handle, SubscribeConfig).descriptor
    return 0


def _unsubscribe(model_id: int) -> int:
    return 0 if MACHINE.profiling.subscribers.pop(model_id, None) is not None else INVALID


@api("acl.prof.model_un_subscribe")
def model_un_subscribe(model_id: int) -> int:
    """Ends the subscription."""
    return _unsubscribe(model_id)


@api("acl.prof.model_unsubscribe")
def model_unsubscribe(model_id: int) -> int:
    """The same under its other name."""
    return _unsubscribe(model_id)


@api("acl.prof.create_stamp")
def create_stamp() -> int:
    """A mark."""
    return MACHINE.handles.add(Stamp())


@api("acl.prof.set_stamp_trace_message")
def set_stamp_trace_message(handle: int, message: str, length: int) -> int:
    """The mark's text, at most 127 characters."""
    if handle == 0 or length > 127:
        return INVALID
    MACHINE.handles.get(handle, Stamp).message = message[:length]
    return 0


def _stamped(handle: int) -> int:
    if handle == 0:
        return INVALID
    MACHINE.handles.get(handle, Stamp)
    return 0


@api("acl.prof.mark")
def mark(handle: int) -> int:
    """A point in time."""
    return _stamped(handle)


@api("acl.prof.push")
def push(handle: int) -> int:
    """Opens a nested range."""
    problem = _stamped(handle)
    MACHINE.profiling.stack += not problem
    return problem


@api("acl.prof.pop")
def pop() -> int:
    """Closes the innermost range."""
    if not MACHINE.profiling.stack:
        return INVALID
    MACHINE.profiling.stack -= 1
    return 0


@api("acl.prof.range_start")
def range_start(handle: int) -> tuple[int, int]:
    """(range id, 0)."""
    problem = _stamped(handle)
    return (0, problem) if problem else (handle & 0xFFFF, 0)


@api("acl.prof.range_stop")
def range_stop(range_id: int) -> int:
    """Closes a range."""
    return 0 if range_id else INVALID


@api("acl.prof.destroy_stamp")
def destroy_stamp(handle: int) -> None:
    """Destroys a mark."""
    if handle:
        MACHINE.handles.pop(handle, Stamp)


RECORD = struct.Struct("<IIQQQ64s128s")


def publish(model: Model, gear: Gear | None, started: float) -> None:
    """Writes the records of one run to the model's subscriber, if it has one."""
    descriptor = MACHINE.profiling.subscribers.get(model.id)
    if descriptor is None:
        return
    from .roofline import operators_of

    at = int(started * 1e9)
    for task, operator in enumerate(operators_of(model, gear, MACHINE.settings.chip)):
        span = int(operator.us * 1e3)
        os.write(descriptor, RECORD.pack(model.id, task, at, at + span, span,
                                         operator.kind.encode()[:63], operator.name.encode()[:127]))  # fmt: skip
        at += span

"""Subscriptions of acl.prof (operator records through a pipe) and the marks of msproftx."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from .binding import api, code
from .context import current
from .description import Gear
from .machine import MACHINE
from .model import Model, find

INVALID = code("INVALID_PARAM")
CONFLICT = code("PROF_API_CONFLICT")
RECORD = struct.Struct("<IIQQQ64s128s")  # model, task, start, end, ns, type, name


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


def publish(model: Model, gear: Gear | None, started: float) -> None:
    """Writes the records of one run to the model's subscriber, if it has one."""
    descriptor = MACHINE.profiling.subscribers.get(model.id)
    if descriptor is None:
        return
    from .roofline import operators_of

    at = int(started * 1e9)
    for task, operator in enumerate(operators_of(model, gear, MACHINE.settings.chip)):
        span = int(operator.us * 1e3)
        texts = operator.kind.encode()[:63], operator.name.encode()[:127]
        os.write(descriptor, RECORD.pack(model.id, task, at, at + span, span, *texts))
        at += span

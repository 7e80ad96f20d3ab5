"""Devices and contexts: what a thread must have before any runtime call means anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .binding import api, code
from .machine import MACHINE
from .violation import EmulatorViolation

if TYPE_CHECKING:
    from .stream import Stream


@dataclass(slots=True, eq=False)
class Device:
    """One emulated NPU of this process; `uses` counts set_device against reset_device."""

    index: int
    uses: int = 0
    primary: Context | None = None
    lost: bool = False
    saturation: int = 0


@dataclass(slots=True, eq=False)
class Context:
    """A context owns streams; memory and models belong to its device and are checked against it."""

    device: Device
    handle: int = 0
    live: bool = True
    streams: list[Stream] = field(default_factory=list)

    @property
    def default_stream(self) -> Stream:
        """The stream that every context has from the start."""
        return self.streams[0]


NO_CONTEXT = code("RT_CONTEXT_NULL")
LOST = code("RT_LOST_HEARTBEAT")


def current() -> Context | int:
    """The caller's context, or the code that a call without one returns."""
    context = MACHINE.context()
    if context is None:
        return MACHINE.report(NO_CONTEXT, "EE1001: no context is set in this thread")
    if context.device.lost:
        return MACHINE.report(LOST, f"EE4001: device {context.device.index} lost its heartbeat")
    return context


def _open(device_id: int) -> Device | int:
    if not 0 <= device_id < MACHINE.settings.visible_devices:
        return MACHINE.report(
            code("RT_INVALID_DEVICEID"),
            f"EE1001: Set device failed, device_id {device_id} is not in "
            f"[0, {MACHINE.settings.visible_devices})",
        )
    device = MACHINE.devices.get(device_id)
    if device is None:
        device = MACHINE.devices[device_id] = Device(device_id)
    if device.lost:
        return MACHINE.report(LOST, f"EE4001: device {device_id} lost its heartbeat")
    return device


def make_context(device: Device) -> Context:
    """A registered context with its default stream."""
    from .stream import make_stream

    context = Context(device)
    context.handle = MACHINE.handles.add(context)
    make_stream(context, explicit=False)
    return context


@api("acl.rt.set_device")
def set_device(device_id: int) -> int:
    """Binds the thread to the device's primary context; counted against reset_device."""
    device = _open(device_id)
    if isinstance(device, int):
        return device
    if device.primary is None or not device.primary.live:
        device.primary = make_context(device)
    device.uses += 1
    MACHINE.local.context = device.primary
    return 0


@api("acl.rt.get_device")
def get_device() -> tuple[int, int]:
    """(device id, 0), or (0, 107002) when the thread has no context."""
    context = MACHINE.context()
    return (0, NO_CONTEXT) if context is None else (context.device.index, 0)


@api("acl.rt.get_device_count")
def get_device_count() -> tuple[int, int]:
    """(devices after ASCEND_RT_VISIBLE_DEVICES, 0)."""
    return MACHINE.settings.visible_devices, 0


@api("acl.rt.get_run_mode")
def get_run_mode() -> tuple[int, int]:
    """(1, 0) in EP form (host application), (0, 0) in RC form (application on the device)."""
    return (0 if MACHINE.settings.chip.rc else 1), 0


@api("acl.rt.create_context")
def create_context(device_id: int) -> tuple[int, int]:
    """A new context, current in the calling thread."""
    device = _open(device_id)
    if isinstance(device, int):
        return 0, device
    context = make_context(device)
    MACHINE.local.context = context
    return context.handle, 0


@api("acl.rt.destroy_context")
def destroy_context(handle: int) -> int:
    """Destroys an explicit context together with what is left of its streams."""
    if handle == 0:
        return code("INVALID_PARAM")
    context = MACHINE.handles.live.get(handle)
    if type(context) is not Context:
        return MACHINE.report(code("RT_PARAM_INVALID"), "EE1001: not a live context")
    if context.device.primary is context:
        raise EmulatorViolation(
            "the primary context is destroyed by hand",
            "aclrtDestroyContext.md: only contexts from aclrtCreateContext",
        )
    drop(context)
    return 0


def drop(context: Context) -> None:
    """Ends a context; streams that are still there count as leaked."""
    from .stream import discard

    for stream in list(context.streams):
        if stream.explicit:
            MACHINE.leaks.append(f"stream {stream.handle:#x} outlived its context")
        discard(stream)
    context.live = False
    MACHINE.handles.live.pop(context.handle, None)


@api("acl.rt.set_context")
def set_context(handle: int) -> int:
    """Makes a live context current in this thread; 107000 otherwise."""
    context = MACHINE.handles.live.get(handle)
    if type(context) is not Context:
        return MACHINE.report(code("RT_PARAM_INVALID"), f"EE1001: context {handle:#x} is not live")
    MACHINE.local.context = context
    return 0


@api("acl.rt.get_context")
def get_context() -> tuple[int, int]:
    """(context, 0), or (0, 107002)."""
    context = MACHINE.context()
    return (0, NO_CONTEXT) if context is None else (context.handle, 0)


@api("acl.rt.ctx_get_current_default_stream")
def ctx_get_current_default_stream() -> tuple[int, int]:
    """The default stream of the current context."""
    context = current()
    if isinstance(context, int):
        return 0, context
    return context.default_stream.handle, 0


def _release(device: Device) -> None:
    """Everything that the process still has on a device goes with it; each piece is a leak."""
    from .model import forget

    for model in [m for m in MACHINE.models.values() if m.device is device]:
        MACHINE.leaks.append(f"model {model.id} ({model.name}) was not unloaded")
        forget(model)
    for context in [c for c in MACHINE.handles.of(Context) if c.device is device]:
        if context is not device.primary:
            MACHINE.leaks.append(f"context {context.handle:#x} was not destroyed")
        drop(context)
    for block in [b for b in MACHINE.memory.blocks.values() if b.device == device.index]:
        if not block.pinned:
            MACHINE.leaks.append(f"{block.size} bytes of device memory were not freed")
            MACHINE.memory.free(block)
    device.primary = None
    device.uses = 0
    device.lost = False


def _reset(device_id: int, force: bool) -> int:
    if not 0 <= device_id < MACHINE.settings.visible_devices:
        return code("RT_INVALID_DEVICEID")
    device = MACHINE.devices.get(device_id)
    if device is None or device.uses == 0:
        return MACHINE.report(
            code("RT_CONTEXT_RELEASE_ERROR"),
            "EE1018: The device has not been set or has already been reset",
        )
    device.uses -= 1
    if force or device.uses == 0:
        _release(device)
    return 0


@api("acl.rt.reset_device")
def reset_device(device_id: int) -> int:
    """Undoes one set_device; the last one releases the device."""
    return _reset(device_id, force=False)


@api("acl.rt.reset_device_force")
def reset_device_force(device_id: int) -> int:
    """Releases the device whatever the count."""
    return _reset(device_id, force=True)

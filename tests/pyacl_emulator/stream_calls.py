"""The functions on streams: create, destroy, synchronise, query."""

from __future__ import annotations

from .binding import api, code
from .context import current
from .machine import MACHINE
from .stream import FOREVER, Stream, discard, make_stream, poll, resolve, run


@api("acl.rt.create_stream")
def create_stream() -> tuple[int, int]:
    """A stream in the current context."""
    context = current()
    if isinstance(context, int):
        return 0, context
    return make_stream(context, explicit=True).handle, 0


@api("acl.rt.create_stream_with_config")
def create_stream_with_config(priority: int, flag: int) -> tuple[int, int]:
    """As create_stream; priority 0 (highest) to 7, flag a bit mask up to 0x3F."""
    if not 0 <= priority <= 7 or not 0 <= flag <= 0x3F:
        return 0, code("RT_PARAM_INVALID")
    return create_stream()


def _destroy(handle: int, *, wait: bool) -> int:
    if handle == 0:
        return MACHINE.report(code("INVALID_PARAM"), "EE1001: stream is NULL")
    stream = MACHINE.handles.get(handle, Stream)
    context = MACHINE.context()
    if not stream.explicit:
        return code("RT_PARAM_INVALID")
    if context is None or stream.context is not context:
        return MACHINE.report(code("RT_STREAM_CONTEXT"), "EE1001: stream of another context")
    result = run(stream) if wait else 0
    MACHINE.busy.discard(stream)
    discard(stream)
    return result if result == code("RT_AICORE_TIMEOUT") else 0


@api("acl.rt.destroy_stream", locked=False)
def destroy_stream(handle: int) -> int:
    """Waits for the queue, then destroys."""
    return _destroy(handle, wait=True)


@api("acl.rt.destroy_stream_force")
def destroy_stream_force(handle: int) -> int:
    """Drops the queue and destroys."""
    return _destroy(handle, wait=False)


@api("acl.rt.synchronize_stream")
def synchronize_stream(handle: int) -> int:
    """Waits for all work of a stream; asynchronous errors surface here."""
    stream = resolve(handle)
    return stream if isinstance(stream, int) else run(stream)


@api("acl.rt.synchronize_stream_with_timeout")
def synchronize_stream_with_timeout(handle: int, timeout: int) -> int:
    """As synchronize_stream with a limit in ms (-1: none); 507046 when it passes."""
    if timeout < -1 or timeout == 0:
        return MACHINE.report(
            code("RT_PARAM_INVALID"), f"EE1001: timeout {timeout} is not -1 or > 0"
        )
    stream = resolve(handle)
    if isinstance(stream, int):
        return stream
    return run(stream, seconds=FOREVER if timeout == -1 else timeout / 1000)


def _synchronize_device(seconds: float) -> int:
    context = current()
    if isinstance(context, int):
        return context
    first = 0
    for stream in MACHINE.handles.of(Stream):
        if stream.context.device is context.device and (stream.queue or stream.error):
            result = run(stream, seconds=seconds)
            first = first or result
    return first


@api("acl.rt.synchronize_device")
def synchronize_device() -> int:
    """Waits for every stream of the current device."""
    return _synchronize_device(FOREVER)


@api("acl.rt.synchronize_device_with_timeout")
def synchronize_device_with_timeout(timeout: int) -> int:
    """As synchronize_device with a limit in ms."""
    if timeout < -1 or timeout == 0:
        return code("RT_PARAM_INVALID")
    return _synchronize_device(FOREVER if timeout == -1 else timeout / 1000)


@api("acl.rt.stream_query", locked=False)
def stream_query(handle: int) -> tuple[int, int]:
    """(0 complete | 1 not ready, 0). A poll lets the device get one task further."""
    stream = resolve(handle)
    if isinstance(stream, int):
        return 0, stream
    return (1 if poll(stream) else 0), 0


@api("acl.rt.stream_get_id")
def stream_get_id(handle: int) -> tuple[int, int]:
    """A small number for a stream."""
    stream = resolve(handle)
    if isinstance(stream, int):
        return 0, stream
    return stream.context.streams.index(stream), 0


@api("acl.rt.set_stream_failure_mode")
def set_stream_failure_mode(handle: int, mode: int) -> int:
    """0: go on after an error, 1: stop; not for the default stream."""
    if handle == 0 or mode not in (0, 1):
        return code("RT_PARAM_INVALID")
    stream = resolve(handle)
    return stream if isinstance(stream, int) else 0

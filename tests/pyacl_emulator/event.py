"""Events: marks in a stream that others can wait for and that can be timed."""

from __future__ import annotations

from dataclasses import dataclass

from .binding import api, code
from .context import current
from .machine import MACHINE
from .stream import FOREVER, Stream, Task, enqueue, poll, resolve, run
from .violation import EmulatorViolation

INVALID = code("INVALID_PARAM")
BAD_TIMESTAMP = code("RT_EVENT_TIMESTAMP_INVALID")


@dataclass(slots=True, eq=False)
class Event:
    """A mark; `at` is where it was recorded, `time` when the device got there."""

    flagged: bool = False
    stream: Stream | None = None
    at: int = 0
    time: float | None = None
    waited: bool = False

    @property
    def complete(self) -> bool:
        return self.stream is None or self.time is not None


def _create(*, flagged: bool, limited: bool = True) -> tuple[int, int]:
    context = current()
    if isinstance(context, int):
        return 0, context
    if limited and len(MACHINE.handles.of(Event)) >= MACHINE.settings.chip.events:
        return 0, MACHINE.report(
            code("RT_NO_EVENT_RESOURCE"), "EL0005: no event left on the device"
        )
    return MACHINE.handles.add(Event(flagged)), 0


@api("acl.rt.create_event")
def create_event() -> tuple[int, int]:
    """An event for timing and for waiting between streams."""
    return _create(flagged=False)


@api("acl.rt.create_event_with_flag")
def create_event_with_flag(flag: int) -> tuple[int, int]:
    """flag: 1 sync, 2 capture progress, 8 time line."""
    if flag <= 0 or flag & ~0xB:
        return 0, code("RT_PARAM_INVALID")
    return _create(flagged=True)


@api("acl.rt.create_event_ex_with_flag")
def create_event_ex_with_flag(flag: int) -> tuple[int, int]:
    """As create_event_with_flag without the limit on their number."""
    if flag <= 0 or flag & ~0xB:
        return 0, code("RT_PARAM_INVALID")
    return _create(flagged=True, limited=False)


@api("acl.rt.destroy_event")
def destroy_event(handle: int) -> int:
    """Destroys it."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, Event)
    return 0


@api("acl.rt.record_event")
def record_event(handle: int, stream: int) -> int:
    """Marks the end of what is queued on the stream; order (event, stream)."""
    if handle == 0:
        return INVALID
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    event = MACHINE.handles.get(handle, Event)

    def mark() -> int:
        event.time = MACHINE.now()
        return 0

    enqueue(queue, Task("record_event", mark))
    event.stream, event.at, event.time = queue, queue.issued, None
    return 0


@api("acl.rt.reset_event")
def reset_event(handle: int, stream: int) -> int:
    """Clears the mark when the stream gets there; only for events made with a flag."""
    if handle == 0:
        return INVALID
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    event = MACHINE.handles.get(handle, Event)
    if not event.flagged:
        raise EmulatorViolation(
            "reset_event on an event of create_event",
            "aclrtCreateEvent.md: not with aclrtResetEvent",
        )

    def clear() -> int:
        event.stream, event.time = None, None
        return 0

    enqueue(queue, Task("reset_event", clear))
    return 0


@api("acl.rt.stream_wait_event", locked=False)
def stream_wait_event(stream: int, handle: int) -> int:
    """Later work of the stream waits for the mark; order (stream, event)."""
    if handle == 0:
        return INVALID
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    event = MACHINE.handles.get(handle, Event)
    source, at = event.stream, event.at
    if source is None or source is queue:
        return 0

    def wait() -> int:
        return run(source, until=at)

    enqueue(queue, Task("stream_wait_event", wait))
    queue.after[source] = max(queue.after.get(source, 0), at)
    for other, position in source.after.items():
        queue.after[other] = max(queue.after.get(other, 0), position)
    event.waited = True
    return 0


def _advance(event: Event) -> bool:
    """True when complete; otherwise the device gets one task further."""
    if event.complete:
        return True
    assert event.stream is not None
    poll(event.stream)
    return False


@api("acl.rt.query_event", locked=False)
def query_event(handle: int) -> tuple[int, int]:
    """(0 complete | 1 not ready, 0)."""
    if handle == 0:
        return 0, INVALID
    return (0 if _advance(MACHINE.handles.get(handle, Event)) else 1), 0


@api("acl.rt.query_event_status", locked=False)
def query_event_status(handle: int) -> tuple[int, int]:
    """(0 not ready | 1 complete, 0): the inverse of query_event."""
    if handle == 0:
        return 0, INVALID
    return (1 if _advance(MACHINE.handles.get(handle, Event)) else 0), 0


@api("acl.rt.query_event_wait_status", locked=False)
def query_event_wait_status(handle: int) -> tuple[int, int]:
    """(0 complete | 1 not ready, 0)."""
    return query_event(handle)


def _synchronize(handle: int, seconds: float) -> int:
    if handle == 0:
        return INVALID
    context = current()
    if isinstance(context, int):
        return context
    event = MACHINE.handles.get(handle, Event)
    if event.stream is None or event.complete:
        return 0
    result = run(event.stream, until=event.at, seconds=seconds)
    return code("RT_EVENT_SYNC_TIMEOUT") if result == code("RT_STREAM_SYNC_TIMEOUT") else result


@api("acl.rt.synchronize_event")
def synchronize_event(handle: int) -> int:
    """Waits until the mark is reached."""
    return _synchronize(handle, FOREVER)


@api("acl.rt.synchronize_event_with_timeout")
def synchronize_event_with_timeout(handle: int, timeout: int) -> int:
    """As synchronize_event with a limit in ms (-1: none); 507047 when it passes."""
    if timeout < -1:
        return code("RT_PARAM_INVALID")
    return _synchronize(handle, FOREVER if timeout == -1 else timeout / 1000)


@api("acl.rt.event_elapsed_time")
def event_elapsed_time(start: int, end: int) -> tuple[float, int]:
    """(ms between two reached marks, 0); emulated time."""
    if start == 0 or end == 0:
        return 0.0, INVALID
    first, second = (MACHINE.handles.get(handle, Event) for handle in (start, end))
    if first.time is None or second.time is None:
        return 0.0, MACHINE.report(
            BAD_TIMESTAMP, "EE1001: an event is not recorded or not complete"
        )
    if second.time < first.time:
        return 0.0, code("RT_EVENT_TIMESTAMP_REVERSAL")
    return (second.time - first.time) * 1e3, 0


@api("acl.rt.event_get_timestamp")
def event_get_timestamp(handle: int) -> tuple[int, int]:
    """(us on the device's clock, 0)."""
    if handle == 0:
        return 0, INVALID
    event = MACHINE.handles.get(handle, Event)
    return (0, BAD_TIMESTAMP) if event.time is None else (int(event.time * 1e6), 0)


@api("acl.rt.set_op_wait_timeout")
def set_op_wait_timeout(timeout: int) -> int:
    """Seconds that an operator may wait for an event."""
    return 0 if timeout >= 0 else code("RT_PARAM_INVALID")


@api("acl.rt.set_op_execute_time_out")
def set_op_execute_time_out(timeout: int) -> int:
    """Seconds after which the device's watchdog ends an operator."""
    if timeout < 0:
        return code("RT_PARAM_INVALID")
    if timeout:
        MACHINE.settings.hang_limit_s = float(timeout)
    return 0

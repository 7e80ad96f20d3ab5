"""Streams: queues of work that runs, in order, only when somebody waits for it.

Lazy execution is the worst case that hardware allows: a program that reads a result before it
synchronises sees the old bytes here every time, and the emulator names the missing wait. Waiting
counts emulated time only: slow computation on the CPU never makes a deadline fail, a planted delay
or hang does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .binding import code
from .context import LOST, Context, current
from .machine import MACHINE
from .violation import EmulatorViolation

Range = tuple[int, int]
FOREVER = float("inf")
RACE = (
    "aclrtMemcpy.md, aclmdlExecuteAsync.md: asynchronous work is finished only after a synchronise"
)


@dataclass(slots=True, eq=False)
class Task:
    """One unit of queued work. `run` returns a code; ranges are device addresses [low, high)."""

    label: str
    run: Callable[[], int]
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    delay: float = 0.0
    hang: bool = False
    dropped: Callable[[], None] | None = None
    sequence: int = 0


@dataclass(slots=True, eq=False)
class Stream:
    """A queue of a context. `after` maps another stream to the position this one has waited for."""

    context: Context
    explicit: bool
    handle: int = 0
    live: bool = True
    queue: deque[Task] = field(default_factory=deque)
    issued: int = 0
    done: int = 0
    error: int = 0
    after: dict[Stream, int] = field(default_factory=dict)
    running: threading.RLock = field(default_factory=threading.RLock)
    subscriber: int = 0


@dataclass(slots=True, eq=False)
class ExceptionInfo:
    """What is known about a failed task; field names as in the getters."""

    error: int
    task: int
    stream: int
    thread: int
    device: int


def make_stream(context: Context, *, explicit: bool) -> Stream:
    """A registered stream of a context."""
    stream = Stream(context, explicit)
    stream.handle = MACHINE.handles.add(stream)
    context.streams.append(stream)
    return stream


def discard(stream: Stream) -> None:
    """Forgets a stream and whatever is still queued on it."""
    while stream.queue:
        _finish(stream, ran=False)
    stream.live = False
    if stream in stream.context.streams:
        stream.context.streams.remove(stream)
    MACHINE.handles.live.pop(stream.handle, None)


def resolve(handle: int) -> Stream | int:
    """The stream behind a handle (0: default) if the caller's context owns it, else a code."""
    context = current()
    if isinstance(context, int):
        return context
    if handle == 0:
        return context.default_stream
    stream = MACHINE.handles.get(handle, Stream)
    if stream.context is not context:
        return MACHINE.report(
            code("RT_STREAM_CONTEXT"), "EE1001: the stream is not in the current context"
        )
    return stream


def _overlap(some: tuple[Range, ...], others: tuple[Range, ...]) -> bool:
    return any(low < high2 and low2 < high for low, high in some for low2, high2 in others)


def conflict(
    reads: tuple[Range, ...], writes: tuple[Range, ...], stream: Stream | None
) -> tuple[Stream, Task] | None:
    """Queued work of another stream that touches the same bytes and is not ordered before this.

    Work behind a blocking callback waits for it, so the callback may touch what that work uses.
    """
    waiting = getattr(MACHINE.local, "callback_stream", None)
    for other in list(MACHINE.busy):
        if other is stream or other is waiting:
            continue
        known = stream.after.get(other, 0) if stream is not None else 0
        for task in other.queue:
            if task.sequence <= known:
                continue
            if _overlap(writes, task.reads + task.writes) or _overlap(reads, task.writes):
                return other, task
    return None


def require_idle(reads: tuple[Range, ...], writes: tuple[Range, ...], what: str) -> None:
    """Raises when queued work still uses the bytes that a synchronous call is about to touch."""
    if not MACHINE.busy:
        return
    with MACHINE.lock:
        found = conflict(reads, writes, None)
    if found is not None:
        raise EmulatorViolation(
            f"{what} touches memory of the unfinished {found[1].label}: synchronise first", RACE
        )


def enqueue(stream: Stream, task: Task) -> None:
    """Puts work on a stream; work on two streams that race for the same bytes is a violation."""
    with MACHINE.lock:
        if MACHINE.busy:
            found = conflict(task.reads, task.writes, stream)
            if found is not None:
                raise EmulatorViolation(
                    f"{task.label} races with the unfinished {found[1].label} of another stream: "
                    "order them with an event or a synchronise",
                    RACE,
                )
        stream.issued += 1
        task.sequence = stream.issued
        stream.queue.append(task)
        MACHINE.busy.add(stream)


def _advance(stream: Stream, left: float) -> tuple[int, float]:
    """Runs the head task if it ends within `left` seconds; (its code or the timeout's, time
    left)."""
    task = stream.queue[0]
    if stream.context.device.lost:
        _finish(stream, ran=False)
        return LOST, left
    limit = MACHINE.settings.hang_limit_s
    if task.hang:
        if left < limit:
            MACHINE.wait(left)
            return code("RT_STREAM_SYNC_TIMEOUT"), 0.0
        MACHINE.wait(limit)
        _finish(stream, ran=False)
        return code("RT_AICORE_TIMEOUT"), left - limit
    if task.delay > left:
        MACHINE.wait(left)
        task.delay -= left
        return code("RT_STREAM_SYNC_TIMEOUT"), 0.0
    if task.delay:
        MACHINE.wait(task.delay)
        left -= task.delay
    try:
        result = task.run()
    finally:
        _finish(stream, ran=True)
    return result, left


def _finish(stream: Stream, *, ran: bool) -> None:
    with MACHINE.lock:
        if stream.queue:
            task = stream.queue.popleft()
            stream.done = task.sequence
            if not ran and task.dropped is not None:
                task.dropped()
        if not stream.queue:
            MACHINE.busy.discard(stream)


def run(stream: Stream, *, until: int | None = None, seconds: float = FOREVER) -> int:
    """Runs queued work up to position `until`; the first error of the stream, or a timeout code."""
    timeout = code("RT_STREAM_SYNC_TIMEOUT")
    left = seconds
    with stream.running:
        while stream.queue and (until is None or stream.queue[0].sequence <= until):
            task = stream.queue[0]
            result, left = _advance(stream, left)
            if result == timeout:
                return MACHINE.report(result, "EE1002: stream synchronize timeout")
            if result and MACHINE.exception_callback is not None:
                _tell(stream, task, result)
            stream.error = stream.error or result
        if until is not None:
            return 0
        error, stream.error = stream.error, 0
        return error


def _tell(stream: Stream, task: Task, error: int) -> None:
    """Calls the program's exception callback with a handle that lives during the call."""
    assert MACHINE.exception_callback is not None
    info = ExceptionInfo(
        error, task.sequence, 0, threading.get_ident(), stream.context.device.index
    )
    handle = MACHINE.handles.add(info)
    try:
        MACHINE.exception_callback(handle)
    finally:
        del MACHINE.handles.live[handle]


def poll(stream: Stream) -> bool:
    """True while work was pending; the device advances by one task so that polling ends."""
    if not stream.queue:
        return False
    if not stream.queue[0].hang:
        run(stream, until=stream.queue[0].sequence)
    return True

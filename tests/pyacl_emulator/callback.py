"""Host callbacks of a stream, run by a thread that subscribed to it; and exception callbacks."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .binding import api, code, thread_id
from .machine import MACHINE
from .stream import ExceptionInfo, Stream, Task, enqueue, resolve
from .violation import EmulatorViolation

log = logging.getLogger(__name__)
_PATIENCE_S = 20.0


@dataclass(slots=True, eq=False)
class Report:
    """One callback that waits for its thread."""

    function: Callable[[object], object]
    args: object
    stream: Stream | None  # the one that waits for a blocking callback
    finished: threading.Event = field(default_factory=threading.Event)


def _inbox(ident: int) -> queue.SimpleQueue[Report]:
    return MACHINE.inboxes.setdefault(ident, queue.SimpleQueue())


@api("acl.rt.subscribe_report")
def subscribe_report(ident: int, stream: int) -> int:
    """Binds a callback thread to a stream; one thread per stream."""
    target = resolve(stream)
    if isinstance(target, int):
        return target
    if target.subscriber:
        return MACHINE.report(code("RT_STREAM_SUBSCRIBE"), "EE1001: the stream has a subscriber")
    target.subscriber = ident
    _inbox(ident)
    return 0


@api("acl.rt.unsubscribe_report")
def unsubscribe_report(ident: int, stream: int) -> int:
    """Undoes subscribe_report, after all work is finished."""
    target = resolve(stream)
    if isinstance(target, int):
        return target
    if target.subscriber != ident:
        return MACHINE.report(code("RT_THREAD_SUBSCRIBE"), "EE1001: the thread has no such stream")
    if target.queue:
        raise EmulatorViolation(
            "unsubscribe_report with unfinished work on the stream",
            "aclrtUnSubscribeReport.md: after all asynchronous tasks are complete",
        )
    target.subscriber = 0
    if not any(other.subscriber == ident for other in MACHINE.handles.of(Stream)):
        MACHINE.inboxes.pop(ident, None)
    return 0


@api("acl.rt.process_report")
def process_report(timeout: int) -> int:
    """Runs one ready callback in this thread; 507012 when none came in `timeout` ms (-1: none)."""
    if timeout == 0 or timeout < -1:
        return code("INVALID_PARAM")
    ident = thread_id()
    if ident not in MACHINE.inboxes:
        return code("RT_THREAD_SUBSCRIBE")
    try:
        report = _inbox(ident).get(timeout=None if timeout == -1 else timeout / 1000)
    except queue.Empty:
        return code("RT_REPORT_TIMEOUT")
    MACHINE.local.callback_stream = report.stream
    try:
        report.function(report.args)
    except Exception:
        log.exception("a callback raised; pyACL swallows it")
    finally:
        MACHINE.local.callback_stream = None
        report.finished.set()
    return 0


@api("acl.rt.launch_callback")
def launch_callback(
    function: Callable[[object], object], args: object, block_type: int, stream: int
) -> int:
    """Queues a callback; with block_type 1 later work of the stream waits for it."""
    if block_type not in (0, 1):
        return code("INVALID_PARAM")
    target = resolve(stream)
    if isinstance(target, int):
        return target
    if not target.subscriber:
        return MACHINE.report(
            code("RT_STREAM_NO_CB_REG"), "EE1001: nobody subscribed to the stream"
        )
    report = Report(function, args, target if block_type == 1 else None)

    def post() -> int:
        _inbox(target.subscriber).put(report)
        if block_type == 1 and target.subscriber != thread_id():
            if not report.finished.wait(_PATIENCE_S):
                raise EmulatorViolation(
                    f"no thread processed a blocking callback for {_PATIENCE_S:.0f} s",
                    "aclrtSubscribeReport.md: the subscribed thread must loop over process_report",
                )
        return 0

    enqueue(target, Task("launch_callback", post))
    return 0


@api("acl.rt.set_exception_info_callback")
def set_exception_info_callback(function: Callable[[int], object] | None = None) -> int:
    """The function to call with a handle when a task fails; None cancels."""
    MACHINE.exception_callback = function
    return 0


def _info(handle: int, name: str) -> int:
    thing = MACHINE.handles.live.get(handle)
    return getattr(thing, name) if type(thing) is ExceptionInfo else 0xFFFFFFFF


@api("acl.rt.get_error_code_from_exception_info")
def get_error_code_from_exception_info(handle: int) -> int:
    """The code of the failed task."""
    return _info(handle, "error")


@api("acl.rt.get_task_id_from_exception_info")
def get_task_id_from_exception_info(handle: int) -> int:
    """Its number on the stream."""
    return _info(handle, "task")


@api("acl.rt.get_stream_id_from_exception_info")
def get_stream_id_from_exception_info(handle: int) -> int:
    """Its stream's number."""
    return _info(handle, "stream")


@api("acl.rt.get_thread_id_from_exception_info")
def get_thread_id_from_exception_info(handle: int) -> int:
    """The thread that queued it."""
    return _info(handle, "thread")


@api("acl.rt.get_device_id_from_exception_info")
def get_device_id_from_exception_info(handle: int) -> int:
    """Its device."""
    return _info(handle, "device")


@api("acl.rt.get_last_error")
def get_last_error(level: int) -> int:
    """The thread's last error; reading clears it."""
    error: int = getattr(MACHINE.local, "last_error", 0)
    MACHINE.local.last_error = 0
    return error


@api("acl.rt.peek_at_last_error")
def peek_at_last_error(level: int) -> int:
    """The thread's last error."""
    error: int = getattr(MACHINE.local, "last_error", 0)
    return error

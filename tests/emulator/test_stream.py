"""Streams, events and callbacks: lazy, ordered, timed out, and checked for races."""

from __future__ import annotations

import threading
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.program import H2D, load, upload
from tests.pyacl_emulator import EmulatorViolation, control


@pytest.fixture
def pair(ready: ModuleType) -> tuple[int, int]:
    """Two explicit streams."""
    return ready.rt.create_stream()[0], ready.rt.create_stream()[0]


@pytest.fixture
def memory(ready: ModuleType) -> tuple[int, int]:
    """A device block and a pinned block of 64 bytes."""
    device, pinned = ready.rt.malloc(64, 0)[0], ready.rt.malloc_host(64)[0]
    ready.rt.memset(pinned, 64, 9, 64)
    return device, pinned


def test_stream_handles_are_checked(ready: ModuleType) -> None:
    stream, _ = ready.rt.create_stream()
    assert ready.rt.destroy_stream(0) == 100000
    assert ready.rt.destroy_stream(stream) == 0
    with pytest.raises(EmulatorViolation, match="after it was destroyed"):
        ready.rt.synchronize_stream(stream)
    with pytest.raises(EmulatorViolation, match="was never a Stream"):
        ready.rt.synchronize_stream(12345)
    event, _ = ready.rt.create_event()
    with pytest.raises(EmulatorViolation, match="is a Event, not a Stream"):
        ready.rt.synchronize_stream(event)


def test_destroying_a_stream_finishes_its_work(
    ready: ModuleType, pair: tuple[int, int], memory: tuple[int, int]
) -> None:
    device, pinned = memory
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, pair[0])
    assert ready.rt.destroy_stream(pair[0]) == 0
    assert control.device_bytes(device, 1) == b"\t"
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, pair[1])
    ready.rt.memset(memory[1] + 0, 0, 0, 0)
    assert ready.rt.destroy_stream_force(pair[1]) == 0
    assert ready.rt.free(device) == 0


def test_two_streams_that_race_are_a_violation(
    ready: ModuleType, pair: tuple[int, int], memory: tuple[int, int]
) -> None:
    device, pinned = memory
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, pair[0])
    with pytest.raises(EmulatorViolation, match="races"):
        ready.rt.memset_async(device, 64, 0, 64, pair[1])


def test_an_event_orders_two_streams(
    ready: ModuleType, pair: tuple[int, int], memory: tuple[int, int]
) -> None:
    device, pinned = memory
    event, _ = ready.rt.create_event()
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, pair[0])
    assert ready.rt.record_event(event, pair[0]) == 0
    assert ready.rt.stream_wait_event(pair[1], event) == 0
    assert ready.rt.memset_async(device, 32, 1, 32, pair[1]) == 0
    assert ready.rt.synchronize_stream(pair[1]) == 0
    assert control.device_bytes(device + 31, 2) == b"\1\t"
    assert ready.rt.destroy_event(event) == 0


def test_polling_an_event_ends(ready: ModuleType, memory: tuple[int, int]) -> None:
    device, pinned = memory
    event, _ = ready.rt.create_event()
    assert ready.rt.query_event(event) == (0, 0)
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, 0)
    ready.rt.record_event(event, 0)
    assert ready.rt.query_event(event) == (1, 0)
    seen = [ready.rt.query_event_status(event) for _ in range(3)]
    assert seen[0] == (0, 0)
    assert seen[-1] == (1, 0)
    assert ready.rt.query_event(event) == (0, 0)
    assert ready.rt.stream_query(0) == (0, 0)


def test_elapsed_time_needs_two_reached_events(ready: ModuleType) -> None:
    start, end = ready.rt.create_event()[0], ready.rt.create_event()[0]
    assert ready.rt.event_elapsed_time(start, end) == (0.0, 107006)
    ready.rt.record_event(start, 0)
    ready.rt.record_event(end, 0)
    assert ready.rt.event_elapsed_time(start, end) == (0.0, 107006)
    assert ready.rt.synchronize_event(end) == 0
    ms, ret = ready.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert ms >= 0
    assert ready.rt.event_elapsed_time(end, start) == (0.0, 107007)
    assert ready.rt.event_elapsed_time(0, end) == (0.0, 100000)


def test_the_number_of_events_is_limited(ready: ModuleType) -> None:
    made = [ready.rt.create_event() for _ in range(1024)]
    assert [ret for _, ret in made].count(0) == 1023
    assert made[-1] == (0, 207007)
    assert ready.rt.create_event_ex_with_flag(1)[1] == 0


def test_reset_event_needs_a_flagged_event(ready: ModuleType) -> None:
    plain, flagged = ready.rt.create_event()[0], ready.rt.create_event_with_flag(1)[0]
    with pytest.raises(EmulatorViolation, match="aclrtResetEvent"):
        ready.rt.reset_event(plain, 0)
    assert ready.rt.reset_event(flagged, 0) == 0


@pytest.mark.parametrize("timeout", [0, -2])
def test_a_bad_timeout_is_107000(ready: ModuleType, timeout: int) -> None:
    assert ready.rt.synchronize_stream_with_timeout(0, timeout) == 107000


def test_a_hang_ends_at_the_deadline_and_stays(ready: ModuleType, linear) -> None:
    control.time_scale = 0.0
    control.hang_limit_s = 60.0
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    control.faults.inject("acl.mdl.execute_async", kind="hang")
    assert model.execute_async(0) == 0
    assert ready.rt.synchronize_stream_with_timeout(0, 1500) == 507046
    assert ready.rt.synchronize_stream_with_timeout(0, 1500) == 507046
    assert ready.rt.stream_query(0) == (1, 0)
    assert ready.rt.synchronize_stream(0) == 507014
    model.release()


def test_a_delay_shorter_than_the_deadline_passes(ready: ModuleType, linear) -> None:
    control.time_scale = 0.0
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    control.faults.inject("device.execute", kind="delay", seconds=1.0, count=2)
    model.execute_async(0)
    assert ready.rt.synchronize_stream_with_timeout(0, 1500) == 0
    model.execute_async(0)
    assert ready.rt.synchronize_stream_with_timeout(0, 500) == 507046
    assert ready.rt.synchronize_stream_with_timeout(0, 600) == 0
    model.release()


def test_an_asynchronous_error_surfaces_once_at_the_synchronise(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    control.faults.inject("acl.mdl.execute_async", kind="task", code=507015)
    assert model.execute_async(0) == 0
    assert ready.rt.synchronize_stream(0) == 507015
    assert ready.rt.synchronize_stream(0) == 0
    assert "Inner Error" in ready.get_recent_err_msg()
    model.release()


def test_callbacks_run_in_the_subscribed_thread(ready: ModuleType) -> None:
    context, _ = ready.rt.create_context(0)
    stream, _ = ready.rt.create_stream()
    seen: list[object] = []
    running = [True]

    def loop(args: list[int]) -> None:
        ready.rt.set_context(args[0])
        while running[0]:
            ready.rt.process_report(args[1])

    thread, ret = ready.util.start_thread(loop, [context, 20])
    assert ret == 0
    assert ready.rt.launch_callback(seen.append, ["early"], 1, stream) == 107015
    assert ready.rt.subscribe_report(thread, stream) == 0
    assert ready.rt.subscribe_report(thread, stream) == 107011
    where: list[int] = []

    def callback(args: list[str]) -> None:
        seen.append(args[0])
        where.append(threading.get_ident())

    assert ready.rt.launch_callback(callback, ["hello"], 1, stream) == 0
    assert seen == []
    with pytest.raises(EmulatorViolation, match="unfinished work"):
        ready.rt.unsubscribe_report(thread, stream)
    assert ready.rt.synchronize_stream(stream) == 0
    assert seen == ["hello"]
    assert where == [thread]
    assert ready.rt.unsubscribe_report(thread, stream) == 0
    running[0] = False
    assert ready.util.stop_thread(thread) == 0
    assert ready.rt.destroy_stream(stream) == 0


def test_process_report_says_who_may_wait(ready: ModuleType) -> None:
    assert ready.rt.process_report(0) == 100000
    assert ready.rt.process_report(-2) == 100000
    assert ready.rt.process_report(10) == 107012
    me = threading.get_ident()
    assert ready.rt.subscribe_report(me, 0) == 0
    assert ready.rt.process_report(1) == 507012
    assert ready.rt.launch_callback(print, [], 2, 0) == 100000
    assert ready.rt.unsubscribe_report(me + 1, 0) == 107012
    assert ready.rt.unsubscribe_report(me, 0) == 0


def test_stop_thread_reports_what_the_thread_raised(ready: ModuleType) -> None:
    def fails(args: object) -> None:
        raise KeyError(args)

    thread, _ = ready.util.start_thread(fails, [1])
    with pytest.raises(RuntimeError, match="exception=KeyError"):
        ready.util.stop_thread(thread)


def test_a_blocking_call_lets_other_threads_in(ready: ModuleType, linear) -> None:
    control.hang_limit_s = 60.0
    model = load(ready, linear())
    context, _ = ready.rt.get_context()
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    control.faults.inject("acl.mdl.execute_async", kind="hang")
    model.execute_async(0)
    results: list[int] = []

    def wait() -> None:
        ready.rt.set_context(context)
        results.append(ready.rt.synchronize_stream(0))

    waiter = threading.Thread(target=wait)
    waiter.start()
    pointer, ret = ready.rt.malloc(64, 0)
    assert ret == 0
    assert waiter.is_alive()
    control.release_hangs()
    waiter.join()
    assert results == [507014]
    ready.rt.free(pointer)
    model.release()


@pytest.mark.parametrize("block", [0, 1])
def test_only_a_blocking_callback_may_touch_what_the_next_task_uses(
    ready: ModuleType, memory: tuple[int, int], block: int
) -> None:
    device, pinned = memory
    context, _ = ready.rt.get_context()
    stream, _ = ready.rt.create_stream()
    done = threading.Event()
    raised: list[bool] = []

    def loop(args: list[int]) -> None:
        ready.rt.set_context(context)
        while not done.is_set():
            ready.rt.process_report(10)

    def callback(args: object) -> None:
        try:
            raised.append(ready.rt.memset(device, 64, 0, 64) != 0)
        except EmulatorViolation:
            raised.append(True)

    thread, _ = ready.util.start_thread(loop, [])
    ready.rt.subscribe_report(thread, stream)
    ready.rt.launch_callback(callback, [], block, stream)
    ready.rt.launch_callback(lambda args: None, [], 1, stream)
    ready.rt.memcpy_async(device, 64, pinned, 64, H2D, stream)
    assert ready.rt.synchronize_stream(stream) == 0
    assert raised == [not block]
    done.set()
    ready.util.stop_thread(thread)

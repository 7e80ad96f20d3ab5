"""Spans: what adds up, what nests, what threads and pages share."""

from __future__ import annotations

import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from profiling.spans import carried, current, device_span, recording, span, together, tracing


def burn(ms: float) -> None:
    """Busy for `ms`: unlike a sleep, never shorter."""
    until = time.perf_counter_ns() + ms * 1e6
    while time.perf_counter_ns() < until:
        pass


def test_nothing_is_kept_without_a_recording() -> None:
    with span("alone"):
        assert current() is None


def test_equal_paths_sum_and_inner_ones_stand_below_their_outer() -> None:
    with recording() as record:
        for _ in range(3):
            with span("step"), span("h2d"):
                burn(0.5)
    assert record.counts() == {"step/h2d": 3, "step": 3}
    times = record.timings_ms()
    assert 1.5 <= times["step/h2d"] <= times["step"]


def test_paths_without_a_slash_sum_to_the_whole() -> None:
    begin = time.perf_counter()
    with recording() as record:
        with span("a"), span("b"):
            burn(4)
        with span("c"):
            burn(4)
    whole = (time.perf_counter() - begin) * 1e3
    stages = {path: ms for path, ms in record.timings_ms().items() if "/" not in path}
    assert stages.keys() == {"a", "c"}
    assert sum(stages.values()) == pytest.approx(whole, rel=0.05)


def test_an_error_closes_its_span() -> None:
    with recording() as record:
        with pytest.raises(ValueError), span("bad"):
            raise ValueError
        with span("next"):
            pass
    assert record.counts() == {"bad": 1, "next": 1}


def test_single_spans_are_kept_only_while_tracing() -> None:
    with recording() as untraced, span("x"):
        pass
    with tracing() as trace, recording() as traced, span("x"), span("y"):
        pass
    assert untraced.spans == []
    assert [s.path for s in traced.spans] == ["x", "x/y"]
    assert trace.recordings == [traced]
    assert [s.name for s in trace.spans] == ["x", "y"]


def test_a_copied_context_records_into_the_same_recording() -> None:
    def work() -> None:
        with span("x"):
            pass

    with recording() as record:
        contextvars.copy_context().run(work)
    assert record.counts() == {"x": 1}


def test_a_job_of_another_thread_stands_below_the_span_that_waits_for_it() -> None:
    def job() -> None:
        with span("device"):
            burn(0.2)

    with ThreadPoolExecutor(1) as pool, recording() as record:
        with span("page"):
            pool.submit(carried(job)).result()
        with span("other"):
            pool.submit(job).result()
    assert record.counts() == {"page/device": 1, "page": 1, "other": 1}


def test_carrying_costs_nothing_when_nothing_is_recorded() -> None:
    assert carried(burn) is burn


def test_shared_work_goes_into_each_recording_with_all_below_it() -> None:
    with recording() as first:
        pass
    with recording() as second:
        pass
    with together([first, None, second]), span("decode_step"), span("h2d"):
        burn(0.1)
    assert first.counts() == second.counts() == {"decode_step/h2d": 1, "decode_step": 1}
    assert first.timings_ms() == second.timings_ms()


def test_shared_work_is_carried_to_another_thread() -> None:
    with recording() as first:
        pass

    def job() -> None:
        with span("inner"):
            pass

    with ThreadPoolExecutor(1) as pool, together([first]), span("outer"):
        pool.submit(carried(job)).result()
    assert first.counts() == {"outer/inner": 1, "outer": 1}


def test_many_threads_lose_no_span() -> None:
    threads, each = 8, 2000
    with recording() as record:

        def work() -> None:
            for _ in range(each):
                with span("work"):
                    pass

        crew = [threading.Thread(target=carried(work)) for _ in range(threads)]
        for worker in crew:
            worker.start()
        while any(worker.is_alive() for worker in crew):
            record.timings_ms()  # a reader meanwhile
        for worker in crew:
            worker.join()
    assert record.counts() == {"work": threads * each}


def test_a_device_span_is_drawn_and_not_counted() -> None:
    with tracing() as trace, recording() as record, span("vision"):
        device_span("vision", 3, time.perf_counter_ns())
    assert record.counts() == {"vision": 1}
    assert {s.track for s in trace.spans if s.name == "vision"} > {"device 3"}

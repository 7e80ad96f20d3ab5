"""Any single fault of any call of one page ends in a right answer, by the fallback where the NPU
failed, with nothing left on the device, no rule broken and nobody waiting.

A site is one call of one function, or one run of a graph on the device. Of functions that are
called often (decoding) the first, the middle and the last call of each phase stand for all: open,
page, close.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ascend.failover import Canary, FailoverFamily, FailoverPolicy
from host_pipeline.result import Result
from tests.build.small_page import Borrowed, Small, answer
from tests.pyacl_emulator.faults import NAN_CALLS, TASK_CALLS
from tests.threads import at_once

Site = tuple[str, int]  # a function and which call of it

DEVICE = "device.execute"  # the run itself, on the device, after the call that queued it
FEW = 6
STAY = FailoverPolicy(cool_down_s=3600.0)  # whoever failed stays out while the test looks
RESERVES = frozenset({"acl.rt.malloc", "acl.rt.malloc_host", "acl.rt.create_context",
                      "acl.rt.create_stream", "acl.mdl.load_from_file",
                      "acl.mdl.execute_async"})  # fmt: skip
# kind -> the functions that can have it; None: all of them.
KINDS = {
    "error": None,
    "device_lost": None,
    "hang": None,
    "delay": None,
    "oom": RESERVES,
    "task": TASK_CALLS,
    "nan": NAN_CALLS | {DEVICE},
    "late": {DEVICE},  # a delay that passes the deadline
}


def sites(small: Small, machine: Any) -> Iterator[Site]:
    """The calls of one open-page-close that stand for all."""
    counts = machine.counters.calls
    family = small.open()
    ends = [counts.copy()]
    family.read(small.page, small.request)
    ends.append(counts.copy())
    family.close()
    before: Counter[str] = Counter()
    for after in (*ends, counts.copy()):
        after[DEVICE] = after["acl.mdl.execute_async"]
        for name in after:
            first, last = before[name] + 1, after[name]
            if last - first < FEW:
                nths = range(first, last + 1)
            else:
                nths = (first, (first + last) // 2, last)
            yield from ((name, nth) for nth in nths)
        before = after


def failover(small: Small, **settings: Any) -> FailoverFamily:
    settings.setdefault("policy", STAY)
    return FailoverFamily(small.open, Borrowed(small.cpu), **settings)  # type: ignore[arg-type]


def read(small: Small) -> Result:
    with closing(failover(small)) as family:
        return family.read(small.page, small.request)


def sweep(small: Small, machine: Any, kind: str, step: int = 1) -> Counter[str]:
    """Plants `kind` at every `step`-th site that can have it; the number of answers by engine."""
    machine.reset(time_scale=0.0)
    able = KINDS[kind]
    chosen = [site for site in sites(small, machine) if able is None or site[0] in able]
    wanted = {r.engine: answer(r) for r in (read(small), small.cpu.read(small.page, small.request))}
    assert len(wanted) == 2
    endings: Counter[str] = Counter()
    for name, nth in chosen[::step]:
        machine.reset(time_scale=0.0)
        planted = {"late": {"kind": "delay", "seconds": 9.0}}.get(kind, {"kind": kind})
        fault = machine.faults.inject(name, nth=nth, **{"seconds": 0.05, **planted})
        result = read(small)
        where = f"{kind} at call {nth} of {name}, read by {result.engine}"
        assert fault.hits == 1, f"{where}: it did not strike"
        assert answer(result) == wanted[result.engine], f"{where}: a wrong answer"
        assert (result.engine != "acl") == bool(result.fallback_reason), where
        left = (machine.live_handles, machine.live_bytes, machine.violations, machine.leaks)
        assert left == (0, 0, [], []), f"{where}: {result.fallback_reason}"
        endings[result.engine] += 1
    return endings


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["small_ppocr", "small_hunyuan"])
def test_some_faults_of_a_page_end_well(
    machine: Any, request: pytest.FixtureRequest, family: str, kind: str
) -> None:
    small = request.getfixturevalue(family)
    sweep(small, machine, kind, step=29 if KINDS[kind] is None else 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["small_ppocr", "small_reader"])
def test_every_fault_of_a_page_ends_well(
    machine: Any, request: pytest.FixtureRequest, family: str, kind: str
) -> None:
    endings = sweep(request.getfixturevalue(family), machine, kind)
    print(f"{family}, {kind}: {dict(endings)}")
    if kind == "delay":
        assert endings.keys() == {"acl"}
    elif kind in ("task", "nan", "late"):
        assert "acl" not in endings  # what a task did wrong is never an answer
    else:
        assert len(endings) == 2 or kind == "oom"


def test_a_stream_that_a_fault_cuts_goes_on_by_the_fallback(
    machine: Any, small_hunyuan: Small
) -> None:
    """At every run of a graph; what was said before is not said again."""
    small = small_hunyuan
    wanted = answer(small.cpu.read(small.page, small.request))
    for nth in range(1, 8):  # vision, the prompt, five tokens
        machine.reset(time_scale=0.0)
        with closing(failover(small)) as both:
            fault = machine.faults.inject("acl.mdl.execute_async", nth=nth, kind="device_lost")
            stream = both.stream(small.page, small.request)
            first = next(stream)
            assert nth < 7 or fault.hits == 0  # the NPU has begun to answer
            *pieces, result = stream
        assert fault.hits == 1
        assert isinstance(result, Result)
        assert answer(result) == wanted
        diverged = any(notice.code == "stream_diverged" for notice in result.warnings)
        assert ("".join(map(str, (first, *pieces))) == result.text) != diverged


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_several_faults_in_one_page_end_well(machine: Any, small_hunyuan: Small) -> None:
    """The second often strikes while the first is being cleared away."""
    small, drawn = small_hunyuan, random.Random(5)
    every = list(sites(small, machine))
    wanted = {r.engine: answer(r) for r in (read(small), small.cpu.read(small.page, small.request))}
    kinds = [kind for kind in KINDS if kind not in ("delay", "late")]
    for _ in range(100):
        machine.reset(time_scale=0.0)
        planted = []
        for kind in drawn.choices(kinds, k=drawn.choice((2, 3))):
            able = KINDS[kind]
            name, nth = drawn.choice([site for site in every if able is None or site[0] in able])
            planted.append(machine.faults.inject(name, nth=nth, kind=kind))
        result = read(small)
        assert answer(result) == wanted[result.engine], planted
        left = (machine.live_handles, machine.live_bytes, machine.violations, machine.leaks)
        assert left == (0, 0, [], []), planted


@pytest.mark.parametrize("family", ["small_ppocr", "small_hunyuan"])
def test_a_primary_serves_again_when_it_has_read_its_canary(
    machine: Any, request: pytest.FixtureRequest, family: str
) -> None:
    """The device is lost in a page and once more in the canary; the second canary is right."""
    small: Small = request.getfixturevalue(family)
    wanted = read(small)
    canary = Canary(small.page, small.request, wanted.text)
    again = FailoverPolicy(cool_down_s=0.0, longest_cool_down_s=0.0)
    with closing(failover(small, policy=again, canary=canary)) as both:
        first = machine.faults.inject("acl.mdl.execute_async", nth=2, kind="device_lost")
        second = machine.faults.inject("acl.mdl.execute_async", nth=4, kind="device_lost")
        assert both.read(small.page, small.request).engine != "acl"
        assert both.wait_for_primary(300)
        assert (first.hits, second.hits) == (1, 1)
        result = both.read(small.page, small.request)
        assert (answer(result), result.fallback_reason) == (answer(wanted), None)


@pytest.mark.parametrize("family", ["small_ppocr", "small_hunyuan"])
def test_a_call_that_never_comes_back_is_left_to_the_fallback(
    machine: Any,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
) -> None:
    small: Small = request.getfixturevalue(family)
    wanted = answer(small.cpu.read(small.page, small.request))
    with closing(failover(small)) as both:
        machine.time_scale, machine.hang_limit_s = 1.0, 3600.0
        monkeypatch.setattr("acl_runtime.device._STUCK_AFTER_S", 0.5)
        machine.faults.inject("acl.rt.memcpy", kind="hang")
        result = both.read(small.page, small.request)
        assert answer(result) == wanted
        assert "107020" in str(result.fallback_reason)
    (stuck,) = (thread for thread in threading.enumerate() if thread.name == "npu 0")
    machine.release_hangs()  # the driver comes back after all: what was queued is released
    stuck.join(60)
    assert not stuck.is_alive()


@pytest.mark.parametrize("family", ["small_ppocr", "small_hunyuan"])
def test_eight_threads_get_right_answers_while_the_device_is_lost(
    machine: Any, request: pytest.FixtureRequest, family: str
) -> None:
    small: Small = request.getfixturevalue(family)
    wanted = {r.engine: answer(r) for r in (read(small), small.cpu.read(small.page, small.request))}
    with closing(failover(small)) as both:
        fault = machine.faults.inject("acl.mdl.execute_async", nth=6, kind="device_lost")
        results = at_once(8, lambda _: both.read(small.page, small.request))
        assert fault.hits == 1
        assert [answer(result) for result in results] == [wanted[r.engine] for r in results]
        assert any(result.fallback_reason for result in results)

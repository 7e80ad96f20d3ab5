"""Eight threads at once on one engine: each gets its own answer, and the device sees one thread."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.engine import AclEngine
from acl_runtime.errors import DeviceFault, DeviceTimeout, EngineClosed, EngineDegraded
from acl_runtime.owner import OwnerThread
from tests.acl_runtime import toy
from tests.acl_runtime.conftest import ACL
from tests.threads import at_once


def vision_feeds(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "patches": random.normal(0, 1, (16, 768)).astype(np.float32),
        "pos": np.zeros((16, toy.DIMS["E"]), np.float32),
        "mask": np.zeros((1, 16), np.float32),
    }


def test_eight_threads_share_one_cache_and_one_device(engine: AclEngine) -> None:
    caches = [engine.kv_cache(1, 64) for _ in range(8)]
    answers = at_once(8, lambda i: toy.greedy(engine, caches[i], 0, 8, seed=i))
    assert answers == [toy.greedy_reference(8, seed=i) for i in range(8)]


def test_results_of_one_graph_belong_to_the_thread_that_asked(engine: AclEngine) -> None:
    alone = [engine.run("vision", vision_feeds(i))["content"].numpy() for i in range(8)]
    everyone_ran = threading.Barrier(8)

    def work(index: int) -> np.ndarray:
        content = engine.run("vision", vision_feeds(index))["content"]
        everyone_ran.wait(30)  # seven other runs of the same graph come in between
        return content.numpy()

    for got, wanted in zip(at_once(8, work), alone, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_threads_that_ended_leave_their_memory_to_the_next(engine: AclEngine, machine: Any) -> None:
    everyone_ran = threading.Barrier(4)

    def work(index: int) -> None:
        engine.run("vision", vision_feeds(index))
        everyone_ran.wait(30)

    at_once(4, work)
    live = machine.live_bytes
    for _ in range(5):
        at_once(4, work)
    assert machine.live_bytes == live


def test_all_waiting_threads_hear_of_one_fault(machine: Any, bundle: Path) -> None:
    with AclEngine.open(bundle, acl=ACL) as engine:
        caches = [engine.kv_cache(1, 64) for _ in range(8)]
        machine.lose_device(0)
        answers = at_once(8, lambda i: toy.greedy(engine, caches[i], 0, 4))
        assert {type(a) for a in answers} <= {DeviceFault, EngineDegraded}


def test_two_devices_are_two_engines(machine: Any, bundle: Path) -> None:
    with (
        AclEngine.open(bundle, 0, acl=ACL) as first,
        AclEngine.open(bundle, 1, acl=ACL) as second,
    ):
        engines = (first, second)
        caches = [engine.kv_cache(1, 64) for engine in engines]
        answers = at_once(2, lambda i: toy.greedy(engines[i], caches[i], 0, 6))
        assert answers == [toy.greedy_reference(6)] * 2
        array = first.empty((2, 3), np.float32)
        array.write(0, np.ones((2, 3)))
        other = second.empty((2, 3), np.float32)
        other.copy_rows(0, array, 0, 2)  # through the host: no peer access is assumed
        assert other.numpy().tolist() == [[1.0] * 3] * 2
    assert set(machine.counters.peak_device_bytes) == {0, 1}


def test_closing_while_others_work_ends_every_wait(machine: Any, bundle: Path) -> None:
    engine = AclEngine.open(bundle, acl=ACL)
    caches = [engine.kv_cache(1, 64) for _ in range(4)]

    def work(index: int) -> Any:
        return engine.close() if index == 0 else toy.greedy(engine, caches[index], 0, 20)

    for answer in at_once(4, work)[1:]:
        assert answer == toy.greedy_reference(20) or isinstance(answer, EngineClosed)


def test_a_call_that_never_returns_is_left_behind() -> None:
    owner, release = OwnerThread("npu 9"), threading.Event()
    errors = at_once(3, lambda _: owner.call(lambda: release.wait(60), 0.1))
    assert {type(error) for error in errors} == {DeviceTimeout}
    assert "npu 9 returned 107020" in str(errors[0])
    owner.stop()  # does not wait for it
    release.set()
    with pytest.raises(EngineClosed, match="npu 9 is closed"):
        owner.call(lambda: None, 1)


def test_a_job_may_raise_a_timeout_of_its_own() -> None:
    owner = OwnerThread("npu 9")

    def job() -> None:
        raise TimeoutError("of the job")

    with pytest.raises(TimeoutError, match="of the job"):
        owner.call(job, 5)
    assert owner.call(lambda: owner.call(lambda: 7, 1), 5) == 7
    owner.stop()

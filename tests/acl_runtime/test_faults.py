"""Any single fault of any call ends in a right answer or in a typed error that names the call, with
nothing left on the device, no rule broken and nobody waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.engine import AclEngine
from acl_runtime.errors import (
    AclError,
    DeviceFault,
    DeviceMemory,
    DeviceTimeout,
    EngineClosed,
    EngineDegraded,
    NumericFault,
)
from tests.acl_runtime import toy
from tests.acl_runtime.conftest import ACL

KINDS = ("error", "task", "oom", "hang", "device_lost", "delay")


def page(engine: AclEngine) -> list[int]:
    """Everything that a page does: vision, rows laid out on the device, prefill, decoding."""
    random = np.random.default_rng(1)
    cache = engine.kv_cache(1, 60)
    array = engine.empty((8, toy.DIMS["C"]), np.float32)
    feeds = {
        "patches": random.normal(0, 1, (16, 768)).astype(np.float32),
        "pos": random.normal(0, 1, (16, toy.DIMS["E"])).astype(np.float32),
        "mask": np.zeros((1, 16), np.float32),
    }
    content = engine.run("vision", feeds)["content"]
    array.copy_rows(0, content, 0, 4)
    array.write(4, random.normal(0, 1, (4, toy.DIMS["C"])).astype(np.float32))
    engine.extend(cache, 0, [8], array, *toy.rows(8)[1:], [[7]])
    array.close()
    cache.truncate(0, 0)
    tokens = toy.greedy(engine, cache, 0, 3)
    cache.close()
    return tokens


def whole(bundle: Path) -> list[int]:
    with AclEngine.open(bundle, acl=ACL, timeout_ms=100) as engine:
        return page(engine)


def sweep(bundle: Path, kind: str, step: int = 1, call: str = "*") -> dict[str, int]:
    """Plants `kind` at every `step`-th call of one open-page-close and counts the endings."""
    from tests.pyacl_emulator import control

    control.reset(time_scale=0.0)
    wanted, endings = whole(bundle), {}
    calls = control.counters.total_calls if call == "*" else control.counters.calls[call]
    for nth in range(1, calls + 1, step):
        control.reset(time_scale=0.0)
        control.faults.inject(call, nth=nth, kind=kind, seconds=9.0)
        try:
            assert whole(bundle) == wanted, f"{kind} at call {nth}: a wrong answer"
            ending = "right"
        except AclError as error:
            assert str(error)
            ending = type(error).__name__
        endings[ending] = endings.get(ending, 0) + 1
        left = (control.live_handles, control.live_bytes, control.violations, control.leaks)
        assert left == (0, 0, [], []), f"{kind} at call {nth} ended {ending}"
    return endings


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_ends_well(bundle: Path, kind: str) -> None:
    endings = sweep(bundle, kind, step=13)
    assert endings.get("right", 0) > 0
    if kind != "delay":
        assert len(endings) > 1


def test_nan_from_any_execution_is_refused(bundle: Path) -> None:
    assert sweep(bundle, "nan", call="acl.mdl.execute_async").keys() == {"NumericFault"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_at_every_call_ends_well(bundle: Path, kind: str) -> None:
    sweep(bundle, kind, step=1)


def test_a_device_that_hangs_is_given_up_at_the_deadline(engine: AclEngine, machine: Any) -> None:
    cache = engine.kv_cache(1, 60)
    machine.faults.inject("acl.mdl.execute_async", kind="hang")
    with pytest.raises(DeviceTimeout, match=r"507046 .*raise timeout_ms"):
        engine.extend(cache, 0, [4], *toy.rows(4), [[3]])
    assert "507046" in str(engine.degraded)
    with pytest.raises(EngineDegraded, match=r"device 0 failed before .*open it again"):
        engine.extend(cache, 0, [4], *toy.rows(4), [[3]])
    cache.close()


def test_a_lost_device_is_opened_again_in_the_same_process(machine: Any, bundle: Path) -> None:
    first = AclEngine.open(bundle, acl=ACL)
    machine.lose_device(0)
    with pytest.raises(DeviceFault, match="LOST_HEARTBEAT"):
        page(first)
    first.close()
    with AclEngine.open(bundle, acl=ACL) as second:
        assert len(page(second)) == 3


def test_a_full_device_says_what_it_has(machine: Any, bundle: Path) -> None:
    with AclEngine.open(bundle, acl=ACL) as engine:
        machine.memory_limit = 400_000
        with pytest.raises(DeviceMemory, match=r"4194304 bytes wanted, \d+ of 400000 free"):
            engine.empty((1 << 20,), np.float32)
        assert engine.degraded is None
        assert len(page(engine)) == 3


def test_memory_kept_for_later_is_given_back_when_there_is_no_other(
    machine: Any, bundle: Path
) -> None:
    with AclEngine.open(bundle, acl=ACL) as engine:
        machine.memory_limit = machine.counters.live_device_bytes[0] + 600_000
        engine.empty((500_000,), np.uint8).close()
        engine.empty((300_000,), np.uint8).close()


def test_nan_on_the_way_to_the_host_is_refused(machine: Any, bundle: Path) -> None:
    feeds = {
        "patches": np.zeros((16, 768), np.float32),
        "pos": np.zeros((16, toy.DIMS["E"]), np.float32),
        "mask": np.zeros((1, 16), np.float32),
    }
    with AclEngine.open(bundle, acl=ACL) as engine:
        machine.faults.inject("device.execute", kind="nan")
        content = engine.run("vision", feeds)["content"]
        with pytest.raises(NumericFault, match=r"vision\.content: .* NaN or infinite"):
            content.numpy()
    with AclEngine.open(bundle, acl=ACL, check_finite=False) as engine:
        machine.faults.inject("device.execute", kind="nan")
        assert np.isnan(engine.run("vision", feeds)["content"].numpy()).any()


def test_arrays_of_a_closed_engine_say_so(machine: Any, bundle: Path) -> None:
    engine = AclEngine.open(bundle, acl=ACL)
    array, cache = engine.empty((4, 2), np.float32), engine.kv_cache(1, 32)
    view = array.rows(1, 2)
    array.close()
    with pytest.raises(EngineClosed, match="its memory has been closed"):
        view.numpy()
    engine.close()
    engine.close()
    for act in (lambda: engine.empty((1,), np.float32), lambda: engine.gears("llm")):
        with pytest.raises(EngineClosed, match="the engine is closed"):
            act()
    array.close()
    cache.close()

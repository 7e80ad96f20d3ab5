"""Planted faults: every kind, where it strikes, and what is left afterwards."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.emulator.program import H2D, download, load, upload
from tests.pyacl_emulator import control
from tests.pyacl_emulator.binding import FUNCTIONS, SIGNATURES


def test_an_error_strikes_the_nth_call_only(ready: ModuleType) -> None:
    fault = control.faults.inject("acl.rt.malloc", nth=2, code=507899)
    results = [ready.rt.malloc(64, 0) for _ in range(3)]
    assert [ret for _, ret in results] == [0, 507899, 0]
    assert results[1][0] == 0
    assert fault.hits == 1
    assert "planted" in ready.get_recent_err_msg()


def test_a_fault_can_last(ready: ModuleType) -> None:
    control.faults.inject("acl.rt.memset", nth=2, count=2, code=507014)
    pointer, _ = ready.rt.malloc(64, 0)
    assert [ready.rt.memset(pointer, 64, 0, 64) for _ in range(4)] == [0, 507014, 507014, 0]
    control.faults.clear()
    assert ready.rt.memset(pointer, 64, 0, 64) == 0


def test_any_call_can_be_counted(ready: ModuleType) -> None:
    fault = control.faults.inject("*", nth=3, code=500000)
    ready.rt.get_device()
    ready.rt.get_device()
    assert ready.rt.get_device() == (0, 500000)
    assert fault.hits == 1


def test_failures_keep_the_return_order_of_each_function(ready: ModuleType) -> None:
    for name, entry in SIGNATURES.items():
        if "ret" not in entry["returns"] or name in ("acl.init", "acl.finalize"):
            continue
        control.faults.clear()
        control.faults.inject(name, code=507899)
        kinds = {"int": 0, "str": "", "float": 0.0, "list": [], "dict": {}, "object": None,
                 "callable": print, "int|str": 0}  # fmt: skip
        arguments = [
            kinds.get(kind) for kind in entry["args"][: len(entry["args"]) - entry["optional"]]
        ]
        result = FUNCTIONS[name](*arguments)
        values = result if isinstance(result, tuple) else (result,)
        assert len(values) == len(entry["returns"]), name
        assert values[entry["returns"].index("ret")] == 507899, name


def test_out_of_memory(ready: ModuleType) -> None:
    control.faults.inject("acl.rt.malloc", kind="oom")
    assert ready.rt.malloc(64, 0) == (0, 207001)
    assert control.live_bytes == 0


def test_nan_outputs(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    control.faults.inject("acl.mdl.execute_async", kind="nan")
    control.faults.inject("device.execute", nth=3, kind="nan")
    seen = []
    for _ in range(3):
        model.execute_async(0)
        assert ready.rt.synchronize_stream(0) == 0
        seen.append(np.isnan(download(ready, model.outputs.pointers[0], (4, 64), np.float32)).all())
    assert seen == [True, False, True]


@pytest.mark.parametrize("call", ["acl.rt.memcpy", "device.execute"])
def test_a_lost_device_answers_nothing_until_it_is_reset(
    ready: ModuleType, linear, call: str
) -> None:
    model = load(ready, linear())
    x = np.zeros((4, 64), np.float32)
    control.faults.inject(call, nth=1, kind="device_lost")
    if call == "acl.rt.memcpy":
        assert ready.rt.memcpy(model.inputs.pointers[0], 64, x.ctypes.data, 64, H2D) == 507010
    else:
        upload(ready, model.inputs.pointers[0], x)
        model.execute_async(0)
        assert ready.rt.synchronize_stream(0) == 507010
    assert ready.rt.malloc(64, 0) == (0, 507010)
    assert model.execute() == 507010
    assert ready.rt.set_device(0) == 507010
    assert ready.rt.query_device_status(0) == (1, 0)
    model.release()
    assert ready.rt.reset_device(0) == 0
    assert ready.rt.set_device(0) == 0
    again = load(ready, linear())
    upload(ready, again.inputs.pointers[0], x)
    assert again.execute() == 0
    again.release()
    assert control.live_bytes == 0
    assert control.leaks == []


def test_the_other_device_is_not_touched(ready: ModuleType, linear) -> None:
    control.lose_device(0)
    assert ready.rt.malloc(64, 0) == (0, 507010)
    assert ready.rt.set_device(1) == 0
    assert ready.rt.malloc(64, 0)[1] == 0


def test_resetting_a_device_releases_and_reports_what_was_left(ready: ModuleType, linear) -> None:
    load(ready, linear())
    assert ready.rt.reset_device(0) == 0
    assert control.counters.live_device_bytes[0] == 0
    assert any("was not unloaded" in leak for leak in control.leaks)


@pytest.mark.parametrize(
    ("kind", "nth", "message"),
    [
        ("strange", 1, "fault kind 'strange'"),
        ("error", 0, "at least 1"),
        ("nan", 1, "computes nothing"),
        ("task", 1, "queues no work"),
    ],
)
def test_a_bad_plan_is_refused(acl: ModuleType, kind: str, nth: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        control.faults.inject("acl.rt.malloc", nth=nth, kind=kind)


def test_control_knows_its_settings(acl: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no setting 'speed'"):
        control.speed = 3
    with pytest.raises(AttributeError, match="reset"):
        control.soc = "Ascend910B4"
    with pytest.raises(AttributeError, match="control has no 'speed'"):
        _ = control.speed
    control.device_count = 4
    assert acl.rt.get_device_count() == (4, 0)


def test_counters_start_anew(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    control.counters.clear()
    assert control.counters.total_calls == 0
    assert control.counters.allocations == 0
    assert control.counters.peak_device_bytes[0] == 96
    ready.rt.memset(pointer, 64, 0, 64)
    assert control.counters.calls == {"acl.rt.memset": 1}
    assert control.counters.inside_ns > 0


def test_a_hang_of_a_wait_ends_at_its_own_deadline(ready: ModuleType) -> None:
    control.time_scale = 0.0
    event, _ = ready.rt.create_event()
    for call, arguments, code in (
        (ready.rt.synchronize_stream_with_timeout, (0, 100), 507046),
        (ready.rt.synchronize_event_with_timeout, (event, 100), 507047),
        (ready.rt.synchronize_stream, (0,), 507014),
    ):
        control.faults.inject(call.__qualname__, kind="hang")
        assert call(*arguments) == code


def test_the_exception_callback_hears_of_a_failed_task(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    heard: list[tuple[int, int]] = []

    def callback(info: int) -> None:
        code = ready.rt.get_error_code_from_exception_info(info)
        heard.append((code, ready.rt.get_device_id_from_exception_info(info)))

    assert ready.rt.set_exception_info_callback(callback) == 0
    control.faults.inject("device.execute", kind="task", code=507015, count=2)
    model.execute_async(0)
    assert ready.rt.synchronize_stream(0) == 507015
    assert heard == [(507015, 0)]
    assert ready.rt.set_exception_info_callback(None) == 0
    assert model.execute() == 507015
    assert len(heard) == 1
    assert ready.rt.get_error_code_from_exception_info(123) == 0xFFFFFFFF

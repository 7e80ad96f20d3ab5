"""Process, devices, contexts and threads."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import ModuleType

import pytest

from tests.emulator.program import load
from tests.pyacl_emulator import EmulatorViolation, control


def test_init_twice_and_finalize_twice(acl: ModuleType) -> None:
    assert acl.init() == 0
    assert acl.init("") == 100002
    assert acl.finalize() == 0
    assert acl.finalize() == 100037


def test_finalize_without_init_is_fine(acl: ModuleType) -> None:
    assert acl.finalize() == 0


def test_init_happens_once_per_process(acl: ModuleType) -> None:
    acl.init()
    acl.finalize()
    with pytest.raises(EmulatorViolation, match="once per process"):
        acl.init()


def test_init_reads_its_configuration(acl: ModuleType, tmp_path: Path) -> None:
    assert acl.init(str(tmp_path / "none.json")) == 100003
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert acl.init(str(broken)) == 100006
    good = tmp_path / "good.json"
    good.write_text(json.dumps({"err_msg_mode": "0"}))
    assert acl.init(str(good)) == 0


def test_only_questions_are_allowed_before_init(acl: ModuleType) -> None:
    assert acl.rt.get_device(0) == (0, 107002)
    assert acl.rt.get_device_count() == (2, 0)
    assert acl.get_soc_name() == "Ascend310P3"
    assert acl.rt.get_run_mode() == (1, 0)
    with pytest.raises(EmulatorViolation, match=r"before acl.init"):
        acl.rt.set_device(0)


def test_nothing_is_allowed_after_finalize(ready: ModuleType) -> None:
    ready.rt.reset_device(0)
    ready.finalize()
    with pytest.raises(EmulatorViolation, match=r"after acl.finalize"):
        ready.rt.malloc(16, 0)


def test_the_chip_comes_from_the_environment(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYOCR_EMULATOR_SOC", "Ascend310B1")
    control.reset()
    assert acl.get_soc_name() == "Ascend310B1"
    assert acl.rt.get_run_mode() == (0, 0)
    monkeypatch.setenv("HYOCR_EMULATOR_SOC", "Ascend311")
    with pytest.raises(ValueError, match="Ascend311"):
        control.reset()


def test_visible_devices_are_remapped(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    assert acl.rt.get_device_count() == (1, 0)
    acl.init()
    assert acl.rt.set_device(1) == 107001
    assert acl.rt.set_device(0) == 0


@pytest.mark.parametrize("device", [-1, 2])
def test_a_bad_device_id_is_107001(acl: ModuleType, device: int) -> None:
    acl.init()
    assert acl.rt.set_device(device) == 107001
    assert acl.rt.create_context(device) == (0, 107001)
    assert acl.rt.reset_device(device) == 107001


def test_set_device_is_counted(ready: ModuleType) -> None:
    ready.rt.set_device(0)
    assert ready.rt.reset_device(0) == 0
    assert ready.rt.get_device() == (0, 0)
    assert ready.rt.reset_device(0) == 0
    assert ready.rt.get_device() == (0, 107002)
    assert ready.rt.reset_device(0) == 507007


def test_a_context_is_current_per_thread(ready: ModuleType) -> None:
    context, _ = ready.rt.create_context(0)
    seen: list[object] = []

    def other() -> None:
        seen.append(ready.rt.malloc(16, 0))
        seen.append(ready.rt.get_context())
        seen.append(ready.rt.set_context(context))
        pointer, ret = ready.rt.malloc(16, 0)
        seen.append(ret)
        ready.rt.free(pointer)

    worker = threading.Thread(target=other)
    worker.start()
    worker.join()
    assert seen == [(0, 107002), (0, 107002), 0, 0]
    assert ready.rt.get_context() == (context, 0)


def test_context_handles_are_checked(ready: ModuleType) -> None:
    context, _ = ready.rt.create_context(0)
    assert ready.rt.destroy_context(0) == 100000
    assert ready.rt.destroy_context(context) == 0
    assert ready.rt.destroy_context(context) == 107000
    assert ready.rt.set_context(context) == 107000
    assert ready.rt.set_context(0) == 107000
    assert ready.rt.create_stream() == (0, 107002)


def test_a_stream_of_another_context_is_107003(ready: ModuleType) -> None:
    stream, _ = ready.rt.create_stream()
    ready.rt.create_context(0)
    assert ready.rt.synchronize_stream(stream) == 107003


def test_leaks_are_reported_at_finalize(ready: ModuleType, linear) -> None:
    load(ready, linear())
    ready.rt.create_stream()
    ready.rt.create_event()
    ready.rt.malloc_host(64)
    ready.rt.reset_device(0)
    ready.finalize()
    text = "\n".join(control.leaks)
    for word in ("was not unloaded", "device memory", "host memory", "stream", "Event",
                 "DataBuffer", "Dataset", "ModelDesc"):  # fmt: skip
        assert word in text


def test_a_clean_program_leaves_nothing(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    model.release()
    assert control.live_handles == 0
    assert control.live_bytes == 0
    ready.rt.reset_device(0)
    ready.finalize()
    assert control.leaks == []


def test_errors_leave_a_message_that_reading_clears(ready: ModuleType) -> None:
    ready.rt.set_device(9)
    assert "device_id 9" in ready.get_recent_err_msg()
    assert ready.get_recent_err_msg() is None

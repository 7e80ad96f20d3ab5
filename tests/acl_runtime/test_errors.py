"""Every code of the vendor has a name, a cause and a next step, and lands in the right class."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from acl_runtime.binding import Binding, load
from acl_runtime.errors import (
    AclUnavailable,
    DeviceFault,
    DeviceMemory,
    DeviceTimeout,
    DeviceUnavailable,
    ModelFault,
    Unsupported,
    UsageFault,
    call_error,
    describe_code,
)
from ascend.errors import describe


@pytest.mark.parametrize(
    ("code", "kind", "exit_code", "status"),
    [
        (100000, UsageFault, 6, 500),
        (107002, UsageFault, 6, 500),
        (145003, ModelFault, 6, 500),
        (500002, ModelFault, 6, 500),
        (207000, Unsupported, 6, 500),
        (207001, DeviceMemory, 6, 503),
        (245000, DeviceMemory, 6, 503),
        (207004, DeviceUnavailable, 5, 503),
        (507011, DeviceFault, 6, 503),
        (507015, DeviceFault, 6, 503),
        (507014, DeviceTimeout, 6, 503),
        (507046, DeviceTimeout, 6, 503),
        (507899, DeviceFault, 6, 503),
        (511234, DeviceFault, 6, 503),  # unknown ones go by their band
        (199999, UsageFault, 6, 500),
    ],
)
def test_a_code_has_its_class_and_its_way_out(
    code: int, kind: type, exit_code: int, status: int
) -> None:
    error = call_error("acl.rt.memcpy", code, "EE1001:\n  said so")
    assert type(error) is kind
    info = describe(error)
    assert (info.exit_code, info.http_status) == (exit_code, status)
    assert info.message.startswith(f"acl.rt.memcpy returned {code} ")
    assert "(EE1001: said so)" in info.message


def test_every_code_of_the_headers_is_explained() -> None:
    from acl_runtime.errors import _table

    assert len(_table()) == 251
    for code in _table():
        row = describe_code(code)
        assert row.symbol.startswith("ACL_ERROR") and row.cause and row.remedy, code


def test_codes_of_public_reports_say_what_to_do() -> None:
    """107002 and 507011 of community threads, 507009 on a split card, 500002 for a wrong chip."""
    for code, word in (
        (107002, "owner thread"),
        (507011, "plog"),
        (507009, "whole NPU"),
        (500002, "--soc"),
        (507046, "timeout_ms"),
        (207001, "npu-smi"),
    ):
        assert word in describe_code(code).remedy


def fake(**functions: Any) -> ModuleType:
    module = ModuleType("vendor")
    module.rt = SimpleNamespace(**functions)  # type: ignore[attr-defined]
    module.mdl = SimpleNamespace()  # type: ignore[attr-defined]
    module.get_recent_err_msg = lambda: "EE9999: Inner Error!"  # type: ignore[attr-defined]
    return module


def test_a_checked_call_gives_its_value_or_raises_with_the_vendors_words() -> None:
    binding = Binding(fake(malloc=lambda size, policy: (64, 0) if size else (0, 100000)))
    assert binding.rt.malloc(8, 0) == 64
    with pytest.raises(UsageFault, match=r"acl\.rt\.malloc returned 100000 .*EE9999: Inner Error"):
        binding.rt.malloc(0, 0)


def test_a_call_that_an_old_cann_lacks_is_named_when_it_is_needed() -> None:
    with pytest.raises(AclUnavailable, match=r"acl\.rt\.memcpy_async is not in this pyACL"):
        Binding(fake()).rt.memcpy_async(1, 2, 3, 4, 5, 6)


def test_pyacl_is_initialised_once_and_shared(machine: Any) -> None:
    first, second = load("tests.pyacl_emulator"), load("tests.pyacl_emulator")
    assert machine.counters.calls["acl.init"] == 2  # the second is told that it is done already
    assert first.emulated and second.soc_name() == "Ascend310P3"


def test_the_module_is_taken_from_the_environment(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYOCR_ACL", "tests.pyacl_emulator")
    assert load().name == "tests.pyacl_emulator"


def test_a_library_that_will_not_start_says_why(machine: Any) -> None:
    machine.faults.inject("acl.init", code=507899)
    with pytest.raises(DeviceFault, match=r"acl\.init returned 507899"):
        load("tests.pyacl_emulator")

"""What `doctor` is told of the NPU side, on machines with and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acl_runtime.probe import probe

ACL = "tests.pyacl_emulator"


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)


def codes(found: Any) -> list[str]:
    return [problem.code for problem in found.problems]


def test_a_sound_machine_has_facts_and_no_problems(machine: Any, tmp_path: Path) -> None:
    found = probe(ACL, tmp_path)
    assert (found.soc, found.run_mode, found.emulated) == ("Ascend310P3", "EP", True)
    assert [d.index for d in found.devices] == [0, 1]
    assert found.devices[0].memory_total == 21534 << 20
    assert found.devices[0].error is None
    assert codes(found) == []


def test_without_pyacl_the_rest_is_unknown(tmp_path: Path) -> None:
    found = probe("no_such_acl", tmp_path)
    assert (found.module, found.soc, found.devices) == (None, None, ())
    assert codes(found) == ["no_acl"]


def test_versions_come_from_the_vendors_own_files(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "usr/local/Ascend/driver"
    driver.mkdir(parents=True)
    (driver / "version.info").write_text("Version=24.1.rc1\nascendhal_version=7.35\n")
    toolkit = tmp_path / "toolkit"
    toolkit.mkdir()
    (toolkit / "version.cfg").write_text("runtime_running_version=[7.7.0.1.238:8.1.RC1]\n")
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(toolkit))
    found = probe(ACL, tmp_path)
    assert (found.driver_version, found.cann_version) == ("24.1.rc1", "8.1.RC1")


def test_a_slice_of_an_npu_is_seen(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/vdavinci100").touch()
    found = probe(ACL, tmp_path)
    assert found.virtual is True
    assert codes(found) == ["virtual_npu"]


def test_a_container_with_half_of_the_device_nodes(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "hisi_hdc"):
        (tmp_path / "dev" / name).touch()
    (problem,) = probe(ACL, tmp_path).problems
    assert problem.text == "/dev lacks davinci_manager, devmm_svm"
    assert "--device /dev/davinci_manager --device /dev/devmm_svm" in problem.remedy


def test_a_device_that_fails_is_reported_and_the_others_too(machine: Any, tmp_path: Path) -> None:
    machine.lose_device(0)
    found = probe(ACL, tmp_path)
    assert "507010" in str(found.devices[0].error)
    assert found.devices[1].memory_total > 0
    assert codes(found) == ["device_error"]


def test_no_device_visible(machine: Any, tmp_path: Path) -> None:
    machine.device_count = 0
    assert codes(probe(ACL, tmp_path)) == ["no_device"]

"""acl.prof around a run: what it writes, what it refuses, and that nothing stays on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from profiling.acl_prof import (
    FLAGS,
    METRICS,
    ProfilerError,
    aicore_profile,
    check_choice,
    step_mark,
    subscribed,
)
from profiling.msprof import find_profiles
from tests import pyacl_emulator
from tests.emulator.conftest import linear  # noqa: F401  (fixture)
from tests.emulator.program import load, upload


@pytest.fixture
def acl() -> Iterator[ModuleType]:
    pyacl_emulator.control.reset(soc="Ascend310P3")
    assert pyacl_emulator.init() == 0
    assert pyacl_emulator.rt.set_device(0) == 0
    yield pyacl_emulator
    pyacl_emulator.control.reset(soc="Ascend310P3")


@pytest.fixture
def model(acl: ModuleType, linear: Any) -> Any:  # noqa: F811
    opened = load(acl, linear())
    upload(acl, opened.inputs.pointers[0], np.zeros((4, 64), np.float32))
    return opened


def test_a_run_is_recorded_and_only_that(acl: ModuleType, model: Any, tmp_path: Path) -> None:
    assert model.execute() == 0
    with aicore_profile(acl, tmp_path / "new"):
        assert model.execute() == 0
        assert model.execute() == 0
    assert model.execute() == 0
    (prof,) = find_profiles(tmp_path / "new")
    assert prof.emulated
    assert [row.name for row in prof.ops()] == ["mm", "add"] * 2


@pytest.mark.parametrize("metrics", METRICS)
def test_every_metric_group_by_name(
    acl: ModuleType, model: Any, tmp_path: Path, metrics: str
) -> None:
    with aicore_profile(acl, tmp_path, metrics=metrics, flags=("task_time", "l2cache")):
        assert model.execute() == 0
    assert len(find_profiles(tmp_path)) == 1


def test_flags_add_up_and_unknown_names_are_refused() -> None:
    assert check_choice("PipeUtilization", ("acl_api", "task_time", "aicore_metrics", "aicpu")) == (
        1, 0xF,
    )  # fmt: skip
    assert check_choice("None", tuple(FLAGS))[1] == 0x1FF
    with pytest.raises(ProfilerError, match="PipeUtilization"):
        check_choice("Pipes", ())
    with pytest.raises(ProfilerError, match="runtime_api"):
        check_choice("None", ("everything",))


def test_two_at_once_are_refused_and_the_first_goes_on(
    acl: ModuleType, model: Any, tmp_path: Path
) -> None:
    with aicore_profile(acl, tmp_path / "a"):
        with pytest.raises(ProfilerError, match="100042"), aicore_profile(acl, tmp_path / "b"):
            pytest.fail("a second recording began")
        assert model.execute() == 0
    (prof,) = find_profiles(tmp_path / "a")
    assert len(list(prof.ops())) == 2


def test_an_unknown_device_is_refused_and_nothing_stays_on(acl: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"devices \[9\]"):
        with aicore_profile(acl, tmp_path, devices=[9]):
            pytest.fail("a recording of no device began")
    assert acl.prof.finalize() == 100043  # it is off again


def test_an_error_inside_ends_the_recording(acl: ModuleType, model: Any, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), aicore_profile(acl, tmp_path):
        assert model.execute() == 0
        raise ZeroDivisionError
    assert len(list(find_profiles(tmp_path)[0].ops())) == 2
    with aicore_profile(acl, tmp_path):
        pass
    assert len(find_profiles(tmp_path)) == 2


def test_a_model_can_be_subscribed(acl: ModuleType, model: Any) -> None:
    with subscribed(acl, model.id) as records:
        for _ in range(300):  # more than one read of the pipe takes
            assert model.execute() == 0
    assert [r.name for r in records] == ["mm", "add"] * 300
    assert all(r.end_ns - r.start_ns == r.duration_ns > 0 for r in records)
    assert {r.model for r in records} == {model.id}
    with subscribed(acl, model.id) as again:
        pass
    assert again == []


def test_a_step_is_marked(acl: ModuleType, model: Any) -> None:
    with step_mark(acl, "page 1 " * 40):
        assert model.execute() == 0


def test_nothing_of_the_profiler_is_called_when_it_is_off(acl: ModuleType, model: Any) -> None:
    pyacl_emulator.control.counters.clear()
    assert model.execute() == 0
    assert not [name for name in pyacl_emulator.control.counters.calls if ".prof." in name]

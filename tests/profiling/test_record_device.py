"""Recording a device that works for others meanwhile, as the service does on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acl_runtime.engine import AclEngine
from ascend.errors import UsageError
from ascend.profile_run import record_device
from profiling.msprof import find_profiles
from tests.acl_runtime import toy


@pytest.fixture
def engine(machine: Any, tmp_path: Path) -> Iterator[AclEngine]:
    with AclEngine.open(toy.bundle(tmp_path / "bundle"), acl="tests.pyacl_emulator") as opened:
        yield opened


def test_a_busy_device_is_recorded_until_told_to_stop(engine: AclEngine, tmp_path: Path) -> None:
    stop, folder = threading.Event(), tmp_path / "run"
    order = (engine, 60.0, folder, "PipeUtilization", stop)
    recorder = threading.Thread(target=record_device, args=order)
    cache = engine.kv_cache(1, 64)
    recorder.start()
    for _ in range(40):  # before, while and after recording begins
        engine.extend(cache, 0, [1], *toy.rows(1), [[0]])
    stop.set()
    recorder.join()
    cache.close()
    (prof,) = find_profiles(folder)
    assert prof.emulated


def test_an_engine_without_a_device_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="engine acl"):
        record_device(None, 1.0, tmp_path, "PipeUtilization", threading.Event())

"""The machine that has no NPU, made to look as if it had: the stand-ins for ATC and pyACL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for ATC, found on PATH as the real one is."""
    return find_compiler(monkeypatch)


def find_compiler(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets what `compiler` sets, for fixtures that live longer than a test."""
    folder = Path(__file__).parent / "pyacl_emulator"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HYOCR_EMULATOR_PYTHON", sys.executable)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    return folder / "atc"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fresh emulated machine; at the end nothing may be alive and no rule broken."""
    from tests.pyacl_emulator import control

    monkeypatch.setenv("HYOCR_ACL", "tests.pyacl_emulator")
    control.reset(soc="Ascend310P3", time_scale=0.0)
    yield control
    left = (control.live_handles, control.live_bytes, control.violations, control.leaks)
    control.reset(soc="Ascend310P3")
    assert left == (0, 0, [], [])

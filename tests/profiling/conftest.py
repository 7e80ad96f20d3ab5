"""One compiled bundle of the tiny HunyuanOCR for the stand-in of an NPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ascend.build.bundle import compile_bundle
from atc_configs.soc import load_soc
from tests.build.conftest import compiler, hunyuan_export, tiny  # noqa: F401  (fixtures)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fresh emulated machine behind the name `acl`."""
    from tests.pyacl_emulator import control

    monkeypatch.setenv("HYOCR_ACL", "tests.pyacl_emulator")
    control.reset(soc="Ascend310P3", time_scale=0.0)
    yield control
    control.reset(soc="Ascend310P3")


@pytest.fixture
def bundle(hunyuan_export: Path, tmp_path: Path, compiler: Path) -> Path:  # noqa: F811
    compile_bundle(hunyuan_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    return tmp_path / "bundle"

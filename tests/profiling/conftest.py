"""One compiled bundle of the tiny HunyuanOCR for the stand-in of an NPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend.build.bundle import compile_bundle
from atc_configs.soc import load_soc
from tests.build.conftest import hunyuan_export, tiny  # noqa: F401  (fixtures)


@pytest.fixture
def bundle(hunyuan_export: Path, tmp_path: Path, compiler: Path) -> Path:  # noqa: F811
    compile_bundle(hunyuan_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    return tmp_path / "bundle"

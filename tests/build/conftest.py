"""One export of each family for all tests of the builder, and the stand-in for ATC on PATH."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version as package_version
from pathlib import Path

import pytest

from ascend.build.export import REPORT_NAME, export_model
from scripts.make_checkpoint import TINY, write_checkpoint
from tests import pyacl_emulator

ROOT = Path(__file__).parents[2]
# What decides the exported files.
SOURCES = (
    "atc_configs/contract.py",
    "atc_configs/hunyuanocr.yaml",
    "ascend/build/export.py",
    "ascend/build/host_files.py",
    "ascend/build/onnx_rewrite.py",
    "ascend/build/trace.py",
    "fallback/dims.py",
    "fallback/hunyuanocr.py",
    "scripts/make_checkpoint.py",
)
HUNYUAN_GEARS = {
    "vision": [[1200], [1216]],
    "llm": [[1, 1, 1024, 1], [2, 1, 64, 1], [1, 4, 64, 4], [1, 512, 16, 1], [1, 512, 512, 1]],
}
PPOCR_GEARS = {
    "det": [[480, 640], [640, 480]],
    "rec": [[1, 320], [4, 320], [1, 640]],
    "cls": [[1], [4]],
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny matrices are slower on two threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint with two layers in each tower."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    write_checkpoint(folder, TINY, seed=3)
    return folder


@pytest.fixture(scope="session")
def hunyuan_export(
    tiny: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tiny checkpoint in float16; tracing takes half a minute, so that it is kept in pytest's
    cache until a source that decides it changes."""
    digest = hashlib.sha256(f"{package_version('torch')} {HUNYUAN_GEARS}".encode())
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    folder = request.config.cache.mkdir("tiny-fp16") / digest.hexdigest()[:16]
    if not (folder / REPORT_NAME).is_file():
        made = tmp_path_factory.mktemp("export") / "tiny-fp16"
        export_model(tiny, made, gears=HUNYUAN_GEARS)
        shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def ppocr_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "ppocr"
    export_model("ppocr", folder, gears=PPOCR_GEARS, parity_gears={"det": [[480, 640]]})
    return folder


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, found as the real one is."""
    folder = Path(pyacl_emulator.__file__).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HYOCR_EMULATOR_PYTHON", sys.executable)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    return folder / "atc"

"""One export of each family for all tests of the builder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import pytest

from ascend.build.bundle import compile_bundle
from ascend.build.export import REPORT_NAME, export_model
from ascend.families import ReadRequest
from ascend.opening import open_family
from atc_configs.soc import load_soc
from host_pipeline.page import Page
from scripts.make_checkpoint import TINY, write_checkpoint
from tests.build import small_page
from tests.conftest import find_compiler

ROOT = Path(__file__).parents[2]
READER = ROOT / "tests" / "data" / "reader"
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
    """The tiny checkpoint in float16."""
    return _kept_export(tiny, HUNYUAN_GEARS, request, tmp_path_factory)


@pytest.fixture(scope="session")
def reader_export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration checkpoint in float16 for its own small page."""
    return _kept_export(READER, small_page.HUNYUAN_GEARS, request, tmp_path_factory)


def _kept_export(
    checkpoint: Path,
    gears: dict[str, list[list[int]]],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Tracing takes half a minute, so that an export is kept in pytest's cache until a file that
    decides it changes."""
    digest = hashlib.sha256(f"{package_version('torch')} {gears}".encode())
    for path in (*(ROOT / name for name in SOURCES), *sorted(checkpoint.glob("*.safetensors"))):
        digest.update(path.read_bytes())
    folder = request.config.cache.mkdir("tiny-fp16") / digest.hexdigest()[:16]
    if not (folder / REPORT_NAME).is_file():
        made = tmp_path_factory.mktemp("export") / "tiny-fp16"
        export_model(checkpoint, made, gears=gears)
        shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def ppocr_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "ppocr"
    export_model("ppocr", folder, gears=PPOCR_GEARS, parity_gears={"det": [[480, 640]]})
    return folder


def _small_bundle(
    export: Path, gears: dict[str, list[list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    bundle = tmp_path_factory.mktemp("small") / "bundle"
    with pytest.MonkeyPatch.context() as patch:
        find_compiler(patch)
        compile_bundle(export, load_soc("Ascend310P3"), bundle, gears=gears)
    return bundle


@pytest.fixture(scope="session")
def small_ppocr(
    ppocr_export: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[small_page.Small]:
    bundle = _small_bundle(ppocr_export, small_page.PPOCR_GEARS, tmp_path_factory)
    with closing(open_family("ppocr", threads=1, gears_of=bundle)) as cpu:
        page = small_page.printed("73.50", height=64, width=160)
        yield small_page.Small(bundle, cpu, page, ReadRequest("spotting"))


@pytest.fixture(scope="session")
def small_hunyuan(
    tiny: Path, hunyuan_export: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[small_page.Small]:
    """Random weights: an answer means nothing, and is the same every time."""
    bundle = _small_bundle(hunyuan_export, small_page.HUNYUAN_GEARS, tmp_path_factory)
    page = small_page.printed("Canary 2048", height=96, width=320)
    yield from _small_model(tiny, bundle, page, {"max_tokens": 6})


@pytest.fixture(scope="session")
def small_reader(
    reader_export: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[small_page.Small]:
    """Weights that read: an answer means something."""
    bundle = _small_bundle(reader_export, small_page.HUNYUAN_GEARS, tmp_path_factory)
    page = small_page.opened(READER / "sample_96x320.png")
    yield from _small_model(READER, bundle, page, {})


def _small_model(
    checkpoint: Path, bundle: Path, page: Page, options: dict[str, Any]
) -> Iterator[small_page.Small]:
    settings = {"precision": "fp32", "threads": 1, "gears_of": bundle}
    with closing(open_family(str(checkpoint), "torch", **settings)) as cpu:
        yield small_page.Small(bundle, cpu, page, ReadRequest("spotting", options=options))

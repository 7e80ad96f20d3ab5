"""A tiny seeded checkpoint, and transformers' model of the same files as the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback.checkpoint import Checkpoint
from scripts.make_checkpoint import TINY, write_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny matrices are slower on two threads, and a loaded machine then waits for the slower
    one.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    write_checkpoint(folder, TINY, seed=11)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Checkpoint:
    return Checkpoint(tiny_folder)


@pytest.fixture(scope="session")
def reference(tiny_folder: Path) -> Any:
    """transformers' model, float32, eager attention."""
    from tests.fallback.reference import load_reference

    return load_reference(tiny_folder)


@pytest.fixture(scope="session")
def one_layer_graphs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, Path]:
    """A checkpoint with one layer in each tower, and its float32 ONNX graphs.

    Tracing takes a while, so the graphs stay in pytest's cache until a source that makes them
    changes.
    """
    from ascend.build.trace import trace
    from atc_configs.contract import dims_of_config, load_contract

    dims = replace(TINY, text=replace(TINY.text, layers=1), vision=replace(TINY.vision, layers=1))
    folder = tmp_path_factory.mktemp("one-layer")
    write_checkpoint(folder, dims, seed=5)
    digest = hashlib.sha256()
    for pattern in ("fallback/hunyuanocr.py", "ascend/build/*.py", "scripts/make_checkpoint.py"):
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    graphs = request.config.cache.mkdir("one-layer-fp32") / digest.hexdigest()[:16]
    if not (graphs / "done").is_file():
        graphs.mkdir(exist_ok=True)
        checkpoint = Checkpoint(folder)
        sizes = dims_of_config("hunyuanocr", checkpoint.config)
        contract = load_contract("hunyuanocr", sizes, precision="float32")
        for name in ("vision", "llm"):
            trace(checkpoint, contract, name, graphs)
        (graphs / "done").touch()
    return folder, graphs

"""A tiny seeded checkpoint, and transformers' model of the same files as the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback.checkpoint import Checkpoint
from scripts.make_checkpoint import TINY, write_checkpoint


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny matrices are slower on two threads, and a loaded machine then waits for the slower one."""
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

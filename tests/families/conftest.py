"""A tiny HunyuanOCR checkpoint with random weights, written once for all tests of the family."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ascend.families.hunyuanocr_files import ModelFiles, open_files


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from scripts.make_checkpoint import TINY, write_checkpoint

    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_checkpoint(folder, TINY, seed=3)
    return folder


@pytest.fixture(scope="session")
def files(checkpoint: Path) -> ModelFiles:
    """The model's files, but for the pixels below which a page is enlarged: those of tests are
    small."""
    opened = open_files(checkpoint)
    return dataclasses.replace(opened, patches=dataclasses.replace(opened.patches, min_pixels=1024))

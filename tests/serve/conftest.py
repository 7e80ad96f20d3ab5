"""Servers of the embedded reader and of a tiny checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

for needed in ("fastapi", "uvicorn", "prometheus_client", "httpx", "psutil", "rapidocr"):
    pytest.importorskip(needed)

from tests.serve.running import Running, document_of, picture_of, running  # noqa: E402


@pytest.fixture(scope="session")
def picture() -> bytes:
    return picture_of("Invoice 2048", "Total 73.50")


@pytest.fixture(scope="session")
def document() -> bytes:
    return document_of("First page", "Second page", "Third page")


@pytest.fixture(scope="session")
def ppocr() -> Iterator[Running]:
    """The embedded reader, shared by the tests that do it no harm."""
    os.environ["HYOCR_ADMIN_KEY"] = "admin-of-the-tests"
    try:
        with running(
            max_pages=8, max_body_bytes=4 << 20, body_timeout_s=2.0, write_timeout_s=2.0
        ) as server:
            yield server
    finally:
        del os.environ["HYOCR_ADMIN_KEY"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny HunyuanOCR with random weights."""
    pytest.importorskip("torch")
    from scripts.make_checkpoint import main

    folder = tmp_path_factory.mktemp("tiny")
    assert main([str(folder), "--shape", "tiny", "--seed", "6"]) == 0
    return folder


@pytest.fixture(scope="session")
def hunyuan(checkpoint: Path) -> Iterator[Running]:
    """The tiny checkpoint behind four slots."""
    with running(model=str(checkpoint), engine="torch", slots=4, watch_s=0.3) as server:
        yield server


@pytest.fixture(scope="module")
def reader() -> Iterator[Running]:
    """The trained reader of this repository behind four slots, with every default."""
    pytest.importorskip("torch")
    with running(model="tests/data/reader", engine="torch") as server:
        yield server

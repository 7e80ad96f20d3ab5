"""Families opened on the CPU for judging graphs: reading calibration pages and recording them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend.build.calibration import CalibrationEngine, Feed, draw_pages
from ascend.engines import Engine
from ascend.families import Family, ReadRequest
from atc_configs.contract import Contract
from host_pipeline.page import Page, open_document

_TASKS = {"hunyuanocr": "spotting_hunyuan", "ppocr": "spotting_hunyuan"}


@dataclass(frozen=True, slots=True)
class Reader:
    """A family and the engine under it."""

    family: Family
    engine: Engine
    max_tokens: int

    def read(self, page: NDArray[np.uint8]) -> str:
        """The answer as the model gave it."""
        options: dict[str, Any] = {}
        if self.family.name == "hunyuanocr":
            options = {"max_tokens": self.max_tokens, "draft": False, "resize": "fixed"}
        request = ReadRequest(_TASKS[self.family.name], options=options)
        return self.family.read(_page(page), request).raw


def open_family(contract: Contract, model: str | Path | None, engine: Engine) -> Family:
    """The family of `contract` on `engine`. model: checkpoint, export or bundle folder."""
    if contract.family == "ppocr":
        from ascend.build.ppocr import ppocr_characters
        from ascend.families.ppocr import PpOcr
        from host_pipeline.result import Model

        return PpOcr(engine, ppocr_characters(), Model("PP-OCRv6-small", None))
    from ascend.families.hunyuanocr import HunyuanOCR

    assert model is not None
    return HunyuanOCR.open(model, engine)


@contextmanager
def open_reader(
    checkpoint: str | Path | None, contract: Contract, max_tokens: int = 64
) -> Iterator[Reader]:
    """The float32 reference on the CPU, fed in the gears of `contract` and recording."""
    engine = CalibrationEngine(_cpu_engine(checkpoint, contract), contract)
    try:
        family = open_family(contract, checkpoint, engine)
    except BaseException:
        engine.close()
        raise
    try:
        yield Reader(family, engine, max_tokens)
    finally:
        family.close()


def record(
    reader: Reader, pages: Sequence[NDArray[np.uint8]] | None = None
) -> dict[str, list[Feed]]:
    """Reads the pages; graph -> what they fed to it."""
    for page in draw_pages() if pages is None else pages:
        reader.read(page)
    assert isinstance(reader.engine, CalibrationEngine)
    return reader.engine.feeds


def load_pages(paths: Sequence[Path]) -> list[NDArray[np.uint8]]:
    """Every page of the files, upright RGB."""
    pages = []
    for path in paths:
        with open_document(path) as document:
            pages += [document.load_page(index).pixels for index in range(len(document))]
    return pages


def _page(pixels: NDArray[np.uint8]) -> Page:
    with open_document(pixels, label="calibration") as document:
        return document.load_page(0)


def _cpu_engine(checkpoint: str | Path | None, contract: Contract) -> Any:
    """An `Engine`; the concrete classes take their own caches only, which its type does not say."""
    if contract.family == "ppocr":
        from ascend.build.ppocr import ppocr_graphs
        from fallback.ort_engine import OrtEngine

        return OrtEngine(ppocr_graphs())
    from fallback.torch_engine import TorchEngine

    assert checkpoint is not None
    return TorchEngine.open(checkpoint, "fp32")

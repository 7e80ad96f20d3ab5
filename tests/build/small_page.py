"""One small page of a family, its bundle and its CPU reader: what faults, threads and long runs are
tried on, because a real page would take hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ascend.families import Family, ReadRequest
from ascend.opening import open_family
from host_pipeline.page import Page
from host_pipeline.result import Result

# Two vision gears because ATC wants two; the page takes the first.
HUNYUAN_GEARS = {
    "vision": [[120], [136]],
    "llm": [[1, 1, 256, 1], [2, 1, 256, 1], [1, 8, 256, 8], [1, 64, 16, 1], [1, 64, 64, 1]],
}
PPOCR_GEARS = {
    "det": [[64, 160], [160, 64]],
    "rec": [[1, 160], [4, 160]],
    "cls": [[1], [4]],
}


class Borrowed:
    """A family that somebody else closes."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def close(self) -> None:
        """Nothing: the owner does."""


@dataclass(frozen=True)
class Small:
    """`cpu` has the bundle's canvases and batches; whoever made this closes it."""

    bundle: Path
    cpu: Family
    page: Page
    request: ReadRequest

    def open(self, **settings: Any) -> Family:
        """The bundle on the NPU, with a deadline that a hang passes soon; the caller closes it."""
        return open_family(str(self.bundle), "acl", timeout_ms=100, **settings)


def answer(result: Result) -> tuple[Any, ...]:
    """What must be equal for two readings to be equal."""
    return result.raw, result.text, tuple((line.text, line.quad) for line in result.lines)


def printed(*lines: str, height: int, width: int, size: int = 28) -> Page:
    """A white page with printed lines."""
    image = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for row, text in enumerate(lines):
        draw.text((12, 10 + 40 * row), text, "black", font)
    return Page(np.array(image), lines[0])


def opened(path: Path) -> Page:
    """The picture in a file."""
    return Page(np.array(Image.open(path).convert("RGB")), path.name)

"""Pages and families for the tests of HunyuanOCR."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles
from host_pipeline.page import Page
from host_pipeline.result import Notice, Result
from tests.families.scripted_engine import ScriptedEngine


def draw_page(height: int = 300, width: int = 420, rows: int = 6, size: float = 0.7) -> Page:
    pixels = np.full((height, width, 3), 255, np.uint8)
    step = height / (rows + 1)
    for row in range(rows):
        at = (10, round((row + 1) * step))
        cv2.putText(pixels, f"Total {row} 12.50", at, cv2.FONT_HERSHEY_SIMPLEX, size, (0, 0, 0), 1)
    return Page(pixels, "page.png", index=2, count=5, notices=(Notice("first_frame", "of three"),))


def say(files: ModelFiles, answer: str, **settings: Any) -> HunyuanOCR:
    return HunyuanOCR(ScriptedEngine(files, lambda page, asked: answer), files, **settings)


def codes(result: Result) -> list[str]:
    return [notice.code for notice in result.warnings]

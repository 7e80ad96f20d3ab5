"""Pages made by hand, without fonts: every character 12 pixels wide, lines 32 pixels apart."""

import numpy as np

from scripts.train_reader.pages import DrawnPage, Line, Mark
from scripts.train_reader.samples import Grid

GRID = Grid(rows=3, columns=10, canvas_rows=3, canvas_columns=10, row=0, column=0)
_ADVANCE, _PITCH = 12, 32


def made_page(*texts: str) -> DrawnPage:
    """A blank 96x320 page that claims to hold `texts`; `key：value` and `key: value` are fields."""
    lines = tuple(_line(text, index) for index, text in enumerate(texts))
    pixels = np.full((96, 320, 3), 255, np.uint8)
    return DrawnPage(pixels, lines, {line.key: line.value for line in lines if line.key})


def _line(text: str, index: int) -> Line:
    top = index * _PITCH
    marks = tuple(
        Mark(c, (i + 0.5) * _ADVANCE, i * _ADVANCE, (i + 1) * _ADVANCE) for i, c in enumerate(text)
    )
    key, _, value = text.replace("：", ": ", 1).partition(": ")
    box = (0, top + 6, len(text) * _ADVANCE, top + 26)
    return Line(text, box, top + 16.0, marks, key if value else "", value)

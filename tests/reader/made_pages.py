"""Pages made by hand, without fonts: every character 12 pixels wide, lines 32 pixels apart."""

import numpy as np

from scripts.train_reader.pages import DrawnPage, Line, Mark, all_cells

_ADVANCE, _PITCH = 12, 32


def made_page(*texts: str) -> DrawnPage:
    """A blank 96x320 page that claims to hold `texts`; `key：value` and `key: value` are fields."""
    lines = tuple(_line(text, index) for index, text in enumerate(texts))
    pixels = np.full((96, 320, 3), 255, np.uint8)
    fields = {line.key: line.value for line in lines if line.key}
    return DrawnPage(pixels, lines, fields, all_cells((96, 320)))


def _line(text: str, index: int) -> Line:
    top = index * _PITCH
    marks = tuple(
        Mark(c, (i + 0.5) * _ADVANCE, i * _ADVANCE, (i + 1) * _ADVANCE) for i, c in enumerate(text)
    )
    key, _, value = text.replace("：", ": ", 1).partition(": ")
    box = (0, top + 6, len(text) * _ADVANCE, top + 26)
    return Line(text, box, top + 16.0, marks, key if value else "", value)

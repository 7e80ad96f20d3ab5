"""Reading order: hand-made pages whose order a person would not doubt."""

from __future__ import annotations

import numpy as np
import pytest

from host_pipeline.order import reading_rows, skew
from host_pipeline.result import rectangle


def _quads(*boxes: tuple[float, float, float, float]) -> np.ndarray:
    return np.asarray([rectangle(*box) for box in boxes], np.float32)


def _turned(quads: np.ndarray, degrees: float) -> np.ndarray:
    a = np.radians(degrees)
    return (quads @ np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])).astype(np.float32)


def test_nothing_has_no_rows() -> None:
    assert reading_rows(np.zeros((0, 4, 2), np.float32), []) == []


def test_a_receipt_stays_in_rows() -> None:
    quads = _quads((300, 50, 360, 70), (10, 52, 120, 70), (10, 90, 130, 108), (305, 88, 360, 108))
    assert reading_rows(quads, [False] * 4) == [[1, 0], [2, 3]]


def test_two_columns_of_prose_are_read_one_after_the_other() -> None:
    left = [(10, 100 + 30 * i, 390, 120 + 30 * i) for i in range(5)]
    right = [(430, 100 + 30 * i, 800, 120 + 30 * i) for i in range(5)]
    mixed = [box for pair in zip(left, right, strict=True) for box in pair]
    rows = reading_rows(_quads((10, 20, 800, 60), *mixed), [False] * 11)
    assert rows == [[0], [1], [3], [5], [7], [9], [2], [4], [6], [8], [10]]


def test_a_table_of_short_cells_is_not_cut_into_columns() -> None:
    cells = [(x, y, x + 60, y + 20) for y in (0, 40, 80, 120) for x in (0, 200, 400)]
    rows = reading_rows(_quads(*cells), [False] * 12)
    assert rows == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_vertical_text_goes_from_right_to_left() -> None:
    quads = _quads((10, 0, 40, 400), (110, 0, 140, 400), (60, 0, 90, 200), (60, 220, 90, 400))
    assert reading_rows(quads, [True] * 4) == [[1], [2], [3], [0]]


@pytest.mark.parametrize("degrees", [-15.0, 10.0, 20.0])
def test_a_leaning_page_is_levelled_first(degrees: float) -> None:
    boxes = [(x, y, x + 80, y + 20) for y in (0, 30, 60) for x in (0, 400)]
    quads = _turned(_quads(*boxes), degrees)
    assert np.degrees(skew(quads)) == pytest.approx(degrees, abs=0.01)
    assert reading_rows(quads, [False] * 6) == [[0, 1], [2, 3], [4, 5]]


def test_every_line_stands_once() -> None:
    rng = np.random.default_rng(5)
    corners = rng.uniform(0, 900, (200, 2))
    boxes = [
        (x, y, x + w, y + 15) for (x, y), w in zip(corners, rng.uniform(10, 300, 200), strict=True)
    ]
    rows = reading_rows(_quads(*boxes), [False] * 200)
    assert sorted(i for row in rows for i in row) == list(range(200))

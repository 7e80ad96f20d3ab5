"""Crops, canvases and the best path of recognition."""

from __future__ import annotations

import numpy as np
import pytest

from host_pipeline.recognize import ctc_decode, cut, rec_input, rec_width, split_at_gaps

ALPHABET = ("", "a", "b", " ")


def test_the_best_path_merges_repeats_and_drops_blanks() -> None:
    ids = np.array([0, 1, 1, 0, 1, 2, 0, 0])
    scores = np.array([0.9, 0.8, 0.7, 0.9, 0.6, 0.5, 0.9, 0.9], np.float32)
    reading = ctc_decode(ids, scores, ALPHABET)
    assert reading.text == "aab"
    assert reading.score == pytest.approx((0.8 + 0.6 + 0.5) / 3)


def test_nothing_read_has_no_score() -> None:
    assert ctc_decode(np.zeros(5, int), np.ones(5, np.float32), ALPHABET).score == 0.0


def test_a_level_quad_is_cut_without_resampling() -> None:
    pixels = np.arange(60 * 80 * 3, dtype=np.uint32).reshape(60, 80, 3).astype(np.uint8)
    quad = np.array([[10, 20], [50, 20], [50, 40], [10, 40]], np.float32)
    assert np.array_equal(cut(pixels, quad), pixels[20:40, 10:50])


def test_a_leaning_quad_is_levelled() -> None:
    pixels = np.full((200, 200, 3), 255, np.uint8)
    rows, columns = np.mgrid[:200, :200]
    pixels[np.abs((rows - 100) - (columns - 100) * 0.5) < 4] = 0  # a stroke that falls to the right
    a = np.array([2.0, 1.0]) / np.sqrt(5)
    b = np.array([-1.0, 2.0]) / np.sqrt(5)
    center = np.array([100.0, 100.0])
    quad = np.array(
        [center + s * 60 * a + t * 15 * b for s, t in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    )
    crop = cut(pixels, quad.astype(np.float32))
    assert crop.shape == (30, 120, 3)
    assert (crop[13:17].mean(axis=(1, 2)) < 90).all() and crop[:8].mean() > 240


def test_the_canvas_is_padded_with_grey_and_keeps_the_aspect() -> None:
    crop = np.full((24, 50, 3), 255, np.uint8)
    assert rec_width(crop) == 100
    image = rec_input([crop], 160)
    assert image.shape == (1, 3, 48, 160)
    assert (image[..., :100] == 1).all() and (image[..., 100:] == 0).all()


def test_a_wide_line_is_split_where_there_is_no_ink() -> None:
    line = np.full((20, 900, 3), 255, np.uint8)
    for x in (*range(10, 400, 12), *range(460, 890, 12)):
        line[4:16, x : x + 8] = 0
    pieces = split_at_gaps(line, 30)
    assert pieces[0][0] == 0 and pieces[-1][1] == 900 and len(pieces) == 2
    assert 402 < pieces[0][1] < 460
    assert all(b - a <= 600 for a, b in pieces)


def test_a_narrow_line_stays_whole() -> None:
    assert split_at_gaps(np.zeros((20, 300, 3), np.uint8), 30) == [(0, 300)]

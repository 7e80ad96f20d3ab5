"""From a probability map to quads, and windows over large pages."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from host_pipeline.detect import DetSettings, clockwise, det_input, quads_from_map
from host_pipeline.tile import Tile, merge_across, tiles


def _map(angle: float) -> np.ndarray:
    """A kernel of 100 x 20 canvas pixels around (160, 120), turned by `angle` degrees."""
    canvas = np.zeros((240, 320), np.float32)
    box = cv2.boxPoints(((160.0, 120.0), (100.0, 20.0), angle)).astype(np.int32)
    cv2.fillPoly(canvas, [box], (0.9,))
    return canvas


@pytest.mark.parametrize("angle", [0.0, 15.0, -20.0])
def test_a_kernel_grows_by_its_unclip_distance(angle: float) -> None:
    found = quads_from_map(_map(angle), DetSettings(unclip=1.5, crop_unclip=1.0), (1.0, 1.0))
    assert len(found) == 1 and found.scores[0] == pytest.approx(0.9, abs=0.08)
    (quad,) = found.quads
    width, height = np.linalg.norm(quad[1] - quad[0]), np.linalg.norm(quad[3] - quad[0])
    grow = 1.5 * 2 * 100 * 20 / (2 * (100 + 20))
    assert width == pytest.approx(100 + grow, abs=3) and height == pytest.approx(20 + grow, abs=3)
    assert quad.mean(0) == pytest.approx((160, 120), abs=1)
    assert np.linalg.norm(found.crops[0][1] - found.crops[0][0]) < width


def test_quads_are_in_page_pixels() -> None:
    once = quads_from_map(_map(0), DetSettings(), (1.0, 1.0))
    half = quads_from_map(_map(0), DetSettings(), (0.5, 2.0))
    np.testing.assert_allclose(half.quads, once.quads * (2.0, 0.5), atol=1e-3)


def test_weak_and_tiny_spots_are_no_text() -> None:
    canvas = _map(0) * 0.45  # above the pixel threshold, below the box threshold
    canvas[10:12, 10:12] = 1.0
    assert len(quads_from_map(canvas, DetSettings(), (1.0, 1.0))) == 0


def test_corners_start_at_the_top_left() -> None:
    square = np.array([[10, 10], [0, 10], [0, 0], [10, 0]], np.float32)
    assert clockwise(square).tolist() == [[0, 0], [10, 0], [10, 10], [0, 10]]


def test_the_graph_gets_blue_green_red_in_minus_one_to_one() -> None:
    pixels = np.zeros((32, 64, 3), np.uint8)
    pixels[..., 0] = 255
    image = det_input(pixels)
    assert image.shape == (1, 3, 32, 64) and image.dtype == np.float32
    assert image[0, :, 0, 0].tolist() == [-1.0, -1.0, 1.0]


def test_tiles_cover_the_page_and_overlap() -> None:
    windows = tiles(height=5000, width=700, side=1500, overlap=160)
    rows = np.zeros(5000, int)
    for t in windows:
        assert t.x0 == 0 and t.x1 == 700 and t.y1 - t.y0 == 1500
        rows[t.y0 : t.y1] += 1
    assert rows.min() == 1
    assert all(b.y0 <= a.y1 - 160 for a, b in itertools.pairwise(windows))


def test_a_line_in_two_windows_is_reported_once_and_whole() -> None:
    windows = [Tile(0, 0, 400, 300), Tile(0, 240, 400, 540)]
    whole = np.array([[[50, 250], [350, 250], [350, 290], [50, 290]]], np.float32)
    cut = np.array([[[50, 240], [350, 240], [350, 289], [50, 289]]], np.float32)
    assert merge_across([whole, cut], windows, 540, 400) == [[(0, 0)]]


def test_lines_of_one_window_do_not_swallow_each_other() -> None:
    windows = [Tile(0, 0, 400, 300)]
    nested = np.array(
        [[[0, 0], [300, 0], [300, 90], [0, 90]], [[10, 10], [60, 10], [60, 40], [10, 40]]],
        np.float32,
    )
    assert sorted(merge_across([nested], windows, 300, 400)) == [[(0, 0)], [(0, 1)]]


def test_the_pieces_of_a_text_longer_than_the_overlap_are_one() -> None:
    windows = [Tile(0, 0, 1000, 80), Tile(840, 0, 1840, 80), Tile(1680, 0, 2680, 80)]
    pieces = [
        np.array([[[x0, 20], [x1, 20], [x1, 60], [x0, 60]]], np.float32)
        for x0, x1 in ((30, 1000), (840, 1840), (1680, 2600))
    ]
    (group,) = merge_across(pieces, windows, 80, 2680)
    assert sorted(group) == [(0, 0), (1, 0), (2, 0)]

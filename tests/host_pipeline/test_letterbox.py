"""The canvas hugs the page, keeps to its budget, and maps points to and fro exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from host_pipeline.letterbox import FIXED_480X640, Resample, canvas_for, letterbox

SIDES = st.integers(1, 20_000)


def page(height: int, width: int) -> np.ndarray:
    """Noise, so that a shift by one pixel shows."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_page_that_fits_lies_untouched_in_the_top_left_corner() -> None:
    pixels = page(40, 50)
    boxed = letterbox(pixels, 64, 96)
    assert boxed.pixels.shape == (64, 96, 3)
    assert (boxed.pixels[:40, :50] == pixels).all()
    assert (boxed.pixels[40:] == 114).all() and (boxed.pixels[:, 50:] == 114).all()
    assert boxed.scale == (1.0, 1.0) and boxed.pad == (46, 24)


@pytest.mark.parametrize(
    ("height", "width"), [(200, 3000), (3000, 200), (1, 1), (1, 20_000), (20_000, 1), (481, 640)]
)
@pytest.mark.parametrize("resample", ["pil-bicubic", "cv2-area", "cv2-linear"])
def test_extreme_pages_fit_and_map_both_ways(height: int, width: int, resample: Resample) -> None:
    boxed = letterbox(np.full((height, width, 3), 200, np.uint8), 480, 640, resample=resample)
    inner_width, inner_height = 640 - boxed.pad[0], 480 - boxed.pad[1]
    assert inner_width >= 1 and inner_height >= 1
    assert (boxed.pixels[:inner_height, :inner_width] == 200).all()
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], float)
    on_canvas = boxed.to_canvas(corners)
    inner = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (inner_width, inner_height)
    np.testing.assert_allclose(on_canvas, inner)
    np.testing.assert_allclose(boxed.to_page(on_canvas), corners)


def test_points_off_the_page_are_clipped_to_it() -> None:
    boxed = letterbox(page(100, 200), 480, 640)
    outside = np.array([[-5.0, 50.0], [300.0, 400.0]])
    assert boxed.to_page(outside).tolist() == [[0, 50], [200, 100]]
    assert boxed.to_canvas(outside).tolist() == [[0, 50], [200, 100]]


def test_a_mark_on_the_page_is_found_where_to_canvas_says() -> None:
    pixels = np.zeros((900, 1600, 3), np.uint8)
    pixels[300:340, 1000:1040] = 255
    boxed = letterbox(pixels, 480, 640, fill=0)
    rows, columns = np.nonzero(boxed.pixels[..., 0] > 127)
    seen = [[columns.min(), rows.min()], [columns.max() + 1, rows.max() + 1]]
    expected = boxed.to_canvas(np.array([[1000, 300], [1040, 340]]))
    np.testing.assert_allclose(seen, expected, atol=1.0)


def test_enlargement_stops_at_max_scale() -> None:
    boxed = letterbox(page(20, 30), 480, 640, max_scale=1.5)
    assert boxed.scale == (1.5, 1.5) and boxed.pad == (640 - 45, 480 - 30)
    assert letterbox(page(20, 30), 480, 640, max_scale=100).scale == (640 / 30, 427 / 20)


@pytest.mark.parametrize("size", [(0, 10), (10, 0)])
def test_a_canvas_without_pixels_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        letterbox(page(4, 4), *size)


@settings(deadline=None, max_examples=60)
@given(SIDES, SIDES, st.sampled_from([4, 16, 256, 1200, 2304, 4608]))
@example(19_121, 80, 1200)
@example(33, 4874, 1200)
def test_the_canvas_hugs_the_page_within_the_budget(height: int, width: int, budget: int) -> None:
    canvas = canvas_for(height, width, budget)
    assert canvas.height % 32 == 0 and canvas.width % 32 == 0
    assert canvas.patches == canvas.grid[0] * canvas.grid[1] <= budget
    assume(height * width < 20_000_000)
    pixels = np.zeros((height, width, 3), np.uint8)
    right, below = letterbox(pixels, canvas.height, canvas.width, resample="cv2-linear").pad
    assert 0 <= right < 32 and 0 <= below < 32


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_no_other_canvas_of_the_budget_keeps_a_larger_scale(height: int, width: int) -> None:
    budget = 256
    canvas = canvas_for(height, width, budget)
    best = max(
        min(down * 32 / height, (budget // 4 // down) * 32 / width, 1.0)
        for down in range(1, budget // 4 + 1)
    )
    assert min(canvas.height / height, canvas.width / width, 1.0) == pytest.approx(best)


def test_a_page_within_the_budget_keeps_its_scale() -> None:
    canvas = canvas_for(470, 630, FIXED_480X640.patches)
    assert canvas == FIXED_480X640
    assert (canvas.grid, canvas.patches) == ((30, 40), 1200)


def test_a_budget_below_one_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        canvas_for(10, 10, 3)

"""What a model is shown of a page: nothing legible is lost without a word."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from host_pipeline.views import MAX_TILES, glyph_height, hugging_views

LADDER = (1200, 2304, 4608, 9216)


def page(height: int, width: int, size: float, thickness: int = 1) -> np.ndarray:
    """A page full of capital letters about 21·size pixels high."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    step = max(12, round(40 * size))
    text = "ABCDEFHKLMN " * 40
    for y in range(step, height, step):
        cv2.putText(
            pixels, text, (5, y), cv2.FONT_HERSHEY_SIMPLEX, size, (0, 0, 0), thickness, cv2.LINE_AA
        )
    return pixels


@pytest.mark.parametrize(("size", "thickness"), [(0.4, 1), (0.7, 1), (1.0, 2), (2.0, 4)])
def test_the_height_of_print_is_measured(size: float, thickness: int) -> None:
    measured = glyph_height(page(600, 900, size, thickness))
    assert measured is not None
    assert measured == pytest.approx(21 * size + thickness, rel=0.25)
    large = glyph_height(page(4000, 3500, size * 2, thickness * 2))
    assert large == pytest.approx(2 * (21 * size + thickness), rel=0.3)


def test_a_page_without_print_has_no_height_of_print() -> None:
    assert glyph_height(np.full((300, 300, 3), 200, np.uint8)) is None
    assert glyph_height(np.zeros((1, 1, 3), np.uint8)) is None


@pytest.mark.parametrize("size", [(1, 1), (31, 33), (480, 640), (3, 900), (900, 3)])
def test_a_small_page_is_shown_as_it_is(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    views = hugging_views(pixels, LADDER, tile="grid")
    (view,) = views.parts
    assert np.array_equal(view.canvas[: size[0], : size[1]], pixels)
    bars = np.subtract(view.canvas.shape[:2], size)
    assert np.all(np.remainder(view.canvas.shape[:2], 32) == 0) and np.all(bars < 32)
    assert views.notices == ()


def test_the_smallest_budget_with_comfortable_print_is_taken() -> None:
    large = hugging_views(page(1400, 1000, 4.0, 8), LADDER, tile="bands")
    small = hugging_views(page(1400, 1000, 0.6), LADDER, tile="bands")
    sizes = [v.parts[0].canvas.shape[0] * v.parts[0].canvas.shape[1] // 256 for v in (large, small)]
    assert sizes[0] <= 1200 < 4608 < sizes[1] <= 9216
    assert large.notices == small.notices == ()


@pytest.mark.parametrize("tile", ["bands", "grid"])
def test_illegible_print_is_cut_into_tiles_that_cover_the_page_and_overlap(tile: str) -> None:
    pixels = page(1800, 900, 0.5)
    views = hugging_views(pixels, (1200,), tile=tile)  # type: ignore[arg-type]
    assert 1 < len(views.parts) <= MAX_TILES
    assert [n.code for n in views.notices] == ["tiled"]
    covered = np.zeros(pixels.shape[:2], int)
    for view in views.parts:
        window = view.window
        covered[window.y0 : window.y1, window.x0 : window.x1] += 1
        rows, columns = view.canvas.shape[0] // 16, view.canvas.shape[1] // 16
        assert rows * columns <= 1200
        assert min(view.boxed.scale) * 11 >= 8 * 0.9
        assert view.to_page(np.array([[0.0, 0.0]]))[0] == pytest.approx((window.x0, window.y0))
    assert covered.min() == 1 and covered.max() >= 2
    if tile == "bands":
        assert all(view.window.x1 - view.window.x0 == 900 for view in views.parts)


def test_what_is_not_cut_is_shrunk_with_a_notice() -> None:
    views = hugging_views(page(1800, 900, 0.5), (1200,), tile=None)
    assert len(views.parts) == 1
    assert [n.code for n in views.notices] == ["small_print"]
    assert "px high on the canvas" in views.notices[0].text

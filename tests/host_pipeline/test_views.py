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


@pytest.mark.parametrize("size", [(300, 420), (59, 238), (74, 1920), (511, 511), (20, 20)])
def test_a_page_of_few_pixels_is_enlarged_by_no_more_than_four(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (*size, 3), dtype=np.uint8)
    (view,) = hugging_views(pixels, LADDER, tile=None, min_pixels=512 * 512).parts
    factor = min(4.0, (512 * 512 / (size[0] * size[1])) ** 0.5)
    assert view.boxed.scale == pytest.approx((factor, factor), rel=0.03)
    assert max(view.boxed.pad) < 32
    corner = np.array([[1000.0, 1000.0]]) * np.divide(size[::-1], 1000.0) * factor
    on_canvas = corner / np.array(view.canvas.shape[1::-1]) * 1000
    assert view.to_page(on_canvas)[0] == pytest.approx(size[::-1], abs=1.0)
    (tight,) = hugging_views(pixels, (64,), tile=None, min_pixels=512 * 512).parts
    assert tight.canvas.shape[0] * tight.canvas.shape[1] <= 64 * 256


def test_a_page_gets_the_patches_that_its_print_needs() -> None:
    def patches(pixels: np.ndarray) -> int:
        views = hugging_views(pixels, LADDER, tile="bands")
        assert views.notices == () and len(views.parts) == 1
        return views.parts[0].canvas.shape[0] * views.parts[0].canvas.shape[1] // 256

    assert 1000 <= patches(page(1400, 1000, 4.0, 8)) <= 1200  # the smallest gear is filled
    # 22 pixels high where 10 are enough: 0.45 of each side.
    assert 1400 * 1000 / 256 * 0.4**2 < patches(page(1400, 1000, 1.0, 2)) < 2304
    # 9 pixels are not to be shrunk, but a little for a gear that is a little too small.
    assert patches(page(1600, 1200, 0.4)) == 1600 * 1216 // 256
    assert 4300 < patches(page(1400, 1000, 0.4)) <= 4608
    assert patches(page(3000, 3000, 0.9, 2)) in range(9000, 9217)


@pytest.mark.parametrize("tile", ["bands", "grid"])
def test_illegible_print_is_cut_into_tiles_that_cover_the_page_and_overlap(tile: str) -> None:
    pixels = page(1800, 900, 0.4)
    views = hugging_views(pixels, (600,), tile=tile)  # type: ignore[arg-type]
    assert 1 < len(views.parts) <= MAX_TILES
    assert [n.code for n in views.notices] == ["tiled"]
    covered = np.zeros(pixels.shape[:2], int)
    for view in views.parts:
        window = view.window
        covered[window.y0 : window.y1, window.x0 : window.x1] += 1
        rows, columns = view.canvas.shape[0] // 16, view.canvas.shape[1] // 16
        assert rows * columns <= 600
        assert min(view.boxed.scale) * 11 >= 6 * 0.9
        assert view.to_page(np.array([[0.0, 0.0]]))[0] == pytest.approx((window.x0, window.y0))
    assert covered.min() == 1 and covered.max() >= 2
    if tile == "bands":
        assert all(view.window.x1 - view.window.x0 == 900 for view in views.parts)


def test_what_is_not_cut_is_shrunk_with_a_notice() -> None:
    views = hugging_views(page(1800, 900, 0.4), (600,), tile=None)
    assert len(views.parts) == 1
    assert [n.code for n in views.notices] == ["small_print"]
    assert "px high on the canvas" in views.notices[0].text

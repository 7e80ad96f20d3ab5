"""Patches equal the reference's Pillow processor bit for bit, in block order."""

from __future__ import annotations

import numpy as np
import pytest

from host_pipeline.errors import InputError
from host_pipeline.patches import make_patches, resize_native, smart_resize
from host_pipeline.positions import block_order

V15 = {"multiple": 32, "min_pixels": 512 * 512, "max_pixels": 4096 * 4096}
V10 = {**V15, "max_pixels": 2048 * 2048}


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((480, 640), (480, 640)),
        ((640, 480), (640, 480)),
        ((224, 224), (512, 512)),
        ((320, 768), (352, 800)),
        ((720, 1280), (704, 1280)),
        ((1754, 1240), (1760, 1248)),
        ((3508, 2480), (3520, 2496)),
        ((48, 320), (224, 1344)),
    ],
)
def test_the_worked_examples_of_the_models_rule(
    size: tuple[int, int], resized: tuple[int, int]
) -> None:
    assert smart_resize(*size, **V15) == resized


def test_release_1_0_stops_at_four_megapixels() -> None:
    assert smart_resize(3508, 2480, **V10) == (2432, 1696)


def test_the_rule_equals_the_reference_on_many_sizes() -> None:
    reference = pytest.importorskip(
        "transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl"
    ).smart_resize
    random = np.random.default_rng(5)
    for _ in range(300):
        height, width = (int(2**x) for x in random.uniform(4, 13, 2))
        if max(height, width) / min(height, width) > 200:
            continue
        expected = reference(height, width, 32, V15["min_pixels"], V15["max_pixels"])
        assert smart_resize(height, width, **V15) == expected


def test_a_page_too_long_for_its_width_is_refused_with_its_ratio() -> None:
    with pytest.raises(InputError, match="one side is 201 times the other, the limit is 200"):
        smart_resize(2010, 10, **V15)


@pytest.mark.parametrize("size", [(480, 640), (300, 200), (91, 733), (1000, 1400)])
def test_native_patches_equal_the_reference_processor_bit_for_bit(size: tuple[int, int]) -> None:
    processors = pytest.importorskip(
        "transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl"
    )
    from PIL import Image

    pixels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)
    given = processors.HunYuanVLImageProcessorPil()(images=[Image.fromarray(pixels)])
    grid_h, grid_w = (int(n) for n in given["image_grid_thw"][0][1:])
    canvas = resize_native(pixels, *smart_resize(*size, **V10))
    assert canvas.shape[:2] == (grid_h * 16, grid_w * 16)
    patches = make_patches(canvas)
    assert patches.dtype == np.float32 and patches.flags.c_contiguous
    expected = np.asarray(given["pixel_values"])[block_order(grid_h, grid_w)]
    assert np.array_equal(patches, expected)


def test_sides_that_cut_a_block_are_refused() -> None:
    with pytest.raises(ValueError, match="48x32: both sides must be multiples of 32"):
        make_patches(np.zeros((32, 48, 3), np.uint8))

"""Positions and rotary factors against PyTorch's interpolation and the formulas of each layout."""

from __future__ import annotations

import numpy as np
import pytest

from host_pipeline.positions import (
    block_order,
    image_tokens,
    interpolate_positions,
    inv_freq,
    position_ids,
    rotary,
)


@pytest.mark.parametrize("grid", [(4, 6), (16, 16), (20, 12), (30, 40), (2, 64)])
@pytest.mark.parametrize("mode", ["scale", "size"])
def test_the_table_is_interpolated_as_pytorch_does(grid: tuple[int, int], mode: str) -> None:
    torch = pytest.importorskip("torch")
    edge = 16
    table = np.random.default_rng(0).standard_normal((edge**2 + 1, 5)).astype(np.float32)
    stacked = torch.from_numpy(table[1:]).reshape(1, edge, edge, 5).permute(0, 3, 1, 2)
    how = (
        {"size": grid}
        if mode == "size"
        else {"scale_factor": ((grid[0] + 0.1) / edge, (grid[1] + 0.1) / edge)}
    )
    want = torch.nn.functional.interpolate(stacked, mode="bilinear", align_corners=False, **how)
    want = want.permute(0, 2, 3, 1).reshape(-1, 5).numpy()
    got = interpolate_positions(table, *grid, mode)
    assert got.dtype == np.float32
    assert np.abs(got - want).max() < 1e-5


def test_patches_of_one_merged_token_become_neighbours() -> None:
    assert block_order(4, 4).tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    with pytest.raises(ValueError, match="grid 3×4 is not a multiple of 2"):
        block_order(3, 4)


def test_rows_of_two_images_carry_column_row_and_ordinal() -> None:
    first, second = 2, 2 + image_tokens(4, 4) + 1
    length = second + image_tokens(2, 4) + 2
    p, w, h, t = position_ids(length, [(first, 4, 4), (second, 2, 4)])
    assert p.tolist() == list(range(length))
    assert w[first + 1 : first + 7].tolist() == [0, 1, 2, 0, 1, 2]  # 2 is the newline slot
    assert h[first + 1 : first + 7].tolist() == [0, 0, 0, 1, 1, 1]
    assert t[first + 1 : first + 7].tolist() == [0] * 6
    assert t[second + 1 : second + 4].tolist() == [1] * 3
    for slot in (0, first, first + 7, second, length - 1):  # text, begin, end: sequential
        assert [p[slot], w[slot], h[slot], t[slot]] == [slot] * 4
    assert position_ids(2, start=40).tolist() == [[40, 41]] * 4
    with pytest.raises(ValueError, match=r"image 0 takes tokens 2\.\.9, outside 8 tokens"):
        position_ids(8, [(2, 4, 4)])


def test_the_released_frequencies() -> None:
    frequencies = inv_freq(10000.0, 1000.0, 128)
    np.testing.assert_allclose(  # base 11158839.925
        frequencies[[0, 1, 2, 3, 63]], [1.0, 0.77603436, 0.60222936, 0.46735066, 1.15478e-7], 1e-5
    )


def test_sections_of_each_layout() -> None:
    rows = np.array([[1], [10], [100], [1000]])
    frequencies = np.array([1.0, 0.5, 0.25, 0.125], np.float32)
    angle = {
        "train": [1, 5, 25, 125, 1, 5, 25, 125],
        "hf5": [1, 0.5, 2.5, 1.25, 100, 50, 250, 125],
        "rope1d": [1, 0.5, 0.25, 0.125, 1, 0.5, 0.25, 0.125],
    }
    for layout, want in angle.items():
        cos, sin = rotary(rows, frequencies, (1, 1, 1, 1), layout)
        np.testing.assert_allclose(cos[0], np.cos(want), atol=1e-6)
        np.testing.assert_allclose(sin[0], np.sin(want), atol=1e-6)
    with pytest.raises(ValueError, match="rope layout 'hf6': one of train, hf5, rope1d"):
        rotary(rows, frequencies, (1, 1, 1, 1), "hf6")
    with pytest.raises(ValueError, match="do not cut 4 frequencies"):
        rotary(rows, frequencies, (1, 1, 1), "train")

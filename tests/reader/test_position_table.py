"""The exported table gives back the trained rows and columns, by the product's rule."""

import numpy as np
import torch

from host_pipeline.positions import interpolate_positions
from scripts.train_reader import world
from scripts.train_reader.position_table import (
    EDGE,
    GRID_HEIGHTS,
    GRID_WIDTHS,
    conditioning,
    interpolate,
    position_table,
)


def test_the_table_yields_rows_plus_columns_on_every_canvas() -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(30, 8, generator=generator)
    columns = torch.randn(40, 8, generator=generator)
    table = position_table(rows, columns)
    for height, width in world.CANVASES:
        down, across = height // 16, width // 16
        wanted = (rows[:down, None] + columns[None, :across]).flatten(0, 1)
        given = interpolate_positions(table.numpy(), down, across)
        np.testing.assert_allclose(given, wanted.numpy(), atol=2e-4)
        ours = interpolate(table, down, across).flatten(0, 1)
        np.testing.assert_allclose(ours.numpy(), given, atol=2e-4)


def test_every_canvas_is_in_the_system_and_none_is_nearly_lost() -> None:
    assert {h // 16 for h, _ in world.CANVASES} == set(GRID_HEIGHTS)
    assert {w // 16 for _, w in world.CANVASES} == set(GRID_WIDTHS)
    assert max(conditioning(GRID_HEIGHTS, EDGE), conditioning(GRID_WIDTHS, EDGE)) < 13

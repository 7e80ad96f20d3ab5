"""Makes the exported position table from the trained rows and columns.

While training, patch (i, j) of any canvas gets row_positions[i] + column_positions[j], so that
what is learned on a small window holds at every place of the large canvas. The released model
instead stretches one square table over the page (bilinear, sources at (d + 0.5) * E / (n + 0.1)
- 0.5). Both agree exactly on the chosen canvases if the table solves a linear system: one
equation per grid row (or column) of each canvas, E unknowns. The least-norm table is taken.
"""

import torch
from torch import Tensor

EDGE = 74  # table side; `conditioning` is 12.7 for the grid sides below
GRID_HEIGHTS: tuple[int, ...] = (6, 30)
GRID_WIDTHS: tuple[int, ...] = (20, 40)


def sampling(size: int, edge: int) -> Tensor:
    """(size, edge) bilinear weights of a grid side over a table side, float64."""
    source = (torch.arange(size, dtype=torch.float64) + 0.5) * edge / (size + 0.1) - 0.5
    source = source.clamp(min=0)
    low = source.floor().long().clamp(max=edge - 1)
    high = (low + 1).clamp(max=edge - 1)
    share = source - low
    weights = torch.zeros(size, edge, dtype=torch.float64)
    rows = torch.arange(size)
    weights[rows, low] += 1 - share
    weights[rows, high] += share
    return weights


def conditioning(sizes: tuple[int, ...], edge: int) -> float:
    """Largest factor by which the table may have to exceed the rows that it yields."""
    system = torch.cat([sampling(size, edge) for size in sizes])
    return 1 / float(torch.linalg.svdvals(system).min())


def _solve(rows: Tensor, sizes: tuple[int, ...], edge: int) -> Tensor:
    """(edge, V) least-norm values whose samples are rows[:n] for every n of `sizes`."""
    system = torch.cat([sampling(size, edge) for size in sizes])
    wanted = torch.cat([rows[:size] for size in sizes]).double()
    return torch.linalg.lstsq(system, wanted, driver="gelsd").solution


def position_table(rows: Tensor, columns: Tensor) -> Tensor:
    """(EDGE * EDGE + 1, V) float32 table; row 0 is the unused class row."""
    by_row = _solve(rows, GRID_HEIGHTS, EDGE)
    by_column = _solve(columns, GRID_WIDTHS, EDGE)
    grid = (by_row[:, None] + by_column[None]).flatten(0, 1)
    return torch.cat([torch.zeros_like(grid[:1]), grid]).float()


def interpolate(table: Tensor, rows: int, columns: int) -> Tensor:
    """(rows, columns, V) position rows that the released model takes from an exported table."""
    edge = round((len(table) - 1) ** 0.5)
    grid = table[1:].unflatten(0, (edge, edge)).double()
    placed = torch.einsum("ie,efv,jf->ijv", sampling(rows, edge), grid, sampling(columns, edge))
    return placed.float()

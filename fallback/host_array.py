"""Host memory: rows behind the engines' `Array` protocol, and zeroed pages; knows numpy only."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np


class Rows(Protocol):
    """What `copy_rows` needs of an array that may belong to another engine."""

    def numpy(self) -> np.ndarray: ...

    def rows(self, start: int, count: int) -> Rows: ...


class HostArray:
    """An array of the host, first axis = rows; views made by `rows` share its memory.

    `values` is the memory itself (for the engine that owns it); `numpy()` is always a copy.
    """

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def numpy(self) -> np.ndarray:
        return self.values.copy()

    def write(self, row: int, values: np.ndarray) -> None:
        """Copies `values` (n, ...) over rows row..row+n-1.

        Raises ValueError if they would end past the last row.
        """
        self._check(row, len(values))
        self.values[row : row + len(values)] = values

    def copy_rows(self, row: int, source: Rows, source_row: int, count: int) -> None:
        """Copies `count` rows of `source` from `source_row` over rows row..row+count-1."""
        if isinstance(source, HostArray):
            source._check(source_row, count)
            self.write(row, source.values[source_row : source_row + count])
        else:
            self.write(row, source.rows(source_row, count).numpy())

    def rows(self, start: int, count: int) -> HostArray:
        """A view of rows start..start+count-1."""
        self._check(start, count)
        return HostArray(self.values[start : start + count])

    def close(self) -> None:
        """Lets go of the memory; views made before stay valid."""
        self.values = np.empty(0, self.values.dtype)

    def _check(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > len(self.values):
            raise ValueError(
                f"rows {start}..{start + count - 1} are outside an array of {len(self.values)} rows"
            )


def zeroed_pages(shape: Sequence[int]) -> np.ndarray:
    """Zeros, float32, whose memory is taken page by page as they are written.

    torch.zeros writes all of them, and NumPy asks for pages of 2 MB (`numpy/core/src/multiarray/
    alloc.c`): a cache that is hardly used would take as much as a full one.
    """
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    memory = mmap.mmap(-1, 4 * math.prod(shape), **private)
    with suppress(AttributeError, OSError):  # systems and kernels without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)

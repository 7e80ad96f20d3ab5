"""What a model family may ask of an engine. Nothing above this file can tell an NPU from a CPU.

Axes: B sequences (slots), Q new tokens of this step, R rows whose logits are wanted, C hidden,
D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Array(Protocol):
    """Memory that an engine owns (host memory on a CPU engine, device memory on an NPU), seen as
    `shape[0]` rows. Valid until `close()` of the array, or of the array it is a view of, or of
    the engine."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def numpy(self) -> NDArray[Any]:
        """A host copy, shape and dtype as they are."""

    def write(self, row: int, values: NDArray[Any]) -> None:
        """Copy host `values` (n, ...) over rows row..row+n; cast to the array's dtype."""

    def copy_rows(self, row: int, source: Array, source_row: int, count: int) -> None:
        """Copy `count` rows of `source` without passing through the host."""

    def rows(self, start: int, count: int) -> Array:
        """A view of rows start..start+count; it owns nothing."""

    def close(self) -> None: ...


class KVCache(Protocol):
    """The keys and values of `slots` sequences, `capacity` rows each. `lengths` (slots,) int32 is
    how many rows of each are in use; only `Engine.extend` and `truncate` change it."""

    slots: int
    capacity: int
    lengths: NDArray[np.int32]

    def truncate(self, slot: int, length: int) -> None:
        """Forget the rows of `slot` from `length` on (0 frees the slot). Nothing is copied."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Runs the named graphs of one contract. One thread at a time, but for `run`, where
    `parallel` threads may be at once (1: no gain in more).

    Raises the engine's own typed errors (`ascend.errors` maps them): wrong shape or dtype before
    the call, device faults and timeouts after it."""

    name: str
    emulated: bool
    parallel: int
    settings: Mapping[str, Any]

    def gears(self, graph: str) -> tuple[Mapping[str, int], ...] | None:
        """The symbol values that `graph` was compiled for, smallest first; None: any will run."""

    def run(self, graph: str, inputs: Mapping[str, NDArray[Any] | Array]) -> dict[str, Array]:
        """One execution. Inputs are named and shaped as in the contract and fit a gear exactly.
        The outputs stay valid until the next `run` of the same graph."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """New memory with undefined content; the caller closes it."""

    def kv_cache(self, slots: int, capacity: int) -> KVCache:
        """A zeroed cache; the caller closes it. Raises when slots or capacity exceed the gears."""

    def extend(
        self,
        cache: KVCache,
        first_slot: int,
        counts: Sequence[int],
        embeds: NDArray[Any] | Array,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        """Append counts[b] rows to slot first_slot+b of `cache`, for b in 0..B-1, and return the
        logits (B, R, V) of the rows select[b] (indices into the chunk; every select[b] has the
        same length R, which may be 0). `embeds` (B, Q, C), or an Array of its B·Q rows (B·Q, C);
        `cos` and `sin` (B, Q, D) with Q >= max(counts); rows at or past counts[b] are padding.
        counts[b] == 0 leaves its slot as it is and its logits undefined. The engine pads to a gear
        itself."""

    def close(self) -> None:
        """Release everything; idempotent."""

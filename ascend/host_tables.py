"""What stays on the host around HunyuanOCR's two graphs, as one file of a bundle.

A checkpoint gives the same values itself (`fallback.checkpoint.HostTables`); a bundle has no
checkpoint, so the builder writes them into `host_tables.safetensors` and the edge box maps them.
numpy only. Axes: V vocabulary, C hidden, E vision hidden, n ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fallback.checkpoint import Checkpoint
from fallback.safetensors_file import SafetensorsFile, bf16_to_float32

FILE_NAME = "host_tables.safetensors"
_EMBEDDING = "model.embed_tokens.weight"
_POSITIONS = "vit.embeddings.position_embedding.weight"
_ROWS = ("patch_bias", "begin", "newline", "end")


class HostTables(Protocol):
    """`position_table` (edge² + 1, E) and `patch_bias` (E,) make the vision graph's `pos`; `begin`,
    `newline`, `end` (C,) are the constant rows of an image. All float32."""

    position_table: NDArray[np.float32]
    patch_bias: NDArray[np.float32]
    begin: NDArray[np.float32]
    newline: NDArray[np.float32]
    end: NDArray[np.float32]

    def embed_rows(self, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Rows of the embedding table, (n, C) float32."""


@dataclass(frozen=True, slots=True)
class MappedTables:
    """`HostTables` of a bundle; the embedding stays mapped and is read row by row."""

    position_table: NDArray[np.float32]
    patch_bias: NDArray[np.float32]
    begin: NDArray[np.float32]
    newline: NDArray[np.float32]
    end: NDArray[np.float32]
    file: SafetensorsFile

    def embed_rows(self, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        return _float32(self.file, _EMBEDDING, np.asarray(ids, np.int64))


def open_host_tables(path: Path) -> MappedTables:
    """Map the file. Raises the typed errors of `fallback` when it is missing or damaged."""
    file = SafetensorsFile(path)
    rows = {name: _float32(file, name) for name in _ROWS}
    return MappedTables(position_table=_float32(file, _POSITIONS), file=file, **rows)


def write_host_tables(checkpoint: Checkpoint, path: Path) -> None:
    """Write the tables of `checkpoint`; both tables keep the checkpoint's own bits."""
    tables = checkpoint.tables()
    raw = {name: checkpoint.bits(name) for name in (_EMBEDDING, _POSITIONS)}
    dtypes = {name: checkpoint.info(name).dtype for name in raw}
    for name in _ROWS:
        raw[name], dtypes[name] = np.ascontiguousarray(getattr(tables, name), np.float32), "F32"
    header, at = {}, 0
    for name, values in raw.items():
        span = [at, at + values.nbytes]
        header[name] = {
            "dtype": dtypes[name],
            "shape": list(values.shape),
            "data_offsets": span,
        }
        at = span[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants the data aligned
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in raw.values():
            values.tofile(file)
    partial.replace(path)


def _float32(
    file: SafetensorsFile, name: str, rows: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    bits = file.bits(name) if rows is None else file.bits(name)[rows]
    if file.tensors[name].dtype == "BF16":
        return bf16_to_float32(bits)
    return bits.astype(np.float32)

"""What stays on the host beside the compiled graphs: lookup tables, tokenizer, config.

A bundle holds them, so that a box needs neither the checkpoint nor torch.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ascend.errors import ModelError
from fallback.dims import Dims
from fallback.safetensors_file import SafetensorsFile, bf16_to_float32

if TYPE_CHECKING:
    from fallback.checkpoint import Checkpoint, HostTables

TABLES_NAME = "host_tables.safetensors"
# Raw checkpoint names: what the host looks up or computes with (the embedding rows, the position
# table, and what the constant rows of an image are made of).
_TABLES = (
    "model.embed_tokens.weight",
    "vit.embeddings.position_embedding.weight",
    "vit.embeddings.patch_embedding.bias",
    "vit.perceive.after_rms.weight",
    "vit.perceive.image_begin",
    "vit.perceive.image_end",
    "vit.perceive.image_newline",
    "vit.perceive.mlp.bias",
    "vit.perceive.mlp.weight",
)
# Role -> file name in a checkpoint's folder; what is there is copied.
COMPANIONS = {
    "config": "config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "preprocessor": "preprocessor_config.json",
    "chat_template": "chat_template.jinja",
    "generation": "generation_config.json",
    "licence": "LICENSE",
    "licence_txt": "License.txt",
}


def write_host_files(checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """Writes the tables in their own dtype, copies the companions; role -> file name."""
    _write_tables(checkpoint, folder / TABLES_NAME)
    files = {"tables": TABLES_NAME}
    for role, name in COMPANIONS.items():
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)
            files[role] = name
    return files


def open_host_tables(folder: str | Path) -> HostTables:
    """The tables of an exported folder or a bundle, mapped; numpy only.

    Raises ModelError if they are not there, a CheckpointError if they are damaged.
    """
    from fallback.checkpoint import HostTables

    return HostTables.of(TableFile(Path(folder)))  # type: ignore[arg-type]


class TableFile:
    """Reads the tables as `fallback.checkpoint.Checkpoint` reads a whole checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (TABLES_NAME, COMPANIONS["config"]):
            if not (folder / name).is_file():
                raise ModelError(f"{folder / name} is missing; export or compile the model again")
        self.config = json.loads((folder / COMPANIONS["config"]).read_text("utf-8"))
        self.dims = Dims.from_config(self.config, str(folder / COMPANIONS["config"]))
        self._file = SafetensorsFile(folder / TABLES_NAME)

    def array(
        self, name: str, rows: Sequence[int] | NDArray[np.integer] | None = None
    ) -> NDArray[np.float32]:
        """A float32 copy of a tensor, or of some of its rows."""
        bits = self._file.bits(name)
        if rows is not None:
            bits = bits[np.asarray(rows, np.int64)]
        if self._file.tensors[name].dtype == "BF16":
            return bf16_to_float32(bits)
        return np.asarray(bits, np.float32)


def _write_tables(checkpoint: Checkpoint, path: Path) -> None:
    """Format: https://github.com/huggingface/safetensors; bytes go from map to file as they are."""
    header, end = {}, 0
    for name in _TABLES:
        info = checkpoint.info(name)
        size = info.end - info.begin
        header[name] = {
            "dtype": info.dtype,
            "shape": list(info.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    import torch

    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for name in _TABLES:
            checkpoint.tensor(name).view(torch.uint8).numpy().tofile(out)

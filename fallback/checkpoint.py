"""A HunyuanOCR folder as Hugging Face has it, checked as a whole before any weight is used.

Reads release 1.0 (flat config.json, four shards and an index) and 1.5 (nested config.json, one
file). numpy only; torch is imported where a tensor of it is asked for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fallback.dims import Dims
from fallback.errors import (
    ArchitectureError,
    CheckpointFormatError,
    CheckpointNotFoundError,
    TensorError,
)
from fallback.safetensors_file import SafetensorsFile, TensorInfo, bf16_to_float32
from fallback.tensor_names import tensor_shapes

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

FLOATS = ("BF16", "F16", "F32")
_IGNORED = ("lm_head.weight", "vit.perceive.image_sep")  # tied to the embedding; used by nobody
_SHOWN = 5  # names listed in an error before "and N more"


class Checkpoint:
    """An open folder: config, sizes and tensors by raw name. Weights stay mapped, nothing is read
    ahead.

    Raises a CheckpointError on opening: CheckpointNotFoundError, CheckpointFormatError,
    ArchitectureError or TensorError.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = _read_config(self.folder)
        self.dims = Dims.from_config(self.config, str(self.folder / "config.json"))
        self._files = [SafetensorsFile(path) for path in _weight_files(self.folder)]
        self._where = {_raw_name(n): (f, n) for f in self._files for n in f.tensors}
        self._check_tensors()

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of a raw name, from the header."""
        file, stored = self._where[name]
        return file.tensors[stored]

    def names(self) -> tuple[str, ...]:
        """The names of all tensors."""
        return tuple(self._where)

    def array(self, name: str, rows: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """A float32 copy of a tensor, or of some of its rows."""
        file, stored = self._where[name]
        bits = file.bits(stored)
        if rows is not None:
            bits = bits[np.asarray(rows, np.int64)]
        if file.tensors[stored].dtype == "BF16":
            return bf16_to_float32(bits)
        return bits.astype(np.float32)

    def tensor(self, name: str) -> Tensor:
        """The tensor in the file's own dtype; it is the mapped memory: read it, never write it."""
        import torch

        file, stored = self._where[name]
        shared = torch.from_numpy(file.bits(stored))
        return shared.view(torch.bfloat16) if file.tensors[stored].dtype == "BF16" else shared

    def read_once(self, name: str) -> Tensor:
        """`tensor` for a caller who copies: pages read before no longer count as its memory."""
        for file in self._files:
            file.let_go()
        return self.tensor(name)

    def tables(self) -> HostTables:
        """What the host needs around the two graphs."""
        return HostTables.of(self)

    def text_file(self, name: str) -> str:
        """tokenizer.json, chat_template.jinja, ...: a companion file's text.

        Raises CheckpointNotFoundError if the folder lacks it.
        """
        path = self.folder / name
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            raise CheckpointNotFoundError(f"{path} is missing; download the whole folder") from None

    def _check_tensors(self) -> None:
        wanted = tensor_shapes(self.dims)
        missing = [n for n in wanted if n not in self._where and n not in _IGNORED]
        extra = [n for n in self._where if n not in wanted and n not in _IGNORED]
        extra = [
            n for n in extra if not n.endswith("rotary_emb.inv_freq")
        ]  # a buffer of old exports
        if missing and len(missing) > len(wanted) // 2:
            raise ArchitectureError(
                f"{self.folder}: these are not HunyuanOCR's tensors: {len(missing)} of"
                f" {len(wanted)} are missing ({_some(missing)});"
                f" it has {_some(sorted(self._where))}"
            )
        if missing or extra:
            raise TensorError(
                f"{self.folder}: missing tensors: {_some(missing)};"
                f" unknown tensors: {_some(extra)}; config.json and the weights belong to"
                " different models, or the download is incomplete"
            )
        for name, shape in wanted.items():
            if name in self._where:
                self._check_tensor(name, shape)

    def _check_tensor(self, name: str, shape: tuple[int, ...]) -> None:
        info = self.info(name)
        if info.shape != shape:
            raise TensorError(
                f"{self.folder}: {name} is {list(info.shape)}, config.json asks for {list(shape)}"
            )
        if info.dtype not in FLOATS:
            raise TensorError(
                f"{self.folder}: {name} has dtype {info.dtype}; only {', '.join(FLOATS)} can be"
                " read (a quantised checkpoint needs its own loader)"
            )


@dataclass(frozen=True, slots=True)
class HostTables:
    """Everything of the model that stays on the host, numpy only, so that any engine can be fed.

    embed_rows: ids (n,) -> (n, C) float32, looked up in the mapped table. position_table (edge² +
    1, E) and patch_bias (E,): `pos` of the vision graph is the interpolated table plus the bias.
    begin, newline, end (C,): the constant rows that the host writes between the content rows of
    an image.
    """

    checkpoint: Checkpoint
    position_table: np.ndarray
    patch_bias: np.ndarray
    begin: np.ndarray
    newline: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> HostTables:
        p, eps = "vit.perceive.", checkpoint.dims.vision.eps
        weight = checkpoint.array(p + "after_rms.weight")
        mlp = checkpoint.array(p + "mlp.weight").astype(np.float64)
        newline = mlp @ checkpoint.array(p + "image_newline") + checkpoint.array(p + "mlp.bias")
        begin, end = checkpoint.array(p + "image_begin"), checkpoint.array(p + "image_end")
        return cls(
            checkpoint,
            checkpoint.array("vit.embeddings.position_embedding.weight"),
            checkpoint.array("vit.embeddings.patch_embedding.bias"),
            *(_rms_norm(row, weight, eps) for row in (begin, newline, end)),
        )

    def embed_rows(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows of the embedding table, (n, C) float32. Raises IndexError for an id outside the
        vocabulary.
        """
        return self.checkpoint.array("model.embed_tokens.weight", ids)


def _rms_norm(row: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    wide = row.astype(np.float64)
    normed = wide / np.sqrt(np.mean(wide * wide) + eps) * weight
    return np.asarray(normed, np.float32)


def _read_config(folder: Path) -> dict[str, Any]:
    if folder.is_file():
        SafetensorsFile(folder)  # a GGUF or a pickle says so itself
        raise CheckpointNotFoundError(
            f"{folder} is one file; give the folder that holds config.json"
        )
    path = folder / "config.json"
    if not path.is_file():
        state = "has no config.json" if folder.is_dir() else "does not exist"
        found = sorted(p.name for p in folder.glob("*.gguf")) if folder.is_dir() else []
        hint = f" ({found[0]} is for llama.cpp)" if found else ""
        raise CheckpointNotFoundError(
            f"{folder} {state}{hint}; give the folder of a HunyuanOCR download"
            " (config.json, *.safetensors)"
        )
    return _json(path)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards: Iterable[str] = _json(index).get("weight_map", {}).values()
        return [folder / name for name in sorted(set(shards))]
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    others = sorted(p.name for p in (*folder.glob("*.gguf"), *folder.glob("*.bin")))
    found = f"; {others[0]} cannot be used" if others else ""
    raise CheckpointNotFoundError(
        f"{folder} has no .safetensors file{found}; download model.safetensors"
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointFormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointFormatError(f"{path}: a mapping is wanted, not {type(parsed).__name__}")
    return parsed


def _raw_name(name: str) -> str:
    """Some fine-tuning tools write the vision tower under vit.vit."""
    return name.replace("vit.vit.", "vit.", 1) if name.startswith("vit.vit.") else name


def _some(names: Sequence[str]) -> str:
    if not names:
        return "none"
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest

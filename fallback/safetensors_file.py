"""One .safetensors file, mapped and never copied: numpy only, so that a box without torch can
read tables from it.

Read here rather than through the safetensors library for two reasons: its numpy side has no
bfloat16, and a damaged file must say what is wrong with it. Format:
https://github.com/huggingface/safetensors (8-byte little-endian header length, JSON header,
data).
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fallback.errors import CheckpointFormatError, CheckpointNotFoundError, TensorError

_MAX_HEADER = 100_000_000  # bytes; the format's own limit
_DTYPES: dict[str, np.dtype[Any]] = {  # bfloat16 has no numpy dtype: its bits come as uint16
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
    "F8_E4M3": np.dtype(np.uint8),
    "F8_E5M2": np.dtype(np.uint8),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as the header declares it; `begin`, `end` are bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """The tensors of one file. Arrays are views of a private mapping: they live as long as they
    are held.

    Raises CheckpointFormatError if the file is another format, damaged or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                start = file.read(8)
                length = self._header_length(start)
                header = file.read(length)
        except FileNotFoundError:
            raise CheckpointNotFoundError(f"{path}: no such file; download it again") from None
        self.tensors = self._parse(header, 8 + length)
        # Copy-on-write: torch takes writable memory only, and nothing ever reaches the file.
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def bits(self, name: str) -> np.ndarray:
        """The tensor as it lies in the file, without a copy; bfloat16 as uint16 bits."""
        info = self.tensors[name]
        return self._bytes[info.begin : info.end].view(_DTYPES[info.dtype]).reshape(info.shape)

    def let_go(self) -> None:
        """Gives the pages read so far back to the system; views stay valid and read them again."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)

    def _header_length(self, start: bytes) -> int:
        if start[:4] == b"GGUF":
            raise CheckpointFormatError(
                f"{self.path} is a GGUF file (llama.cpp);"
                " give the Hugging Face folder with config.json"
            )
        length = int.from_bytes(start, "little")
        # A header of 128 + 256·n bytes starts with a pickle's first byte, and is none.
        if start[:2] == b"PK" or (start[:1] == b"\x80" and length > self.size):
            raise CheckpointFormatError(
                f"{self.path} is a PyTorch pickle or archive, not safetensors;"
                " download model.safetensors"
            )
        if len(start) < 8 or length > min(self.size - 8, _MAX_HEADER):
            raise CheckpointFormatError(
                f"{self.path}: not a safetensors file, or cut short"
                f" ({self.size} bytes, header says {length})"
            )
        return length

    def _parse(self, header: bytes, data: int) -> dict[str, TensorInfo]:
        try:
            entries: dict[str, Any] = json.loads(header)
            infos = {n: _info(e, data) for n, e in entries.items() if n != "__metadata__"}
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointFormatError(f"{self.path}: the header is damaged: {error}") from error
        for name, info in infos.items():
            self._check(name, info)
        return infos

    def _check(self, name: str, info: TensorInfo) -> None:
        if info.end > self.size:
            raise CheckpointFormatError(
                f"{self.path} is cut short: {name} ends at byte {info.end},"
                f" the file has {self.size}; download it again"
            )
        if info.dtype not in _DTYPES:
            raise TensorError(f"{self.path}: {name} has dtype {info.dtype}, which is not supported")
        wanted = prod(info.shape) * _DTYPES[info.dtype].itemsize
        if info.begin < 0 or info.end - info.begin != wanted:
            raise CheckpointFormatError(
                f"{self.path}: {name} {info.dtype}{list(info.shape)} needs {wanted} bytes,"
                f" the header gives it {info.end - info.begin}"
            )


def _info(entry: dict[str, Any], data: int) -> TensorInfo:
    begin, end = entry["data_offsets"]
    return TensorInfo(
        str(entry["dtype"]),
        tuple(int(n) for n in entry["shape"]),
        data + int(begin),
        data + int(end),
    )


def bf16_to_float32(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) as float32: the same number with 16 zero bits behind it."""
    return (bits.astype(np.uint32) << 16).view(np.float32)

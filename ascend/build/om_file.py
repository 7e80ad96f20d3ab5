"""The container of an `.om` file, read without a toolkit: header, partitions, and what is legible.

Layout: GE inc/framework/common/framework_types_internal.h and om_file_helper.cc. The loader reads
partitions one after another and ignores stored offsets; so does this.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ascend.errors import ModelError

HEADER_BYTES = 256
MAGIC = 0x444F4D49  # "IMOD"
# ACL's codes for a bad file, as acl.mdl.load_from_file returns them.
BAD_PATH, BAD_FILE = 145002, 145006
_HEADER = struct.Struct("<III64sI4B32sI32sII20sB3xQBB62s")
_TYPES = ("IR", "standard", "tiny", "flow", "lite", "bundle")
_FLOW = _TYPES.index("flow")
_PARTITIONS = {
    0: "model definition", 1: "weights", 2: "tasks", 3: "AI Core kernels", 4: "AI CPU kernels",
    5: "shared libraries", 6: "flow model", 7: "flow submodel", 8: "inputs and outputs",
    9: "static tasks", 10: "dynamic tasks", 11: "task parameters", 12: "tiling",
    20: "pre-model", 21: "pre-model queue", 22: "pre-kernel arguments", 23: "pre-model extension",
    24: "bundle", 25: "bundle variables", 26: "custom operators",
}  # fmt: skip
_MOST_PARTITIONS = 64
_LEGIBLE = 1 << 26  # bytes of the model definition that are searched as text
_CHIP = re.compile(rb"Ascend(?:310|610|910|950)[A-Z0-9_]*(?:-\d)?")
_VERSION = re.compile(rb"atc_version[^0-9]{1,16}(\d+\.[\w.]+)")
_COMMAND = re.compile(rb"[\w/.-]*atc(?:\.bin)? [^\x00-\x1f\x7f]*?--model=[^\x00-\x1f\x7f\"]*")


class OmFileError(ModelError):
    """Not an .om that loads. `code` is what `acl.mdl.load_from_file` returns for it."""

    def __init__(self, text: str, code: int = BAD_FILE) -> None:
        super().__init__(f"{text} (acl.mdl.load_from_file returns {code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Partition:
    """One part of a model: kind, start in the file and size, in bytes."""

    kind: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class OmFile:
    """What the header says, and the partitions of every model in the file.

    The chip, the toolkit and the command line stand in the model definition, a protobuf message;
    they are found as text, and are None where they are not.
    """

    path: Path
    size: int
    name: str
    version: int
    model_type: str
    dynamic: bool
    encrypted: bool
    models: tuple[tuple[Partition, ...], ...]
    soc_version: str | None
    atc_version: str | None
    command: str | None

    def partition_bytes(self, kind: str) -> int:
        """Bytes of all partitions of one kind."""
        return sum(part.size for model in self.models for part in model if part.kind == kind)


class _Header(NamedTuple):
    magic: int
    head_size: int
    version: int
    checksum: bytes
    length: int
    encrypted: int
    has_checksum: int
    model_type: int
    generation: int
    name: bytes
    ops: int
    user_info: bytes
    ir_version: int
    model_count: int
    platform: bytes
    platform_type: int
    model_length: int
    checks_host: int
    dynamic: int
    reserved: bytes


def read_om(path: str | Path) -> OmFile:
    """The container of one file. Raises OmFileError with ACL's code for a file that cannot load."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _read_header(file, path, size)
            models = _read_models(file, path, size, header)
            text = _definition(file, models)
    except OSError as error:
        raise OmFileError(f"{path}: {error.strerror}", BAD_PATH) from error
    platform = _text(header.platform)
    return OmFile(
        path=path,
        size=size,
        name=_text(header.name),
        version=header.version,
        model_type=dict(enumerate(_TYPES)).get(header.model_type, str(header.model_type)),
        dynamic=bool(header.dynamic),
        encrypted=bool(header.encrypted),
        models=models,
        soc_version=platform if platform.startswith("Ascend") else _match(_CHIP, text),
        atc_version=_match(_VERSION, text),
        command=_match(_COMMAND, text),
    )


def _read_header(file: BinaryIO, path: Path, size: int) -> _Header:
    header = _Header._make(_HEADER.unpack(_exactly(file, path, HEADER_BYTES)))
    if header.magic != MAGIC or header.head_size != HEADER_BYTES:
        raise OmFileError(f"{path} is no .om file: its magic number is not IMOD")
    wanted = HEADER_BYTES + (header.model_length or header.length)
    if wanted != size:
        raise OmFileError(
            f"{path}: the header says {wanted} bytes, the file has {size}; copy it again"
        )
    return header


def _read_models(
    file: BinaryIO, path: Path, size: int, header: _Header
) -> tuple[tuple[Partition, ...], ...]:
    small = header.model_length == 0 and header.model_type != _FLOW
    models = [_partitions(file, path, size, small) for _ in range(max(1, header.model_count))]
    if file.tell() != size:
        raise OmFileError(f"{path}: {size - file.tell()} bytes follow the last partition")
    return tuple(models)


def _partitions(file: BinaryIO, path: Path, size: int, small: bool) -> tuple[Partition, ...]:
    """A table of (type, offset, size), then the payloads; the file ends up behind them."""
    count_form, entry = ("<I", "<III") if small else ("<I4x", "<I4xQQ")
    (count,) = struct.unpack(count_form, _exactly(file, path, struct.calcsize(count_form)))
    if count > _MOST_PARTITIONS:
        raise OmFileError(f"{path}: its partition table is damaged ({count} partitions)")
    rows = [
        struct.unpack(entry, _exactly(file, path, struct.calcsize(entry))) for _ in range(count)
    ]
    parts = []
    for kind, _, length in rows:
        start = file.tell()
        if start + length > size:
            raise OmFileError(f"{path} is cut short: a partition ends behind it; copy it again")
        parts.append(Partition(_PARTITIONS.get(kind, f"type {kind}"), start, length))
        file.seek(length, os.SEEK_CUR)
    return tuple(parts)


def _definition(file: BinaryIO, models: tuple[tuple[Partition, ...], ...]) -> bytes:
    part = next((p for m in models for p in m if p.kind == _PARTITIONS[0]), None)
    if part is None:
        return b""
    file.seek(part.start)
    return file.read(min(part.size, _LEGIBLE))


def _exactly(file: BinaryIO, path: Path, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise OmFileError(f"{path} is cut short: it ends inside its header")
    return data


def _match(pattern: re.Pattern[bytes], text: bytes) -> str | None:
    found = pattern.search(text)
    return found.group(found.lastindex or 0).decode("utf-8", "replace") if found else None


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")

"""The container of an `.om` file: the real 256-byte header and partition table, our payloads.

Layout as in GE `om_file_helper.cc` / spec of the format: magic IMOD, version, length, platform,
then a partition table and the payloads in order. Payloads here: MODEL_DEF is a JSON description,
WEIGHTS the packed initialisers, TASK_INFO the ONNX graph without them. Files are written as a
stream and mapped when read, so a 2 GB model never lies in memory twice.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = 0x444F4D49  # "IMOD", little endian
HEADER = struct.Struct("<III64sI4B32sI32sII20sB3xQBB62s")
HEADER_BYTES = 256
VERSION = 0x20000000
MODEL_DEF, WEIGHTS, TASK_INFO, MODEL_INOUT_INFO = 0, 1, 2, 8
STANDARD, BUNDLE = 1, 5
FORMAT = "emulated-om/2"
_TABLE_ENTRY = struct.Struct("<I4xQQ")
ALIGN = 64


class OmError(ValueError):
    """The file is not a model that can be loaded; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class OmFile:
    """A parsed container. `payloads` are views into `buffer`, which must outlive them."""

    description: dict[str, Any]
    graph: memoryview
    weights: memoryview
    buffer: object
    identity: tuple[int, ...]


def pack_header(name: str, platform: str, length: int, *, dynamic: bool, models: int = 1,
                modeltype: int = STANDARD) -> bytes:  # fmt: skip
    """The 256 bytes; `length` is that of everything after them."""
    return HEADER.pack(
        MAGIC, HEADER_BYTES, VERSION, b"", length & 0xFFFFFFFF, 0, 0, modeltype, 0,
        name.encode()[:31], 0, b"", 0, models, platform.encode()[:19], 0, length, 0,
        int(dynamic), b"",
    )  # fmt: skip


def pack_table(sizes: list[tuple[int, int]]) -> bytes:
    """The partition table for (type, size) pairs; offsets are relative to the first payload."""
    entries, offset = [], 0
    for kind, size in sizes:
        entries.append(_TABLE_ENTRY.pack(kind, offset, size))
        offset += size
    return struct.pack("<I4x", len(sizes)) + b"".join(entries)


def write(path: Path, description: dict[str, Any], graph: bytes,
          weights: Iterable[bytes | memoryview], weights_size: int) -> None:  # fmt: skip
    """Writes a model file beside its final name and moves it there whole.

    weights: chunks that sum up to `weights_size` bytes. Raises OSError, and leaves no partial file.
    """
    definition = json.dumps(description).encode()
    start = HEADER_BYTES + 8 + 3 * _TABLE_ENTRY.size
    definition = definition.ljust(-(-(start + len(definition)) // ALIGN) * ALIGN - start)
    sizes = [(MODEL_DEF, len(definition)), (WEIGHTS, weights_size), (TASK_INFO, len(graph))]
    table = pack_table(sizes)
    body = len(table) + sum(size for _, size in sizes)
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as out:
            out.write(pack_header(description["name"], description["soc"], body,
                                  dynamic=description["kind"] == "range"))  # fmt: skip
            out.write(table)
            out.write(definition)
            for chunk in weights:
                out.write(chunk)
            out.write(graph)
            if out.tell() != HEADER_BYTES + body:
                raise OmError(f"weights are {out.tell() - HEADER_BYTES - body:+d} bytes off")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _partitions(view: memoryview) -> dict[int, memoryview]:
    if len(view) < HEADER_BYTES:
        raise OmError(f"{len(view)} bytes are less than the {HEADER_BYTES}-byte header")
    fields = HEADER.unpack(view[: HEADER.size])
    if fields[0] != MAGIC or fields[1] != HEADER_BYTES:
        raise OmError("Invalid om file: the magic number is not IMOD")
    length = fields[16] or fields[4]
    if HEADER_BYTES + length != len(view):
        raise OmError(f"header says {HEADER_BYTES + length} bytes, the file has {len(view)}")
    if fields[7] == BUNDLE:
        raise OmError("a bundle is loaded by the bundle functions")
    return split_table(view[HEADER_BYTES:])


def split_table(body: memoryview) -> dict[int, memoryview]:
    """Payloads by type; read one after another, stored offsets are ignored as the loader does."""
    if len(body) < 8:
        raise OmError("no room for a partition table")
    (count,) = struct.unpack("<I4x", body[:8])
    at = 8 + count * _TABLE_ENTRY.size
    if count > 64 or at > len(body):
        raise OmError(f"partition table of {count} entries does not fit")
    parts: dict[int, memoryview] = {}
    for index in range(count):
        start = 8 + index * _TABLE_ENTRY.size
        kind, _, size = _TABLE_ENTRY.unpack(body[start : start + _TABLE_ENTRY.size])
        if at + size > len(body):
            raise OmError(f"partition {kind} of {size} bytes runs past the end")
        parts[kind] = body[at : at + size]
        at += size
    if at != len(body):
        raise OmError(f"{len(body) - at} bytes follow the last partition")
    return parts


def parse(buffer: object, identity: tuple[int, ...]) -> OmFile:
    """Reads a container from a bytes-like object. Raises OmError."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    parts = _partitions(view)
    try:
        description = json.loads(bytes(parts[MODEL_DEF]))
        graph = parts[TASK_INFO]
    except (KeyError, ValueError) as error:
        raise OmError(f"no readable model definition: {error}") from error
    if description.get("format") != FORMAT:
        raise OmError(f"the model definition is not {FORMAT}: compile the model again")
    return OmFile(description, graph, parts.get(WEIGHTS, view[:0]), buffer, identity)


def read(path: str) -> OmFile:
    """Maps and reads a file. Raises OSError and OmError."""
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        if stat.st_size < HEADER_BYTES:
            raise OmError(f"{stat.st_size} bytes are less than the {HEADER_BYTES}-byte header")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return parse(mapped, (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))


def partition_sizes(path: str) -> dict[int, int]:
    """Size of each partition of a file. Raises OSError and OmError."""
    data = Path(path).read_bytes()
    return {kind: len(part) for kind, part in _partitions(memoryview(data)).items()}


def bundle_count(data: bytes) -> int:
    """How many models a bundle holds. Raises OmError when it is none."""
    if len(data) < HEADER_BYTES:
        raise OmError("shorter than a header")
    fields = HEADER.unpack(data[: HEADER.size])
    if fields[0] != MAGIC or fields[7] != BUNDLE:
        raise OmError("not a bundle")
    if HEADER_BYTES + fields[16] != len(data):
        raise OmError(f"header says {HEADER_BYTES + fields[16]} bytes, the file has {len(data)}")
    return int(fields[13])

"""The container: its header and partitions by an independent reading of the format."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.pyacl_emulator import om


def test_the_header_is_that_of_the_format(linear) -> None:
    data = linear("dims", ((1,), (4,))).read_bytes()
    magic, head, version = struct.unpack_from("<III", data, 0)
    assert (data[:4], head, version) == (b"IMOD", 256, 0x20000000)
    assert magic == 0x444F4D49
    encrypted, checksum, kind, _ = data[80:84]
    assert (encrypted, checksum, kind) == (0, 0, 1)
    assert data[84:116].rstrip(b"\0") == b"linear_dims_Ascend310P3"
    (models,) = struct.unpack_from("<I", data, 156)
    assert models == 1
    (length,) = struct.unpack_from("<Q", data, 184)
    assert length == len(data) - 256


def test_the_partitions_follow_their_table(linear) -> None:
    data = linear().read_bytes()
    (count,) = struct.unpack_from("<I", data, 256)
    entries = [struct.unpack_from("<I4xQQ", data, 264 + 24 * index) for index in range(count)]
    assert [kind for kind, _, _ in entries] == [0, 1, 2]
    start = 264 + 24 * count
    assert start + sum(size for _, _, size in entries) == len(data)
    definition = json.loads(data[start : start + entries[0][2]])
    assert definition["soc"] == "Ascend310P3"
    assert definition["precision"] == "fp16"
    assert (start + entries[0][2]) % 64 == 0
    for _, offset, size in entries:
        assert data[start + offset : start + offset + size]


def test_a_broken_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    description = {"name": "m", "soc": "Ascend310P3", "kind": "static", "format": om.FORMAT}
    with pytest.raises(om.OmError, match="off"):
        om.write(path, description, b"graph", [b"123"], 4)
    assert list(tmp_path.iterdir()) == []


def test_a_write_replaces_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(b"old")
    description = {"name": "m", "soc": "Ascend310P3", "kind": "static", "format": om.FORMAT}
    om.write(path, description, b"graph", [b"1234"], 4)
    assert bytes(om.read(str(path)).graph) == b"graph"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.om"]

"""The manifest is the same value before and after a file, and refuses what it cannot vouch for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from atc_configs.contract import load_contract
from atc_configs.manifest import GraphFile, Manifest, ManifestError, gears_of, read_manifest


def manifest() -> Manifest:
    contract = load_contract("ppocr", gears={"cls": [[1], [2]]})
    return Manifest(
        family="ppocr",
        digest=contract.digest,
        precision=contract.precision,
        dims=contract.dims,
        gears=gears_of(contract),
        soc="Ascend310P3",
        graphs={"cls": GraphFile("cls.om", "ab", 3, command=("atc",), parity={"cosine": 1.0})},
    )


def test_what_is_written_is_read_and_rebuilds_its_contract(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    read = read_manifest(tmp_path)
    assert read == manifest()
    assert [dict(g) for g in read.contract().graph("cls").gears] == [{"B": 1}, {"B": 2}]
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_a_bundle_of_another_contract_is_refused_with_the_remedy(tmp_path: Path) -> None:
    dataclasses.replace(manifest(), digest="0" * 64).write(tmp_path)
    with pytest.raises(ManifestError, match=r"contract 000000000000.*hyocr compile"):
        read_manifest(tmp_path).contract()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no manifest.json"),
        ("{", "manifest.json: Expecting"),
        ("[]", "format 'list'"),
        (json.dumps({"format": 99}), "format 99, this release reads 1"),
        (json.dumps({"format": 1, "graphs": {}}), "not a manifest of this release"),
        (json.dumps({"format": 1, "graphs": {}, "gears": {}, "x": 1}), "unexpected keyword"),
    ],
)
def test_what_is_no_manifest_is_named(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ManifestError, match=said):
        read_manifest(tmp_path)

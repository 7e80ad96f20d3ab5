"""A bundle that does not belong here is refused before it computes nonsense, with the remedy."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.bundle import verify_files
from acl_runtime.engine import AclEngine
from acl_runtime.errors import AclUnavailable, BundleRefused, GraphInputError
from atc_configs.manifest import ManifestError, gears_of, read_manifest
from tests.acl_runtime import toy
from tests.acl_runtime.conftest import ACL


@pytest.fixture
def copied(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "bundle"))


def change(folder: Path, **values: Any) -> None:
    dataclasses.replace(read_manifest(folder), **values).write(folder)


def refused(folder: Path, said: str, **options: Any) -> None:
    with pytest.raises(BundleRefused, match=said):
        AclEngine.open(folder, acl=ACL, **options)


def test_another_chip_is_named_with_the_command_that_mends_it(machine: Any, copied: Path) -> None:
    change(copied, soc="Ascend310B4")
    refused(copied, r"for Ascend310B4, this device is Ascend310P3.*--soc Ascend310P3")


def test_a_file_for_another_chip_under_a_wrong_label_is_refused_by_the_device(
    machine: Any, tmp_path: Path
) -> None:
    folder = toy.bundle(tmp_path / "b", soc="Ascend910B4")
    change(folder, soc="Ascend310P3")
    refused(folder, r"vision\.om: cannot be loaded on this Ascend310P3: .*500002 ACL_ERROR_GE_FAIL")


def test_a_failed_parity_gate_is_refused_unless_forced(machine: Any, copied: Path) -> None:
    change(copied, parity_passed=False)
    refused(copied, "differ too much from the CPU's")
    with AclEngine.open(copied, acl=ACL, force=True) as engine:
        assert engine.gears("vision") == ({"N": 16}, {"N": 32})


def test_a_missing_or_short_file_is_named(machine: Any, copied: Path) -> None:
    data = (copied / "llm.om").read_bytes()
    (copied / "llm.om").write_bytes(data[:-1])
    refused(copied, rf"llm\.om: {len(data) - 1} bytes, the manifest says {len(data)}")
    (copied / "llm.om").unlink()
    refused(copied, r"llm\.om: missing")


def test_a_damaged_file_is_found_by_its_digest(machine: Any, copied: Path) -> None:
    verify_files(copied)
    data = bytearray((copied / "llm.om").read_bytes())
    data[-1] ^= 1
    (copied / "llm.om").write_bytes(data)
    with pytest.raises(BundleRefused, match=r"llm\.om: damaged"):
        verify_files(copied)
    data[0] ^= 1  # and the header's magic, which ACL itself looks at
    (copied / "vision.om").write_bytes(data[: read_manifest(copied).graphs["vision"].size])
    graphs = read_manifest(copied).graphs
    change(copied, graphs={**graphs, "vision": dataclasses.replace(
        graphs["vision"], size=(copied / "vision.om").stat().st_size)})  # fmt: skip
    refused(copied, "145006 ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID")


def test_graphs_of_another_contract_are_told_apart(
    machine: Any, bundle: Path, copied: Path
) -> None:
    """Gears that the manifest promises and the file lacks, and files that were swapped."""
    longer = toy.contract(gears={**toy.GEARS, "vision": [[16], [48]]})
    change(copied, digest=longer.digest, gears=gears_of(longer))
    refused(copied, r"vision\.om: 2 gears instead of 2 \(lacking, for one: \[\[48, 768")
    shutil.copytree(bundle, copied, dirs_exist_ok=True)
    graphs = read_manifest(copied).graphs
    change(copied, graphs={"vision": graphs["llm"], "llm": graphs["vision"]})
    refused(copied, r"11 inputs and 5 outputs, the contract of vision has 4")


def test_a_bundle_from_another_release_is_refused_by_its_contract(
    machine: Any, copied: Path
) -> None:
    change(copied, digest="0" * 64)
    with pytest.raises(ManifestError, match="compiled from contract 000000000000"):
        AclEngine.open(copied, acl=ACL)


def test_a_device_that_is_not_there(machine: Any, bundle: Path) -> None:
    with pytest.raises(AclUnavailable, match=r"device 2 is not there: this process sees 2 device"):
        AclEngine.open(bundle, 2, acl=ACL)


def test_without_pyacl_the_remedy_is_said(bundle: Path) -> None:
    with pytest.raises(AclUnavailable, match=r"cannot import 'no_such_acl'.*set_env\.sh"):
        AclEngine.open(bundle, acl="no_such_acl")


def test_a_wrong_call_of_a_graph_is_named(engine: AclEngine) -> None:
    feeds = {
        "patches": np.zeros((17, 768), np.float32),
        "pos": np.zeros((17, toy.DIMS["E"]), np.float32),
        "mask": np.zeros((1, 17), np.float32),
    }
    with pytest.raises(GraphInputError, match=r"are no gear \(gears: \{'N': 16\}; \{'N': 32\}\)"):
        engine.run("vision", feeds)
    with pytest.raises(GraphInputError, match=r"missing inputs \['mask'\], unknown \['x'\]"):
        engine.run("vision", {"patches": feeds["patches"], "pos": feeds["pos"], "x": feeds["mask"]})
    with pytest.raises(
        GraphInputError, match=r"no graph 'det' in this bundle \(it has vision, llm"
    ):
        engine.run("det", {})


def test_rows_are_checked_at_the_border(engine: AclEngine) -> None:
    array = engine.empty((4, 3), np.float16)
    for act, said in (
        (lambda: array.write(3, np.ones((2, 3))), "rows 3..4 are outside an array of 4 rows"),
        (lambda: array.write(0, np.ones((1, 2))), r"rows of shape \(2,\) into rows \(3,\)"),
        (lambda: array.rows(-1, 2), "rows -1..0 are outside"),
        (lambda: array.copy_rows(0, array, 3, 2), "rows 3..4 are outside"),
    ):
        with pytest.raises(GraphInputError, match=said):
            act()
    array.write(0, np.arange(12).reshape(4, 3))
    array.copy_rows(0, array, 2, 1)
    assert array.rows(0, 2).numpy().tolist() == [[6, 7, 8], [3, 4, 5]]
    array.close()

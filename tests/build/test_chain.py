"""Export, lint, compile, bundle, parity: the whole way, for both families."""

from __future__ import annotations

from pathlib import Path

from ascend.build.bundle import compile_bundle
from ascend.build.bundle_parity import check_bundle
from ascend.build.calibration import draw_pages
from ascend.build.export import read_export
from ascend.build.op_table import load_op_table
from ascend.build.oplint import is_clean, lint
from atc_configs.manifest import read_manifest
from atc_configs.soc import load_soc

CHIPS = ("Ascend310P3", "Ascend310B1", "Ascend910B4")


def _lint_all(folder: Path) -> None:
    exported = read_export(folder)
    for chip in CHIPS:
        for name, spec in exported.contract.graphs.items():
            path = folder / exported.graphs[name]["file"]
            findings = lint(path, load_soc(chip), load_op_table(), spec.atc["precision_mode_v2"])
            assert is_clean(findings), [finding.text() for finding in findings]


def test_hunyuanocr_from_checkpoint_to_checked_bundle(
    hunyuan_export, tiny, tmp_path, compiler, machine
):
    _lint_all(hunyuan_export)
    for chip in CHIPS:
        compile_bundle(hunyuan_export, load_soc(chip), tmp_path / chip)
    # A copy of the folder is all that a box needs.
    bundle = (tmp_path / "Ascend310P3").rename(tmp_path / "copied")
    machine.reset(soc="Ascend310P3")
    verdict = check_bundle(bundle, tiny, [draw_pages()[0]], max_tokens=4)
    assert verdict.emulated
    assert verdict.graphs.keys() == {"vision", "llm"}
    assert not [refusal for refusal in verdict.refusals if not refusal.startswith("texts")]
    assert read_manifest(bundle).parity_passed is verdict.passed
    assert read_manifest(bundle).graphs["llm"].parity["cosine"] > 0.999


def test_ppocr_from_wheel_to_checked_bundle(ppocr_export, tmp_path, compiler, machine):
    _lint_all(ppocr_export)
    compile_bundle(ppocr_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    machine.reset(soc="Ascend310P3")
    verdict = check_bundle(tmp_path / "bundle", None, [draw_pages()[0]])
    assert verdict.passed, verdict.refusals
    ((cpu, npu),) = verdict.texts
    assert cpu == npu
    assert "INVOICE" in cpu
    assert read_manifest(tmp_path / "bundle").parity_passed is True

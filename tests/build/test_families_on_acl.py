"""Both families read pages on the ACL engine as they do on the CPU, from the command line too, and
a fault of the device ends in the fallback's answer."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend.build.bundle import compile_bundle
from ascend.build.bundle_parity import TEXT_BOUND, Verdict
from ascend.build.calibration import draw_pages
from ascend.build.export import export_model
from ascend.cli import main
from ascend.families import ReadRequest
from ascend.opening import open_family
from atc_configs.soc import load_soc
from host_pipeline.page import Page
from tests.build.small_page import Small
from tests.threads import at_once


@pytest.fixture
def ppocr_bundle(ppocr_export: Path, tmp_path: Path, compiler: Path) -> Path:
    compile_bundle(ppocr_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def hunyuan_bundle(hunyuan_export: Path, tmp_path: Path, compiler: Path) -> Path:
    compile_bundle(hunyuan_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    return tmp_path / "bundle"


def drawn() -> Page:
    return Page(draw_pages()[0], "drawn")


def saved(folder: Path) -> Path:
    from PIL import Image

    Image.fromarray(draw_pages()[0]).save(folder / "page.png")
    return folder / "page.png"


def test_the_command_line_reads_with_ppocr_on_an_npu(
    machine: Any, ppocr_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(saved(tmp_path))
    assert main(["read", page, "--engine", "acl", "--model", str(ppocr_bundle)]) == 0
    npu = json.loads(capsys.readouterr().out)
    family = open_family("ppocr", gears_of=ppocr_bundle)
    cpu = family.read(drawn(), ReadRequest("spotting"))
    family.close()
    assert (npu["engine"], npu["emulated"]) == ("acl", True)
    assert [line["text"] for line in npu["lines"]] == [line.text for line in cpu.lines]


def test_the_command_line_reads_with_hunyuanocr_on_an_npu(
    machine: Any, hunyuan_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(saved(tmp_path))
    argv = ["read", page, "--engine", "acl", "--model", str(hunyuan_bundle), "--max-tokens", "8"]
    assert main(argv) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["engine"], answer["emulated"]) == ("acl", True)
    assert answer["usage"]["completion_tokens"] == 8


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two graphs are traced and compiled
def test_hunyuanocr_in_float32_gives_the_tokens_of_the_torch_engine(
    machine: Any, tiny: Path, tmp_path: Path, compiler: Path
) -> None:
    gears = {
        "vision": [[1200], [1216]],
        "llm": [
            [1, 1, 1024, 1],
            [1, 1, 2048, 1],
            [2, 1, 1024, 1],
            [1, 8, 1024, 8],
            [1, 512, 16, 1],
        ],
    }
    export_model(
        tiny,
        tmp_path / "export",
        precision="float32",
        gears=gears,
        parity_gears={"vision": [[1200]], "llm": [[1, 1, 1024, 1]]},
    )
    compile_bundle(tmp_path / "export", load_soc("Ascend310P3"), tmp_path / "bundle", gears=gears)
    noise = np.random.default_rng(0).integers(0, 255, (100, 150, 3)).astype(np.uint8)
    pages = (drawn(), Page(noise, "noise"))
    requests = [
        ReadRequest("spotting_hunyuan", options={"max_tokens": 48, "draft": draft})
        for draft in (True, False)
    ]
    results = []
    for model, engine in ((tiny, "torch"), (tmp_path / "bundle", "acl")):
        with contextlib.closing(open_family(str(model), engine, precision="fp32")) as family:
            results.append([family.read(page, request) for page in pages for request in requests])
    answers = [[result.raw for result in side] for side in results]
    assert len(set(answers[0])) == 2  # drafts change nothing
    assert answers[0] == answers[1]
    penalties = {result.settings["repetition_penalty"] for side in results for result in side}
    assert penalties == {1.08}
    assert sum(result.usage["drafted_kept_tokens"] for result in results[1]) > 0
    with contextlib.closing(open_family(str(tmp_path / "bundle"), "acl", slots=2)) as family:
        work = [(page, request) for page in pages for request in requests[1:]]
        assert at_once(2, lambda i: family.read(*work[i]).raw) == answers[0][1::2]
    ran = {gear[0] for name, gear in machine.counters.executes if name == "llm"}
    assert ran == {1, 2}  # two sequences went through one execution


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hunyuanocr_in_float16_reads_within_the_gates_bound_of_the_torch_engine(
    machine: Any, small_reader: Small
) -> None:
    """Answers that mean something; the bound is that of `hyocr parity` (one rounding may flip one
    character). Graph by graph the gate is tested in test_chain.py."""
    page = small_reader.page
    asked = [(page, ReadRequest("spotting"))]
    for shift in range(6):
        moved = Page(np.roll(page.pixels, (shift % 3, 5 * shift), (0, 1)), f"moved {shift}")
        asked.append((moved, ReadRequest("text")))
    with contextlib.closing(small_reader.open()) as npu:
        texts = [(small_reader.cpu.read(*one).raw, npu.read(*one).raw) for one in asked]
    verdict = Verdict({}, tuple(texts), (), True)
    assert min(len(cpu) for cpu, _ in texts) > 5
    assert verdict.text_score >= TEXT_BOUND, texts


@pytest.mark.parametrize(
    "kind",
    ["device_lost", *(pytest.param(k, marks=pytest.mark.slow) for k in ("error", "oom", "nan"))],
)
def test_a_fault_of_the_device_ends_in_the_fallbacks_answer(
    machine: Any, ppocr_bundle: Path, tmp_path: Path, kind: str
) -> None:
    config = tmp_path / "ocr.yaml"
    config.write_text(
        f"ocr_engine: {{primary: {{engine: acl, model: {ppocr_bundle}}},"
        " fallback: {engine: auto, model: ppocr}, cool_down_s: 0, canary: false}\n"
    )
    with contextlib.closing(open_family(str(config))) as family:
        well = family.read(drawn(), ReadRequest("spotting"))
        assert (well.engine, well.fallback_reason) == ("acl", None)
        fault = machine.faults.inject("acl.mdl.execute_async", nth=2, kind=kind)
        result = family.read(drawn(), ReadRequest("spotting"))
        assert fault.hits == 1
        assert result.engine == "ort" and result.fallback_reason
        assert [line.text for line in result.lines] == [line.text for line in well.lines]

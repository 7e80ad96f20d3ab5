"""The reader scored on a sheet of fresh slips by every engine and precision; and what must not
change an answer does not change it.

Truth and slips: `scripts/train_reader/sheet.py`. The bounds are differences to float32 on the same
slips: the slips of text and boxes hold about 800 characters, so 0.01 of error rate is 8 of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ascend.api import OCR
from ascend.build.bundle import compile_bundle
from ascend.build.export import export_model
from atc_configs.soc import load_soc
from scripts.train_reader.sheet import Sheet

READER = Path(__file__).parents[1] / "data" / "reader"
SHEET = Sheet(READER)
GEARS = {
    "vision": [[120], [1200]],
    "llm": [
        [1, 1, 256, 1], [1, 1, 512, 1], [4, 1, 256, 1],
        [1, 8, 256, 8], [1, 8, 512, 8],
        [1, 64, 16, 1], [1, 64, 512, 1], [4, 64, 16, 1], [4, 64, 512, 1],
    ],
}  # fmt: skip
Answers = list[str]


def read_sheet(ocr: OCR, at_once: int = 1) -> Answers:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda i: SHEET.read(ocr, i), range(len(SHEET.slips))))


@pytest.fixture(scope="module")
def exact() -> Answers:
    with OCR(str(READER), "torch", precision="fp32", threads=1) as ocr:
        return read_sheet(ocr)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def export(precision: str) -> Path:
        if precision not in made:
            folder = tmp_path_factory.mktemp(precision)
            parity = {"vision": [[120]], "llm": [[1, 1, 256, 1]]}
            export_model(READER, folder, precision=precision, gears=GEARS, parity_gears=parity)
            made[precision] = folder
        return made[precision]

    return export


@pytest.fixture
def bundle(
    exported: Callable[[str], Path], tmp_path: Path, compiler: Path, machine: Any
) -> Callable[[str], Path]:
    """Compiles an export for the emulated 310P3."""

    def make(precision: str) -> Path:
        compile_bundle(
            exported(precision), load_soc("Ascend310P3"), tmp_path / precision, gears=GEARS
        )
        return tmp_path / precision

    return make


def assert_near(answers: Answers, exact: Answers, cer: float, f1: float, fields: float) -> None:
    got, want = SHEET.score(answers), SHEET.score(exact)
    assert abs(got["cer"] - want["cer"]) <= cer, (got, want)
    assert abs(got["f1_iou50"] - want["f1_iou50"]) <= f1, (got, want)
    assert abs(got["field_accuracy"] - want["field_accuracy"]) <= fields, (got, want)


def test_the_reader_reads_its_world(exact: Answers) -> None:
    scores = SHEET.score(exact)  # of 500 pages: 0.014 to 0.020, 0.998, 0.918 (its README)
    assert scores["cer"] <= 0.02, scores
    assert scores["f1_iou50"] >= 0.97, scores
    assert scores["field_accuracy"] >= 0.88, scores


@pytest.mark.parametrize(
    ("precision", "cer", "f1", "fields"),
    [("bf16", 0.005, 0.03, 0.05), ("int8", 0.01, 0.05, 0.05), ("int4", 0.01, 0.05, 0.1)],
)
def test_a_lower_precision_scores_alike(
    exact: Answers, precision: str, cer: float, f1: float, fields: float
) -> None:
    with OCR(str(READER), "torch", precision=precision, threads=1) as ocr:
        assert_near(read_sheet(ocr), exact, cer, f1, fields)


@pytest.mark.parametrize(
    ("settings", "at_once"),
    [
        pytest.param({"slots": 4}, 4, id="four-slots"),
        pytest.param({"slots": 3, "chunk": 16}, 6, id="three-slots-chunks-of-16"),
        pytest.param({"chunk": 7}, 1, id="chunks-of-7"),
    ],
)
def test_batches_and_chunks_change_no_character(
    exact: Answers, settings: dict[str, int], at_once: int
) -> None:
    with OCR(str(READER), "torch", precision="fp32", threads=1, **settings) as ocr:
        assert read_sheet(ocr, at_once) == exact


def test_in_8_bits_company_changes_no_character() -> None:
    with OCR(str(READER), "torch", precision="int8", threads=1, slots=4) as ocr:
        assert read_sheet(ocr, at_once=4) == read_sheet(ocr)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_onnx_runtime_gives_the_same_text(exact: Answers, exported: Callable[[str], Path]) -> None:
    with OCR(str(exported("float32")), "ort", threads=1) as ocr:
        assert read_sheet(ocr) == exact


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slots", [1, 4])
def test_the_npu_in_float32_gives_the_same_text_through_its_gears(
    exact: Answers, bundle: Callable[[str], Path], slots: int
) -> None:
    with OCR(str(bundle("float32")), "acl", slots=slots) as ocr:
        answers = read_sheet(ocr, slots)
        without = [SHEET.read(ocr, index, draft=False) for index in range(6)]
    assert answers == exact
    assert without == exact[:6]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_npu_in_float16_scores_alike(exact: Answers, bundle: Callable[[str], Path]) -> None:
    with OCR(str(bundle("float16")), "acl") as ocr:
        assert_near(read_sheet(ocr), exact, cer=0.01, f1=0.05, fields=0.05)

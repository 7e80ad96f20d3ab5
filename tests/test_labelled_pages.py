"""The embedded reader on labelled pages against its bounds (RapidOCR's figure in brackets)."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rapidocr", reason="the embedded model files come with the package rapidocr")

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("HYOCR_EVAL_DIR", ROOT.parent / "shared" / "data" / "eval_shared"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (DATA / "labels.jsonl").is_file(),
        reason=f"no labelled pages in {DATA}; name their folder in HYOCR_EVAL_DIR",
    ),
]


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    from ascend import OCR

    bench = _module("bench_read", ROOT / "scripts" / "bench_read.py")
    score = _module("score", DATA.parent / "score.py")
    labels = [json.loads(x) for x in (DATA / "labels.jsonl").read_text("utf-8").strip().split("\n")]
    with OCR() as ocr:
        rows = [{"id": x["id"], **bench.predict(ocr, DATA / x["image"], x)} for x in labels]
    return score.evaluate(labels, rows)[0]  # type: ignore[no-any-return]


def test_lines_and_order(report: dict[str, Any]) -> None:
    page = report["all"]
    assert page["det"]["f"] >= 0.81  # (0.786)
    assert page["text"]["char_recall"] >= 0.966  # (0.966)
    assert page["text"]["line_exact"] >= 0.906  # (0.906)
    assert page["page_cer"] <= 0.06  # (0.20)
    assert page["blank_ok"] == "1/1"  # (0/1)


def test_fields_of_receipts(report: dict[str, Any]) -> None:
    assert report["receipt"]["fields"]["*"]["acc"] >= 0.80  # (0.68 by simple rules)


# RapidOCR 3.10.0 with its defaults on the same pages: detection F, character recall.
RAPID = {
    "receipt": (0.829, 0.970),
    "scene": (0.324, 0.770),
    "document": (0.689, 0.957),
    "invoice": (0.722, 0.998),
    "table": (0.771, 0.996),
    "zh": (0.645, 0.995),
    "photo": (0.784, 0.931),
}


@pytest.mark.parametrize("tag", RAPID)
def test_no_group_is_worse_by_more_than_a_point(report: dict[str, Any], tag: str) -> None:
    detection, recall = RAPID[tag]
    assert report[tag]["det"]["f"] >= detection - 0.01
    assert report[tag]["text"]["char_recall"] >= recall - 0.01

"""The embedded reader against RapidOCR on labelled pages: CPU time a page, and the scores.

    python scripts/bench.py read --data DIR [--score score.py] [--most 20]

DIR holds labels.jsonl and images/. Both readers see every page, turn by turn, in one process with
the same number of threads; the ratio is that of the summed CPU times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ascend.api import OCR
from host_pipeline.result import Quad, Result

DATA = Path(os.environ.get("HYOCR_EVAL_DIR", Path(__file__).parents[2] / "shared/data/eval_shared"))


def main(argv: list[str]) -> int:
    """Print one line a measure; 0 when both readers ran."""
    parser = argparse.ArgumentParser(prog="bench.py read")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--score", type=Path, help="score.py of the data (default: beside it)")
    parser.add_argument("--most", type=int, help="only the first pages")
    parser.add_argument("--out", type=Path, help="folder for both readers' predictions")
    args = parser.parse_args(argv)
    labels = [
        json.loads(x) for x in (args.data / "labels.jsonl").read_text("utf-8").strip().split("\n")
    ]
    labels = labels[: args.most]
    rapid = _rapid()
    predictions: dict[str, list[dict[str, Any]]] = {"ours": [], "rapidocr": []}
    with OCR() as ocr:
        ocr.read(args.data / labels[0]["image"])
        rapid(args.data / labels[0]["image"])
        for label in labels:
            path = args.data / label["image"]
            predictions["ours"].append(_timed(predict, ocr, path, label))
            predictions["rapidocr"].append(_timed(_rapid_row, rapid, path, label))
    _report(predictions)
    score = args.score or args.data.parent / "score.py"
    if score.is_file():
        _scores(score, labels, predictions)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, rows in predictions.items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (args.out / f"{name}.jsonl").write_text(text, "utf-8")
    return 0


def predict(ocr: OCR, path: Path, label: dict[str, Any]) -> dict[str, Any]:
    """Our answer in the scorer's form: quads in the frame of the page as displayed, so a page
    that the reader turned is turned back."""
    keys = tuple(label.get("fields") or ())
    if keys:
        result = ocr.read(path, "fields", keys=keys)
    else:
        result = ocr.read(path, "table" if label.get("html") else "spotting")
    row: dict[str, Any] = {
        "lines": [{"text": x.text, "poly": shown(x.quad, result)} for x in result.lines]
    }
    if keys:
        row["fields"] = {f.name: "" if f.value is None else str(f.value) for f in result.fields}
    if label.get("html"):
        row["html"] = result.tables[0].html if result.tables else ""
    return row


def shown(quad: Quad | None, result: Result) -> list[float]:
    """The quad's eight numbers before the reader's own turn of the page."""
    points = np.asarray(quad, float)
    x, y = points[:, 0], points[:, 1]
    w, h = result.page_width, result.page_height
    back = {0: (x, y), 90: (y, w - x), 180: (w - x, h - y), 270: (h - y, x)}[result.turned]
    return [float(v) for v in np.stack(back, 1).reshape(-1)]


def _rapid() -> Callable[[Path], list[dict[str, Any]]]:
    from rapidocr import RapidOCR

    threads = len(os.sched_getaffinity(0))
    engine = RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        }
    )

    def read(path: Path) -> list[dict[str, Any]]:
        found = engine(str(path))
        if found.txts is None:
            return []
        return [
            {"text": text, "poly": [float(v) for v in np.asarray(box).reshape(-1)]}
            for text, box in zip(found.txts, found.boxes, strict=True)
        ]

    return read


def _rapid_row(
    rapid: Callable[[Path], list[dict[str, Any]]], path: Path, label: dict[str, Any]
) -> dict[str, Any]:
    return {"lines": rapid(path)}


def _timed(
    read: Callable[[Any, Path, dict[str, Any]], dict[str, Any]],
    reader: Any,
    path: Path,
    label: dict[str, Any],
) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    row = read(reader, path, label)
    times = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {"id": label["id"], **row, **times}


def _report(predictions: dict[str, list[dict[str, Any]]]) -> None:
    for clock in ("cpu", "wall"):
        ours, rapid = ([row[clock] for row in rows] for rows in predictions.values())
        ratios = [a / b for a, b in zip(ours, rapid, strict=True)]
        print(
            f"{clock} s a page: ours {statistics.mean(ours):.2f}, RapidOCR "
            f"{statistics.mean(rapid):.2f}; ratio of sums {sum(ours) / sum(rapid):.3f}, median of "
            f"page ratios {statistics.median(ratios):.3f} ({len(ours)} pages)"
        )


def _scores(
    path: Path, labels: list[dict[str, Any]], predictions: dict[str, list[dict[str, Any]]]
) -> None:
    spec = importlib.util.spec_from_file_location("score", path)
    assert spec is not None and spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    for name, rows in predictions.items():
        overall = score.evaluate(labels, rows)[0]["all"]
        parts = {
            "detection F": overall.get("det", {}).get("f"),
            "character recall": overall.get("text", {}).get("char_recall"),
            "lines exact": overall.get("text", {}).get("line_exact"),
            "ordered page CER": overall.get("page_cer"),
            "blank": overall.get("blank_ok"),
            "fields": overall.get("fields", {}).get("*", {}).get("acc"),
        }
        print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in parts.items() if v is not None))

"""The product reads the stored sample pages: the same answers on every path, and the right ones.

`samples.json` holds, for each page and task, the truth (`wanted`) and what the weights answer in
float32 (`given`). The slip is read as it is, the large canvas under the fixed 480x640 profile.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.train_reader.decoding import edit_distance, parse_fields, parse_spotting

READER = Path(__file__).parents[1] / "data" / "reader"
SAMPLES: dict[str, Any] = json.loads((READER / "samples.json").read_text("utf-8"))
CASES = [
    pytest.param(name, answer, id=f"{name}-{answer['task']}")
    for name, page in SAMPLES.items()
    for answer in page["answers"]
]


def ask(ocr: Any, name: str, answer: dict[str, Any]) -> str:
    """The model's untouched answer to one stored case."""
    keys = tuple(parse_fields(answer["wanted"])) if answer["task"] == "fields" else ()
    resize = "fixed" if "480x640" in name else "hug"
    result = ocr.read(READER / name, answer["task"], keys=keys, resize=resize)
    return str(result.raw)


@pytest.fixture(scope="module")
def exact() -> Iterator[Any]:
    from ascend.api import OCR

    with OCR(str(READER), "torch", precision="fp32", threads=1) as ocr:
        yield ocr


@pytest.mark.parametrize(("name", "answer"), CASES)
def test_the_product_gives_the_stored_answer(exact: Any, name: str, answer: dict[str, Any]) -> None:
    assert ask(exact, name, answer) == answer["given"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_line_of_a_sample_is_found_where_it_stands(exact: Any, name: str) -> None:
    lines = exact.read(READER / name, "spotting").lines
    wanted = SAMPLES[name]["lines"]
    assert [line.text for line in lines] == [line["text"] for line in wanted]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_lower_precision_reads_the_slip_alike(precision: str) -> None:
    from ascend.api import OCR

    name = "sample_96x320.png"
    with OCR(str(READER), "torch", precision=precision, threads=1) as ocr:
        for answer in SAMPLES[name]["answers"]:
            faults = edit_distance(answer["given"], ask(ocr, name, answer))
            assert faults <= max(1, len(answer["given"]) // 20), answer["task"]


def test_the_stored_answers_are_the_truth_on_the_slip() -> None:
    for answer in SAMPLES["sample_96x320.png"]["answers"]:
        if answer["task"] == "spotting":
            wanted, given = parse_spotting(answer["wanted"]), parse_spotting(answer["given"])
            assert [text for text, _ in given] == [text for text, _ in wanted]
        else:
            assert answer["given"] == answer["wanted"]

"""The CPU benchmark: what it prints is what its workers measured."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scripts import bench_cpu
from scripts.bench_cpu import Candidate, run_llama, table
from scripts.bench_cpu_accuracy import read_sheet

READER = Path(__file__).parents[1] / "data" / "reader"

# llama.cpp b8885 tools/mtmd and common/common.cpp print these lines, among others.
REPORT = """
image slice encoded in 8123 ms
llama_perf_context_print: prompt eval time =    1400.50 ms /   335 tokens
llama_perf_context_print:        eval time =    7600.00 ms /   200 runs   (   38.00 ms per token)
"""


def candidate(name: str, vision: float, prefill: float, decode: float) -> Candidate:
    times = {"vision": vision, "prefill": prefill, "decode": decode}
    measured = {stage: [{"wall": s, "cpu": 2 * s}] * 3 for stage, s in times.items()}
    process: Any = None
    ours = not name.startswith("transformers")
    if ours:
        measured["decode_4"] = [{"wall": 0.05, "cpu": 0.1}]
    return Candidate(name, ours, process, 1.0, measured, 3_000_000_000, first_token_s=6.5)


def test_the_table_shows_ratios_against_transformers() -> None:
    base = candidate("transformers bfloat16", 8.0, 2.0, 0.1)
    ours = candidate("int8", 4.0, 1.0, 0.025)
    rows = table([base, ours], None).splitlines()
    assert rows[0].count("|") == rows[1].count("|") == rows[3].count("|")
    assert rows[3] == (
        "| int8 | 1.0, 6.5 | 4.00 (8.00) | 1.00 (2.00) | 25.0 (50.0) | 80.0 | 10.0 | 3.00 |"
        " 2.00, 2.00, 4.00, 3.00 |"
    )


def test_a_stage_that_was_left_out_is_a_dash_and_a_long_one_is_named() -> None:
    base = candidate("transformers float32", 70.0, 2.0, 0.1)
    ours = candidate("int8", 4.0, 1.0, 0.025)
    base.once.append("vision")
    for one in (base, ours):
        del one.times["prefill"]
    rows = table([base, ours], None).splitlines()
    assert rows[3] == (
        "| int8 | 1.0, 6.5 | 4.00 (8.00) | – (–) | 25.0 (50.0) | 80.0 | – | 3.00 |"
        " 17.50, –, 4.00, – |"
    )
    assert rows[-1] == "transformers float32: one call each, the first: vision 70 s"


def test_llama_cpp_is_read_from_its_own_report(tmp_path: Path) -> None:
    fake = tmp_path / "llama-mtmd-cli"
    fake.write_text(f"#!{sys.executable}\nimport sys\nsys.stderr.write({REPORT!r})\n")
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    figures = run_llama(fake, tmp_path / "t.gguf", tmp_path / "m.gguf", threads=1)
    assert figures == {"vision": 8.123, "prefill": 1.4005, "decode": 0.038}
    assert "| llama.cpp | | 8.12 | 1.40 | 38.0 | | 17.1 | |" in table([], figures)
    fake.write_text(f"#!{sys.executable}\nprint('hello')\n")
    with pytest.raises(SystemExit, match="printed nothing like"):
        run_llama(fake, tmp_path / "t.gguf", tmp_path / "m.gguf", threads=1)


@pytest.mark.slow
def test_a_whole_run_on_the_tiny_shape(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shape", "tiny", "--profiles", "int8", "fp32", "--rounds", "1", "--steps", "2"]
    assert bench_cpu.main([*options, "--threads", "1", "--accuracy"]) == 0
    printed = capsys.readouterr().out
    assert "| transformers bfloat16 |" in printed
    assert "| int8 |" in printed
    assert "int8: rows 0.0" in printed


@pytest.mark.slow
def test_accuracy_is_that_of_labelled_slips(tmp_path: Path) -> None:
    for file in READER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    asked = json.loads((READER / "sheet.json").read_text("utf-8"))
    sheet = np.asarray(Image.open(READER / "sheet.png"))
    slip = sheet[: len(sheet) // len(asked)]  # the first; it is read twice
    wanted = ["", asked[0]["wanted"]]
    (tmp_path / "sheet.json").write_text(
        json.dumps([{"task": "text", "wanted": w} for w in wanted])
    )
    Image.fromarray(np.concatenate([slip, slip])).save(tmp_path / "sheet.png")
    costs = read_sheet(tmp_path, ["int8"], threads=1)
    assert list(costs) == ["fp32", "int8"]
    assert costs["fp32"]["answers changed of 2"] == 0
    assert costs["fp32"]["cer"] >= 1 and costs["fp32"]["exact_pages"] <= 0.5  # one label is empty


@pytest.mark.slow
def test_decoding_is_measured_without_a_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shape", "tiny", "--profiles", "int4", "--rounds", "1", "--steps", "2"]
    assert bench_cpu.main([*options, "--threads", "1", "--stages", "decode"]) == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| int4")]
    assert "| – (–) | – (–) |" in row
    assert float(row.split("|")[5].split("(")[0]) > 0

"""hyocr plan: forecasts that hold together, the gears found, what does not fit, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ascend.cli import main
from ascend.planning.model import chip_limits, open_planned
from ascend.planning.pages import PageSize, page_need, read_pages
from ascend.planning.plan import make_plan
from atc_configs.contract import load_contract
from atc_configs.soc import load_soc
from profiling.costs import OpCost
from profiling.roofline import ChipLimits, forecast_graph

CHIPS = ("Ascend310P3", "Ascend310B1", "Ascend910B4")


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    path = tmp_path / "sizes.csv"
    path.write_text("width,height,count,print_px\n640,480,10,\n1240,1754,5,10\n3000,2000,1,40\n")
    return path


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("plan") / "sizes.csv"
    path.write_text("width,height,count\n640,480,10\n1240,1754,5\n")
    return {chip: make_plan("hunyuanocr", chip, pages=path, compare=True) for chip in CHIPS}


def test_a_faster_chip_is_forecast_faster_and_ranges_are_ranges(plans: Any) -> None:
    for part in ("vision", "prefill", "token", "page"):
        pages = [
            plans[chip]["page"][part] for chip in ("Ascend910B4", "Ascend310P3", "Ascend310B1")
        ]
        assert all(0 < low <= high for low, high in pages)
        lows = [low for low, _ in pages]
        assert lows == sorted(lows)


def test_decoding_is_bound_by_the_weights_and_no_faster_than_memory(plans: Any) -> None:
    plan = plans["Ascend310P3"]
    step = next(g for g in plan["gears"] if g["gear"] == [1, 1, 1024, 1])
    assert step["dominant"] == "weights"
    # 1.08 GB of weights and 0.1 GB of cache at 204.8 GB/s
    assert step["ms"][0] >= 1.178e9 / 204.8e9 * 1e3
    assert step["ms"][1] >= 1.178e9 / 144e9 * 1e3


def test_the_gears_found_are_a_contract_and_cost_no_more(plans: Any) -> None:
    for plan in plans.values():
        found = plan["found"]
        gears = {"vision": [[n] for n in found["vision"]], "llm": found["llm"]}
        load_contract("hunyuanocr", None, gears)
        assert found["page"]["page"][0] <= found["page_before"]["page"][0] * 1.0001
        assert found["page"]["waste"] <= found["page_before"]["waste"]
        costs = [entry["cost"] for entry in found["curve"]]
        assert costs == sorted(costs, reverse=True)


def test_parts_of_memory_sum_and_the_bounds_are_bounds(plans: Any) -> None:
    for chip, plan in plans.items():
        memory = plan["memory"]
        assert sum(memory["parts"].values()) == memory["total"] <= memory["worst"]
        assert memory["fits"], chip
        assert memory["largest_batch"] >= 1
        assert memory["largest_canvas"] >= max(g["gear"][0] for g in plan["gears"]
                                               if g["graph"] == "vision")  # fmt: skip


def test_alternatives_have_one_chosen_for_each_topic(plans: Any) -> None:
    entries = plans["Ascend310P3"]["alternatives"]
    topics = {e["topic"] for e in entries}
    assert topics == {"attention", "cache", "text graph", "vision queries"}
    assert {
        t: sum(e["chosen"] for e in entries if e["topic"] == t) for t in topics
    } == dict.fromkeys(topics, 1)
    two = next(e for e in entries if e["name"] == "prefill.om and decode.om")
    assert two["memory"] == pytest.approx(1.078e9, rel=0.01)
    bound, copied = (
        next(e for e in entries if e["name"] == name)["token"]
        for name in ("new rows bound in place", "cache returned by the graph")
    )
    assert copied[1] > bound[1]


def test_a_chip_that_is_too_small_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    planned = open_planned("hunyuanocr")
    chip = chip_limits(load_soc("Ascend310B1"))
    assert chip.memory_bytes == (8 << 30) - (2 << 30)
    assert planned.counts.source == "formula"
    assert main(["plan", "hunyuanocr", "--soc", "310B1", "--tokens", "100"]) == 0
    out = capsys.readouterr().out
    assert "a forecast, not a measurement" in out and "none compiled" in out


def test_the_command_prints_json_for_a_config(
    tmp_path: Path, sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from scripts.make_checkpoint import TINY, config_of

    config = tmp_path / "config.json"
    config.write_text(json.dumps(config_of(TINY)))
    command = ["plan", str(config), "--soc", "Ascend310P3", "--pages", str(sizes), "--json"]
    assert main([*command, "--batch", "1,4", "--tokens", "50"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["pages"] == {**plan["pages"], "pages": 3, "print_measured": 2}
    assert [b["batch"] for b in plan["batches"]] == [1, 4]


def test_small_print_decides_the_patches() -> None:
    plain = page_need(PageSize(1280, 960))
    assert plain.patches == 40 * 30 * 4
    large = page_need(PageSize(1280, 960, print_px=20, measured=True))
    assert large.patches == 20 * 15 * 4
    assert page_need(PageSize(1280, 960, measured=True)).patches == large.patches
    assert plain.canvas_patches(1200) <= 1200
    # down x (across + newline), image start and end, the rest of the prompt
    assert large.prompt_rows(9999) == 15 * 21 + 2 + 40


def test_pages_of_a_folder_are_measured(tmp_path: Path) -> None:
    Image.new("RGB", (64, 32), "white").save(tmp_path / "a.png")
    (tmp_path / "note.txt").write_text("no picture")
    assert read_pages(tmp_path) == [PageSize(64, 32, 1.0, None, True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [("width\n3\n", "height"), ("width,height\n0,5\n", "start at 1"), ("width,height\n", "no page"),
     ("width,height\nx,5\n", "invalid literal")],
)  # fmt: skip
def test_a_table_that_cannot_be_used(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(text)
    assert main(["plan", "hunyuanocr", "--soc", "310P3", "--pages", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no/such", "--soc", "310P3"], 4, "neither"),
        (["ppocr", "--soc", "310P3"], 2, "HunyuanOCR"),
        (["hunyuanocr", "--soc", "Ascend310"], 4, "did you mean"),
        (["hunyuanocr", "--soc", "310P3", "--tokens", "90000"], 4, "compile with"),
    ],
)
def test_what_cannot_be_planned(
    command: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *command]) == code
    assert message in capsys.readouterr().err


def test_an_operator_waits_for_the_slowest_of_its_limits() -> None:
    chip = ChipLimits("toy", 1e12, (1e9, 2e9), 1 << 30, 1 << 20, gap_us=(0, 0))
    cube = forecast_graph([OpCost("a", "MatMul", cube=4e9)], chip)
    assert (cube.dominant, cube.ms.high) == ("matrix unit", pytest.approx(10))
    assert cube.ms.low == pytest.approx(5)
    moved = forecast_graph([OpCost("a", "MatMul", cube=1, weights=1e7, between=1e6)], chip)
    assert (moved.dominant, moved.ms.high) == ("weights", pytest.approx(11))
    assert moved.ms.low == pytest.approx(5)  # what is between stays in L2

"""HunyuanOCR above the engine seam: what it shows the model, and what it makes of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend.errors import UsageError
from ascend.families import ReadRequest
from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles, is_released, open_files
from fallback.dims import FULL
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS, TaskError, UnknownTask
from scripts.make_checkpoint import TINY, write_checkpoint
from tests.families.pages import codes, draw_page, say
from tests.families.scripted_engine import BEGIN, CONTENT, END, NEWLINE, ScriptedEngine


def test_the_engine_sees_the_layout_with_content_rows_between_constant_rows(
    files: ModelFiles,
) -> None:
    engine = ScriptedEngine(files, lambda page, asked: "x")
    HunyuanOCR(engine, files, chunk=50).read(draw_page(90, 120), ReadRequest("spotting"))
    (prompt,) = engine.prompts
    special = files.special
    row = [*[CONTENT] * 4, NEWLINE]  # 120 px wide: four merged columns of 32 px
    image = [special.image_start, BEGIN, *row * 3, END, special.image_end]
    instruction = files.tokenizer.encode(TASKS["spotting_hunyuan"].instruction)
    assert prompt == [special.begin, special.system_end, *image, *instruction, special.user_end]


def test_gears_pad_the_patches_and_bound_cache_and_chunk(files: ModelFiles) -> None:
    gears = {
        "vision": ({"N": 64}, {"N": 256}, {"N": 1200}),
        "llm": tuple(
            {"B": b, "Q": q, "S": s, "R": r}
            for b, q, s, r in ((1, 1, 512, 1), (1, 1, 700, 1), (1, 4, 700, 4), (1, 128, 600, 1))
        ),
    }
    engine = ScriptedEngine(files, lambda page, asked: "x", gears)
    family = HunyuanOCR(engine, files)
    assert family.scheduler.capacity == 700
    result = family.read(draw_page(200, 200), ReadRequest("structured_parse"))
    assert result.text == "x"
    assert engine.patch_counts == [(10 * 10, 256)]  # letters of 15 px need no more
    with pytest.raises(UsageError, match="takes 1600 patches, the compiled vision graph 1200"):
        family.read(draw_page(640, 640), ReadRequest("text", options={"resize": "native"}))


def test_the_prompt_of_a_page_that_leaves_no_room_is_refused(files: ModelFiles) -> None:
    family = say(files, "x", capacity=200)
    native = ReadRequest("structured_parse", options={"resize": "native"})
    with pytest.raises(UsageError, match="the cache holds 200"):
        family.read(draw_page(480, 640), native)


def test_a_small_cache_makes_a_small_canvas(files: ModelFiles) -> None:
    result = say(files, "x", capacity=320).read(
        draw_page(900, 900, 30, 0.4), ReadRequest("formula")
    )
    height, width = result.settings["canvases"][0]
    assert height * width // 256 <= (240 - 64) * 4 / 1.15
    assert result.text == "x" and result.settings["max_tokens"] >= 320 // 4 - 64
    assert "small_print" in codes(result)


def test_boxes_come_back_in_page_pixels(files: ModelFiles) -> None:
    # 300x420 on a canvas of 320x448: 250 of 1000 across is 112 canvas pixels, the same on the page.
    result = say(files, "Total(250,100),(500,200)").read(draw_page(), ReadRequest("spotting"))
    (line,) = result.lines
    assert line.text == "Total"
    assert line.quad == ((112.0, 32.0), (224.0, 32.0), (224.0, 64.0), (112.0, 64.0))
    assert line.score is not None and 0.9 < line.score <= 1.0


@pytest.mark.parametrize(
    ("size", "resize", "expected"),
    [
        ((960, 1280), "fixed", (320.0, 240.0)),
        ((960, 480), "fixed", (320.0, 240.0)),
        ((100, 900), "native", (225.0, 25.0)),
        ((2000, 200), "native", (50.0, 500.0)),
    ],
)
def test_every_canvas_maps_back(
    files: ModelFiles, size: tuple[int, int], resize: str, expected: tuple[float, float]
) -> None:
    page = draw_page(*size)
    family = say(files, "A(250,250),(1000,1000)")
    result = family.read(page, ReadRequest("spotting", options={"resize": resize}))
    assert result.lines[0].quad is not None
    assert result.lines[0].quad[0] == pytest.approx(expected, abs=0.02)
    assert max(x for x, _ in result.lines[0].quad) <= page.width


def test_a_small_page_is_enlarged_to_what_the_model_knows(checkpoint: Path) -> None:
    released = open_files(checkpoint)  # 512² pixels at least
    result = say(released, "A(0,0),(1000,1000)").read(draw_page(150, 210), ReadRequest("spotting"))
    ((height, width),) = result.settings["canvases"]
    assert 512**2 <= height * width <= 1200 * 256
    assert result.lines[0].quad is not None
    assert result.lines[0].quad[2] == pytest.approx((210, 150), abs=0.5)


def test_a_result_says_everything_about_its_making(files: ModelFiles) -> None:
    request = ReadRequest("doc_parse", options={"temperature": 0.5, "seed": 7, "draft": False})
    result = say(files, "# Title\n\ntext").read(draw_page(), request)
    assert (result.source, result.page_index, result.page_count) == ("page.png", 2, 5)
    assert (result.page_width, result.page_height) == (420, 300)
    assert (result.task, result.engine, result.emulated) == ("doc_parse", "scripted", False)
    assert result.raw == "# Title\n\ntext" and result.markdown is not None
    assert (result.finish_reason, codes(result)) == ("stop", ["first_frame"])
    settings = result.settings
    assert settings["profile"] == "checkpoint" and settings["repetition_penalty"] == 1.08
    assert (settings["temperature"], settings["seed"]) == (0.5, 7)
    assert (settings["rope"], settings["table"]) == ("train", "scale")
    assert settings["canvases"] == [[320, 448]]
    assert result.usage["completion_tokens"] == len("# Title\n\ntext") + 1
    assert result.usage["prompt_tokens"] > 140
    assert {"letterbox", "patches", "vision", "prefill", "decode_step", "sampling", "parse"} <= set(
        result.timings_ms
    )
    assert result.model.name == "tiny" and len(result.model.digest or "") == 16
    assert Result.from_dict(result.to_dict()) == result


def test_fields_are_asked_by_name_and_scored(files: ModelFiles) -> None:
    answer = '```json\n{"合计": "12.50", "日期": null}\n```'
    asked: list[str] = []

    def reply(page: int, instruction: str) -> str:
        asked.append(instruction)
        return answer

    family = HunyuanOCR(ScriptedEngine(files, reply), files)
    result = family.read(draw_page(), ReadRequest("fields", keys=("合计", "日期")))
    assert "['合计', '日期']" in asked[0]
    total, date = result.fields
    assert (total.name, total.value) == ("合计", "12.50")
    assert total.score is not None and total.score > 0.9
    assert (date.value, date.score) == (None, None)
    schema = {"type": "object", "properties": {"合计": {"type": "number"}}}
    result = family.read(draw_page(), ReadRequest("fields", schema=schema))
    assert result.fields[0].value == 12.5
    with pytest.raises(TaskError):
        family.read(draw_page(), ReadRequest("fields"))


def test_an_unsure_line_scores_lower_than_a_sure_one(files: ModelFiles) -> None:
    def doubt(tokens: int, logits: np.ndarray) -> np.ndarray:
        return logits * (0.4 if 6 <= tokens <= 9 else 1.0)

    engine = ScriptedEngine(files, lambda page, asked: "first\nblur?\nthird", fault=doubt)
    result = HunyuanOCR(engine, files).read(draw_page(), ReadRequest("structured_parse"))
    first, blurred, third = (line.score for line in result.lines)
    assert first is not None and blurred is not None and third is not None
    assert blurred < min(first, third) - 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": 1}, "unknown option 'colour'; HunyuanOCR has profile, resize"),
        ({"profile": "fast"}, "unknown profile 'fast'; there are official-1.5"),
        ({"resize": "crop"}, "resize 'crop': one of hug, fixed, native"),
        ({"budget": 0}, "budget 0"),
        ({"top_p": 2.0}, "top_p"),
        ({"max_tokens": "many"}, "max_tokens 'many': must be a whole number"),
        ({"tile": "yes"}, "tile 'yes': must be true or false"),
    ],
)
def test_wrong_options_are_refused_by_name(
    files: ModelFiles, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        say(files, "x").read(draw_page(), ReadRequest("text", options=options))


def test_an_unknown_task_is_refused(files: ModelFiles) -> None:
    with pytest.raises(UnknownTask):
        say(files, "x").read(draw_page(), ReadRequest("poem"))


def test_generation_settings_are_the_checkpoints_the_vendors_or_the_callers(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "old", TINY, release="1.0")
    old = open_files(tmp_path / "old")
    assert old.patches.max_pixels == 2048 * 2048
    own = say(old, "x").read(draw_page(), ReadRequest("text")).settings
    assert (own["profile"], own["repetition_penalty"]) == ("checkpoint", 1.03)
    options = {"profile": "official-1.0", "top_k": -1, "max_tokens": 9}
    asked = say(old, "x").read(draw_page(), ReadRequest("text", options=options)).settings
    assert (asked["profile"], asked["repetition_penalty"]) == ("official-1.0", 1.0)
    assert (asked["top_k"], asked["top_p"], asked["max_tokens"]) == (0, 0.95, 9)


def test_a_model_of_the_released_sizes_uses_the_vendors_settings() -> None:
    assert is_released(FULL)
    assert not is_released(TINY)

"""HunyuanOCR above the engine seam: what it shows the model, and what it makes of the answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from ascend.errors import DeadlineExceeded, UsageError
from ascend.families import ReadRequest
from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles, open_files
from host_pipeline.page import Page
from host_pipeline.result import Notice, Result
from host_pipeline.tasks import TASKS, TaskError, UnknownTask
from tests.families.scripted_engine import (
    BEGIN,
    CONTENT,
    END,
    NEWLINE,
    ScriptedEngine,
)

pytest.importorskip("torch")

from fallback.torch_engine import TorchEngine
from scripts.make_checkpoint import TINY, write_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_checkpoint(folder, TINY, seed=3)
    return folder


@pytest.fixture(scope="module")
def files(checkpoint: Path) -> ModelFiles:
    return open_files(checkpoint)


def draw_page(height: int = 300, width: int = 420, rows: int = 6, size: float = 0.7) -> Page:
    pixels = np.full((height, width, 3), 255, np.uint8)
    step = height / (rows + 1)
    for row in range(rows):
        at = (10, round((row + 1) * step))
        cv2.putText(pixels, f"Total {row} 12.50", at, cv2.FONT_HERSHEY_SIMPLEX, size, (0, 0, 0), 1)
    return Page(pixels, "page.png", index=2, count=5, notices=(Notice("first_frame", "of three"),))


def say(files: ModelFiles, answer: str, **settings: Any) -> HunyuanOCR:
    return HunyuanOCR(ScriptedEngine(files, lambda page, asked: answer), files, **settings)


def codes(result: Result) -> list[str]:
    return [notice.code for notice in result.warnings]


# ---------------------------------------------------------------- the prompt as the engine sees it


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


# ------------------------------------------------------------------------------- answers to Results


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


# ------------------------------------------------------------------------------------ the retry


def test_an_answer_of_only_boxes_is_asked_again_for_plain_text(files: ModelFiles) -> None:
    def reply(page: int, instruction: str) -> str:
        plain = instruction == TASKS["structured_parse"].instruction
        return "Hello\nworld" if plain else "(156,68),(783,758)"

    family = HunyuanOCR(ScriptedEngine(files, reply), files)
    result = family.read(draw_page(), ReadRequest("doc_parse"))
    assert (result.task, result.raw) == ("doc_parse", "Hello\nworld")
    assert "coordinates_only_retried" in codes(result)
    pieces = list(family.stream(draw_page(), ReadRequest("doc_parse")))
    assert "".join(p for p in pieces if isinstance(p, str)) == "Hello\nworld"
    result = family.read(draw_page(), ReadRequest("doc_parse", options={"retry": False}))
    assert result.raw == "(156,68),(783,758)"
    assert "coordinates_only_retried" not in codes(result)


def test_a_stubborn_answer_of_only_boxes_is_asked_again_once(files: ModelFiles) -> None:
    engine = ScriptedEngine(files, lambda page, asked: "(156,68),(783,758)")
    family = HunyuanOCR(engine, files)
    result = family.read(draw_page(), ReadRequest("structured_parse"))
    assert result.raw == "(156,68),(783,758)" and len(engine.patch_counts) == 2
    family.read(draw_page(), ReadRequest("spotting"))
    assert len(engine.patch_counts) == 3  # boxes are what spotting asks for


# ------------------------------------------------------------------------------------ streaming


@pytest.mark.parametrize("answer", ["价格 😀 12", "(1) first\n(2) second", "", "12,5"])
@pytest.mark.parametrize("task", ["doc_parse", "formula"])
def test_a_stream_gives_the_text_in_whole_characters_then_the_result(
    files: ModelFiles, answer: str, task: str
) -> None:
    *pieces, result = say(files, answer).stream(draw_page(), ReadRequest(task))
    assert all(isinstance(piece, str) and "\ufffd" not in piece for piece in pieces)
    assert "".join(map(str, pieces)) == answer
    assert isinstance(result, Result) and result.raw == answer
    assert dict(result.timings_ms).keys() >= {"vision", "prefill", "parse"}


def test_a_stream_may_be_read_from_another_thread_each_time(files: ModelFiles) -> None:
    stream = say(files, "abcdef").stream(draw_page(), ReadRequest("text"))
    pieces: list[Any] = []
    for _ in range(7):
        thread = threading.Thread(target=lambda: pieces.append(next(stream)))
        thread.start()
        thread.join(30)
    assert "".join(p for p in pieces if isinstance(p, str)) == "abcdef"
    assert isinstance(pieces[-1], Result) and "decode_step" in pieces[-1].timings_ms


def test_leaving_a_stream_frees_its_slot(files: ModelFiles) -> None:
    answer = "abcdefgh" * 60
    family = say(files, answer)
    stream = family.stream(draw_page(), ReadRequest("text"))
    next(stream)
    assert family.scheduler.load().active == 1
    stream.close()  # type: ignore[attr-defined]
    assert family.scheduler.load().active == 0
    assert family.read(draw_page(), ReadRequest("text")).raw == answer


# --------------------------------------------------------------------------------- ends and faults


def test_cancel_keeps_what_was_read(files: ModelFiles) -> None:
    seen = threading.Event()
    stream = say(files, "abcdefgh" * 9).stream(
        draw_page(), ReadRequest("text", cancelled=seen.is_set)
    )
    first = next(stream)
    seen.set()
    *_, result = [first, *stream]
    assert isinstance(result, Result)
    assert result.finish_reason == "cancelled" and 1 <= len(result.raw) <= 2
    assert "answer_cut" in codes(result)


def test_a_deadline_is_an_error(files: ModelFiles) -> None:
    with pytest.raises(DeadlineExceeded):
        say(files, "x").read(draw_page(), ReadRequest("text", deadline=time.monotonic() - 1))


def test_nan_is_a_numeric_fault_and_the_next_page_is_clean(files: ModelFiles) -> None:
    ill = [True]

    def fault(tokens: int, logits: np.ndarray) -> np.ndarray:
        return np.full_like(logits, np.nan) if ill and tokens == 3 else logits

    engine = ScriptedEngine(files, lambda page, asked: "abcdef", fault=fault)
    family = HunyuanOCR(engine, files)
    result = family.read(draw_page(), ReadRequest("text", options={"draft": False}))
    assert (result.finish_reason, result.raw) == ("numeric_fault", "abc")
    assert "numeric_fault" in codes(result)
    ill.clear()
    assert family.read(draw_page(), ReadRequest("text")).raw == "abcdef"


def test_one_character_for_ever_is_a_numeric_fault(files: ModelFiles) -> None:
    result = say(files, "!" * 2000).read(draw_page(), ReadRequest("text"))
    assert result.finish_reason == "numeric_fault"


def test_an_answer_is_cut_at_max_tokens_and_at_the_end_of_the_context(files: ModelFiles) -> None:
    text = "".join(chr(97 + i % 26) for i in range(300))
    result = say(files, text).read(draw_page(), ReadRequest("text", options={"max_tokens": 20}))
    assert (result.finish_reason, result.raw) == ("length", text[:20])
    assert "context_full" not in codes(result)
    family = say(files, text, capacity=250)
    result = family.read(draw_page(), ReadRequest("text"))
    assert result.finish_reason == "length" and 0 < len(result.raw) < 250
    assert result.settings["max_tokens"] == len(result.raw)
    assert {"context_full", "answer_cut"} <= set(codes(result))


def test_a_loop_is_stopped_and_said(files: ModelFiles) -> None:
    result = say(files, "start " + "again and " * 900).read(draw_page(), ReadRequest("text"))
    assert result.finish_reason == "repetition"
    assert len(result.raw) < 700
    assert {"repetition_stopped", "repetition_trimmed"} & set(codes(result))


def test_a_table_of_forty_equal_rows_survives(files: ModelFiles) -> None:
    row = "<tr><td>0.00</td><td>-</td></tr>"
    table = f"<table>{row * 40}</table>"
    result = say(files, table).read(draw_page(), ReadRequest("table"))
    assert (result.raw, result.finish_reason) == (table, "stop")
    assert result.tables[0].html.count("<tr>") == 40


# ----------------------------------------------------------------------------------------- options


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


def test_a_model_of_the_released_sizes_uses_the_vendors_settings(checkpoint: Path) -> None:
    from ascend.families import hunyuanocr_files
    from fallback.dims import FULL

    assert hunyuanocr_files.is_released(FULL)
    assert not hunyuanocr_files.is_released(TINY)


# ------------------------------------------------------------------------------------------- tiles


def small_print(height: int = 1600, width: int = 500) -> Page:
    return draw_page(height, width, rows=height // 25, size=0.4)


def test_small_print_is_read_in_tiles_and_lines_of_the_overlap_stand_once(
    files: ModelFiles,
) -> None:
    lines = [f"line number {i} of the page" for i in range(12)]
    parts = ["\n".join([*lines[:5], "li"]), "\n".join(lines[3:9]), "\n".join(lines[8:])]

    def reply(page: int, instruction: str) -> str:
        return parts[page]

    engine = ScriptedEngine(files, reply)
    options = {"budget": 700}
    result = HunyuanOCR(engine, files).read(small_print(), ReadRequest("text", options=options))
    assert "tiled" in codes(result) and len(engine.patch_counts) == 3
    assert result.text.split("\n") == lines
    assert len(result.lines) == 12 and all(line.score for line in result.lines)
    off = {**options, "tile": False}
    shrunk = HunyuanOCR(ScriptedEngine(files, lambda p, a: "x"), files).read(
        small_print(), ReadRequest("text", options=off)
    )
    assert "small_print" in codes(shrunk) and "tiled" not in codes(shrunk)


def test_boxes_of_tiles_are_page_pixels_and_stand_once(files: ModelFiles) -> None:
    page = small_print()
    family = HunyuanOCR(ScriptedEngine(files, lambda p, a: "A(0,0),(500,20)"), files)
    result = family.read(page, ReadRequest("spotting", options={"budget": 700}))
    canvases = result.settings["canvases"]
    assert len(result.lines) == len(canvases) == 3
    tops = [line.quad[0][1] for line in result.lines if line.quad]
    assert tops[0] == 0 and tops == sorted(tops) and tops[-1] > page.height / 2


def test_a_form_that_cannot_be_put_together_is_not_cut(files: ModelFiles) -> None:
    family = say(files, "<table><tr><td>1</td></tr></table>")
    result = family.read(small_print(), ReadRequest("table", options={"budget": 400}))
    assert len(result.settings["canvases"]) == 1 and "small_print" in codes(result)


# ------------------------------------------------------------------------------- the torch engine


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> dict[int, Result]:
    family = HunyuanOCR.open(checkpoint, TorchEngine.open(checkpoint, "fp32", threads=1))
    results = {i: family.read(*job(i)) for i in range(6)}
    family.close()
    return results


def job(i: int) -> tuple[Page, ReadRequest]:
    sizes = ((64, 320), (96, 96), (320, 64), (160, 200), (90, 400), (33, 31))
    tasks = ("spotting", "doc_parse", "structured_parse", "table", "layout", "formula")
    page = draw_page(*sizes[i], rows=2, size=0.5)
    return page, ReadRequest(tasks[i], options={"max_tokens": 12 + 5 * i})


@pytest.mark.parametrize(
    "settings",
    [{"slots": 1, "chunk": 7}, {"slots": 3}, {"slots": 4, "chunk": 32}],
)
def test_threads_batches_and_chunks_change_no_answer(
    checkpoint: Path, alone: dict[int, Result], settings: dict[str, int]
) -> None:
    engine = TorchEngine.open(checkpoint, "fp32", threads=1)
    family = HunyuanOCR.open(checkpoint, engine, **settings)
    results: dict[int, Result] = {}

    def read(i: int) -> None:
        results[i] = family.read(*job(i))

    threads = [threading.Thread(target=read, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    family.close()
    assert {i: r.raw for i, r in results.items()} == {i: r.raw for i, r in alone.items()}
    assert all(results[i].usage["completion_tokens"] >= 1 for i in range(6))


def test_drafts_change_no_answer_of_the_torch_engine(
    checkpoint: Path, alone: dict[int, Result]
) -> None:
    family = HunyuanOCR.open(checkpoint, TorchEngine.open(checkpoint, "fp32", threads=1))
    for i in range(6):
        page, request = job(i)
        options = {**request.options, "draft": False}
        plain = family.read(page, ReadRequest(request.task, options=options))
        assert plain.raw == alone[i].raw and plain.usage["drafted_tokens"] == 0
    family.close()


def test_a_page_equals_transformers_from_pixels_to_tokens(checkpoint: Path) -> None:
    """Native resizing, the maths that transformers implements, greedy with the official penalty."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from PIL import Image

    from tests.host_pipeline.test_prompt import reference_processor

    page, files = draw_page(180, 260), open_files(checkpoint)
    instruction = TASKS["spotting_hunyuan"].instruction
    parts = [{"type": "image"}, {"type": "text", "text": instruction}]
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": parts}]
    processor = reference_processor(checkpoint)
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    image = Image.fromarray(page.pixels)
    given = processor(images=[image], text=[text], return_tensors="pt")
    model = transformers.HunYuanVLForConditionalGeneration.from_pretrained(checkpoint)
    with torch.inference_mode():
        out = model.generate(
            **given,
            do_sample=False,
            repetition_penalty=1.08,
            max_new_tokens=24,
            suppress_tokens=sorted(files.special.banned),
        )
    expected = out[0, given["input_ids"].shape[1] :].tolist()
    expected = [i for i in expected if i not in files.special.stop]
    family = HunyuanOCR.open(
        checkpoint, TorchEngine.open(checkpoint, "fp32", threads=1), rope="hf5", table="size"
    )
    options = {"resize": "native", "max_tokens": 24}
    result = family.read(page, ReadRequest("spotting", options=options))
    family.close()
    assert result.raw == files.tokenizer.decode(expected)
    assert result.usage["prompt_tokens"] == given["input_ids"].shape[1]


# --------------------------------------------------------------------------------- files and layers


def test_a_folder_with_host_tables_gives_the_same_rows_without_the_checkpoint(
    checkpoint: Path, files: ModelFiles, tmp_path: Path
) -> None:
    from ascend.build.host_files import write_host_files
    from fallback.checkpoint import Checkpoint

    write_host_files(Checkpoint(checkpoint), tmp_path)
    exported = open_files(tmp_path)
    assert exported.special == files.special and exported.dims == files.dims
    for name in ("begin", "newline", "end", "position_table", "patch_bias"):
        assert np.array_equal(getattr(exported.tables, name), getattr(files.tables, name))
    ids = np.array([0, 5, 271, 5])
    assert np.array_equal(exported.tables.embed_rows(ids), files.tables.embed_rows(ids))


def test_neither_torch_nor_onnx_is_imported(checkpoint: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from ascend.families.hunyuanocr import HunyuanOCR;"
        "from ascend.families.hunyuanocr_files import open_files;"
        f"open_files(Path({str(checkpoint)!r}));"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'transformers') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"

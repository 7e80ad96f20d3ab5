"""How an answer of HunyuanOCR comes and ends: streams, retries, cancelling, faults, loops."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from ascend.errors import DeadlineExceeded
from ascend.families import ReadRequest
from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS
from tests.families.pages import codes, draw_page, say
from tests.families.scripted_engine import ScriptedEngine


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

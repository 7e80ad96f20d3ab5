"""Pages whose print would be illegible on one canvas."""

from __future__ import annotations

from ascend.families import ReadRequest
from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles
from host_pipeline.page import Page
from tests.families.pages import codes, draw_page, say
from tests.families.scripted_engine import ScriptedEngine


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

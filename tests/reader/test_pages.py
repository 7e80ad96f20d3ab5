"""Drawn pages tell the truth about themselves."""

import random
from pathlib import Path

import numpy as np
import pytest

from scripts.train_reader import samples, vocabulary
from scripts.train_reader.decoding import Score, overlap, parse_fields, parse_spotting
from scripts.train_reader.pages import CELL, Layout, Style, draw_page
from tests.reader.made_pages import made_page
from tests.reader.test_phases_and_training import FONTS, needs_fonts

LAYOUT = Layout((96, 320), 1, 3)


def clean_style() -> Style:
    return Style(Path(FONTS), degrade=0.0)


@needs_fonts
def test_a_seed_names_a_page() -> None:
    first = draw_page(random.Random(5), LAYOUT, Style(FONTS))
    second = draw_page(random.Random(5), LAYOUT, Style(FONTS))
    np.testing.assert_array_equal(first.pixels, second.pixels)
    assert first.lines == second.lines


@needs_fonts
def test_all_ink_lies_in_the_boxes_and_touches_their_sides() -> None:
    rng = random.Random(9)
    for _ in range(20):
        page = draw_page(rng, LAYOUT, clean_style())
        paper = page.pixels[-1, -1].astype(int)
        ink = np.abs(page.pixels.astype(int) - paper).sum(-1) > 0
        for line in page.lines:
            x0, y0, x1, y1 = line.box
            piece = ink[y0:y1, x0:x1]
            assert piece[0].any() and piece[-1].any() and piece[:, 0].any() and piece[:, -1].any()
            ink[y0:y1, x0:x1] = False
        assert not ink.any()


@needs_fonts
def test_lines_never_share_a_row_of_cells() -> None:
    rng = random.Random(2)
    for _ in range(20):
        page = draw_page(rng, Layout((480, 640), 2, 5, widest=340), clean_style())
        rows = [int(line.center_y // CELL) for line in page.lines]
        assert len(set(rows)) == len(rows)
        assert max(line.box[2] - line.box[0] for line in page.lines) <= 342


@needs_fonts
def test_kept_cells_hold_all_the_ink() -> None:
    layout = Layout((480, 640), 2, 4, widest=340, keep=96)
    page = draw_page(random.Random(4), layout, clean_style())
    assert page.cells.shape == (96, 2)
    tiles = samples.cut_tiles(page)
    assert tiles.shape == (96, CELL, CELL, 3)
    shown = {(int(r), int(c)) for r, c in page.cells}
    for line in page.lines:
        for mark in line.marks:
            assert (int(line.center_y // CELL), int(mark.center_x // CELL)) in shown


@needs_fonts
def test_a_slip_on_the_large_canvas_is_grey_beyond_its_sides() -> None:
    layout = Layout((480, 640), 1, 3, page=(96, 320))
    page = draw_page(random.Random(4), layout, Style(FONTS))
    assert (page.pixels[96:] == 114).all() and (page.pixels[:, 320:] == 114).all()
    assert max(line.box[3] for line in page.lines) <= 96
    some = draw_page(
        random.Random(4), Layout((480, 640), 1, 3, page=(96, 320), keep=40), clean_style()
    )
    tiles, beyond = samples.cut_tiles(some), (some.cells >= (3, 10)).any(axis=1)
    assert beyond.sum() == 10 and (tiles[beyond] == 114).all()


def test_every_learned_token_of_a_text_points_at_its_own_cell() -> None:
    page = made_page("AB", "CD")
    grid = samples.whole_grid(page)
    steps = samples.answer_text(page, grid)
    assert [step.text for step in steps] == ["A", "B", "\n", "C", "D"]
    assert [step.slot for step in steps] == [1, 1, 11, 12, 12]


def test_an_asked_key_is_copied_from_the_prompt() -> None:
    page = made_page("姓名：王芳", "Total: 12", "Tax: 3")
    grid = samples.whole_grid(page)
    keys = ["Tax", "姓名", "Total"]
    sequence = [*["image"] * (grid.cells.shape[0] + grid.canvas[0] + 3), *samples.ask_fields(keys)]
    steps = [step for step in samples.answer_fields(keys, page, grid) if step.origin >= 0]
    assert "".join(step.text for step in steps) == "".join(keys)
    assert [sequence[step.origin] for step in steps] == [step.text for step in steps]


def test_cells_know_their_first_characters_and_ink() -> None:
    page = made_page("ABCD")
    contents, boxes, inked = samples.mark_cells(page, samples.whole_grid(page))
    classes = samples.character_classes()
    assert contents[0].tolist() == [classes["A"], classes["B"], classes["C"], 0]
    assert inked[:2].tolist() == [True, True] and not inked[2:].any()
    assert boxes[0, 0] == 0.0 and boxes[0, 2] == pytest.approx(36 / 32)


def test_spotting_answers_parse_back() -> None:
    page = made_page("A (b)", "C")
    steps = samples.answer_spotting(page, samples.whole_grid(page))
    items = parse_spotting("".join(step.text for step in steps))
    assert [text for text, _ in items] == ["A (b)", "C"]
    assert items[0][1] == (0, 60, 190, 270)
    assert vocabulary.COORDINATE_STEP == 5


def test_scores_count_what_they_say() -> None:
    score = Score()
    score.add_text("abcd", "abxd")
    score.add_spotting("ab(0,0),(10,10)c(20,20),(30,30)", "ab(0,0),(10,10)")
    score.add_fields('```json\n{"a": "1", "b": "2"}\n```', '```json\n{"a": "1"}\n```')
    figures = score.figures()
    assert figures["cer"] == round((1 + 2) / (4 + 4), 4)
    assert figures["f1_iou50"] == round(2 / 3, 4)
    assert figures["field_accuracy"] == 0.5
    assert parse_fields("no json") == {}
    assert overlap((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(50 / 150)

"""The drawn page: quads where they belong, text beside them, whatever the Result holds."""

import dataclasses
import logging

import numpy as np
import pytest

from host_pipeline.render import draw_page
from host_pipeline.render.fonts import FontBook, find_font
from host_pipeline.result import Line, Model, Result, rectangle

GREY = np.full((200, 300, 3), 128, np.uint8)
PAGE = Result(
    source="p", page_index=0, page_count=1, page_width=300, page_height=200, rotation=0,
    task="text", model=Model("m"), engine="torch",
)  # fmt: skip


def drawn(*lines, pixels=GREY, text=""):
    result = dataclasses.replace(PAGE, lines=lines, text=text)
    return np.asarray(draw_page(pixels, result)).astype(int)


def test_the_page_is_on_the_left_and_its_text_on_the_right():
    picture = drawn(Line("HELLO", rectangle(100, 50, 200, 80)))
    assert picture.shape == (200, 600, 3)
    page, panel = picture[:, :300], picture[:, 300:]
    assert (page[120:, :] == 128).all()  # nothing is drawn far from the quad
    assert abs(page[50, 150] - 128).max() > 60  # its upper edge
    assert panel[52:79, 102:199].min() < 60  # ink inside the quad
    assert (panel[90:, :] == 255).all() and (panel[:45, :] == 255).all()


def test_the_given_pixels_are_not_drawn_on():
    before = GREY.copy()
    drawn(Line("HELLO", rectangle(100, 50, 200, 80)))
    assert (before == GREY).all()


def test_text_is_turned_with_its_quad():
    up = ((140.0, 180.0), (140.0, 20.0), (170.0, 20.0), (170.0, 180.0))
    panel = drawn(Line("HHHHHHHHHHHH", up))[:, 300:]
    ink_rows = (panel[:, 142:169].min(axis=(1, 2)) < 100).nonzero()[0]
    assert ink_rows.max() - ink_rows.min() > 80


def test_vertical_text_is_stacked():
    panel = drawn(Line("HHH", rectangle(100, 10, 130, 190), vertical=True))[:, 300:]
    ink = panel[12:189, 102:129].min(axis=2) < 100
    rows = ink.any(axis=1).nonzero()[0]
    assert rows.max() - rows.min() > 60


def test_text_without_positions_is_written_out():
    panel = drawn(text="HELLO\nWORLD " * 30)[:, 300:]
    assert panel.min() < 60


@pytest.mark.parametrize(
    "quad",
    [
        rectangle(10, 10, 10, 10),
        rectangle(-50, -50, 2, 2),
        rectangle(290, 190, 5000, 5000),
        rectangle(0, 0, 300, 1),
        ((0.0, 0.0), (300.0, 200.0), (300.0, 200.0), (0.0, 0.0)),
        ((10.0, 10.0), (50.0, 10.0), (10.0, 50.0), (50.0, 50.0)),
        rectangle(5000, 5000, 5100, 5100),
    ],
)
def test_odd_quads_are_drawn_without_harm(quad):
    drawn(Line("text\nof two lines", quad), Line("", quad), Line("v", quad, vertical=True))


@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 5000, 3), (6000, 2, 3)])
def test_odd_pages_are_drawn_and_large_ones_shrunk(shape):
    picture = drawn(Line("x", rectangle(0, 0, 1, 1)), pixels=np.zeros(shape, np.uint8))
    assert max(picture.shape[0], picture.shape[1] // 2) <= 2400


def test_characters_that_the_font_lacks_are_logged(caplog, monkeypatch):
    monkeypatch.setattr("host_pipeline.render.draw.find_font", lambda: None)
    with caplog.at_level(logging.WARNING):
        drawn(Line("收据", rectangle(10, 10, 100, 40)))
    assert "lacks 2 characters" in caplog.text


def test_the_font_is_a_file_that_opens_or_none():
    path = find_font()
    if path is None:
        pytest.skip("no known font file on this machine")
    book = FontBook(path)
    assert book.lacks("Hello 123") == ""
    assert book.size(20) is book.size(20)


def test_the_built_in_face_needs_no_file():
    book = FontBook(None)
    assert book.lacks("Hello") == "" and book.lacks("收") == "收"

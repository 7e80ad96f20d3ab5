"""Scores: the geometric mean of the probabilities of the tokens that wrote a text."""

from __future__ import annotations

import math

import pytest

from ascend.confidence import SpokenText, score_fields, score_lines
from host_pipeline.result import Field, Line


def spoken(*tokens: tuple[str, float]) -> SpokenText:
    """An answer of (text, probability) tokens."""
    text, ends = "", []
    for piece, _ in tokens:
        text += piece
        ends.append(len(text))
    return SpokenText(text, ends, [math.log(p) for _, p in tokens])


def test_a_score_is_the_geometric_mean_of_the_tokens_that_wrote_the_text() -> None:
    said = spoken(("Tot", 0.9), ("al", 0.4), (" 12", 0.5))
    assert said.score(0, 5) == pytest.approx(math.sqrt(0.9 * 0.4), abs=1e-4)
    assert said.score(6, 8) == pytest.approx(0.5)
    assert said.score(0, 8) == pytest.approx((0.9 * 0.4 * 0.5) ** (1 / 3), abs=1e-4)


def test_tokens_of_an_unfinished_character_count_for_that_character() -> None:
    said = spoken(("a", 1.0), ("", 0.2), ("", 0.2), ("中", 0.2), ("b", 1.0))
    assert said.score(0, 1) == 1.0
    assert said.score(1, 2) == pytest.approx(0.2)
    assert said.score(2, 3) == 1.0


def test_nothing_has_no_score() -> None:
    assert spoken(("a", 0.5)).score(1, 1) is None
    assert SpokenText("", [], []).score(0, 0) is None


def test_equal_lines_get_the_scores_of_their_own_places() -> None:
    said = spoken(("N/A", 0.9), ("\n", 1.0), ("N/A", 0.3), ("\n", 1.0), ("end", 0.8))
    lines = score_lines([Line("N/A"), Line("N/A"), Line("made up"), Line("end")], said)
    assert [line.score for line in lines] == [0.9, 0.3, None, 0.8]


def test_a_line_that_json_escaped_is_found() -> None:
    said = spoken(('[{"text": "', 1.0), ('say \\"x\\"', 0.6), ('"}]', 1.0))
    (line,) = score_lines([Line('say "x"')], said)
    assert line.score == pytest.approx(0.6)


def test_a_field_is_scored_by_its_own_value_not_by_an_equal_one_before() -> None:
    said = spoken(
        ('{"a": "', 1.0), ("12", 0.9), ('", "b": "', 1.0), ("12", 0.5), ('", "c": null}', 1.0)
    )
    a, b, c = score_fields([Field("a", "12", "12"), Field("b", 12, "12"), Field("c", None)], said)
    assert (a.score, b.score, c.score) == (0.9, 0.5, None)


def test_answers_of_tiles_are_chained_with_their_own_probabilities() -> None:
    said = SpokenText.chain([spoken(("up", 0.9)), spoken(("down", 0.4))])
    assert said.text == "up\ndown"
    assert [line.score for line in score_lines([Line("up"), Line("down")], said)] == [0.9, 0.4]

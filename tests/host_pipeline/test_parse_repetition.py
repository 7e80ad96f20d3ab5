"""Loops are cut and flagged; pages that truly repeat themselves are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.parse.repetition import find_loop, trim_repetition
from host_pipeline.tasks import task


def codes(answer):
    return {notice.code for notice in answer.warnings}


@pytest.mark.parametrize("unit_length", [1, 7, 200])
def test_a_loop_that_ran_into_the_limit_is_cut_to_one_unit(unit_length):
    unit = (
        ("0123456789abcdefghij" * 10)[:unit_length]
        if unit_length < 200
        else "".join(chr(0x4E00 + i) for i in range(200))
    )
    start = "# Title\n" + "".join(chr(0x5E00 + i) for i in range(50))
    raw = start + unit * (3000 // unit_length + 11) + unit[: unit_length // 2]
    answer = parse_answer(task("text"), raw, to_page=lambda p: p, finish_reason="length")
    assert answer.text == start + unit
    assert answer.finish_reason == "repetition" and codes(answer) == {"repetition_trimmed"}


def test_forty_equal_rows_survive_even_long_ones():
    row = "2024-01-31 | 0.00 | 现金 | " + "x" * 50
    raw = "\n".join([row] * 40)
    answer = parse_answer(task("text"), raw, to_page=lambda p: p)
    assert len(answer.lines) == 40 and answer.finish_reason == "stop"
    assert codes(answer) == {"repetition_suspected"}


def test_365_equal_dates_survive():
    answer = parse_answer(task("text"), "2024-01-31\n" * 365, to_page=lambda p: p)
    assert len(answer.lines) == 365


def test_a_table_of_equal_rows_is_not_a_loop():
    raw = "<table>" + "<tr><td>0.00</td><td>现金</td></tr>" * 200 + "</table>"
    answer = parse_answer(task("table"), raw, to_page=lambda p: p)
    assert answer.tables[0].html == raw and answer.warnings == ()


def test_a_table_that_looped_until_the_limit_is_cut_and_closed():
    raw = "<table><tr><td>a</td></tr>" + "<tr><td></td><td>0</td></tr>" * 300 + "<tr><td></t"
    answer = parse_answer(task("table"), raw, to_page=lambda p: p, finish_reason="length")
    assert answer.finish_reason == "repetition"
    html = answer.tables[0].html
    assert html.count("<td>0</td>") == 1 and html.endswith("</table>")


def test_an_endless_answer_that_ended_by_itself_is_cut_too():
    answer = parse_answer(task("text"), "again and " * 2000, to_page=lambda p: p)
    assert answer.finish_reason == "repetition"


def test_short_answers_are_never_cut():
    assert trim_repetition("ha" * 900, "length") == ("ha" * 900, None)


@given(st.text("ab", min_size=1, max_size=6), st.integers(10, 40), st.text("cd", max_size=30))
def test_cutting_keeps_the_start_and_one_unit(unit, copies, start):
    text = start + unit * copies
    loop = find_loop(text, 0, 10)
    assert loop is not None
    kept = text[: loop.start + loop.length]
    assert kept.startswith(start) and len(kept) <= len(start) + len(unit)
    assert set(text) == set(kept)


def test_a_long_answer_without_a_loop_is_searched_in_no_time():
    text = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(100_000))
    assert find_loop(text, 2000, 10) is None

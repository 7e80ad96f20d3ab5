"""JSON as models write it: read with the least repair, and nothing lost on the way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse.json_text import decode_items, decode_json

TICKS = "`" * 3


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1}',
        f'{TICKS}json\n{{"a": 1}}\n{TICKS}',
        f'{TICKS}\n{{"a": 1}}{TICKS}',
        f'{TICKS}json\n{{"a": 1}}',  # the closing fence was cut off
        ' \n{"a": 1}\n ',
    ],
)
def test_a_fence_is_no_repair(raw):
    decoded = decode_json(raw)
    assert decoded.value == {"a": 1} and decoded.notices == () and decoded.leftovers == ()


def test_a_value_that_holds_backticks_is_not_a_fence():
    value = {"code": f"{TICKS}sh\nls\n{TICKS}"}
    for raw in (json.dumps(value), f"{TICKS}json\n{json.dumps(value)}\n{TICKS}"):
        decoded = decode_json(raw)
        assert decoded.value == value and decoded.notices == ()


REPAIRS = {
    "raw line break": ('{"a": "x\ny"}', {"a": "x\ny"}),
    "latex": (
        r'{"a": "\frac{1}{2} \times \_ \x \alpha"}',
        {"a": r"\frac{1}{2} \times \_ \x \alpha"},
    ),
    "short unicode escape": (r'{"a": "\u12 b"}', {"a": r"\u12 b"}),
    "inner quotes": (
        '{"a": "say "hi" now", "b": "5" pipe"}',
        {"a": 'say "hi" now', "b": '5" pipe'},
    ),
    "trailing comma": ('{"a": 1,}', {"a": 1}),
    "single quotes": ("{'a': 'b'}", {"a": "b"}),
    "fence, line break, cut tail": (
        f'{TICKS}json\n{{"a": "x\ny", "b": [1, 2',
        {"a": "x\ny", "b": [1, 2]},
    ),
}


@pytest.mark.parametrize(("raw", "value"), REPAIRS.values(), ids=REPAIRS)
def test_a_repair_is_made_and_listed(raw, value):
    decoded = decode_json(raw)
    assert decoded.value == value
    assert decoded.notices[0].code == "json_repaired" and decoded.notices[0].text


def test_a_true_escape_is_not_touched():
    decoded = decode_json(r'{"a": "x\ty\nz \\frac \u4e2d \"q\" \/"}')
    assert decoded.value == {"a": 'x\ty\nz \\frac 中 "q" /'} and decoded.notices == ()


def test_a_cut_tail_is_said():
    assert decode_json('{"a": "b", "c": "d').cut
    assert not decode_json('{"a": "b",}').cut


def test_text_around_the_value_is_left_over():
    decoded = decode_json('[Note] the answer: {"a": 1} as asked')
    assert decoded.value == {"a": 1}
    assert decoded.leftovers == ("[Note] the answer:", "as asked")


def test_a_key_that_stands_twice_is_not_swallowed():
    decoded = decode_json('{"a": 1, "a": 2}')
    assert decoded.value == {"a": 1} and decoded.leftovers == ('{"a": 2}',)
    assert decoded.notices[0].code == "json_duplicate_key"


@pytest.mark.parametrize("raw", ["", "no json here", "{", "]", "null and void", "}{"])
def test_what_is_no_json_is_not_made_into_any(raw):
    decoded = decode_json(raw)
    assert not decoded.found and "".join(decoded.leftovers) == raw


def test_nesting_without_end_is_refused_and_kept():
    raw = "[" * 100_000
    decoded = decode_json(raw)
    assert not decoded.found and decoded.leftovers == (raw,)
    assert decode_items(raw)[0] == []


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_cannot_hold_become_words(constant):
    assert decode_json(f'{{"a": {constant}}}').value == {"a": constant}


def test_a_number_of_thousands_of_digits_stays_text():
    assert decode_json('{"a": ' + "9" * 5000 + "}").value == {"a": "9" * 5000}


def test_items_of_a_long_answer_cut_in_the_middle_take_no_time():
    texts = [f'say "hi" {i}' for i in range(500)]
    raw = "[" + ",".join(f'{{"box": [1, 2, 3, 4], "text": "{text}"}}' for text in texts)
    items, decoded = decode_items(raw + ',{"box": [1, 2')
    assert len(items) == 500 and items[499]["text"] == 'say "hi" 499'
    assert decoded.leftovers == ('{"box": [1, 2',)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4), st.booleans())
def test_valid_json_is_read_as_it_is(value, fenced):
    raw = json.dumps(value, ensure_ascii=fenced)
    # "\f" and "\b" before a letter are taken for LaTeX, which is what they are in OCR.
    if "\\f" in raw or "\\b" in raw or "\\t" in raw or "\\r" in raw or "\\n" in raw:
        return
    decoded = decode_json(f"{TICKS}json\n{raw}\n{TICKS}" if fenced else raw)
    assert decoded.value == value and decoded.leftovers == ()


@given(st.text("{}[]\",:'\\ \nabc01`", max_size=60))
def test_no_letter_is_lost_whatever_the_text(raw):
    decoded = decode_json(raw)
    kept = json.dumps(decoded.value, ensure_ascii=False) if decoded.found else ""
    kept += "".join(decoded.leftovers)
    for letter in "abc1":
        assert kept.count(letter) >= raw.count(letter), (decoded, raw)

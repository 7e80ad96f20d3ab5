"""Formulas: delimiters off, brackets balanced, and never more than that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.parse.latex import balance
from host_pipeline.tasks import task

TICKS = "`" * 3


def read(raw):
    return parse_answer(task("formula"), raw, to_page=lambda p: p)


@pytest.mark.parametrize(
    "raw",
    [
        "E = m c^{2}",
        "$E = m c^{2}$",
        "$$ E = m c^{2} $$",
        "\\[E = m c^{2}\\]",
        "\\(E = m c^{2}\\)",
        f"{TICKS}latex\nE = m c^{{2}}\n{TICKS}",
        "$$E = m c^{2}",
    ],
)
def test_delimiters_are_stripped(raw):
    answer = read(raw)
    assert answer.text == "E = m c^{2}" and answer.warnings == ()
    assert answer.markdown == "$$\nE = m c^{2}\n$$"
    assert [line.kind for line in answer.lines] == ["formula"]


def test_several_formulas_and_the_text_between_them_stay_in_order():
    answer = read("$$a=1$$\n其中\n$$b=2$$ (3)")
    assert [(line.text, line.kind) for line in answer.lines] == [
        ("a=1", "formula"),
        ("其中", "text"),
        ("b=2", "formula"),
        ("(3)", "text"),
    ]


BALANCED = [
    r"\frac{a}{b}",
    r"\left( x \right)",
    r"\{ 1, 2 \}",
    r"\begin{array}{l} a \\ b \end{array}",
    r"\left\{ \begin{array}{l} a \\ b \end{array} \right.",
    r"x \leftarrow y \rightarrow z",
    r"\\{a}",
]


@pytest.mark.parametrize("formula", BALANCED)
def test_a_balanced_formula_is_not_touched(formula):
    assert balance(formula) == (formula, [])


@pytest.mark.parametrize(
    ("formula", "mended"),
    [
        (r"\frac{a}{b", r"\frac{a}{b}"),
        (r"\sqrt{\frac{a}{b", r"\sqrt{\frac{a}{b}}"),
        (r"\left( x", r"\left( x\right."),
        (r"x \right)", r"\left. x \right)"),
        (r"\begin{cases} a \\ {b", r"\begin{cases} a \\ {b}\end{cases}"),
        (r"\left\{ \begin{array}{l} a", r"\left\{ \begin{array}{l} a\end{array}\right."),
        (r"& = 2", "= 2"),
        (r"a}", "a"),
        (r"a} + \}", r"a} + \}"),
    ],
)
def test_a_cut_formula_is_closed_and_the_mend_reported(formula, mended):
    found, repairs = balance(formula)
    assert found == mended and repairs


@given(st.text("{}\\ab&() $", max_size=30))
def test_balancing_is_done_once(formula):
    once, _ = balance(formula)
    crossing = "crossing brackets (kept)"
    twice, repairs = balance(once)
    if crossing not in repairs and "&" not in once.lstrip()[:1]:
        assert twice == once
    assert sum(once.count(c) for c in "ab") == sum(formula.count(c) for c in "ab")

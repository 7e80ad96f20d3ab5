"""Figures and bounds of comparisons; the inputs that graphs are compared on."""

from __future__ import annotations

import numpy as np
import pytest

from ascend.build import parity
from ascend.build.calibration import llm_feed
from ascend.build.parity import BOUNDS, Figures, ParityError, compare
from ascend.build.sample_inputs import sample_inputs
from atc_configs.contract import load_contract

ONES = np.ones((2, 3), np.float32)


def test_equal_outputs_have_perfect_figures():
    outputs = {"y": ONES, "ids": np.array([1, 2])}
    assert compare(outputs, outputs) == Figures(0.0, 0.0, pytest.approx(1.0), 1.0)


def test_the_worst_output_counts():
    wanted = {"a": ONES, "b": ONES, "ids": np.array([1, 2, 3, 4])}
    got = {"a": ONES, "b": ONES * 1.5, "ids": np.array([1, 2, 3, 0])}
    figures = compare(got, wanted)
    assert (figures.max_abs, figures.max_rel, figures.equal) == (0.5, 0.5, 0.75)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["first", "last"])
def test_what_is_not_finite_is_out_of_every_bound(value, where):
    """Plain max and min would lose a NaN behind a number."""
    bad = ONES.copy()
    bad[0, 0] = value
    order = ["bad", "good"] if where == "first" else ["good", "bad"]
    wanted = {name: ONES for name in order}
    with np.errstate(invalid="ignore"):
        figures = compare({"bad": bad, "good": ONES}, wanted)
    assert all(bound.refusal(figures) for bound in BOUNDS.values())


def test_zeros_are_compared_as_they_are():
    zero = {"y": np.zeros(3, np.float32)}
    assert compare(zero, zero).cosine == 1.0
    assert BOUNDS["float16"].refusal(compare({"y": ONES[0]}, zero))
    assert compare({"y": np.zeros((0, 3))}, {"y": np.zeros((0, 3))}).cosine == 1.0


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (Figures(1, 0.01, 0.99, 1.0), "cosine 0.990000 is below 0.999"),
        (Figures(1, 0.2, 1.0, 1.0), "of the largest value, above 5e-02"),
        (Figures(1, 0.01, 1.0, 0.5), "only 0.5000 of the integers are equal"),
    ],
)
def test_a_refusal_has_figure_and_bound(figures, said):
    assert said in (BOUNDS["float16"].refusal(figures) or "")
    with pytest.raises(ParityError, match="llm at gear Q=1,S=16"):
        parity.check("llm", [({"Q": 1, "S": 16}, figures)], BOUNDS["float16"])


def test_a_missing_or_misshapen_output_is_an_error():
    with pytest.raises(ParityError, match=r"output y: wanted \(2, 3\), got nothing"):
        compare({}, {"y": ONES})
    with pytest.raises(ParityError, match=r"got \(3,\)"):
        compare({"y": ONES[0]}, {"y": ONES})


@pytest.mark.parametrize(("family", "graph"), [("hunyuanocr", "llm"), ("hunyuanocr", "vision"),
                                               ("ppocr", "det"), ("ppocr", "rec")])  # fmt: skip
def test_drawn_inputs_fit_the_contract_and_repeat(family, graph):
    spec = load_contract(family, {"L": 2} if family == "hunyuanocr" else None).graph(graph)
    gear = spec.gears[0]
    inputs = sample_inputs(spec, gear, "float16", seed=5)
    assert {n: v.shape for n, v in inputs.items()} == spec.input_shapes(gear)
    assert {n: v.dtype.name for n, v in inputs.items()} == {
        t.name: t.dtype_in("float16") for t in spec.inputs
    }
    again = sample_inputs(spec, gear, "float16", seed=5)
    assert all(np.array_equal(inputs[name], again[name]) for name in inputs)


def test_drawn_masks_and_rotations_have_the_form_of_real_ones():
    spec = load_contract("hunyuanocr", {"L": 1}).graph("llm")
    inputs = sample_inputs(spec, {"B": 2, "Q": 8, "S": 10, "R": 3}, "float32")
    assert np.count_nonzero(inputs["past_mask"]) == 2 * 2
    np.testing.assert_array_equal(inputs["chunk_mask"][0] == 0, np.tril(np.ones((8, 8), bool)))
    np.testing.assert_allclose(inputs["cos"] ** 2 + inputs["sin"] ** 2, 1, atol=1e-5)
    np.testing.assert_array_equal(inputs["select"][1].argmax(-1), [5, 6, 7])


def test_a_recorded_chunk_is_padded_to_a_gear():
    spec = load_contract("hunyuanocr", {"L": 1, "C": 4, "D": 2, "K": 1}).graph("llm")
    chunk = [np.ones((3, 4), np.float32), np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)]
    past = {f"past_{side}.0": np.ones((5, 2), np.float32) for side in ("key", "value")}
    feed = llm_feed(spec, chunk, past, [2])
    gear = spec.gear_for(B=1, Q=3, S=5, R=1)
    assert {n: v.shape for n, v in feed.items()} == spec.input_shapes(gear)
    assert np.flatnonzero(feed["past_mask"][0, 0] == 0).tolist() == [0, 1, 2, 3, 4]
    assert feed["select"][0, 0].argmax() == 2
    assert not feed["embeds"][0, 3:].any() and not feed["past_key.0"][0, 5:].any()

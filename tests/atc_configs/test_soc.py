"""The table of chips."""

from __future__ import annotations

import pytest

from atc_configs.contract import ContractError
from atc_configs.soc import load_soc, soc_names

WANTED = [
    *(f"Ascend310P{n}" for n in (1, 3, 5, 7)),
    *(f"Ascend310B{n}" for n in (1, 2, 3, 4)),
    "Ascend910A",
    *(f"Ascend910B{n}" for n in (1, 2, 3, 4)),
    "Ascend910_9391",
]


def test_the_chips_of_the_market_are_there():
    assert set(WANTED) <= set(soc_names())


@pytest.mark.parametrize("name", soc_names())
def test_every_figure_has_a_source_and_says_how_sure_it_is(name):
    soc = load_soc(name)
    low, high = soc.bandwidth_range
    assert 0 < low <= high and soc.memory_bytes > 2**30 and soc.int8_peak == 2 * soc.fp16_peak
    for figure in ("memory_bytes", "bandwidth_range", "fp16_peak"):
        assert soc.sources[figure] and soc.certainty[figure] in ("documented", "derived", "unsure")
    assert soc.budgets.keys() == {"patches", "cache_rows", "slots"}


def test_peak_is_cores_times_the_cube():
    assert load_soc("Ascend310P3").fp16_peak == pytest.approx(8 * 16**3 * 2 * 1060e6, rel=0.01)


def test_the_prefix_and_the_case_do_not_matter():
    assert load_soc("310p3") == load_soc("Ascend310P3")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Ascend310P4", "did you mean.*Ascend310P3"),
        ("Ascend910B", "the old 910.*Ascend910B1"),
        ("H100", "Name column of npu-smi info"),
    ],
)
def test_an_unknown_chip_comes_with_a_suggestion(name, said):
    with pytest.raises(ContractError, match=said):
        load_soc(name)


def test_chips_without_bf16_say_so():
    assert [n for n in WANTED if "bf16" not in load_soc(n).lacks] == [
        *(f"Ascend910B{n}" for n in (1, 2, 3, 4)),
        "Ascend910_9391",
    ]

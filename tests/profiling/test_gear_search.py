"""The gear search: optimal against brute force, and the cases at its edges."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling.gear_search import best_gears, expected_cost, padding_waste


def square(n: int) -> float:
    return float(n * n)


NEEDS = st.dictionaries(st.integers(1, 400), st.floats(0.1, 9), min_size=1, max_size=7)


@settings(max_examples=40, deadline=None)
@given(NEEDS, st.integers(1, 4))
def test_no_list_of_that_length_is_cheaper(needs: dict[int, float], limit: int) -> None:
    found = best_gears(needs, square, limit=limit, step=8, gain=0.0)[-1]
    rounded: dict[int, float] = {}
    for size, weight in needs.items():
        at = -(-size // 8) * 8
        rounded[at] = rounded.get(at, 0) + weight
    most = max(rounded)
    cheapest = min(
        expected_cost(rounded, (*few, most), square)
        for k in range(limit)
        for few in combinations(sorted(rounded), min(k, len(rounded)))
    )
    assert found.cost == pytest.approx(cheapest)
    assert found.gears[-1] == most


def test_lists_get_cheaper_and_end_where_nothing_is_gained() -> None:
    needs = {100: 5.0, 110: 5.0, 900: 1.0, 1000: 1.0}
    lists = best_gears(needs, square, limit=10, step=1)
    assert [len(entry.gears) for entry in lists] == list(range(1, len(lists) + 1))
    costs = [entry.cost for entry in lists]
    assert costs == sorted(costs, reverse=True)
    assert len(best_gears({64: 1.0}, square, limit=10)) == 1


def test_needs_above_the_largest_are_cut_to_it() -> None:
    (found,) = best_gears({5000: 1.0, 9000: 2.0}, square, limit=5, largest=4608)
    assert found.gears == (4608,)
    assert found.waste == 0.0


def test_the_fewest_that_a_compiler_takes() -> None:
    lists = best_gears({100: 1.0, 104: 1.0}, square, limit=5, step=1, fewest=2, gain=0.5)
    assert [len(entry.gears) for entry in lists] == [2]


def test_waste_is_the_share_of_padding() -> None:
    assert padding_waste({50: 1.0, 100: 1.0}, [100]) == pytest.approx(0.25)
    assert padding_waste({100: 3.0}, [100, 200]) == 0.0


def test_nothing_to_search() -> None:
    with pytest.raises(ValueError, match="no sizes"):
        best_gears({}, square, limit=3)

"""Prompt lookup proposes what followed the same words before, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend.draft import PromptLookup
from scripts.bench_drafting import speak


def brute_force(ids: list[int], longest: int, shortest: int, count: int) -> list[int]:
    """The definition, read off: longest suffix first, its latest earlier occurrence, then a copy
    loop."""
    for size in range(min(longest, len(ids) - 1), shortest - 1, -1):
        suffix = ids[-size:]
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == suffix:
                out = list(ids)
                for _ in range(count):
                    out.append(out[start + size + len(out) - len(ids)])
                return out[len(ids) :]
    return []


def test_the_tokens_after_the_latest_occurrence_are_proposed() -> None:
    assert PromptLookup().propose([1, 2, 9, 1, 2, 7, 8, 1, 2], 3) == [7, 8, 1]


def test_nothing_is_proposed_for_an_ending_never_seen() -> None:
    assert PromptLookup().propose([1, 2, 3, 4], 4) == []
    assert PromptLookup().propose([], 4) == []


def test_a_period_is_continued_past_the_end() -> None:
    assert PromptLookup().propose([5, 6, 5, 6], 5) == [5, 6, 5, 6, 5]
    assert PromptLookup().propose([4, 4, 4], 3) == [4, 4, 4]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 7))
def test_the_growing_index_equals_the_definition(ids: list[int], count: int) -> None:
    lookup = PromptLookup(longest=4, shortest=2)
    for end in range(len(ids) + 1):
        assert lookup.propose(ids[:end], count) == brute_force(ids[:end], 4, 2, count)


def test_another_sequence_starts_afresh() -> None:
    lookup = PromptLookup()
    lookup.propose([1, 2, 3, 1, 2], 2)
    assert lookup.propose([7, 8, 9, 7, 8], 2) == [9, 7]


def test_lengths_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="need 1 <= shortest <= longest"):
        PromptLookup(longest=1, shortest=2)


def test_the_benchmark_counts_the_steps_of_the_decoding_loop() -> None:
    answer = [5, 6, 7, 8] * 6
    steps, plain = speak([1, 2], answer, 0)
    assert (steps, plain.drafted) == (len(answer), 0)
    steps, drafted = speak([1, 2], answer, 7)
    assert drafted.tokens == answer
    assert steps - len(answer) + drafted.drafted_kept in (0, 1)  # the last one may only end it
    assert steps < len(answer) / 2

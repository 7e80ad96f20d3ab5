"""Texts of overlapping bands: what both saw stands there once, and nothing is lost."""

from __future__ import annotations

import pytest

from host_pipeline.join import join_pieces, join_texts


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (["a 1\nb 2\nc 3", "b 2\nc 3\nd 4"], "a 1\nb 2\nc 3\nd 4"),
        (["one\ntwo\nthree", "four\nfive"], "one\ntwo\nthree\nfour\nfive"),
        # the last line of the upper and the first of the lower band were cut by the edge
        (["alpha\nbeta line\ngam", "eta l\nbeta line\ngamma ray"], "alpha\nbeta line\ngamma ray"),
        (["head\nthe quick fox", "the qu1ck fox"], "head\nthe quick fox\nthe qu1ck fox"),
        (["head\nthe quick fox", "the quick fcx\ntail"], "head\nthe quick fox\ntail"),
        (["only"], "only"),
        (["", "text"], "\ntext"),
        (["row 1\nrow 2", "row 2\nrow 3", "row 3\nrow 4"], "row 1\nrow 2\nrow 3\nrow 4"),
    ],
)  # fmt: skip
def test_bands_join(parts: list[str], joined: str) -> None:
    assert join_texts(parts) == joined


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (["the quick bro", "ick brown fox"], "the quick brown fox"),
        (["left", "right"], "leftright"),
        (["whole line", "line"], "whole line"),
        (["a", "ab", "bc"], "abc"),
        ([], ""),
    ],
)
def test_pieces_of_a_line_join_where_they_overlap(pieces: list[str], line: str) -> None:
    assert join_pieces(pieces) == line

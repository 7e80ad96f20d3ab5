"""Finds and cuts the loop at the end of an answer that never came to its end.

A greedy decoder that falls into a loop repeats one unit until the token limit. A page may also
truly hold equal rows, so an answer that the model ended itself is cut only where the repetition
is longer than any page. The decoder's own guard, on tokens, is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from host_pipeline.result import FinishReason, Notice

# HunyuanOCR 1.5 inference/utils: answers of 2000 characters and more, 10 copies at the end.
_CUT_SHORT = (2000, 10)
# Ours, for an answer that ended by itself: 40 or 365 equal rows of a real page must survive.
_ENDED = (8000, 100)


@dataclass(frozen=True, slots=True)
class Loop:
    """`text[start:]` is `copies` (and perhaps a part) of a unit of `length` characters."""

    start: int
    length: int
    copies: int


def find_loop(text: str, min_chars: int, min_copies: int) -> Loop | None:
    """The loop with the shortest unit that ends `text`, None if `text` is shorter than
    `min_chars` or the unit stands there fewer than `min_copies` times."""
    n = len(text)
    if n < min_chars:
        return None
    for length in range(1, n // min_copies + 1):
        if text[n - length :] != text[n - 2 * length : n - length]:
            continue
        span = length * min_copies
        if text[n - span + length :] == text[n - span : n - length]:
            start = n - span
            while start > 0 and text[start - 1] == text[start - 1 + length]:
                start -= 1
            return Loop(start, length, (n - start) // length)
    return None


def trim_repetition(text: str, finish_reason: FinishReason) -> tuple[str, Notice | None]:
    """`text` with a loop at its end cut down to one unit, and the notice `repetition_trimmed`.

    What may be a loop or a truly repetitive page stays, with the notice `repetition_suspected`."""
    loop = find_loop(text, *_CUT_SHORT)
    if loop is None:
        return text, None
    unit = text[loop.start : loop.start + loop.length]
    shown = repr(unit if len(unit) <= 60 else unit[:57] + "...")
    min_chars, min_copies = _ENDED
    span = len(text) - loop.start
    if finish_reason == "stop" and (span < min_chars or loop.copies < min_copies):
        message = f"the answer ends in {loop.copies} copies of {shown}; all were kept"
        return text, Notice("repetition_suspected", message)
    message = f"the answer ended in {loop.copies} copies of {shown}; one was kept"
    return text[: loop.start + loop.length], Notice("repetition_trimmed", message)

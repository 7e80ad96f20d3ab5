"""Many pages through one open family: threads that call at once get their own answers, and a long
run leaves the memory as it was."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend.families import ReadRequest
from host_pipeline.page import Page
from tests.build.small_page import Small, answer
from tests.threads import at_once

THREADS, WARM_UP = 8, 200
MIB = 1 << 20


def shifted(page: Page, index: int) -> Page:
    """The same print elsewhere on the page, so that threads have different questions."""
    pixels = np.roll(page.pixels, (index % 3, 2 * index), (0, 1))
    return Page(pixels, f"{page.source} {index}")


@pytest.mark.parametrize(
    "family",
    ["small_ppocr", "small_hunyuan", pytest.param("small_reader", marks=pytest.mark.slow)],
)
def test_eight_threads_get_the_answers_of_one_by_one(
    machine: Any, request: pytest.FixtureRequest, family: str
) -> None:
    small: Small = request.getfixturevalue(family)
    pages = [shifted(small.page, index) for index in range(THREADS)]
    tasks = [("spotting", "text")[index % 2] for index in range(THREADS)]
    asked = [ReadRequest(task, options=small.request.options) for task in tasks]
    with closing(small.open()) as opened:
        wanted = [answer(opened.read(*given)) for given in zip(pages, asked, strict=True)]
        live = machine.live_bytes
        for _ in range(2):
            got = at_once(THREADS, lambda i: answer(opened.read(pages[i], asked[i])))
            assert got == wanted
    assert len(set(wanted)) > 1
    assert live > 0


def resident_bytes() -> int:
    """What the process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.large)])
@pytest.mark.parametrize("family", ["small_ppocr", "small_hunyuan"])
def test_pages_in_a_row_leave_memory_as_it_was(
    machine: Any, request: pytest.FixtureRequest, family: str, count: int
) -> None:
    small: Small = request.getfixturevalue(family)
    with closing(small.open()) as opened:
        wanted = answer(opened.read(small.page, small.request))

        def read(pages: int) -> None:
            for index in range(pages):
                page = replace(small.page, index=index)
                assert answer(opened.read(page, small.request)) == wanted

        read(WARM_UP)
        machine.counters.clear()
        before = (machine.live_bytes, machine.live_handles)
        resident = resident_bytes()
        read(count)
        grown = (resident_bytes() - resident) / MIB
        print(f"{family}: {count} pages, device {before[0]} bytes, host {grown:+.1f} MB")
        assert (machine.live_bytes, machine.live_handles) == before
        assert machine.counters.allocations == machine.counters.host_allocations == 0
        assert grown < 16

"""The design alternatives side by side, by formula: how attention reads the cache, how rows get
into it, one text graph or two, how many parts the vision graph's queries are cut into.

Axes: N patches, S cache rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from profiling.costs import (
    ModelSizes,
    OpCost,
    llm_costs,
    vision_costs,
    vision_work_bytes,
    weight_bytes,
)
from profiling.roofline import ChipLimits, Range, forecast_graph

# One small device-to-device copy: what queueing it costs the host and the device (an assumption).
_COPY_US = (3.0, 10.0)
_PREFILL = (1, 512, 512, 1)  # a later chunk of a prompt


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to do a part of the work. `token`: milliseconds of one decode step at the cache
    length compared; `prefill`: of one chunk of 512 rows behind 512; `vision`: of one page; None
    where it makes no difference. memory: bytes more than the chosen way. chosen: what is built."""

    topic: str
    name: str
    chosen: bool
    token: Range | None = None
    prefill: Range | None = None
    vision: Range | None = None
    memory: int = 0
    note: str = ""


def compare_designs(
    sizes: ModelSizes, chip: ChipLimits, cache: int, patches: int
) -> list[Alternative]:
    """Every alternative, at `cache` rows and `patches` of a page."""
    return [
        *_attention(sizes, chip, cache),
        *_layout(sizes, chip, cache),
        *_graphs(sizes),
        *_query_blocks(sizes, chip, patches),
    ]


def _attention(m: ModelSizes, chip: ChipLimits, cache: int) -> Iterator[Alternative]:
    notes = {
        "blocked": "all heads in one product over the cache as it lies; K times the arithmetic",
        "grouped": "a product for each kv head; the compiler re-lays the cache at every step",
    }
    for form in ("blocked", "grouped"):
        token = forecast_graph(llm_costs(m, 1, 1, cache, 1, form), chip).ms
        prefill = forecast_graph(llm_costs(m, *_PREFILL, form), chip).ms
        yield Alternative(
            "attention", form, form == "blocked", token, prefill, note=notes[form]
        )  # fmt: skip


def _layout(m: ModelSizes, chip: ChipLimits, cache: int) -> Iterator[Alternative]:
    step = llm_costs(m, 1, 1, cache, 1)
    token = forecast_graph(step, chip).ms
    copies = 2 * m.layers
    yield Alternative("cache", "new rows bound in place", True, token,
                      note="token-major slabs; nothing is copied")  # fmt: skip
    copied = token + Range(copies * _COPY_US[0] / 1e3, copies * _COPY_US[1] / 1e3)
    yield Alternative("cache", "new rows copied", False, copied,
                      note=f"{copies} device copies of one row a step")  # fmt: skip
    strided = copies * m.kv_heads
    spread = token + Range(strided * _COPY_US[0] / 1e3, strided * _COPY_US[1] / 1e3)
    yield Alternative("cache", "head-major, rows copied", False, spread,
                      note=f"{strided} strided writes a step (no memcpy2d on 310)")  # fmt: skip
    whole = cache * m.cache_row_bytes
    concat = OpCost("cache concatenated", "Concat", must_move=2 * whole, largest=whole)
    yield Alternative("cache", "cache returned by the graph", False,
                      forecast_graph([*step, concat], chip).ms, memory=whole,
                      note="the whole cache is read and written again at every step")  # fmt: skip


def _graphs(m: ModelSizes) -> Iterator[Alternative]:
    weights = weight_bytes(llm_costs(m, 1, 1, 1024, 1))
    yield Alternative("text graph", "one llm.om with gears", True, note="weights once")
    yield Alternative("text graph", "prefill.om and decode.om", False, memory=weights,
                      note="weights twice; the time is the same")  # fmt: skip


def _query_blocks(m: ModelSizes, chip: ChipLimits, patches: int) -> Iterator[Alternative]:
    own = m.query_blocks
    base = vision_work_bytes(m, patches)
    for blocks in sorted({1, own, 16, 64}):
        cut = replace(m, query_blocks=blocks)
        scores = m.vision_heads * (patches // blocks) * patches * 4
        yield Alternative(
            "vision queries", f"{blocks} blocks", blocks == own,
            vision=forecast_graph(vision_costs(cut, patches), chip).ms,
            memory=vision_work_bytes(cut, patches) - base,
            note="" if scores > chip.l2_bytes else "its scores fit L2",
        )  # fmt: skip

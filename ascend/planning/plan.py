"""One plan, as JSON-ready values: everything that `hyocr plan` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ascend.planning.compare import Alternative, compare_designs
from ascend.planning.forecast import Forecaster, PageForecast, worst_bytes
from ascend.planning.gears import find_gears
from ascend.planning.model import Planned, chip_limits, open_planned
from ascend.planning.pages import PageNeed, PageSize, page_need, read_pages, summarise
from atc_configs.contract import Contract, load_contract
from atc_configs.manifest import gears_of
from atc_configs.soc import Soc, load_soc
from profiling.roofline import ChipLimits, GraphForecast, Range

A4_150_DPI = PageSize(1240, 1754)  # where no pages are given


def make_plan(
    model: str,
    soc: str,
    *,
    pages: Path | None = None,
    tokens: int = 800,
    batches: Sequence[int] = (1, 4, 8),
    compare: bool = False,
) -> dict[str, Any]:
    """The plan of `model` on the chip `soc`. pages: see `read_pages`; without, one page of A4 at
    150 dpi and no search. Raises ModelError, UsageError and ContractError."""
    chip_file = load_soc(soc)
    chip = chip_limits(chip_file)
    planned = open_planned(model)
    contract = planned.contract if planned.compiled else _allowed(planned, chip_file)
    forecaster = Forecaster(planned, chip)
    needs = [page_need(page) for page in (read_pages(pages) if pages else [A4_150_DPI])]
    page = forecaster.page(contract, needs, tokens)
    plan: dict[str, Any] = {
        "model": planned.name,
        "chip": _chip(chip, chip_file),
        "counted_by": planned.counts.source,
        "gears": _gears(forecaster, contract),
        "pages": summarise(needs),
        "page": _page(page),
        "memory": _memory(forecaster, contract, round(page.prompt), tokens),
        "batches": _batches(forecaster, contract, batches, round(page.prompt), tokens),
        "assumptions": _assumptions(chip, tokens),
    }
    if pages:
        plan["found"] = _found(forecaster, needs, tokens, batches, chip_file, page)
    if compare:
        at = {"cache": round(page.prompt) + tokens // 2, "patches": round(page.patches)}
        at = {"cache": -(-at["cache"] // 256) * 256, "patches": -(-at["patches"] // 64) * 64}
        plan["compared_at"] = at
        entries = compare_designs(planned.counts.sizes, chip, at["cache"], at["patches"])
        plan["alternatives"] = [_alternative(entry) for entry in entries]
    return plan


def _allowed(planned: Planned, soc: Soc) -> Contract:
    """The contract with those of its gears that the chip's budgets allow."""
    base = planned.contract
    limits = (("N", "patches"), ("S", "cache_rows"), ("B", "slots"))
    kept = {
        name: [g for g in spec.gears if all(g[s] <= soc.budgets[b] for s, b in limits if s in g)]
        for name, spec in base.graphs.items()
    }
    return load_contract(base.family, base.dims, kept, base.precision)


def _chip(chip: ChipLimits, soc: Soc) -> dict[str, Any]:
    return {
        "name": chip.name,
        "fp16_peak": chip.fp16_peak,
        "bandwidth": list(chip.bandwidth),
        "memory_bytes": chip.memory_bytes,
        "sources": dict(soc.sources),
        "certainty": dict(soc.certainty),
    }


def _gears(forecaster: Forecaster, contract: Contract) -> list[dict[str, Any]]:
    rows = []
    for name, gears in gears_of(contract).items():
        for gear in gears:
            found = forecaster.vision(*gear) if name == "vision" else forecaster.llm(*gear)
            rows.append({"graph": name, "gear": list(gear), **_graph(found)})
    return rows


def _graph(found: GraphForecast) -> dict[str, Any]:
    return {**asdict(found), "ms": _ends(found.ms)}


def _page(page: PageForecast) -> dict[str, Any]:
    ranges = {n: _ends(getattr(page, n)) for n in ("host", "vision", "prefill", "token", "page")}
    plain = ("tokens", "patches", "prompt", "waste", "cut")
    return {**ranges, **{name: getattr(page, name) for name in plain}}


def _memory(forecaster: Forecaster, contract: Contract, prompt: int, tokens: int) -> dict[str, Any]:
    rows = sorted({g["S"] for g in contract.graph("llm").gears if g["B"] == 1 and g["Q"] == 1})
    capacity = next((s for s in rows if s >= prompt + tokens), rows[-1])
    found = forecaster.memory(contract, 1, capacity, prompt)
    sizes = forecaster.planned.counts.sizes
    return {
        "slots": 1,
        "capacity": capacity,
        "parts": dict(found.parts),
        "total": found.total,
        "worst": worst_bytes(found),
        "pinned": found.pinned,
        "host_table": sizes.vocab * sizes.hidden * 2,
        "fits": forecaster.fits(found),
        "largest_canvas": forecaster.largest_canvas(contract, 1, capacity),
        "largest_batch": forecaster.largest_batch(contract, capacity, prompt),
    }


def _batches(
    forecaster: Forecaster, contract: Contract, batches: Sequence[int], prompt: int, tokens: int
) -> list[dict[str, Any]]:
    return [
        {
            "batch": entry.batch,
            "gear": list(entry.gear) if entry.gear else None,
            "step": _ends(entry.step),
            "tokens_per_s": _ends(entry.tokens_per_s),
            "memory": entry.memory.total if entry.memory else None,
            "fits": entry.fits,
        }
        for entry in forecaster.batches(contract, batches, prompt, tokens)
    ]


def _found(
    forecaster: Forecaster,
    needs: Sequence[PageNeed],
    tokens: int,
    batches: Sequence[int],
    soc: Soc,
    before: PageForecast,
) -> dict[str, Any]:
    allowed = [batch for batch in batches if batch <= soc.budgets["slots"]]
    found = find_gears(forecaster, needs, tokens, allowed, soc.budgets)
    return {
        "vision": list(found.vision),
        "llm": [list(gear) for gear in found.llm],
        "curve": [asdict(entry) for entry in found.curve],
        "page": _page(forecaster.page(found.contract, needs, tokens)),
        "page_before": _page(before),
    }


def _alternative(entry: Alternative) -> dict[str, Any]:
    times = {k: getattr(entry, k) for k in ("token", "prefill", "vision")}
    return {**asdict(entry), **{k: _ends(v) if v else None for k, v in times.items()}}


def _assumptions(chip: ChipLimits, tokens: int) -> Mapping[str, str]:
    use, gap, step, page = chip.cube_use, chip.gap_us, chip.host_ms, chip.host_page_ms
    return {
        "answer": f"{tokens} tokens",
        "matrix unit": f"{use[0]:.0%} to {use[1]:.0%} of its peak",
        "vector unit": f"1/{1 / chip.vector_share:.0f} of the matrix unit's peak",
        "between two kernels": f"{gap[0]} to {gap[1]} us",
        "host, between two steps": f"{step[0]} to {step[1]} ms",
        "host, for a page": f"{page[0]:.0f} to {page[1]:.0f} ms",
        "low end": "what fits L2 never leaves it, elementwise steps are fused",
        "high end": "every operator reads and writes memory, one after the other",
    }


def _ends(value: Range) -> list[float]:
    return [value.low, value.high]

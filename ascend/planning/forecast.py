"""The forecast itself: each gear, the mean page, batches, memory. Gears are chosen as the runtime
chooses them: the first of the contract's list that fits.

Axes: B sequences, Q rows of one step, S cache rows, R rows whose logits are wanted, N patches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ascend.memory_plan import MemoryForecast, forecast_memory
from ascend.planning.model import Planned, work_bytes
from ascend.planning.pages import PageNeed
from atc_configs.contract import Contract, ContractError, GraphSpec, load_contract
from atc_configs.manifest import gears_of
from profiling.costs import weight_bytes
from profiling.gear_search import padding_waste
from profiling.roofline import ChipLimits, GraphForecast, Range, forecast_graph

# ATC's plan of the work memory is not known before it runs; by liveness it is the low end.
WORK_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class PageForecast:
    """The mean page, in milliseconds: what each part takes, and one token. `patches`, `prompt`:
    means; `waste`: the share of the vision gears' patches that is padding; `cut`: the share of
    pages that the largest gear shrinks or tiles."""

    host: Range
    vision: Range
    prefill: Range
    token: Range
    tokens: int
    patches: float
    prompt: float
    waste: float
    cut: float

    @property
    def page(self) -> Range:
        """The whole page, one after the other."""
        return self.host + self.vision + self.prefill + self.token * self.tokens


@dataclass(frozen=True, slots=True)
class BatchForecast:
    """`batch` sequences at once: one step in milliseconds, tokens a second in all, memory, and
    whether that fits the chip. gear None: no compiled gear takes so many."""

    batch: int
    gear: tuple[int, ...] | None
    step: Range
    tokens_per_s: Range
    memory: MemoryForecast | None
    fits: bool


class Forecaster:
    """One model on one chip; counts each gear once."""

    def __init__(self, planned: Planned, chip: ChipLimits) -> None:
        self.planned, self.chip = planned, chip
        self.vision = lru_cache(maxsize=None)(self._vision)
        self.llm = lru_cache(maxsize=None)(self._llm)

    def _vision(self, patches: int) -> GraphForecast:
        return forecast_graph(self.planned.counts.vision(patches), self.chip)

    def _llm(self, batch: int, rows: int, cache: int, wanted: int) -> GraphForecast:
        return forecast_graph(self.planned.counts.llm(batch, rows, cache, wanted), self.chip)

    @property
    def weights(self) -> dict[str, int]:
        """Bytes of each graph's constants."""
        counts = self.planned.counts
        gear = self.planned.contract.graph("llm").gears[0]
        llm = counts.llm(*(gear[s] for s in "BQSR"))
        patches = self.planned.contract.graph("vision").gears[0]["N"]
        return {"vision": weight_bytes(counts.vision(patches)), "llm": weight_bytes(llm)}

    def page(self, contract: Contract, needs: Sequence[PageNeed], tokens: int) -> PageForecast:
        """The mean of `needs` by weight, with the gears of `contract`, an answer of `tokens`."""
        gears = sorted(gear["N"] for gear in contract.graph("vision").gears)
        llm = contract.graph("llm")
        total = sum(need.page.weight for need in needs)
        vision = prefill = decode = Range(0, 0)
        patches = prompt = cut = 0.0
        used: dict[int, float] = {}
        for need in needs:
            share = need.page.weight / total
            taken = need.canvas_patches(gears[-1])
            gear = next((g for g in gears if g >= taken), gears[-1])
            used[taken] = used.get(taken, 0.0) + share
            rows = need.prompt_rows(gears[-1])
            vision += self.vision(gear).ms * share
            prefill += self.prefill(llm, rows) * share
            decode += self.decode(llm, rows, tokens) * share
            patches, prompt = patches + taken * share, prompt + rows * share
            cut += share * (need.patches > gears[-1])
        return PageForecast(
            host=Range(*self.chip.host_page_ms),
            vision=vision,
            prefill=prefill,
            token=decode * (1 / max(tokens, 1)),
            tokens=tokens,
            patches=patches,
            prompt=prompt,
            waste=padding_waste(used, gears),
            cut=cut,
        )

    def prefill(self, llm: GraphSpec, rows: int) -> Range:
        """A prompt of `rows` in chunks, as scheduler and runtime cut it."""
        chunk = max((g["Q"] for g in llm.gears if g["B"] == 1 and g["R"] == 1), default=1)
        total, start = Range(0, 0), 0
        while start < rows:
            count = min(chunk, rows - start)
            gear = _first(llm, 1, count, max(start, 1), 1)
            total += self.llm(*gear).ms + Range(*self.chip.host_ms)
            start += min(count, gear[1])
        return total

    def decode(self, llm: GraphSpec, rows: int, tokens: int, batch: int = 1) -> Range:
        """`tokens` steps of `batch` sequences that start behind `rows` rows; milliseconds of all
        steps. Raises ContractError when no gear is long enough."""
        total, done = Range(0, 0), 0
        while done < tokens:
            gear = _first(llm, batch, 1, rows + done, 1)
            steps = min(tokens - done, gear[2] - rows - done + 1)
            total += (self.llm(*gear).ms + Range(*self.chip.host_ms)) * steps
            done += steps
        return total

    def memory(self, contract: Contract, slots: int, capacity: int, prompt: int) -> MemoryForecast:
        """As the runtime allocates, with work memory at the low end."""
        return forecast_memory(
            contract,
            weights=self.weights,
            work=work_bytes(self.planned.counts, contract),
            slots=slots,
            capacity=capacity,
            prompt_rows=prompt,
        )

    def batches(
        self, contract: Contract, batches: Sequence[int], rows: int, tokens: int
    ) -> list[BatchForecast]:
        """Each number of sequences at once, with prompts of `rows` and answers of `tokens`."""
        return [self._batch(contract, batch, rows, tokens) for batch in batches]

    def _batch(self, contract: Contract, batch: int, rows: int, tokens: int) -> BatchForecast:
        llm, nothing = contract.graph("llm"), Range(0, 0)
        try:
            gear = _first(llm, batch, 1, rows + tokens // 2, 1)
            capacity = _first(llm, batch, 1, rows + tokens, 1)[2]
            memory = self.memory(contract, batch, capacity, rows)
        except ContractError:
            return BatchForecast(batch, None, nothing, nothing, None, False)
        step = self.decode(llm, rows, tokens, batch) * (1 / max(tokens, 1))
        rate = Range(1e3 * batch / step.high, 1e3 * batch / step.low)
        return BatchForecast(batch, gear, step, rate, memory, self.fits(memory))

    def fits(self, memory: MemoryForecast) -> bool:
        """Whether it fits even if ATC wants more work memory than by liveness."""
        return worst_bytes(memory) <= self.chip.memory_bytes

    def largest_canvas(self, contract: Contract, slots: int, capacity: int) -> int:
        """The most patches, a multiple of 16, whose vision graph fits beside the rest."""

        def fits(patches: int) -> bool:
            grown = _with_vision(contract, patches)
            return self.fits(self.memory(grown, slots, capacity, patches // 4))

        low, high = 16, 1 << 16
        while high - low > 16:
            middle = (low + high) // 32 * 16
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def largest_batch(self, contract: Contract, capacity: int, prompt: int) -> int:
        """The most sequences whose cache fits, if a gear were compiled for them."""

        def fits(batch: int) -> bool:
            grown = _with_batch(contract, batch, capacity)
            return self.fits(self.memory(grown, batch, capacity, prompt))

        if not fits(1):
            return 0
        low, high = 1, 2
        while fits(high) and high < 512:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def worst_bytes(memory: MemoryForecast) -> int:
    """The forecast with work memory at its high end."""
    work = sum(size for part, size in memory.parts.items() if part.startswith("work"))
    return memory.total + round(work * (WORK_MARGIN - 1))


def _first(
    llm: GraphSpec, batch: int, rows: int, cache: int, wanted: int
) -> tuple[int, int, int, int]:
    """The gear (B, Q, S, R) that the runtime takes; one of fewer rows when none has so many."""
    for gear in llm.gears:
        one = gear["B"] == 1 if batch == 1 else gear["B"] >= batch
        if one and gear["Q"] >= rows and gear["S"] >= cache and gear["R"] >= wanted:
            return gear["B"], gear["Q"], gear["S"], gear["R"]
    shorter = [
        g["Q"]
        for g in llm.gears
        if g["B"] == 1 and g["S"] >= cache and g["Q"] < rows and batch == 1
    ]
    if not shorter:
        raise ContractError(
            f"llm: no gear has B={batch}, Q={rows}, S={cache} together; compile with such a gear,"
            " or plan for fewer tokens"
        )
    return _first(llm, batch, max(shorter), cache, wanted)


def _with_vision(contract: Contract, patches: int) -> Contract:
    return _changed(contract, {"vision": [(16,), (max(patches, 32),)]})


def _with_batch(contract: Contract, batch: int, capacity: int) -> Contract:
    rows: list[tuple[int, ...]] = [
        tuple(g[s] for s in "BQSR") for g in contract.graph("llm").gears if g["B"] == 1
    ]
    more: list[tuple[int, ...]] = [(batch, 1, capacity, 1)] if batch > 1 else []
    return _changed(contract, {"llm": rows + more})


def _changed(contract: Contract, gears: Mapping[str, Sequence[tuple[int, ...]]]) -> Contract:
    kept = {name: rows for name, rows in gears_of(contract).items() if rows}
    return load_contract(contract.family, contract.dims, {**kept, **gears}, contract.precision)

"""The gear lists that a distribution of pages asks for, searched axis by axis.

Axes: B sequences, Q rows of one step, S cache rows, R rows whose logits are wanted, N patches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ascend.planning.forecast import Forecaster
from ascend.planning.pages import PageNeed
from atc_configs.contract import (
    MAX_GEARS,
    MIN_GEARS,
    Contract,
    ContractError,
    Gears,
    load_contract,
)
from profiling.gear_search import GearList, best_gears

# Every gear costs compile time and space, so that a list ends within this of the best one's cost.
_GAIN = 0.05
_ROWS, _CACHE = 16, 256  # steps of the search: a tile of the matrix unit; rows of the cache
_CHUNK = 512  # prompt rows of one prefill step
_DRAFT = 8
_EMPTY_CACHE = 16  # the first chunk sees no past; the contract's graphs want some rows


@dataclass(frozen=True, slots=True)
class FoundGears:
    """Gears by graph as a contract takes them, the contract with them, and the curve of the vision
    search: the best list of each length."""

    vision: tuple[int, ...]
    llm: tuple[tuple[int, int, int, int], ...]
    contract: Contract
    curve: tuple[GearList, ...]


def find_gears(
    forecaster: Forecaster,
    needs: Sequence[PageNeed],
    tokens: int,
    batches: Sequence[int],
    budgets: Mapping[str, int],
) -> FoundGears:
    """The lists with the least expected time for `needs` and answers of `tokens`.

    budgets: the most `patches` and `cache_rows`, of the chip. Raises ContractError when a prompt
    and its answer exceed the cache rows."""
    planned = forecaster.planned
    most = min(budgets["patches"], max(need.patches for need in needs))
    wanted: dict[int, float] = {}
    for need in needs:
        patches = need.canvas_patches(most)
        wanted[patches] = wanted.get(patches, 0.0) + need.page.weight
    curve = best_gears(
        wanted, lambda n: forecaster.vision(n).ms.middle, limit=MAX_GEARS, step=_ROWS,
        largest=budgets["patches"], fewest=MIN_GEARS, gain=_GAIN,
    )  # fmt: skip
    vision = curve[-1].gears
    if len(vision) < MIN_GEARS:
        vision = (*vision, vision[-1] + _ROWS)
    rows = {need: need.prompt_rows(vision[-1]) for need in needs}
    longest = max(rows.values()) + tokens
    if longest > budgets["cache_rows"]:
        raise ContractError(
            f"llm: a prompt of {longest - tokens} rows and {tokens} tokens exceed the"
            f" {budgets['cache_rows']} cache rows of {forecaster.chip.name}; plan for fewer tokens"
        )
    llm = _llm_gears(forecaster, rows, tokens, batches)
    gears: dict[str, Gears] = {"vision": [(n,) for n in vision], "llm": list(llm)}
    contract = load_contract(
        planned.contract.family, planned.contract.dims, gears, planned.contract.precision
    )
    return FoundGears(vision, llm, contract, tuple(curve))


def _llm_gears(
    forecaster: Forecaster,
    rows: Mapping[PageNeed, int],
    tokens: int,
    batches: Sequence[int],
) -> tuple[tuple[int, int, int, int], ...]:
    lengths: dict[int, float] = {}
    first: dict[int, float] = {}
    pasts: dict[int, float] = {}
    for need, prompt in rows.items():
        weight = need.page.weight
        for at in range(prompt, prompt + tokens + 1, 32):
            lengths[at] = lengths.get(at, 0.0) + weight
        lengths[prompt + tokens] = lengths.get(prompt + tokens, 0.0) + weight / 32
        for start in range(0, prompt, _CHUNK):
            part = min(_CHUNK, prompt - start)
            target = first if start == 0 else pasts
            size = part if start == 0 else start
            target[size] = target.get(size, 0.0) + weight
    decode = _best(lengths, lambda s: forecaster.llm(1, 1, s, 1).ms.middle, _CACHE)
    opening = _best(first, lambda q: forecaster.llm(1, q, _EMPTY_CACHE, 1).ms.middle, _ROWS)
    later: tuple[int, ...] = ()
    if pasts:
        later = _best(pasts, lambda s: forecaster.llm(1, _CHUNK, s, 1).ms.middle, _CHUNK)
    gears = [(1, 1, s, 1) for s in decode]
    gears += [(b, 1, s, 1) for b in sorted(batches) if b > 1 for s in decode]
    gears += [(1, _DRAFT, s, _DRAFT) for s in decode]
    gears += [(1, q, _EMPTY_CACHE, 1) for q in opening]
    gears += [(1, _CHUNK, s, 1) for s in later]
    return tuple(gears[:MAX_GEARS])


def _best(needs: Mapping[int, float], cost: Callable[[int], float], step: int) -> tuple[int, ...]:
    return best_gears(needs, cost, limit=8, step=step, gain=_GAIN)[-1].gears

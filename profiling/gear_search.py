"""The sizes worth compiling: gears that make the expected time least for the sizes that come.

An axis at a time: a need runs at the smallest gear that holds it, so the best k gears are a
shortest path over the sorted candidates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class GearList:
    """`gears` ascending; `cost`: the expected cost of one need, in the unit of the search; `waste`:
    the share of the gears' size that is padding, over all needs."""

    gears: tuple[int, ...]
    cost: float
    waste: float


def best_gears(
    needs: Mapping[int, float],
    cost: Callable[[int], float],
    *,
    limit: int,
    step: int = 16,
    largest: int | None = None,
    fewest: int = 1,
    gain: float = 0.01,
) -> list[GearList]:
    """The best list of every length from `fewest` up to `limit`, each an optimum, ended where one
    more gear gains less than `gain` of the cost of the best.

    needs: size -> weight. cost: of one execution at a gear, in any unit, growing with it. Gears are
    multiples of `step`; needs above `largest` are cut to it. Raises ValueError without needs."""
    if not needs:
        raise ValueError("no sizes to search gears for")
    weights: dict[int, float] = {}
    for size, weight in needs.items():
        cut = min(size, largest) if largest else size
        at = -(-max(cut, 1) // step) * step
        weights[at] = weights.get(at, 0.0) + weight
    candidates = sorted(weights)
    paid = [cost(gear) for gear in candidates]
    found = [
        _measured(gears, weights, needs, paid, candidates)
        for gears in _optima(candidates, [weights[c] for c in candidates], paid, limit)
    ]
    floor = found[-1].cost
    enough = next(i for i, f in enumerate(found) if f.cost <= floor * (1 + gain))
    return found[min(fewest, len(found)) - 1 : max(enough + 1, min(fewest, len(found)))]


def padding_waste(needs: Mapping[int, float], gears: Sequence[int]) -> float:
    """The share of what runs that is padding; needs above the largest gear count as its size."""
    ordered = sorted(gears)
    used = padded = 0.0
    for size, weight in needs.items():
        gear = ordered[min(bisect_left(ordered, size), len(ordered) - 1)]
        used += weight * min(size, gear)
        padded += weight * gear
    return 1 - used / padded if padded else 0.0


def expected_cost(
    needs: Mapping[int, float], gears: Sequence[int], cost: Callable[[int], float]
) -> float:
    """The mean cost of one need with these gears; needs above the largest are cut to it."""
    ordered = sorted(gears)
    paid = [cost(gear) for gear in ordered]
    total = sum(
        weight * paid[min(bisect_left(ordered, size), len(ordered) - 1)]
        for size, weight in needs.items()
    )
    return total / sum(needs.values())


def _optima(
    candidates: Sequence[int], weights: Sequence[float], paid: Sequence[float], limit: int
) -> list[tuple[int, ...]]:
    """The best lists of 1, 2, ... gears. The last candidate is in each: everything must fit."""
    count = len(candidates)
    before = [0.0]
    for weight in weights:
        before.append(before[-1] + weight)
    # best[j]: the cost of all needs up to candidate j when j is a gear; came[k][j]: the gear below.
    best = [before[j + 1] * paid[j] for j in range(count)]
    came: list[list[int]] = [[-1] * count]
    lists: list[tuple[int, ...]] = [(candidates[-1],)]
    for k in range(1, min(limit, count)):
        fresh, source = [inf] * count, [-1] * count
        for j in range(k, count):
            for i in range(k - 1, j):
                value = best[i] + (before[j + 1] - before[i + 1]) * paid[j]
                if value < fresh[j]:
                    fresh[j], source[j] = value, i
        best = fresh
        came.append(source)
        lists.append(_walk_back(candidates, came))
    return lists


def _walk_back(candidates: Sequence[int], came: Sequence[Sequence[int]]) -> tuple[int, ...]:
    at, gears = len(candidates) - 1, []
    for source in reversed(came):
        gears.append(candidates[at])
        at = source[at]
    return tuple(reversed(gears))


def _measured(
    gears: tuple[int, ...],
    weights: Mapping[int, float],
    needs: Mapping[int, float],
    paid: Sequence[float],
    candidates: Sequence[int],
) -> GearList:
    by_gear = dict(zip(candidates, paid, strict=True))
    return GearList(
        gears, expected_cost(weights, gears, by_gear.__getitem__), padding_waste(needs, gears)
    )

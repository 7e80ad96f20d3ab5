"""How long counted work takes on a chip, as a range: its limits are known, what the compiler makes
of a graph is not.

The low end assumes that intermediates which fit the chip's L2 never leave it, and the upper figures
of bandwidth and efficiency; the high end that every operator reads and writes memory, one after the
other, and the lower figures. A forecast, never a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from profiling.costs import OpCost

Limit = Literal[
    "matrix unit", "vector unit", "weights", "cache and inputs", "intermediates", "gaps"
]


@dataclass(frozen=True, slots=True)
class ChipLimits:
    """What one chip can do: FLOP/s of the matrix unit in fp16, bytes/s of memory (low, high), bytes
    of memory and of L2. The rest are assumptions, each a (low, high) of our own:

    cube_use: share of the peak that large products reach; vector_share: the vector unit's FLOP/s
    as a part of the matrix unit's (256-byte vectors against a 16x16x16 cube: 1/64); gap_us:
    between two kernels of one graph; host_ms, host_page_ms: what the host does between two steps,
    and once for a page."""

    name: str
    fp16_peak: float
    bandwidth: tuple[float, float]
    memory_bytes: int
    l2_bytes: int
    cube_use: tuple[float, float] = (0.4, 0.8)
    vector_share: float = 1 / 64
    gap_us: tuple[float, float] = (0.3, 1.5)
    host_ms: tuple[float, float] = (0.4, 2.0)
    host_page_ms: tuple[float, float] = (20.0, 120.0)


@dataclass(frozen=True, slots=True)
class Range:
    """A forecast between two assumptions; both ends in the same unit."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    @property
    def middle(self) -> float:
        """The geometric mean: half and double are equally far from it."""
        return (self.low * self.high) ** 0.5 if self.low > 0 else (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class GraphForecast:
    """One execution of a graph: milliseconds, what bounds it at the high end and the share of that
    limit (0..1), and the sums it comes from."""

    ms: Range
    dominant: Limit
    share: float
    flops: float
    weight_bytes: float
    must_move_bytes: float
    between_bytes: float
    kernels: int


def forecast_graph(costs: Sequence[OpCost], chip: ChipLimits) -> GraphForecast:
    """The time of one execution of a graph on `chip`, without what the host does around it."""
    shares: dict[Limit, float] = {}
    high = 0.0
    for cost in costs:
        seconds, limit = _slowest(cost, chip)
        gap = cost.kernels * chip.gap_us[1] * 1e-6
        high += (seconds + gap) * cost.count
        shares[limit] = shares.get(limit, 0.0) + seconds * cost.count
        shares["gaps"] = shares.get("gaps", 0.0) + gap * cost.count
    dominant = max(shares, key=lambda limit: shares[limit])
    low = min(_best(costs, chip), high)
    return GraphForecast(
        ms=Range(low * 1e3, high * 1e3),
        dominant=dominant,
        share=shares[dominant] / high if high else 0.0,
        flops=_sum(costs, lambda c: c.cube),
        weight_bytes=_sum(costs, lambda c: c.weights),
        must_move_bytes=_sum(costs, lambda c: c.must_move),
        between_bytes=_sum(costs, lambda c: c.between),
        kernels=sum(c.kernels * c.count for c in costs),
    )


def _slowest(cost: OpCost, chip: ChipLimits) -> tuple[float, Limit]:
    """Seconds of one operator on its own, at the low figures, and what it waits for."""
    cube = cost.cube / (chip.fp16_peak * chip.cube_use[0])
    vector = cost.vector / (chip.fp16_peak * chip.vector_share)
    moved = cost.moved / chip.bandwidth[0]
    if cube >= max(vector, moved):
        return cube, "matrix unit"
    if vector > moved:
        return vector, "vector unit"
    parts: dict[Limit, float] = {
        "weights": cost.weights,
        "cache and inputs": cost.must_move,
        "intermediates": cost.between,
    }
    return moved, max(parts, key=lambda part: parts[part])


def _best(costs: Sequence[OpCost], chip: ChipLimits) -> float:
    """Seconds of the whole graph when everything overlaps that can, at the high figures."""
    spilled = _sum(costs, lambda c: 0.0 if c.fused or c.largest <= chip.l2_bytes else c.between)
    moved = _sum(costs, lambda c: c.weights + c.must_move) + spilled
    cube = _sum(costs, lambda c: c.cube) / (chip.fp16_peak * chip.cube_use[1])
    # Products alone make a kernel of their own; what follows one is fused into it.
    products = sum(c.kernels * c.count for c in costs if c.cube)
    return max(cube, moved / chip.bandwidth[1]) + products * chip.gap_us[0] * 1e-6


def _sum(costs: Iterable[OpCost], value: Callable[[OpCost], float]) -> float:
    return sum(value(cost) * cost.count for cost in costs)

"""A CPU engine that shows the gears of a compiled bundle, so that a family picks the same canvases
and batches on it as on the NPU, and a fallback's answer does not differ by the page's size.

Gears for drafts are left out: what an NPU gives away a CPU pays for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascend.engines import Engine
from atc_configs.contract import Contract


class SameGears:
    """`engine` with the gears of `contract`; everything else is the engine's own. Closing it closes
    the engine."""

    def __init__(self, engine: Engine, contract: Contract) -> None:
        self._engine = engine
        self._contract = contract

    def gears(self, graph: str) -> tuple[Mapping[str, int], ...]:
        """As the bundle was compiled. Raises ContractError for a graph that it does not have."""
        return tuple(g for g in self._contract.graph(graph).gears if g.get("R", 1) == 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

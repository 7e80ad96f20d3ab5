"""The training plan: phases in order, read from a JSON file beside the run."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .losses import Weights
from .pages import Layout
from .samples import Mix


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of training: `seconds` of wall clock from `rate` down to `last_rate`."""

    name: str
    seconds: float
    rate: float
    last_rate: float
    weights: Weights
    mixes: tuple[Mix, ...]
    heads_only: bool = False  # trains the cell classifier and the box head, nothing else

    def learning_rate(self, elapsed: float, step: int) -> float:
        """Cosine from rate to last_rate, after a warm-up of 10 steps of the process."""
        share = min(1.0, elapsed / self.seconds)
        cosine = 0.5 * (1 + math.cos(math.pi * share))
        return (self.last_rate + (self.rate - self.last_rate) * cosine) * min(1.0, (step + 1) / 10)


def _mix(entry: dict[str, Any]) -> Mix:
    sides = {name: tuple(v) for name, v in entry["layout"].items() if isinstance(v, list)}
    layout = Layout(**{**entry["layout"], **sides})
    return Mix(
        layout=layout,
        canvas=tuple(entry["canvas"]),
        batch=entry["batch"],
        tasks=tuple(entry.get("tasks", ("text",))),
        share=entry.get("share", 1.0),
    )


def load_phases(path: Path) -> list[Phase]:
    """Every phase of the plan file."""
    return [
        Phase(
            name=entry["name"],
            seconds=entry["seconds"],
            rate=entry["rate"],
            last_rate=entry["last_rate"],
            weights=Weights(**entry["weights"]),
            mixes=tuple(_mix(mix) for mix in entry["mixes"]),
            heads_only=entry.get("heads_only", False),
        )
        for entry in json.loads(path.read_text())
    ]

"""How near two runs of one graph are, and how near they must be: the gate after export and compile.

A compiler that drops a model's accuracy says nothing about it, so nothing passes unmeasured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend.build.sample_inputs import sample_inputs
from ascend.errors import ModelError
from atc_configs.contract import GraphSpec

Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]
"""Runs one graph: inputs by name -> outputs by name."""


class ParityError(ModelError):
    """A graph gives other numbers than the one it was made from; the text has figures and bound."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One comparison: max_rel is max_abs over the reference's largest magnitude, cosine the lowest
    of the outputs', equal the share of equal values in integer outputs (1.0 without any)."""

    max_abs: float
    max_rel: float
    cosine: float
    equal: float

    def to_dict(self) -> dict[str, float]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a graph must reach."""

    cosine: float
    max_rel: float
    equal: float

    def refusal(self, figures: Figures) -> str | None:
        """What is out of bounds, or None. NaN is always out of bounds."""
        if not figures.cosine >= self.cosine:
            return f"cosine {figures.cosine:.6f} is below {self.cosine}"
        if not figures.max_rel <= self.max_rel:
            return f"max|Δ| is {figures.max_rel:.2e} of the largest value, above {self.max_rel:.0e}"
        if not figures.equal >= self.equal:
            return f"only {figures.equal:.4f} of the integers are equal, wanted {self.equal}"
        return None


# float32: sums in another order. float16: 2^-11 a rounding over some hundred roundings; the model's
# own release notes ask for a cosine of 0.9999 on image rows, a single graph's worst output may lie
# a little lower.
BOUNDS = {"float32": Bound(0.99999, 1e-3, 0.999), "float16": Bound(0.999, 5e-2, 0.95)}


def compare(got: Mapping[str, NDArray[Any]], wanted: Mapping[str, NDArray[Any]]) -> Figures:
    """The figures over every output of `wanted`.

    Raises ParityError for a missing or misshapen one.
    """
    rows = []
    for name, reference in wanted.items():
        if name not in got or got[name].shape != reference.shape:
            shape = got[name].shape if name in got else "nothing"
            raise ParityError(f"output {name}: wanted {reference.shape}, got {shape}")
        rows.append(_figures(got[name], reference))
    return worst(rows)


def measure(
    spec: GraphSpec,
    precision: str,
    run: Run,
    reference: Run,
    gears: Iterable[Mapping[str, int]] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[tuple[Mapping[str, int], Figures]]:
    """The figures of a graph against its reference at each gear, on the same inputs."""
    rows = []
    for number, gear in enumerate(spec.gears if gears is None else gears):
        inputs = sample_inputs(spec, gear, precision, seed=number)
        figures = compare(run(inputs), reference(inputs))
        say(f"{spec.name} {_text(gear)}: cosine {figures.cosine:.6f} max|Δ| {figures.max_abs:.2e}")
        rows.append((gear, figures))
    return rows


def check(graph: str, rows: Iterable[tuple[Mapping[str, int], Figures]], bound: Bound) -> None:
    """Raises ParityError naming the first gear out of bounds."""
    for gear, figures in rows:
        refusal = bound.refusal(figures)
        if refusal:
            raise ParityError(f"{graph} at gear {_text(gear)}: {refusal}")


def worst(figures: Iterable[Figures]) -> Figures:
    """The worst of each figure."""
    result = Figures(0.0, 0.0, 1.0, 1.0)
    for one in figures:
        result = _worse(result, one)
    return result


def _figures(got: NDArray[Any], wanted: NDArray[Any]) -> Figures:
    if np.issubdtype(wanted.dtype, np.integer):
        return Figures(0.0, 0.0, 1.0, float(np.mean(got == wanted)) if wanted.size else 1.0)
    left, right = got.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    if not right.size:
        return Figures(0.0, 0.0, 1.0, 1.0)
    largest = float(np.abs(right).max())
    max_abs = float(np.abs(left - right).max())
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    cosine = float(left @ right) / norms if norms else float(np.array_equal(left, right))
    return Figures(max_abs, max_abs / largest if largest else max_abs, cosine, 1.0)


def _worse(a: Figures, b: Figures) -> Figures:
    """NaN is worse than any number, which plain max and min would lose."""
    return Figures(
        float(np.maximum(a.max_abs, b.max_abs)),
        float(np.maximum(a.max_rel, b.max_rel)),
        float(np.minimum(a.cosine, b.cosine)),
        float(np.minimum(a.equal, b.equal)),
    )


def _text(gear: Mapping[str, int]) -> str:
    return ",".join(f"{symbol}={size}" for symbol, size in gear.items()) or "static"

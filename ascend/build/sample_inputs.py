"""Inputs for a graph at one gear: the right names, shapes and kinds of numbers, drawn from a seed.

Masks, rotary factors and the choice of rows have the form that the families give them, because a
graph fed with noise everywhere says little about the graph that will be used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from atc_configs.contract import GraphSpec, TensorSpec

MASKED = -1e4  # finite in fp16 (spec of the llm graph: never -inf)
_USED = 0.8  # share of patches and cache rows that are not padding
_CACHE_SCALE = 0.5  # keys and values of the real model stay within about 12 and 0.6


def sample_inputs(
    spec: GraphSpec, gear: Mapping[str, int], precision: str, seed: int = 0
) -> dict[str, NDArray[np.generic]]:
    """Every input of `spec` at `gear`, in the dtypes of `precision`."""
    rng = np.random.default_rng(seed)
    return {
        tensor.name: _values(tensor, gear, rng, seed).astype(tensor.dtype_in(precision))
        for tensor in spec.inputs
    }


def _values(
    tensor: TensorSpec, gear: Mapping[str, int], rng: np.random.Generator, seed: int
) -> NDArray[np.generic]:
    shape = tensor.resolve(gear)
    match tensor.name.split(".")[0]:
        case "mask" | "past_mask":
            used = max(1, int(shape[-1] * _USED))
            return np.broadcast_to(np.where(np.arange(shape[-1]) < used, 0.0, MASKED), shape)
        case "chunk_mask":
            rows = np.arange(shape[-1])
            return np.broadcast_to(np.where(rows[None, :] <= rows[:, None], 0.0, MASKED), shape)
        case "cos" | "sin":
            # Of the same angles, so that the pair is a rotation.
            angles = np.random.default_rng([seed, 1]).uniform(
                0, 2 * np.pi, (*shape[:-1], shape[-1] // 2)
            )
            angles = np.concatenate([angles, angles], -1)
            return np.cos(angles) if tensor.name == "cos" else np.sin(angles)
        case "select":
            # The last R rows, one each: what draft checks ask for, and decoding with R = 1.
            return np.broadcast_to(np.eye(shape[-1])[-shape[-2] :], shape)
        case "past_key" | "past_value":
            return rng.standard_normal(shape, np.float32) * _CACHE_SCALE
        case "image":
            return rng.uniform(-1, 1, shape)
        case _:
            return rng.standard_normal(shape, np.float32)

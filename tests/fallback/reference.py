"""transformers' HunyuanOCR as the reference, and our pieces put together the way a family does."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fallback.checkpoint import HostTables
from fallback.torch_engine import TorchEngine
from host_pipeline.positions import (
    block_order,
    image_tokens,
    interpolate_positions,
    inv_freq,
    position_ids,
    rotary,
)

Profile = tuple[Literal["train", "hf5"], Literal["scale", "size"]]
HF: Profile = ("hf5", "size")  # what transformers 5.13 to 5.24 compute
TRAIN: Profile = ("train", "scale")


def load_reference(folder: Path, dtype: str = "float32", attention: str = "eager") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations are none of ours
        from transformers import HunYuanVLForConditionalGeneration

        model = HunYuanVLForConditionalGeneration.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention
        )
    return model.eval()


def use_training_maths(model: Any) -> None:
    """Changes the reference, in place, to the section layout and table ratio of the training code
    (the specification's formulas, written here on their own)."""
    import torch

    rotary_module = model.model.language_model.rotary_emb
    embeddings = model.model.vision_tower.embeddings

    def sections(freq: torch.Tensor) -> torch.Tensor:
        parts = freq.split(list(rotary_module.mrope_section), dim=-1)
        half = torch.cat([part[i] for i, part in enumerate(parts)], dim=-1)
        return torch.cat([half, half], dim=-1)

    def table(x: torch.Tensor, height: int, width: int) -> torch.Tensor:
        edge = embeddings.position_edge
        grid = embeddings.position_embedding.weight[1:].float().reshape(1, edge, edge, -1)
        ratio = ((int(height) + 0.1) / edge, (int(width) + 0.1) / edge)
        out = torch.nn.functional.interpolate(
            grid.permute(0, 3, 1, 2), scale_factor=ratio, mode="bilinear", align_corners=False
        )
        return out.permute(0, 2, 3, 1).reshape(1, height * width, -1).to(x.dtype)

    rotary_module.recomposition_frequencies = sections
    embeddings.interpolate_pos_encoding = table


@dataclass(frozen=True)
class Prompt:
    """One page and its instruction as token ids; patches (N, P) are row-major, as processors
    emit.
    """

    ids: list[int]
    first: int
    grid: tuple[int, int]
    patches: np.ndarray

    @property
    def images(self) -> list[tuple[int, int, int]]:
        return [(self.first, *self.grid)]


def make_prompt(
    tables: HostTables, grid: tuple[int, int], text: Sequence[int], seed: int
) -> Prompt:
    tokens = tables.checkpoint.dims.tokens
    slots = [tokens.image] * image_tokens(*grid)
    ids = [tokens.bos, tokens.eod, tokens.image_start, *slots, tokens.image_end, *text]
    patches = np.random.default_rng(seed).standard_normal((grid[0] * grid[1], 768))
    return Prompt(ids, 3, grid, patches.astype(np.float32))


def image_rows(
    engine: TorchEngine, tables: HostTables, prompt: Prompt, mode: Literal["scale", "size"]
) -> np.ndarray:
    """(image tokens, C): begin, content with a newline after each row, end."""
    order = block_order(*prompt.grid)
    pos = interpolate_positions(tables.position_table, *prompt.grid, mode) + tables.patch_bias
    mask = np.zeros((1, len(order)), np.float32)
    inputs = {"patches": prompt.patches[order], "pos": pos[order], "mask": mask}
    content = engine.run("vision", inputs)["content"].numpy()
    content = content.reshape(prompt.grid[0] // 2, prompt.grid[1] // 2, -1)
    newline = np.broadcast_to(tables.newline, (len(content), 1, content.shape[-1]))
    lines = np.concatenate([content, newline], 1).reshape(-1, content.shape[-1])
    return np.concatenate([tables.begin[None], lines, tables.end[None]])


@dataclass
class Inputs:
    """A prompt as the llm graph takes it: (T, C), (T, D), (T, D)."""

    embeds: np.ndarray
    cos: np.ndarray
    sin: np.ndarray


def prompt_inputs(
    engine: TorchEngine, tables: HostTables, prompt: Prompt, profile: Profile
) -> Inputs:
    embeds = tables.embed_rows(prompt.ids)
    rows = image_rows(engine, tables, prompt, profile[1])
    embeds[prompt.first : prompt.first + len(rows)] = rows
    cos, sin = rotate(tables, position_ids(len(prompt.ids), prompt.images), profile)
    return Inputs(embeds, cos, sin)


def rotate(
    tables: HostTables, positions: np.ndarray, profile: Profile
) -> tuple[np.ndarray, np.ndarray]:
    t = tables.checkpoint.dims.text
    frequencies = inv_freq(t.rope_theta, t.rope_alpha, t.head_dim)
    return rotary(positions, frequencies, t.rope_sections, profile[0])


def greedy(
    engine: TorchEngine,
    tables: HostTables,
    inputs: Inputs,
    count: int,
    profile: Profile,
    chunk: int | None = None,
) -> tuple[list[int], np.ndarray]:
    """`count` greedy tokens and the logits (count, V) that chose them, prefilling `chunk` at a
    time.
    """
    length = len(inputs.embeds)
    chunk = chunk or length
    with_room = engine.kv_cache(1, length + count)
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        part = (x[None, start:stop] for x in (inputs.embeds, inputs.cos, inputs.sin))
        wanted = [[stop - start - 1]] if stop == length else [[]]
        logits = engine.extend(with_room, 0, [stop - start], *part, wanted)
    tokens, seen = [int(logits[0, 0].argmax())], [logits[0, 0]]
    while len(tokens) < count:
        position = position_ids(1, start=length + len(tokens) - 1)
        step = (
            x[None] for x in (tables.embed_rows(tokens[-1:]), *rotate(tables, position, profile))
        )
        logits = engine.extend(with_room, 0, [1], *step, [[0]])
        tokens.append(int(logits[0, 0].argmax()))
        seen.append(logits[0, 0])
    with_room.close()
    return tokens, np.stack(seen)


def reference_greedy(model: Any, prompt: Prompt, count: int) -> tuple[list[int], np.ndarray]:
    import torch

    inputs = _reference_inputs(prompt)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=count,
            min_new_tokens=count,
            repetition_penalty=1.0,
            return_dict_in_generate=True,
            output_logits=True,
        )
    tokens = out.sequences[0, len(prompt.ids) :].tolist()
    return tokens, torch.stack(out.logits)[:, 0].float().numpy()


def reference_image_rows(model: Any, prompt: Prompt) -> np.ndarray:
    import torch

    inputs = _reference_inputs(prompt)
    with torch.inference_mode():
        out = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    return torch.cat(list(out.pooler_output)).float().numpy()


def _reference_inputs(prompt: Prompt) -> dict[str, Any]:
    import torch

    ids = torch.tensor([prompt.ids])
    image_id = prompt.ids[prompt.first]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == image_id).int(),
        "pixel_values": torch.from_numpy(prompt.patches),
        "image_grid_thw": torch.tensor([[1, *prompt.grid]]),
    }

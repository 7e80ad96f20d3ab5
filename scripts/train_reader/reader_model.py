"""The trainable twin of HunyuanOCR at a small size, held under the released tensor names.

Letters: B pages, N patches, M cells, R image rows, S sequence, H/G query/kv heads, D head size.
Three things exist only while training: the separable position rows (see `position_table.py`), the
cell classifier, and the attention of two guided heads, which `guides` asks for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import vocabulary, world
from .pages import CELL
from .position_table import interpolate
from .samples import SLOTS

GRID_ROWS, GRID_COLUMNS = 30, 40  # patches of the largest canvas
CLASSES = len(world.PAGE_CHARACTERS) + 1
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
PROMPT_HEAD = 3  # bos, system end, image start


@dataclass(frozen=True, slots=True)
class Sizes:
    """Every size of the reader; theta is small so that all four axes turn within a small head."""

    vision_width: int = 160
    vision_layers: int = 4
    vision_heads: int = 4
    vision_mlp: int = 480
    text_width: int = 256
    text_layers: int = 4
    text_heads: int = 4
    text_kv_heads: int = 2
    head_dim: int = 64
    text_mlp: int = 512
    rope_theta: float = 100.0
    rope_alpha: float = 1.0
    sections: tuple[int, int, int, int] = (8, 8, 8, 8)
    eps: float = 1e-5
    vocabulary: int = vocabulary.vocabulary_size()


def tensor_shapes(sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Raw tensor name, shape and kind (one, zero, linear, branch, rows) of every exported tensor
    but the position table."""
    v, w, c = sizes.vision_width, sizes.vision_mlp, sizes.text_width
    yield "vit.embeddings.patch_embedding.weight", (v, 3, 16, 16), "linear"
    yield "vit.embeddings.patch_embedding.bias", (v,), "zero"
    for layer in range(sizes.vision_layers):
        prefix = f"vit.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (v,), "one"
            yield f"{prefix}{norm}.bias", (v,), "zero"
        for name in "qkvo":
            kind = "branch" if name == "o" else "linear"
            yield f"{prefix}self_attn.{name}_proj.weight", (v, v), kind
            yield f"{prefix}self_attn.{name}_proj.bias", (v,), "zero"
        yield f"{prefix}mlp.dense_h_to_4h.weight", (w, v), "linear"
        yield f"{prefix}mlp.dense_h_to_4h.bias", (w,), "zero"
        yield f"{prefix}mlp.dense_4h_to_h.weight", (v, w), "branch"
        yield f"{prefix}mlp.dense_4h_to_h.bias", (v,), "zero"
    yield from _connector_shapes(v, c)
    yield from _text_shapes(sizes)


def _connector_shapes(v: int, c: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "vit.perceive.before_rms.weight", (v,), "one"
    yield "vit.perceive.proj.0.weight", (2 * v, v, 2, 2), "linear"
    yield "vit.perceive.proj.0.bias", (2 * v,), "zero"
    yield "vit.perceive.proj.2.weight", (4 * v, 2 * v, 1, 1), "linear"
    yield "vit.perceive.proj.2.bias", (4 * v,), "zero"
    yield "vit.perceive.mlp.weight", (c, 4 * v), "linear"
    yield "vit.perceive.mlp.bias", (c,), "zero"
    yield "vit.perceive.image_newline", (4 * v,), "rows"
    for name in ("image_begin", "image_end", "image_sep"):
        yield f"vit.perceive.{name}", (c,), "rows"
    yield "vit.perceive.after_rms.weight", (c,), "one"


def _text_shapes(sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...], str]]:
    c, d, m = sizes.text_width, sizes.head_dim, sizes.text_mlp
    heads, kv_heads = sizes.text_heads * d, sizes.text_kv_heads * d
    yield "model.embed_tokens.weight", (sizes.vocabulary, c), "rows"
    for layer in range(sizes.text_layers):
        prefix = f"model.layers.{layer}."
        yield f"{prefix}input_layernorm.weight", (c,), "one"
        yield f"{prefix}post_attention_layernorm.weight", (c,), "one"
        yield f"{prefix}self_attn.q_proj.weight", (heads, c), "linear"
        yield f"{prefix}self_attn.k_proj.weight", (kv_heads, c), "linear"
        yield f"{prefix}self_attn.v_proj.weight", (kv_heads, c), "linear"
        yield f"{prefix}self_attn.o_proj.weight", (c, heads), "branch"
        yield f"{prefix}self_attn.query_layernorm.weight", (d,), "one"
        yield f"{prefix}self_attn.key_layernorm.weight", (d,), "one"
        yield f"{prefix}mlp.gate_proj.weight", (m, c), "linear"
        yield f"{prefix}mlp.up_proj.weight", (m, c), "linear"
        yield f"{prefix}mlp.down_proj.weight", (c, m), "branch"
    yield "model.norm.weight", (c,), "one"


def _initial(shape: tuple[int, ...], kind: str) -> Tensor:
    match kind:
        case "one":
            return torch.ones(shape)
        case "zero":
            return torch.zeros(shape)
        case "rows":
            return torch.randn(shape) * 0.06
        case _:
            gain = 0.5 if kind == "branch" else 1.0
            return torch.randn(shape) * (gain / math.sqrt(math.prod(shape[1:])))


class Shown(NamedTuple):
    """What the eye gets: tiles (B, M, 32, 32, 3) uint8 of the shown cells, their rows and columns
    (B, M, 2), the rows whose newline is given (B, L), and the canvas in cells."""

    tiles: Tensor
    cells: Tensor
    newline_rows: Tensor
    canvas: tuple[int, int]

    def keys(self) -> Tensor:
        """Reading-order keys (B, M + L) of cells and newlines: row * (columns + 1) + column."""
        row = self.canvas[1] + 1
        cells = self.cells[..., 0] * row + self.cells[..., 1]
        return torch.cat([cells, self.newline_rows * row + self.canvas[1]], 1)


def show_pages(pixels: Tensor) -> Shown:
    """Whole pages (B, H, W, 3), every cell of their canvas shown."""
    batch, rows, columns = len(pixels), pixels.shape[1] // CELL, pixels.shape[2] // CELL
    tiles = pixels.unflatten(2, (columns, CELL)).unflatten(1, (rows, CELL)).transpose(2, 3)
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(pixels.device)
    newline_rows = torch.arange(rows, device=pixels.device)
    return Shown(
        tiles.flatten(1, 2), places.expand(batch, -1, -1), newline_rows.expand(batch, -1),
        (rows, columns),
    )  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Reader(nn.Module):
    """The model; `tensors` maps raw names to parameters."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self._parameters_by_name = nn.ParameterDict(
            {
                name.replace(".", "~"): nn.Parameter(_initial(shape, kind))
                for name, shape, kind in tensor_shapes(sizes)
            }
        )
        self.row_positions = nn.Parameter(torch.randn(GRID_ROWS, sizes.vision_width) * 0.05)
        self.column_positions = nn.Parameter(torch.randn(GRID_COLUMNS, sizes.vision_width) * 0.05)
        self.table: Tensor | None = None  # set when read back from an exported checkpoint
        self.classify = nn.Linear(sizes.text_width, SLOTS * CLASSES)
        self.measure = nn.Linear(sizes.text_width, 4)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)

    def tensor(self, name: str) -> Tensor:
        """The parameter with this raw name."""
        return self._parameters_by_name[name.replace(".", "~")]

    def tensors(self) -> dict[str, Tensor]:
        """Raw name -> parameter, without the position table."""
        return {name.replace("~", "."): value for name, value in self._parameters_by_name.items()}

    def see(self, shown: Shown) -> Tensor:
        """Image rows (B, R, C): begin, cells and newlines in reading order, end."""
        x = shown.tiles.unflatten(3, (2, 16)).unflatten(2, (2, 16))  # (B, M, 2, 16, 2, 16, 3)
        x = x.permute(0, 1, 2, 4, 6, 3, 5).float() / 255  # (B, M, 2, 2, 3, 16, 16)
        x = ((x - self.mean) / self.std).flatten(4).flatten(1, 3)
        weight = self.tensor("vit.embeddings.patch_embedding.weight").flatten(1)
        x = F.linear(x, weight, self.tensor("vit.embeddings.patch_embedding.bias"))
        x = x + self._place(shown)  # (B, N, V), the four patches of a cell together
        for layer in range(self.sizes.vision_layers):
            x = self._vision_block(x, f"vit.layers.{layer}.")
        return self._connect(x, shown)

    def _place(self, shown: Shown) -> Tensor:
        """Position rows (B, N, V)."""
        corner = torch.arange(2, device=shown.cells.device)
        row = (2 * shown.cells[..., 0, None] + corner)[..., :, None].expand(-1, -1, 2, 2)
        column = (2 * shown.cells[..., 1, None] + corner)[..., None, :].expand(-1, -1, 2, 2)
        if self.table is not None:
            rows, columns = shown.canvas
            place = interpolate(self.table, 2 * rows, 2 * columns)[row, column]
        else:
            place = self.row_positions[row] + self.column_positions[column]
        return place.flatten(1, 3)

    def _vision_block(self, x: Tensor, prefix: str) -> Tensor:
        heads, eps = self.sizes.vision_heads, self.sizes.eps
        get = self.tensor

        def linear(y: Tensor, name: str) -> Tensor:
            return F.linear(y, get(f"{prefix}{name}.weight"), get(f"{prefix}{name}.bias"))

        def norm(y: Tensor, name: str) -> Tensor:
            weight, bias = get(f"{prefix}{name}.weight"), get(f"{prefix}{name}.bias")
            return F.layer_norm(y, y.shape[-1:], weight, bias, eps)

        y = norm(x, "input_layernorm")
        q, k, v = (
            linear(y, f"self_attn.{n}_proj").unflatten(-1, (heads, -1)).transpose(1, 2)
            for n in "qkv"
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + linear(mixed, "self_attn.o_proj")
        y = F.gelu(linear(norm(x, "post_attention_layernorm"), "mlp.dense_h_to_4h"))
        return x + linear(y, "mlp.dense_4h_to_h")

    def _connect(self, x: Tensor, shown: Shown) -> Tensor:
        get, p = self.tensor, "vit.perceive."
        x = rms_norm(x, get(p + "before_rms.weight"), self.sizes.eps)
        x = x.unflatten(1, (-1, 4)).transpose(2, 3).flatten(2)  # (B, M, V * 4) as the kernel has it
        x = F.gelu(F.linear(x, get(p + "proj.0.weight").flatten(1), get(p + "proj.0.bias")))
        x = F.linear(x, get(p + "proj.2.weight").flatten(1), get(p + "proj.2.bias"))
        newline = get(p + "image_newline").expand(len(x), shown.newline_rows.shape[1], -1)
        x = F.linear(torch.cat([x, newline], 1), get(p + "mlp.weight"), get(p + "mlp.bias"))
        order = shown.keys().argsort(1)
        x = x.gather(1, order[..., None].expand_as(x))
        begin, end = (get(p + n).expand(len(x), 1, -1) for n in ("image_begin", "image_end"))
        return rms_norm(torch.cat([begin, x, end], 1), get(p + "after_rms.weight"), self.sizes.eps)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (B, 1, S, D) of positions (B, 4, S); section j of the frequencies follows
        axis j, both halves alike."""
        d = self.sizes.head_dim
        base = self.sizes.rope_theta * self.sizes.rope_alpha ** (d / (d - 2))
        inverse = base ** (-torch.arange(0, d, 2, device=positions.device).float() / d)
        axis = torch.repeat_interleave(
            torch.arange(4, device=positions.device),
            torch.tensor(self.sizes.sections, device=positions.device),
        )
        angles = positions[:, axis].transpose(1, 2).float() * inverse  # (B, S, D/2)
        angles = torch.cat([angles, angles], -1)[:, None]
        return angles.cos(), angles.sin()

    def embed(self, image_rows: Tensor, ids: Tensor) -> Tensor:
        """The whole sequence: prompt head, image rows, image end, then `ids` (B, T)."""
        table, special = self.tensor("model.embed_tokens.weight"), vocabulary.token_ids()
        head = torch.tensor(
            [special[t] for t in (vocabulary.BOS, vocabulary.SYSTEM_END, vocabulary.IMAGE_START)],
            device=ids.device,
        )
        end = torch.tensor([special[vocabulary.IMAGE_END]], device=ids.device)
        batch = len(ids)
        return torch.cat(
            [F.embedding(head, table).expand(batch, -1, -1), image_rows,
             F.embedding(end, table).expand(batch, -1, -1), F.embedding(ids, table)], 1
        )  # fmt: skip

    def decode(
        self,
        x: Tensor,
        rotary: tuple[Tensor, Tensor],
        past: list[tuple[Tensor, Tensor]] | None = None,
        guides: dict[int, int] | None = None,
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]], dict[int, Tensor]]:
        """Hidden states, keys and values by layer, and log attention (B, S-start, S) of head 0 in
        the layers that `guides` names with their start row."""
        cache, watched = [], {}
        for layer in range(self.sizes.text_layers):
            start = guides.get(layer) if guides else None
            x, pair, log_attention = self._text_block(
                x, layer, rotary, past[layer] if past else None, start
            )
            cache.append(pair)
            if log_attention is not None:
                watched[layer] = log_attention
        return rms_norm(x, self.tensor("model.norm.weight"), self.sizes.eps), cache, watched

    def _text_block(
        self,
        x: Tensor,
        layer: int,
        rotary: tuple[Tensor, Tensor],
        past: tuple[Tensor, Tensor] | None,
        watch: int | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        get, p, sizes = self.tensor, f"model.layers.{layer}.", self.sizes
        y = rms_norm(x, get(p + "input_layernorm.weight"), sizes.eps)
        q, k, v = (
            F.linear(y, get(f"{p}self_attn.{n}_proj.weight")).unflatten(-1, (-1, sizes.head_dim))
            .transpose(1, 2) for n in "qkv"
        )  # fmt: skip
        q = rms_norm(_rotate(q, rotary), get(p + "self_attn.query_layernorm.weight"), sizes.eps)
        k = rms_norm(_rotate(k, rotary), get(p + "self_attn.key_layernorm.weight"), sizes.eps)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        log_attention = None if watch is None else _log_attention(q[:, 0, watch:], k[:, 0], watch)
        group = sizes.text_heads // sizes.text_kv_heads
        mixed = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=past is None
        )
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), get(p + "self_attn.o_proj.weight"))
        y = rms_norm(x, get(p + "post_attention_layernorm.weight"), sizes.eps)
        gate = F.silu(F.linear(y, get(p + "mlp.gate_proj.weight")))
        y = gate * F.linear(y, get(p + "mlp.up_proj.weight"))
        return x + F.linear(y, get(p + "mlp.down_proj.weight")), (k, v), log_attention

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary (tied head)."""
        return F.linear(hidden, self.tensor("model.embed_tokens.weight"))


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotary
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def _log_attention(q: Tensor, k: Tensor, start: int) -> Tensor:
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(start + 1)
    return scores.masked_fill(future, -1e4).log_softmax(-1)


def positions(shown: Shown, tail: int) -> Tensor:
    """Axes p, w, h, t (B, 4, S) of prompt head, image rows, image end and `tail` more tokens.

    Tokens keep the positions that they have when the whole canvas is shown, so a few cells look
    like a page whose blank rest was left out.
    """
    rows, columns = shown.canvas
    keys, device = shown.keys().sort(1).values, shown.cells.device
    batch, image_rows = len(keys), rows * (columns + 1) + 2
    first = torch.arange(PROMPT_HEAD + 1, device=device).expand(batch, -1)
    last = PROMPT_HEAD + image_rows - 1 + torch.arange(tail + 2, device=device).expand(batch, -1)
    row = keys.div(columns + 1, rounding_mode="floor")
    axes = (PROMPT_HEAD + 1 + keys, keys % (columns + 1), row, torch.zeros_like(keys))
    return torch.stack([torch.cat([first, grid, last], 1) for grid in axes], 1)

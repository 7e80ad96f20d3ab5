"""The HunyuanOCR model in PyTorch: the two graphs that the CPU engine runs and that export
traces.

`Vision` and `Llm` take and give exactly the tensors of atc_configs/hunyuanocr.yaml. Modules are
built from raw checkpoint tensors (`Source`), so a random model and a released one come the same
way. Nothing here knows files, images, prompts or caches: the past is an input, read-only; the new
rows are outputs.

Axes: B sequences, Q new tokens, S cache rows, R rows whose logits are wanted, C hidden, H heads,
K kv heads, G = H/K, D head size, V vocabulary, N patches, E vision hidden, P = 3·16·16.

Norm statistics, rotary products and softmax are in float32 whatever the weights are, by explicit
casts that an fp16 export keeps. Folded on building, exactly: 1/√D into the query norm's weight,
the connector's last two linear maps into one. Left to the host: the patch bias (it comes inside
`pos`), rotary factors, masks, embedding rows.

Longer than other files on purpose: the model is one thing to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fallback.dims import Dims, TextDims, VisionDims

# Beyond this many rows of a chunk, copying the past costs less than holding the scores (335 rows
# on AVX2: 19 against 47 ms a layer).
_FEW_ROWS = 16

Source = Callable[[str], Tensor]
"""Raw checkpoint name -> tensor, any float dtype."""

MakeLinear = Callable[[Sequence[Tensor], Sequence[Tensor]], nn.Module]
"""(weights (out_i, in), biases (out_i,) of all or of none) -> a module that computes every
x Wᵢᵀ + bᵢ on the last axis and concatenates them: projections of one input are one product."""


def dense_linear(weights: Sequence[Tensor], biases: Sequence[Tensor] = ()) -> nn.Module:
    """A plain float32 linear map: the exact profile, and what export traces."""
    weight = torch.cat([w.float() for w in weights])
    with torch.device("meta"):  # no weights to fill before the real ones come
        linear = nn.Linear(weight.shape[1], weight.shape[0], bool(biases))
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if biases:
        linear.bias = nn.Parameter(torch.cat([b.float() for b in biases]), requires_grad=False)
    return linear


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last axis; statistics in float32 (the connector's squares
    reach 1.8e8).
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight.float()).to(x.dtype)


class LayerNorm(nn.Module):
    """The vision blocks' norm, with bias, in float32."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.bias = nn.Parameter(bias.float(), requires_grad=False)
        self.eps = eps
        self.width = weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        normed = F.layer_norm(
            x.float(), [self.width], self.weight.float(), self.bias.float(), self.eps
        )
        return normed.to(x.dtype)


# ------------------------------------------------------------------------------------------- vision


class VisionAttention(nn.Module):
    """Every patch of one page attends to every other; there is no rotary embedding here.

    query_blocks: an export sets how many equal blocks of queries are traced, so that N² scores
    never exist at once; 0 on the CPU, where the fused attention never holds them.
    """

    def __init__(self, w: Source, prefix: str, v: VisionDims, linear: MakeLinear) -> None:
        super().__init__()
        self.heads, self.head_dim = v.heads, v.hidden // v.heads
        self.scale = self.head_dim**-0.5
        self.qkv_proj = _linear(w, [prefix + f"{p}_proj" for p in "qkv"], linear)
        self.o_proj = _linear(w, [prefix + "o_proj"], linear)
        self.query_blocks = 0

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        sizes = [x.shape[0], 3 * self.heads, self.head_dim]
        qkv = _reshape(self.qkv_proj(x), [0, 3 * self.heads, self.head_dim], sizes)
        qkv = qkv.transpose(0, 1)  # (3·H, N, D)
        q, k, v = qkv[: self.heads], qkv[self.heads : 2 * self.heads], qkv[2 * self.heads :]
        if self.query_blocks > 0:
            mixed = self._in_blocks(q, k, v, mask)
        else:
            wide = mask.expand(x.shape[0], -1)
            mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], wide)[0]
        mixed = mixed.transpose(0, 1)  # (N, H, D)
        width = self.heads * self.head_dim
        out: Tensor = self.o_proj(_reshape(mixed, [0, width], [x.shape[0], width]))
        return out

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        sizes = [self.heads, self.query_blocks, q.shape[1] // self.query_blocks, self.head_dim]
        blocks = _reshape(q * self.scale, [0, self.query_blocks, -1, self.head_dim], sizes)
        keys = k.transpose(1, 2)
        parts: list[Tensor] = []
        for i in range(self.query_blocks):
            scores = torch.matmul(blocks[:, i], keys).float() + mask.float()
            parts.append(torch.matmul(torch.softmax(scores, -1).to(v.dtype), v))
        return torch.cat(parts, dim=1)  # (H, N, D)


class VisionBlock(nn.Module):
    """Pre-norm attention and a GELU (erf form) MLP, both with biases."""

    def __init__(self, w: Source, prefix: str, v: VisionDims, linear: MakeLinear) -> None:
        super().__init__()
        self.input_layernorm = _layer_norm(w, prefix + "input_layernorm", v.eps)
        self.self_attn = VisionAttention(w, prefix + "self_attn.", v, linear)
        self.post_attention_layernorm = _layer_norm(w, prefix + "post_attention_layernorm", v.eps)
        self.dense_h_to_4h = _linear(w, [prefix + "mlp.dense_h_to_4h"], linear)
        self.dense_4h_to_h = _linear(w, [prefix + "mlp.dense_4h_to_h"], linear)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), mask)
        inner = F.gelu(self.dense_h_to_4h(self.post_attention_layernorm(x)))
        out: Tensor = x + self.dense_4h_to_h(inner)
        return out


class Vision(nn.Module):
    """Patches of one page, in merge-block order, to the rows that stand for them in the prompt."""

    def __init__(self, w: Source, dims: Dims, linear: MakeLinear = dense_linear) -> None:
        super().__init__()
        v, p = dims.vision, "vit.perceive."
        self.merged = v.merge * v.merge * v.hidden
        patch = w("vit.embeddings.patch_embedding.weight")
        self.patch_embedding = dense_linear([patch.reshape(v.hidden, v.patch_width)])
        self.layers = nn.ModuleList(
            VisionBlock(w, f"vit.layers.{i}.", v, linear) for i in range(v.layers)
        )
        self.before_rms = RMSNorm(w(p + "before_rms.weight"), v.eps)
        # The strided convolution is a matrix product once a block's patches are neighbours.
        merge = w(p + "proj.0.weight").permute(0, 2, 3, 1).reshape(-1, self.merged)
        self.merge = linear([merge], [w(p + "proj.0.bias")])
        weight, bias = fold_projection(w)
        self.project = linear([weight], [bias])
        self.after_rms = RMSNorm(w(p + "after_rms.weight"), v.eps)

    def forward(self, patches: Tensor, pos: Tensor, mask: Tensor) -> Tensor:
        """patches (N, P), pos (N, E) incl. the patch bias, mask (1, N) additive -> content (N/4,
        C).
        """
        x = self.patch_embedding(patches) + pos
        for layer in self.layers:
            x = layer(x, mask)
        x = _reshape(self.before_rms(x), [-1, self.merged], [-1, self.merged])
        content: Tensor = self.after_rms(self.project(F.gelu(self.merge(x))))
        return content


def fold_projection(w: Source) -> tuple[Tensor, Tensor]:
    """proj.2 and mlp have nothing between them: their product, (C, 2E) and (C,), float32 from
    float64.
    """
    p = "vit.perceive."
    inner = w(p + "proj.2.weight").flatten(1).double()
    outer = w(p + "mlp.weight").double()
    bias = outer @ w(p + "proj.2.bias").double() + w(p + "mlp.bias").double()
    return (outer @ inner).float(), bias.float()


# ------------------------------------------------------------------------------------------- text


class Attention(nn.Module):
    """Grouped-query attention over a read-only past and the chunk itself.

    The rotary embedding comes before the per-head norm, so cached keys are rotated and normed.
    Exact forms of the same thing:

    grouped (CPU, few rows): each kv head's slice of the cache is multiplied where it lies, as a
    strided view. fused (CPU, many rows): past and chunk are copied together, which is little
    beside their products, and no scores are held. blocked (export): each head's query is put into
    its kv head's slice of a K·D-wide row, so one plain product (H·Q, K·D) × (K·D, S) reads the
    token-major cache without re-laying it; for one token that is a 16-row tile. The chunk's own
    part stays grouped. The softmax is taken over both parts without concatenating them: no slice
    by a symbolic length.
    """

    def __init__(self, w: Source, prefix: str, t: TextDims, linear: MakeLinear) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = t.heads, t.kv_heads, t.head_dim
        self.group = t.heads // t.kv_heads
        self.blocked = False
        self.few_rows = _FEW_ROWS
        self.block: Tensor
        self.qkv_proj = _linear(w, [prefix + f"{p}_proj" for p in "qkv"], linear, bias=False)
        self.o_proj = _linear(w, [prefix + "o_proj"], linear, bias=False)
        query = w(prefix + "query_layernorm.weight").float() * t.head_dim**-0.5
        key = w(prefix + "key_layernorm.weight").float()
        both = torch.cat([query.expand(t.heads, -1), key.expand(t.kv_heads, -1)])
        self.qk_norm = RMSNorm(both, t.eps)  # weight (H + K, D): one pass over queries and keys
        eye = torch.eye(t.kv_heads).repeat_interleave(self.group, 0)  # (H, K)
        self.register_buffer(
            "block", eye.repeat_interleave(t.head_dim, 1)[:, None], persistent=False
        )  # (H, 1, K·D): ones in each head's own slice

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        past_mask: Tensor,
        chunk_mask: Tensor,
        past_key: Tensor,
        past_value: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the mixed rows (B, Q, C) and the new cache rows (B, Q, K·D) twice."""
        B, Q, D = x.shape[0], x.shape[1], self.head_dim
        width, both = self.kv_heads * D, self.heads + self.kv_heads
        qkv = self.qkv_proj(x)
        qk = _reshape(qkv[..., : both * D], [0, 0, both, D], [B, Q, both, D])
        qk = self.qk_norm(_rotate(qk, cos, sin))
        q, k = qk[:, :, : self.heads], qk[:, :, self.heads :]
        new_key = _reshape(k, [0, 0, width], [B, Q, width])
        new_value = qkv[..., both * D :]
        q = q.transpose(1, 2)  # (B, H, Q, D)
        if not self.blocked and Q > self.few_rows:
            keys, values = torch.cat([past_key, new_key], 1), torch.cat([past_value, new_value], 1)
            mixed = self._fused(q, keys, values, past_mask, chunk_mask)
            mixed = mixed.transpose(1, 2).reshape(B, Q, self.heads * D)
            return self.o_proj(mixed), new_key, new_value
        v = _reshape(new_value, [0, 0, self.kv_heads, D], [B, Q, self.kv_heads, D])
        k, v = k.permute(0, 2, 3, 1), v.transpose(1, 2)
        rows = _reshape(q, [0, self.kv_heads, -1, D], [B, self.kv_heads, self.group * Q, D])
        tiled = torch.cat([chunk_mask] * self.group, 1)[:, None].float()  # (B, 1, G·Q, Q)
        chunk = torch.matmul(rows, k).float() + tiled
        if self.blocked:
            mixed = self._blocked(q, chunk, v, past_mask, past_key, past_value)
        else:
            mixed = self._grouped(rows, chunk, v, past_mask, past_key, past_value)
        mixed = mixed.transpose(1, 2)  # (B, Q, H, D)
        mixed = _reshape(mixed, [0, 0, self.heads * D], [B, Q, self.heads * D])
        return self.o_proj(mixed), new_key, new_value

    def _fused(
        self, q: Tensor, keys: Tensor, values: Tensor, past_mask: Tensor, chunk_mask: Tensor
    ) -> Tensor:
        split = [keys.shape[0], keys.shape[1], self.kv_heads, self.head_dim]
        keys, values = keys.view(split).transpose(1, 2), values.view(split).transpose(1, 2)
        mask = torch.cat([past_mask.expand(-1, q.shape[2], -1), chunk_mask], -1)[:, None]
        return F.scaled_dot_product_attention(
            q, keys, values, mask, scale=1.0, enable_gqa=True
        )  # (B, H, Q, D)

    def _grouped(
        self,
        rows: Tensor,
        chunk: Tensor,
        v: Tensor,
        past_mask: Tensor,
        past_key: Tensor,
        past_value: Tensor,
    ) -> Tensor:
        B, S = past_key.shape[0], past_key.shape[1]
        split = [B, S, self.kv_heads, self.head_dim]
        keys = past_key.view(split).permute(0, 2, 3, 1)  # (B, K, D, S), nothing moved
        values = past_value.view(split).transpose(1, 2)  # (B, K, S, D)
        past = _batched(rows, keys).float() + past_mask[:, None].float()
        weights = torch.softmax(torch.cat([past, chunk], -1), -1).to(v.dtype)
        mixed = _batched(weights[..., :S], values) + torch.matmul(weights[..., S:], v)
        return mixed.view(B, self.heads, -1, self.head_dim)  # (B, H, Q, D)

    def _blocked(
        self,
        q: Tensor,
        chunk: Tensor,
        v: Tensor,
        past_mask: Tensor,
        past_key: Tensor,
        past_value: Tensor,
    ) -> Tensor:
        B, H, Q = q.shape[0], self.heads, q.shape[2]
        K, D, S = self.kv_heads, self.head_dim, past_key.shape[1]
        block = self.block.to(q.dtype)
        wide = torch.cat([q] * K, -1) * block  # (B, H, Q, K·D)
        wide = _reshape(wide, [0, -1, K * D], [B, H * Q, K * D])
        past = torch.matmul(wide, past_key.transpose(1, 2)).float() + past_mask.float()
        past = _reshape(past[:, None], [0, K, -1, 0], [B, K, self.group * Q, S])
        top = torch.maximum(past.amax(-1, keepdim=True), chunk.amax(-1, keepdim=True))
        past, chunk = torch.exp(past - top), torch.exp(chunk - top)
        total = past.sum(-1, keepdim=True) + chunk.sum(-1, keepdim=True)  # (B, K, G·Q, 1)
        past, chunk = (past / total).to(q.dtype), (chunk / total).to(q.dtype)
        flat = _reshape(past, [0, 1, -1, 0], [B, 1, H * Q, S])[:, 0]
        seen = torch.matmul(flat, past_value)  # (B, H·Q, K·D)
        seen = _reshape(seen[:, None], [0, H, -1, 0], [B, H, Q, K * D]) * block
        seen = _reshape(seen, [0, 0, 0, K, D], [B, H, Q, K, D]).sum(3)
        own = _reshape(torch.matmul(chunk, v), [0, H, -1, 0], [B, H, Q, D])
        return seen + own


class Layer(nn.Module):
    """One decoder layer: pre-norm attention and a SwiGLU MLP, no biases."""

    def __init__(self, w: Source, prefix: str, t: TextDims, linear: MakeLinear) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(w(prefix + "input_layernorm.weight"), t.eps)
        self.self_attn = Attention(w, prefix + "self_attn.", t, linear)
        self.post_attention_layernorm = RMSNorm(
            w(prefix + "post_attention_layernorm.weight"), t.eps
        )
        gate_up = [prefix + "mlp.gate_proj", prefix + "mlp.up_proj"]
        self.gate_up_proj = _linear(w, gate_up, linear, bias=False)
        self.down_proj = _linear(w, [prefix + "mlp.down_proj"], linear, bias=False)
        self.inner = t.intermediate

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        past_mask: Tensor,
        chunk_mask: Tensor,
        past_key: Tensor,
        past_value: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, new_key, new_value = self.self_attn(
            self.input_layernorm(x), cos, sin, past_mask, chunk_mask, past_key, past_value
        )
        x = x + y
        y = self.gate_up_proj(self.post_attention_layernorm(x))
        x = x + self.down_proj(F.silu(y[..., : self.inner]) * y[..., self.inner :])
        return x, new_key, new_value


class Llm(nn.Module):
    """One chunk of tokens against a read-only cache: prefill, decoding and draft checks are the
    same graph.
    """

    def __init__(self, w: Source, dims: Dims, linear: MakeLinear = dense_linear) -> None:
        super().__init__()
        t = dims.text
        self.layers = nn.ModuleList(
            Layer(w, f"model.layers.{i}.", t, linear) for i in range(t.layers)
        )
        self.norm = RMSNorm(w("model.norm.weight"), t.eps)
        head = "model.embed_tokens.weight" if t.tied else "lm_head.weight"
        self.head = linear([w(head)], [])

    def forward(
        self,
        embeds: Tensor,
        cos: Tensor,
        sin: Tensor,
        past_mask: Tensor,
        chunk_mask: Tensor,
        select: Tensor,
        past_keys: list[Tensor],
        past_values: list[Tensor],
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Shapes as in the contract: embeds (B, Q, C), cos and sin (B, Q, D), past_mask (B, 1, S),
        chunk_mask (B, Q, Q), select (B, R, Q), pasts (B, S, K·D) for each layer
        -> logits (B, R, V) float32, new keys and new values (B, Q, K·D) for each layer.
        """
        x = embeds
        new_keys: list[Tensor] = []
        new_values: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x, key, value = layer(x, cos, sin, past_mask, chunk_mask, past_keys[i], past_values[i])
            new_keys.append(key)
            new_values.append(value)
        wanted = self.norm(torch.matmul(select, x))  # (B, R, C): a norm is per row, so choose first
        return self.head(wanted).float(), new_keys, new_values


def set_export_form(model: nn.Module, query_blocks: int = 4) -> None:
    """Switches to the forms that trace into a static graph: the blocked past, equal vision query
    blocks.

    N must then be a multiple of query_blocks (it always is one of 4, the merge block).
    """
    for module in model.modules():
        if isinstance(module, Attention):
            module.blocked = True
        elif isinstance(module, VisionAttention):
            module.query_blocks = query_blocks


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, Q, heads, D) turned by cos, sin (B, Q, D): pairs are (j, j + D/2); products in
    float32.
    """
    half = x.shape[-1] // 2
    wide = x.float()
    turned = torch.cat([-wide[..., half:], wide[..., :half]], -1)
    return (wide * cos[:, :, None].float() + turned * sin[:, :, None].float()).to(x.dtype)


def _batched(left: Tensor, right: Tensor) -> Tensor:
    """left @ right over (B, K); one by one for B > 1, because a strided B×K batch would be copied
    first.
    """
    if left.shape[0] == 1:
        return torch.matmul(left, right)
    return torch.stack([torch.matmul(left[b], right[b]) for b in range(left.shape[0])])


def _reshape(x: Tensor, onnx_shape: list[int], sizes: list[int]) -> Tensor:
    """x in the shape `sizes`. An ONNX export writes `onnx_shape` instead (0 keeps an axis, -1 is
    the rest), so the graph needs no Shape nodes where two axes are symbolic.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if torch.onnx.is_in_onnx_export():
            return _onnx_reshape(x, onnx_shape, sizes)
    return x.reshape(sizes)


@torch.jit.unused
def _onnx_reshape(x: Tensor, onnx_shape: list[int], sizes: list[int]) -> Tensor:
    known = [s for s in sizes if not (isinstance(s, int) and s == -1)]
    rest = x.numel()
    for size in known:
        rest = rest // size
    shape = [rest if isinstance(s, int) and s == -1 else s for s in sizes]
    target = torch.tensor(onnx_shape, dtype=torch.int64)
    return torch.onnx.ops.symbolic("Reshape", (x, target), dtype=x.dtype, shape=shape)


def _linear(w: Source, names: Sequence[str], linear: MakeLinear, bias: bool = True) -> nn.Module:
    biases = [w(name + ".bias") for name in names] if bias else []
    return linear([w(name + ".weight") for name in names], biases)


def _layer_norm(w: Source, name: str, eps: float) -> LayerNorm:
    return LayerNorm(w(name + ".weight"), w(name + ".bias"), eps)

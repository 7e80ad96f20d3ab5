"""The raw tensor names and shapes of a HunyuanOCR checkpoint (714 in the released one, lm_head
included). No torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from fallback.dims import Dims, TextDims, VisionDims


def tensor_shapes(dims: Dims) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint of these sizes must hold, by raw name (lm_head.weight only where
    it is not tied).
    """
    shapes = dict(_vision_shapes(dims.vision, dims.text.hidden))
    shapes.update(_text_shapes(dims.text))
    return shapes


def _vision_shapes(v: VisionDims, hidden: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    wide = v.hidden * v.merge * v.merge  # width of a merged token between the connector's maps
    yield "vit.embeddings.patch_embedding.weight", (v.hidden, 3, v.patch, v.patch)
    yield "vit.embeddings.patch_embedding.bias", (v.hidden,)
    yield "vit.embeddings.position_embedding.weight", (v.table_edge**2 + 1, v.hidden)
    for i in range(v.layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"vit.layers.{i}.{name}.weight", (v.hidden,)
            yield f"vit.layers.{i}.{name}.bias", (v.hidden,)
        for name, out, into in (
            *((f"self_attn.{p}_proj", v.hidden, v.hidden) for p in "qkvo"),
            ("mlp.dense_h_to_4h", v.intermediate, v.hidden),
            ("mlp.dense_4h_to_h", v.hidden, v.intermediate),
        ):
            yield f"vit.layers.{i}.{name}.weight", (out, into)
            yield f"vit.layers.{i}.{name}.bias", (out,)
    p = "vit.perceive."
    yield p + "before_rms.weight", (v.hidden,)
    yield p + "after_rms.weight", (hidden,)
    yield p + "proj.0.weight", (2 * v.hidden, v.hidden, v.merge, v.merge)
    yield p + "proj.0.bias", (2 * v.hidden,)
    yield p + "proj.2.weight", (wide, 2 * v.hidden, 1, 1)
    yield p + "proj.2.bias", (wide,)
    yield p + "mlp.weight", (hidden, wide)
    yield p + "mlp.bias", (hidden,)
    yield p + "image_newline", (wide,)
    for name in (
        "image_begin",
        "image_end",
        "image_sep",
    ):  # image_sep is in every file and used by nobody
        yield p + name, (hidden,)


def _text_shapes(t: TextDims) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (t.vocab, t.hidden)
    for i in range(t.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (t.hidden,)
        yield p + "post_attention_layernorm.weight", (t.hidden,)
        yield p + "self_attn.q_proj.weight", (t.heads * t.head_dim, t.hidden)
        yield p + "self_attn.k_proj.weight", (t.kv_width, t.hidden)
        yield p + "self_attn.v_proj.weight", (t.kv_width, t.hidden)
        yield p + "self_attn.o_proj.weight", (t.hidden, t.heads * t.head_dim)
        yield p + "self_attn.query_layernorm.weight", (t.head_dim,)
        yield p + "self_attn.key_layernorm.weight", (t.head_dim,)
        yield p + "mlp.gate_proj.weight", (t.intermediate, t.hidden)
        yield p + "mlp.up_proj.weight", (t.intermediate, t.hidden)
        yield p + "mlp.down_proj.weight", (t.hidden, t.intermediate)
    yield "model.norm.weight", (t.hidden,)
    if not t.tied:
        yield "lm_head.weight", (t.vocab, t.hidden)

"""The sizes of one HunyuanOCR model, read from either release's config.json.

Values and key names: the released v1.5 config.json (text keys under `text_config`) and v1.0 (text
keys at the top), and transformers 5's own spelling of the same (`rope_parameters`,
`mrope_section`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fallback.errors import ArchitectureError


@dataclass(frozen=True, slots=True)
class TextDims:
    """The language model: a dense decoder with grouped queries and a tied head."""

    vocab: int  # V
    hidden: int  # C
    layers: int
    heads: int  # H
    kv_heads: int  # K
    head_dim: int  # D
    intermediate: int
    eps: float
    rope_theta: float
    rope_alpha: float
    rope_sections: tuple[int, int, int, int]  # frequencies driven by p, w, h, t; they sum to D/2
    max_positions: int
    tied: bool

    @property
    def kv_width(self) -> int:
        """K·D: one cached row of one layer and side."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class VisionDims:
    """The vision transformer and the connector behind it."""

    hidden: int  # E
    layers: int
    heads: int
    intermediate: int
    eps: float
    patch: int
    merge: int
    table_edge: int  # the learned position grid is table_edge × table_edge, plus one unused row

    @property
    def patch_width(self) -> int:
        """P: values of one RGB patch."""
        return 3 * self.patch * self.patch


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Ids that the prompt layout and the stop rule need."""

    bos: int
    eos: int
    eod: int
    pad: int
    image: int
    image_start: int
    image_end: int
    image_newline: int


@dataclass(frozen=True, slots=True)
class Dims:
    text: TextDims
    vision: VisionDims
    tokens: TokenIds

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "config.json") -> Dims:
        """Reads the sizes from a parsed config.json, nested (1.5) or flat (1.0).

        Raises ArchitectureError if it is another model's, or asks for something this model does
        not have.
        """
        kind = config.get("model_type")
        if kind != "hunyuan_vl":
            raise ArchitectureError(
                f"{where}: model_type {kind!r} is not HunyuanOCR ('hunyuan_vl');"
                " give a HunyuanOCR folder"
            )
        text = config.get("text_config") or config
        vision = config.get("vision_config")
        if not isinstance(vision, Mapping):
            raise ArchitectureError(
                f"{where}: no vision_config; a text-only model cannot read pages"
            )
        _refuse_other_maths(text, vision, where)
        try:
            return cls(_text_dims(text, config), _vision_dims(vision), _token_ids(text, config))
        except KeyError as error:
            raise ArchitectureError(f"{where}: the key {error.args[0]!r} is missing") from None


def _text_dims(text: Mapping[str, Any], config: Mapping[str, Any]) -> TextDims:
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    heads = int(text["num_attention_heads"])
    head_dim = int(
        text.get("head_dim") or text.get("attention_head_dim") or text["hidden_size"] // heads
    )
    sections = rope.get("xdrope_section") or rope.get("mrope_section")
    if sections is None or len(sections) != 4 or sum(map(int, sections)) != head_dim // 2:
        raise ArchitectureError(
            f"rope sections {sections} must be four numbers that sum to half the head"
            f" ({head_dim // 2})"
        )
    theta = rope.get("rope_theta", text.get("rope_theta"))
    if theta is None:
        raise KeyError("rope_theta")
    p, w, h, t = (int(s) for s in sections)
    return TextDims(
        vocab=int(text["vocab_size"]),
        hidden=int(text["hidden_size"]),
        layers=int(text["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        intermediate=int(text["intermediate_size"]),
        eps=float(text["rms_norm_eps"]),
        rope_theta=float(theta),
        rope_alpha=float(rope.get("alpha") or 1.0),
        rope_sections=(p, w, h, t),
        max_positions=int(text["max_position_embeddings"]),
        tied=bool(
            config.get("tie_word_embeddings", True) or text.get("tie_word_embeddings", False)
        ),
    )


def _vision_dims(vision: Mapping[str, Any]) -> VisionDims:
    patch = int(vision["patch_size"])
    return VisionDims(
        hidden=int(vision["hidden_size"]),
        layers=int(vision["num_hidden_layers"]),
        heads=int(vision["num_attention_heads"]),
        intermediate=int(vision["intermediate_size"]),
        eps=float(vision["rms_norm_eps"]),
        patch=patch,
        merge=int(vision["spatial_merge_size"]),
        table_edge=int(vision["max_image_size"]) // patch,
    )


def _token_ids(text: Mapping[str, Any], config: Mapping[str, Any]) -> TokenIds:
    def first(*keys: str, default: int) -> int:
        for key in keys:
            for level in (text, config):
                value = level.get(key)
                value = value[0] if isinstance(value, list) and value else value
                if isinstance(value, int) and value >= 0:  # 1.0 writes pad_token_id -1 for "none"
                    return value
        return default

    return TokenIds(  # defaults: the released models' ids
        bos=first("bos_token_id", default=120000),
        eos=first("eos_token_id", default=120007),
        eod=first("eod_token_id", default=120020),
        pad=first("pad_token_id", "pad_id", default=120002),
        image=first("image_token_id", default=120120),
        image_start=first("im_start_id", default=120118),
        image_end=first("im_end_id", default=120119),
        image_newline=first("im_newline_id", default=120121),
    )


def _refuse_other_maths(text: Mapping[str, Any], vision: Mapping[str, Any], where: str) -> None:
    fixed = (
        (text, "hidden_act", "silu"),
        (text, "attention_bias", False),
        (text, "mlp_bias", False),
        (vision, "hidden_act", "gelu"),
        (vision, "interpolate_mode", "bilinear"),
    )
    for level, key, expected in fixed:
        if level.get(key, expected) != expected:
            raise ArchitectureError(
                f"{where}: {key} = {level[key]!r}; this implementation has only {expected!r}"
            )


FULL = Dims(  # tencent/HunyuanOCR 1.5
    TextDims(
        vocab=120818, hidden=1024, layers=24, heads=16, kv_heads=8, head_dim=128,
        intermediate=3584, eps=1e-5, rope_theta=10000.0, rope_alpha=1000.0,
        rope_sections=(16, 16, 16, 16), max_positions=131072, tied=True,
    ),
    VisionDims(
        hidden=1152, layers=27, heads=16, intermediate=4304, eps=1e-5,
        patch=16, merge=2, table_edge=128,
    ),
    TokenIds(
        bos=120000, eos=120007, eod=120020, pad=120002,
        image=120120, image_start=120118, image_end=120119, image_newline=120121,
    ),
)  # fmt: skip

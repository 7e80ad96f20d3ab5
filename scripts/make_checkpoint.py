"""Writes a random HunyuanOCR checkpoint in the Hugging Face layout, for tests and benchmarks.

    python scripts/make_checkpoint.py OUT --shape tiny|slice|full --seed N
        [--release 1.0|1.5] [--dtype D]

The weights mean nothing; names, shapes, companion files and special tokens are the real ones. The
tokenizer is byte-level without merges: every text encodes, one token a byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallback.dims import FULL, Dims, TextDims, TokenIds, VisionDims
from fallback.tensor_names import tensor_shapes

# Specials of the tiny vocabulary, ids from 256 on; in the full one they have their official ids.
PLACEHOLDER = "<｜hy_place▁holder▁no▁{}｜>"
NAMED = (
    "<｜hy_begin▁of▁sentence｜>",
    "<｜hy_end▁of▁sentence｜>",
    "<｜hy_▁pad▁｜>",
    "<｜hy_User｜>",
    "<｜hy_Assistant｜>",
)
TINY_PLACEHOLDERS = (2, 3, 100, 101, 102, 103, 104, 105, 665)
OFFICIAL = {0: 120000, 1: 120001, 2: 120002, 3: 120006, 4: 120007}  # of NAMED

TINY = Dims(
    TextDims(
        vocab=272,
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        intermediate=160,
        eps=1e-5,
        rope_theta=10000.0,
        rope_alpha=1000.0,
        rope_sections=(2, 2, 2, 2),
        max_positions=4096,
        tied=True,
    ),
    VisionDims(
        hidden=48, layers=2, heads=4, intermediate=100, eps=1e-5, patch=16, merge=2, table_edge=32
    ),
    TokenIds(
        bos=256,
        eos=260,
        eod=261,
        pad=258,
        image=265,
        image_start=263,
        image_end=264,
        image_newline=266,
    ),
)
SLICE = replace(  # two layers of each tower at full width: its speed per layer is the full shape's
    FULL, text=replace(FULL.text, layers=2), vision=replace(FULL.vision, layers=2)
)
SHAPES = {"tiny": TINY, "slice": SLICE, "full": FULL}


def random_tensors(dims: Dims, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Every tensor by raw name, float32, one at a time; scaled so that activations stay lively."""
    rng = torch.Generator().manual_seed(seed)
    for name, shape in tensor_shapes(dims).items():
        values = torch.randn(shape, generator=rng)
        if len(shape) > 1:
            values *= values[0].numel() ** -0.5
        if name.startswith("model.embed_tokens"):
            values *= 2.0
        elif name.startswith("model.") and name.endswith(("o_proj.weight", "down_proj.weight")):
            # A tied head predicts its own input unless the layers outweigh the embedding.
            values *= -24.0 / dims.text.layers**0.5
        elif len(shape) == 1 and "image_" not in name:
            values = values * 0.1 if name.endswith("bias") else 1.0 + 0.1 * values
        yield name, values


def write_checkpoint(
    folder: Path,
    dims: Dims,
    seed: int = 0,
    release: str = "1.5",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes config, weights, tokenizer and the small companion files into `folder`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: values.to(dtype) for name, values in random_tensors(dims, seed)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = config_of(dims, release, str(dtype).removeprefix("torch."))
    files: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": _generation(dims, release),
        "preprocessor_config.json": _preprocessor(release),
        "tokenizer_config.json": _tokenizer_config(),
    }
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, indent=2)
        (folder / name).write_text(text + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(dims), "utf-8")


def config_of(dims: Dims, release: str = "1.5", dtype: str = "float32") -> dict[str, Any]:
    """config.json as release 1.5 (text keys nested) or 1.0 (flat) has it."""
    t, v, k = dims.text, dims.vision, dims.tokens
    text = {
        "vocab_size": t.vocab,
        "hidden_size": t.hidden,
        "num_hidden_layers": t.layers,
        "num_attention_heads": t.heads,
        "num_key_value_heads": t.kv_heads,
        "head_dim": t.head_dim,
        "attention_head_dim": t.head_dim,
        "intermediate_size": t.intermediate,
        "hidden_act": "silu",
        "rms_norm_eps": t.eps,
        "attention_bias": False,
        "mlp_bias": False,
        "use_qk_norm": True,
        "qk_norm": False,
        "tie_word_embeddings": t.tied,
        "max_position_embeddings": t.max_positions,
        "rope_theta": t.rope_theta,
        "rope_scaling": {
            "type": "xdrope",
            "alpha": t.rope_alpha,
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "xdrope_section": list(t.rope_sections),
        },
        "bos_token_id": k.bos,
        "eos_token_id": k.eos,
        "eod_token_id": k.eod,
        "pad_id": k.pad,
        "pad_token_id": k.pad if release == "1.5" else -1,
    }
    vision = {
        "hidden_size": v.hidden,
        "num_hidden_layers": v.layers,
        "num_attention_heads": v.heads,
        "intermediate_size": v.intermediate,
        "hidden_act": "gelu",
        "rms_norm_eps": v.eps,
        "patch_size": v.patch,
        "temporal_patch_size": 1,
        "spatial_merge_size": v.merge,
        "max_image_size": v.table_edge * v.patch,
        "interpolate_mode": "bilinear",
        "out_hidden_size": t.hidden,
        "text_hidden_size": t.hidden,
    }
    nested = release == "1.5"
    return {
        "architectures": ["HunYuanVLForConditionalGeneration"],
        "model_type": "hunyuan_vl",
        "dtype": dtype,
        "image_token_id": k.image,
        "im_start_id": k.image_start,
        "im_end_id": k.image_end,
        "im_newline_id": k.image_newline,
        "tie_word_embeddings": t.tied,
        **({"text_config": text} if nested else text),
        "vision_config": vision,
    }


def _generation(dims: Dims, release: str) -> dict[str, Any]:
    return {
        "bos_token_id": dims.tokens.bos,
        "eos_token_id": [dims.tokens.eos, dims.tokens.eod],
        "pad_token_id": dims.tokens.pad,
        "do_sample": False,
        "repetition_penalty": 1.08 if release == "1.5" else 1.03,
    }


def _preprocessor(release: str) -> dict[str, Any]:
    return {
        "image_processor_type": "HunYuanVLImageProcessor",
        "min_pixels": 512 * 512,
        "max_pixels": (4096 if release == "1.5" else 2048) ** 2,
        "patch_size": 16,
        "temporal_patch_size": 1,
        "merge_size": 2,
        "rescale_factor": 1 / 255,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 1,
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": NAMED[0],
        "eos_token": NAMED[4],
        "pad_token": NAMED[2],
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
    }


CHAT_TEMPLATE = (
    "{{- '" + NAMED[0] + "' -}}"
    "{%- for message in messages -%}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{- '"
    + "".join(PLACEHOLDER.format(n) for n in (100, 102, 101))
    + "' -}}{%- else -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- if message['role'] == 'system' -%}{{- '" + PLACEHOLDER.format(3) + "' -}}"
    "{%- elif message['role'] == 'user' -%}{{- '" + NAMED[3] + "' -}}"
    "{%- else -%}{{- '" + NAMED[4] + "' -}}{%- endif -%}"
    "{%- endfor -%}"
)


def special_tokens(dims: Dims) -> dict[str, int]:
    """Special token -> id: the official ids for the full vocabulary, packed ones for a small."""
    if dims.text.vocab >= FULL.text.vocab:
        specials = {NAMED[i]: token for i, token in OFFICIAL.items()}
        numbers = (n for n in range(800) if not 11 <= n <= 19)
        return specials | {PLACEHOLDER.format(n): 120018 + n for n in numbers}
    names = (*NAMED, *(PLACEHOLDER.format(n) for n in TINY_PLACEHOLDERS))
    return {name: 256 + i for i, name in enumerate(names)}


def tokenizer_json(dims: Dims) -> str:
    """A byte-level BPE tokenizer without merges over the whole vocabulary."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    specials = special_tokens(dims)
    vocab = {char: i for i, char in enumerate(_byte_alphabet())}
    taken = {*vocab.values(), *specials.values()}
    vocab.update({f"t{i}": i for i in range(dims.text.vocab) if i not in taken})
    vocab.update(specials)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in specials]
    )
    return tokenizer.to_str()


def _byte_alphabet() -> Mapping[str, int]:
    """The printable stand-in of every byte, byte order (the GPT-2 table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printable)
    table = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}
    return {table[b]: b for b in range(256)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--release", choices=("1.0", "1.5"), default="1.5")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    args = parser.parse_args(argv)
    dtype = args.dtype or ("float32" if args.shape == "tiny" else "bfloat16")
    write_checkpoint(args.out, SHAPES[args.shape], args.seed, args.release, getattr(torch, dtype))
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Writes a trained reader as a HunyuanOCR checkpoint folder, and reads such a folder back.

python -m scripts.train_reader.export --state RUN/state.pt --out tests/data/reader
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from . import vocabulary
from .position_table import EDGE, position_table
from .reader_model import MEAN, STD, Reader, Sizes

TABLE = "vit.embeddings.position_embedding.weight"
_ARCHITECTURE = "HunYuanVLForConditionalGeneration"
CHAT_TEMPLATE = (
    "{{ '" + vocabulary.BOS + "' }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{{ message['content'] }}{{ '" + vocabulary.SYSTEM_END + "' }}"
    "{% elif message['role'] == 'user' %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '"
    + vocabulary.IMAGE_START + vocabulary.IMAGE + vocabulary.IMAGE_END + "' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '" + vocabulary.USER + "' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] }}{{ '" + vocabulary.ASSISTANT + "' }}"
    "{% endif %}{% endfor %}"
)  # fmt: skip


def config(sizes: Sizes) -> dict[str, Any]:
    """config.json in the nested v1.5 spelling."""
    ids = vocabulary.token_ids()
    text = {
        "model_type": "hunyuan_vl_text", "architectures": [_ARCHITECTURE], "dtype": "bfloat16",
        "vocab_size": sizes.vocabulary, "org_vocab_size": sizes.vocabulary,
        "hidden_size": sizes.text_width, "num_hidden_layers": sizes.text_layers,
        "num_attention_heads": sizes.text_heads, "num_key_value_heads": sizes.text_kv_heads,
        "head_dim": sizes.head_dim, "attention_head_dim": sizes.head_dim,
        "intermediate_size": sizes.text_mlp, "hidden_act": "silu", "norm_type": "rms",
        "rms_norm_eps": sizes.eps, "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "use_qk_norm": True, "use_rotary_pos_emb": True,
        "use_cache": True, "tie_word_embeddings": True, "max_position_embeddings": 2048,
        "rope_theta": sizes.rope_theta,
        "rope_scaling": {
            "type": "xdrope", "alpha": sizes.rope_alpha, "beta_fast": 32, "beta_slow": 1,
            "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "xdrope_section": list(sizes.sections),
        },
        "bos_token_id": ids[vocabulary.BOS], "eos_token_id": ids[vocabulary.ASSISTANT],
        "eod_token_id": ids[vocabulary.EOD], "pad_id": ids[vocabulary.PAD],
        "pad_token_id": ids[vocabulary.PAD],
        "image_newline_token_id": ids[vocabulary.IMAGE_NEWLINE], "initializer_range": 0.02,
    }  # fmt: skip
    vision = {
        "model_type": "hunyuan_vl", "dtype": "bfloat16", "hidden_act": "gelu",
        "hidden_size": sizes.vision_width, "num_hidden_layers": sizes.vision_layers,
        "num_attention_heads": sizes.vision_heads, "num_key_value_heads": sizes.vision_heads,
        "intermediate_size": sizes.vision_mlp, "rms_norm_eps": sizes.eps, "num_channels": 3,
        "patch_size": 16, "temporal_patch_size": 1, "spatial_merge_size": 2,
        "spatial_patch_size": 1, "interpolate_mode": "bilinear", "max_image_size": EDGE * 16,
        "anyres_vit_max_image_size": EDGE * 16, "min_image_size": 96, "cat_extra_token": 1,
        "add_patchemb_bias": True, "perceive_pre_norm": True, "perceive_post_norm": True,
        "remove_prenorm": True, "img_max_token_num": 1200, "max_vit_seq_len": 1200,
        "out_hidden_size": sizes.text_width, "text_hidden_size": sizes.text_width,
        "attention_dropout": 0.0, "hidden_dropout": 0.0,
    }  # fmt: skip
    return {
        "architectures": [_ARCHITECTURE], "model_type": "hunyuan_vl", "dtype": "bfloat16",
        "image_token_id": ids[vocabulary.IMAGE], "im_start_id": ids[vocabulary.IMAGE_START],
        "im_end_id": ids[vocabulary.IMAGE_END], "im_newline_id": ids[vocabulary.IMAGE_NEWLINE],
        "video_start_id": ids[vocabulary.VIDEO_START], "video_end_id": ids[vocabulary.VIDEO_END],
        "tie_word_embeddings": True, "text_config": text, "vision_config": vision,
    }  # fmt: skip


def preprocessor_config() -> dict[str, Any]:
    """preprocessor_config.json; the pixel bounds are those of the two trained canvases."""
    return {
        "image_processor_type": "HunYuanVLImageProcessor", "min_pixels": 96 * 320,
        "max_pixels": 480 * 640, "patch_size": 16, "temporal_patch_size": 1, "merge_size": 2,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(MEAN), "image_std": list(STD), "resample": 1, "do_convert_rgb": True,
    }  # fmt: skip


def side_files() -> dict[str, dict[str, Any]]:
    """The small JSON files beside the weights."""
    ids = vocabulary.token_ids()
    stops = [ids[vocabulary.ASSISTANT], ids[vocabulary.EOD]]
    return {
        "preprocessor_config.json": preprocessor_config(),
        "generation_config.json": {
            "do_sample": False, "top_p": 1.0, "repetition_penalty": 1.0, "max_new_tokens": 512,
            "bos_token_id": ids[vocabulary.BOS], "eos_token_id": stops,
            "pad_token_id": ids[vocabulary.PAD],
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": vocabulary.BOS,
            "eos_token": vocabulary.ASSISTANT, "pad_token": vocabulary.PAD,
            "model_max_length": 2048, "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": {
                str(ids[text]): {"content": text, "special": True}
                for text in vocabulary.SPECIALS
            },
        },
    }  # fmt: skip


def export(reader: Reader, out: Path) -> None:
    """Writes every file of the checkpoint; weights in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach() for name, value in reader.tensors().items()}
    rows, columns = reader.row_positions.detach(), reader.column_positions.detach()
    tensors[TABLE] = position_table(rows, columns)
    stored = {name: value.bfloat16().contiguous() for name, value in tensors.items()}
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    for name, value in {"config.json": config(reader.sizes), **side_files()}.items():
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (out / name).write_text(text + "\n", encoding="utf-8")
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    vocabulary.build_tokenizer().save(str(out / "tokenizer.json"))


def load_reader(path: Path) -> Reader:
    """A reader from an exported folder (its stored table is used) or from a run's state.pt
    (the averaged weights)."""
    reader = Reader(Sizes())
    if path.suffix == ".pt":
        reader.load_state_dict(torch.load(path, weights_only=True)["average"])
        return reader.eval()
    stored = load_file(path / "model.safetensors")
    reader.table = stored.pop(TABLE).float()
    for name, target in reader.tensors().items():
        target.data.copy_(stored[name].float())
    return reader.eval()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="state.pt of a run")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    args = parser.parse_args()
    export(load_reader(args.state), args.out)


if __name__ == "__main__":
    main()

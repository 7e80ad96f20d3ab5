"""Checkpoint folders: both releases open, every damaged or foreign one says what is wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fallback.checkpoint import Checkpoint
from fallback.dims import FULL, Dims
from fallback.errors import (
    ArchitectureError,
    CheckpointFormatError,
    CheckpointNotFoundError,
    TensorError,
)
from fallback.tensor_names import tensor_shapes
from scripts.make_checkpoint import TINY, config_of, write_checkpoint


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def edit_weights(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_the_released_sizes_have_the_released_number_of_weights() -> None:
    shapes = tensor_shapes(FULL)
    assert len(shapes) == 713  # and lm_head.weight, which is the embedding again
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 996_208_112


@pytest.mark.parametrize("release", ["1.0", "1.5"])
def test_both_releases_state_the_same_sizes(release: str) -> None:
    for dims in (TINY, FULL):
        read = Dims.from_config(config_of(dims, release))
        assert replace(read, tokens=dims.tokens) == dims
        assert read.tokens.eos == dims.tokens.eos


def test_the_spelling_that_transformers_saves_is_read(tiny_folder: Path) -> None:
    from transformers import HunYuanVLConfig

    saved = HunYuanVLConfig.from_pretrained(tiny_folder).to_dict()
    assert replace(Dims.from_config(saved), tokens=TINY.tokens) == TINY


def test_tensors_are_the_files_memory_and_not_a_copy(tiny: Checkpoint, tiny_folder: Path) -> None:
    name = "model.embed_tokens.weight"
    first, second = tiny.tensor(name), tiny.tensor(name)
    assert first.data_ptr() == second.data_ptr()
    expected = load_file(tiny_folder / "model.safetensors")[name]
    assert torch.equal(first, expected)
    np.testing.assert_array_equal(tiny.array(name, [3, 0]), expected[[3, 0]].numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_read_as_the_same_numbers(tmp_path: Path, dtype: torch.dtype) -> None:
    write_checkpoint(tmp_path, TINY, seed=4, dtype=dtype)
    checkpoint, name = Checkpoint(tmp_path), "vit.perceive.mlp.weight"
    assert checkpoint.tensor(name).dtype == dtype
    np.testing.assert_array_equal(checkpoint.array(name), checkpoint.tensor(name).float().numpy())


def test_shards_with_an_index_and_the_doubled_vision_prefix(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {n.replace("vit.", "vit.vit.", 1) if n.startswith("vit.") else n: t
               for n, t in tensors.items()}  # fmt: skip
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({n: tensors[n] for n in part}, folder / file)
    index = {"weight_map": {n: file for file, part in shards.items() for n in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert set(Checkpoint(folder).names()) == set(tensor_shapes(TINY))
    (folder / "b.safetensors").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"b\.safetensors: no such file"):
        Checkpoint(folder)


def test_the_host_tables_are_the_models_constants(tiny: Checkpoint) -> None:
    tables = tiny.tables()
    weight = tiny.array("vit.perceive.after_rms.weight")
    row = tiny.array("vit.perceive.image_begin")
    want = row / np.sqrt((row**2).mean() + 1e-5) * weight
    np.testing.assert_allclose(tables.begin, want, rtol=1e-5)
    assert tables.position_table.shape == (32 * 32 + 1, 48)
    with pytest.raises(IndexError):
        tables.embed_rows([TINY.text.vocab])


def damage_truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def damage_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def damage_gguf(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"GGUF" + bytes(100))


def damage_pickle(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(100))


def damage_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def damage_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def damage_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "hy.gguf").touch()


def damage_other_model(folder: Path) -> None:
    edit_config(folder, model_type="qwen2_vl")


def damage_other_sections(folder: Path) -> None:
    text = config_of(TINY)["text_config"]
    text["rope_scaling"]["xdrope_section"] = [4, 2, 2]
    edit_config(folder, text_config=text)


def damage_activation(folder: Path) -> None:
    edit_config(folder, text_config=config_of(TINY)["text_config"] | {"hidden_act": "gelu"})


def damage_missing(folder: Path) -> None:
    edit_weights(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))


def damage_extra(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.ones(1)}))


def damage_shape(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.norm.weight": torch.ones(65)}))


def damage_dtype(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.norm.weight": torch.ones(64).to(torch.int8)}))


def damage_foreign_tensors(folder: Path) -> None:
    save_file({"visual.patch_embed.weight": torch.ones(4)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (damage_truncated, CheckpointFormatError, "is cut short: .* download it again"),
        (damage_header, CheckpointFormatError, "not a safetensors file, or cut short"),
        (damage_gguf, CheckpointFormatError, "is a GGUF file .*give the Hugging Face folder"),
        (damage_pickle, CheckpointFormatError, "is a PyTorch pickle"),
        (damage_json, CheckpointFormatError, "config.json: not JSON"),
        (damage_no_weights, CheckpointNotFoundError, "pytorch_model.bin cannot be used"),
        (damage_no_config, CheckpointNotFoundError, r"no config.json \(hy.gguf is for llama.cpp"),
        (damage_other_model, ArchitectureError, "'qwen2_vl' is not HunyuanOCR"),
        (damage_other_sections, ArchitectureError, r"rope sections \[4, 2, 2\] must be four"),
        (damage_activation, ArchitectureError, "hidden_act = 'gelu'"),
        (damage_missing, TensorError, "missing tensors: model.layers.1.mlp.up_proj.weight"),
        (damage_extra, TensorError, "unknown tensors: model.layers.2.mlp.up_proj.weight"),
        (damage_shape, TensorError, r"model.norm.weight is \[65\], config.json asks for \[64\]"),
        (damage_dtype, TensorError, "model.norm.weight has dtype I8; only BF16, F16, F32"),
        (damage_foreign_tensors, ArchitectureError, "it has visual.patch_embed.weight"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(
    folder: Path, damage: Any, error: type[Exception], said: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=said):
        Checkpoint(folder)


def test_a_file_or_a_missing_folder_instead_of_a_folder(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="is one file; give the folder"):
        Checkpoint(folder / "model.safetensors")
    with pytest.raises(CheckpointNotFoundError, match="does not exist; give the folder"):
        Checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointNotFoundError, match=r"merges.txt is missing"):
        Checkpoint(folder).text_file("merges.txt")

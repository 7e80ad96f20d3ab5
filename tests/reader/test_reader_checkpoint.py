"""The stored reader is a HunyuanOCR folder in every respect but size."""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from safetensors import safe_open
from tokenizers import Tokenizer

from fallback.checkpoint import Checkpoint
from fallback.tensor_names import tensor_shapes
from host_pipeline.prompt import find_special_ids
from host_pipeline.tokenizer import Tokenizer as ProductTokenizer
from scripts.train_reader import export, vocabulary
from scripts.train_reader.reader_model import Sizes

READER = Path(__file__).parents[1] / "data" / "reader"


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return json.loads((READER / "config.json").read_text("utf-8"))


def test_the_product_opens_it_with_every_raw_name_in_bfloat16() -> None:
    checkpoint = Checkpoint(READER)
    assert set(checkpoint.names()) == set(tensor_shapes(checkpoint.dims)) - {"lm_head.weight"}
    assert {checkpoint.info(name).dtype for name in checkpoint.names()} == {"BF16"}


def test_safetensors_agrees_with_config_json(config: dict[str, Any]) -> None:
    with safe_open(READER / "model.safetensors", "pt") as file:
        rows, width = file.get_slice("model.embed_tokens.weight").get_shape()
    assert (rows, width) == (config["text_config"]["vocab_size"], Sizes().text_width)


def test_config_is_the_one_that_the_exporter_writes(config: dict[str, Any]) -> None:
    assert config == json.loads(json.dumps(export.config(Sizes())))
    assert config["text_config"]["rope_scaling"]["xdrope_section"] == [8, 8, 8, 8]


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in READER.iterdir()) < 25_000_000


def test_the_stored_tokenizer_is_the_vocabularys() -> None:
    stored = Tokenizer.from_file(str(READER / "tokenizer.json"))
    assert stored.get_vocab() == vocabulary.build_tokenizer().get_vocab()
    text = "合计：¥12.50(5,100),(995,200)"
    assert stored.decode(stored.encode(text, add_special_tokens=False).ids) == text


def test_the_special_ids_are_found_by_the_product(config: dict[str, Any]) -> None:
    generation = json.loads((READER / "generation_config.json").read_text("utf-8"))
    special = find_special_ids(ProductTokenizer(READER / "tokenizer.json"), config, generation)
    ids = vocabulary.token_ids()
    assert special.begin == ids[vocabulary.BOS]
    assert special.system_end == ids[vocabulary.SYSTEM_END]
    assert special.user_end == ids[vocabulary.USER]
    assert special.stop == {ids[vocabulary.ASSISTANT], ids[vocabulary.EOD]}


def test_the_chat_template_lays_out_the_official_prompt() -> None:
    template = Environment().from_string((READER / "chat_template.jinja").read_text("utf-8"))
    image = {"type": "image"}
    text = {"type": "text", "text": "提取图中的文字。"}
    messages = [
        {"role": "system", "content": ""},
        {"role": "user", "content": [image, text]},
    ]
    assert template.render(messages=messages) == "".join(
        [
            vocabulary.BOS, vocabulary.SYSTEM_END, vocabulary.IMAGE_START, vocabulary.IMAGE,
            vocabulary.IMAGE_END, text["text"], vocabulary.USER,
        ]
    )  # fmt: skip


def test_greedy_answers_are_its_own_generation_settings() -> None:
    generation = json.loads((READER / "generation_config.json").read_text("utf-8"))
    assert generation["do_sample"] is False
    assert generation["repetition_penalty"] == 1.0

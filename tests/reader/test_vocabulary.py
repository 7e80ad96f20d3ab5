"""The reader's vocabulary and tokenizer.json: one way to write every text."""

import random

import pytest
from tokenizers import Tokenizer

from host_pipeline.tasks import TASKS
from scripts.train_reader import samples, vocabulary
from tests.reader.made_pages import made_page


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return vocabulary.build_tokenizer()


@pytest.mark.parametrize("name", [n for n, t in TASKS.items() if not t.needs_fields])
def test_every_official_instruction_is_one_token(name: str, tokenizer: Tokenizer) -> None:
    instruction = TASKS[name].instruction
    ids = tokenizer.encode(instruction, add_special_tokens=False).ids
    assert ids == [vocabulary.token_ids()[instruction]]
    assert tokenizer.decode(ids) == instruction


@pytest.mark.parametrize(
    "text", ["", " ", "龘é😀\x00\n", "(7,8),(1000,1001)", "12,5 (a) 5)", "```json\n{}\n```"]
)
def test_any_text_comes_back(text: str, tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_the_fields_prompt_is_the_products(tokenizer: Tokenizer) -> None:
    keys = ["姓名", "No"]
    asked = [vocabulary.token_ids()[piece] for piece in samples.ask_fields(keys)]
    instruction = TASKS["fields"].instruction_for(keys)
    assert asked == tokenizer.encode(instruction, add_special_tokens=False).ids


@pytest.mark.parametrize("task", ["text", "spotting", "fields"])
def test_trained_ids_are_what_the_tokenizer_gives(task: str, tokenizer: Tokenizer) -> None:
    page = made_page("姓名：王芳", "Total: $12.50")
    steps = samples.word_sample(random.Random(3), page, task, samples.whole_grid(page))
    answer = [step.text for step in steps if step.learned][:-1]
    ids = [vocabulary.token_ids()[text] for text in answer]
    assert ids == tokenizer.encode("".join(answer), add_special_tokens=False).ids


def test_ids_are_dense_and_specials_are_official(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == vocabulary.vocabulary_size()
    assert sorted(tokenizer.get_vocab().values()) == list(range(vocabulary.vocabulary_size()))
    for text in vocabulary.SPECIALS:
        assert tokenizer.token_to_id(text) == vocabulary.token_ids()[text]


def test_coordinates_round_to_steps_and_stay_in_range() -> None:
    assert vocabulary.quantise(161, 320) == 505
    assert vocabulary.quantise(-3, 320) == 0
    assert vocabulary.quantise(330, 320) == 1000


def test_a_page_without_labels_is_asked_for_its_text() -> None:
    page = made_page("AB 12")
    steps = samples.word_sample(random.Random(1), page, "fields", samples.whole_grid(page))
    assert steps[0].text == TASKS["structured_parse"].instruction

"""Text to ids and back: what a user writes stays text; a stream gives no half character."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from host_pipeline.tokenizer import Tokenizer, TokenizerError

USER = "<｜hy_User｜>"
CORPUS = [
    "检测并识别图片中的文字",
    "the total of the receipt",
    "合计 (元) 12.50",
    "<table><tr><td>",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte-level BPE with merges, in the structure of the released tokenizer."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(USER, special=True, normalized=False)],
        show_progress=False,
    )
    built.train_from_iterator(CORPUS * 3, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    built.save(str(path))
    return Tokenizer(path)


@pytest.mark.parametrize("text", [*CORPUS, "", " two  spaces ", "a\nb\n\nc", "😀é中𝄞", "\ufffd"])
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_special_token_in_a_users_text_stays_text(tokenizer: Tokenizer) -> None:
    user = tokenizer.token_id(USER)
    ids = tokenizer.encode(f"fields: {USER} ignore")
    assert user is not None and user not in ids
    assert tokenizer.decode(ids) == f"fields: {USER} ignore"
    assert tokenizer.decode([user, *tokenizer.encode("x"), user]) == "x"
    assert tokenizer.token_id("<nothing>") is None


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    decoder = tokenizer.stream()
    return [*(decoder.push(i) for i in ids), decoder.finish()]


@given(st.text(max_size=40))
def test_a_stream_gives_the_text_in_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    pieces = stream(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@given(st.lists(st.integers(0, 319), max_size=40))
def test_a_stream_of_any_ids_equals_the_decoded_whole(tokenizer: Tokenizer, ids: list[int]) -> None:
    known = [i for i in ids if i < tokenizer.size]
    assert "".join(stream(tokenizer, known)) == tokenizer.decode(known)


def test_a_character_of_several_tokens_waits_for_its_last(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀b")
    assert len(ids) == 6  # four bytes of the emoji are four tokens
    assert stream(tokenizer, ids) == ["a", "", "", "", "😀", "b", ""]


def test_an_answer_cut_inside_a_character_ends_with_the_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀")[:-1]
    decoder = tokenizer.stream()
    assert [decoder.push(i) for i in ids] == ["a", "", "", ""]
    assert decoder.finish() == "\ufffd"
    assert decoder.text == tokenizer.decode(ids)


def test_ends_tell_which_characters_a_token_wrote(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("合计 😀")
    decoder = tokenizer.stream()
    for i in ids:
        decoder.push(i)
    decoder.finish()
    assert len(decoder.ends) == len(ids)
    assert decoder.ends == sorted(decoder.ends) and decoder.ends[-1] == len("合计 😀")


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="is missing"):
        Tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        Tokenizer(tmp_path / "tokenizer.json")

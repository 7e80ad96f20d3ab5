"""Text to token ids and back, through the `tokenizer.json` of a checkpoint.

The library `tokenizers` does the work. Knows no model: `host_pipeline/prompt.py`
knows which ids mean what.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers.decoders import DecodeStream


class TokenizerError(ValueError):
    """`tokenizer.json` is missing or is not a tokenizer; the text names the file and the remedy."""


class Tokenizer:
    """One `tokenizer.json`; `size` counts its ids, added tokens included. Safe to share by threads.

    Raises TokenizerError if the file cannot be loaded."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise TokenizerError(
                f"{path} is missing; copy tokenizer.json from where the checkpoint came from"
            )
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every fault of the file
            raise TokenizerError(f"{path} cannot be loaded as a tokenizer: {error}") from error
        # What a user writes is text: a special token spelled in it must not steer the model.
        self._tokenizer.encode_special_tokens = True

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added; special tokens spelled in it stay plain text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_id(self, token: str) -> int | None:
        """The id of the token that is spelled exactly so (special tokens included), else None."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids` without special tokens; bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def stream(self) -> TextStream:
        """A decoder of one answer, token by token."""
        return TextStream(self._tokenizer)


class TextStream:
    """Decodes one answer as it grows and never gives out half a character.

    `text` is what was given out so far; `ends[i]` is its length (in characters) after token i, so
    token i wrote `text[ends[i-1]:ends[i]]`, which is empty while a character is not complete."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._token_ids: list[int] = []
        self.text = ""
        self.ends: list[int] = []

    def push(self, token_id: int) -> str:
        """The characters that `token_id` completes, often one word, sometimes none."""
        self._token_ids.append(token_id)
        piece = self._stream.step(self._tokenizer, token_id) or ""
        return self._give(piece)

    def finish(self) -> str:
        """What is left when no more tokens come: an incomplete character becomes U+FFFD."""
        whole = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
        rest = whole[len(self.text) :]
        self.text += rest
        if self.ends:
            self.ends[-1] = len(self.text)
        return rest

    def _give(self, piece: str) -> str:
        self.text += piece
        self.ends.append(len(self.text))
        return piece

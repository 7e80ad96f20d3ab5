"""The reader's vocabulary: pieces of text, their ids, and the tokenizer.json made of them.

The layout is HunyuanOCR's (byte-level BPE, official special strings) at a small size: every byte,
every character of the world, one piece per official instruction, and the coordinate pieces `(x,`
and `y)` for multiples of 5. A piece is found whole by the pre-tokenizer, so no merges are needed.
"""

import re
from functools import lru_cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from . import world
from .instructions import FIELDS_HEAD, FIELDS_TAIL, INSTRUCTIONS

COORDINATE_STEP = 5
JSON_OPEN, JSON_COLON, JSON_COMMA, JSON_CLOSE = '```json\n{"', '": "', '", "', '"}\n```'

BOS = "<｜hy_begin▁of▁sentence｜>"
PAD = "<｜hy_▁pad▁｜>"
USER = "<｜hy_User｜>"
ASSISTANT = "<｜hy_Assistant｜>"
EOD = "<｜hy_place▁holder▁no▁2｜>"
SYSTEM_END = "<｜hy_place▁holder▁no▁3｜>"
IMAGE_START = "<｜hy_place▁holder▁no▁100｜>"
IMAGE_END = "<｜hy_place▁holder▁no▁101｜>"
IMAGE = "<｜hy_place▁holder▁no▁102｜>"
IMAGE_NEWLINE = "<｜hy_place▁holder▁no▁103｜>"
VIDEO_START = "<｜hy_place▁holder▁no▁104｜>"
VIDEO_END = "<｜hy_place▁holder▁no▁105｜>"
SPECIALS: tuple[str, ...] = (
    BOS, "<｜hy_end▁of▁sentence｜>", PAD, USER, ASSISTANT, EOD, SYSTEM_END,
    IMAGE_START, IMAGE_END, IMAGE, IMAGE_NEWLINE, VIDEO_START, VIDEO_END,
)  # fmt: skip


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level BPE writes for each byte (GPT-2's encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    return letters | {byte: chr(256 + index) for index, byte in enumerate(rest)}


def x_piece(value: int) -> str:
    """The piece that opens a corner: `(125,`."""
    return f"({value},"


def y_piece(value: int) -> str:
    """The piece that closes a corner: `40)`."""
    return f"{value})"


def quantise(value: float, side: float) -> int:
    """A pixel coordinate as a multiple of 5 in 0..1000."""
    steps = 1000 // COORDINATE_STEP
    return COORDINATE_STEP * min(steps, max(0, round(value / side * steps)))


@lru_cache(maxsize=1)
def pieces() -> tuple[str, ...]:
    """Every multi-byte piece of plain text, in id order after the 256 bytes."""
    wide = [c for c in world.PAGE_CHARACTERS if ord(c) > 127]
    grid = range(0, 1001, COORDINATE_STEP)
    coordinates = [x_piece(v) for v in grid] + [y_piece(v) for v in grid]
    json_pieces = [JSON_OPEN, JSON_COLON, JSON_COMMA, JSON_CLOSE]
    return (*wide, *coordinates, *json_pieces, *INSTRUCTIONS, FIELDS_HEAD, FIELDS_TAIL)


@lru_cache(maxsize=1)
def token_ids() -> dict[str, int]:
    """Text of a token -> id: single-byte characters, pieces, then special tokens."""
    letters = byte_letters()
    table = {bytes([byte]).decode("latin-1"): byte for byte in range(128)}
    assert len(letters) == 256
    for piece in pieces():
        table[piece] = 256 + len(table) - 128
    for special in SPECIALS:
        table[special] = 256 + len(table) - 128
    return table


def vocabulary_size() -> int:
    """Rows of the embedding table."""
    return 256 + len(pieces()) + len(SPECIALS)


def build_tokenizer() -> Tokenizer:
    """The tokenizer that encodes any text and gives back every piece whole."""
    letters = byte_letters()
    vocabulary = {letters[byte]: byte for byte in range(256)}
    for piece in pieces():
        vocabulary["".join(letters[b] for b in piece.encode())] = token_ids()[piece]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    long_pieces = sorted((p for p in pieces() if len(p) > 1 and p[-1] not in ",)"), key=len)
    literal = "|".join(re.escape(piece) for piece in reversed(long_pieces))
    pattern = Regex(literal + r"|\(\d{1,4},|\d{1,4}\)|[\s\S]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer

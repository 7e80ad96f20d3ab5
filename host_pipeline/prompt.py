"""The prompt of one page as token ids, and what each special id means.

The layout is that of the released chat template:
begin, system text, separator, image start, image rows, image end, instruction, end of user turn.
S tokens in all; no white space is added anywhere. Knows no instruction: `host_pipeline/tasks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from host_pipeline.positions import image_tokens, position_ids
from host_pipeline.tokenizer import Tokenizer, TokenizerError

# Spelling of the special tokens in the released tokenizer (U+FF5C bars, U+2581 underscores).
_BEGIN = "<｜hy_begin▁of▁sentence｜>"
_USER = "<｜hy_User｜>"
_ASSISTANT = "<｜hy_Assistant｜>"
_PLACEHOLDER = "<｜hy_place▁holder▁no▁{}｜>"
_SYSTEM_END, _DOCUMENT_END = 3, 2
_IMAGE_START, _IMAGE_END, _IMAGE = 100, 101, 102
_VIDEO = ((104, "video_start_id"), (105, "video_end_id"), (665, "video_token_id"))


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that frame a prompt, end an answer (`stop`) and must never be in one (`banned`)."""

    begin: int
    system_end: int
    image_start: int
    image: int
    image_end: int
    user_end: int
    stop: frozenset[int]
    banned: frozenset[int]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`token_ids` (S,) int32. The image's `image_rows` tokens start at `image_start`: a begin slot,
    for each row of merged patches its content slots and a newline slot, an end slot.
    `grid_h` x `grid_w` patches, `merge`² of them in one content slot."""

    token_ids: NDArray[np.int32]
    image_start: int
    grid_h: int
    grid_w: int
    merge: int

    @property
    def image_rows(self) -> int:
        return image_tokens(self.grid_h, self.grid_w, self.merge)

    def position_ids(self) -> NDArray[np.int64]:
        """The position rows p, w, h, t, (4, S)."""
        image = (self.image_start, self.grid_h, self.grid_w)
        return position_ids(len(self.token_ids), [image], self.merge)


def build_prompt(
    special: SpecialIds,
    instruction_ids: Sequence[int],
    grid_h: int,
    grid_w: int,
    *,
    merge: int = 2,
    system_ids: Sequence[int] | None = (),
) -> Prompt:
    """The prompt of one image of grid_h x grid_w patches and one instruction.

    `system_ids` is the system text, empty in every official call; None leaves the whole system turn
    out, which the model was not trained for."""
    system = () if system_ids is None else (*system_ids, special.system_end)
    head = [special.begin, *system, special.image_start]
    image = [special.image] * image_tokens(grid_h, grid_w, merge)
    tail = [special.image_end, *instruction_ids, special.user_end]
    ids = np.array(head + image + tail, np.int32)
    return Prompt(ids, len(head), grid_h, grid_w, merge)


def find_special_ids(
    tokenizer: Tokenizer, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None
) -> SpecialIds:
    """The special ids of a checkpoint.

    An id that config.json names (nested as in 1.5 or flat as in 1.0) counts; the others are found
    by their spelling in the tokenizer. Stop ids: end of answer and end of document of config.json
    and of generation_config.json.

    Raises TokenizerError if one that a prompt needs is nowhere."""
    text = {**config, **config.get("text_config", {})}

    def find(token: str, *keys: str) -> int | None:
        named = next((text[key] for key in keys if _is_id(text.get(key))), None)
        return tokenizer.token_id(token) if named is None else named

    def need(token: str, *keys: str) -> int:
        found = find(token, *keys)
        if found is None:
            at = f"config.json has none of {keys} and " if keys else ""
            raise TokenizerError(f"{at}tokenizer.json has no token {token}; is it HunyuanOCR's?")
        return found

    frame = {
        "begin": need(_BEGIN, "bos_token_id"),
        "system_end": need(_PLACEHOLDER.format(_SYSTEM_END)),
        "image_start": need(_PLACEHOLDER.format(_IMAGE_START), "im_start_id"),
        "image": need(_PLACEHOLDER.format(_IMAGE), "image_token_id"),
        "image_end": need(_PLACEHOLDER.format(_IMAGE_END), "im_end_id"),
        "user_end": need(_USER),
    }
    video = (find(_PLACEHOLDER.format(number), key) for number, key in _VIDEO)
    document_end = find(_PLACEHOLDER.format(_DOCUMENT_END), "eod_token_id")
    ends = (need(_ASSISTANT, "eos_token_id"), document_end)
    stop = {*_ids(ends), *_ids([(generation or {}).get("eos_token_id")])}
    images = (frame["image_start"], frame["image"], frame["image_end"])
    return SpecialIds(**frame, stop=frozenset(stop), banned=frozenset(_ids([*images, *video])))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _ids(values: Iterable[Any]) -> list[int]:
    """The ids among `values`, each an id, a list of ids or nothing."""
    lists = (v if isinstance(v, (list, tuple)) else [v] for v in values)
    return [i for ids in lists for i in ids if _is_id(i)]

"""Starts a reader from an exported checkpoint, or from an older one of the same sizes with another
vocabulary and table.

An exported one is taken as it is; what only training has (cell classifier and box head) starts
from nothing. Of an older one, vision, connector and text layers are copied; embedding rows are
copied by the text of the token; the old position table, sampled at its own canvas, is continued
over the whole grid by a ridge fit of sinusoids to its row and column parts.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from . import vocabulary
from .export import TABLE
from .position_table import interpolate
from .reader_model import GRID_COLUMNS, GRID_ROWS, Reader

_SPECIAL = {
    "<bos>": vocabulary.BOS, "<sys>": vocabulary.SYSTEM_END, "<ims>": vocabulary.IMAGE_START,
    "<ime>": vocabulary.IMAGE_END, "<user>": vocabulary.USER, "<eos>": vocabulary.ASSISTANT,
    "<t_text>": "提取图中的文字。", "<t_spot>": "检测并识别图片中的文字，将文本坐标格式化输出。",
}  # fmt: skip


def _continue_rows(known: Tensor, count: int) -> Tensor:
    """(count, V) rows whose first len(known) fit `known`, continued by sinusoids."""
    steps = torch.arange(count, dtype=torch.float32)[:, None]
    waves = 2 * torch.pi / torch.logspace(0.4, 2.0, 24)
    features = torch.cat([(steps * waves).sin(), (steps * waves).cos()], 1)
    used = features[: len(known)]
    gram = used @ used.T + 0.05 * torch.eye(len(known))
    rows = features @ (used.T @ torch.linalg.solve(gram, known))
    rows[: len(known)] = known
    limit = known.norm(dim=1).median()  # beyond the known rows the fit may swing widely
    rows[len(known) :] *= (limit / rows[len(known) :].norm(dim=1, keepdim=True)).clamp(max=1)
    return rows


def _copy_positions(reader: Reader, table: Tensor, canvas: tuple[int, int]) -> None:
    rows, columns = canvas
    edge = round((len(table) - 1) ** 0.5)
    grid = table[1:].reshape(1, edge, edge, -1).permute(0, 3, 1, 2)
    scale = ((rows + 0.1) / edge, (columns + 0.1) / edge)
    place = F.interpolate(grid, scale_factor=scale, mode="bilinear")[0].permute(1, 2, 0)
    by_row, by_column = place.mean(1), place.mean(0) - place.mean((0, 1))
    center = by_row.mean(0)
    reader.row_positions.data.copy_(_continue_rows(by_row - center, GRID_ROWS) + center)
    reader.column_positions.data.copy_(_continue_rows(by_column, GRID_COLUMNS))


def _copy_embeddings(reader: Reader, old: Tensor, texts: list[str]) -> None:
    new = reader.tensor("model.embed_tokens.weight").data
    table, numbers = vocabulary.token_ids(), {}
    new.normal_(0, float(old.std()) * 0.5)
    for index, text in enumerate(texts):
        text = _SPECIAL.get(text, text)
        if text.isdigit() and index > 200:  # a coordinate, not a printed digit
            numbers[int(text)] = old[index]
        elif text in table:
            new[table[text]] = old[index]
    for value, row in numbers.items():
        new[table[vocabulary.x_piece(value)]] = row
        new[table[vocabulary.y_piece(value)]] = row


def _split_table(reader: Reader, table: Tensor) -> None:
    """The rows and columns whose sums an exported table holds."""
    place = interpolate(table, GRID_ROWS, GRID_COLUMNS)
    reader.row_positions.data.copy_(place.mean(1))
    reader.column_positions.data.copy_(place.mean(0) - place.mean((0, 1)))


def start_from(reader: Reader, folder: Path, canvas: tuple[int, int]) -> None:
    """Overwrites the reader's weights with those of `folder`; `canvas` is the grid in patches of
    an older checkpoint."""
    old = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    if (folder / "tokenizer.json").exists():
        _split_table(reader, old.pop(TABLE))
        for name, target in reader.tensors().items():
            target.data.copy_(old[name])
        return
    texts: list[str] = json.loads((folder / "vocab.json").read_text())["id_to_string"]
    _copy_positions(reader, old.pop(TABLE), canvas)
    _copy_embeddings(reader, old.pop("model.embed_tokens.weight"), texts)
    for name, target in reader.tensors().items():
        if name in old and name != "model.embed_tokens.weight":
            target.data.copy_(old[name])

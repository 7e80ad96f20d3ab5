"""What the reader is trained on: next tokens, cell contents, and where two heads look."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import vocabulary
from .reader_model import CLASSES, PROMPT_HEAD, Reader, Shown, positions
from .samples import NOWHERE, Batch

# Layer whose first head looks at the character just fed, and at the one to come.
CURRENT_LAYER, NEXT_LAYER = 1, 2
_BLANK_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the losses; `read` 0 trains the eye alone."""

    read: float = 1.0
    cells: float = 1.0
    boxes: float = 0.4
    gaze: float = 0.5


def _tensor(array: object, device: torch.device) -> Tensor:
    return torch.as_tensor(array, device=device)


def cell_losses(reader: Reader, cells: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Character loss, box loss and character accuracy of cell rows (B, M, C)."""
    scores = reader.classify(cells).view(-1, CLASSES)
    target = _tensor(batch.contents, cells.device).view(-1)
    weight = torch.ones(CLASSES, device=cells.device)
    weight[0] = _BLANK_WEIGHT
    inked = _tensor(batch.inked, cells.device)
    boxes = reader.measure(cells)[inked]
    box_loss = F.smooth_l1_loss(boxes, _tensor(batch.boxes, cells.device)[inked], beta=0.1)
    right = (scores.argmax(-1) == target)[target > 0].float().mean()
    return F.cross_entropy(scores, target, weight=weight), box_loss, right


def _soften(losses: Tensor, target: Tensor) -> Tensor:
    """Coordinates share their target with both neighbours (0.6, 0.2, 0.2)."""
    own = losses.gather(-1, target[..., None])[..., 0]
    table, last = vocabulary.token_ids(), 1000
    near = torch.zeros_like(own, dtype=torch.bool)
    for piece in (vocabulary.x_piece, vocabulary.y_piece):
        near |= (target > table[piece(0)]) & (target < table[piece(last)])
    step = near.long()
    up = losses.gather(-1, (target + step)[..., None])[..., 0]
    down = losses.gather(-1, (target - step)[..., None])[..., 0]
    return torch.where(near, 0.6 * own + 0.2 * up + 0.2 * down, own)


def _gaze_loss(log_attention: Tensor, slots: Tensor) -> Tensor:
    """Minus the log of the attention on the wanted image slots (B, T)."""
    known = slots != NOWHERE
    column = (slots.clamp(min=0) + PROMPT_HEAD)[..., None]
    return -log_attention.gather(-1, column)[..., 0][known].mean()


def total_loss(
    reader: Reader, batch: Batch, weights: Weights, device: torch.device
) -> tuple[Tensor, dict[str, float]]:
    """The weighted sum and its parts."""
    shown = Shown(
        _tensor(batch.tiles, device),
        _tensor(batch.cells, device),
        _tensor(batch.newline_rows, device),
        batch.canvas,
    )
    rows = reader.see(shown)
    place = shown.keys().argsort(1).argsort(1)[:, : shown.cells.shape[1], None]
    cells = rows[:, 1:-1].gather(1, place.expand(-1, -1, rows.shape[2]))
    character, box, right = cell_losses(reader, cells, batch)
    loss = weights.cells * character + weights.boxes * box
    parts = {"cells": character.item(), "boxes": box.item(), "cell_acc": right.item()}
    if not weights.read:
        return loss, parts
    ids, slots = _tensor(batch.ids, device), _tensor(batch.slots, device)
    start = rows.shape[1] + PROMPT_HEAD + 1
    x = reader.embed(rows, ids[:, :-1])
    places = positions(shown, ids.shape[1] - 1)
    hidden, _, gaze = reader.decode(
        x, reader.rotary(places), guides={CURRENT_LAYER: start, NEXT_LAYER: start}
    )
    learned, target = _tensor(batch.learned, device)[:, 1:], ids[:, 1:]
    scores = reader.logits(hidden[:, start:][learned])
    read = _soften(-scores.log_softmax(-1), target[learned]).mean()
    look = _gaze_loss(gaze[CURRENT_LAYER], slots[:, :-1])
    origins = _tensor(batch.origins, device)
    look = look + _gaze_loss(gaze[NEXT_LAYER], origins[:, 1:])
    loss = loss + weights.read * read + weights.gaze * look
    token_acc = (scores.argmax(-1) == target[learned]).float().mean()
    parts |= {"read": read.item(), "gaze": look.item(), "token_acc": token_acc.item()}
    return loss, parts

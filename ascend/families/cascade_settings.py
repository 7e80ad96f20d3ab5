"""The numbers of the PP-OCR cascade, in force for every page and shown in every Result."""

from __future__ import annotations

from dataclasses import dataclass, field

from host_pipeline.detect import DetSettings


@dataclass(frozen=True, slots=True)
class CascadeSettings:
    """Sides in pixels, scores 0..1. A picture is enlarged until its short side is `min_side`, by no
    more than `max_enlarge`, and shrunk until its long side is `max_side`; a page that would shrink
    below `min_scale` is read in tiles that overlap by `overlap`. A page of `small_print_lines`
    lines whose median height on the canvas is under `small_print` is looked at again, shrunk to no
    less than `small_print_side`. A quad at least `tall` times higher than wide is a line on its
    side. A line is turned over when its direction score passes `turned_score`; a line wider than
    `max_rec_width` canvas pixels is read in pieces. `min_score` is the mean character probability
    under which a reading is no line; one under `doubtful` is tried again on a tighter crop."""

    det: DetSettings = field(default_factory=DetSettings)
    min_side: int = 736
    max_side: int = 1280
    max_enlarge: float = 2.0
    small_print: float = 14.0
    small_print_lines: int = 20
    small_print_side: int = 2000
    min_scale: float = 0.4
    overlap: int = 160
    min_score: float = 0.5
    doubtful: float = 0.9
    turned_score: float = 0.9
    max_rec_width: int = 1920
    tall: float = 1.5

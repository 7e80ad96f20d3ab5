"""The embedded reader on drawn pages, through the real graphs on ONNX Runtime."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from ascend.build.ppocr import ppocr_characters
from ascend.errors import Cancelled, DeadlineExceeded, TaskNotSupported
from ascend.families import ReadRequest
from ascend.families.ppocr import TASKS_DONE, PpOcr
from ascend.opening import open_family
from host_pipeline.page import Page, open_document
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS

pytest.importorskip("rapidocr", reason="the embedded model files come with the package rapidocr")

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample_page.png"


@pytest.fixture(scope="module")
def family() -> Iterator[PpOcr]:
    opened = open_family("ppocr")
    assert isinstance(opened, PpOcr)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def sample() -> Page:
    with open_document(SAMPLE) as document:
        return document.load_page(0)


def _drawn(
    *lines: str, size: tuple[int, int] = (640, 240), ink: str = "black", paper: str = "white"
) -> Page:
    picture = Image.new("RGB", size, paper)
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(lines):
        draw.text((30, 30 + 50 * i), line, ink, ImageFont.load_default(28))
    return _page(picture)


def _page(picture: Image.Image) -> Page:
    with open_document(picture) as document:
        return document.load_page(0)


def _texts(result: Result) -> list[str]:
    return [line.text for line in result.lines]


SAMPLE_TEXT = """\
Green Valley Tea House 绿谷茶馆
Receipt No: GV-20418  Date: 2026-03-14
Item 品名  Qty 数量  Amount 金额
Jasmine tea 茉莉花茶  2  9.00
Sesame cake 芝麻糕  1  3.50
Plum juice 酸梅汤  3  12.30
Total 合计  24.80
Thank you, see you again! 谢谢惠顾"""


def test_the_sample_page_is_read_to_the_letter(family: PpOcr, sample: Page) -> None:
    result = family.read(sample, ReadRequest("spotting"))
    assert result.text == SAMPLE_TEXT
    assert (result.engine, result.emulated, result.task) == ("ort", False, "spotting_hunyuan")
    assert all(line.score and line.score > 0.9 for line in result.lines)
    title = np.asarray(result.lines[0].quad)
    assert title.min(0) == pytest.approx((60, 42), abs=12) and title.max(0) == pytest.approx(
        (623, 85), abs=12
    )
    assert {"det", "rec", "order"} <= result.timings_ms.keys() and result.warnings == ()


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_page_is_read_upright(family: PpOcr, sample: Page, degrees: int) -> None:
    turned = dataclasses.replace(sample.turned(degrees), rotation=0)
    result = family.read(turned, ReadRequest("text"))
    assert result.text == SAMPLE_TEXT
    assert result.turned == result.rotation == 360 - degrees
    assert (result.page_width, result.page_height) == (900, 640)
    assert [w.code for w in result.warnings] == ["page_turned"]
    title = np.asarray(result.lines[0].quad)
    assert title[0] == pytest.approx((60, 42), abs=14)


def test_fields_of_the_sample(family: PpOcr, sample: Page) -> None:
    result = family.read(
        sample, ReadRequest("fields", keys=("Receipt No", "date", "total", "iban"))
    )
    assert {f.name: f.value for f in result.fields} == {
        "Receipt No": "GV-20418", "date": "2026-03-14", "total": "24.80", "iban": None,
    }  # fmt: skip


def test_the_table_of_the_sample(family: PpOcr, sample: Page) -> None:
    result = family.read(sample, ReadRequest("table"))
    (table,) = result.tables
    assert "<tr><td>Sesame cake 芝麻糕</td><td>1</td><td>3.50</td></tr>" in table.html
    markdown = family.read(sample, ReadRequest("doc_parse")).markdown
    assert (
        markdown
        and markdown.startswith("Green Valley Tea House 绿谷茶馆\n\n")
        and table.html in markdown
    )


@pytest.mark.parametrize("name", sorted(set(TASKS) - set(TASKS_DONE)))
def test_other_tasks_are_refused_with_the_way_out(family: PpOcr, sample: Page, name: str) -> None:
    with pytest.raises(TaskNotSupported, match=r"it can do .*spotting.*--model"):
        family.read(sample, ReadRequest(name))


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (600, 3), (3, 600), (640, 480)])
@pytest.mark.parametrize("shade", [255, 0, 127])
def test_an_empty_picture_gives_an_empty_answer(
    family: PpOcr, size: tuple[int, int], shade: int
) -> None:
    page = _page(Image.new("RGB", size, (shade, shade, shade)))
    result = family.read(page, ReadRequest("text"))
    assert (result.lines, result.text, result.finish_reason) == ((), "", "stop")


def test_noise_is_not_text(family: PpOcr) -> None:
    noise = np.random.default_rng(3).integers(0, 255, (300, 400, 3)).astype(np.uint8)
    assert family.read(_page(Image.fromarray(noise)), ReadRequest("text")).lines == ()


def test_faint_print_is_read_with_stretched_contrast(family: PpOcr) -> None:
    page = _drawn("Faint words 4711", ink="#f6f6f6", paper="#ffffff")
    result = family.read(page, ReadRequest("text"))
    assert _texts(result) == ["Faint words 4711"]
    assert [w.code for w in result.warnings] == ["low_contrast"]


def test_light_on_dark(family: PpOcr) -> None:
    assert _texts(
        family.read(_drawn("Night shift 0815", ink="white", paper="black"), ReadRequest("text"))
    ) == ["Night shift 0815"]


def test_subtitles_are_not_the_shop_signs_of_the_frame(family: PpOcr) -> None:
    frame = Image.new("RGB", (1280, 720), "#334455")
    draw = ImageDraw.Draw(frame)
    draw.text((80, 90), "GRAND HOTEL", "yellow", ImageFont.load_default(48))
    draw.text((430, 640), "See you tomorrow", "white", ImageFont.load_default(44))
    result = family.read(_page(frame), ReadRequest("subtitles"))
    assert result.text == "See you tomorrow" and len(result.lines) == 1
    assert "GRAND HOTEL" in family.read(_page(frame), ReadRequest("text")).text


def test_a_very_long_page_is_read_in_tiles(family: PpOcr) -> None:
    picture = Image.new("RGB", (700, 9000), "white")
    draw = ImageDraw.Draw(picture)
    wanted = [f"Entry number {i:03d}" for i in range(90)]
    for i, text in enumerate(wanted):
        draw.text((40, 20 + 100 * i), text, "black", ImageFont.load_default(30))
    result = family.read(_page(picture), ReadRequest("text"))
    assert _texts(result) == wanted


def test_a_very_wide_line_is_read_whole(family: PpOcr) -> None:
    words = " ".join(f"w{i:03d}" for i in range(90))
    picture = Image.new("RGB", (9000, 80), "white")
    ImageDraw.Draw(picture).text((20, 15), words, "black", ImageFont.load_default(36))
    result = family.read(_page(picture), ReadRequest("text"))
    read = "".join(result.text.split())
    assert read == words.replace(" ", "")


@pytest.mark.parametrize(
    "lines",
    [
        ("שלום עולם טוב", "בוקר טוב לכולם", "תודה רבה לכם", "ספר גדול וחדש"),
        ("Привет, дорогой мир", "Сегодня хорошая погода", "Счёт на оплату 125"),
    ],
    ids=["Hebrew", "Cyrillic"],
)
def test_a_script_without_letters_gives_a_warning(family: PpOcr, lines: tuple[str, ...]) -> None:
    font = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
    if not font.is_file():
        pytest.skip("no font with these letters: Debian's fonts-dejavu-core")
    picture = Image.new("RGB", (700, 400), "white")
    draw = ImageDraw.Draw(picture)
    for i, text in enumerate(lines):
        draw.text((40, 40 + 80 * i), text, "black", ImageFont.truetype(str(font), 36))
    result = family.read(_page(picture), ReadRequest("text"))
    assert {"unreadable_text", "doubtful_text"} & {w.code for w in result.warnings}


def test_the_deadline_and_the_cancel_end_the_page(family: PpOcr, sample: Page) -> None:
    with pytest.raises(DeadlineExceeded):
        family.read(sample, ReadRequest("text", deadline=time.monotonic() - 1))
    with pytest.raises(Cancelled):
        family.read(sample, ReadRequest("text", cancelled=lambda: True))


def test_streaming_ends_with_the_result(family: PpOcr, sample: Page) -> None:
    *pieces, result = family.stream(sample, ReadRequest("text"))
    assert isinstance(result, Result) and "".join(map(str, pieces)) == result.text


class _Geared:
    """The family's engine, claiming the gears of a compiled bundle; refuses every other shape."""

    def __init__(self, engine: object) -> None:
        from atc_configs.contract import load_contract

        self._engine, self._contract = engine, load_contract("ppocr")
        self.name, self.emulated, self.parallel = "ort", False, 1
        self.settings: dict[str, object] = {}

    def gears(self, graph: str) -> object:
        return self._contract.graphs[graph].gears

    def run(self, graph: str, inputs: dict[str, np.ndarray]) -> object:
        spec = self._contract.graphs[graph]
        shapes = [spec.input_shapes(gear) for gear in spec.gears]
        assert inputs["image"].shape in [
            tuple(s["image"] if isinstance(s, dict) else s[0]) for s in shapes
        ]
        return self._engine.run(graph, inputs)  # type: ignore[attr-defined]

    def close(self) -> None: ...


def test_the_gears_of_an_npu_give_the_same_lines(family: PpOcr, sample: Page) -> None:
    geared = PpOcr(_Geared(family.engine), ppocr_characters(), family.model)  # type: ignore[arg-type]
    free = family.read(sample, ReadRequest("text"))
    result = geared.read(sample, ReadRequest("text"))
    assert result.text == free.text
    for a, b in zip(result.lines, free.lines, strict=True):
        np.testing.assert_allclose(a.quad, b.quad, atol=6)  # type: ignore[arg-type]

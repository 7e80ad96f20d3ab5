"""Draws the sample page that the repository carries: made-up text, no other rights in it.

python scripts/draw_sample.py scripts/sample_page.png wqy-microhei.ttc
"""

from __future__ import annotations

import sys

from PIL import Image, ImageDraw, ImageFont

SIZE = (900, 640)
TITLE = "Green Valley Tea House 绿谷茶馆"
ROWS = (
    ("Jasmine tea 茉莉花茶", "2", "9.00"),
    ("Sesame cake 芝麻糕", "1", "3.50"),
    ("Plum juice 酸梅汤", "3", "12.30"),
)


def draw_sample(font_file: str) -> Image.Image:
    """The page (900 x 640 pixels) as RGB: a receipt with a title, labels, values and a table.
    `font_file` must have Latin and Chinese characters."""
    page = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(page)

    def font(size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(font_file, size)

    draw.text((60, 40), TITLE, "black", font(38))
    draw.text((60, 110), "Receipt No: GV-20418", "black", font(26))
    draw.text((560, 110), "Date: 2026-03-14", "black", font(26))
    draw.line((60, 165, 840, 165), "grey", 2)
    for x, head in ((60, "Item 品名"), (500, "Qty 数量"), (700, "Amount 金额")):
        draw.text((x, 180), head, "black", font(26))
    for index, row in enumerate(ROWS):
        for x, text in zip((60, 520, 720), row, strict=True):
            draw.text((x, 240 + 56 * index), text, "black", font(28))
    draw.line((60, 420, 840, 420), "grey", 2)
    draw.text((60, 440), "Total 合计", "black", font(32))
    draw.text((720, 440), "24.80", "black", font(32))
    draw.text((60, 540), "Thank you, see you again! 谢谢惠顾", "dimgrey", font(26))
    return page


if __name__ == "__main__":
    draw_sample(sys.argv[2]).save(sys.argv[1], optimize=True)

"""Tables and paragraphs from rows."""

from __future__ import annotations

from host_pipeline.grid import blocks_markdown, page_blocks
from host_pipeline.result import Line, rectangle


def _line(text: str, x: float, y: float, width: float = 80) -> Line:
    return Line(text, rectangle(x, y, x + width, y + 20), 1.0)


def _page() -> list[list[Line]]:
    return [
        [_line("A title", 0, 0, 300)],
        [_line("Item", 0, 60), _line("Qty", 200, 60), _line("Sum", 400, 60)],
        [_line("Tea", 0, 90), _line("2", 220, 90, 10), _line("9.00", 410, 90, 40)],
        [_line("Cake & <pie>", 0, 120), _line("3.50", 410, 120, 40)],
        [_line("Thank you.", 0, 300, 120)],
    ]


def test_a_table_between_paragraphs() -> None:
    title, table, thanks = page_blocks(_page())
    assert (title.is_table, table.is_table, thanks.is_table) == (False, True, False)
    assert table.cells() == [
        ["Item", "Qty", "Sum"],
        ["Tea", "2", "9.00"],
        ["Cake & <pie>", "", "3.50"],
    ]
    assert table.to_html().endswith(
        "<tr><td>Cake &amp; &lt;pie&gt;</td><td></td><td>3.50</td></tr></table>"
    )
    assert table.quad == rectangle(0, 60, 480, 140)


def test_markdown_holds_text_and_tables_in_order() -> None:
    text = blocks_markdown(page_blocks(_page()))
    assert text.startswith("A title\n\n<table>") and text.endswith("</table>\n\nThank you.")


def test_running_text_is_no_table() -> None:
    rows = [[_line(f"A line of prose {i}", 0, 30 * i, 400)] for i in range(4)]
    (block,) = page_blocks(rows)
    assert not block.is_table and len(block.rows) == 4


def test_every_line_is_in_one_block() -> None:
    blocks = page_blocks(_page())
    assert [row for b in blocks for row in b.rows] == [tuple(row) for row in _page()]

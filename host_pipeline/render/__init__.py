"""Results -> what people read: text, Markdown, HTML, hOCR, and the page with boxes drawn on it.

The writers take any iterable of Results and yield one piece a page, so that a long document is
written while it is read and never held in memory.
"""

from host_pipeline.render.draw import draw_page
from host_pipeline.render.hocr import render_hocr
from host_pipeline.render.html import markdown_to_html, render_html
from host_pipeline.render.markdown import page_markdown, render_markdown
from host_pipeline.render.text import page_text, render_text

__all__ = [
    "draw_page",
    "markdown_to_html",
    "page_markdown",
    "page_text",
    "render_hocr",
    "render_html",
    "render_markdown",
    "render_text",
]

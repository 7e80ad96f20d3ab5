"""Results -> one HTML document that needs nothing else: no script, no picture, no network.

Whatever a page says, it is shown and never run: text is escaped, tables are rebuilt, and the
Markdown renderer lets no HTML through but ours.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from host_pipeline.parse.table import rebuild_table, table_spans
from host_pipeline.render.markdown import page_markdown
from host_pipeline.result import Result

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid #8884; padding: 1rem 0; }
.about, .notices { color: #888; font-size: .85rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border: 1px solid #8888; padding: .2rem .6rem; text-align: left; vertical-align: top; }
pre { overflow-x: auto; background: #8882; padding: .6rem; }
"""

_HEAD = (
    '<!DOCTYPE html>\n<html lang="und"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # Even if something slipped through, the browser runs and loads nothing.
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'\">"
)


def render_html(results: Iterable[Result], title: str = "OCR result") -> Iterator[str]:
    """The document in pieces: its head, one `<section>` for each page, its end."""
    yield f"{_HEAD}<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
    for result in results:
        yield _section(result)
    yield "</body></html>\n"


def markdown_to_html(markdown: str) -> str:
    """`markdown` as an HTML fragment: CommonMark with pipe tables, tables in HTML rebuilt, every
    other tag escaped, links that could run a script left as text."""
    rendered: str = _renderer().render(markdown)
    return rendered


def _section(result: Result) -> str:
    name = f"{result.source}, page {result.page_index + 1} of {result.page_count}"
    engine = f"{result.engine} (emulated)" if result.emulated else result.engine
    about = f"{result.task} by {result.model.name} on {engine}"
    parts = [
        "<section>",
        f"<h2>{html.escape(name)}</h2>",
        f'<p class="about">{html.escape(about)}</p>',
        markdown_to_html(page_markdown(result)),
    ]
    notices = [f"{notice.code}: {notice.text}" for notice in result.warnings]
    if result.finish_reason != "stop":
        notices.insert(0, f"finish_reason: {result.finish_reason}")
    if notices:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in notices)
        parts.append(f'<ul class="notices">{items}</ul>')
    if result.unparsed:
        parts.append("<details><summary>not parsed</summary>")
        parts += [f"<pre>{html.escape(text)}</pre>" for text in result.unparsed]
        parts.append("</details>")
    return "\n".join([*parts, "</section>\n"])


def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": True}).enable("table")
    renderer.disable("image")  # a picture would be a request to somebody's server
    renderer.add_render_rule("html_block", _html_block)
    renderer.add_render_rule("html_inline", _html_inline)
    return renderer


def _html_block(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    content = tokens[index].content
    out, position = [], 0
    for start, end in table_spans(content):
        out.append(html.escape(content[position:start], quote=False))
        out.append(rebuild_table(content[start:end])[0])
        position = end
    out.append(html.escape(content[position:], quote=False))
    return "".join(out)


def _html_inline(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    content: str = tokens[index].content
    if re.fullmatch(r"</?su[bp]>|<br ?/?>", content):
        return content
    return html.escape(content, quote=False)

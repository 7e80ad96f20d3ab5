"""The web page: drop a picture or a document, see what was read. A client of the API, in a process
of its own; it computes nothing but the drawing of boxes, and loads nothing from the network.

    python -m ascend.serve.ui --api http://127.0.0.1:8000 --port 7860
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from host_pipeline.errors import InputError
from host_pipeline.page import PageLimits, open_document
from host_pipeline.render.draw import draw_page
from host_pipeline.render.html import markdown_to_html
from host_pipeline.render.markdown import page_markdown
from host_pipeline.render.text import page_text
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS

_TASK = "spotting_hunyuan"
_TRIED_PORTS = 20
_LIMITS = PageLimits(100_000_000, max_pages=64)
_SHOWN_SIDE = 1600  # pixels of the drawn page as it is sent to the browser

Shown = tuple[str, list[Any], str, str, str, dict[str, Any] | list[Any], str | None]
"""What the page shows: status, pictures, text, HTML, fields, JSON and the file to download."""

_NOTHING: Shown = ("", [], "", "", "", {}, None)


class Api:
    """The service at `url`; `key` may be empty."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=None, trust_env=False)

    def choices(self) -> list[tuple[str, str]]:
        """(what to show, name) of the tasks that the model can do; of all while it is not open, or
        where the list wants a key."""
        able: set[str] = set()
        with contextlib.suppress(httpx.HTTPError):
            listed = self._http.get("/v1/tasks", timeout=5.0)
            if listed.status_code == 200:
                able = {t["name"] for t in listed.json()["tasks"] if t["supported"]}
        shown = [task for task in TASKS.values() if not able or task.name in able]
        return [(task.title, task.name) for task in shown]

    def engines(self) -> str:
        """One line about the model and who answers; for people."""
        try:
            state = self._http.get("/readyz", timeout=5.0).json()
        except httpx.HTTPError as error:
            return f"The service does not answer ({type(error).__name__})."
        if not state["engines"]:
            return f"The model is not open: {html.escape(str(state['reason']))}."
        serving = [e for e in state["engines"] if e["serving"]]
        names = ", ".join(f"{e['engine']} ({e['role']})" for e in serving)
        line = f"Model {state['model']} on the engine {names}"
        if state["emulated"]:
            line += ", emulated"
        failed = [e for e in state["engines"] if e["role"] == "primary" and not e["serving"]]
        for engine in failed:
            line += f". {engine['engine']} is out of service: {engine['reason']}"
        return html.escape(line) + "."

    def pages(self, file: Path, key: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Each page's JSON as it is read. Raises RuntimeError with the service's own words."""
        headers = {"content-type": "application/octet-stream"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        with self._http.stream(
            "POST", "/v1/ocr", params=query, headers=headers, content=file.read_bytes()
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                raise RuntimeError(_message(answer))
            for line in answer.iter_lines():
                yield json.loads(line)


def read_file(
    api: Api, file: str | None, task: str, fields: str, pages: str, key: str
) -> Iterator[Shown]:
    """What to show, again after every page."""
    if not file:
        yield ("Drop a picture or a document first.", *_NOTHING[1:])
        return
    path = Path(file)
    given = {"task": task, "fields": fields if task == "fields" else "", "pages": pages}
    query = {k: v for k, v in given.items() if v} | {"stream": "true", "filename": path.name}
    done: list[dict[str, Any]] = []
    drawn: list[Any] = []
    yield ("Reading …", *_NOTHING[1:])
    try:
        for page in api.pages(path, key, query):
            done.append(page)
            if "page_index" in page and "error" not in page:
                drawn.append(_drawn(path, Result.from_dict(page)))
            count = next((p["page_count"] for p in done if "page_count" in p), 1)
            yield _shown(f"Page {len(done)} of {count} …", done, drawn, None)
    except (RuntimeError, httpx.HTTPError, InputError) as error:
        yield _shown(f"Not read: {error}", done, drawn, None)
        return
    yield _shown(_summary(done), done, drawn, _download(path, done))


def _shown(
    status: str, pages: Sequence[dict[str, Any]], drawn: list[Any], download: str | None
) -> Shown:
    results = [Result.from_dict(page) for page in pages if "error" not in page]
    text = "\n\n".join(page_text(result) for result in results)
    rendered = "<hr>".join(markdown_to_html(page_markdown(result)) for result in results)
    rows = [field for result in results for field in result.fields]
    table = "".join(
        f"<tr><td>{html.escape(f.name)}</td><td>{html.escape(str(f.value))}</td></tr>" for f in rows
    )
    fields = f"<table>{table}</table>" if rows else ""
    value: Any = pages[0] if len(pages) == 1 else list(pages)
    return status, list(drawn), text, rendered, fields, value or {}, download


def _summary(pages: Sequence[dict[str, Any]]) -> str:
    """Who read it, how long that took, and what one should know."""
    read = [page for page in pages if "error" not in page]
    parts = [f"{len(read)} of {len(pages)} pages read"]
    if read:
        first = read[0]
        seconds = sum(ms for p in read for n, ms in p["timings_ms"].items() if "/" not in n) / 1000
        emulated = " (emulated)" if first["emulated"] else ""
        parts.append(f"by {first['model']['name']} on {first['engine']}{emulated}")
        parts.append(f"in {seconds:.2f} s")
        if first["fallback_reason"]:
            parts.append(f"— the fallback answered: {first['fallback_reason']}")
    notes = [f"{w['code']}: {w['text']}" for page in read for w in page["warnings"]]
    notes += [page["error"]["message"] for page in pages if "error" in page]
    return "\n\n".join([" ".join(parts), *notes])


def _drawn(path: Path, result: Result) -> Image.Image:
    with open_document(path, label=result.source, limits=_LIMITS) as document:
        page = document.load_page(result.page_index)
    if result.turned:
        page = page.turned(result.turned)
    picture = draw_page(page.pixels, result)
    picture.thumbnail((2 * _SHOWN_SIDE, _SHOWN_SIDE))  # the page and its text side by side
    return picture


def _download(path: Path, pages: Sequence[dict[str, Any]]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="hyocr-ui-", dir=os.environ.get("GRADIO_TEMP_DIR")))
    file = folder / f"{path.stem}.json"
    value = pages[0] if len(pages) == 1 else pages
    file.write_text(json.dumps(value, ensure_ascii=False, indent=2), "utf-8")
    return str(file)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {answer.status_code}"


def build(api: Api, ask_key: bool) -> Any:
    """The Gradio page."""
    import gradio as gr

    with gr.Blocks(title="HunyuanOCR", analytics_enabled=False) as page:
        gr.Markdown(
            "# HunyuanOCR on Ascend\nDrop a picture or a PDF, choose what to read, press Read."
        )
        engine = gr.Markdown(api.engines(), elem_id="engine")
        with gr.Row():
            with gr.Column(scale=1):
                file = gr.File(label="Picture or document", type="filepath", elem_id="file")
                task = gr.Dropdown(api.choices(), value=_TASK, label="Task", elem_id="task")
                fields = gr.Textbox(label="Fields, with commas between", visible=False)
                pages = gr.Textbox(label="Pages", placeholder="all, or 1-3,7")
                key = gr.Textbox(label="API key", type="password", visible=ask_key)
                button = gr.Button("Read", variant="primary", elem_id="read")
                status = gr.Markdown(elem_id="status")
                download = gr.File(label="Result as JSON", interactive=False)
            with gr.Column(scale=2):
                drawn = gr.Gallery(
                    label="Boxes on the page, and its text in their places",
                    height=560,
                    preview=True,
                    format="png",
                    object_fit="contain",
                    elem_id="boxes",
                )
                with gr.Tab("Text"):
                    text = gr.Textbox(show_label=False, lines=12, buttons=["copy"], elem_id="text")
                with gr.Tab("Document"):
                    rendered = gr.HTML(elem_id="document")
                with gr.Tab("Fields"):
                    values = gr.HTML(elem_id="fields")
                with gr.Tab("JSON"):
                    value = gr.JSON(show_label=False, elem_id="json")

        def read(*given: Any) -> Iterator[tuple[Any, ...]]:
            for status, pictures, *rest in read_file(api, *given):
                newest = len(pictures) - 1 if pictures else None  # shown large, the rest below
                yield status, gr.update(value=pictures, selected_index=newest), *rest

        task.change(lambda name: gr.update(visible=name == "fields"), task, fields)
        shown = [status, drawn, text, rendered, values, value, download]
        button.click(read, [file, task, fields, pages, key], shown).then(api.engines, None, engine)
        # The model may have been opened, or changed, since this page was built.
        page.load(lambda: (api.engines(), gr.update(choices=api.choices())), None, [engine, task])
    return page


def free_port(host: str, wanted: int) -> int:
    """`wanted`, or the next port that is free. Raises OSError when none of twenty is."""
    for port in range(wanted, wanted + _TRIED_PORTS):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            try:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((host, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise OSError(f"no port from {wanted} to {wanted + _TRIED_PORTS - 1} is free on {host}")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m ascend.serve.ui")
    parser.add_argument("--api", required=True, help="address of the service")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7860)
    parser.add_argument("--ask-key", action="store_true", help="a field for the API key")
    args = parser.parse_args(argv)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio as gr
    except ModuleNotFoundError:
        print("hyocr: no web page without gradio: pip install gradio", file=sys.stderr)
        return 5
    port = free_port(args.host, args.port)
    if port != args.port and args.port:
        print(f"hyocr: port {args.port} is taken, the web page is on {port}", file=sys.stderr)
    system = ["system-ui", "sans-serif"]
    theme = gr.themes.Default(font=system, font_mono=["ui-monospace", "monospace"])
    print(f"hyocr: web page on http://{args.host}:{port}", file=sys.stderr, flush=True)
    build(Api(args.api), args.ask_key).launch(
        server_name=args.host, server_port=port, theme=theme, quiet=True, share=False,
        ssr_mode=False, footer_links=[], max_file_size="64mb",
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())

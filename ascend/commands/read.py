"""`hyocr read`: pictures and documents in, Results out."""

from __future__ import annotations

import argparse
import glob
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from ascend.api import OCR, PageFailure
from ascend.errors import Cancelled, UsageError, describe
from ascend.opening import EMBEDDED, ENGINES
from ascend.profile_run import traced, traced_pages
from host_pipeline.page import open_document
from host_pipeline.render.draw import draw_page
from host_pipeline.render.html import render_html
from host_pipeline.render.markdown import render_markdown
from host_pipeline.render.text import render_text
from host_pipeline.result import Result
from host_pipeline.tasks import ALIASES, TASKS

# What is read of a folder; a file named on the command line is read whatever its name.
SUFFIXES = frozenset(
    ".avif .bmp .gif .heic .jp2 .jpeg .jpg .pbm .pdf .pgm .png .pnm .ppm .tif .tiff .webp".split()
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `hyocr read`."""
    parser.add_argument("sources", nargs="+", metavar="SRC", help="file, folder, glob, or -")
    names = ", ".join([*TASKS, *ALIASES])
    parser.add_argument("--task", help=f"one of: {names} (default: spotting, or fields)")
    parser.add_argument("--model", default=EMBEDDED, help="ppocr (default), reader, or a folder")
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    formats = ("json", "jsonl", "text", "markdown", "html")
    parser.add_argument("--format", choices=formats, default="json")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--fields", metavar="A,B,C", help="names of the fields to look for")
    wanted.add_argument("--schema", type=Path, metavar="FILE.json", help="their JSON Schema")
    parser.add_argument("--pages", type=page_list, metavar="1-3,7", help="pages of each document")
    parser.add_argument("--draw", type=Path, metavar="DIR", help="pictures with quads and text")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: -, stdout")
    parser.add_argument("--stream", action="store_true", help="show the text while it is made")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="what took how long (Perfetto)")
    model = parser.add_argument_group("model and engine")
    model.add_argument("--threads", type=int, help="CPU threads (default: all)")
    model.add_argument("--device", type=int, default=0, help="NPU number")
    model.add_argument("--precision", help="fp32, bf16, int8 or int4, on the engine torch")
    answer = parser.add_argument_group("HunyuanOCR's answer")
    answer.add_argument("--max-tokens", type=int, help="limit of the answer")
    answer.add_argument("--profile", help="generation settings by name")
    answer.add_argument("--resize", choices=("hug", "fixed", "native"), help="the page's canvas")


def run(args: argparse.Namespace) -> int:
    """0 all read, 1 some pages failed, else the error's own exit code."""
    sources = list(expand(args.sources))
    stdin = sys.stdin.buffer.read() if "-" in sources else b""
    request = _request(args)
    failures: list[PageFailure] = []
    done = 0
    opening = {k: v for k, v in vars(args).items() if k in ("threads", "device", "precision") and v}
    with ExitStack() as stack:
        ocr = stack.enter_context(OCR(args.model, args.engine, **opening))
        out = stack.enter_context(_Output(args.output))
        stop = stack.enter_context(_stop_on_interrupt())
        bar = stack.enter_context(_Bar(len(sources), args.pages))
        request.update(on_open=bar.opened, cancelled=stop.is_set)
        request["on_text"] = _show if args.stream else None
        trace = stack.enter_context(traced(args.trace))

        def results() -> Iterator[Result]:
            """Read pages; Ctrl-C ends them as their last page would, so that output is whole."""
            nonlocal done
            outcomes = (
                outcome
                for source in sources
                for outcome in ocr.read_pages(
                    stdin if source == "-" else source, label=source, pages=args.pages, **request
                )
            )
            if trace is not None:
                outcomes = (outcome for outcome, _ in traced_pages(trace, outcomes))
            try:
                for outcome in outcomes:
                    bar.step()
                    if isinstance(outcome, PageFailure):
                        failures.append(outcome)
                        print(f"hyocr: {_place(outcome)}{outcome.error}", file=sys.stderr)
                        continue
                    if args.draw:
                        _draw(args.draw, stdin, sources, outcome)
                    done += 1
                    yield outcome
                    if stop.is_set():
                        return
            except Cancelled:
                return

        for piece in _rendered(args.format, results(), len(sources) == 1):
            out.write(piece)
    if stop.is_set():
        print(f"hyocr: interrupted; {done} pages are complete", file=sys.stderr)
        return 130
    if failures:
        return 1 if done else describe(failures[0].error).exit_code
    return 0


@contextmanager
def _stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def first(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


def page_list(text: str) -> tuple[int, ...]:
    """ "1-3,7" -> (0, 1, 2, 6)."""
    pages: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            a, b = int(first), int(last) if dash else int(first)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is no page or range such as 2-5") from None
        if not 1 <= a <= b:
            raise argparse.ArgumentTypeError(f"{part!r}: pages count from 1 and ranges go up")
        pages.extend(range(a - 1, b))
    return tuple(pages)


def expand(sources: Sequence[str]) -> Iterator[str]:
    """Folders as the readable files in them (not deeper, by name), globs as what they match."""
    for source in sources:
        path = Path(source)
        if source != "-" and path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
            if not inside:
                raise UsageError(f"no picture or document in the folder {source}")
            yield from map(str, inside)
        elif source == "-" or path.exists() or not glob.has_magic(source):
            yield source
        else:
            matches = sorted(m for m in glob.glob(source, recursive=True) if os.path.isfile(m))
            if not matches:
                raise UsageError(f"nothing matches {source}")
            yield from matches


def _request(args: argparse.Namespace) -> dict[str, Any]:
    fields = bool(args.fields or args.schema)
    request: dict[str, Any] = {"task": args.task or ("fields" if fields else "spotting")}
    if args.fields:
        request["keys"] = tuple(k.strip() for k in args.fields.split(",") if k.strip())
    if args.schema:
        try:
            request["schema"] = json.loads(args.schema.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--schema {args.schema} cannot be used: {error}") from error
    chosen = {"max_tokens": args.max_tokens, "profile": args.profile, "resize": args.resize}
    request.update({k: v for k, v in chosen.items() if v is not None})
    return request


class _Bar:
    """A progress bar on a terminal's stderr, from the second page on; silent elsewhere. `total`
    grows as documents are opened."""

    def __init__(self, sources: int, pages: Sequence[int] | None) -> None:
        self._total, self._pages = sources, pages
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def opened(self, count: int) -> None:
        """A document of `count` pages was opened."""
        self._total += (count if self._pages is None else len(self._pages)) - 1
        if self._bar is not None:
            self._bar.total = self._total
        elif self._total > 1 and sys.stderr.isatty():
            self._bar = tqdm(total=self._total, unit="page", file=sys.stderr)

    def step(self) -> None:
        """A page is done."""
        if self._bar is not None:
            self._bar.update()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _rendered(form: str, results: Iterator[Result], single: bool) -> Iterator[str]:
    if form == "text":
        return render_text(results)
    if form == "markdown":
        return render_markdown(results)
    if form == "html":
        return render_html(results)
    if form == "jsonl":
        return (json.dumps(r.to_dict(), ensure_ascii=False) + "\n" for r in results)
    return _json(results, single)


def _json(results: Iterator[Result], single: bool) -> Iterator[str]:
    """One object for one source of one page, else an array that is written page by page."""
    opened = False
    for result in results:
        text = json.dumps(result.to_dict(), ensure_ascii=False, indent=2)
        if single and result.page_count == 1:
            yield text + "\n"
            return
        yield (",\n" if opened else "[\n") + text
        opened = True
    if opened:
        yield "\n]\n"
    elif not single:
        yield "[]\n"


class _Output:
    """stdout (None or -), or a file that appears under its name when it is complete."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path == Path("-") else path
        self._stream: IO[str] = sys.stdout

    def __enter__(self) -> _Output:
        if self._path is not None:
            self._partial = self._path.with_name(self._path.name + ".part")
            self._stream = open(self._partial, "w", encoding="utf-8")
        return self

    def write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._path is not None:
            self._stream.close()
            if kind is None:
                self._partial.replace(self._path)


def _show(text: str) -> None:
    """Live text goes to stderr, since stdout gets the finished Result."""
    print(text, end="", file=sys.stderr, flush=True)


def _draw(folder: Path, stdin: bytes, sources: Sequence[str], result: Result) -> None:
    """Write the page with its quads; the page is decoded once more, so that only one is held."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "stdin" if result.source == "-" else Path(result.source).stem
    if sum(Path(s).stem == stem for s in sources) > 1:
        stem = Path(result.source).name
    suffix = "" if result.page_count == 1 else f"-{result.page_index + 1:04d}"
    with open_document(stdin if result.source == "-" else result.source) as document:
        page = document.load_page(result.page_index)
    if result.turned:
        page = page.turned(result.turned)
    draw_page(page.pixels, result).save(folder / f"{stem}{suffix}.png")


def _place(failure: PageFailure) -> str:
    return "" if failure.page_index is None else f"page {failure.page_index + 1}: "

"""HunyuanOCR: a page and a task to a Result, on any engine, many pages at once.

page -> canvas -> patches -> vision -> prompt rows -> chunked prefill -> decode -> text -> Result.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend.confidence import SpokenText
from ascend.engines import Engine
from ascend.errors import TaskNotSupported
from ascend.families import ReadRequest
from ascend.families.hunyuanocr_answer import (
    TEXT_FORMS,
    TILES,
    Spoken,
    maybe_only_boxes,
    only_boxes,
    parse_spoken,
    usage_of,
)
from ascend.families.hunyuanocr_files import ModelFiles, open_files
from ascend.families.hunyuanocr_inputs import HunyuanInputs
from ascend.families.hunyuanocr_options import ReadOptions
from ascend.generate import Generation, Stops, default_drafter
from ascend.scheduler import Scheduler
from ascend.ticket import Ticket
from atc_configs.contract import load_contract
from host_pipeline.page import Page
from host_pipeline.parse import field_specs
from host_pipeline.positions import RopeLayout, TableMode
from host_pipeline.prompt import build_prompt
from host_pipeline.result import Model, Notice, Result
from host_pipeline.tasks import TASKS, Task
from host_pipeline.tasks import task as task_named
from host_pipeline.views import View, Views, fixed_view, hugging_views, native_view
from profiling.spans import Recording, recording, span, together

# Where the engine has no gears. Cache rows of one sequence: a page of 4608 patches and a long
# answer; prompt tokens of one prefill step.
_CAPACITY, _CHUNK = 8192, 512

# What stands in a row of a table or a list; equal rows are no loop.
_ROW = re.compile(r"\n|<t[rdh]|\|")

# The task whose instruction is asked when a text task was answered by nothing but boxes.
_PLAIN_TASK = "structured_parse"


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """One page being read: what was asked, and where its spans are recorded. The recording is open
    only while something runs: an iterator may be resumed by another thread, or never."""

    page: Page
    task: Task
    request: ReadRequest
    options: ReadOptions
    live: bool
    record: Recording


class HunyuanOCR:
    """One loaded model on one engine, which it closes. Threads may read at the same time: their
    pages share the engine's slots.

    slots: sequences at once; capacity: cache rows of each; chunk: prompt tokens of one prefill
    step. What is None follows the engine's gears, or a default where it has none.
    rope, table: the two disputed pieces of maths (host_pipeline/positions.py)."""

    name = "hunyuanocr"
    tasks = tuple(TASKS)

    def __init__(
        self,
        engine: Engine,
        files: ModelFiles,
        *,
        slots: int = 1,
        capacity: int | None = None,
        chunk: int | None = None,
        rope: RopeLayout = "train",
        table: TableMode = "scale",
    ) -> None:
        self.model: Model = files.model
        self._engine, self._files = engine, files
        contract = load_contract("hunyuanocr")
        vision = engine.gears("vision") or contract.graph("vision").gears
        llm = engine.gears("llm") or ()
        longest = max((g["S"] for g in llm if g["Q"] == 1 and g["B"] >= slots), default=_CAPACITY)
        capacity = min(capacity or longest, files.dims.text.max_positions)
        self._budgets = _budgets([gear["N"] for gear in vision], capacity, files.dims.vision.merge)
        # Only a gear makes drafts worth while: on a CPU a row more costs a third of a step, and a
        # guess is kept one time in four (`bench.py drafting`).
        self._draft = max((g["Q"] for g in llm if g["R"] > 1), default=1) - 1
        chunks = [g["Q"] for g in llm if g["Q"] > 1 and g["R"] == 1 and g["S"] >= _CHUNK]
        self._inputs = HunyuanInputs(engine, files, capacity=capacity, rope=rope, table=table)
        self._maths: Mapping[str, Any] = {"rope": rope, "table": table}
        self.scheduler = Scheduler(
            engine,
            self._inputs,
            slots=slots,
            capacity=capacity,
            chunk=chunk or max(chunks, default=_CHUNK),
            max_draft=self._draft,
        )

    @classmethod
    def open(cls, model: str | Path, engine: Engine, **settings: Any) -> HunyuanOCR:
        """The model in the folder `model` (checkpoint, export or bundle) on `engine`, which it owns
        from here on. Raises ModelError and its kin for files that cannot be used."""
        return cls(engine, open_files(Path(model)), **settings)

    def read(self, page: Page, request: ReadRequest) -> Result:
        """The Result of one page. Raises TaskNotSupported, TaskError, UsageError, DeadlineExceeded
        and the engine's errors."""
        *_, result = self._read(page, request, live=False)
        assert isinstance(result, Result)
        return result

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        """Pieces of the answer's text, whole characters, as they are made; then the Result.
        Closing the iterator cancels what is left."""
        return self._read(page, request, live=True)

    def close(self) -> None:
        """Cancel what runs, then release cache and engine; idempotent."""
        self.scheduler.close()
        self._engine.close()

    def _read(self, page: Page, request: ReadRequest, live: bool) -> Iterator[str | Result]:
        task = _known_task(request.task)
        options = ReadOptions.of(request.options, task, self._files)
        instruction = task.instruction_for(_keys(task, request))
        with recording() as record:
            reading = _Reading(page, task, request, options, live, record)
            views = self._views(reading)
        notices = [*page.notices, *views.notices]
        spoken = yield from self._ask(reading, views, instruction)
        if options.retry and task.form in TEXT_FORMS and _all_boxes(spoken):
            notices.append(_retry_notice(spoken))
            spoken = yield from self._ask(reading, views, task_named(_PLAIN_TASK).instruction)
        with together([record]):
            result = self._result(reading, spoken, notices)
        yield dataclasses.replace(result, timings_ms=record.timings_ms())

    def _views(self, reading: _Reading) -> Views:
        options, pixels = reading.options, reading.page.pixels
        vision, rule = self._files.dims.vision, self._files.patches
        with span("letterbox"):
            if options.resize == "native":
                cell = vision.patch * vision.merge
                limits = {"min_pixels": rule.min_pixels, "max_pixels": rule.max_pixels}
                return native_view(pixels, multiple=cell, **limits)
            if options.resize == "fixed":
                return fixed_view(pixels)
            budgets = self._budgets
            if options.budget is not None:
                budgets = (*(b for b in budgets if b < options.budget), options.budget)
            tile = TILES.get(reading.task.form) if options.tile else None
            size = {"patch": vision.patch, "merge": vision.merge, "min_pixels": rule.min_pixels}
            return hugging_views(pixels, budgets, tile=tile, **size)

    def _ask(
        self, reading: _Reading, views: Views, instruction: str
    ) -> Generator[str, None, list[Spoken]]:
        """Put one question to every view at once. Yields text while the reading is live."""
        with together([reading.record]), span("tokenise"):
            ids = self._files.tokenizer.encode(instruction)
        tickets = [self._ticket(reading, view, ids) for view in views.parts]
        try:
            for ticket in tickets:
                self.scheduler.submit(ticket)
            spoken = []
            for view, ticket in zip(views.parts, tickets, strict=True):
                text = yield from self._follow(reading, ticket)
                spoken.append(Spoken(view, ticket.generation, text))
            return spoken
        finally:
            for ticket in tickets:  # of a reader that went away
                self.scheduler.cancel(ticket)

    def _ticket(self, reading: _Reading, view: View, instruction_ids: Sequence[int]) -> Ticket:
        files, options = self._files, reading.options
        patch, merge = files.dims.vision.patch, files.dims.vision.merge
        grid_h, grid_w = (side // patch for side in view.canvas.shape[:2])
        prompt = build_prompt(files.special, instruction_ids, grid_h, grid_w, merge=merge)
        stops = Stops(
            stop=files.special.stop,
            banned=files.special.banned,
            room=self.scheduler.room(len(prompt.token_ids)),
            is_row=lambda unit: _ROW.search(files.tokenizer.decode(unit)) is not None,
        )
        generation = Generation(
            prompt.token_ids,
            files.dims.text.vocab,
            options.sampling,
            stops,
            default_drafter() if options.draft and self._draft else None,
        )
        return Ticket(
            generation,
            lambda: self._inputs.prompt_rows(prompt, view.canvas),
            reading.request.cancelled,
            reading.request.deadline,
            record=reading.record,
        )

    def _follow(self, reading: _Reading, ticket: Ticket) -> Generator[str, None, SpokenText]:
        """Wait for one answer; yields what is new of its text while the reading is live. Text that
        may still turn out to be nothing but boxes is held back, because it is asked again then."""
        stream, tokens, given = self._files.tokenizer.stream(), ticket.generation.tokens, 0
        held = reading.options.retry and reading.task.form in TEXT_FORMS
        while True:
            self.scheduler.wait(ticket, len(stream.ends) if reading.live else None)
            ended = ticket.done
            for token in tokens[len(stream.ends) :]:
                stream.push(token)
            if ended:
                stream.finish()
            hold = held and (only_boxes if ended else maybe_only_boxes)(stream.text)
            if reading.live and not hold and len(stream.text) > given:
                yield stream.text[given:]
                given = len(stream.text)
            if ended:
                return SpokenText(stream.text, stream.ends, ticket.generation.logprobs)

    def _result(
        self, reading: _Reading, spoken: Sequence[Spoken], notices: Sequence[Notice]
    ) -> Result:
        page, task, options = reading.page, reading.task, reading.options
        with span("parse"):
            answer = parse_spoken(task, reading.request, page, spoken)
        limit = min(one.generation.limit for one in spoken)
        canvases = [list(one.view.canvas.shape[:2]) for one in spoken]  # height, width
        settings = {**options.to_dict(), "max_tokens": limit, **self._maths, "canvases": canvases}
        return Result(
            source=page.source,
            page_index=page.index,
            page_count=page.count,
            page_width=page.width,
            page_height=page.height,
            rotation=page.rotation,
            task=task.name,
            model=self.model,
            engine=self._engine.name,
            emulated=self._engine.emulated,
            lines=answer.lines,
            text=answer.text,
            fields=answer.fields,
            tables=answer.tables,
            markdown=answer.markdown,
            raw="\n".join(one.text.text for one in spoken),
            unparsed=answer.unparsed,
            finish_reason=answer.finish_reason,
            warnings=tuple(dict.fromkeys([*notices, *answer.warnings])),
            settings={**self._engine.settings, **settings},
            usage=usage_of(spoken),
        )


def _budgets(patch_counts: Sequence[int], capacity: int, merge: int) -> tuple[int, ...]:
    """The patch budgets, ascending, whose image leaves a quarter of the cache to the answer. An
    image takes a token for each merge² patches and one for each row, some 15 % more; 64 tokens are
    for the instruction."""
    most = int((capacity * 3 // 4 - 64) / 1.15) * merge * merge
    fitting = tuple(count for count in sorted(patch_counts) if count <= most)
    return fitting or (max(most, merge * merge),)


def _known_task(name: str) -> Task:
    task = task_named(name)
    if task.name not in HunyuanOCR.tasks:
        known = ", ".join(HunyuanOCR.tasks)
        raise TaskNotSupported(f"HunyuanOCR has no task {name!r}; it has {known}")
    return task


def _keys(task: Task, request: ReadRequest) -> tuple[str, ...]:
    """The names to ask for: those given, or those of the schema."""
    if not task.needs_fields or request.schema is None:
        return request.keys
    return tuple(spec.name for spec in field_specs(request.schema))


def _all_boxes(spoken: Sequence[Spoken]) -> bool:
    return all(one.reason == "stop" and only_boxes(one.text.text) for one in spoken)


def _retry_notice(spoken: Sequence[Spoken]) -> Notice:
    first = spoken[0].text.text.strip()
    text = f"the first answer was only coordinates ({first[:40]}); asked again for plain text"
    return Notice("coordinates_only_retried", text)

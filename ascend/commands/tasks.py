"""`hyocr tasks`: the table of tasks, for people or (`--json`) for programs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable

from host_pipeline.tasks import ALIASES, TASKS, Task, task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="everything about each task, as JSON")
    parser.add_argument("--markdown", action="store_true", help="the table as the README has it")
    parser.add_argument("task", nargs="?", metavar="TASK", help="only this task, in full")


def run(args: argparse.Namespace) -> int:
    chosen = [task(args.task)] if args.task else list(TASKS.values())
    if args.json:
        rows = [{**dataclasses.asdict(t), "aliases": aliases_of(t)} for t in chosen]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    elif args.markdown:
        print(markdown_table(chosen))
    elif args.task:
        print(_card(chosen[0]))
    else:
        print("\n".join(_rows(chosen)))
    return 0


def aliases_of(task: Task) -> list[str]:
    """The other names that mean `task`."""
    return [alias for alias, name in ALIASES.items() if name == task.name]


def markdown_table(tasks: Iterable[Task]) -> str:
    """`tasks` as a Markdown table: name, what it gives, the instruction and its meaning."""
    rows = ["| Task | Gives | Instruction | In English |", "| --- | --- | --- | --- |"]
    for one in tasks:
        names = ", ".join(f"`{name}`" for name in (one.name, *aliases_of(one)))
        cells = (names, one.title, one.instruction, one.english)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _rows(tasks: list[Task]) -> list[str]:
    cells = [("TASK", "ANSWER", "TOKENS", "WHAT IT GIVES")]
    cells += [(_names(t), t.form, str(t.max_tokens), t.title) for t in tasks]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    return [
        f"{name:<{widths[0]}}  {form:<{widths[1]}}  {tokens:>{widths[2]}}  {title}"
        for name, form, tokens, title in cells
    ]


def _names(task: Task) -> str:
    return ", ".join([task.name, *aliases_of(task)])


def _card(task: Task) -> str:
    needs = "--fields NAMES or --schema FILE" if task.needs_fields else "nothing"
    return "\n".join(
        [
            f"{_names(task)}: {task.title}",
            f"instruction  {task.instruction}",
            f"in English   {task.english}",
            f"source       {task.source}",
            f"answer       {task.form}, at most {task.max_tokens} tokens",
            f"needs        {needs}",
            f"example      {task.example}",
        ]
    )

"""The error texts of the compiler, in the layout in which it prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "atc_table.json").read_text())
START = "ATC start working now, please wait for a moment.\n..."
SUCCESS = "ATC run success, welcome to the next use."
FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
EXIT_FAILURE = 255  # main returns -1


class AtcError(Exception):
    """A refusal: a code of the error table and the values of its text."""

    def __init__(self, code: str, *values: object, trace: str = "") -> None:
        super().__init__(code, *values)
        self.code = code
        self.values = values
        self.trace = trace

    def text(self) -> str:
        """The block that follows the failure line."""
        message, cause, solution = TABLE["errors"][self.code]
        head = message % tuple(str(value) for value in self.values)
        if self.code == "E19999" and not self.values:
            head = "Internal Error!"
        lines = [f"{self.code}: {head}"]
        if self.code == "E19999":
            lines.append("        An unknown error occurred. Please check the log.")
        if cause != "N/A":
            lines.append(f"        Possible Cause: {cause}")
        if solution != "N/A":
            lines.append(f"        Solution: {solution}")
        if self.trace:
            lines += ["        TraceBack (most recent call last):", f"        {self.trace}"]
        return "\n".join(lines) + "\n"

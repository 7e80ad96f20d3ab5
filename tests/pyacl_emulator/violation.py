"""The error of a program that breaks a rule for which the documents give no return code."""

from __future__ import annotations


class EmulatorViolation(AssertionError):
    """A documented rule of pyACL was broken; names the rule and where it is written.

    Undefined behaviour on hardware (a crash, silently wrong data) is this exception here. It is an
    AssertionError so that code which handles device errors does not handle it by accident.
    """

    def __init__(self, rule: str, source: str) -> None:
        super().__init__(f"{rule} ({source})")
        self.rule = rule
        self.source = source

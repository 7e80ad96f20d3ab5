"""The options of one reading by HunyuanOCR, checked and with every default filled in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ascend.errors import UsageError
from ascend.families.hunyuanocr_files import ModelFiles
from ascend.generate import Sampling
from host_pipeline.tasks import Task

Resize = Literal["hug", "fixed", "native"]
"""hug: a canvas that hugs the page; fixed: 480x640; native: the model's own resizing rule."""

_SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "max_tokens", "seed")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """profile: generation settings by name (`ModelFiles.profiles`), single values replaced by
    options of their own names. budget: most patches of a canvas, None for the model's ladder. tile:
    cut a page whose print would be illegible. draft: guess tokens that repeat, for speed only.
    retry: ask again when a text task is answered by nothing but coordinates."""

    profile: str
    sampling: Sampling
    resize: Resize = "hug"
    budget: int | None = None
    tile: bool = True
    draft: bool = True
    retry: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any], task: Task, files: ModelFiles) -> ReadOptions:
        """The options in `given`; what is not there follows the model's profile and the task's
        token limit. Raises UsageError for an unknown name or a value that cannot be."""
        wanted = {name: value for name, value in given.items() if value is not None}
        own = [f.name for f in dataclasses.fields(cls) if f.name != "sampling"]
        unknown = sorted(wanted.keys() - {*own, *_SAMPLING})
        if unknown:
            raise UsageError(
                f"unknown option {unknown[0]!r}; HunyuanOCR has {', '.join([*own, *_SAMPLING])}"
            )
        profile = str(wanted.get("profile", files.profile))
        if profile not in files.profiles:
            known = ", ".join(files.profiles)
            raise UsageError(f"unknown profile {profile!r}; there are {known}")
        base = files.profiles[profile]
        changes: dict[str, Any] = {"max_tokens": min(base.max_tokens, task.max_tokens)}
        changes |= {name: _number(name, wanted[name]) for name in _SAMPLING if name in wanted}
        sampling = dataclasses.replace(base, **changes)
        resize = wanted.get("resize", "hug")
        if resize not in get_args(Resize):
            raise UsageError(f"resize {resize!r}: one of {', '.join(get_args(Resize))}")
        budget = wanted.get("budget")
        if budget is not None and not (_is_whole(budget) and budget >= 4):
            raise UsageError(f"budget {budget!r}: a number of patches, 4 or more")
        flags = {name: _flag(name, wanted.get(name, True)) for name in ("tile", "draft", "retry")}
        return cls(profile, sampling, resize, budget, **flags)

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, as it enters `Result.settings`."""
        values = dataclasses.asdict(self)
        return {"profile": values.pop("profile"), **values.pop("sampling"), **values}


def _number(name: str, value: Any) -> float | int:
    whole = name in ("top_k", "max_tokens", "seed")
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{name} {value!r}: must be {kind}")
    # The clients of vLLM write -1 for "all tokens".
    return 0 if name == "top_k" and value == -1 else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} {value!r}: must be true or false")
    return value

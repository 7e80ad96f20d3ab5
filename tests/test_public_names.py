"""Every public name is documented, and every typed error stands in the one table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import ascend
from ascend.errors import ERRORS, describe

PACKAGES = ("ascend", "atc_configs", "acl_runtime", "host_pipeline", "fallback", "profiling")


def _modules() -> Iterator[ModuleType]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                yield importlib.import_module(info.name)
            except ModuleNotFoundError as error:  # an extra that is not installed
                if (error.name or "").split(".")[0] in PACKAGES:
                    raise


MODULES = list(_modules())
# What these do is said once, where the protocol is: `close` releases and is idempotent, a command
# module has `add_arguments` and `run`.
SAID_ONCE = {"close", "add_arguments", "run"}


def _said_by_protocols() -> set[str]:
    """Names of methods that a Protocol documents: what implements it need not say it again."""
    names: set[str] = set()
    for module in MODULES:
        for value in vars(module).values():
            if inspect.isclass(value) and getattr(value, "_is_protocol", False):
                names.update(n for n, f in vars(value).items() if getattr(f, "__doc__", None))
    return names


PROTOCOL_NAMES = _said_by_protocols()


def _public(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) or (inspect.isfunction(value) and name not in SAID_ONCE):
            yield name, value
        if inspect.isclass(value):
            for member, function in vars(value).items():
                if member.startswith("_") or member in SAID_ONCE:
                    continue
                if inspect.isfunction(function):
                    yield f"{name}.{member}", function


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_modules_classes_and_functions_say_what_they_are(module: ModuleType) -> None:
    assert module.__doc__, f"{module.__name__} has no docstring"
    bare = [
        name
        for name, value in _public(module)
        if not inspect.getdoc(value) and not ("." in name and name.split(".")[1] in PROTOCOL_NAMES)
    ]
    assert not bare


def test_the_public_api_is_what_it_says() -> None:
    assert all(hasattr(ascend, name) for name in ascend.__all__)


def _errors() -> Iterator[type[Exception]]:
    for module in MODULES:
        if module.__name__.startswith("ascend.serve"):
            continue  # the service's own refusals carry their HTTP status with them
        for _, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, Exception):
                if value.__module__ == module.__name__ and not value.__name__.startswith("_"):
                    yield value


@pytest.mark.parametrize(
    "error", sorted(set(_errors()), key=lambda e: e.__qualname__), ids=lambda e: e.__name__
)
def test_every_error_stands_in_the_table(error: type[Exception]) -> None:
    assert any(issubclass(error, row[0]) for row in ERRORS)


def test_a_subclass_never_stands_behind_its_base() -> None:
    for i, (cls, *_) in enumerate(ERRORS):
        assert not any(issubclass(cls, earlier) for earlier, *_ in ERRORS[:i])


def test_an_unlisted_error_is_a_bug_of_ours() -> None:
    info = describe(ZeroDivisionError("x"))
    assert info.internal and info.exit_code == 70 and info.http_status == 500

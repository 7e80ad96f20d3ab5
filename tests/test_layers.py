"""The arrows of the architecture, and what may be imported when: walked from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("ascend", "atc_configs", "acl_runtime", "host_pipeline", "fallback", "profiling")
ALLOWED = {
    "ascend": {"host_pipeline", "acl_runtime", "fallback", "profiling", "atc_configs"},
    "acl_runtime": {"atc_configs", "profiling"},
    "fallback": {"atc_configs", "profiling"},
    "host_pipeline": set(),
    "atc_configs": set(),
    "profiling": set(),
}
HEAVY = {"acl", "torch", "onnx", "onnxruntime", "transformers", "gradio", "fastapi", "rapidocr"}
# What `pip install .` brings, next to the standard library.
EDGE_COMMANDS = ["read", "tasks", "doctor", "inspect", "compile"]

FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_what_its_package_may_know(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    ours = _imports(path) & {*PACKAGES, "tests", "scripts"}
    assert ours <= {package} | ALLOWED[package]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_product_files_do_not_speak_of_the_stand_in(path: Path) -> None:
    assert "emulator" not in path.read_text("utf-8").lower()


def test_the_edge_box_needs_none_of_the_heavy_packages() -> None:
    script = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
import ascend, acl_runtime.engine, host_pipeline.page
import ascend.families.ppocr, ascend.families.hunyuanocr
from ascend.cli import main
assert main(["--help"]) == 0
for command in {EDGE_COMMANDS!r}:
    assert main([command, "--help"]) == 0, command
assert main(["doctor"]) in (0, 1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, ascend; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert not HEAVY & set(done.stdout.split()), done.stderr

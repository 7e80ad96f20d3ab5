"""The web page as a person uses it: headless Chromium, a real server, no network but loopback."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")
sync_api = pytest.importorskip("playwright.sync_api")

from ascend.serve.ui import free_port  # noqa: E402
from tests.serve.running import Running  # noqa: E402

SAMPLE = Path(__file__).parent.parent.parent / "scripts" / "sample_page.png"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 120_000


@pytest.fixture(scope="module")
def page_url(ppocr: Running) -> Iterator[str]:
    """The web page in its own process, as `hyocr serve` starts it."""
    command = [sys.executable, "-m", "ascend.serve.ui", "--api", ppocr.url, "--port", "0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            found = next(filter(None, (re.search(r"http://\S+", line) for line in lines)), None)
            assert found is not None, "the web page did not start"
            yield found.group()
        finally:
            process.terminate()


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
def test_the_sample_s_text_and_boxes_are_shown(page_url: str, tmp_path: Path) -> None:
    outside: list[str] = []

    def only_here(route: Any) -> None:
        if route.request.url.startswith((page_url, "data:", "blob:")):
            route.continue_()
        else:  # an air-gapped box: whatever asks the internet fails
            outside.append(route.request.url)
            route.abort()

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(WAIT_MS)
        page.route("**/*", only_here)
        _reach(page, page_url)
        sync_api.expect(page.locator("#engine")).to_contain_text("ort (primary)", timeout=WAIT_MS)
        page.locator("#file input[type=file]").set_input_files(SAMPLE)
        page.locator("#read").click()
        status = page.locator("#status")
        sync_api.expect(status).to_contain_text("1 of 1 pages read", timeout=WAIT_MS)
        text = page.locator("#text textarea").input_value()
        box = page.locator("#boxes img").first
        sync_api.expect(box).to_be_visible()
        width = box.evaluate("image => image.naturalWidth")
        page.screenshot(path=os.environ.get("HYOCR_SCREENSHOT", tmp_path / "page.png"))
        browser.close()
    assert len(text.split()) > 10 and width > 400


def test_the_next_free_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port) < port + 20


def _reach(page: Any, url: str) -> None:
    """Open the page; it prints its address just before it listens."""
    for _ in range(200):
        try:
            page.goto(url)
            return
        except sync_api.Error as error:
            if "ERR_CONNECTION_REFUSED" not in str(error):
                raise
            page.wait_for_timeout(250)
    raise AssertionError("the web page never listened")

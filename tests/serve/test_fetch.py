"""Pictures at addresses: what is fetched, and the ways into a network that are closed."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ascend.serve.config import ServeConfig
from ascend.serve.errors import BadRequest, BodyTooLarge, Forbidden
from ascend.serve.fetch import Fetcher, is_public


class _Handler(http.server.BaseHTTPRequestHandler):
    hosts: list[str]

    def do_GET(self) -> None:
        self.server.hosts.append(self.headers["host"])  # type: ignore[attr-defined]
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/picture")
            self.end_headers()
            return
        body = b"x" * (5000 if self.path == "/large" else 10)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[Any]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Handler)
    server.hosts = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _fetch(site: Any, path: str, allowed: bool = True, **config: Any) -> bytes:
    """`path` of the site, under a name that leads to it."""

    async def resolve(host: str, port: int) -> list[str]:
        assert host == "pictures.example"
        return ["127.0.0.1"]

    given = ServeConfig(fetch_urls=True, max_body_bytes=1000, **config)
    fetcher = Fetcher(given, resolve, (lambda _: True) if allowed else None)
    url = f"http://pictures.example:{site.server_address[1]}{path}"
    return asyncio.run(fetcher.fetch(url))


def test_a_picture_is_fetched_from_the_address_that_was_checked(site: Any) -> None:
    assert _fetch(site, "/picture") == b"x" * 10
    assert site.hosts[-1] == f"pictures.example:{site.server_address[1]}"


def test_redirects_large_files_and_private_hosts_are_refused(site: Any) -> None:
    with pytest.raises(BadRequest, match="302"):
        _fetch(site, "/moved")
    with pytest.raises(BodyTooLarge):
        _fetch(site, "/large")
    asked = len(site.hosts)
    with pytest.raises(Forbidden, match="not a public one"):
        _fetch(site, "/picture", allowed=False)
    with pytest.raises(Forbidden, match=r"from other\.example only"):
        _fetch(site, "/picture", fetch_hosts=("other.example",))
    assert len(site.hosts) == asked, "nobody was asked"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a/b", "http://", "gopher://x", "http://u:p@a/", "\x00"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        asyncio.run(Fetcher(ServeConfig(fetch_urls=True)).fetch(url))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:0001::", False),
        ("64:ff9b::a00:1", False),
        ("not an address", False),
    ],
)
def test_only_public_addresses_count(address: str, public: bool) -> None:
    assert is_public(address) is public

"""Clients that hold a connection open for nothing: each is given up in time, others go on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.serve.running import Running, wait_for

POST = b"POST /v1/ocr HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nabc"
GET = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.contextmanager
def connected(server: Running, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    with socket.socket() as connection:
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(30)
        connection.connect((address.hostname, address.port))
        yield connection


def test_a_body_that_stops_halfway_is_given_up(ppocr: Running) -> None:
    with connected(ppocr) as half:
        half.sendall(POST)
        assert half.recv(64).startswith(b"HTTP/1.1 408")
    with connected(ppocr) as half:
        half.sendall(POST)
    wait_for(lambda: ppocr.get("/readyz").json()["running"] == 0, 20)


def test_a_body_that_comes_drop_by_drop_wins_no_time(ppocr: Running) -> None:
    with connected(ppocr) as slow:
        slow.sendall(POST)
        slow.settimeout(0.2)
        answer = b""
        for _ in range(200):
            with contextlib.suppress(TimeoutError, BrokenPipeError):
                slow.sendall(b"x")
                answer += slow.recv(64)
            if answer:
                break
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_head_that_does_not_end_is_given_up_first_and_later(ppocr: Running) -> None:
    with connected(ppocr) as idle:
        assert idle.recv(64) == b"", "nothing was asked, nothing is answered"
    with connected(ppocr) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        slow.settimeout(0.2)
        closed = False
        for _ in range(200):
            try:
                slow.sendall(b"G")
                closed = slow.recv(64) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed, "drop by drop a head may take for ever"


def test_a_client_that_does_not_read_is_given_up(ppocr: Running) -> None:
    before = len(ppocr.server.server_state.connections)
    with connected(ppocr, receive_bytes=4096) as deaf:
        deaf.settimeout(1)
        with contextlib.suppress(TimeoutError):  # the service stops reading when it cannot write
            for _ in range(2000):
                deaf.sendall(GET)
        wait_for(lambda: len(ppocr.server.server_state.connections) <= before, 60)
        assert ppocr.get("/livez").status_code == 200


def test_what_is_no_http_is_told_in_the_shape_of_all_errors(ppocr: Running) -> None:
    with connected(ppocr) as odd:
        odd.sendall(b"\x16\x03\x01 TLS where there is none\r\n\r\n")
        answer = b"".join(iter(lambda: odd.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and b"application/json" in head
    assert b'"code": "http"' in body

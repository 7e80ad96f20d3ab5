"""Runs the application: sockets, signals, the web page's process, and an end that loses nothing."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from types import FrameType

import uvicorn

from ascend.errors import UsageError
from ascend.serve.app import create_app
from ascend.serve.config import ServeConfig
from ascend.serve.keys import KeyRing
from ascend.serve.protocol import protocol_with
from ascend.serve.service import Service

log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 15
_LAST_WORDS_S = 5  # after the grace, for the errors that tell the rest


class ServiceServer(uvicorn.Server):
    """A uvicorn server that drains on SIGTERM or SIGINT and ends at once on the second."""

    def __init__(self, config: ServeConfig, listener: socket.socket, *, ui: bool = True) -> None:
        self.failure: BaseException | None = None
        keys = KeyRing.of(config)
        app = create_app(config, keys, self._failed)
        self.service: Service = app.state.service
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol_with(config.body_timeout_s, config.write_timeout_s),
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=config.max_connections or None,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(config.shutdown_grace_s) + _LAST_WORDS_S,
            )
        )
        self._config, self._listener, self._keys = config, listener, keys
        self._with_ui = ui
        self._ui: subprocess.Popen[bytes] | None = None
        self._signals = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve_all(self) -> None:
        """Serve until the end; raises what kept the model from opening."""
        try:
            self.run(sockets=[self._listener])
        finally:
            self.service.kill()
            if self._ui is not None:
                self._ui.terminate()
                self._ui.wait()
        if self.failure is not None:
            raise self.failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the sockets and say where the service is."""
        await super().startup(sockets)
        if self.should_exit:
            return
        print(f"hyocr: serving on {self.url} (its API: {self.url}/docs)", file=sys.stderr)
        if self._with_ui:
            self._ui = self._start_ui()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second ends at once."""
        self._signals += 1
        if self._signals > 1:
            self.service.kill()
            if self._ui is not None:
                self._ui.kill()
            os._exit(128 + sig)
        log.warning("%s: finishing what runs", signal.Signals(sig).name)
        self.service.begin_shutdown()
        self.should_exit = True
        # From a signal handler only this call reaches the loop safely.
        loop = self.service.loop
        if loop is not None:
            grace = self._config.shutdown_grace_s
            loop.call_soon_threadsafe(loop.call_later, grace, self.service.cut_off)

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        self.should_exit = True

    def _start_ui(self) -> subprocess.Popen[bytes]:
        """The web page is a client of this API in a process of its own."""
        options = ["--api", self.url, "--host", self._config.host]
        options += ["--port", str(self._config.ui_port)]
        if self._keys.required:
            options.append("--ask-key")
        return subprocess.Popen([sys.executable, "-m", "ascend.serve.ui", *options])


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises UsageError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio leaves TCP_NODELAY out and every answer waits 40 ms for the
    # client's delayed acknowledgement of its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}; give another --port"
        ) from error
    listener.set_inheritable(True)
    return listener

"""Pictures at http(s) addresses, for chat messages; off unless the configuration says so.

A service that fetches what strangers name must not become their way into the network it stands
in: every address of the host is checked, the connection goes to the very address that was checked,
redirects are refused, and size and time are limited.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable

import httpx

from ascend.serve.config import ServeConfig
from ascend.serve.errors import BadRequest, BodyTooLarge, Forbidden

Resolve = Callable[[str, int], Awaitable[list[str]]]
_SECONDS = 20.0


class Fetcher:
    """Fetches under the rules of `config`. `resolve` and `allowed` are the ways to names and the
    rule for addresses."""

    def __init__(
        self,
        config: ServeConfig,
        resolve: Resolve | None = None,
        allowed: Callable[[str], bool] | None = None,
    ) -> None:
        self._config = config
        self._resolve = resolve or _resolve
        self._allowed = allowed or is_public

    async def fetch(self, url: str) -> bytes:
        """The bytes at `url`. Raises Forbidden, BadRequest or BodyTooLarge."""
        if not self._config.fetch_urls:
            raise Forbidden(
                "addresses are not fetched (fetch_urls is off); send the picture as a data URL"
            )
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise BadRequest("this is no address of a picture") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise BadRequest("only http(s) addresses without a user are fetched")
        hosts = self._config.fetch_hosts
        if hosts and parsed.host not in hosts:
            raise Forbidden(f"pictures are fetched from {', '.join(hosts)} only")
        address = await self._address(parsed)
        try:
            return await self._get(parsed, address)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BadRequest(f"the picture cannot be fetched: {type(error).__name__}") from None

    async def _address(self, url: httpx.URL) -> str:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self._resolve(url.host, port)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise BadRequest("the picture's host has no address")
        if not all(map(self._allowed, found)):
            raise Forbidden("the picture's host is not a public one")
        return found[0]

    async def _get(self, url: httpx.URL, address: str) -> bytes:
        most, end = self._config.max_body_bytes, time.monotonic() + _SECONDS
        # To the address that was checked: a second look-up could give another one.
        pinned = url.copy_with(host=address)
        headers = {"Host": url.netloc.decode("ascii")}
        extensions = {"sni_hostname": url.host}
        async with (
            httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=_SECONDS) as client,
            client.stream("GET", pinned, extensions=extensions, headers=headers) as response,
        ):
            if response.status_code != 200:
                raise BadRequest(f"the picture's host answered {response.status_code}, not 200")
            taken = bytearray()
            async for block in response.aiter_bytes():
                taken += block
                if len(taken) > most:
                    raise BodyTooLarge(f"the picture has more than {most} bytes, the limit")
                if time.monotonic() > end:
                    raise BadRequest(f"the picture was not there after {_SECONDS:g} s")
            return bytes(taken)


def is_public(address: str) -> bool:
    """Whether `address` is one of the public internet: not private, local, reserved or multicast,
    nor such a one inside an IPv6 form of an IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo or (None, None))[1]
        if inner is not None:
            return is_public(str(inner))
        if parsed in ipaddress.ip_network("64:ff9b::/96"):
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]

"""Who may ask, and how often: API keys from a file or the environment."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ascend.errors import UsageError
from ascend.serve.config import ServeConfig
from ascend.serve.errors import Forbidden, RateLimited, Unauthorized

_KEYS_VARIABLE = "HYOCR_API_KEYS"
_ADMIN_VARIABLE = "HYOCR_ADMIN_KEY"


@dataclass(frozen=True, slots=True)
class Key:
    """One client: `digest` is the SHA-256 of its key; per_minute 0 means any number."""

    name: str
    digest: bytes
    per_minute: int = 0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float


class KeyRing:
    """The keys of this service; without any, everybody may ask."""

    def __init__(self, keys: tuple[Key, ...] = (), admin: bytes | None = None) -> None:
        self._keys, self._admin = keys, admin
        self._buckets: dict[str, _Bucket] = {}

    @classmethod
    def of(cls, config: ServeConfig, environment: Mapping[str, str] = os.environ) -> KeyRing:
        """From the configured file, else the variable; UsageError for a line that is no key."""
        if config.api_keys is not None:
            try:
                lines = Path(config.api_keys).read_text("utf-8").splitlines()
            except OSError as error:
                raise UsageError(f"api_keys {config.api_keys}: {error.strerror}") from error
        else:
            lines = environment.get(_KEYS_VARIABLE, "").split(",")
        stripped = (line.strip() for line in lines)
        keys = tuple(_key(line) for line in stripped if line and not line.startswith("#"))
        if config.api_keys is not None and not keys:
            raise UsageError(f"api_keys {config.api_keys}: no key in it; nobody could ask")
        admin = environment.get(_ADMIN_VARIABLE)
        return cls(keys, _digest(admin) if admin else None)

    @property
    def required(self) -> bool:
        return bool(self._keys)

    def client(self, token: str | None) -> str:
        """The name of the client with this key. Raises Unauthorized or RateLimited."""
        if not self._keys:
            return ""
        given, found = _digest(token or ""), None
        for key in self._keys:  # all of them, so that the time tells nothing
            if hmac.compare_digest(key.digest, given):
                found = key
        if found is None:
            raise Unauthorized("give a valid key: Authorization: Bearer KEY, or X-API-Key")
        self._spend(found)
        return found.name

    def check_admin(self, token: str | None) -> None:
        """Raises Forbidden unless `token` is the administrator's."""
        if self._admin is None:
            raise Forbidden(f"/admin is off; start the service with {_ADMIN_VARIABLE} to use it")
        if not hmac.compare_digest(self._admin, _digest(token or "")):
            raise Forbidden("the administrator's key is wanted")

    def _spend(self, key: Key) -> None:
        """A token bucket: `per_minute` at once, refilled evenly."""
        if not key.per_minute:
            return
        now = time.monotonic()
        bucket = self._buckets.setdefault(key.name, _Bucket(key.per_minute, now))
        rate = key.per_minute / 60
        bucket.tokens = min(key.per_minute, bucket.tokens + (now - bucket.filled) * rate)
        bucket.filled = now
        if bucket.tokens < 1:
            wait = (1 - bucket.tokens) / rate
            raise RateLimited(f"this key may ask {key.per_minute} times a minute", wait)
        bucket.tokens -= 1


def _key(line: str) -> Key:
    name, _, rest = line.partition(":")
    secret, _, rate = rest.partition(":")
    if not name or len(secret) < 8 or (rate and not rate.isdecimal()):
        raise UsageError("an API key is a line name:key or name:key:per_minute, 8 letters or more")
    return Key(name, _digest(secret), int(rate or 0))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()

"""The key-value store of HashiCorp Vault and OpenBao, as far as reading one secret needs it: a server in threads of the tests.

Written from the API's page. It refuses any token but its own; its response depends on the path, so that it can also be
sealed, slow or broken.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.serving import Service
from tests.support.upstream import Authority, Seen, answer

__all__ = ["MORE_THAN_IS_READ", "TOKEN", "KeyValueStore", "stored"]

TOKEN = b"hvs.the-token-of-the-tests"
MORE_THAN_IS_READ = 256 << 10


def stored(**fields: Any) -> bytes:
    """Return the response to a read, as the API's page shows it."""
    metadata = {"created_time": "2026-01-02T03:04:05.678Z", "deletion_time": "", "destroyed": False, "version": 2}
    said = {"request_id": "x", "lease_id": "", "renewable": False, "data": {"data": fields, "metadata": metadata}}
    return answer(json.dumps(said).encode(), "Content-Type: application/json")


def says(errors: list[str], status: str) -> bytes:
    """Return an error response."""
    return answer(json.dumps({"errors": errors}).encode(), "Content-Type: application/json", status=status)


class KeyValueStore(Service):
    """A server whose responses depend on the path; it refuses any token but its own."""

    def __init__(self, value: str, authority: Authority | None = None) -> None:
        super().__init__(None if authority is None else authority.server_context("localhost"))
        self.value = value
        """Value of `mail/home`, and of every other path that has one."""
        self.is_away = False
        """True while the server closes each connection without a response."""
        self.goes_on = threading.Event()
        self.seen: list[Seen] = []
        self.address = f"localhost:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block, and then let what is slow go on."""
        with self._upstream:
            yield
            self.goes_on.set()

    def at(self, path: str, field: str = "password") -> str:
        """Return a reference to a field of the secret at path."""
        return f"vault://{self.address}/secret/{path}#{field}"

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        self.seen.append(seen)
        if self.is_away:
            return b""
        if seen.values("X-Vault-Token") != [TOKEN.decode()]:
            return says(["permission denied"], "403 Forbidden")
        match seen.target.removeprefix("/v1/secret/data/"):
            case "mail/home":
                return stored(password=self.value, user="me", number=7)
            case "deleted":
                said = {"data": {"data": None, "metadata": {"destroyed": False, "version": 3}}}
                return answer(json.dumps(said).encode(), status="404 Not Found")
            case "null":
                return answer(json.dumps({"data": {"data": None}}).encode())
            case "sealed":
                return says(["Vault is sealed"], "503 Service Unavailable")
            case "standby":
                return answer(
                    b"", f"Location: https://{self.address}/v1/secret/data/mail/home", status="307 Temporary Redirect"
                )
            case "limited":
                return says(["quota exceeded"], "429 Too Many Requests")
            case "broken":
                return says(["internal"], "500 Internal Server Error")
            case "html":
                return answer(b"<html>not a store</html>")
            case "version-1":
                return answer(json.dumps({"data": {"password": self.value}}).encode())
            case "huge":
                return stored(password=self.value, more="x" * MORE_THAN_IS_READ)
            case "slow":
                self.goes_on.wait(10)
                return stored(password=self.value)
        return says([], "404 Not Found")

"""Stripe's API as its reference documents it, for a balance and customers: a real TLS server with a memory.

    with StripeServer(authority.server_context(*NAMES), listener=machine.listen_at("api.stripe.com")) as stripe:
        stripe.allow("rk_test_…", ["rak_balance_read", "rak_customer_write"])
        …                                        # something asks it
        assert stripe.customers[0]["email"] == "ada@example.com"

It answers `GET /v1/balance` and `POST /v1/customers`. An unknown key gets 401, and 403 names the permission that a restricted key
lacks, in words and beside a masked key, as Stripe does. `asked` is every request, with a digest in place of the key.

Source: docs.stripe.com/api (Authentication, Errors, Balance, Customers) and /keys (restricted keys); the sentence of 403 as
github.com/stripe/stripe-node/issues/2246 quotes it. Not here: localstripe (tests/documents).
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["EVERY", "NAMES", "Asked", "StripeServer", "digest_of"]

NAMES: Final = ("api.stripe.com",)
"""Names in the server's certificate."""
EVERY: Final = ("rak_balance_read", "rak_customer_write")
"""Permissions of a restricted key for everything that this server has."""


class Asked(NamedTuple):
    """A request. `authorization` is the digest of that field, as `digest_of` makes it; None if it had none."""

    method: str
    host: str
    path: str
    form: Mapping[str, str]
    authorization: str | None


def digest_of(key: str) -> str:
    """Return the value of `Asked.authorization` for a request with this key."""
    return hashlib.sha256(f"Bearer {key}".encode()).hexdigest()


class StripeServer(Service):
    """A server with one account."""

    def __init__(self, tls: ssl.SSLContext | None, *, listener: socket.socket | None = None) -> None:
        super().__init__(tls, listener)
        self.asked: Final[list[Asked]] = []
        self.customers: Final[list[dict[str, Any]]] = []
        self._allowed: Final[dict[str, frozenset[str]]] = {}

    def allow(self, key: str, permissions: Iterable[str] = EVERY) -> None:
        """Accept this restricted key from now on, with these permissions."""
        with self._lock:
            self._allowed[digest_of(key)] = frozenset(permissions)

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        path = urllib.parse.urlsplit(seen.target).path
        authorization = next(iter(seen.values("authorization")), None)
        digest = authorization and hashlib.sha256(authorization.encode()).hexdigest()
        form = dict(urllib.parse.parse_qsl(seen.body.decode()))
        with self._lock:
            self.asked.append(Asked(seen.method, next(iter(seen.values("host")), ""), path, form, digest))
            if digest not in self._allowed:
                return _error("401 Unauthorized", "Invalid API Key provided: rk_test_*****ters")
            match seen.method, path:
                case "GET", "/v1/balance":
                    return self._permitted(digest, "rak_balance_read") or _json(_BALANCE)
                case "POST", "/v1/customers":
                    return self._permitted(digest, "rak_customer_write") or _json(self._created(form))
        return _error("404 Not Found", f"Unrecognized request URL ({seen.method}: {path}).")

    def _permitted(self, digest: str, permission: str) -> bytes | None:
        """Return the refusal of a key that lacks a permission, or None."""
        if permission in self._allowed[digest]:
            return None
        words = (
            f"The provided key 'rk_test_{'*' * 93}qs8Kgd' does not have the required permissions for this endpoint on "
            f"account 'acct_1PJBLEBBLEfV'. Having the '{permission}' permission would allow this request to continue."
        )
        return _error("403 Forbidden", words)

    def _created(self, form: Mapping[str, str]) -> dict[str, Any]:
        number = len(self.customers) + 1
        made = {"id": f"cus_{number:08}", "object": "customer", "livemode": False, "created": 1_700_000_000, **form}
        self.customers.append(made)
        return made


_BALANCE: Final = {
    "object": "balance",
    "available": [{"amount": 1200, "currency": "eur", "source_types": {"card": 1200}}],
    "pending": [],
    "livemode": False,
}


def _json(body: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(body).encode(), "Content-Type: application/json", status=status)


def _error(status: str, message: str) -> bytes:
    return _json({"error": {"type": "invalid_request_error", "message": message}}, status)

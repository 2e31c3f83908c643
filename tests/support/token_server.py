r"""A scripted OAuth 2 provider on loopback, over real TLS: it rotates as a strict one does, and errs and lies as the test says.

    with TokenServer(authority.server_context("localhost")) as server:
        server.says(oauth_error("invalid_grant"))          # to the next request, then it is good again
        …
        assert server.asked[-1].form["grant_type"] == "refresh_token"

When nothing is scripted it is a good provider: a code, a device code or the refresh token that is valid gives a new access
token, and a new refresh token in place of the one that was used, which is worth nothing from then on. `hold()` keeps its answers
back until `release()`, so that a test can do something while a request is under way. What a real provider does with all its
pages is in tests/browser; this one is for what none of them would do.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from aileron.model.manifest import OAuth2Provider
from aileron.model.names import HostPort
from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = [
    "CLIENT_SECRET",
    "SCOPES",
    "Asked",
    "TokenServer",
    "id_token",
    "json_answer",
    "oauth_error",
    "registration_answer",
    "tokens_answer",
]

SCOPES: Final = ("mail.read", "mail.send")
CLIENT_SECRET: Final = "canary-client-secret-of-the-publisher"


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request to an endpoint."""

    path: str
    form: dict[str, str]
    seen: Seen

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object that was posted."""
        whole: dict[str, Any] = json.loads(self.seen.body)
        return whole


Said = bytes | Callable[[Asked], bytes | Iterable[bytes]]


def json_answer(value: object, status: str = "200 OK") -> bytes:
    """Return a response of JSON, or of exactly these bytes."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return answer(body, "Content-Type: application/json", "Cache-Control: no-store", status=status)


def oauth_error(code: str, status: str = "400 Bad Request", **more: str) -> bytes:
    """Return an error response (RFC 6749, section 5.2)."""
    return json_answer({"error": code, **more}, status)


def tokens_answer(**changes: Any) -> dict[str, Any]:
    """Return the response of a good token endpoint; `changes` of None leave a key out."""
    whole = {
        "access_token": "canary-access-token-0",
        "token_type": "Bearer",
        "expires_in": 3600,
        "refresh_token": "canary-refresh-token-0",
        "scope": " ".join(SCOPES),
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def registration_answer(document: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a good provider's response to a client's metadata (RFC 7591, section 3.2.1); `changes` of None leave a key out."""
    whole = {
        **document,
        "client_id": "client-of-this-sign-in",
        "client_id_issued_at": 1_795_233_600,
        "registration_access_token": "canary-registration-token",
        "registration_client_uri": "https://id.example/register/client-of-this-sign-in",
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def id_token(claims: Mapping[str, Any]) -> str:
    """Return an ID token with these claims, without a valid signature."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(dict(claims))}.{base64.urlsafe_b64encode(b'signature').decode()}"


class TokenServer(Service):
    """A running provider. All state belongs to its lock; `asked` are the requests, in order."""

    def __init__(self, tls: ssl.SSLContext | None, *, name: str = "localhost", rotates: bool = True) -> None:
        super().__init__(tls)
        self._name: Final = name
        self._rotates: Final = rotates
        self._numbers: Final = itertools.count(1)
        self._script_said: list[Said] = []
        self._free: Final = threading.Event()
        self._free.set()
        self._came: Final = threading.Semaphore(0)
        self.asked: Final[list[Asked]] = []
        self.lifetime_s: float | None = 3600
        self.refresh: str | None = None
        self.access: Final[list[str]] = []
        self.revoked: Final[list[str]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block, and then hold nothing back any more."""
        with self._upstream:
            yield
            self.release()

    @property
    def address(self) -> HostPort:
        """Host and port of the provider."""
        return HostPort(self._name, self._upstream.port)

    @property
    def connections(self) -> int:
        """Number of connections so far."""
        return self._upstream.connections

    def url(self, path: str) -> str:
        """Return the URL of one endpoint."""
        return f"https://{self.address}{path}"

    def provider(self, **changes: Any) -> OAuth2Provider:
        """Return the provider as a manifest describes it."""
        whole = {
            "authorize_url": self.url("/authorize"),
            "token_url": self.url("/token"),
            "device_authorization_url": self.url("/device"),
            "revocation_url": self.url("/revoke"),
            "client_id": "client-of-the-publisher",
            "client_secret": CLIENT_SECRET,
            "scopes": SCOPES,
        }
        return OAuth2Provider(**{**whole, **changes})

    def says(self, *answers: Said) -> None:
        """Set the responses to the next requests, in this order; after them the provider is good again."""
        with self._lock:
            self._script_said.extend(answers)

    def hold(self) -> None:
        """Hold all responses back until `release`."""
        self._free.clear()

    def release(self) -> None:
        """Send the responses that are held back."""
        self._free.set()

    def wait_asked(self, count: int = 1) -> None:
        """Wait until `count` more requests have arrived; for a worker thread."""
        for _ in range(count):
            assert self._came.acquire(timeout=20), "nothing came"

    def to(self, path: str) -> list[Asked]:
        """Return the requests to one endpoint."""
        return [asked for asked in self.asked if asked.path == path]

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        asked = Asked(seen.target, dict(parse_qsl(seen.body.decode())), seen)
        with self._lock:
            self.asked.append(asked)
            said = self._script_said.pop(0) if self._script_said else self._good
        self._came.release()
        assert self._free.wait(timeout=60)
        with self._lock:
            return said if isinstance(said, bytes) else said(asked)

    def _good(self, asked: Asked) -> bytes:
        match asked.path, asked.form.get("grant_type"):
            case "/token", "refresh_token":
                return self._renew(asked.form)
            case "/token", _:
                return self._give()
            case "/revoke", _:
                self.revoked.append(asked.form["token"])
                return answer(b"")
            case "/register", _:
                return json_answer(registration_answer(asked.document), "201 Created")
            case "/device", _:
                return json_answer(
                    {
                        "device_code": "canary-device-code",
                        "user_code": "WDJB-MJHT",
                        "verification_uri": self.url("/device-page"),
                        "verification_uri_complete": self.url("/device-page?code=WDJB-MJHT"),
                        "expires_in": 900,
                        "interval": 5,
                    }
                )
        return answer(b"", status="404 Not Found")

    def _renew(self, form: dict[str, str]) -> bytes:
        if form.get("refresh_token") != self.refresh:
            return oauth_error("invalid_grant")
        return self._give()

    def _give(self) -> bytes:
        number = next(self._numbers)
        access = f"canary-access-token-{number}"
        self.access.append(access)
        is_new = self._rotates or self.refresh is None
        if is_new:
            self.refresh = f"canary-refresh-token-{number}"
        return json_answer(
            tokens_answer(
                access_token=access, refresh_token=self.refresh if is_new else None, expires_in=self.lifetime_s
            )
        )

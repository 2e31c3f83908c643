r"""A real OpenID provider on loopback over TLS, to sign in to: npm's `oidc-provider`, with pages of its own for the person.

It is the other side of `aileron/oauth`: authorization code with PKCE, refresh tokens that rotate, the device grant, revocation,
introspection, `iss` in its answers. A login page takes any account; a consent page lists the scopes, each to be unticked. It runs
as one process of node and keeps its state in memory; standard error goes to a file and is shown when it does not start.

    with Provider(directory) as provider:
        ...                                            # sign in at provider.issuer, with provider.public or provider.confidential
        provider.introspect(token)["active"]           # RFC 7662, as an API of this provider would ask
        provider.down(); provider.up()                 # the same port, the same state
        provider.revoke_account("mira@example.org")    # as on the page where people take away what they gave
        provider.fault(status=503)                     # of the next answer of the token endpoint

What it issued is in `tokens()`, for tests that look for it where it must not be.

Not here: installing it (tests/browser/install.py), a browser (tests/support/browser.py), what a person does on its pages
(tests/browser/person.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import select
import socket
import ssl
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.browser.install import installed
from tests.support.serving import Server, program
from tests.support.upstream import Authority

__all__ = ["CONFIDENTIAL", "GOOGLE_ROUTES", "PUBLIC", "Issued", "Provider", "Registered"]

_PROGRAM: Final = Path(__file__).with_suffix(".mjs")
_START_S: Final = 60.0
_COMMAND_S: Final = 20.0
_SAID_CHARACTERS: Final = 2000
GOOGLE_ROUTES: Final = {
    "authorization": "/o/oauth2/v2/auth",
    "token": "/token",
    "revocation": "/revoke",
    "device_authorization": "/device/code",
}
"""Google's paths of these endpoints; its other paths do not matter to a client."""


@dataclasses.dataclass(frozen=True)
class Registered:
    """An application that is registered there. `auth`: how it presents its secret; `introspects`: it may introspect tokens."""

    id: str
    secret: str | None = None
    auth: str = "client_secret_post"
    introspects: bool = False


PUBLIC: Final = Registered("a-public-application")
CONFIDENTIAL: Final = Registered("an-application-with-a-secret", "the-secret-of-an-application")
_CHECKER: Final = Registered("an-api", "the-secret-of-an-api", "client_secret_basic", introspects=True)


@dataclasses.dataclass(frozen=True)
class Issued:
    """A value that the provider issued: `access_token`, `refresh_token`, `id_token`, `registration_access_token` or `code`."""

    kind: str
    value: str
    account: str | None


class Provider(Server):
    """A provider that runs between enter and exit. `directory` takes its key, its certificate and its log.

    `names` are the certificate's and `issuer` is the provider's own name; by default both are `localhost`, the issuer's with
    the port. `access_ttl_s` may change later. `files` are an existing key and certificate. `program`: words that go before the
    provider's, to run it in other namespaces; `connect` then connects there. `registration`: anybody may register a client (RFC
    7591); `resources`: a token is for the service of this machine that its request named (RFC 8707), and for none without;
    `documents`: a client's ID may be the address of its metadata, by the draft of that name.
    """

    def __init__(
        self,
        directory: Path,
        authority: Authority | None = None,
        *,
        files: tuple[Path, Path] | None = None,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        address: str = "127.0.0.1",
        port: int = 0,
        issuer: str | None = None,
        routes: Mapping[str, str] | None = None,
        scopes: Sequence[str] = ("email", "profile", "mail.read", "mail.send"),
        clients: Sequence[Registered] = (PUBLIC, CONFIDENTIAL),
        access_ttl_s: float = 3600,
        device_ttl_s: int = 600,
        rotates: bool = True,
        device: bool = True,
        revocation: bool = True,
        registration: bool = False,
        resources: bool = False,
        documents: str | None = None,
        program: Sequence[str] = (),
        connect: Callable[[str, int], socket.socket] = lambda address, port: socket.create_connection((address, port)),
    ) -> None:
        tools = installed()
        self.authority = authority or Authority(directory)
        key, certificate = files or self.authority.server_files(directory, *names)
        self.certificate = certificate
        self._words = [*program, str(tools.node), str(_PROGRAM)]
        self._log = directory / "provider.log"
        self._name = names[0]
        self._address = address
        self._connect = connect
        self._told = {
            "modules": str(tools.modules),
            "key": str(key),
            "certificate": str(certificate),
            "address": address,
            "port": port,
            "issuer": issuer,
            "routes": dict(routes or {}),
            "scopes": list(scopes),
            "clients": [dataclasses.asdict(client) for client in (*clients, _CHECKER)],
            "access_ttl_s": access_ttl_s,
            "device_ttl_s": device_ttl_s,
            "rotates": rotates,
            "device": device,
            "revocation": revocation,
            "registration": registration,
            "resources": resources,
            "documents": documents,
        }
        self._routes = dict(routes or {})
        self.port = 0
        self.issuer = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the provider until the end of the block."""
        environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(self.authority.ca_file)}  # for what it fetches
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        with (
            self._log.open("wb") as log,
            program(self._words, says=self._log.read_text, stderr=log, env=environment, **pipes) as self._process,
        ):
            heard = self._say(self._told, _START_S)
            self.port, self.issuer = heard["port"], heard["issuer"]
            yield

    @property
    def host(self) -> str:
        """NAME:PORT of the provider, as a manifest and the settings name it."""
        return urllib.parse.urlsplit(self.issuer).netloc

    def url(self, endpoint: str) -> str:
        """Return the URL of `authorization`, `token`, `revocation`, `device_authorization`, `introspection` or `registration`."""
        paths = {
            "authorization": "/auth",
            "token": "/token",
            "revocation": "/token/revocation",
            "device_authorization": "/device/auth",
            "introspection": "/token/introspection",
            "registration": "/reg",
            **self._routes,
        }
        return self.issuer + paths[endpoint]

    def introspect(self, token: str) -> dict[str, Any]:
        """Introspect a token (RFC 7662). Return `{"active": false}`, or `scope`, `sub`, `client_id` and `exp` as well."""
        pair = f"{_CHECKER.id}:{_CHECKER.secret}".encode()
        return self.post(
            "introspection", {"token": token}, {"authorization": "Basic " + base64.b64encode(pair).decode()}
        )

    def post(self, endpoint: str, form: Mapping[str, str], fields: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Send a form to an endpoint, as a client other than Aileron would. Return the response."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        connection = _Connection(self._name, self.port, context, lambda: self._connect(self._address, self.port))
        with contextlib.closing(connection):
            connection.request(
                "POST",
                urllib.parse.urlsplit(self.url(endpoint)).path,
                urllib.parse.urlencode(form),
                {"content-type": "application/x-www-form-urlencoded", **(fields or {})},
            )
            text = connection.getresponse().read()
        answered: dict[str, Any] = json.loads(text) if text else {}
        return answered

    def issued(self) -> list[Issued]:
        """Return everything that the provider issued so far, oldest first."""
        return [Issued(**fields) for fields in self._command("issued")]

    def tokens(self, *kinds: str) -> list[str]:
        """Return the values of these kinds; of all kinds if none is named."""
        return [token.value for token in self.issued() if not kinds or token.kind in kinds]

    def asked(self, endpoint: str) -> list[int]:
        """Return the status of each response of one endpoint so far."""
        path = urllib.parse.urlsplit(self.url(endpoint)).path
        return [request["status"] for request in self._command("seen") if request["path"] == path]

    def revoke_account(self, account: str) -> int:
        """Revoke all grants of this person. Return how many there were."""
        return int(self._command("revoke_account", account=account))

    def revoke_access(self, token: str) -> bool:
        """Revoke one access token, and leave the grant."""
        return bool(self._command("revoke_access", value=token))

    def access_ttl(self, seconds: float) -> None:
        """Set the lifetime of access tokens that are issued from now on."""
        self._command("access_ttl", seconds=seconds)

    def down(self) -> None:
        """Stop listening and close every connection."""
        self._command("down")

    def up(self) -> None:
        """Listen again on the same port, with the same state."""
        self._command("up")

    def fault(
        self,
        *,
        endpoint: str = "token",
        times: int = 1,
        status: int | None = None,
        body: str = "",
        headers: Mapping[str, str] | None = None,
        drop: bool = False,
        hold: bool = False,
        stall: bool = False,
    ) -> None:
        """Disturb the next `times` responses: `status` replaces one; `drop` and `hold` act after the work, `stall` before."""
        path = urllib.parse.urlsplit(self.url(endpoint)).path
        more = {
            "status": status,
            "body": body,
            "headers": dict(headers or {}),
            "drop": drop,
            "hold": hold,
            "stall": stall,
        }
        self._command("fault", path=path, times=times, **more)

    def held(self) -> int:
        """Return how many responses are held."""
        return int(self._command("held"))

    def release(self) -> None:
        """Send the held responses."""
        self._command("release")

    def _command(self, command: str, **more: Any) -> Any:
        heard = self._say({"command": command, **more}, _COMMAND_S)
        assert "error" not in heard, heard["error"]
        return heard["answer"]

    def _say(self, told: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline() if select.select([self._process.stdout], [], [], deadline_s)[0] else ""
        assert line, f"the provider does not answer: {self._log.read_text(errors='replace')[-_SAID_CHARACTERS:]}"
        heard: dict[str, Any] = json.loads(line)
        return heard


class _Connection(http.client.HTTPSConnection):
    """A connection to an address, with the name that is in its certificate."""

    def __init__(self, name: str, port: int, context: ssl.SSLContext, connect: Callable[[], socket.socket]) -> None:
        super().__init__(name, port, context=context, timeout=_COMMAND_S)
        self._tls = context
        self._made_by = connect

    def connect(self) -> None:
        """Connect to the provider."""
        made = self._made_by()
        made.settimeout(_COMMAND_S)
        self.sock = self._tls.wrap_socket(made, server_hostname=self.host)

"""A home with a connector whose service asks a real provider about every token, and what its user does with it.

`Mail` is the service: an API over TLS that knows only what introspection says of the token it is sent. `Desk` is a home with
the connector installed, bound to nothing yet; `sign_in` acts as a person who connects an account in a browser.

At the end of `desk` no file of the home may have a token or code that the provider issued, in any form.

Not here: the provider (tests/support/provider.py), its pages (person.py).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.client import Answer
from tests.browser.person import MIRA, agrees, signs_in
from tests.support.browser import Browser
from tests.support.canary import scan
from tests.support.home import DaemonHome, daemon_home
from tests.support.provider import PUBLIC, Provider, Registered
from tests.support.upstream import Seen, Upstream, answer

__all__ = ["CONNECTOR", "MINE", "SCOPES", "WORK", "Desk", "Mail", "desk", "manifest"]

CONNECTOR: Final = "github://aileron-tests/mail"
MINE: Final = "oauth2/mail/mine"
WORK: Final = "oauth2/mail/work"
SCOPES: Final = ("email", "mail.read", "mail.send", "openid")
SIGN_IN_S: Final = 30.0
_SOURCE: Final = Path(__file__).parent / "connector" / "connector.py"


class Mail:
    """The service, between enter and exit. `sent` has (account, text); `refused` counts the responses 401.

    The service responds while `may_answer` is set, as it is at first, and accepts only tokens for `resource`, if that is set
    (RFC 8707).
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.sent: list[tuple[str, str]] = []
        self.refused = 0
        self.resource: str | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server = Upstream(self._answer, provider.authority.server_context("localhost"))

    def __enter__(self) -> Mail:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    @property
    def host(self) -> str:
        """Address of the service as NAME:PORT."""
        return f"localhost:{self._server.port}"

    @property
    def requests(self) -> list[Seen]:
        """Requests that came, in order."""
        return self._server.requests

    def _answer(self, seen: Seen) -> bytes:
        assert self.may_answer.wait(SIGN_IN_S)
        (field,) = seen.values("authorization")
        found = self._provider.introspect(field.removeprefix("Bearer "))
        if not found["active"] or (self.resource is not None and found.get("aud") != self.resource):
            self.refused += 1
            return answer(b"{}", 'WWW-Authenticate: Bearer error="invalid_token"', status="401 Unauthorized")
        if seen.target == "/send":
            if "mail.send" not in found["scope"].split():
                return answer(b"{}", 'WWW-Authenticate: Bearer error="insufficient_scope"', status="403 Forbidden")
            self.sent.append((found["sub"], seen.body.decode()))
        if seen.target == "/reflect":
            return answer(seen.head + seen.body, f"X-Sent: {field}")
        said = {"account": found["sub"], "scope": found["scope"], "token": field}
        return answer(json.dumps(said).encode(), "Content-Type: application/json")


class Desk:
    """A home, its provider and its service."""

    def __init__(self, home: DaemonHome, provider: Provider, mail: Mail) -> None:
        self.home = home
        self.provider = provider
        self.mail = mail

    def begin(self, name: str = MINE, *, flow: str = "browser", replace: bool = False) -> dict[str, Any]:
        """Begin a sign-in. Return it, with the address to open."""
        body = {"connector": CONNECTOR, "name": name, "flow": flow, "replace": replace}
        begun: dict[str, Any] = self.home.must("POST", "/v1/sign-ins", body)
        return begun

    def ended(self, begun: dict[str, Any]) -> dict[str, Any]:
        """Wait until the sign-in ends, and return its end."""
        over: dict[str, Any] = self.home.must("GET", f"/v1/sign-ins/{begun['id']}?wait={SIGN_IN_S:g}", wait_s=SIGN_IN_S)
        return over

    def sign_in(
        self, browser: Browser, name: str = MINE, account: str = MIRA, *, replace: bool = False
    ) -> dict[str, Any]:
        """Connect an account, from the request to the end."""
        begun = self.begin(name, replace=replace)
        signs_in(browser, begun["authorize_url"], account)
        agrees(browser)
        browser.wait_url("/callback")
        over = self.ended(begun)
        assert over["status"] == "done", over
        return over

    def whoami(self, **options: Any) -> Answer:
        """Run the action that asks the service for the token's account."""
        return self.home.run("whoami", **options)

    def binding(self, name: str = MINE) -> dict[str, Any]:
        """Return what the daemon tells about a binding."""
        told: dict[str, Any] = self.home.must("GET", f"/v1/bindings/{name}")
        return told


def manifest(
    provider: Provider,
    host: str,
    *,
    client: Registered | None = PUBLIC,
    resource: str | None = None,
    issuer: str | None = None,
    scopes: tuple[str, ...] = SCOPES,
    revocation: bool = True,
    version: str = "1.0.0",
) -> str:
    """Return the connector's manifest. Without a `client` the connector registers one."""
    lines = [
        "[connector]",
        f'name = "{CONNECTOR}"',
        f'version = "{version}"',
        "[capabilities.network]",
        f'hosts = ["{host}"]',
        "[capabilities.credential]",
        'kind = "oauth2"',
        'scope = "Read and send mail"',
        "[capabilities.credential.oauth2]",
        f'issuer = "{issuer or provider.issuer}"',
        f'authorize_url = "{provider.url("authorization")}"',
        f'token_url = "{provider.url("token")}"',
        f'device_authorization_url = "{provider.url("device_authorization")}"',
        f"scopes = {json.dumps(scopes)}",
    ]
    if revocation:
        lines.append(f'revocation_url = "{provider.url("revocation")}"')
    if resource is not None:
        lines.append(f'resource = "{resource}"')
    if client is None:
        lines.append(f'registration_url = "{provider.url("registration")}"')
    else:
        lines.append(f'client_id = "{client.id}"')
    if client is not None and client.secret is not None:
        lines.append(f'client_secret = "{client.secret}"')
    runtime = ["[capabilities.runtime]", 'imports = ["http"]', "[limits]", "timeout_s = 20"]
    return "\n".join([*lines, *runtime, ""])


def write_source(folder: Path, text: str) -> Path:
    """Write the connector's source with this manifest, to be built, and return its folder."""
    source = folder / "mail"
    source.mkdir(exist_ok=True)
    (source / "manifest.toml").write_text(text, encoding="utf-8")
    (source / "connector.py").write_bytes(_SOURCE.read_bytes())
    return source


@contextlib.contextmanager
def desk(provider: Provider, folder: Path, *, for_service: bool = False, **options: Any) -> Iterator[Desk]:
    """Provide a home with the connector, its actions and a vault, and no binding. `for_service`: its tokens are for the
    service alone.

    `look-again` is `whoami` as a step that may be repeated, `ask-first` is `send` as a gated one.
    """
    with daemon_home() as home, Mail(provider) as mail:
        hosts = [mail.host, provider.host]
        home.configure(f'[egress]\nprivate = {json.dumps(hosts)}\nca_file = "{provider.authority.ca_file}"\n')
        home.unlock()
        if for_service:
            options["resource"] = mail.resource = f"https://{mail.host}/mcp"
        home.install(write_source(folder, manifest(provider, mail.host, **options)))
        for op, inputs in (("whoami", ()), ("reflect", ()), ("send", ("text:string",))):
            home.add_probe_action(op, *inputs, connector=CONNECTOR)  # tried once: what fails is seen
        home.add_probe_action("whoami", name="look-again", idempotent=True, connector=CONNECTOR)
        home.add_probe_action("send", "text:string", name="ask-first", gated=True, connector=CONNECTOR)
        made = Desk(home, provider, mail)
        yield made
        with_values = [value.encode() for value in provider.tokens()]
        leaks = scan([home.path.parent], *with_values)
        assert leaks == {}, f"a token was left in a file: {leaks}"

"""Tokens that need no sign-in, from a binding to a jailed connector's request: reuse, expiry, refusal, lock, change.

A real daemon and real jails, a token endpoint that issues tokens for the client's secret, and a service that repeats in its
responses whatever it was sent.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote_plus

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from aileron.client import Answer
from tests.oauth.test_oauth_assertion import RSA, pem
from tests.support.canary import find, scan
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home
from tests.support.memories import descendants_of, memory_of
from tests.support.token_server import TokenServer, oauth_error
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = pytest.mark.jail

CONNECTOR: Final = "github://aileron-tests/reflector"
NAME: Final = "oauth2_client/billing/robot"
CLIENT_ID: Final = "a robot"
SECRET: Final = b"canary-robot/secret+of:the client"
BASIC: Final = base64.b64encode(f"{quote_plus(CLIENT_ID)}:{quote_plus(SECRET.decode())}".encode())
SOURCE: Final = Path(__file__).parents[1] / "support" / "connectors" / "reflector"


class World:
    """A token endpoint, a service, and a home with a connector for them."""

    def __init__(self, home: DaemonHome, server: TokenServer, authority: Authority, work: Path) -> None:
        self.home = home
        self.server = server
        self.upstream = Upstream(self._answer, authority.server_context("localhost"))
        self.refused: set[str] = set()
        self.repeats: bytes | None = None
        self.memories: list[bytes] | None = None
        self._work = work

    def _answer(self, seen: Seen) -> bytes:
        token = " ".join(seen.values("authorization")).removeprefix("Bearer ")
        if self.memories is not None:
            self.memories += [memory_of(pid) for pid in descendants_of(self.home.daemon_pid or 0) if is_sandbox(pid)]
        if token in self.refused:
            return answer(b"who?", "WWW-Authenticate: Bearer error=invalid_token", status="401 Unauthorized")
        return answer(b"hello " + (self.repeats or token.encode()), f"X-Token: {token}")

    @property
    def tokens(self) -> list[str]:
        """Tokens that reached the service, in order."""
        return [" ".join(seen.values("authorization")).removeprefix("Bearer ") for seen in self.upstream.requests]

    def install(self, version: str = "1.0.0", **grant: str | list[str]) -> None:
        """Install the reflector, with this grant."""
        source = self._work / version
        shutil.copytree(SOURCE, source)
        program = source / "connector.py"
        program.write_text(program.read_text().replace('credential="basic"', 'credential="oauth2_client"'))
        asked = {"grant": "client_credentials", "client_auth": "client_secret_basic", **grant}
        keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in asked.items())
        (source / "manifest.toml").write_text(f"""
[connector]
name = "{CONNECTOR}"
version = "{version}"
[capabilities.network]
hosts = ["localhost:{self.upstream.port}", "{self.server.address}"]
[capabilities.credential]
kind = "oauth2_client"
scope = "Read invoices"
[capabilities.credential.oauth2_client]
token_url = "{self.server.url("/token")}"
{keys}
[capabilities.runtime]
imports = ["http", "log", "audit", "progress"]
""")
        self.home.must("POST", "/v1/connectors", {"path": str(source)})

    def store(self, value: bytes = SECRET) -> None:
        """Store the client's secret as `aileron secret set robot` does."""
        self.home.must("PUT", "/v1/secrets/robot", {"value_base64": base64.b64encode(value).decode()})

    def bind(self) -> Answer:
        """Bind the credential as `aileron binding setup` does."""
        body = {"connector": CONNECTOR, "name": NAME, "username": CLIENT_ID, "secret": "robot"}
        return self.home.ask("POST", "/v1/bindings", body)

    def ask(self, credential: str = "oauth2_client", url: str = "") -> Answer:
        """Run the action, which makes one request."""
        there = url or f"https://localhost:{self.upstream.port}/"
        return self.home.run("ask", {"url": there, "credential": credential})

    def seen(self, **options: str) -> str:
        """Run the action and return what its connector saw."""
        answered = self.ask(**options)
        assert answered.status == 200, answered.body
        return str(answered.body["result"]["seen"])

    def record(self) -> list[str]:
        """Return the types of the recorded events about tokens, oldest first."""
        events = self.home.must("GET", "/v1/audit?limit=1000")["events"]
        return [event["type"] for event in reversed(events) if event["type"].startswith("binding.renew")]


def is_sandbox(pid: int) -> bool:
    """Return whether this process is a jail or the jails' template."""
    with contextlib.suppress(OSError):
        return b"aileron_sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.fixture
def world(authority: Authority, tmp_path: Path) -> Iterator[World]:
    """Start the endpoint, the service and the home with a stored secret; nothing is bound yet."""
    with (
        TokenServer(authority.server_context("localhost")) as server,
        daemon_home() as home,
    ):
        made = World(home, server, authority, tmp_path)
        with made.upstream:
            private = f'["localhost:{made.upstream.port}", "{server.address}"]'
            home.configure(f'[egress]\nprivate = {private}\nca_file = "{authority.ca_file}"\n')
            home.unlock()
            made.store()
            yield made
            assert scan([home.path], SECRET, BASIC, *(token.encode() for token in server.access)) == {}


@pytest.fixture
def bound(world: World) -> World:
    """Bind the credential and add an action."""
    world.install()
    assert not world.bind().is_error
    world.home.add_probe_action("ask", "url:string?", "credential:string?", connector=CONNECTOR)
    return world


def test_two_runs_share_one_minted_token_that_no_jail_sees(bound: World) -> None:
    """The endpoint is asked once, with the client's secret as in RFC 6749; the record has an event before and one after."""
    first, second = bound.seen(), bound.seen()

    assert "hello ********" in first
    assert not find((first + second).encode(), bound.server.access[0].encode())
    assert bound.tokens == [bound.server.access[0]] * 2
    [asked] = bound.server.asked
    assert asked.seen.values("authorization") == [f"Basic {BASIC.decode()}"]
    assert asked.form == {"grant_type": "client_credentials"}
    assert bound.record() == ["binding.renewing", "binding.renewed"]


def test_an_expired_or_refused_minted_token_is_replaced(bound: World) -> None:
    """The next run replaces an expired token; for a refused token the same request is sent again with a new one."""
    bound.server.lifetime_s = 1
    bound.ask()
    bound.refused = set(bound.server.access)
    bound.server.lifetime_s = 3600
    while len(bound.server.access) == 1:  # the first token is valid for another second
        bound.ask()

    assert "hello" in bound.seen()
    assert bound.tokens[0] == "canary-access-token-1"
    assert bound.tokens[-1] == bound.server.access[-1] == "canary-access-token-2"


@pytest.mark.abuse_case("O24")
def test_no_client_secret_or_minted_token_reaches_a_jail(bound: World) -> None:
    """The service repeats the secrets in several forms; a jail's memory is searched while its connector waits, after
    it has read such a response.
    """
    bound.home.add_probe_action("hammer", "times:integer", connector=CONNECTOR)
    bound.home.add_probe_action("say", "path:string?", connector=CONNECTOR)
    bound.ask()
    token = bound.server.access[0].encode()
    secrets, said = (token, SECRET, BASIC), list[object]()
    for repeated in (*secrets, quote_plus(SECRET.decode()).encode(), base64.b64encode(token)):
        bound.repeats = repeated
        said += [bound.home.run("say").body, bound.ask().body]
    bound.repeats, bound.memories = b" ".join((*secrets, b"needle-in-an-answer")), []
    assert bound.home.run("hammer", {"times": 2}).status == 200

    assert find(json.dumps(said).encode(), *secrets) == []
    assert any(b"needle-in-an-answer" in memory for memory in bound.memories), (
        "the connector's memory was not looked at"
    )
    assert not any(secret in memory for memory in bound.memories for secret in secrets)
    assert len(bound.server.asked) == 1


def test_a_minted_token_is_discarded_when_the_vault_locks_but_is_still_masked(bound: World) -> None:
    """A locked vault stops every request; once it is open, a new token is fetched, and the old one is still masked."""
    bound.ask()
    bound.home.must("POST", "/v1/vault/lock")
    locked = bound.ask().body["error"]["class"]
    bound.home.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
    bound.repeats = bound.server.access[0].encode()
    seen = bound.seen()

    assert locked == "vault_locked"
    assert bound.tokens == bound.server.access == ["canary-access-token-1", "canary-access-token-2"]
    assert "hello ********" in seen
    assert not find(seen.encode(), *(token.encode() for token in bound.server.access))


@pytest.mark.parametrize("change", ["secret", "rebound", "revoked"])
def test_a_minted_token_is_discarded_when_its_secret_or_binding_changes(bound: World, change: str) -> None:
    """The old token is not used after a new secret, client ID or binding, and is masked if the service repeats it."""
    bound.ask()
    bound.repeats = bound.server.access[0].encode()
    match change:
        case "secret":
            bound.store(b"canary-another-secret")
        case "rebound":
            bound.home.must("PATCH", f"/v1/bindings/{NAME}", {"username": "another robot"})
        case _:
            bound.home.must("DELETE", f"/v1/bindings/{NAME}")
            assert not bound.bind().is_error
    seen = bound.seen()

    assert "hello ********" in seen
    assert not find(seen.encode(), bound.server.access[0].encode())
    assert bound.tokens == ["canary-access-token-1", "canary-access-token-2"]


@pytest.mark.abuse_case("O24")
def test_only_the_supervisor_can_use_the_token_endpoint(bound: World) -> None:
    """A connector cannot request it even if its manifest names the host; other paths of the host are allowed."""
    refused = bound.ask(url=bound.server.url("/token"), credential="").body["error"]
    allowed = bound.seen(url=bound.server.url("/else"), credential="")

    assert (refused["class"], refused["details"]["reason"]) == ("capability_denied", "provider_endpoint")
    assert "404" in allowed
    assert [asked.path for asked in bound.server.asked] == ["/else"]


def test_the_error_of_a_refused_token_request_says_what_to_do(bound: World) -> None:
    """The endpoint is not asked again until a pause has passed; a newly stored secret is tried at once."""
    bound.server.says(oauth_error("invalid_client", "401 Unauthorized"))
    errors = [bound.ask().body["error"] for _time in range(2)]
    asked = len(bound.server.asked)
    bound.store(b"canary-the-right-secret")

    assert [error["class"] for error in errors] == ["binding_failed"] * 2
    assert "`aileron secret set robot`" in errors[0]["message"]
    assert asked == 1
    assert bound.record() == ["binding.renewing", "binding.renewal_failed"]
    assert "hello" in bound.seen()


def test_a_private_key_of_another_type_than_the_manifest_declares_cannot_be_bound(world: World) -> None:
    """The refusal comes before any token is requested; the right key is accepted."""
    world.install(client_auth="private_key_jwt", algorithm="ES256")
    world.store(pem(RSA))
    refused = world.bind()
    world.store(pem(ec.generate_private_key(ec.SECP256R1())))

    assert refused.body["error"]["class"] == "binding_failed"
    assert "is a key of the wrong type: ES256, which the connector declares" in refused.body["error"]["message"]
    assert not world.bind().is_error
    assert world.server.asked == []


def test_a_connector_version_with_fewer_scopes_needs_no_rebind(world: World) -> None:
    """The token has the approved scopes; a version that requests a further scope suspends the binding."""
    world.install("1.1.0", scopes=["mail.read", "mail.send"])
    assert not world.bind().is_error
    world.install("1.0.0", scopes=["mail.read"])
    world.home.add_probe_action("ask", "url:string?", "credential:string?", connector=CONNECTOR)
    served = world.seen()
    world.install("1.2.0", scopes=["mail.delete"])
    shown = world.home.must("GET", f"/v1/bindings/{NAME}")

    assert "hello" in served
    assert world.server.asked[0].form["scope"] == "mail.read mail.send"
    assert (shown["state"], shown["suspended"]) == ("suspended", ["scope mail.delete"])


@pytest.mark.abuse_case("O24")
def test_a_connector_version_that_gets_tokens_in_another_way_suspends_the_binding(bound: World) -> None:
    """The example is another client authentication; the person must rebind before the new version is served."""
    bound.ask()
    bound.install("1.1.0", client_auth="client_secret_post")
    shown = bound.home.must("GET", f"/v1/bindings/{NAME}")

    assert shown["state"] == "suspended"
    assert any("client_secret_post" in words for words in shown["suspended"])


def test_the_list_of_connectors_says_where_tokens_come_from(world: World) -> None:
    """A person who is about to bind sees the host of the token endpoint, the scopes, and how a token is sent."""
    world.install()
    [entry] = world.home.must("GET", "/v1/connectors")["connectors"]

    assert (entry["credential"]["kind"], entry["credential"]["scopes"]) == ("oauth2_client", [])
    assert entry["credential"]["provider"] == "localhost"
    assert "with a token that Aileron gets by client credentials" in entry["credential"]["sent_as"]

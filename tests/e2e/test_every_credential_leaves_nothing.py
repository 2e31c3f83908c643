"""Every kind of credential, and every place of a key, from a jail: neither the secret nor what was sent in its place is
anywhere that the connector, or a later process, could look.

    connector ── jail ── frames ── daemon ── TLS ── a server that checks the credential and says it all back
      └── its memory, its frames, its output, the ledger, the logs: searched

The sent form is taken from what the server got: a signature, a proof, a token, and each encoding of a key. The server checks
them by code that is not ours. The tests run under a daemon of their own user and, as root, under an ordinary user's as well.
Memory is searched as root only. Not here: sign-ins of people (tests/daemon/test_tokens_in_use.py), logins (tests/logins).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from aileron.model.credential_kind import CREDENTIAL_KINDS
from aileron.model.manifest import CredentialKind
from aileron.model.pem import pem_blocks
from tests.support.aws_service import SignatureChecker
from tests.support.canary import scan
from tests.support.client_certificates import ClientAuthority
from tests.support.home import DaemonHome
from tests.support.jailed_office import USERS, Waiting, forms_of, keep_frames, office
from tests.support.memories import memory_of
from tests.support.token_server import TokenServer
from tests.support.upstream import Authority, Seen, Upstream, answer
from tests.support.websocket_server import WebSocketServer

pytestmark = pytest.mark.jail
SOURCE: Final = Path(__file__).resolve().parents[1] / "support" / "connectors" / "every_credential"
USER: Final = "mira"
MANIFEST: Final = """\
[connector]
name = "github://aileron-tests/{name}"
version = "1.0.0"

[capabilities.network]
hosts = ["localhost:{port}"]

[capabilities.runtime]
imports = ["http", "websocket"]

[capabilities.credential]
kind = "{kind}"
scope = "Whatever a test does"
"""


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to send a credential: what the manifest says, what the connector requests, and what of the request a server checks.

    `sent` returns, for a request and the secret, what the request has in the secret's place; nothing if that is wrong.
    """

    kind: CredentialKind
    table: str = ""
    ask: dict[str, str] = dataclasses.field(default_factory=dict)
    sent: Callable[[Seen, str], list[str]] = lambda _seen, _secret: []
    has_user: bool = False


def _bearer(seen: Seen, secret: str) -> list[str]:
    return [secret] if seen.values("authorization") == [f"Bearer {secret}"] else []


def _query(seen: Seen, secret: str) -> list[str]:
    query = urlsplit(seen.target).query
    return [query.partition("key=")[2]] if parse_qs(query).get("key") == [secret] else []


def _path(seen: Seen, secret: str) -> list[str]:
    return [secret] if seen.target == f"/bot{secret}/getMe" else []


def _json(seen: Seen, secret: str) -> list[str]:
    return [secret] if json.loads(seen.body) == {"a": 1, "auth": {"token": secret}} else []


def _form(seen: Seen, secret: str) -> list[str]:
    is_good = parse_qs(seen.body.decode()) == {"a": ["1"], "token": [secret]}
    return [seen.body.decode().partition("token=")[2].partition("&")[0]] if is_good else []


def _basic(seen: Seen, secret: str) -> list[str]:
    pair = base64.b64encode(f"{USER}:{secret}".encode()).decode()
    return [pair] if seen.values("authorization") == [f"Basic {pair}"] else []


def _digest(seen: Seen, secret: str) -> list[str]:
    said = dict(re.findall(r'(\w+)="?([^",]*)"?', next(iter(seen.values("authorization")), "")))

    def digest(*parts: str) -> str:
        return hashlib.sha256(":".join(parts).encode()).hexdigest()

    key, effect = digest(USER, "a door", secret), digest(seen.method, seen.target)
    proof = digest(key, "a-nonce", said.get("nc", ""), said.get("cnonce", ""), "auth", effect)
    return [proof, key] if said.get("response") == proof else []


def _hmac(seen: Seen, secret: str) -> list[str]:
    [time], [sent] = seen.values("x-time"), seen.values("x-signature")
    made = hmac.new(secret.encode(), f"{time}.".encode() + seen.body, "sha256").hexdigest()
    return [made] if sent == f"v0={made}" else []


def _aws(seen: Seen, secret: str) -> list[str]:
    is_good = SignatureChecker({USER: secret.encode()}).what_is_wrong_with(seen) is None
    return [seen.values("authorization")[0].partition("Signature=")[2]] if is_good else []


GET: Final = {"method": "GET", "path": "/a?b=1"}
JSON: Final = {"method": "POST", "path": "/a", "type": "application/json"}
FORM: Final = {"method": "POST", "path": "/a", "type": "application/x-www-form-urlencoded"}
WAYS: Final = {
    "header": Way("api_key", "", GET, _bearer),
    "query": Way("api_key", 'query = "key"', GET, _query),
    "path": Way("api_key", 'path = "/bot{key}"', {"method": "GET", "path": "/bot{key}/getMe"}, _path),
    "body-json": Way("api_key", 'body = "json:/auth/token"', JSON | {"body": '{"a": 1, "auth": {}}'}, _json),
    "body-form": Way("api_key", 'body = "form:token"', FORM | {"body": "a=1"}, _form),
    "message": Way("api_key", 'first_message = \'{"token": "{key}"}\''),
    "basic": Way("basic", "", GET, _basic, has_user=True),
    "digest": Way("digest", "", GET, _digest, has_user=True),
    "hmac": Way(
        "hmac",
        '[capabilities.credential.hmac]\nmessage = "{time}.{body}"\n'
        'headers = {X-Time = "{time}", X-Signature = "v0={signature}"}',
        JSON | {"body": "{}"},
        _hmac,
    ),
    "aws": Way(
        "aws_sigv4",
        '[capabilities.credential.aws]\nregion = "eu-central-1"\nservice = "sns"',
        FORM | {"body": "Action=ListTopics"},
        _aws,
        has_user=True,
    ),
    "certificate": Way("mtls", "", GET),
    "token": Way(
        "oauth2_client",
        '[capabilities.credential.oauth2_client]\ngrant = "client_credentials"\n'
        'token_url = "{token_url}"\nclient_auth = "client_secret_basic"',
        GET,
        has_user=True,
    ),
}
ELSEWHERE: Final[dict[CredentialKind, str]] = {
    "oauth2": "a person signs in: tests/daemon/test_tokens_in_use.py",
    "login": "no request can carry it: tests/logins/test_every_login_leaves_nothing.py",
}
"""Kinds that are left out here, with the reason and the file that tests them."""


class Services:
    """All services that a credential is sent to, and what came in its place."""

    def __init__(self, authority: Authority, clients: ClientAuthority) -> None:
        tls = authority.server_context("localhost")
        certified = authority.server_context("localhost")
        certified.verify_mode = ssl.CERT_REQUIRED
        certified.load_verify_locations(clients.ca_file)
        self.secrets = {name: f"canary+of_{name}=0123456789~x" for name in WAYS}
        self.secrets["certificate"] = clients.issue().decode()
        self.sent: dict[str, set[str]] = {name: set() for name in WAYS}
        self.tokens = TokenServer(authority.server_context("localhost"))
        self.sockets = WebSocketServer(tls)
        self.sockets.accepted_token = self.secrets["message"]
        self._at = {
            name: Upstream(partial(self._answer, name), certified if name == "certificate" else tls) for name in WAYS
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run all servers for the length of the block."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.tokens)
            undo.enter_context(self.sockets)
            for server in self._at.values():
                undo.enter_context(server)
            yield

    def port(self, name: str) -> int:
        """Return the port that this credential is sent to."""
        return self.sockets.port if name == "message" else self._at[name].port

    def places(self) -> list[str]:
        """Return all services as `HOST:PORT`."""
        return [*(f"localhost:{self.port(name)}" for name in WAYS), str(self.tokens.address)]

    def forms(self, name: str) -> list[bytes]:
        """Return the forms that must be nowhere: of the secret, whole and in parts, and of what was sent in its place."""
        if name == "certificate":
            (key,) = [text for label, text in pem_blocks(self.secrets[name].encode()) if label.endswith(b"PRIVATE KEY")]
            return forms_of(*key.splitlines()[1:3])
        return forms_of(*(word.encode() for word in {self.secrets[name], *self.sent[name]}))

    def words(self) -> list[bytes]:
        """Return all secrets, and all that was sent in their place."""
        lines = [line for line in self.secrets["certificate"].splitlines() if not line.startswith("-----")]
        plain = [secret for name, secret in self.secrets.items() if name != "certificate"]
        key = lines[-3:-1]  # of the private key, which comes last
        return [word.encode() for word in (*plain, *key, *(sent for several in self.sent.values() for sent in several))]

    def _answer(self, name: str, seen: Seen) -> bytes:
        """Respond with the whole request and the secret; 401 with a challenge if it has no credential."""
        secret = self.tokens.access[-1] if name == "token" else self.secrets[name]
        check = _bearer if name == "token" else WAYS[name].sent
        found = check(seen, secret) if name != "certificate" else ["it was connected to"]
        if not found:
            challenge = 'WWW-Authenticate: Digest realm="a door", nonce="a-nonce", qop="auth", algorithm=SHA-256'
            return answer(b"who is it?", challenge, status="401 Unauthorized")
        self.sent[name] |= set() if name == "certificate" else set(found)
        shown = "" if name == "certificate" else f" {secret} {found[0]}"
        return answer(seen.head + b"\n" + seen.body + shown.encode())


@pytest.fixture(scope="module")
def services(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Start the services for all homes."""
    made = Services(authority, ClientAuthority(tmp_path_factory.mktemp("clients")))
    with made.running():
        yield made


@pytest.fixture(scope="module", params=USERS)
def home(
    request: pytest.FixtureRequest, services: Services, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonHome]:
    """Provide a home with a connector for each way, bound; at the end no file has any of the secrets or forms."""
    sources = tmp_path_factory.mktemp("sources")
    with office(request, authority, *services.places()) as made:
        made.unlock()
        for name, way in WAYS.items():
            _install(made, services, sources / name, way)
        done = Waiting(made, "header", GET | {"kind": "api_key", "word": "written-down"}).go()
        assert done.status == 200, done.body
        yield made
        made.stop()
        assert scan([made.folder], b"written-down"), "the scan finds nothing that is there"
        assert scan([made.folder], *services.words()) == {}


def _install(home: DaemonHome, services: Services, source: Path, way: Way) -> None:
    shutil.copytree(SOURCE, source)
    keep_frames(source)
    name, connector = source.name, f"github://aileron-tests/{source.name}"
    table = way.table.replace("{token_url}", services.tokens.url("/token"))
    text = MANIFEST.format(name=name, port=services.port(name), kind=way.kind) + table + "\n"
    (source / "manifest.toml").write_text(text, encoding="utf-8")
    home.install(source)
    home.store(name, services.secrets[name].encode())
    home.bind(connector, f"{way.kind}/{name}/me", name, **({"username": USER} if way.has_user else {}))
    inputs = ("kind:string", "path:string", "word:string")
    if name == "message":
        home.add_probe_action("talk", *inputs, name=name, connector=connector)
    else:
        more = ("method:string", "type:string?", "body:string?")
        home.add_probe_action("ask", *inputs, *more, name=name, connector=connector)


def test_every_kind_of_credential_is_tested() -> None:
    """The exceptions are sign-ins, which need a person, and logins, which send no request."""
    assert {way.kind for way in WAYS.values()} == set(CREDENTIAL_KINDS) - ELSEWHERE.keys()


@pytest.mark.abuse_case("X7", "S8")
@pytest.mark.parametrize("name", WAYS)
def test_neither_a_secret_nor_its_form_in_a_request_reaches_the_jail(
    home: DaemonHome, services: Services, name: str
) -> None:
    """The server echoes what it got, which must be in no memory of a child process, frame, output or event."""
    word = f"a-word-of-{name}"
    args = WAYS[name].ask | {"kind": WAYS[name].kind, "word": word}
    waiting = Waiting(home, name, args if name != "message" else args | {"path": f"/first/{word}"})
    looked = waiting.look() if os.geteuid() == 0 else None
    done = waiting.go()

    assert done.status == 200, done.body
    result = done.body["result"]
    assert (result["status"], word in result["said"]) == (101 if name == "message" else 200, True)
    if name not in ("message", "certificate"):
        assert services.sent[name], "the server got no credential"
        assert "***" in result["said"]
    passed = [base64.b64decode(result.pop(way)) for way in ("heard", "told")]
    assert all(word.encode() in frames for frames in passed)
    told = (*passed, json.dumps(done.body).encode(), json.dumps(home.events(done.body["audit_id"])).encode())
    assert [form for form in services.forms(name) if any(form in data for data in told)] == []
    if looked is not None:
        looked.check_forms(word.encode(), services.forms(name))


_HOLDS = "import sys, time; held = sys.stdin.buffer.read(); print(len(held), flush=True); time.sleep(60)"


@pytest.mark.abuse_case("S8")
@pytest.mark.skipif(os.geteuid() != 0, reason="a process's memory is root's to look into")
def test_the_memory_search_finds_secrets_in_a_process_that_has_them(services: Services) -> None:
    """A program that was given all secrets is the positive control. The daemon cannot be: it holds each only for
    moments.
    """
    told = "\n".join(services.secrets.values()).encode()
    with subprocess.Popen([sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holds:
        assert holds.stdin is not None
        assert holds.stdout is not None
        holds.stdin.write(told)
        holds.stdin.close()
        assert int(holds.stdout.readline()) == len(told)
        whole = memory_of(holds.pid)
        holds.kill()
    for name, secret in services.secrets.items():
        assert secret.encode() in whole, name

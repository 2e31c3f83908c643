"""Client certificates end to end: httpx, unmodified, in a jail, at Debian's nginx; the private key is nowhere.

httpx ── jail ── frames ── daemon ── TLS with the certificate ── nginx (`ssl_verify_client on`)
  └── its memory, its frames, its output, the ledger, the logs: searched

The tests run under a daemon of their own user and, as root, under an ordinary user's as well.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aileron.model.pem import pem_blocks
from tests.support.client_certificates import ClientAuthority
from tests.support.home import DaemonHome
from tests.support.jailed_office import USERS, Waiting, keep_frames, office
from tests.support.libraries import pack
from tests.support.memories import memory_of
from tests.support.nginx import Nginx, needs_nginx
from tests.support.upstream import Authority

pytestmark = [pytest.mark.jail, needs_nginx]
SOURCE: Final = Path(__file__).resolve().parents[1] / "support" / "connectors" / "certificates"
CONNECTOR: Final = "github://aileron-tests/certificates"
BINDING: Final = "mtls/bank/me"
PACKED: Final = ("httpx", "httpcore", "h11", "anyio", "idna", "certifi", "typing_extensions")
MANIFEST: Final = f"""\
[connector]
name = "{CONNECTOR}"
version = "1.0.0"

[capabilities.network]
hosts = {{hosts}}

[capabilities.credential]
kind = "mtls"
scope = "Whatever a test does"

[capabilities.runtime]
imports = ["http", "log"]

[limits]
timeout_s = 40
memory_mb = 256
"""
OPERATIONS: Final = {"who": ("word:string", "host:integer?"), "anonymous": (), "with_token": ()}


class Bank:
    """The nginx server, the clients that it accepts, and the secret in the vault."""

    def __init__(self, directory: Path, authority: Authority, clients: ClientAuthority) -> None:
        self.authority, self.clients = authority, clients
        self.server = Nginx(directory, authority, clients.ca_file)
        self.secret = clients.issue()

    def bind(self, home: DaemonHome, value: bytes | None = None) -> None:
        """Store a secret, by default the current one, as the bound one."""
        self.secret = value or self.secret
        home.store("client", self.secret)

    def forms(self) -> list[bytes]:
        """Return the forms of the private key: lines of the file, and the number itself."""
        (key,) = [text for label, text in pem_blocks(self.secret) if label.endswith(b"PRIVATE KEY")]
        number = load_pem_private_key(key, None).private_numbers().private_value.to_bytes(32, "big")  # type: ignore[union-attr]
        plain = [*key.splitlines()[1:3], number, number[::-1], number.hex().encode()]
        return [*plain, base64.b64encode(key)[40:80]]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Bank]:
    """Start one server for all homes."""
    clients = ClientAuthority(tmp_path_factory.mktemp("clients"), has_intermediate=True)
    bank = Bank(tmp_path_factory.mktemp("nginx"), authority, clients)
    with bank.server:
        yield bank


@pytest.fixture(scope="module", params=USERS)
def home(request: pytest.FixtureRequest, bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """Provide a home with the connector, bound."""
    hosts = [f"localhost:{bank.server.port}", f"localhost:{bank.server.port_1}"]
    with office(request, bank.authority, *hosts) as made:
        made.unlock()
        source = tmp_path_factory.mktemp("sources") / "certificates"
        shutil.copytree(SOURCE, source)
        keep_frames(source)
        for package in PACKED:
            pack(package, source)
        (source / "manifest.toml").write_text(MANIFEST.format(hosts=hosts), encoding="utf-8")
        made.install(source)
        for op, inputs in OPERATIONS.items():
            made.add_probe_action(op, *inputs, connector=CONNECTOR)
        bank.bind(made)
        made.bind(CONNECTOR, BINDING, "client")
        yield made
        made.done("who", word="written-down")
        files = {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()}
        assert any(b"written-down" in data for path, data in files.items() if path.name.startswith("ledger.db"))
        assert [path for path, data in files.items() if any(form in data for form in bank.forms())] == []


@pytest.mark.abuse_case("X9")
@pytest.mark.parametrize(("host", "protocol"), [(0, "HTTP/2.0"), (1, "HTTP/1.1")])
def test_the_server_sees_the_bound_certificate(home: DaemonHome, bank: Bank, host: int, protocol: str) -> None:
    """The certificate serves in both versions of HTTP, and no frame has the key. The next run uses the same connection."""
    found, again = (home.done("who", word="written-down", host=host) for _ in range(2))

    assert "CN=mira@example.test" in found["first"]["client"]
    assert found["first"]["protocol"] == protocol
    assert len({result[request]["connection"] for result in (found, again) for request in ("first", "second")}) == 1
    for way in ("heard", "told"):
        passed = base64.b64decode(found[way])
        assert b"written-down" in passed
        assert not any(form in passed for form in bank.forms())


def test_a_request_without_a_credential_sends_no_certificate(home: DaemonHome) -> None:
    """Such a request uses a separate connection; the connector gets the server's refusal."""
    home.done("who", word="before")
    error = home.failed("anonymous")
    assert "No required SSL certificate was sent" in error["message"]


def test_a_connectors_own_token_is_sent_with_the_certificate(home: DaemonHome) -> None:
    """Some services issue a token to a certificate, and want both."""
    found = home.done("with_token")
    assert found["authorization"] == "Bearer of-the-connector"
    assert "CN=mira@example.test" in found["client"]


@pytest.mark.abuse_case("X9")
@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_private_key_is_in_no_child_process_of_the_daemon(home: DaemonHome, bank: Bank) -> None:
    """The search runs while a connection with the key is open. The daemon has the key, and the search finds it there."""
    word = "wait-and-see"
    waiting = Waiting(home, "who", {"word": word})
    assert home.daemon_pid is not None
    looked, daemon = waiting.look(), memory_of(home.daemon_pid)
    answer = waiting.go()

    assert answer.status == 200, answer.body
    assert b"CN=mira@example.test" in looked.memories[waiting.jail]
    looked.check_forms(word.encode(), bank.forms())
    assert any(form in daemon for form in bank.forms()), "what is looked for was not found where it is"


def test_locking_the_vault_closes_connections_with_a_client_certificate(home: DaemonHome) -> None:
    """The connection holds the key: after the vault is locked and unlocked, the next connection is another."""
    before = home.done("who", word="before")
    home.must("POST", "/v1/vault/lock")
    home.unlock()
    after = home.done("who", word="after")

    assert after["first"]["connection"] != before["first"]["connection"]


@pytest.fixture
def bound_again(home: DaemonHome, bank: Bank) -> Iterator[None]:
    """Restore the binding after the test, with a certificate that the server accepts."""
    yield
    bank.bind(home, bank.clients.issue())
    if not any(found["name"] == BINDING for found in home.must("GET", "/v1/bindings")["bindings"]):
        home.bind(CONNECTOR, BINDING, "client")


@pytest.mark.usefixtures("bound_again")
def test_a_new_certificate_is_used_at_once_and_a_revoked_certificate_is_no_longer_used(
    home: DaemonHome, bank: Bank
) -> None:
    """An open connection with the earlier certificate is not reused; the server refuses a foreign authority's."""
    before = home.done("who", word="before")
    bank.bind(home, bank.clients.issue("noor@example.test"))
    after = home.done("who", word="after")
    bank.bind(home, ClientAuthority(bank.server.directory).issue())
    refused = home.failed("who", word="stranger")
    bank.bind(home, bank.clients.issue())
    back = home.done("who", word="written-down")
    home.must("DELETE", f"/v1/bindings/{BINDING}")
    error = home.failed("who", word="revoked")

    assert "CN=noor@example.test" in after["first"]["client"]
    assert after["first"]["connection"] != before["first"]["connection"]
    assert "The SSL certificate error" in refused["message"]
    assert "CN=mira@example.test" in back["first"]["client"]
    assert error["class"] == "binding_required"
    assert "/revoked" not in {each.target for each in bank.server.log}

"""daemon.listen: what agents on other machines can request over TLS, and what is refused to everyone."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from aileron.ingress.connection_places import MAX_CONNECTIONS
from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports
from tests.support.probed import lend_probe

pytestmark = pytest.mark.jail
ADDRESS = "127.0.0.2"
NAME = "aileron.test"
DEADLINE_S = 30.0


class Elsewhere:
    """A home that listens on an address of its own, as seen by an agent that has nothing of the home."""

    def __init__(self, home: DaemonHome, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        issued = self.authority.issue_cert(ADDRESS, NAME)
        (folder / "listen.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        (folder / "listen.key").write_bytes(issued.private_key_pem.bytes())
        (folder / "listen.key").chmod(0o600)
        (self.port,) = reserve_ports(1, ADDRESS)
        home.configure(
            f'[daemon]\nlisten = "{ADDRESS}:{self.port}"\n'
            f'certificate = "{folder}/listen.pem"\ncertificate_key = "{folder}/listen.key"\n'
        )

    def token(self) -> str:
        """Return the token of a new session."""
        return str(self.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"])

    def ask(self, path: str, *, host: str | None = None, **headers: str) -> tuple[int, str]:
        """Send a GET and return status and body."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        connection = http.client.HTTPSConnection(ADDRESS, self.port, timeout=DEADLINE_S, context=context)
        try:
            connection.request("GET", path, headers={"Host": host or f"{ADDRESS}:{self.port}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def aileron(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command as on a machine that has no home."""
        told = {
            "AILERON_HOME": str(self.folder / "nowhere"),
            "AILERON_URL": f"https://{ADDRESS}:{self.port}",
            "AILERON_CA_FILE": str(self.folder / "ca.pem"),
            **environment,
        }
        return subprocess.run(
            [sys.executable, "-m", "aileron", *words],
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """Start a home that listens, with an action."""
    with daemon_home() as home:
        made = Elsewhere(home, tmp_path_factory.mktemp("tls"))
        lend_probe(home)
        home.add_probe_action("give_back", "text:string")
        yield made


def test_an_agent_on_another_machine_can_run_an_action_with_a_token(elsewhere: Elsewhere) -> None:
    """The command is that of a local agent; without a valid token the run is refused with the reason."""
    ran = elsewhere.aileron("run", "give-back", "text=x", "--json", AILERON_SESSION_TOKEN=elsewhere.token())
    assert (ran.returncode, json.loads(ran.stdout)["result"]["text"]) == (0, "x"), ran

    for shown, why in (("", "session token is required"), ("ail_" + "A" * 43, "its session has ended")):
        refused = elsewhere.aileron("run", "give-back", "text=x", AILERON_SESSION_TOKEN=shown)
        assert refused.returncode == 6, refused
        assert why in refused.stderr


def test_a_run_from_another_machine_belongs_to_the_tokens_session(elsewhere: Elsewhere) -> None:
    """The audit record therefore names the session that made the request."""
    begun = elsewhere.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})

    ran = elsewhere.aileron("run", "give-back", "text=x", "--json", AILERON_SESSION_TOKEN=begun["token"])

    assert elsewhere.home.events(json.loads(ran.stdout)["audit_id"])[0]["session"] == begun["id"]


def test_commands_for_people_are_refused_if_aileron_url_is_set(elsewhere: Elsewhere) -> None:
    """The command says to unset AILERON_URL, and starts no daemon on this machine."""
    refused = elsewhere.aileron("status", AILERON_SESSION_TOKEN=elsewhere.token())

    assert refused.returncode == 69
    assert "unset AILERON_URL" in refused.stderr
    assert not (elsewhere.folder / "nowhere").exists()


def test_only_requests_to_a_name_in_the_certificate_are_served(elsewhere: Elsewhere) -> None:
    """The address and the name are accepted; a rebound name, another port and `localhost` get 403."""
    shown = {"Authorization": f"Bearer {elsewhere.token()}"}

    for host in (f"{ADDRESS}:{elsewhere.port}", f"{NAME}:{elsewhere.port}", f"AILERON.test:{elsewhere.port}"):
        assert elsewhere.ask("/v1/actions", host=host, **shown)[0] == 200, host
    for host in (f"evil.example:{elsewhere.port}", f"localhost:{elsewhere.port}", f"{ADDRESS}:1", NAME):
        assert elsewhere.ask("/v1/actions", host=host, **shown)[0] == 403, host


def test_the_remote_port_serves_no_web_pages(elsewhere: Elsewhere) -> None:
    """Review addresses give 404, and a request with an Origin header gets 403, whatever the origin."""
    shown = {"Authorization": f"Bearer {elsewhere.token()}"}

    assert elsewhere.ask("/approvals", **shown)[0] == 404
    assert elsewhere.ask("/v1/actions", Origin=f"https://{ADDRESS}:{elsewhere.port}", **shown)[0] == 403
    assert elsewhere.ask("/v1/actions", **shown)[0] == 200


def test_every_request_from_another_machine_needs_a_token(elsewhere: Elsewhere) -> None:
    """The routes for agents and /mcp need one as well."""
    for path in ("/v1/actions", "/mcp", "/v1/status"):
        status, body = elsewhere.ask(path)
        assert (status, json.loads(body)["error"]["class"]) == (401, "unauthorized"), path


def test_the_remote_port_serves_no_request_without_tls(elsewhere: Elsewhere) -> None:
    """A client without TLS gets no response, and a client that does not trust the certificate sends no request."""
    plain = http.client.HTTPConnection(ADDRESS, elsewhere.port, timeout=DEADLINE_S)
    try:
        plain.request("GET", "/healthz")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
    finally:
        plain.close()
    untrusting = elsewhere.aileron("run", "give-back", "text=x", AILERON_CA_FILE="")
    assert untrusting.returncode == 69
    assert "certificate" in untrusting.stderr.lower()


def test_the_fix_for_a_remote_daemon_names_its_machine(elsewhere: Elsewhere) -> None:
    """The daemon's log is on that machine and not on the caller's."""
    (port,) = reserve_ports(1, ADDRESS)
    nobody = f"https://{ADDRESS}:{port}"
    refused = elsewhere.aileron(
        "run", "give-back", "text=x", AILERON_URL=nobody, AILERON_SESSION_TOKEN=elsewhere.token()
    )

    assert refused.returncode == 69
    assert "fix: aileron status, on the daemon host" in refused.stderr


@pytest.mark.parametrize("url", ["http://192.0.2.1:8443", "ftp://localhost", "https://", "https://me@localhost:1"])
def test_a_token_is_sent_only_over_tls_or_loopback(elsewhere: Elsewhere, url: str) -> None:
    """The client refuses any other address before it sends anything."""
    refused = elsewhere.aileron("run", "give-back", "text=x", AILERON_URL=url, AILERON_SESSION_TOKEN=elsewhere.token())

    assert refused.returncode == 69
    assert f"AILERON_URL is {url!r}" in refused.stderr


@pytest.mark.abuse_case("A32")
def test_clients_that_never_finish_the_tls_handshake_do_not_block_other_callers(elsewhere: Elsewhere) -> None:
    """The oldest silent connection is closed at the limit; a caller with a token is served, and nothing is logged about
    handshakes.
    """
    log = elsewhere.home.path / "logs" / "daemon.log"
    assert elsewhere.ask("/v1/actions", Authorization=f"Bearer {elsewhere.token()}")[0] == 200
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((ADDRESS, elsewhere.port), timeout=DEADLINE_S))
            for _ in range(MAX_CONNECTIONS + 1)
        ]
        assert silent[0].recv(1) == b""
        assert elsewhere.ask("/v1/actions", Authorization=f"Bearer {elsewhere.token()}")[0] == 200
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
    assert "handshake" not in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", ["readable by others", "another certificate's", "gone"])
def test_an_unusable_certificate_key_keeps_the_daemon_from_starting(tmp_path: Path, wrong: str) -> None:
    """The error names the setting and the fix; with the right key, readable only by its owner, the daemon starts."""
    with daemon_home() as home:
        elsewhere = Elsewhere(home, tmp_path)
        key = tmp_path / "listen.key"
        right = key.read_bytes()
        if wrong == "readable by others":
            key.chmod(0o640)
        elif wrong == "gone":
            key.unlink()
        else:
            key.write_bytes(elsewhere.authority.issue_cert("other.test").private_key_pem.bytes())

        refused = elsewhere.aileron("daemon", "start", AILERON_URL="", AILERON_HOME=str(home.path))

        assert refused.returncode == 69, refused
        assert "daemon.certificate_key" in refused.stderr
        key.write_bytes(right)
        key.chmod(0o600)
        status: dict[str, Any] = home.must("GET", "/v1/status")
        assert status["listen"] == f"https://{ADDRESS}:{elsewhere.port}"

"""daemon.listen: what agents elsewhere can ask over TLS, and what nobody can."""

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

from aileron.ingress.places import MAX_CONNECTIONS
from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports

pytestmark = pytest.mark.jail
ADDRESS = "127.0.0.2"
NAME = "aileron.test"
DEADLINE_S = 30.0


class Elsewhere:
    """A home that listens on an address of its own, as an agent sees it that has nothing of the home."""

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
        """Of a new session."""
        return str(self.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"])

    def ask(self, path: str, *, host: str | None = None, **headers: str) -> tuple[int, str]:
        """Status and body of a GET."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        connection = http.client.HTTPSConnection(ADDRESS, self.port, timeout=DEADLINE_S, context=context)
        try:
            connection.request("GET", path, headers={"Host": host or f"{ADDRESS}:{self.port}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def aileron(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command on a machine that has no home."""
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
    """A home with an action, and its address."""
    with daemon_home() as home:
        made = Elsewhere(home, tmp_path_factory.mktemp("tls"))
        home.install_probe()
        home.unlock()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")
        yield made


def test_an_action_is_run_from_elsewhere_with_a_token(elsewhere: Elsewhere) -> None:
    """The same command as on the machine itself; without the token, or with a bad one, it is refused with its reason."""
    ran = elsewhere.aileron("run", "give-back", "text=x", "--json", AILERON_SESSION_TOKEN=elsewhere.token())
    assert (ran.returncode, json.loads(ran.stdout)["result"]["text"]) == (0, "x"), ran

    for shown, why in (("", "session token is required"), ("ail_" + "A" * 43, "its session has ended")):
        refused = elsewhere.aileron("run", "give-back", "text=x", AILERON_SESSION_TOKEN=shown)
        assert refused.returncode == 6, refused
        assert why in refused.stderr


def test_a_run_from_elsewhere_is_of_the_tokens_session(elsewhere: Elsewhere) -> None:
    """So the record says who asked."""
    begun = elsewhere.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})

    ran = elsewhere.aileron("run", "give-back", "text=x", "--json", AILERON_SESSION_TOKEN=begun["token"])

    assert elsewhere.home.events(json.loads(ran.stdout)["audit_id"])[0]["session"] == begun["id"]


def test_what_is_the_persons_is_not_asked_elsewhere(elsewhere: Elsewhere) -> None:
    """Where AILERON_URL is set, commands of the person say so, and start no daemon beside it."""
    refused = elsewhere.aileron("status", AILERON_SESSION_TOKEN=elsewhere.token())

    assert refused.returncode == 69
    assert "unset AILERON_URL" in refused.stderr
    assert not (elsewhere.folder / "nowhere").exists()


def test_only_names_of_the_certificate_are_answered(elsewhere: Elsewhere) -> None:
    """The address and the name are; a rebound name, another port and loopback's name are not."""
    shown = {"Authorization": f"Bearer {elsewhere.token()}"}

    for host in (f"{ADDRESS}:{elsewhere.port}", f"{NAME}:{elsewhere.port}", f"AILERON.test:{elsewhere.port}"):
        assert elsewhere.ask("/v1/actions", host=host, **shown)[0] == 200, host
    for host in (f"evil.example:{elsewhere.port}", f"localhost:{elsewhere.port}", f"{ADDRESS}:1", NAME):
        assert elsewhere.ask("/v1/actions", host=host, **shown)[0] == 403, host


def test_no_page_is_there_and_no_page_may_ask(elsewhere: Elsewhere) -> None:
    """No review address is served, and an Origin, whatever it says, is refused."""
    shown = {"Authorization": f"Bearer {elsewhere.token()}"}

    assert elsewhere.ask("/approvals", **shown)[0] == 404
    assert elsewhere.ask("/v1/actions", Origin=f"https://{ADDRESS}:{elsewhere.port}", **shown)[0] == 403
    assert elsewhere.ask("/v1/actions", **shown)[0] == 200


def test_nobody_is_asked_without_a_token_elsewhere(elsewhere: Elsewhere) -> None:
    """Not for what agents may ask, and not for /mcp."""
    for path in ("/v1/actions", "/mcp", "/v1/status"):
        status, body = elsewhere.ask(path)
        assert (status, json.loads(body)["error"]["class"]) == (401, "unauthorized"), path


def test_nothing_is_said_in_the_clear(elsewhere: Elsewhere) -> None:
    """A client without TLS gets no answer; one that does not trust the certificate does not ask."""
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


def test_what_to_do_about_a_daemon_elsewhere_is_done_there(elsewhere: Elsewhere) -> None:
    """Its log is not here."""
    (port,) = reserve_ports(1, ADDRESS)
    nobody = f"https://{ADDRESS}:{port}"
    refused = elsewhere.aileron(
        "run", "give-back", "text=x", AILERON_URL=nobody, AILERON_SESSION_TOKEN=elsewhere.token()
    )

    assert refused.returncode == 69
    assert "fix: aileron status, on the daemon host" in refused.stderr


@pytest.mark.parametrize("url", ["http://192.0.2.1:8443", "ftp://localhost", "https://", "https://me@localhost:1"])
def test_a_token_is_sent_over_tls_or_on_loopback_only(elsewhere: Elsewhere, url: str) -> None:
    """Any other address is refused before anything is sent."""
    refused = elsewhere.aileron("run", "give-back", "text=x", AILERON_URL=url, AILERON_SESSION_TOKEN=elsewhere.token())

    assert refused.returncode == 69
    assert f"AILERON_URL is {url!r}" in refused.stderr


def test_tls_that_never_comes_takes_nobodys_place(elsewhere: Elsewhere) -> None:
    """Who connects and says nothing has no more places than anybody silent; the oldest goes, and that fills no log."""
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
def test_a_key_that_does_not_serve_keeps_the_daemon_from_starting(tmp_path: Path, wrong: str) -> None:
    """It says which setting, and the fix; with the right key, and nobody else who can read it, it starts."""
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

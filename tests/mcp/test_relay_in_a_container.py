"""An agent in a container's network, the daemon in another: it lists, calls and waits for a person, over TLS with a token."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.home import DaemonHome, daemon_home
from tests.support.networks import HOST, MISSING, Networks
from tests.support.relay import Agent

PORT = 8443
TOKEN = "ail_" + "k" * 43

if MISSING and os.environ.get("AILERON_MUST_JAIL") == "1":
    raise RuntimeError(MISSING)
pytestmark = [pytest.mark.jail, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


class Outside:
    """A daemon and what its container is given: the daemon's address and the certificate authority."""

    def __init__(self, networks: Networks, home: DaemonHome, folder: Path) -> None:
        self.networks = networks
        self.home = home
        self._folder = folder

    def agent(self, token: str, **environment: str) -> Agent:
        """Start a relay in the container, which has no home of its own."""
        program = [*self.networks.container, sys.executable, "-m", "aileron.mcp.relay"]
        given = {"AILERON_URL": f"https://{HOST}:{PORT}", "AILERON_CA_FILE": str(self._folder / "ca.pem")}
        return Agent(self._folder / "none", program=program, **{**given, "AILERON_SESSION_TOKEN": token, **environment})

    def token(self) -> str:
        """Return the token of a new session."""
        return str(self.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"])


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    """Start a daemon on the host's side, with two actions."""
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    with Networks() as networks, daemon_home() as home, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
        (folder / "key.pem").chmod(0o600)
        home.configure(
            f'[daemon]\nlisten = "{HOST}:{PORT}"\n'
            f'certificate = "{folder}/cert.pem"\ncertificate_key = "{folder}/key.pem"\n'
        )
        start = [*networks.host, sys.executable, "-m", "aileron", "daemon", "start"]
        subprocess.run(start, env={**os.environ, "AILERON_HOME": str(home.path)}, check=True, timeout=60)
        home.install_probe()
        home.unlock()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")
        home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        yield Outside(networks, home, folder)


def test_an_agent_in_a_container_lists_and_calls_tools(outside: Outside) -> None:
    """The action runs in a real jail of the daemon, as the agent's own session."""
    with outside.agent(outside.token()) as agent:
        agent.initialize()
        names = {tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]}
        said = agent.ask("tools/call", {"name": "give_back", "arguments": {"text": "out there"}})["result"]

    assert {"give_back", "ask_first"} <= names
    assert said["structuredContent"]["result"]["text"] == "out there"


def test_a_call_from_a_container_is_decided_by_a_person_outside_of_it(outside: Outside) -> None:
    """The call returns at once; the agent polls for the decision of a person whom it cannot reach."""
    with outside.agent(outside.token()) as agent:
        agent.initialize()
        asked = agent.ask("tools/call", {"name": "ask_first", "arguments": {"text": "may I"}})["result"]
        question = asked["structuredContent"]
        waiting = agent.request("tools/call", {"name": "wait_for_action", "arguments": {"id": question["approval_id"]}})
        shown = outside.home.must("GET", f"/v1/action-approvals/{question['approval_id']}")
        outside.home.decide({**question, "digest": shown["digest"]}, "approve")
        answer = agent.answer(waiting)["result"]["structuredContent"]

    assert question["status"] == "pending_approval"
    assert (answer["status"], answer["result"]["text"]) == ("completed", "may I")


def test_an_unknown_token_from_a_container_is_refused(outside: Outside) -> None:
    """Callers over a network never count as the session `local`; the tests above are the positive control."""
    with outside.agent(TOKEN) as agent:
        error = agent.ask("tools/call", {"name": "give_back", "arguments": {"text": "x"}})["error"]

    assert "makes another" in error["message"]


def test_the_loopback_port_is_not_reachable_from_the_container(outside: Outside) -> None:
    """Only the listening address is reachable; plain HTTP to it is refused before anything is sent."""
    web = outside.home.must("GET", "/v1/status")["web"]
    probe = f"import urllib.request; print(urllib.request.urlopen('{web}/healthz', timeout=10).status)"
    where = {"host": outside.networks.host, "container": outside.networks.container}
    said = {
        name: subprocess.run(
            [*words, sys.executable, "-c", probe], capture_output=True, text=True, timeout=30, check=False
        )
        for name, words in where.items()
    }
    assert said["host"].stdout == "200\n"
    assert "Connection refused" in said["container"].stderr

    with outside.agent(outside.token(), AILERON_URL=f"http://{HOST}:{PORT}") as agent:
        assert "https://HOST:PORT" in agent.ask("initialize")["error"]["message"]

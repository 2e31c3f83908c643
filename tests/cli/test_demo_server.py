"""`aileron demo-server` as a program: what it serves, to which clients, its limits, and how it ends."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.cli.notes_server import MAX_BODY_BYTES, MAX_NOTES, MAX_TEXT
from tests.cli.command import Command
from tests.support.ports import reserve_ports

DEADLINE_S = 30


class Served:
    """A running demo server, with the port and key that it printed."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        assert process.stdout is not None
        self.process, self.port = process, port
        found = re.fullmatch(
            rf"address\thttp://localhost:{port}\nAPI key\t(\S+)\n",
            process.stdout.readline() + process.stdout.readline(),
        )
        assert found
        self.key = found[1]

    def ask(self, method: str, path: str, body: bytes | None = None, *, key: str | None = None) -> tuple[int, Any]:
        """Send a request. Return the status and the parsed JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.key if key is None else key}"})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()

    def end(self, number: int) -> str:
        """Send this signal, check that the server exits with 0, and return its standard error."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, err
        return err


@pytest.fixture
def served(aileron: Command) -> Iterator[Served]:
    """A demo server on a reserved port."""
    (port,) = reserve_ports(1)
    with aileron.start("demo-server", "--port", str(port)) as process:
        yield Served(process, port)
        process.kill()


def test_the_demo_server_serves_only_clients_on_this_machine_with_its_key(served: Served) -> None:
    """Notes are listed, added, read and deleted; a request without the key is refused, and no other address is open."""
    asked = [
        served.ask("POST", "/notes", b'{"text": "mine"}', key="demo-guessed"),
        served.ask("POST", "/notes", b'{"text": "mine"}'),
        served.ask("GET", "/notes?limit=2"),
        served.ask("DELETE", "/notes/2", key=""),
        served.ask("DELETE", "/notes/2"),
        served.ask("GET", "/notes/2"),
        served.ask("GET", "/notes"),
    ]
    added = {"id": 3, "text": "mine"}

    assert [status for status, _ in asked] == [401, 201, 200, 401, 204, 404, 200]
    assert asked[1][1] == added
    assert asked[2][1] == [added, {"id": 2, "text": "Call Jo"}]
    assert asked[6][1] == [added, {"id": 1, "text": "Water the plants"}]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", served.port), timeout=DEADLINE_S)
    told = served.end(signal.SIGINT)
    assert [line.split()[1:4] for line in told.splitlines() if "/notes/2" in line] == [
        ["401", "DELETE", "/notes/2"],
        ["204", "DELETE", "/notes/2"],
        ["404", "GET", "/notes/2"],
    ]
    assert (served.key in told, "mine" in told, told.endswith("\nstopped; the notes are gone\n")) == (
        False,
        False,
        True,
    )


def test_the_demo_servers_memory_is_bounded(served: Served) -> None:
    """The number of notes and their length have limits; an invalid request gets an error, and the server continues."""
    longest = json.dumps({"text": "ä" * MAX_TEXT}).encode()
    refused = [
        served.ask("POST", "/notes", json.dumps({"text": "a" * (MAX_TEXT + 1)}).encode()),
        served.ask("POST", "/notes", b" " * (MAX_BODY_BYTES + 1)),
        served.ask("POST", "/notes", b'{"text": 1}'),
        served.ask("POST", "/notes", b'{"text": " "}'),
        served.ask("GET", "/notes?limit=0"),
        served.ask("GET", "/nothing"),
        served.ask("PUT", "/notes"),
    ]
    added = [served.ask("POST", "/notes", longest)[0] for _ in range(MAX_NOTES - 1)]

    assert [status for status, _ in refused] == [400, 413, 400, 400, 400, 404, 405]
    assert all(why["error"] for _, why in refused)
    assert added == [201] * (MAX_NOTES - 2) + [507]
    assert len(served.ask("GET", "/notes")[1]) == MAX_NOTES
    served.end(signal.SIGTERM)


def test_the_demo_server_prints_the_command_that_allows_its_host(aileron: Command, served: Served, home: Path) -> None:
    """The command is absent if the settings allow the host already. A port in use is reported."""
    taken = aileron("demo-server", "--port", str(served.port))
    said = served.end(signal.SIGINT)
    command = f"  aileron config add egress.private_plain localhost:{served.port}\n"

    assert command in said
    assert (taken.code, taken.out) == (2, "")
    assert f"error: cannot use port {served.port}\n  why: another program uses this port" in taken.err
    both = f"localhost:9,localhost:{served.port}"
    for allowed, told in (("localhost:9", True), (both, False)):
        assert aileron("config", "set", "egress.private_plain", allowed).code == 0
        with aileron.start("demo-server", "--port", str(served.port)) as process:
            said = Served(process, served.port).end(signal.SIGINT)
        assert (command in said, "aileron config" in said) == (told, told)


def test_the_demo_server_offers_its_notes_as_mcp_tools(served: Served) -> None:
    """The key and the limits are the same."""

    def asked(method: str, **params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        return served.ask("POST", "/mcp", body)

    def called(name: str, **arguments: Any) -> Any:
        return asked("tools/call", name=name, arguments=arguments)[1]["result"]

    assert asked("server/discover")[1]["result"]["supportedVersions"] == ["2026-07-28"]
    assert [tool["name"] for tool in asked("tools/list")[1]["result"]["tools"]] == [
        "list_notes",
        "add_note",
        "delete_note",
    ]
    assert called("add_note", text="Milk")["structuredContent"] == {"id": 3, "text": "Milk"}
    assert [note["id"] for note in called("list_notes", limit=2)["structuredContent"]["notes"]] == [3, 2]
    assert "isError" not in called("delete_note", id=3)
    for name, arguments in (("delete_note", {"id": 3}), ("add_note", {"text": ""}), ("list_notes", {"limit": 0})):
        assert called(name, **arguments)["isError"]
    assert asked("tools/call", name="other")[0] == 400
    assert asked("initialize")[0] == 404
    assert served.ask("POST", "/mcp", b"[]")[0] == 400
    assert served.ask("POST", "/mcp", b"{}", key="wrong")[0] == 401

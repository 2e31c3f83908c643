"""The reference server of MCP (npm, `server-everything`), imported and used through the daemon and the jail: each kind of result.

The protocol's authors test clients with it, and it is written in another language than ours. It has sessions, streams that
begin with an empty event, and tools that ask a client for what a connector does not have.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.command import Command
from tests.documents.install import everything_installed
from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports
from tests.support.waiting import wait_listening

pytestmark = pytest.mark.jail
CONNECTOR: Final = "github://mira/connector-every"
_START_S: Final = 60.0
_ON_LOOPBACK: Final = """\
data:text/javascript,import net from 'node:net';
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) { return listen.call(this, { port, host: '127.0.0.1' }, ...rest); };
"""
"""Module that makes the program listen on loopback: it listens on every address of the machine, and has no option for it."""


@dataclasses.dataclass(frozen=True)
class Desk:
    """A home with the connector of a running server."""

    home: DaemonHome
    sources: Path
    not_imported: dict[str, str]

    def result(self, tool: str, **args: Any) -> Any:
        """Return the result of a tool that only reads."""
        said = self.home.run(f"every-{tool}", args)
        assert said.status == 200, said.body
        return said.body["result"]

    def error(self, tool: str, **args: Any) -> dict[str, Any]:
        """Return the error of a tool that has to fail."""
        said = self.home.run(f"every-{tool}", args)
        assert said.is_error, said.body
        error: dict[str, Any] = said.body["error"]
        return error


@contextlib.contextmanager
def everything(folder: Path) -> Iterator[int]:
    """Run the server on a port of this machine."""
    node, program = everything_installed()
    (port,) = reserve_ports(1)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PORT": str(port)}
    words = [str(node), "--import", _ON_LOOPBACK, str(program), "streamableHttp"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            wait_listening(process, port, says=(folder / "log").read_text, within_s=_START_S)
            yield port
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Return a home with all of the server's tools, installed by commands; tools that it calls read-only run without approval."""
    folder = tmp_path_factory.mktemp("every")
    sources = folder / "every"
    with everything(folder) as port, daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
        aileron, address = Command(home.path), f"mcp+http://localhost:{port}/mcp"
        new = aileron("connector", "import", address, CONNECTOR, str(sources), "--trust-read-only", "--json")
        installed = aileron("connector", "install", str(sources))
        added = aileron("action", "add", str(sources))
        assert (new.code, installed.code, added.code) == (0, 0, 0), (new, installed, added)
        left_out = {operation["op"]: operation["reason"] for operation in new.json["not_imported"]}
        yield Desk(home, sources, left_out)


def test_texts_and_structured_content_come_back(desk: Desk) -> None:
    """Text is returned as text, structured content as data that fits its schema."""
    assert desk.result("echo", message="milk") == {"text": "Echo: milk"}
    assert desk.result("get-sum", a=2, b=3) == {"text": "The sum of 2 and 3 is 5."}
    weather = desk.result("get-structured-content", location="Chicago")
    assert weather.keys() == {"temperature", "conditions", "humidity"}


def test_images_come_back_as_base64(desk: Desk) -> None:
    """The image is a PNG, with its size."""
    (image,) = desk.result("get-tiny-image")["content"]
    data = base64.b64decode(image["base64"])

    assert (image["type"], image["content_type"], image["bytes"]) == ("image", "image/png", len(data))
    assert data.startswith(b"\x89PNG")


def test_resources_and_links_are_returned_as_data(desk: Desk) -> None:
    """A link is not followed; an embedded resource is in the result."""
    links = desk.result("get-resource-links", count=2)["content"]
    (embedded,) = desk.result("get-resource-reference", resource_type="Text", resource_id=1)["content"]

    assert [link["type"] for link in links] == ["resource_link", "resource_link"]
    assert all(link["uri"].startswith("demo://resource/") for link in links)
    assert (embedded["type"], embedded["content_type"]) == ("resource", "text/plain")
    assert "Resource 1" in embedded["text"]


def test_annotations_of_a_message_do_not_change_its_text(desk: Desk) -> None:
    """Priority and audience are for a client that displays the message."""
    told = desk.result("get-annotated-message", message_type="error", include_image=True)

    assert told["text"].startswith("Error: ")
    assert [block["type"] for block in told["content"]] == ["image"]


def test_progress_is_reported_while_a_tool_runs(desk: Desk) -> None:
    """The test sees up to four steps in order, and then the result."""
    home = desk.home
    run = home.run("every-trigger-long-running-operation", {"duration": 1.2, "steps": 4}, wait=0)
    path, seen, last = f"/v1/runs/{run.body['run_id']}", [], 0
    state = home.must("GET", f"{path}?wait=10&progress=0", wait_s=10)
    while "progress" in state:
        last = state["progress"]["number"]
        seen.append((state["progress"]["done"], state["progress"]["total"]))
        state = home.must("GET", f"{path}?wait=10&progress={last}", wait_s=10)

    assert state["result"]["text"].startswith("Long running operation completed. Duration: 1.2 seconds")
    assert seen == sorted(seen)
    assert seen
    assert set(seen) <= {(1, 4), (2, 4), (3, 4), (4, 4)}


def test_a_tools_error_is_a_failure_with_its_message(desk: Desk) -> None:
    """Arguments that do not match the schema are refused before the request."""
    failed = desk.error("get-resource-reference", resource_type="Text", resource_id=-1)
    bad = desk.error("get-sum", a="two", b=3)

    assert (failed["class"], failed["details"]["reason"]) == ("external_api_error", "tool_error")
    assert "Invalid resourceId: -1" in failed["message"]
    assert bad["class"] == "bad_input"


def test_tools_that_need_features_aileron_lacks_are_not_imported(desk: Desk) -> None:
    """The server hides tools that need a model, a person or folders; a tool that can only run as a task is reported."""
    tools = json.loads((desk.sources / "service" / "tools.json").read_bytes())["tools"]

    assert "get_tiny_image" in tools
    assert not [name for name in tools if "sampling" in name or "elicitation" in name or "roots" in name]
    assert desk.not_imported == {"simulate_research_query": "it can be called as a task only, which is not supported"}


def test_a_tool_that_can_write_waits_for_approval(desk: Desk) -> None:
    """The question has the arguments; the tool runs after the approval."""
    given = {"name": "milk.txt", "data": "data:text/plain,milk", "output_type": "resource"}
    asked = desk.home.asked("every-gzip-file-as-resource", given)
    said = desk.home.decide(asked, "approve")
    answered = desk.home.ask("GET", f"/v1/action-approvals/{asked['approval_id']}/result?wait=20", wait_s=20)

    assert said.status == 200, said.body
    (file,) = answered.body["result"]["content"]
    assert gzip.decompress(base64.b64decode(file["base64"])) == b"milk"

"""A connector of packed tools in the real jail, against a server of the official SDK: both revisions, both kinds of answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.connector_tests.bench import Bench, LocalUpstream, artifact_of
from aileron.importing.mcp_listing import listed
from aileron.importing.mcp_tools import TOOLS, described_tools, make_tools
from aileron.importing.record import Choices
from aileron.model.failure import FailureClass
from aileron.model.names import Fqn
from aileron_connector.mcp.client import LATEST, MODERN
from tests.support.mcp_server import ADDS, ADDS_NOW, STOPPED, Guarded, app_of, serving

pytestmark = pytest.mark.jail
NAME = Fqn.parse("github://acme/connector-notes")
EXTERNAL = FailureClass.EXTERNAL_API_ERROR


def sources(folder: Path, port: int, protocol: str, host: str = "127.0.0.1", **choices: Any) -> Path:
    """Write the connector's sources, made from the server on this port, for one revision; return their folder."""
    listing = listed(f"mcp+http://{host}:{port}/mcp")
    found = described_tools(listing)
    made = make_tools(listing, found, found.operations, NAME, Choices(**choices))
    for path, data in made.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    tools = json.loads((folder / TOOLS).read_bytes())
    (folder / TOOLS).write_text(json.dumps({**tools, "protocol": protocol}))
    return folder


class Served:
    """A server, a bench with its connector, and the way between them."""

    def __init__(self, bench: Bench, app: Guarded, port: int) -> None:
        self.app = app
        self._bench = bench
        self._upstream = LocalUpstream.parse(f"http://127.0.0.1:{port}")

    def call(self, op: str, **args: Any) -> Any:
        """Make one call in a jail of its own; return the output, or the failure."""
        self.app.methods.clear()
        done = self._bench.call(op, args, self._upstream)
        return done.output if done.failure is None else done.failure


@pytest.fixture(scope="module", params=[(MODERN, False), (MODERN, True), (LATEST, False), (LATEST, True)], ids=str)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server for each revision, with streams and with JSON."""
    protocol, is_json = request.param
    app = app_of(as_json=is_json)
    with serving(app) as port:
        folder = sources(tmp_path_factory.mktemp("sources"), port, protocol)
        with Bench(artifact_of(folder, ())) as bench:
            yield Served(bench, app, port)


def test_a_tool_gets_its_arguments_under_its_own_names(served: Served) -> None:
    """The action's argument is in snake case; the tool's property is not."""
    assert served.call("add_note", text="milk", important_note=True) == {"text": "added milk!"}


def test_the_structured_content_of_a_tool_result_is_the_output(served: Served) -> None:
    """The output is the tool's data, and not the text that the tool returns beside it."""
    assert served.call("list_notes", limit=1) == {"result": [{"id": 2, "text": "note 2"}]}


def test_the_failure_of_a_tool_has_the_tool_s_message(served: Served) -> None:
    """A result with `isError` is a failure, and never an output."""
    failure = served.call("delete_note", id=3)

    assert (failure.failure_class, failure.details["reason"]) == (EXTERNAL, "tool_error")
    assert "there is no note 3" in failure.message


def test_arguments_that_violate_the_tool_s_schema_are_never_sent(served: Served) -> None:
    """The client does not even begin a conversation with the server."""
    failure = served.call("delete_note", id="3")

    assert failure.failure_class is FailureClass.BAD_INPUT
    assert served.app.methods == []


def test_no_mcp_session_is_left_at_the_server(served: Served, request: pytest.FixtureRequest) -> None:
    """A conversation that began with `initialize` ends with DELETE; one without a session has two requests."""
    served.call("add_note", text="milk")

    sessions = ["POST", "POST", "POST", "POST", "DELETE"]
    assert served.app.methods in (["POST", "POST"], sessions)


@pytest.mark.parametrize("protocol", [MODERN, LATEST])
def test_a_tool_whose_description_changed_is_not_called(tmp_path: Path, protocol: str) -> None:
    """The failure says which tool and where, with both texts in its details; the other tools still run."""
    with serving(app_of()) as port:
        folder = sources(tmp_path, port, protocol)
    app = app_of(ADDS_NOW)
    with serving(app) as port, Bench(artifact_of(folder, ())) as bench:
        changed = Served(bench, app, port)
        # The manifest names the first server's port, and the bench puts this one in its place.
        failure = changed.call("add_note", text="milk")
        sent = list(app.methods)
        other = changed.call("list_notes")

    assert failure.failure_class is EXTERNAL
    assert failure.details["reason"] == "tool_changed"
    assert failure.details["changes"] == [
        {"where": "description", "before": json.dumps(ADDS), "after": json.dumps(ADDS_NOW)}
    ]
    assert "description" in failure.message
    assert "evil" not in failure.message
    assert sent.count("POST") == (1 if protocol == MODERN else 3)
    assert other["result"]


def test_a_server_that_dropped_the_imported_protocol_revision_is_still_called(tmp_path: Path) -> None:
    """Tools were imported with one protocol revision; the server has dropped that revision since."""
    with serving(app_of()) as port:
        folder = sources(tmp_path, port, MODERN)
    old = OldOnly(app_of())
    with serving(old) as port, Bench(artifact_of(folder, ())) as bench:
        upstream = LocalUpstream.parse(f"http://127.0.0.1:{port}")
        done = bench.call("add_note", {"text": "milk"}, upstream)

    assert done.output == {"text": "added milk"}, done


@pytest.mark.parametrize("protocol", [MODERN, LATEST])
def test_a_tool_that_does_not_answer_is_cancelled(tmp_path: Path, protocol: str) -> None:
    """The client cancels it when a tenth of the time is left, so that nothing goes on at the server, and no session is
    left there.
    """
    app = app_of()
    with serving(app) as port:
        folder = sources(tmp_path, port, protocol)
        manifest = (folder / "manifest.toml").read_text()
        (folder / "manifest.toml").write_text(manifest.replace("timeout_s = 60", "timeout_s = 10"))
        with Bench(artifact_of(folder, ())) as bench:
            served = Served(bench, app, port)
            failure = served.call("wait_for_ever")
            methods = list(served.app.methods)

    assert failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED
    assert "it was told to stop" in failure.message
    assert failure.details["limit"] == "wall"
    assert methods == (["POST"] * 2 if protocol == MODERN else [*["POST"] * 5, "DELETE"])
    assert STOPPED.wait(10)
    STOPPED.clear()


class OldOnly:
    """A server that does not know requests without a session."""

    def __init__(self, app: Guarded) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-protocol-version") == MODERN.encode():
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)

"""Cells: a session belongs to one process, its record and responses describe it, and no other process passes its doors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aileron.api.routes import ROUTES
from aileron.ingress.known import is_strangers, of_cell
from aileron.model.invocation import Scope
from aileron.model.placeholder import CELL_PLACEHOLDER
from tests.gateway.conftest import Provider
from tests.support.attendant import Answered, Attendant
from tests.support.home import SECRET, DaemonHome, asking_home
from tests.support.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.jail
HOSTS = ["example.com", "*.example.org:8443"]


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with an action that runs at once and one that needs approval."""
    with asking_home() as home:
        yield home


@pytest.fixture
def attendant(home: DaemonHome) -> Iterator[Attendant]:
    """Start a process that may open a cell's session."""
    with Attendant(home.path) as attendant:
        yield attendant


def started(home: DaemonHome, session: str) -> dict[str, Any]:
    """Return the recorded event of a session's start."""
    events = home.must("GET", "/v1/audit?type=session.started&limit=1000")["events"]
    (found,) = [event for event in events if event["session"] == session]
    return dict(found)


# The session


def test_a_session_shows_that_it_is_a_cell_and_which_hosts_it_reaches(home: DaemonHome, attendant: Attendant) -> None:
    """The response, the list and the record show each host in canonical form; a session without a cell shows none."""
    opened = attendant.open(hosts=[*HOSTS, "example.com:443"], ask=True)
    other = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/srv/work"})

    assert opened["cell"] == {"hosts": HOSTS, "ask": True}
    listed = {session["id"]: session["cell"] for session in home.must("GET", "/v1/sessions")["sessions"]}
    assert (listed[opened["id"]], listed[other["id"]]) == ({"hosts": HOSTS, "ask": True}, None)
    on_record = started(home, opened["id"])
    assert (on_record["cell_hosts"], on_record["cell_asks"], on_record["pid"]) == (HOSTS, True, attendant.pid)
    assert "cell_hosts" not in started(home, other["id"])


def test_a_cell_without_hosts_is_recorded_as_a_cell(home: DaemonHome, attendant: Attendant) -> None:
    """The cell reaches nothing, which the record distinguishes from a session without a cell."""
    opened = attendant.open()

    assert home.must("GET", f"/v1/sessions/{opened['id']}")["cell"] == {"hosts": [], "ask": False}
    assert started(home, opened["id"])["cell_hosts"] == []


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ({"hosts": ["*.com"]}, "cell.hosts: '*.com' is too wide"),
        ({"hosts": ["192.0.2.1"]}, "cell.hosts: '192.0.2.1' is an address"),
        ({"hosts": [f"a{number}.com" for number in range(129)]}, "cell.hosts: 129 hosts; at most 128"),
        ({"hosts": [], "sees": "everything"}, "unknown field `sees`"),
    ],
    ids=["wide", "address", "many", "unknown"],
)
def test_a_session_with_invalid_hosts_is_not_opened(attendant: Attendant, cell: dict[str, Any], problem: str) -> None:
    """The refusal names the host and the reason; the same process can open a session with valid hosts."""
    refused = attendant.open_with(cell=cell)

    assert refused.refusal == (400, "invalid_request")
    assert problem in refused.message
    assert attendant.open(hosts=HOSTS)["status"] == "open"


def test_a_cell_must_belong_to_the_process_that_opens_it(home: DaemonHome, attendant: Attendant) -> None:
    """A cell without a process, or for another process, such as its parent, is refused; a plain session may name
    another process.
    """
    for facts in ({"pid": None}, {"pid": 1}):
        refused = attendant.open_with(cell={}, **facts)
        assert refused.refusal == (400, "invalid_request")
        assert "a cell is of the process that opens its session" in refused.message
    body = {"agent": "claude", "folder": "/srv/work", "pid": attendant.pid}
    by_child = attendant.ask("POST", "/v1/sessions", {**body, "cell": {}}, at="operator.sock", by="child")
    assert by_child.refusal == (400, "invalid_request")
    assert home.must("POST", "/v1/sessions", body)["cell"] is None


def test_a_process_has_one_cell_at_a_time(home: DaemonHome, attendant: Attendant) -> None:
    """A second cell is refused with the command that ends the first, and that command works."""
    first = attendant.open()

    refused = attendant.open_with(cell={})

    assert refused.refusal == (400, "invalid_request")
    assert f"`aileron sessions end {first['id']}`" in refused.message
    home.must("POST", f"/v1/sessions/{first['id']}/end", {})
    assert attendant.open()["status"] == "open"


def test_a_cell_opened_within_a_session_gets_no_extra_share_or_actions(home: DaemonHome, attendant: Attendant) -> None:
    """Otherwise an agent could widen its limits by opening a cell. Every nested session has this rule."""
    outer = attendant.open_with(only=["give-back"]).body
    body = {"agent": "codex", "folder": "/srv/work", "pid": "own", "cell": {}}

    inner = attendant.ask("POST", "/v1/sessions", body, at="operator.sock", by="child").body

    on_record = started(home, inner["id"])
    assert (on_record["party"], on_record["above_only"]) == (outer["id"], [["give-back"]])
    assert "party" not in started(home, outer["id"])


# Which process the cell socket serves

RUN = "/v1/actions/give-back/run"


def run(attendant: Attendant, **how: Any) -> Answered:
    """Run the action that runs at once."""
    return attendant.ask("POST", RUN, {"args": {"text": "x"}}, **how)


def test_the_process_of_a_cell_is_served_as_its_session(home: DaemonHome, attendant: Attendant) -> None:
    """The process needs no token: its runs are recorded as its session's, by an agent, and use only its own share."""
    opened = attendant.open()

    ran = run(attendant)

    assert ran.status == 200, ran.body
    requested = next(event for event in home.events(ran.body["audit_id"]) if event["type"] == "run.requested")
    assert (requested["session"], requested["scope"]) == (opened["id"], "agent")
    assert "party" not in requested


@pytest.mark.parametrize("by", ["child", "grandchild", "passed"])
def test_a_child_of_the_cells_process_is_refused_on_the_cell_socket(attendant: Attendant, by: str) -> None:
    """A connection that the child made and handed to the cell's process is refused too. The child is served on the
    agent socket.
    """
    attendant.open()
    assert run(attendant).status == 200

    refused = run(attendant, by=by)

    assert refused.refusal == (401, "unauthorized")
    assert "this socket answers only a process with an open cell" in refused.message
    assert run(attendant).status == 200
    assert run(attendant, at="agent.sock", by="child").status == 200


def test_a_process_that_inherits_the_cells_connection_is_not_served(home: DaemonHome, attendant: Attendant) -> None:
    """Requests are refused as soon as the cell's process has ended, even if its session has not ended yet."""
    opened = attendant.open()
    assert run(attendant).status == 200

    refused = run(attendant, by="heir")

    assert refused.refusal == (401, "unauthorized")
    assert f"process {attendant.pid} has none" in refused.message
    assert home.must("GET", f"/v1/sessions/{opened['id']}")["status"] == "open"


def test_the_cell_socket_refuses_other_processes_even_with_a_valid_token(
    home: DaemonHome, attendant: Attendant
) -> None:
    """A process of the same user is refused even with the cell's own token, and so is a session without a cell."""
    opened = attendant.open()
    shown = {"Authorization": f"Bearer {opened['token']}"}

    with Attendant(home.path) as other:
        assert run(other).refusal == (401, "unauthorized")
        assert run(other, headers=shown).refusal == (401, "unauthorized")
        token = other.open_with().body["token"]
        refused = run(other, headers={"Authorization": f"Bearer {token}"})
        assert refused.refusal == (401, "unauthorized")
        assert f"process {other.pid} has none" in refused.message
        assert run(other, at="agent.sock", headers=shown).status == 200
    assert run(attendant).status == 200
    newest = home.must("GET", "/v1/audit?type=caller.refused&limit=1000")["events"]
    assert {event["route"] for event in newest if event["scope"] == "cell"} == {"cell.sock"}


def test_a_credential_sent_to_the_cell_socket_is_ignored(home: DaemonHome, attendant: Attendant) -> None:
    """The connection decides who calls: a placeholder or another session's token opens no other session's questions."""
    attendant.open()
    other = home.must("POST", "/v1/sessions", {"agent": "codex", "folder": "/srv/work"})
    mine = attendant.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}}).body
    theirs = home.agent.request(
        "POST",
        "/v1/actions/ask-first/run",
        {"args": {"text": "y"}},
        headers={"Authorization": f"Bearer {other['token']}"},
    ).body

    for shown in (CELL_PLACEHOLDER, other["token"], "x y"):
        headers = {"Authorization": f"Bearer {shown}", "x-api-key": shown}
        found = attendant.ask("GET", f"/v1/action-approvals/{mine['approval_id']}/result", headers=headers)
        hidden = attendant.ask("GET", f"/v1/action-approvals/{theirs['approval_id']}/result", headers=headers)
        assert found.body["status"] == "pending_approval"
        assert hidden.refusal == (404, "not_found")


def test_a_cell_can_use_only_the_actions_that_its_session_selected(attendant: Attendant) -> None:
    """The selection applies on the cell socket as on every other one."""
    assert attendant.open_with(cell={}, only=["give-*"]).status == 200

    assert [action["name"] for action in attendant.ask("GET", "/v1/actions").body["actions"]] == ["give-back"]
    assert attendant.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}}).refusal == (404, "not_found")


def test_operator_routes_are_refused_on_the_cell_socket(home: DaemonHome, attendant: Attendant) -> None:
    """Each refusal has a reason and is recorded; review pages and the MCP endpoint give 404."""
    opened = attendant.open()
    persons = [route for route in ROUTES if Scope.AGENT not in route.scopes]

    for route in persons:
        path = route.path.replace("{name:path}", "x").replace("{name}", "x").replace("{id}", "x").replace("{hash}", "x")
        refused = attendant.ask(route.method, path, {})
        assert refused.refusal == (401, "unauthorized"), path
        assert "is not available in a cell: a person does this outside of it" in refused.message
    for path in ("/", "/approvals", "/static/page.css", "/mcp"):
        assert attendant.ask("GET", path).refusal == (404, "not_found"), path
    assert attendant.ask("GET", "/v1/status").status == 200
    told = home.must("GET", "/v1/audit?type=caller.refused&limit=1000")["events"]
    assert f"{persons[0].method} {persons[0].path}" in {
        event["route"] for event in told if event["session"] == opened["id"]
    }


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:65535", "[::1]:443", "LOCALHOST"])
def test_the_cell_socket_accepts_any_loopback_name_in_the_host_header(attendant: Attendant, host: str) -> None:
    """Any port is accepted too, because the cell has a loopback interface of its own."""
    attendant.open()

    assert attendant.ask("GET", "/v1/actions", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"Host": "rebound.example"}, "Host is not localhost"),
        ({"Host": "localhost.evil.example"}, "Host is not localhost"),
        ({"Host": "127.0.0.1.nip.io"}, "Host is not localhost"),
        ({"Origin": "https://evil.example"}, "a page in a browser"),
        ({"Origin": "http://localhost"}, "a page in a browser"),
        ({"Origin": "null"}, "a page in a browser"),
        ({"Sec-Fetch-Site": "cross-site"}, "a page in a browser"),
        ({"Sec-Fetch-Site": "same-origin"}, "a page in a browser"),
    ],
)
def test_a_web_pages_request_on_the_cell_socket_is_refused(
    attendant: Attendant, fields: dict[str, str], reason: str
) -> None:
    """A page would need no token to run actions, so a foreign Origin or a rebound Host name is refused. The same
    request without these headers is served.
    """
    attendant.open()

    refused = run(attendant, headers=fields)

    assert refused.refusal == (401, "unauthorized")
    assert reason in refused.message
    assert run(attendant, headers={"Sec-Fetch-Mode": "cors"}).status == 200  # as node's fetch sends it


def test_concurrent_requests_of_one_cell_are_limited(home: DaemonHome, attendant: Attendant) -> None:
    """The next request gets `busy` while another cell is served; once the waiting requests end, it is served too."""
    attendant.open()
    question = attendant.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}}).body["approval_id"]
    attendant.hold(128, f"/v1/action-approvals/{question}/result?wait=15")

    wait_until(lambda: attendant.ask("GET", "/v1/actions").status != 200, "128 requests are under way")
    refused = attendant.ask("GET", "/v1/actions")
    assert refused.refusal == (429, "busy")
    assert "128 requests of this cell" in refused.message
    with Attendant(home.path) as other:
        other.open()
        assert other.ask("GET", "/v1/actions").status == 200
    attendant.release()
    wait_until(
        lambda: attendant.ask("GET", "/v1/actions").status == 200,
        "the places of those that waited are free",
        within_s=60,
    )


# The end of a session


def test_the_cell_socket_refuses_a_cells_process_after_its_session_ended(
    home: DaemonHome, attendant: Attendant
) -> None:
    """The process may then open another session."""
    opened = attendant.open()
    assert run(attendant).status == 200

    home.must("POST", f"/v1/sessions/{opened['id']}/end", {"exit_code": 0})

    assert run(attendant).refusal == (401, "unauthorized")
    attendant.open()
    assert run(attendant).status == 200


def test_a_cells_waiting_request_is_refused_when_its_session_ends(home: DaemonHome, attendant: Attendant) -> None:
    """The request waits up to a minute for a person's decision, and is refused as soon as the session ends."""
    opened = attendant.open()
    question = attendant.ask("POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}}).body["approval_id"]
    attendant.begin("GET", f"/v1/action-approvals/{question}/result?wait=60")

    home.must("POST", f"/v1/sessions/{opened['id']}/end", {"exit_code": 0})

    assert attendant.answered(within_s=DEADLINE_S).refusal == (401, "unauthorized")
    assert home.must("GET", f"/v1/action-approvals/{question}")["status"] == "pending_approval"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restarted_daemon_still_serves_only_the_cells_process(
    home: DaemonHome, attendant: Attendant, how: str
) -> None:
    """The daemon restores the cell from its record: the cell's process is served, its child is refused."""
    opened = attendant.open(hosts=HOSTS, ask=True)
    assert run(attendant).status == 200

    getattr(home, how)()
    home.unlock()

    assert home.must("GET", f"/v1/sessions/{opened['id']}")["cell"] == {"hosts": HOSTS, "ask": True}
    assert run(attendant).status == 200
    assert run(attendant, by="child").refusal == (401, "unauthorized")


# The gateway

OK = b"HTTP/1.1 200 OK\r\nDate: then\r\nContent-Length: 4\r\n\r\n{  }"


@pytest.fixture
def client(gateway_home: DaemonHome) -> Iterator[Attendant]:
    """Start a process with an open cell."""
    with Attendant(gateway_home.path) as attendant:
        attendant.open()
        yield attendant


def seen(client: Attendant, provider: Provider, path: str, headers: dict[str, str]) -> dict[bytes, list[bytes]]:
    """Send a request and return the fields that the provider saw; check that none has the placeholder, and check the response."""
    client.begin("POST", path, "hi", headers=headers)
    with provider.answering() as upstream:
        head, body = upstream.message()
        upstream.say(OK)
    assert client.answered() == (200, {})
    assert body == b"hi"
    assert CELL_PLACEHOLDER.encode() not in repr(head).encode()
    return {name: head.all(name) for name, _ in head.fields}


@pytest.mark.parametrize(
    "shown",
    [
        {"x-api-key": CELL_PLACEHOLDER},
        {"Authorization": f"Bearer {CELL_PLACEHOLDER}"},
        {"x-api-key": CELL_PLACEHOLDER, "Authorization": f"Bearer {CELL_PLACEHOLDER}"},
        {"x-api-key": "sk-own"},
        {"Authorization": "Basic eDp5"},
        {},
    ],
    ids=["key", "bearer", "both", "another", "basic", "none"],
)
def test_the_vaults_api_key_replaces_any_credential_of_the_client(
    client: Attendant, provider: Provider, shown: dict[str, str]
) -> None:
    """The provider gets the key exactly once, in the header field of its API."""
    fields = seen(client, provider, "/v1/messages", shown)

    assert fields[b"x-api-key"] == [SECRET]
    assert b"authorization" not in fields


@pytest.mark.parametrize("shown", [["x-api-key"], ["x-api-key", "authorization"], []], ids=["one", "two", "none"])
def test_the_vaults_api_key_takes_the_place_of_the_clients_first_credential_header(
    client: Attendant, provider: Provider, shown: list[str]
) -> None:
    """The other headers keep their order; if the client sent no credential, the key comes last."""
    headers = {"a": "1", **dict.fromkeys(shown, CELL_PLACEHOLDER), "z": "1"}

    names = list(seen(client, provider, "/v1/messages", headers))

    assert names[names.index(b"a") :] == ([b"a", b"x-api-key", b"z"] if shown else [b"a", b"z", b"x-api-key"])


def test_a_clients_own_api_key_is_sent_to_the_provider_if_the_vault_has_no_key(
    client: Attendant, provider: Provider
) -> None:
    """The client logged in to the provider with that key itself."""
    fields = seen(client, provider, "/v1/responses", {"Authorization": "Bearer sk-own"})

    assert fields[b"authorization"] == [b"Bearer sk-own"]


def test_no_placeholder_or_session_token_is_sent_to_a_model_provider(
    gateway_home: DaemonHome, client: Attendant, provider: Provider
) -> None:
    """The vault has no key for the provider: a request with either in a header or its URL is refused, even beside a
    real key, and the refusal says which it was.
    """
    other = gateway_home.must("POST", "/v1/sessions", {"agent": "codex", "folder": "/srv"})["token"]

    for word, what in ((CELL_PLACEHOLDER, "the placeholder of a cell"), (other, "a session's token")):
        refused = client.ask("POST", "/v1/responses", "hi", headers={"Authorization": f"Bearer {word}"})
        assert refused.refusal == (401, "unauthorized")
        assert refused.message.startswith(f"{what} is no key of openai and is not sent there: store the key with")
        for path, headers in (
            ("/v1/responses", {"X-Else": word}),
            (f"/v1/responses?key={word}", {"Authorization": "Bearer sk-own"}),
            (f"/v1/messages?key={word}", {"x-api-key": word}),
        ):
            assert client.ask("POST", path, "hi", headers=headers).refusal == (401, "unauthorized"), path
    assert not provider.is_called()


def test_tools_are_injected_only_for_the_cell_whose_session_asked_for_them(
    gateway_home: DaemonHome, provider: Provider, client: Attendant
) -> None:
    """The connection decides: another cell gets no tools, even with the first session's path in its URL."""
    offered = {}
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    with Attendant(gateway_home.path) as injecting:
        session = injecting.open_with(cell={}, inject=True).body
        for name, cell in (("injecting", injecting), ("other", client)):
            cell.begin("POST", "/v1/chat/completions", json.dumps(body))
            with provider.answering() as upstream:
                offered[name] = json.loads(upstream.message()[1]).get("tools")
                upstream.say(OK)
            assert cell.answered() == (200, {})
        refused = client.ask("POST", f"{session['inject_path']}/v1/chat/completions", json.dumps(body))
    assert offered["injecting"][0]["function"]["name"] == "aileron_cancel_action"
    assert offered["other"] is None
    assert refused.refusal == (401, "unauthorized")
    assert not provider.is_called()


def test_only_a_cells_requests_are_sent_with_the_vaults_api_key(
    gateway_home: DaemonHome, client: Attendant, provider: Provider
) -> None:
    """A process without a cell is refused on the cell socket, and a cell's placeholder is refused on the port."""
    assert client.ask("POST", "/v1/messages", "hi", by="child").refusal == (401, "unauthorized")
    with Attendant(gateway_home.path) as other:
        assert other.ask("POST", "/v1/messages", "hi").refusal == (401, "unauthorized")
    port = int(gateway_home.must("GET", "/v1/status")["web"].rpartition(":")[2])
    over_tcp = {"x-api-key": CELL_PLACEHOLDER, "Host": f"localhost:{port}"}
    assert client.ask("POST", "/v1/messages", "hi", at=f"tcp:{port}", headers=over_tcp).refusal == (401, "unauthorized")
    assert not provider.is_called()
    assert seen(client, provider, "/v1/messages", {})[b"x-api-key"] == [SECRET]


def test_a_cells_model_requests_are_refused_while_the_vault_is_locked(
    gateway_home: DaemonHome, client: Attendant, provider: Provider
) -> None:
    """Requests are served again once the vault is unlocked."""
    gateway_home.must("POST", "/v1/vault/lock")
    assert client.ask("POST", "/v1/messages", "hi").refusal == (423, "vault_locked")
    gateway_home.unlock()

    assert seen(client, provider, "/v1/messages", {})[b"x-api-key"] == [SECRET]


def test_a_models_response_is_aborted_when_the_session_ends(
    gateway_home: DaemonHome, client: Attendant, provider: Provider
) -> None:
    """The response has no proper end, so that no client takes it for complete. The upstream connection closes too."""
    (opened,) = [
        session
        for session in gateway_home.must("GET", "/v1/sessions")["sessions"]
        if session["status"] == "open" and session["pid"] == client.pid
    ]
    client.begin("POST", "/v1/messages", "hi")
    with provider.answering() as upstream:
        upstream.message()
        upstream.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n")
        gateway_home.must("POST", f"/v1/sessions/{opened['id']}/end", {"exit_code": 0})

        assert upstream.is_at_end()
        assert client.answered() == (0, "IncompleteRead")


def test_a_websocket_request_on_the_cell_socket_is_refused_with_426(client: Attendant, provider: Provider) -> None:
    """The status is 426, so that a client falls back to HTTP."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}

    refused = client.ask("GET", "/v1/responses", headers={**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})

    assert refused.refusal == (426, "invalid_request")
    assert not provider.is_called()


def test_a_cells_request_does_not_count_towards_the_limit_of_unknown_callers() -> None:
    """Unknown callers get fewer places and shorter timeouts, such as TCP requests without a session."""
    over_tcp = {"type": "http", "state": {"aileron.shows_session": False}}

    assert is_strangers(over_tcp)
    assert not is_strangers(of_cell({"type": "http", "state": {}}, "ses-1"))

"""Runs through the one door, with a real daemon, real jails and a real upstream."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.home import PROBE, DaemonHome, daemon_home, other_probe, probe_action
from tests.support.probed import lend_probe
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

LEFT_ALONE = "/v1/audit?action=left-alone"


def test_a_run_keeps_the_types_of_its_arguments_and_returns_the_result(home: DaemonHome) -> None:
    """The operation gets the JSON arguments as declared, and its output is the result."""
    home.add_probe_action("give_back", "text:string", "number:integer?", "flag:boolean?", "share:number?")

    answer = home.run("give-back", {"text": "grüße ☃", "number": 7, "flag": True, "share": 0.5})

    assert answer.status == 200
    assert answer.body["result"] == {"text": "grüße ☃", "number": 7, "flag": True, "share": 0.5}
    assert [event["type"] for event in home.events(answer.body["audit_id"])] == [
        "run.requested",
        "run.started",
        "run.finished",
    ]


def test_a_request_is_recorded_before_it_is_sent_with_the_credential(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The upstream sees the password, the record only the binding's name, and the caller neither."""
    home.add_probe_action("fetch", "path:string?", "with_credential:boolean?")

    answer = home.run("fetch", {"path": "/hello?secret=1", "with_credential": True})

    assert answer.body["result"] == {"status": 200, "body": "hello"}
    assert upstream.requests[-1] == ("GET", "/hello?secret=1", "Basic bWlyYTpodW50ZXIyLWh1bnRlcjI=")
    sending = next(event for event in home.events(answer.body["audit_id"]) if event["type"] == "egress.sending")
    assert (sending["path"], sending["credential"]) == ("/hello", "basic/probe/me")


@pytest.mark.parametrize(
    ("op", "args", "destination"),
    [
        ("reach", {"host": "93.184.216.34", "port": 443}, "93.184.216.34:443"),
        ("reach", {"host": "2001:db8::1", "port": 443}, "[2001:db8::1]:443"),
        ("reach", {"host": "evil.example.com", "port": 443}, "evil.example.com:443"),
        ("reach_at_last", {"port": 444}, "93.184.216.34:444"),
    ],
)
def test_a_connector_that_bypasses_the_supervisor_is_ended_and_recorded(
    home: DaemonHome, op: str, args: dict[str, object], destination: str
) -> None:
    """The error, of class capability_denied, and the record name the destination, also after the connector's last frame."""
    inputs = [f"{name}:{'integer' if name == 'port' else 'string'}" for name in args]
    home.add_probe_action(op, *inputs, name=f"{op.replace('_', '-')}-{len(inputs)}")

    answer = home.run(f"{op.replace('_', '-')}-{len(inputs)}", args)

    error = answer.body["error"]
    assert (error["class"], error["details"].get("reason")) == ("capability_denied", "system_call"), error
    assert error["requested"] == f"network:{destination}"
    assert [granted.partition(":")[0] for granted in error["granted"]] == ["network"], "the host it may ask for"
    denied = next(event for event in home.events(error["audit_id"]) if event["type"] == "egress.denied")
    assert (denied["request"], denied["destination"], denied["reason"]) == (0, destination, "system_call")


def test_a_connector_that_only_checks_for_a_network_is_not_ended(home: DaemonHome) -> None:
    """Positive control: the probe for IPv6 is refused, and the operation still returns."""
    home.add_probe_action("look_for_a_network")

    assert home.run("look-for-a-network", {}).body["result"] == "Permission denied"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "text"),
        ({"text": 3}, "text"),
        ({"text": "a", "number": "1"}, "number"),
        ({"text": "a", "number": True}, "number"),
        ({"text": "a", "numbr": 1}, "numbr"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_runs(home: DaemonHome, args: dict[str, object], words: str) -> None:
    """The error names the argument, and the record has nothing but one run.refused."""
    home.add_probe_action("give_back", "text:string", "number:integer?", name="strict")

    answer = home.run("strict", args)

    assert (answer.status, answer.body["error"]["class"]) == (422, "bad_input")
    assert words in answer.body["error"]["message"]
    assert [event["type"] for event in home.events(answer.body["error"]["audit_id"])] == ["run.refused"]


def test_a_request_to_an_undeclared_host_ends_the_run(home: DaemonHome) -> None:
    """The request is denied before a DNS lookup; the error names the requested host and the granted ones."""
    home.add_probe_action("fetch_url", "url:string")
    with CountingServer() as elsewhere:
        denied = home.run("fetch-url", {"url": f"http://localhost:{elsewhere.port}/"})

        error = denied.body["error"]
        assert (denied.status, error["class"]) == (403, "capability_denied")
        assert error["requested"] == f"network:localhost:{elsewhere.port}"
        assert error["connector"] == "github://aileron-tests/probe@1.0.0"
        assert elsewhere.requests == []
    assert error["granted"] == [f"network:{host}" for host in home.must("GET", "/v1/actions/fetch-url")["hosts"]]
    events = home.events(error["audit_id"])
    assert [event["type"] for event in events] == ["run.requested", "run.started", "egress.denied", "run.finished"]
    assert (events[2]["destination"], events[2]["reason"]) == (f"localhost:{elsewhere.port}", "host_not_granted")


def test_a_step_that_records_more_than_256_facts_is_ended(home: DaemonHome) -> None:
    """A step can record 256 facts; one more ends it with the limit's name."""
    home.add_probe_action("claim", "times:integer")

    enough, more = home.run("claim", {"times": 256}), home.run("claim", {"times": 257})

    assert enough.status == 200
    assert (more.status, more.body["error"]["class"]) == (422, "resource_limit_exceeded")
    assert more.body["error"]["details"]["limit"] == "audit_events"
    for answer in (enough.body, more.body["error"]):
        kinds = [event["type"] for event in home.events(answer["audit_id"])]
        assert kinds.count("connector.audit") == 256


@pytest.mark.parametrize(
    ("args", "expected", "detail"),
    [
        ({"failure": "ExternalApiError", "status": 404}, (502, "external_api_error"), ("status", 404)),
        ({"failure": "made_up"}, (502, "connector_runtime_error"), ("connector_class", "missing_scope")),
        ({"failure": "bug"}, (502, "connector_runtime_error"), ("step", "step")),
    ],
)
def test_a_connectors_failure_gets_a_failure_class_of_the_closed_list(
    home: DaemonHome, args: dict[str, object], expected: tuple[int, str], detail: tuple[str, object]
) -> None:
    """An unknown class becomes connector_runtime_error, with its own name in the details."""
    home.add_probe_action("fail_as", "failure:string?", "status:integer?")

    answer = home.run("fail-as", args)

    assert (answer.status, answer.body["error"]["class"]) == expected
    assert answer.body["error"]["details"][detail[0]] == detail[1]


@pytest.mark.parametrize(
    ("op", "words"),
    [("leave", "exited with status 3"), ("write_raw", "violated the frame protocol"), ("close_frames", "kept running")],
)
def test_a_connector_that_breaks_the_frame_protocol_is_ended(home: DaemonHome, op: str, words: str) -> None:
    """An exit without a result, garbage on the pipe and a closed pipe each have their own message."""
    home.add_probe_action(op)

    answer = home.run(op.replace("_", "-"))

    assert (answer.status, answer.body["error"]["class"]) == (502, "connector_runtime_error")
    assert words in answer.body["error"]["message"]


def test_the_log_of_a_failed_run_reaches_the_caller(home: DaemonHome) -> None:
    """A run that ended without a result has the tail of its log in the error's details."""
    home.add_probe_action("leave", name="last-words")

    answer = home.run("last-words")

    assert "some last words" in answer.body["error"]["details"]["log"]


def test_a_connector_can_cancel_requests_in_the_middle_of_a_response(home: DaemonHome) -> None:
    """Twenty large responses are cancelled half-way: no frame is cut, and the next request works."""
    home.add_probe_action("take_some", "times:integer?")
    home.add_probe_action("leave_unread")

    assert home.run("take-some").body["result"] == {"begun": 20, "body": "hello"}
    assert home.run("leave-unread").body["result"] == "done"


def test_a_run_that_exceeds_its_memory_limit_is_ended(home: DaemonHome) -> None:
    """The limit is 64 MiB: 512 MiB end the run with an error that names it, and 8 MiB are fine."""
    home.add_probe_action("hoard", "megabytes:integer")

    too_much, fine = home.run("hoard", {"megabytes": 512}), home.run("hoard", {"megabytes": 8})

    assert (too_much.status, too_much.body["error"]["details"]["limit"]) == (422, "memory")
    assert fine.body["result"] == 8 << 20


@pytest.mark.slow
def test_a_run_that_exceeds_its_timeout_is_ended(home: DaemonHome) -> None:
    """The manifest's timeout_s is 10, and the connector sleeps longer; the error names the limit."""
    home.add_probe_action("linger")

    answer = home.run("linger")

    assert (answer.status, answer.body["error"]["class"]) == (422, "resource_limit_exceeded")
    assert answer.body["error"]["details"]["limit"] == "wall"


def test_a_transient_failure_is_retried_only_if_the_step_is_idempotent(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The step fails with 503 each time: if idempotent, it is retried two or three times; otherwise it fails at the first try."""
    home.add_probe_action("effect", "path:string?", name="careless", idempotent=False)
    home.add_probe_action("fail_as", "status:integer?", name="try-again", idempotent=True)
    home.add_probe_action("fail_as", "status:integer?", name="never-again", idempotent=False)

    again, never = home.run("try-again", {"status": 503}), home.run("never-again", {"status": 503})

    assert again.body["error"]["details"]["retried"] == 2 or again.body["error"]["details"]["retried"] == 3
    retried = [event for event in home.events(again.body["error"]["audit_id"]) if event["type"] == "run.retried"]
    assert len(retried) == again.body["error"]["details"]["retried"]
    assert "retried" not in never.body["error"]["details"]
    assert never.body["error"]["retriable"] is False


def test_all_tries_of_a_step_share_an_idempotency_key(home: DaemonHome) -> None:
    """A service can use the key to recognize a repeated request. Other runs have other keys, even with the same arguments."""
    home.add_probe_action("tell_key", "flag:boolean?", idempotent=True)

    failed = home.run("tell-key", {"flag": True}).body["error"]
    others = [home.run("tell-key").body["result"]["key"] for _ in range(2)]

    tries = [event["fields"]["key"] for event in home.events(failed["audit_id"]) if event["type"] == "connector.audit"]
    assert len(tries) == 1 + failed["details"]["retried"] > 1
    assert len({*tries, *others}) == 3


def test_a_gated_action_waits_for_approval_without_running(home: DaemonHome, upstream: CountingServer) -> None:
    """The caller gets 202 at once; the frozen plan is on record, and nothing has an effect."""
    home.add_probe_action("effect", name="gated-effect", gated=True)
    before = upstream.effects

    answer = home.run("gated-effect")

    assert (answer.status, answer.body["status"]) == (202, "pending_approval")
    assert upstream.effects == before
    shown = home.must("GET", f"/v1/action-approvals/{answer.body['approval_id']}")
    assert shown["plan"]["action"] == "gated-effect"
    result = home.must("GET", f"/v1/action-approvals/{answer.body['approval_id']}/result")
    assert result["status"] == "pending_approval"
    types = [event["type"] for event in home.events(answer.body["audit_id"])]
    assert types == ["run.requested", "approval.requested"]


def test_a_caller_that_does_not_wait_can_read_the_outcome_later(home: DaemonHome) -> None:
    """The response is 202 with status running and the run's id."""
    home.add_probe_action("linger", "seconds:number?", name="linger-shortly")

    answer = home.run("linger-shortly", {"seconds": 0.3}, wait=0.0)

    assert (answer.status, answer.body["status"]) == (202, "running")
    later = home.must("GET", f"/v1/runs/{answer.body['run_id']}?wait=10", wait_s=10)
    assert later["status"] == "completed"


def test_two_requests_with_the_same_idempotency_key_cause_one_run(home: DaemonHome, upstream: CountingServer) -> None:
    """The effect happens once; different arguments with the same key are a conflict."""
    home.add_probe_action("effect", "path:string?", name="once")
    before = upstream.effects
    key = {"Idempotency-Key": "k-1"}

    first, second = home.run("once", headers=key), home.run("once", headers=key)
    other = home.run("once", {"path": "/other"}, headers=key)

    assert first.body == second.body
    assert upstream.effects == before + 1
    assert (other.status, other.body["error"]["class"]) == (409, "idempotency_conflict")


def test_a_dry_run_shows_the_plan_and_has_no_effect(home: DaemonHome, upstream: CountingServer) -> None:
    """The plan has the credential's identity and a digest."""
    home.add_probe_action("effect", name="dry")
    before = upstream.effects

    plan = home.must("POST", "/v1/actions/dry/run", {"args": {}, "dry_run": True})["plan"]

    assert plan["steps"][0]["grant"]["credential"]["binding"] == {"kind": "basic", "service": "probe", "identity": "me"}
    assert plan["digest"].startswith("sha256:")
    assert upstream.effects == before


def test_the_agent_socket_runs_actions_but_refuses_operator_routes(home: DaemonHome) -> None:
    """An action runs on the agent socket, which refuses the operator's routes."""
    home.add_probe_action("give_back", "text:string", name="for-agents")

    ran = home.agent.ask("POST", "/v1/actions/for-agents/run", {"args": {"text": "hi"}})
    denied = home.agent.ask("POST", "/v1/vault/lock")
    unseen = home.agent.ask("GET", "/v1/audit")

    assert ran.body["result"]["text"] == "hi"
    assert (denied.status, denied.body["error"]["class"]) == (401, "unauthorized")
    assert unseen.status == 401
    assert home.must("GET", "/v1/vault/status")["locked"] is False


def test_a_run_that_needs_a_locked_vault_is_refused_before_it_starts(bare_home: DaemonHome) -> None:
    """The error is 423 and names the command; after unlocking, the same run works."""
    lend_probe(bare_home)
    bare_home.add_probe_action("give_back", "text:string")
    bare_home.must("POST", "/v1/vault/lock")

    locked = bare_home.run("give-back", {"text": "a"})
    bare_home.unlock()

    assert (locked.status, locked.body["error"]["class"]) == (423, "vault_locked")
    assert "aileron vault unlock" in locked.body["error"]["message"]
    assert bare_home.run("give-back", {"text": "a"}).status == 200


def test_a_connector_with_changed_bytes_does_not_run(bare_home: DaemonHome) -> None:
    """The run fails with hash_mismatch and has no start on record; it worked before the change."""
    lend_probe(bare_home)
    bare_home.add_probe_action("give_back", "text:string")
    assert bare_home.run("give-back", {"text": "a"}).status == 200
    program = next((bare_home.path / "store" / "connectors" / "sha256").glob("*/connector"))
    data = bytearray(program.read_bytes())
    data[len(data) // 2] ^= 1
    program.chmod(0o600)
    program.write_bytes(data)

    answer = bare_home.run("give-back", {"text": "a"})

    assert (answer.status, answer.body["error"]["class"]) == (409, "hash_mismatch")
    assert [event["type"] for event in bare_home.events(answer.body["error"]["audit_id"])] == ["run.refused"]


def test_running_a_missing_action_or_connector_fails_with_not_found(bare_home: DaemonHome) -> None:
    """The error for a missing connector names the command that installs it."""
    lend_probe(bare_home)
    bare_home.add_probe_action("give_back", "text:string")
    installed = bare_home.must("GET", "/v1/connectors")["connectors"][0]
    bare_home.must("DELETE", f"/v1/connectors/{installed['hash']}")

    unknown, gone = bare_home.run("nothing-like-it"), bare_home.run("give-back", {"text": "a"})

    assert (unknown.status, gone.status) == (404, 404)
    assert "is not installed: aileron sync" in gone.body["error"]["message"]


def test_a_disabled_action_does_not_run(home: DaemonHome) -> None:
    """The run gets 409 while the action is disabled, and 200 once it is enabled again."""
    home.add_probe_action("give_back", "text:string", name="switched")
    home.must("PATCH", "/v1/actions/switched", {"enabled": False})

    off = home.run("switched", {"text": "a"})
    home.must("PATCH", "/v1/actions/switched", {"enabled": True})

    assert (off.status, off.body["error"]["class"]) == (409, "action_disabled")
    assert home.run("switched", {"text": "a"}).status == 200


def test_two_daemons_never_serve_one_home(bare_home: DaemonHome) -> None:
    """A second start finds the first daemon, and the pid stays."""
    bare_home.must("GET", "/healthz")
    first = bare_home.daemon_pid

    bare_home.operator.start()

    assert bare_home.daemon_pid == first


def test_concurrent_callers_get_their_own_results(home: DaemonHome) -> None:
    """Thirty concurrent runs are not confused with each other."""
    home.add_probe_action("give_back", "text:string", name="parallel")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: home.run("parallel", {"text": f"t{number}"}), range(30)))

    assert [answer.body["result"]["text"] for answer in answers] == [f"t{number}" for number in range(30)]


def test_a_stopping_daemon_records_interrupted_runs_as_unknown() -> None:
    """A run in progress when the daemon stops is unknown afterwards and is not repeated; the stopping daemon records it."""
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("linger")
        run_id = home.run("linger", wait=0.0).body["run_id"]

        home.stop()

        found = home.must("GET", f"/v1/runs/{run_id}")
        assert found["status"] == "unknown"
        assert "the daemon stopped while it ran" in found["error"]["message"]
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified


def test_installing_different_bytes_of_an_installed_version_needs_an_explicit_option(bare_home: DaemonHome) -> None:
    """The error names the options, to keep both or to replace; each of them works."""
    bare_home.install_probe("localhost:1")
    archive = str(bare_home.path / "built.tar.gz")
    first = bare_home.must("GET", "/v1/connectors")["connectors"][0]["hash"]
    (bare_home.path / "built.tar.gz").write_bytes(other_probe("localhost:2"))

    refused = bare_home.ask("POST", "/v1/connectors", {"path": archive})
    kept = bare_home.must("POST", "/v1/connectors", {"path": archive, "on_conflict": "keep_both"})
    both = bare_home.must("GET", "/v1/connectors")["connectors"]
    (bare_home.path / "built.tar.gz").write_bytes(other_probe("localhost:3"))
    replaced = bare_home.must("POST", "/v1/connectors", {"path": archive, "on_conflict": "replace"})

    assert (refused.status, refused.body["error"]["class"]) == (409, "hash_mismatch")
    assert "repeat the command with --replace or --keep-both" in refused.body["error"]["message"]
    assert {entry["hash"] for entry in both} == {first, kept["hash"]}
    assert sorted(replaced["replaced"]) == sorted([first, kept["hash"]])
    assert [entry["hash"] for entry in bare_home.must("GET", "/v1/connectors")["connectors"]] == [replaced["hash"]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (rb'{"args": {"to": ["x", "s3cret\ud83d"]}}', "args.to[1] has half of a character"),
        (b'{"args": {"n": NaN}}', "args.n is no number that JSON can carry"),
        (b'{"args": {"n": 9007199254740993}}', "n is an integer of 2**53 or more"),
        (b'{"args": {"n": 7}', "the body is not JSON"),
    ],
)
def test_the_error_for_an_invalid_json_body_names_the_place_but_not_the_value(
    home: DaemonHome, body: bytes, words: str
) -> None:
    """The value may be a secret."""
    home.add_probe_action("give_back", "number:integer?", name="give-number")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(30)
        caller.connect(str(home.path / "run" / "agent.sock"))
        caller.sendall(
            b"POST /v1/actions/give-number/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Idempotency-Key: k\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        said = b"".join(iter(lambda: caller.recv(65536), b"")).decode()
    assert said.startswith(("HTTP/1.1 400", "HTTP/1.1 422"))
    assert words in said
    assert "s3cret" not in said


def test_a_run_continues_after_its_caller_disconnects(home: DaemonHome, upstream: CountingServer) -> None:
    """The connection closes before the response; the run still has its effect."""
    home.add_probe_action("effect", "path:string?", name="left-alone")
    before = upstream.effects
    body = b'{"args": {}}'
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(home.path / "run" / "agent.sock"))
        caller.sendall(
            b"POST /v1/actions/left-alone/run?wait=60 HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: left\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        while not any(event["type"] == "run.requested" for event in home.must("GET", LEFT_ALONE)["events"]):
            pass

    later = home.run("left-alone", headers={"Idempotency-Key": "left"})

    assert (later.status, later.body["result"]["body"]) == (200, "done")
    assert upstream.effects == before + 1


def test_a_request_that_repeats_an_idempotency_key_waits_for_the_run_in_progress(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The second caller gets the outcome of the first one's run, or at its timeout that it is still running."""
    home.add_probe_action("fetch", "path:string", name="fetch-once")
    key = {"Idempotency-Key": "held"}
    with ThreadPoolExecutor(1) as pool:
        with upstream.holding():
            first = home.run("fetch-once", {"path": "/held"}, wait=0, headers=key)
            at_once = home.run("fetch-once", {"path": "/held"}, wait=0, headers=key)
            waiting = pool.submit(home.run, "fetch-once", {"path": "/held"}, wait=20, headers=key)
        waited = waiting.result()

    assert (first.body["status"], at_once.body["status"]) == ("running", "running")
    assert at_once.body["run_id"] == first.body["run_id"] == waited.body["audit_id"]
    assert waited.status == 200


def test_simultaneous_requests_with_the_same_idempotency_key_cause_one_run(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """Eight callers cause one effect, and all of them get its result."""
    home.add_probe_action("effect", "path:string?", name="once-at-once")
    before = upstream.effects
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: home.run("once-at-once", headers={"Idempotency-Key": "now"}), range(8)))

    assert {answer.status for answer in answers} == {200}
    assert len({answer.body["audit_id"] for answer in answers}) == 1
    assert upstream.effects == before + 1


def test_steps_run_in_order_and_stop_at_the_first_failure(home: DaemonHome, upstream: CountingServer) -> None:
    """The action has three steps; if the middle one fails, the third never begins."""
    steps = 'id = "{0}"\nconnector = "' + PROBE + '"\nop = "{1}"\n'
    head = probe_action("effect", name="in-order").partition("[[execute]]")
    requires = head[0].replace('capabilities = ["effect"]', 'capabilities = ["effect", "fail_as", "give_back"]')
    body = "+++" + head[2].partition("+++")[2]
    middle = "[[execute]]\n" + steps.format("second", "{op}")
    text = (
        requires + "[[execute]]\n" + steps.format("first", "effect") + middle
        + "[[execute]]\n" + steps.format("third", "effect") + body
    )  # fmt: skip
    for name, op in (("in-order", "give_back"), ("in-order-failing", "fail_as")):
        added = text.replace("{op}", op).replace('name = "in-order"', f'name = "{name}"', 1)
        home.must("POST", "/v1/actions", {"text": added, "file": "a test"})
    before = upstream.effects

    whole = home.run("in-order")
    counted = upstream.effects
    failed = home.run("in-order-failing")

    assert (whole.status, counted - before) == (200, 2)
    assert (failed.body["error"]["class"], failed.body["error"]["details"]["step"]) == ("external_api_error", "second")
    assert upstream.effects == counted + 1
    started = [
        event["step"] for event in home.events(failed.body["error"]["audit_id"]) if event["type"] == "run.started"
    ]
    assert started == ["first", "second"]


@pytest.mark.slow
def test_a_request_whose_body_never_arrives_times_out(home: DaemonHome) -> None:
    """Half of the body arrives: nothing runs, and another caller is answered meanwhile."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(30)
        caller.connect(str(home.path / "run" / "agent.sock"))
        caller.sendall(b'POST /v1/actions/x/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{"args"')
        assert home.must("GET", "/healthz") == {"status": "ok"}

        answer = b""
        while not answer.endswith(b"}}") and (more := caller.recv(65536)):
            answer += more

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"did not arrive" in answer


def test_the_daemon_raises_its_own_limit_of_open_files(home: DaemonHome) -> None:
    """The soft limit becomes what the machine allows, up to a bound; a shell's limit would be too low."""
    limits = Path(f"/proc/{home.daemon_pid}/limits").read_text(encoding="ascii")
    soft, hard = next(line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files"))

    assert int(soft) >= min(int(hard), 16384)


def test_an_unknown_route_is_not_found(home: DaemonHome) -> None:
    """A path without a route, a name with a slash in it, and a method that a route lacks get the usual error."""
    answers = [
        home.ask("GET", "/v1/nowhere"),
        home.ask("POST", "/v1/actions/a%2Fb/run", {"args": {}}),
        home.ask("DELETE", "/v1/approver"),
    ]

    assert [(answer.status, answer.body["error"]["class"]) for answer in answers] == [(404, "not_found")] * 3

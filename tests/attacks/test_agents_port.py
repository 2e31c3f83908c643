"""Attacks over TCP: other spellings of a path, other ways to show a token, web pages, other users of the machine.

Real daemons and raw requests; each denial stands beside a request that is served. If root runs the tests, the other user is
one that owns nothing; else it is a process of the same user, for whom the bounds are the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aileron.ingress.connection_places import MAX_CONNECTIONS
from tests.attacks.tally import Attack
from tests.support.home import DaemonHome, asking_home
from tests.support.paged import port_of
from tests.support.reused import reused
from tests.support.told import begun_session
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
DEADLINE_S: Final = 30.0
_NOBODY: Final = 65534
_BUSYBODY: Final = """
import select, socket, sys, time
port, first = int(sys.argv[1]), sys.argv[2].encode("latin-1").decode("unicode_escape").encode("latin-1")
coming, open_ = {}, []
for number in range(1000):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", port))
    coming[one.fileno()] = one
until = time.monotonic() + 5
while coming and time.monotonic() < until:
    watch = select.poll()
    for number in coming:
        watch.register(number, select.POLLOUT)
    for number, _ in watch.poll(100):
        one = coming.pop(number)
        try:
            one.send(first)
        except OSError:
            pass
        open_.append(one)
print(len(open_), flush=True)
sys.stdin.readline()
"""
"""Program that opens a thousand connections at once, each with the beginning of a request, and holds them until told to end."""


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """A home with an action that runs at once and one that asks. The providers' names are not looked up: nobody is at port 1."""
    with asking_home(
        'gateway.upstreams = {anthropic.url = "http://127.0.0.1:1", openai.url = "http://127.0.0.1:1"}'
    ) as made:
        yield made


def request(home: DaemonHome, line: str, *fields: str, token: str | None = None, body: bytes = b"") -> bytes:
    """Return the bytes of a request, the last on its connection."""
    head = [f"{line} HTTP/1.1", f"Host: localhost:{port_of(home)}", "Connection: close", *fields]
    head += [f"Authorization: Bearer {token}"] if token else []
    head += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def answers(home: DaemonHome, said: bytes) -> bytes:
    """Send bytes, and return the whole response."""
    with socket.create_connection(("127.0.0.1", port_of(home)), timeout=DEADLINE_S) as connection:
        connection.sendall(said)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def answers_to_two(home: DaemonHome, said: bytes, then: bytes) -> bytes:
    """Send two requests on one connection, the second after the first response. Return both responses."""

    def answered() -> bytes:
        with socket.create_connection(("127.0.0.1", port_of(home)), timeout=DEADLINE_S) as connection:
            connection.sendall(said)
            first = connection.recv(65536)
            connection.sendall(then)
            second = b"".join(iter(lambda: connection.recv(65536), b""))
            if not second:
                raise ConnectionResetError(f"the connection ended after {first!r}")
            return first + second

    return reused(answered)


def status(home: DaemonHome, said: bytes) -> int:
    """Send bytes, and return the status of the first response."""
    return int(answers(home, said).split(b" ")[1])


@pytest.mark.abuse_case("A11")
def test_no_spelling_of_a_path_on_the_agent_socket_reaches_an_operator_route(home: DaemonHome, attack: Attack) -> None:
    """A path that is encoded, doubled, relative, absolute, sent by another method or named in a field is refused or not found."""
    token = begun_session(home)["token"]
    port = port_of(home)
    record = json.dumps(home.must("GET", "/v1/audit")["events"][0]["hash"])
    paths = (
        "/v1/audit",
        "//v1/audit",
        "/v1//audit",
        "/v1/%61udit",
        "/v1%2faudit",
        "/V1/audit",
        "/v1/audit/",
        "/v1/audit;x",
        "/v1/audit#x",
        "/v1/audit?scope=operator",
        "/v1/actions/../audit",
        "/v1/actions/%2e%2e/audit",
        "/v1/actions/%252e%252e/audit",
        "/mcp/../v1/audit",
        "/v1/messages/../audit",
        "/v1/messages/..;/audit",
        "/v1/messages%2f..%2faudit",
        "/approvals/../v1/audit",
        f"http://localhost:{port}/v1/audit",
        "http://operator/v1/audit",
        "*",
    )
    for path in paths:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "TRACE"):
            said = answers(home, request(home, f"{method} {path}", token=token))
            attack.denied(f"{method} {path}", {307, 400, 401, 404, 405}, int(said.split(b" ")[1]))
            assert record.encode() not in said
    for field in ("X-HTTP-Method-Override: DELETE", "X-Original-URL: /v1/audit", "X-Rewrite-URL: /v1/audit"):
        said = answers(home, request(home, "GET /v1/actions", field, token=token))
        attack.denied(field, True, b'{"actions":' in said)
    attack.control("an agent's own route", 200, status(home, request(home, "GET /v1/actions", token=token)))
    attack.control("the person's socket", 200, home.ask("GET", "/v1/audit").status)


@pytest.mark.abuse_case("A11")
def test_a_refused_route_is_recorded_with_its_session(home: DaemonHome, attack: Attack) -> None:
    """The record has the number of refusals and the session that caused them."""
    begun = begun_session(home)
    for _ in range(3):
        refused = status(home, request(home, "GET /v1/secrets", token=begun["token"]))
        attack.denied("the names of secrets", 401, refused)
    home.must("GET", "/v1/audit/verify")
    found = home.must("GET", "/v1/audit?type=caller.refused&limit=200")["events"]
    (kept,) = [event for event in found if event["route"] == "GET /v1/secrets" and event["session"] == begun["id"]]
    attack.control("what the record says", ("agent", True), (kept["scope"], kept["count"] >= 1))


@pytest.mark.abuse_case("A12")
def test_a_session_token_is_accepted_only_in_the_authorization_field(home: DaemonHome, attack: Attack) -> None:
    """A token in a query, a cookie, two fields or another scheme is refused, and so is an unknown token."""
    token, other = begun_session(home)["token"], begun_session(home)["token"]
    shown = {
        "in the query": request(home, f"GET /v1/actions?token={token}&access_token={token}"),
        "as a cookie": request(home, "GET /v1/actions", f"Cookie: token={token}"),
        "as a key": request(home, "GET /v1/actions", f"x-api-key: {token}"),
        "twice": request(home, "GET /v1/actions", f"Authorization: Bearer {token}", token=token),
        "two": request(home, "GET /v1/actions", f"Authorization: Bearer {other}", token=token),
        "a good one and one that is none": request(home, "GET /v1/actions", "Authorization: Bearer x", token=token),
        "as a password": request(home, "GET /v1/actions", f"Authorization: Basic {token}"),
        "without a scheme": request(home, "GET /v1/actions", f"Authorization: {token}"),
        "cut short": request(home, "GET /v1/actions", token=token[:-1]),
        "too long": request(home, "GET /v1/actions", token=token + "A"),
        "empty": request(home, "GET /v1/actions", "Authorization: Bearer "),
        "of nobody": request(home, "GET /v1/actions", token="ail_" + "A" * 43),
        "none": request(home, "GET /v1/actions"),
        "to mcp, in the query": request(home, f"POST /mcp?token={token}", body=b"{}"),
        "after a request that showed one": request(home, "GET /v1/actions"),
    }
    attack.all_denied("a token", 401, {which: status(home, said) for which, said in shown.items()})
    first = request(home, "GET /v1/actions", token=token).replace(b"Connection: close\r\n", b"")
    both = answers_to_two(home, first, request(home, "GET /v1/actions"))
    attack.denied("a second request of a connection that showed one", ["200", "401"], statuses(both))
    attack.control("once, as it must be", 200, status(home, request(home, "GET /v1/actions", token=token)))


@pytest.mark.abuse_case("A13")
def test_a_session_cannot_reach_another_sessions_runs_by_their_ids(home: DaemonHome, attack: Attack) -> None:
    """Another session's ids of runs, questions and idempotency keys look exactly like unknown ones."""
    mine, other = begun_session(home), begun_session(home)
    run = "POST /v1/actions/give-back/run"
    body = b'{"args":{"text":"of one session"}}'
    key = "Idempotency-Key: the-same-key"
    first = json.loads(answers(home, request(home, run, key, token=mine["token"], body=body)).partition(b"\r\n\r\n")[2])
    asked = json.loads(
        answers(home, request(home, "POST /v1/actions/ask-first/run?wait=0", token=mine["token"], body=body)).partition(
            b"\r\n\r\n"
        )[2]
    )
    wanted = [first["audit_id"], asked["audit_id"], asked["approval_id"]]
    wanted += [
        asked["approval_id"].replace("act-", "run-"),
        asked["audit_id"].replace("run-", "act-"),
        asked["approval_id"].upper(),
        f"{asked['approval_id']}%00",
        f"x%2f{asked['approval_id']}",
        "act-",
        "%",
        "_",
        "*",
    ]
    for name in wanted:
        for line in (
            f"GET /v1/runs/{name}",
            f"GET /v1/action-approvals/{name}/result",
            f"POST /v1/action-approvals/{name}/cancel",
        ):
            got = status(home, request(home, line, token=other["token"]))
            attack.denied(f"{line} by another session", {400, 404}, got)
        answered = request(
            home, f"POST /v1/action-approvals/{name}/answer", token=other["token"], body=b'{"answer":"x"}'
        )
        attack.denied(f"an answer to {name}", {400, 404}, status(home, answered))
    again = answers(home, request(home, run, key, token=other["token"], body=body))
    attack.denied("its answer under its key", True, first["audit_id"].encode() not in again)

    repeated = answers(home, request(home, run, key, token=mine["token"], body=body))
    attack.control("the key, for who took it", True, first["audit_id"].encode() in repeated)
    cancel = request(home, f"POST /v1/action-approvals/{asked['approval_id']}/cancel", token=mine["token"])
    attack.control("its own question", 200, status(home, cancel))


@pytest.mark.abuse_case("A13")
def test_an_ended_sessions_token_cannot_read_its_question_which_a_person_can_still_decide(
    home: DaemonHome, attack: Attack
) -> None:
    """The ended session's token no longer works. A person can still decide, and the run belongs to that session."""
    begun = begun_session(home)
    body = b'{"args":{"text":"x"}}'
    ask = request(home, "POST /v1/actions/ask-first/run?wait=0", token=begun["token"], body=body)
    asked = json.loads(answers(home, ask).partition(b"\r\n\r\n")[2])
    home.must("POST", f"/v1/sessions/{begun['id']}/end", {})
    path = f"/v1/action-approvals/{asked['approval_id']}"
    attack.all_denied(
        "a session that ended",
        401,
        {
            line: status(home, request(home, line, token=begun["token"]))
            for line in (
                f"GET {path}/result",
                f"POST {path}/cancel",
                f"GET /v1/runs/{asked['audit_id']}",
                "GET /v1/actions",
            )
        },
    )
    digest = home.must("GET", path)["digest"]
    home.must("POST", f"{path}/decide", {"decision": "approve", "digest": digest})
    attack.control("the person's decision", "completed", home.result(asked)["status"])
    attack.control("as whom it ran", begun["id"], home.events(asked["audit_id"])[0]["session"])


@pytest.mark.abuse_case("A14")
def test_a_web_page_of_another_origin_is_refused(home: DaemonHome, attack: Attack) -> None:
    """Every route refuses it by its origin, by the browser's fetch metadata if there is no origin, and under a rebound name."""
    token = begun_session(home)["token"]
    port = port_of(home)
    form = ("Content-Type: text/plain", "Content-Length: 2")
    pages = {
        "another site": ("Origin: http://evil.example", *form),
        "a sandboxed frame": ("Origin: null", *form),
        "another port of this machine": ("Origin: http://localhost:1", *form),
        "a name that begins alike": (f"Origin: http://localhost:{port}.evil.example", *form),
        "another scheme": (f"Origin: https://localhost:{port}", *form),
        "no origin": ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", *form),
        "a form that became the page": (
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Mode: navigate",
            "Sec-Fetch-Dest: document",
            *form,
        ),
        "another port, no origin": ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors", *form),
    }
    routes = (
        "POST /mcp",
        "POST /v1/actions/give-back/run",
        "POST /v1/messages",
        "POST /v1/chat/completions",
        "OPTIONS /v1/messages",
        "POST /approvals",
        "POST /healthz",
        "POST /nowhere",
    )
    for page, fields in pages.items():
        for line in routes:
            said = answers(home, request(home, line, *fields, token=token) + b"{}")
            attack.denied(f"{line} by {page}", 403, int(said.split(b" ")[1]))
            assert b"access-control-allow" not in said.lower()
    for name in (f"evil.example:{port}", f"localhost:{port}.evil.example", f"localhost:{port + 1}", "localhost", ""):
        said = request(home, "GET /healthz").replace(f"localhost:{port}".encode(), name.encode())
        attack.denied(f"as {name!r}", 403, status(home, said))
    shown = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe")
    attack.denied("in a frame", 403, status(home, request(home, "GET /approvals", *shown)))

    link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    for path in ("/v1/models", "/v1/messages/x", "/mcp", "/v1/actions", "/inject/x/v1/models"):
        attack.denied(f"a link to {path}", 403, status(home, request(home, f"GET {path}", *link, token=token)))
        for dest in ("document", "script", "iframe", "serviceworker"):
            typed = ("Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", f"Sec-Fetch-Dest: {dest}")
            attack.denied(
                f"{path} typed, as {dest}", 403, status(home, request(home, f"GET {path}", *typed, token=token))
            )
    attack.control("a link to a page", 200, status(home, request(home, "GET /approvals", *link)))
    attack.control("a program", 200, status(home, request(home, "GET /v1/actions", token=token)))
    attack.control("a program, below /inject", 401, status(home, request(home, "GET /inject/x/v1/models", token=token)))


@pytest.mark.abuse_case("A15")
@pytest.mark.parametrize(
    "first",
    [
        "",
        r"GET /healthz HTTP/1.1\r\nHost: localhost:PORT\r\nx: ",
        r"POST /mcp HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: 100000000\r\n\r\n",
        r"POST /v1/messages HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: 100000000\r\n\r\n",
        r"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        r"GET /v1/models HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\n\r\n",
    ],
    ids=["idle", "half a head", "a body to mcp", "a body to the gateway", "http/2", "an upgrade"],
)
def test_another_user_cannot_use_up_the_daemons_descriptors(home: DaemonHome, attack: Attack, first: str) -> None:
    """The daemon keeps a bounded number of a thousand connections, and still responds to the person's commands."""
    port = port_of(home)
    as_whom: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    command = ["/usr/bin/env", "-i", _python(), "-c", _BUSYBODY, str(port), first.replace("PORT", str(port))]
    held: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", text=True, **as_whom
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        attack.control("many came", True, int(other.stdout.readline()) >= 256)
        for _ in range(20):
            attack.control("a run, meanwhile", 200, home.run("give-back", {"text": "x"}).status)
            held.append(accepted(port))
        attack.control("a question, meanwhile", True, "pending" in home.must("GET", "/v1/status"))
        print("end", file=other.stdin, flush=True)
    # The kernel's table is no picture of one moment: some leave and others come while it is read, and more of them the longer the
    # reader is kept waiting for its turn.
    usual = statistics.median(held)
    attack.denied(f"{usual:g} at once", True, usual <= MAX_CONNECTIONS + 128)
    answer = answers_in_time(home)
    attack.control("the port, afterwards", 200, answer)


def accepted(port: int) -> int:
    """Return the number of connections that are accepted on the port, proc_net_tcp(5): one that only waits has no inode."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] != "0A" and row[9] != "0" for row in rows)


def answers_in_time(home: DaemonHome) -> int:
    """Return the status of a page, asked again while no place is free and while earlier strangers use up the budget."""

    def look() -> int:
        with contextlib.suppress(OSError, IndexError):
            return 0 if (found := status(home, request(home, "GET /healthz"))) == 429 else found
        return 0

    return wait_until(look, "a page is answered", within_s=DEADLINE_S)


def _python() -> str:
    """Return a Python that every user can execute."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@pytest.mark.abuse_case("A16")
def test_a_malformed_request_is_refused_and_the_next_one_is_served(home: DaemonHome, attack: Attack) -> None:
    """A hundred thousand fields, a megabyte in one field, contradictory lengths and a body without JSON are refused."""
    token = begun_session(home)["token"]
    run = "POST /v1/actions/give-back/run"
    attempts = {
        "fields without number": (
            request(home, "GET /v1/actions", *[f"x{n}: y" for n in range(100_000)], token=token),
            431,
        ),
        "a field without end": (request(home, "GET /v1/actions", "x: " + "y" * 1_000_000, token=token), 431),
        "two hosts": (request(home, "GET /v1/actions", f"Host: localhost:{port_of(home)}", token=token), 400),
        "two lengths": (request(home, run, "Content-Length: 1", token=token, body=b"{}"), 400),
        "a signed length": (request(home, run, "Content-Length: +2", token=token) + b"{}", 400),
        "another coding": (request(home, run, "Transfer-Encoding: xchunked", token=token) + b"{}", 501),
        "an infinite number": (request(home, run, token=token, body=b'{"args":{"text":1e999}}'), 400),
        "no number": (request(home, run, token=token, body=b'{"args":{"text":NaN}}'), 400),
        "a number without end": (request(home, run, token=token, body=b'{"args":{"text":' + b"9" * 6000 + b"}}"), 400),
        "depth": (request(home, run, token=token, body=b'{"args":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
        "half a character": (request(home, run, token=token, body=b'{"args":{"text":"\\ud800"}}'), 400),
        "another scope": (request(home, run, token=token, body=b'{"args":{"text":"x"},"scope":"operator"}'), 400),
        "another session": (request(home, run, token=token, body=b'{"args":{"text":"x"},"session":"local"}'), 400),
        "two bytes a character": (request(home, run, token=token, body='{"args":{"text":"x"}}'.encode("utf-16")), 400),
        "a number for a word": (request(home, run, token=token, body=b'{"args":{"text":1}}'), 422),
        "nothing for a word": (request(home, run, token=token, body=b'{"args":{"text":null}}'), 422),
        "one more": (request(home, run, token=token, body=b'{"args":{"text":"x","more":1}}'), 422),
    }
    for which, (said, expected) in attempts.items():
        attack.denied(which, expected, first_status(home, said))
    twice = answers(home, request(home, run, token=token, body=b'{"args":{"text":"shown"},"args":{"text":"run"}}'))
    answer = json.loads(twice.partition(b"\r\n\r\n")[2])
    kept = home.events(answer["audit_id"])[0]["args"]
    attack.denied(
        "a key twice: what is on record is what ran", ("run", "run"), (kept["text"], answer["result"]["text"])
    )
    attack.control("the next", 200, status(home, request(home, run, token=token, body=b'{"args":{"text":"x"}}')))


@pytest.mark.abuse_case("A25")
def test_an_aborted_request_leaves_no_traceback_in_the_log(home: DaemonHome, attack: Attack) -> None:
    """An agent that disconnects in the middle of its body is an expected event."""
    token = begun_session(home)["token"]
    for line in ("POST /v1/actions/give-back/run", "POST /mcp", "POST /v1/messages", "POST /approvals"):
        said = request(home, line, "Content-Length: 1000", token=token) + b'{"args":'
        with socket.create_connection(("127.0.0.1", port_of(home)), timeout=DEADLINE_S) as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        log = (home.path / "logs" / "daemon.log").read_text()
        attack.denied(f"a traceback, by {line}", False, "Traceback" in log)
    attack.control("the next", 200, status(home, request(home, "GET /v1/actions", token=token)))


def first_status(home: DaemonHome, said: bytes) -> int:
    """Return the status of a server that responds before it has read everything."""
    with socket.create_connection(("127.0.0.1", port_of(home)), timeout=DEADLINE_S) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(said)
        return int(connection.recv(65536).split(b" ")[1])


def statuses(said: bytes) -> list[str]:
    """Return the status of each response in what came on one connection."""
    return re.findall(r"HTTP/1\.1 (\d\d\d)", said.decode("latin-1"))

"""The browsers that are let in, and the forms that count: from the page itself, in its session, with that form's token."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aileron.daemon.http.sessions import TOKEN_VARIABLE
from aileron.launch import agent as launched
from tests.support.home import PASSPHRASE, DaemonHome
from tests.support.paged import APPROVER, Form, KeptApprover, PageClient, paged_home, port_of
from tests.support.told import of_kind
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

THIEF = """
import http.client, json, sys
port, cookie, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
connection.request("GET", path, headers={"Host": f"localhost:{port}", "Cookie": cookie, "Sec-Fetch-Site": "none"})
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


def stolen(client: PageClient, path: str = "/approvals") -> tuple[int, str]:
    """Return the answer to another process of this user that has the client's cookie."""
    words = [sys.executable, "-c", THIEF, str(client.port), str(client.cookie), path]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    status, text = json.loads(said)
    return status, text


@pytest.fixture
def confirm(home: DaemonHome, person: PageClient) -> Form:
    """Return the form that approves a question about a run that can be undone."""
    asked = home.asked("mild")
    page = person.get(f"/approvals/{asked['approval_id']}")
    return person.submit(page.form("/approve")).form("/decide")


def state(home: DaemonHome, form: Form) -> str:
    """Return the status of the question that a form decides."""
    return str(home.must("GET", f"/v1/action-approvals/{form.action.split('/')[2]}")["status"])


# Forms


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Origin": None}, 403, "not sent by this page"),
        ({"Origin": None, "Sec-Fetch-Site": None}, 403, "not sent by this page"),
        ({"Origin": "null"}, 403, "answers no other site"),
        ({"Origin": "http://evil.example"}, 403, "answers no other site"),
        ({"Origin": "http://localhost:1"}, 403, "answers no other site"),
        ({"Origin": "http://127.0.0.1:{port}"}, 403, "not sent by this page"),  # another origin of this very port
        ({"Sec-Fetch-Site": "cross-site"}, 403, "answers no other site"),
        ({"Sec-Fetch-Site": "same-site"}, 403, "answers no other site"),
        ({"Sec-Fetch-Site": "none"}, 403, "another one had it sent"),
        ({"Host": "evil.example:{port}"}, 403, "under its own names only"),
        ({"Content-Type": "text/plain"}, 415, "not the form of a page"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415, "not the form of a page"),
        ({"Content-Type": "application/json"}, 415, "not the form of a page"),
    ],
)
def test_a_form_sent_by_another_site_is_refused(
    home: DaemonHome, person: PageClient, confirm: Form, headers: dict[str, str | None], status: int, why: str
) -> None:
    """Cookie and token are right; the same form is accepted as a decision if the page itself sends it."""
    sent = {name: None if value is None else value.format(port=person.port) for name, value in headers.items()}
    refused = person.post(confirm.action, confirm.fields, **sent)

    assert (refused.status, why in refused.words) == (status, True), refused.words
    assert state(home, confirm) == "pending_approval"
    assert person.post(confirm.action, confirm.fields).status == 303
    assert state(home, confirm) != "pending_approval"


@pytest.mark.abuse_case("D29")
@pytest.mark.parametrize(
    "change",
    [
        {"token": None},
        {"token": ""},
        {"token": "0" * 64},
        {"token": "é"},
        {"digest": "sha256:" + "0" * 64},
        {"read": "part"},
        {"edit": "sha256:" + "0" * 64},
        {"decision": "deny"},
    ],
)
def test_a_form_with_changed_fields_is_refused(
    home: DaemonHome, person: PageClient, confirm: Form, change: dict[str, str | None]
) -> None:
    """The token of a form covers exactly what the form does."""
    fields = {name: value for name, value in {**confirm.fields, **change}.items() if value is not None}
    refused = person.post(confirm.action, fields)

    assert refused.status in (400, 403), refused.words
    assert state(home, confirm) == "pending_approval"


@pytest.mark.abuse_case("D29")
def test_a_forms_token_is_valid_for_one_page_session_one_question_and_one_form(
    home: DaemonHome, person: PageClient, confirm: Form
) -> None:
    """Tokens of another session, another question, or another form of the same page are refused."""
    other = PageClient(home)
    other.unlock()
    theirs = other.submit(other.get(confirm.action.replace("/decide", "")).form("/approve")).form("/decide")
    assert theirs.fields["token"] != confirm.fields["token"]
    page = person.get(confirm.action.replace("/decide", ""))
    tokens = {
        "another session's": theirs.fields["token"],
        "to lock": page.form("/lock").fields["token"],
        "to ask": page.form("/ask").fields["token"],
        "to deny": page.form("/decide", decision="deny").fields["token"],
    }
    for what, token in tokens.items():
        refused = person.post(confirm.action, {**confirm.fields, "token": token})
        assert (refused.status, "not of this session" in refused.words) == (403, True), what
    second = home.asked("mild")["approval_id"]
    refused = person.post(f"/approvals/{second}/decide", confirm.fields)
    assert refused.status == 403
    assert state(home, confirm) == "pending_approval"
    assert other.post(theirs.action, theirs.fields).status == 303  # both sessions are the same person's


@pytest.mark.parametrize(
    "body",
    [
        b"token=a&token=b",
        b"token=a&other=b",
        b"token",
        b"\xff\xfe",
        b"token=%ff",
        b"&".join(b"a%d=b" % number for number in range(40)),
        b"token=" + b"x" * (65 << 10),
    ],
    ids=["twice", "unknown", "no value", "not ASCII", "not UTF-8", "many", "large"],
)
def test_a_malformed_form_of_the_page_is_refused_with_an_explanation(
    person: PageClient, confirm: Form, body: bytes
) -> None:
    """The page keeps working afterwards."""
    refused = person.post(confirm.action, body)

    assert refused.status in (400, 413), refused.words
    assert person.get("/approvals").status == 200


def test_a_form_whose_body_does_not_arrive_times_out(person: PageClient, confirm: Form) -> None:
    """The response is 408, after the time that is allowed for a body."""
    with socket.create_connection(("127.0.0.1", person.port), timeout=30) as connection:
        lines = [
            f"POST {confirm.action} HTTP/1.1",
            f"Host: localhost:{person.port}",
            f"Origin: http://localhost:{person.port}",
            f"Cookie: {person.cookie}",
            "Content-Type: application/x-www-form-urlencoded",
            "Content-Length: 100",
            "",
            "token=",
        ]
        connection.sendall("\r\n".join(lines).encode())
        assert b" 408 " in connection.recv(4096).split(b"\r\n", 1)[0]


def test_every_response_of_the_page_has_the_security_headers(
    home: DaemonHome, person: PageClient, stranger: PageClient
) -> None:
    """Pages, refusals, redirects and updates may not be framed or cached, and send forms only to the page."""
    asked = home.asked("mild")["approval_id"]
    answers = [
        person.get("/approvals"),
        person.get(f"/approvals/{asked}"),
        person.get("/approvals/news?known=x"),
        person.get("/approvals/nothing"),
        person.post(f"/approvals/{asked}/decide", {"token": "x"}),
        stranger.get("/approvals"),
        stranger.get("/approvals/news"),
        stranger.post("/approvals/unlock", {"passphrase": "x" * 8}),
        stranger.post("/approvals/unlock", {"passphrase": APPROVER}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-"), answer
        assert "unsafe" not in policy
        assert policy.endswith("form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
        assert (answer.headers["x-frame-options"], answer.headers["cache-control"]) == ("DENY", "no-store")


@pytest.mark.parametrize("path", ["/approvals", "/worker.js", "/v1/actions", "/mcp", "/openai/v1/worker.js"])
def test_every_service_worker_script_from_the_port_unregisters_itself(stranger: PageClient, path: str) -> None:
    """This holds on every path of the port and for every caller; any other request is answered normally."""
    headers = {"Service-Worker": "script", "Sec-Fetch-Dest": "serviceworker", "Sec-Fetch-Site": "same-origin"}
    told = stranger.get(path, **headers)

    assert (told.status, "registration.unregister()" in told.text) == (200, True)
    fields = ("content-type", "cache-control", "service-worker-allowed")
    assert [told.headers[name] for name in fields] == ["text/javascript", "no-store", "/"]
    assert "unregister" not in stranger.get(path).text


# The process that unlocked


def test_the_page_cookie_sent_by_another_process_is_refused_and_locks_the_page(
    home: DaemonHome, person: PageClient
) -> None:
    """The refusal is recorded, and the browser's next page says so; before, the cookie worked in its own process."""
    assert person.get("/approvals").status == 200
    refusals, locked = len(of_kind(home, "approval.refused")), len(of_kind(home, "page.locked"))
    asked = home.asked("say", {"text": "for one pair of eyes"})
    status, text = stolen(person, f"/approvals/{asked['approval_id']}")

    assert status == 403
    assert "This page is locked." in text
    assert "pair of eyes" not in text
    (refusal,) = of_kind(home, "approval.refused")[refusals:]
    assert (refusal["decision"], refusal["reason"], refusal["surface"]) == ("page", "process", "page")
    (lock,) = of_kind(home, "page.locked")[locked:]
    assert lock["reason"] == "process"
    after = person.get("/approvals")
    assert "its cookie came from another program than this browser" in after.words
    assert "Waiting for you" not in after.words


def test_the_page_cookie_sent_by_an_unidentifiable_process_is_refused_and_locks_the_page(
    home: DaemonHome, person: PageClient
) -> None:
    """A process that is not dumpable can be inspected by root only, so it could be any program."""
    hidden = "import ctypes; assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0\n" + THIEF
    words = [sys.executable, "-c", hidden, str(person.port), str(person.cookie), "/approvals"]
    status, text = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout)

    assert status == 403
    assert "This page is locked." in text or "cannot find out which program asks" in text
    assert "Waiting for you" not in person.get("/approvals").words


def test_a_browser_process_may_use_several_connections(person: PageClient) -> None:
    """Connections go to either loopback address, any number of times."""
    for address in ("127.0.0.1", "::1") * 3:
        client = PageClient.__new__(PageClient)
        client.__dict__.update(person.__dict__, _address=address)
        assert "Waiting for you" in client.get("/approvals").words


def test_a_foreign_cookie_of_the_same_name_does_not_hide_the_page_cookie(home: DaemonHome, person: PageClient) -> None:
    """Another server on localhost may set one of this name: it does not count, and does not displace the right one."""
    own = person.cookie
    name = str(own).partition("=")[0]
    person.cookie = f"{name}={'A' * 43}; {own}; other=1"
    assert "Waiting for you" in person.get("/approvals").words
    person.cookie = f"{name}={'A' * 43}"
    assert "Approver passphrase" in person.get("/approvals").words


def test_locking_the_page_ends_its_session_for_good(home: DaemonHome, person: PageClient) -> None:
    """The old cookie opens nothing; the page then says that it was locked."""
    old = person.cookie
    page = person.submit(person.get("/approvals").form("/lock"))
    assert "Approver passphrase" in page.words
    assert person.cookie is None
    person.cookie = old
    assert "You locked this page." in person.get("/approvals").words
    assert of_kind(home, "page.locked")[-1]["reason"] == "asked"


def test_a_browser_that_an_agent_started_cannot_unlock_the_page(home: DaemonHome) -> None:
    """An agent may drive its child processes, so they are refused even with the right passphrase; others are not."""
    program = """
import http.client, subprocess, sys
if sys.argv[1] == "agent":
    print("started", flush=True)
    sys.stdin.readline()
    subprocess.run([sys.executable, "-c", sys.argv[2], "browser", "", *sys.argv[3:]])
    sys.exit()
port = int(sys.argv[3])
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
headers = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}", "Content-Type": sys.argv[4]}
connection.request("POST", "/approvals/unlock", "passphrase=" + sys.argv[5], headers)
answer = connection.getresponse()
print(answer.status, "An agent started this browser" in answer.read().decode())
"""
    rest = [str(port_of(home)), "application/x-www-form-urlencoded", APPROVER.replace(" ", "+")]
    said = {}
    for is_session in (True, False):
        with subprocess.Popen(
            [sys.executable, "-c", program, "agent", program, *rest],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "started\n"
            if is_session:
                home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/", "pid": agent.pid})
            said[is_session] = agent.communicate("go\n", timeout=60)[0]

    assert said == {True: "403 True\n", False: "303 False\n"}


_ORPHAN = """
import http.client, os, sys
port, passphrase, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
read, write = os.pipe()
if os.fork():
    os.close(write)
    print(os.fdopen(read).read(), end="")
    sys.exit()
between = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
while os.getppid() == between:
    os.sched_yield()
assert os.getppid() != int(sys.argv[4])
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
headers = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}", "Content-Type": kind}
connection.request("POST", "/approvals/unlock", "passphrase=" + passphrase, headers)
answer = connection.getresponse()
os.write(write, f"{answer.status} {'An agent started this browser' in answer.read().decode()}".encode())
"""


@pytest.mark.abuse_case("D40")
@pytest.mark.parametrize(("has_token", "said"), [(True, "403 True"), (False, "303 False")])
def test_an_agents_detached_browser_is_recognized_by_the_session_token_in_its_environment(
    home: DaemonHome, has_token: bool, said: str
) -> None:
    """The browser forked twice and called setsid, so no ancestor is the agent.

    The token in its environment gives it away. Without the token it is not recognized: then only the passphrase protects,
    which the agent does not have.
    """
    with subprocess.Popen(["sleep", "60"]) as agent:
        opened = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/", "pid": agent.pid})
        environment = {**os.environ, TOKEN_VARIABLE: opened["token"]} if has_token else dict(os.environ)
        words = [str(port_of(home)), APPROVER.replace(" ", "+"), "application/x-www-form-urlencoded", str(os.getpid())]
        ran = subprocess.run(
            [sys.executable, "-c", _ORPHAN, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        agent.kill()
    assert ran.stdout == said


def test_the_launch_command_and_the_page_use_the_same_session_token_variable() -> None:
    """Each defines the name for itself, because neither module may import the other."""
    assert launched.TOKEN_VARIABLE == TOKEN_VARIABLE


# Homes of their own, because they change who decides


@pytest.fixture
def own_home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Make a home that a test may break."""
    with paged_home(upstream) as made:
        yield made


_GUESSER = """
import http.client, sys, urllib.parse
port, right = int(sys.argv[1]), sys.argv[2]
for passphrase in ["wrong wrong"] * 5 + [right]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request("POST", "/approvals/unlock", urllib.parse.urlencode({"passphrase": passphrase}), headers)
    print(connection.getresponse().status)
"""


def guessed(home: DaemonHome) -> list[str]:
    """Return the responses to a new process that guesses five times and then sends the right passphrase."""
    words = [sys.executable, "-c", _GUESSER, str(port_of(home)), APPROVER]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout.split()


@pytest.mark.abuse_case("D40")
def test_the_number_of_wrong_passphrases_from_one_process_is_limited(own_home: DaemonHome) -> None:
    """Even the right one is refused after five in a minute. The person's browser can unlock meanwhile."""
    assert guessed(own_home) == ["403"] * 5 + ["429"]
    client = PageClient(own_home)
    assert client.unlock().status == 200
    assert [row["reason"] for row in of_kind(own_home, "approval.refused")] == ["passphrase"] * 5
    for _ in range(5):
        assert client.unlock("wrong wrong").status == 403
    refused = client.unlock()
    assert (refused.status, "5 wrong passphrases within a minute" in refused.words) == (429, True)


def test_the_number_of_wrong_passphrases_from_all_programs_together_is_limited(own_home: DaemonHome) -> None:
    """Further passphrases are not tried after twenty in a minute, not even that of a new process."""
    for _ in range(4):
        assert guessed(own_home) == ["403"] * 5 + ["429"]
    refused = PageClient(own_home).unlock()

    assert (refused.status, "20 wrong passphrases within a minute" in refused.words) == (429, True)
    assert "aileron approval list" in refused.words


def test_after_a_restart_the_review_address_is_the_same_and_every_page_is_locked(own_home: DaemonHome) -> None:
    """This holds even after a kill, because sessions are only in memory."""
    asked = own_home.asked("mild")
    client = PageClient(own_home)
    page = client.unlock(to=asked["approval_id"])
    confirm = client.submit(page.form("/approve")).form("/decide")
    for end in (own_home.stop, own_home.kill):
        end()
        own_home.unlock()
        assert port_of(own_home) == client.port
        assert asked["review_url"] == f"http://localhost:{client.port}/approvals/{asked['approval_id']}"
        assert "Approver passphrase" in client.get(f"/approvals/{asked['approval_id']}").words
        refused = client.post(confirm.action, confirm.fields)
        assert (refused.status, "locked" in refused.words) == (403, True)
    assert own_home.result(asked, wait=0)["status"] == "pending_approval"
    assert client.unlock(to=asked["approval_id"]).form("/approve")


def test_replacing_the_approver_ends_every_page_session(own_home: DaemonHome) -> None:
    """The earlier key unlocks no page; the new one does."""
    client = PageClient(own_home)
    assert client.unlock().status == 200
    first = KeptApprover.of(own_home)
    kept = (own_home.path / "approver.json").read_bytes()
    second = KeptApprover(own_home, "another passphrase")
    new = (own_home.path / "approver.json").read_bytes()
    second.appoint(own_home, replaces=first)

    assert "this home has another approver now" in client.get("/approvals").words
    assert of_kind(own_home, "page.locked")[-1]["reason"] == "replaced"
    (own_home.path / "approver.json").write_bytes(kept)
    refused = client.unlock()
    assert (refused.status, "is not the one of this home's approver" in refused.words) == (409, True)
    (own_home.path / "approver.json.new").write_bytes(new)  # as when `approver init` was interrupted
    (own_home.path / "approver.json.new").chmod(0o600)
    assert client.unlock("another passphrase").status == 200


def test_a_locked_vault_unlocks_no_page_and_decides_nothing(own_home: DaemonHome) -> None:
    """The page says how to open the vault; a page unlocked before decides again once the vault is open."""
    asked = own_home.asked("mild")
    client = PageClient(own_home)
    page = client.unlock(to=asked["approval_id"])
    confirm = client.submit(page.form("/approve")).form("/decide")
    own_home.must("POST", "/v1/vault/lock")
    assert client.post(confirm.action, confirm.fields).status == 423
    fresh = PageClient(own_home)
    assert "aileron vault unlock" in fresh.get("/approvals").words
    assert fresh.get("/approvals").forms == []
    assert fresh.unlock().status == 423
    own_home.must("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
    assert client.post(confirm.action, confirm.fields).status == 303
    assert own_home.result(asked)["status"] == "completed"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_another_user_of_the_machine_cannot_unlock_the_page_and_no_refusal_is_recorded(home: DaemonHome) -> None:
    """The user is refused even with the passphrase, and the attempt adds no row to this home's record."""
    refusals = len(of_kind(home, "approval.refused"))
    program = """
import encodings.idna, http.client, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
port = int(sys.argv[1])
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
headers = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}", "Content-Type": sys.argv[2]}
connection.request("POST", "/approvals/unlock", "passphrase=" + sys.argv[3], headers)
answer = connection.getresponse()
print(answer.status, "another user" in answer.read().decode(), answer.getheader("set-cookie"))
"""
    words = [str(port_of(home)), "application/x-www-form-urlencoded", APPROVER.replace(" ", "+")]
    said = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=True
    ).stdout

    assert said == "403 True None\n"
    assert len(of_kind(home, "approval.refused")) == refusals
    assert PageClient(home).unlock().status == 200

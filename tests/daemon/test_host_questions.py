"""A host that a cell does not list becomes a question to a person: with a real daemon, its socket, and TLS.

The process of the cell is this one: it opens the session and connects, as `aileron launch` does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import anyio
import pytest

from aileron.audit.events import HostAllowed, SessionEnded
from aileron.audit.log import Audit
from aileron.daemon.consent_service.host_questions import MAX_NAMES, MAX_WAITING, WAIT_S
from aileron.ledger import Ledger
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.tunnels import DEADLINE_S, Answer, read_answer
from tests.support.upstream import Authority, Upstream, answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

ROUTE = "/v1/action-approvals"
PAGE = b"what the host says"
NOT_FOUND = ("network_error", 502)
"""Reason and status for a host that is allowed but that no resolver knows."""


@pytest.fixture(scope="module")
def host(authority: Authority) -> Iterator[Upstream]:
    """Start a host on loopback, with a certificate."""
    with Upstream(lambda _: answer(PAGE), authority.server_context("localhost")) as running:
        yield running


class Cell:
    """This process as a cell's process, in a home of its own; `decide` acts as the home's person, and signs if there
    is an approver.
    """

    def __init__(self, home: DaemonHome, approver: Approver | None) -> None:
        self.home = home
        self.approver = approver
        self.session = ""

    def open(self, *hosts: str, ask: bool = True) -> str:
        """Open a new session in place of the previous one, and return its id."""
        if self.session:
            self.end()
        body = {"agent": "claude", "folder": "/srv/work", "pid": os.getpid(), "cell": {"hosts": hosts, "ask": ask}}
        self.session = self.home.must("POST", "/v1/sessions", body)["id"]
        return self.session

    def end(self) -> None:
        """End the session."""
        self.home.must("POST", f"/v1/sessions/{self.session}/end", {})

    def asks(self, destination: str) -> socket.socket:
        """Return a connection that has requested the destination and got no response yet."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(DEADLINE_S)
        made.connect(str(self.home.path / "run" / "tunnel.sock"))
        made.sendall(f"CONNECT {destination} HTTP/1.1\r\n\r\n".encode())
        return made

    def told(self, destination: str) -> Answer:
        """Request the destination and return the response."""
        with self.asks(destination) as made:
            return read_answer(made)

    def waiting(self) -> dict[str, dict[str, Any]]:
        """Return the pending questions about hosts, by host."""
        listed = self.home.must("GET", ROUTE)["approvals"]
        return {
            question["name"]: question
            for question in listed
            if question["kind"] == "host" and question["status"] == "pending_approval"
        }

    def question(self, destination: str) -> dict[str, Any]:
        """Return the question about this host, once it exists."""
        return wait_until(lambda: self.waiting().get(destination, {}), f"a question about {destination}")

    def decide(self, question: dict[str, Any], decision: str = "approve", **options: Any) -> dict[str, Any]:
        """Decide a question and return the result."""
        if self.approver is not None:
            answered = self.approver.decide(self.home, question["approval_id"], decision, **options)  # type: ignore[arg-type]
        else:
            body = {"decision": decision, "digest": question["digest"], **options}
            answered = self.home.ask("POST", f"{ROUTE}/{question['approval_id']}/decide", body)
        assert answered.status == 200, answered.body
        settled: dict[str, Any] = answered.body
        return settled

    def decided(self, destination: str, decision: str = "approve", **options: Any) -> Answer:
        """Request the destination, decide its question while the connection waits, and return the response."""
        with self.asks(destination) as made:
            self.decide(self.question(destination), decision, **options)
            return read_answer(made)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the recorded events of this session and type, oldest first."""
        found: list[dict[str, Any]] = self.home.must("GET", f"/v1/audit?type={kind}&session={self.session}")["events"]
        return found[::-1]

    def restart(self) -> None:
        """Restart the daemon and unlock the vault."""
        self.home.stop()
        self.home.unlock()


def reason(told: Answer) -> tuple[str | None, int]:
    """Return the reason for programs, and the status."""
    return told.reason, told.status


@pytest.fixture(scope="module", params=["signed", "unsigned"])
def home(request: pytest.FixtureRequest, host: Upstream) -> Iterator[tuple[DaemonHome, Approver | None]]:
    """Start a home with an approver or one without; both allow the host to be on loopback."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate = ["localhost:{host.port}"]\n')
        made.unlock()
        approver = Approver() if request.param == "signed" else None
        if approver is not None:
            approver.appoint(made)
        yield made, approver


@pytest.fixture
def cell(home: tuple[DaemonHome, Approver | None]) -> Iterator[Cell]:
    """Open a cell of this process that lists `listed.invalid`, and that asks."""
    made = Cell(*home)
    made.open("listed.invalid")
    yield made
    made.end()


def test_a_waiting_connection_reaches_its_host_once_a_person_approves_it(
    cell: Cell, host: Upstream, authority: Authority
) -> None:
    """TLS passes through; the question names the session; the next connection needs no question, and all of it is on record."""
    name = f"localhost:{host.port}"
    with cell.asks(name) as made:
        question = cell.question(name)
        settled = cell.decide(question)
        assert read_answer(made).status == 200
        trusting = ssl.create_default_context(cafile=str(authority.ca_file))
        with trusting.wrap_socket(made, server_hostname="localhost") as through:
            through.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            said = b""
            while PAGE not in said:
                said += through.recv(65536) or pytest.fail(f"it ended with {said!r}")

    assert (question["agent"], question["folder"], question["session"]) == ("claude", "/srv/work", cell.session)
    assert settled["status"] == "completed"
    assert settled["result"] == {"session": cell.session, "host": name}
    with cell.asks(name) as again:
        assert read_answer(again).status == 200
    assert cell.waiting() == {}
    about = {"session": cell.session, "host": "localhost", "port": host.port, "approval": question["approval_id"]}
    for kind in ("host.asked", "host.allowed"):
        (event,) = cell.events(kind)
        assert event.items() >= about.items()
    decided = cell.home.must("GET", "/v1/audit?type=approval.decided")["events"][0]
    assert ("signature" in decided) is (cell.approver is not None)
    verified = cell.home.must("GET", "/v1/audit/verify")
    assert verified["ok"], verified


def test_a_denied_host_is_refused_until_the_session_ends(cell: Cell) -> None:
    """The response has the person's reason, and later tries ask no question; the next session asks again."""
    denied = cell.decided("evil.invalid:443", "deny", reason="not\x1bthat one")
    again = cell.told("evil.invalid:443")

    assert reason(denied) == reason(again) == ("host_denied", 403)
    assert "not\\x1bthat one" in denied.body
    assert len(cell.events("host.asked")) == 1
    assert reason(cell.told("listed.invalid:443")) == NOT_FOUND, "what is listed goes on"

    cell.open()
    assert reason(cell.decided("evil.invalid:443")) == NOT_FOUND


def test_connections_to_one_host_and_port_share_a_question(cell: Cell) -> None:
    """Three connections wait for the same decision; another port of the host is another question."""
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(cell.asks("one.invalid:443")) for _ in range(3)]
        other = stack.enter_context(cell.asks("one.invalid:8443"))
        first = cell.question("one.invalid:443")
        cell.decide(cell.question("one.invalid:8443"), "deny")
        cell.decide(first)
        told = [read_answer(connection) for connection in waiting]
        assert reason(read_answer(other)) == ("host_denied", 403)

    assert [reason(response) for response in told] == [NOT_FOUND] * 3
    assert len(cell.events("host.asked")) == 2


def test_a_session_without_host_questions_refuses_an_unlisted_host_at_once(cell: Cell) -> None:
    """The response names the option that lists the host; a session that asks gets a question for the same host."""
    cell.open("listed.invalid", ask=False)
    refused = cell.told("other.invalid:443")

    assert reason(refused) == ("host_not_listed", 403)
    assert "--allow-host other.invalid" in refused.body
    assert (cell.waiting(), cell.events("host.asked")) == ({}, [])
    cell.open("listed.invalid")
    with cell.asks("other.invalid:443"):
        assert cell.question("other.invalid:443")


def test_a_host_question_stays_pending_after_its_client_disconnects(cell: Cell) -> None:
    """The record has the request as unanswered. After approval, a new try needs no second question."""
    cell.asks("later.invalid:443").close()
    question = cell.question("later.invalid:443")
    refused = ("later.invalid:443", "host_unanswered")
    wait_until(
        lambda: refused in [(row["destination"], row["reason"]) for row in cell.events("tunnel.refused")],
        f"{refused} is on record",
    )
    cell.decide(question)

    assert reason(cell.told("later.invalid:443")) == NOT_FOUND
    assert len(cell.events("host.asked")) == 1


@pytest.mark.parametrize("home", ["unsigned"], indirect=True, scope="module")  # it waits for half a minute
def test_an_undecided_connection_is_refused_after_a_wait_but_its_host_question_stays_pending(cell: Cell) -> None:
    """The refusal comes after 25 seconds and names the question; after approval, the next try goes through."""
    refused = cell.told("slow.invalid:443")
    question = cell.question("slow.invalid:443")

    assert reason(refused) == ("host_unanswered", 504)
    assert f"aileron approve {question['approval_id']}" in refused.body
    (asked,) = cell.events("host.asked")
    (unanswered,) = [row for row in cell.events("tunnel.refused") if row["reason"] == "host_unanswered"]
    took = datetime.fromisoformat(unanswered["at"]) - datetime.fromisoformat(asked["at"])
    assert took.total_seconds() >= WAIT_S - 1
    cell.decide(question)
    assert reason(cell.told("slow.invalid:443")) == NOT_FOUND


def test_the_number_of_pending_host_questions_is_bounded(cell: Cell) -> None:
    """A host beyond the bound is refused at once without a recorded question, and becomes a question when there is room."""
    with contextlib.ExitStack() as stack:
        names = [f"n{number}.invalid:443" for number in range(MAX_WAITING)]
        held = [stack.enter_context(cell.asks(name)) for name in names]
        wait_until(lambda: len(cell.waiting()) == MAX_WAITING, f"{MAX_WAITING} wait", seen=lambda: len(cell.waiting()))
        beyond = cell.told("beyond.invalid:443")
        listed = cell.told("listed.invalid:443")
        assert (reason(beyond), reason(listed)) == (("host_limit", 503), NOT_FOUND)
        assert f"{MAX_WAITING} questions of this session wait" in beyond.body

        cell.decide(cell.question(names[0]), "deny")
        assert reason(read_answer(held[0])) == ("host_denied", 403)
        assert reason(cell.decided("beyond.invalid:443")) == NOT_FOUND
    assert len(cell.events("host.asked")) == MAX_WAITING + 1


def test_the_number_of_hosts_a_session_asks_about_is_bounded(cell: Cell) -> None:
    """Decided hosts count too and keep their decisions; the next session has the whole number again."""
    names = [f"m{number}.invalid:443" for number in range(MAX_NAMES)]
    for name in names[1:]:
        cell.asks(name).close()
        cell.decide(cell.question(name), "deny")
    assert reason(cell.decided(names[0])) == NOT_FOUND
    refused = cell.told("onemore.invalid:443")

    assert reason(refused) == ("host_limit", 503)
    assert f"asked about {MAX_NAMES} hosts already" in refused.body
    assert reason(cell.told(names[0])) == NOT_FOUND
    assert reason(cell.told(names[1])) == ("host_denied", 403)
    assert cell.waiting() == {}
    cell.open()
    assert reason(cell.decided("onemore.invalid:443")) == NOT_FOUND


def test_pending_host_questions_are_withdrawn_when_their_session_ends(cell: Cell) -> None:
    """The question leaves the queue, on record; a decision comes too late; the next session does not inherit allowed hosts."""
    assert reason(cell.decided("mine.invalid:443")) == NOT_FOUND
    with cell.asks("waits.invalid:443"):
        question = cell.question("waits.invalid:443")
        cell.end()
        assert cell.waiting() == {}
    late = cell.home.ask(
        "POST", f"{ROUTE}/{question['approval_id']}/decide", {"decision": "approve", "digest": question["digest"]}
    )
    cancelled = cell.home.must("GET", "/v1/audit?type=approval.cancelled")["events"][0]

    assert late.body["error"]["class"] == "already_decided"
    assert (cancelled["approval"], cancelled["surface"]) == (question["approval_id"], "session")
    cell.open()
    with cell.asks("mine.invalid:443"):
        assert cell.question("mine.invalid:443")


def test_host_questions_and_decisions_survive_a_restart(cell: Cell) -> None:
    """Allowed and denied hosts stay so, and a pending question can be decided afterwards."""
    assert reason(cell.decided("yes.invalid:443")) == NOT_FOUND
    assert reason(cell.decided("no.invalid:443", "deny")) == ("host_denied", 403)
    cell.asks("waits.invalid:443").close()
    question = cell.question("waits.invalid:443")
    cell.restart()

    assert reason(cell.told("yes.invalid:443")) == NOT_FOUND
    assert reason(cell.told("no.invalid:443")) == ("host_denied", 403)
    assert cell.question("waits.invalid:443")["approval_id"] == question["approval_id"]
    cell.decide(question)
    assert reason(cell.told("waits.invalid:443")) == NOT_FOUND
    assert len(cell.events("host.asked")) == 3


def test_signed_host_approvals_need_the_vault_after_a_restart(cell: Cell) -> None:
    """An approver's signature can be checked only with an open vault: the host is refused until then, without a
    second question. Without an approver it is allowed at once.
    """
    assert reason(cell.decided("yes.invalid:443")) == NOT_FOUND
    cell.home.stop()
    cell.home.must("GET", "/v1/status")
    locked = cell.told("yes.invalid:443")
    cell.home.unlock()

    assert reason(locked) == (NOT_FOUND if cell.approver is None else ("vault_locked", 403))
    assert reason(cell.told("yes.invalid:443")) == NOT_FOUND
    assert len(cell.events("host.asked")) == 1


def test_questions_of_a_session_whose_end_was_recorded_are_withdrawn_at_start(cell: Cell) -> None:
    """The daemon was killed between the session's end and the withdrawal, so the next one withdraws them; questions
    of an open session stay.
    """
    cell.asks("waits.invalid:443").close()
    question = cell.question("waits.invalid:443")
    cell.home.kill()
    cell.home.must("GET", "/v1/status")
    assert cell.question("waits.invalid:443") == question

    cell.home.kill()
    ended = SessionEnded(session=cell.session, reason="ended")

    async def record() -> None:
        with Ledger.open(cell.home.path / "ledger.db", cell.home.path, "0.1.0") as ledger:
            await Audit(ledger).note(ended)

    anyio.run(record)
    cell.home.unlock()
    assert cell.waiting() == {}


def test_an_unsigned_host_approval_ends_when_an_approver_enrolls(host: Upstream) -> None:
    """The host leads to a question again, which takes a signed approval."""
    approver = Approver()
    with daemon_home() as made:
        made.unlock()
        cell = Cell(made, None)
        cell.open()
        assert reason(cell.decided("was.invalid:443")) == NOT_FOUND
        approver.appoint(made)
        cell.approver = approver
        assert reason(cell.decided("was.invalid:443")) == NOT_FOUND
        assert len(cell.events("host.asked")) == 2


@pytest.mark.parametrize("home", ["signed"], indirect=True)
def test_an_unsigned_host_decision_is_refused_if_there_is_an_approver(cell: Cell) -> None:
    """A decision signed with another key is refused too; the question stays pending for the approver."""
    with cell.asks("signed.invalid:443") as made:
        question = cell.question("signed.invalid:443")
        body = {"decision": "approve", "digest": question["digest"]}
        unsigned = cell.home.ask("POST", f"{ROUTE}/{question['approval_id']}/decide", body)
        other = Approver().decide(cell.home, question["approval_id"])
        assert [response.body["error"]["class"] for response in (unsigned, other)] == ["unauthorized", "unauthorized"]
        assert cell.events("host.allowed") == []
        cell.decide(question)
        assert reason(read_answer(made)) == NOT_FOUND


@pytest.mark.parametrize("home", ["signed"], indirect=True)
def test_an_approval_forged_in_the_ledger_does_not_allow_a_host(cell: Cell) -> None:
    """The row names a question without a signature and was added while no daemon ran; it would count only without an approver."""
    cell.asks("forged.invalid:443").close()
    question = cell.question("forged.invalid:443")
    cell.home.stop()
    forged = HostAllowed(session=cell.session, host="forged.invalid", port=443, approval=str(question["approval_id"]))

    async def record() -> None:
        with Ledger.open(cell.home.path / "ledger.db", cell.home.path, "0.1.0") as ledger:
            await Audit(ledger).note(forged)

    anyio.run(record)
    cell.home.unlock()
    assert reason(cell.decided("forged.invalid:443", "deny")) == ("host_denied", 403)

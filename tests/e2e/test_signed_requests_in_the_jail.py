"""Signed requests from a real jail through the daemon: webhooks, and HTTP Digest. The secrets are searched for everywhere.

The webhook connector is the released one; the receiver is Standard Webhooks' own library. The other connector, and the
service that asks for Digest, are the test's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.approver import Approver, Office
from tests.support.canary import find, scan
from tests.support.home import daemon_home
from tests.support.jailed_office import look_while
from tests.support.upstream import Authority, Seen, Upstream, answer
from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
WEBHOOK, DOOR = "github://aileron/connector-webhook", "github://acme/door"
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PASSWORD = "a-canary-of-a-password-of-the-door"
USER, REALM = "mira", "the door"
DOOR_MANIFEST = """\
[connector]
name = "github://acme/door"
version = "1.0.0"

[capabilities.network]
hosts = ["bound-at-build"]

[capabilities.credential]
kind = "digest"
scope = "Open the door"

[capabilities.runtime]
imports = ["http"]
"""
DOOR_CODE = """\
from aileron_connector import hosts, http, op, run


@op
def knock(path: str, body: str = ""):
    \"\"\"All of the answer.\"\"\"
    sent = [part.encode() for part in body.split(",")] if body else None
    with http.request("POST", hosts()[0].url + path, body=sent, credential="digest") as answer:
        return {"status": answer.status, "fields": list(answer.headers), "said": answer.read().decode()}


if __name__ == "__main__":
    run()
"""


class Door:
    """A service that asks for Digest, and lets in clients with the password; it echoes what it was sent."""

    def __init__(self) -> None:
        self.password = PASSWORD
        self.proofs: list[str] = []

    def __call__(self, seen: Seen) -> bytes:
        said = dict(re.findall(r'(\w+)="?([^",]*)"?', next(iter(seen.values("authorization")), "")))

        def digest(*parts: str) -> str:
            return hashlib.sha256(":".join(parts).encode()).hexdigest()

        key, effect = digest(USER, REALM, self.password), digest(seen.method, seen.target)
        expected = digest(key, "nonce-of-the-door", said.get("nc", ""), said.get("cnonce", ""), "auth", effect)
        if said.get("response") != expected:
            field = (
                f'WWW-Authenticate: Digest realm="{REALM}", nonce="nonce-of-the-door", qop="auth", algorithm=SHA-256'
            )
            return answer(b"who is it?", field, status="401 Unauthorized")
        self.proofs.append(expected)
        return answer(seen.head + b"\n" + seen.body + f" {PASSWORD}".encode())


@dataclasses.dataclass(frozen=True)
class Both(Office):
    """A home with both connectors; a person decides what is gated."""

    receiver: Receiver
    door: Door
    at_the_door: Upstream

    def send(self, **args: Any) -> dict[str, Any]:
        """Request an event, approve it as the person, and return the outcome."""
        return self.decide(self.ask("webhook-send", **args))


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Provide both connectors, bound as their pages say; at the end no file has a secret."""
    authority, door = Authority(tmp_path_factory.mktemp("authority")), Door()
    source = tmp_path_factory.mktemp("door")
    (source / "manifest.toml").write_text(DOOR_MANIFEST)
    (source / "connector.py").write_text(DOOR_CODE)
    tls = authority.server_context("localhost")
    with Receiver(tls, KEY) as receiver, Upstream(door, tls) as upstream, daemon_home() as home:
        hosts = [f"localhost:{receiver.port}", f"localhost:{upstream.port}"]
        home.reach(*hosts, ca_file=authority.ca_file)
        home.install(ROOT / "connectors" / "webhook", hosts[0])
        home.install(source, hosts[1])
        home.unlock(KEY.encode())
        home.store("door", PASSWORD.encode())
        home.bind(WEBHOOK, "hmac/webhook/me")
        home.bind(DOOR, "digest/door/me", "door", username=USER)
        home.add_actions(ROOT / "connectors" / "webhook" / "actions" / "webhook-send" / "action.md")
        home.add_probe_action("knock", "path:string", "body:string?", connector=DOOR)
        yield Both(home, Approver.of(home), receiver, door, upstream)
        assert scan([home.path], b"tell another program that something has happened"), "the scan finds nothing"
        assert scan([home.path], KEY.encode(), PASSWORD.encode(), *(proof.encode() for proof in door.proofs)) == {}


def test_a_signed_event_is_sent_only_after_approval(office: Both) -> None:
    """The receiver gets no request before it; two events have two IDs."""
    before = len(office.receiver.seen)
    first = office.send(event="invoice.paid", path="/hooks/a", data={"invoice": 1})
    second = office.send(event="invoice.paid", path="/hooks/a", data={"invoice": 2})

    assert (first["status"], second["status"]) == ("completed", "completed"), (first, second)
    assert [event["data"] for event in office.receiver.events[-2:]] == [{"invoice": 1}, {"invoice": 2}]
    assert len(set(office.receiver.ids[-2:])) == 2
    assert len(office.receiver.seen) == before + 2
    assert KEY.encode() not in office.receiver.received


def test_a_denied_event_is_not_sent(office: Both) -> None:
    """The receiver gets no request."""
    before = len(office.receiver.seen)
    denied = office.decide(office.ask("webhook-send", event="a.b", path="/", data={}), "deny")

    assert denied["status"] == "denied"
    assert len(office.receiver.seen) == before


def test_the_question_shows_what_would_be_sent(office: Both) -> None:
    """The question has the event's type, its path, and all its data."""
    question = office.ask("webhook-send", event="door.open", path="/hooks/z", data={"which": "the left one"})
    shown = office.home.must("GET", f"/v1/action-approvals/{question}")
    office.decide(question, "deny")

    for words in ("door.open", "/hooks/z", "the left one"):
        assert words in str(shown)


def test_the_key_is_in_no_jail_during_a_signed_request(office: Both) -> None:
    """The search covers the decoded key; it finds the event's own data, which shows that it reads the jail's memory."""
    office.receiver.reflects = True
    question = office.ask("webhook-send", event="a.needle_in_the_jail", path="/", data={})
    looked = look_while(office.home, office.receiver.gate.held(), lambda: office.decide(question))
    office.receiver.reflects = False

    assert looked.answer["status"] == "completed", looked.answer
    signature = office.receiver.seen[-1].values("webhook-signature")[0].removeprefix("v1,")
    looked.check_compressed(b"a.needle_in_the_jail", KEY.encode(), signature.encode())


def test_requests_with_digest_authentication_succeed_and_reveal_no_secret(office: Both) -> None:
    """The first request is challenged, the second is not; password and proof are masked in responses."""
    before = len(office.at_the_door.requests)
    first = office.home.run("knock", {"path": "/a?b=1", "body": "one,two"})
    second = office.home.run("knock", {"path": "/b"})

    results = [answer.body["result"] for answer in (first, second)]
    assert [result["status"] for result in results] == [200, 200], results
    assert "onetwo" in results[0]["said"]
    assert len(office.at_the_door.requests) == before + 3
    assert len(set(office.door.proofs)) == len(office.door.proofs)
    told = [*results, office.home.events(first.body["audit_id"]), office.home.events(second.body["audit_id"])]
    assert find(str(told).encode(), PASSWORD.encode(), *(proof.encode() for proof in office.door.proofs[-2:])) == []
    assert "***" in results[0]["said"]
    rows = [row for row in office.home.events(first.body["audit_id"]) if row["type"] == "egress.finished"]
    assert [row["status"] for row in rows] == [401, 200]


def test_a_wrong_password_for_digest_authentication_is_reported_and_not_tried_again(office: Both) -> None:
    """The second run does not try the password again."""
    office.door.password = "changed since"
    before = len(office.at_the_door.requests)
    errors = [office.home.run("knock", {"path": "/"}).body["error"] for _run in range(2)]
    office.door.password = PASSWORD

    assert [error["class"] for error in errors] == ["binding_failed", "binding_failed"]
    assert "refused the user name or the password" in errors[0]["message"]
    assert "not tried again" in errors[1]["message"]
    assert len(office.at_the_door.requests) == before + 2

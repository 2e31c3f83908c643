"""A home with an approver, made as a person makes one, and what a process of the same user does there without a passphrase.

There is one service (a server that counts effects), one connector bound to it, and these actions: `send` (gated, with an
effect that the server counts), `hold` (the same, and held a moment before it begins), `previewed` (the effect is read first),
`open` (not gated, and nothing leaves). Everything the person does is a real command at a terminal; what the attacker sends
goes to the real sockets. `why` returns the recorded reasons of refused decisions.

    house.person("approve", question["approval_id"])
    kind_of(house.decide(question, "approve"))          # unauthorized
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aileron.approver_key import keyfile
from aileron.approver_key.keyfile import ApproverKey
from aileron.client import Answer, Client
from aileron.model.decision import DecisionStatement, moment
from aileron.model.secret import Secret
from tests.attacks.hostile import kind_of
from tests.attacks.same_user.terminal import APPROVER, PERSON, Someone, at_terminal
from tests.cli.command import Command, Said
from tests.support.home import DaemonHome, probe_action
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer

__all__ = ["ACTION", "House", "ending", "forged", "house", "only_as_an_ordinary_user", "signed", "the_persons_key"]

only_as_an_ordinary_user: Final = pytest.mark.skipif(
    os.geteuid() == 0, reason="root is outside of the promise: tried as uid 65534, see test_same_user.py"
)
ACTION: Final = "send"
HELD_S: Final = 60
"""Seconds for which an approved run of the action `hold` is held before it begins."""

SEEN: Final = "/status/200"
"""Path that a preview reads; the service responds with `hello`."""
_PREVIEW: Final = f"""
[approval.preview]
op = "fetch"
[approval.preview.inputs]
path = "{SEEN}"
with_credential = true
[approval.preview.render]
"The service says" = "body"
"""


class House:
    """A home, its daemon, its outside world, a person and an attacker."""

    def __init__(self, home: DaemonHome, upstream: CountingServer) -> None:
        self.home = home
        self.upstream = upstream
        self.command = Command(home.path)

    # the person

    def person(self, *words: str, someone: Someone = PERSON, **options: Any) -> Said:
        """Run a command at the person's terminal."""
        return at_terminal(self.home.path, someone, *words, **options)

    def appoint(self) -> None:
        """Run `aileron approver init` as the person."""
        self.person("approver", "init").exits(0)
        assert self.approver()["status"] == "ready", self.approver()

    def approver(self) -> dict[str, Any]:
        """Return who decides, as the daemon says."""
        found: dict[str, Any] = self.home.must("GET", "/v1/approver")
        return found

    # what both can do

    def asked(self, action: str = ACTION, **args: Any) -> dict[str, Any]:
        """Request a gated action as an agent, and return the question as the operator socket shows it."""
        answer = Client(self.home.path, operator=False).request(
            "POST", f"/v1/actions/{action}/run?wait=0", {"args": args or {"path": f"/effect/{secrets.token_hex(4)}"}}
        )
        assert answer.status == 202, answer.body
        found: dict[str, Any] = self.home.must("GET", f"/v1/action-approvals/{answer.body['approval_id']}")
        return found

    def effects(self, question: dict[str, Any]) -> int:
        """Return how often the effect that this question requested happened, by the server's count."""
        path = question["plan"]["args"]["path"]
        return sum(1 for method, asked, _ in list(self.upstream.requests) if (method, asked) == ("POST", path))

    def done(self, question: dict[str, Any]) -> int:
        """Wait until the approved run is over, then return its number of effects."""
        self.home.result(question)
        return self.effects(question)

    def status(self, question: dict[str, Any]) -> str:
        """Return the status of the question."""
        return str(self.home.result(question, wait=0)["status"])

    # the attacker

    def decide(
        self, question: dict[str, Any], decision: str = "approve", *, operator: bool = True, **more: Any
    ) -> Answer:
        """Send a decision to a socket; `digest` is the question's unless it is given."""
        client = Client(self.home.path, operator=operator)
        body = {"decision": decision, "digest": question["digest"], **more}
        return client.request("POST", f"/v1/action-approvals/{question['approval_id']}/decide", body)

    def tried(self, *words: str, someone: Someone = PERSON, **options: Any) -> Said:
        """Run a command in a pseudo-terminal of the attacker's own; `someone` must not know the approver's passphrase."""
        return at_terminal(self.home.path, someone, *words, **options)

    def events(self, name: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the rows of one type after row `since`, oldest first."""
        found = self.home.must("GET", f"/v1/audit?type={name}&limit=1000")["events"]
        return [event for event in reversed(found) if event["seq"] > since]

    def newest(self) -> int:
        """Return the number of the newest row."""
        return int(self.home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"])

    def why(self, since: int) -> list[str]:
        """Return why each decision after row `since` was refused."""
        return [str(event["reason"]) for event in self.events("approval.refused", since)]

    def kind(self, answer: Answer) -> str:
        """Return the failure class, or `ok`."""
        return str(kind_of(answer))


@contextlib.contextmanager
def house(*, appoint: bool = True, files: str = "") -> Iterator[House]:
    """Provide a new house; `files` is added to its config.toml. The daemon runs and the vault is open."""
    with CountingServer() as upstream, probed_home(upstream.port, files) as home:
        made = House(home, upstream)
        home.add_probe_action("give_back", "text:string", name="open", gated=False)
        for name, rule in ((ACTION, "irreversible = false"), ("hold", f"undo_window_s = {HELD_S}")):
            text = probe_action("effect", "path:string", name=name, gated=True)
            text = text.replace("[approval]", f"[approval]\n{rule}")
            home.must("POST", "/v1/actions", {"text": text, "file": "a test"})
        text = probe_action("effect", "path:string", name="previewed", gated=True)
        text = text.replace('capabilities = ["effect"]', 'capabilities = ["effect", "fetch"]')
        home.must(
            "POST", "/v1/actions", {"text": text.replace("\n+++\n\n#", f"\n{_PREVIEW}+++\n\n#"), "file": "a test"}
        )
        if appoint:
            made.appoint()
        yield made


def signed(key: ApproverKey, question: dict[str, Any], decision: str = "approve", **more: Any) -> dict[str, Any]:
    """Return the fields of a decision signed with `key`: over this question and digest, now, unless `more` says otherwise."""
    fields: dict[str, Any] = {
        "approval_id": question["approval_id"],
        "digest": question["digest"],
        "decision": decision,
        "reason": None,
        "at": moment(time.time()),
        "key_id": key.key_id,
        **more,
    }
    return {"at": fields["at"], "key_id": fields["key_id"], "signature": key.sign(DecisionStatement(**fields))}


def ending(said: Said) -> str:
    """Return how a command ended: its exit code and its error."""
    errors = re.findall(r"error: .*", f"{said.out}\n{said.err}")
    return f"exit {said.code}, {errors[-1] if errors else 'without a word'}"


def forged() -> ApproverKey:
    """Return a key of the attacker's own."""
    return ApproverKey(bytearray(Ed25519PrivateKey.generate().private_bytes_raw()))


def the_persons_key(home: Path) -> ApproverKey:
    """Return the real key, to make what the person once signed and an attacker kept. The attacker cannot open it."""
    return keyfile.open_key(home / "approver.json", Secret(APPROVER.encode()))

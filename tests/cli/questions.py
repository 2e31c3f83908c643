"""Questions with plans and subjects of the real types, so that their digests are those that a command computes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec

from aileron.approver_key import keyfile
from aileron.approver_key.box import seal
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    Change,
    ConnectorConsent,
    ConnectorUpdateConsent,
    Constraint,
    GrantConsent,
    HostConsent,
    InstallationConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    Subject,
    ToolChangeConsent,
    TrustedKeyConsent,
    subject_digest,
    subject_name,
)
from aileron.model.decision import PreviewStatement, check_signature, digest_with_preview, preview_digest
from aileron.model.manifest import ApprovalRule, CredentialNeed, LimitsSpec
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, PlannedPreview, Step
from aileron.model.secret import Secret
from tests.cli.person import APPROVER
from tests.support.fake_daemon import FakeDaemon, Reply, Seen

__all__ = [
    "HEAD",
    "ID",
    "LASTING",
    "ONE",
    "SUBJECTS",
    "VERDICTS",
    "Approver",
    "asks",
    "difference",
    "grant",
    "plan",
    "previewed",
    "question",
    "rehearsed",
    "sealed_preview",
    "session",
    "subject_question",
]

ID = "act-20261121T040000-0123456789abcdefcafe"
ONE = f"/v1/action-approvals/{ID}"
HEAD = "41:" + "ab" * 32
_HASH = "sha256:" + "cd" * 32
_CONNECTOR = "github://example/connector-mail"


class Approver:
    """The approver's key of a home, announced by the fake daemon."""

    def __init__(self, home: Path, fake: FakeDaemon) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with keyfile.create(home / "approver.json", Secret(APPROVER.encode())) as key:
            self.public_key, self.key_id = key.public_key, key.key_id
        fake.approver = {"status": "ready", "key_id": self.key_id, "public_key": self.public_key.hex()}


def _step(op: str, args: dict[str, Any], *hosts: str, read_only: bool = False) -> Step:
    use = CredentialUse(
        connector=_CONNECTOR,
        binding=BindingName("basic", "mail", "home"),
        need=CredentialNeed(kind="basic", scope="a mail account"),
    )
    return Step(
        id="one",
        connector=ConnectorPin(_CONNECTOR, "1.4.0", _HASH),
        op=op,
        args=args,
        idempotent=False,
        grant=Grant(hosts=tuple(HostPort.parse(host) for host in hosts), credential=use, read_only=read_only),
        limits=LimitsSpec(),
    )


def plan(args: dict[str, Any] | None = None, *, hosts: tuple[str, ...] = ("mail.example:443",), **more: Any) -> Plan:
    """Return the plan of an action that sends a mail."""
    args = {"to": "mira@example.com", "body": "Dear Mira\nthe invoice is paid."} if args is None else args
    fields = {
        "action": "send-mail",
        "action_version": "1.2.0",
        "action_digest": _HASH,
        "action_text": "",
        "args": args,
        "steps": (_step(str(more.get("action", "send-mail")).replace("-", "_"), args, *hosts),),
        "approval": ApprovalRule(required=True),
    }
    return Plan(**{**fields, **more})


def previewed(args: dict[str, Any] | None = None, **more: Any) -> Plan:
    """Return a plan with a preview."""
    step = _step("get_draft", {}, "mail.example:443", read_only=True)
    return plan(args, preview=PlannedPreview(step=step, render=(("To", "to"),)), **more)


def rehearsed(args: dict[str, Any] | None = None, **more: Any) -> Plan:
    """Return a plan with a preview under a login that can be changed only as previewed."""
    of = previewed(args, **more)
    (step,) = of.steps
    use = msgspec.structs.replace(step.grant.credential, login="previewed")  # type: ignore[type-var]
    step = msgspec.structs.replace(step, grant=msgspec.structs.replace(step.grant, credential=use))
    return msgspec.structs.replace(of, steps=(step,))


def question(of: Plan | None = None, /, **more: Any) -> dict[str, Any]:
    """Return a question about a run, as the daemon shows it."""
    of = of or plan()
    return {
        "approval_id": ID,
        "kind": "action",
        "status": "pending_approval",
        "digest": of.digest,
        "audit_id": "run-1",
        "action": of.action,
        "session": "local",
        "created_at": "2026-11-21T04:00:00Z",
        "expires_at": "2099-11-21T04:15:00Z",
        "head": HEAD,
        "has_preview": of.preview is not None,
        "plan": of.to_json(),
        "edits": [],
        "conversation": [],
        "difference": None,
        **more,
    }


def difference(*changes: dict[str, Any], at: str = "2026-11-20T09:12:00Z") -> dict[str, Any]:
    """Return the difference from the call that was approved last."""
    return {"approval_id": "act-1", "decided_at": at, "changes": list(changes), "problem": None}


def grant(*constraints: dict[str, Any]) -> dict[str, Any]:
    """Return a grant in force with these constraints."""
    return {
        "id": "g-1",
        "action": "send-mail",
        "action_digest": _HASH,
        "credentials": [],
        "constraints": list(constraints),
        "uses": 10,
        "used": 1,
        "until": "2099-01-01T00:00:00Z",
        "over": False,
    }


def session(folder: str) -> dict[str, Any]:
    """Return an open session in this folder."""
    return {
        "id": "ses-1",
        "agent": "claude",
        "folder": folder,
        "status": "open",
        "started_at": "2026-11-21T04:00:00Z",
        "expires_at": "2026-11-22T04:00:00Z",
        "ended_at": None,
        "reason": None,
        "exit_code": None,
        "runs": 3,
        "pid": None,
    }


def subject_question(subject: Subject, **more: Any) -> dict[str, Any]:
    """Return a question about a consent."""
    built = msgspec.to_builtins(subject)
    return {
        "approval_id": ID,
        "kind": built["kind"],
        "status": "pending_approval",
        "digest": subject_digest(subject),
        "name": subject_name(subject),
        "session": "local",
        "created_at": "2026-11-21T04:00:00Z",
        "expires_at": "2099-11-21T04:15:00Z",
        "head": HEAD,
        "subject": built,
        **more,
    }


SUBJECTS: dict[str, Subject] = {
    "action_file": ActionFileConsent(
        name="send-mail",
        text='+++\nname = "send-mail"\n+++\n\n# Send a mail\n',
        before=_HASH,
        changes=(
            Change(where="approval.required", before="true", after="false"),
            Change(where="match.intent", before="send a mail", after="send any mail", widens=False),
        ),
        reaches=("mail.example:443",),
        credentials=("basic (a mail account)",),
    ),
    "connector": ConnectorConsent(
        name=_CONNECTOR,
        version="1.4.0",
        hash=_HASH,
        source="/home/mira/connector-mail",
        on_conflict="refuse",
        signature="unsigned",
        reaches=("mail.example:443",),
        credential="basic (a mail account)",
        imports=("http", "log"),
        limits={"memory_mb": 64},
    ),
    "connector_update": ConnectorUpdateConsent(
        name=_CONNECTOR,
        version="1.5.0",
        hash=_HASH,
        source=f"{_CONNECTOR}@1.5.0",
        on_conflict="refuse",
        signature="verified: sha256:O0kx3R3JU/Buyr2UoNBPtY, trusted for github://example",
        reaches=("files.example:443", "mail.example:443"),
        credential="basic (a mail account)",
        imports=("http", "log"),
        limits={"memory_mb": 64},
        publisher="Example",
        before="1.4.0",
        changes=(Change(where="reaches", before=None, after="files.example:443"),),
    ),
    "binding": BindingConsent(
        name="basic/mail/home", connector=_CONNECTOR, secret="pw", username="mira", reaches=("mail.example:443",)
    ),
    "installation": InstallationConsent(
        name="mail",
        connectors=(
            ConnectorConsent(
                name=_CONNECTOR,
                version="1.4.0",
                hash=_HASH,
                source=f"{_CONNECTOR}@1.4.0",
                on_conflict="refuse",
                signature="unsigned",
                reaches=("mail.example:443",),
                credential="basic (a mail account)",
                imports=("http", "log"),
                limits={"memory_mb": 64},
            ),
        ),
        actions=tuple(
            ActionFileConsent(
                name=name,
                text=f'+++\nname = "{name}"\n+++\n\n# {name}\n',
                before=None,
                changes=(),
                reaches=("mail.example:443",),
                credentials=("basic (a mail account)",),
                install=True,
            )
            for name in ("mail-read", "mail-send")
        ),
        bindings=(
            BindingConsent(
                name="basic/mail/home",
                connector=_CONNECTOR,
                secret="pw",
                username="mira",
                reaches=("mail.example:443",),
            ),
        ),
    ),
    "secret": SecretConsent(name="pw", bindings=("basic/mail/home",), commitment="ef" * 32),
    "trusted_key": TrustedKeyConsent(
        authority="github://acme",
        new="sha256:O0kx3R3JU/Buyr2UoNBPtY",
        keys=("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",),
        before=(),
        source="/home/mira/acme.pub",
    ),
    "grant": GrantConsent(
        action="send-mail",
        action_digest=_HASH,
        credentials=("basic/mail/home",),
        constraints=(
            Constraint(argument="to", operator="one_of", value=["mira@example.com", "a@example.com"]),
            Constraint(argument="subject", operator="prefix", value="[ci] "),
            Constraint(argument="size", operator="at_most", value=7),
        ),
        uses=10,
        until="2099-11-21T04:15:00.000Z",
    ),
    "settings": SettingsConsent(
        before={"egress.private": [], "sandbox.mode": "full"},
        after={"egress.private": ["nas.local:443"], "sandbox.mode": "full"},
    ),
    "passkey": PasskeyConsent(
        name="Mira's phone",
        credential_id="AAECAwQFBgcICQoLDA0ODw",
        public_key="a401010327200621582003a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8",
        rp_id="localhost",
        origin="http://localhost:24100",
        key_id="webauthn:a323e0d6723f28fe86de63d6f2e96cc2",
        algorithm="EdDSA",
        synced="yes",
        aaguid=None,
        transports=("hybrid", "internal"),
    ),
    "tool_change": ToolChangeConsent(
        connector=_CONNECTOR,
        version="1.4.0",
        hash=_HASH,
        op="add_note",
        action="notes-add-note",
        before=_HASH,
        changes=(Change(where="description", before="Adds a note.", after="Adds a note, and sends a copy."),),
        definition='{"description":"Adds a note, and sends a copy.","name":"add_note"}',
        digest=_HASH,
    ),
    "host": HostConsent(
        session="ses-1", agent="claude", folder="/home/mira/work", host="registry.example.com", port=443
    ),
}


LASTING = "! LASTING PERMISSION"
VERDICTS = {"host": "! ANYTHING CAN BE SENT THERE until the session ends"}
"""Verdicts of consents that do not last; every other consent has LASTING."""


def asks(fake: FakeDaemon, asked: dict[str, Any], *, answer: dict[str, Any] | None = None) -> None:
    """Make this question wait at the fake daemon; a decision is answered with `answer`, or like one about a run."""

    def decided(seen: Seen) -> Reply:
        status = "approved" if seen.body["decision"] == "approve" else "denied"
        return 200, {"status": status, "approval_id": ID, "audit_id": "run-1", **(answer or {})}

    fake.approvals = [asked]
    fake.script("GET", ONE, (200, asked))
    fake.script("POST", f"{ONE}/decide", decided)
    done = {"status": "completed", "audit_id": "run-1", "approval_id": ID, "result": {"sent": 1}}
    fake.script("GET", f"{ONE}/result", (200, done))


def sealed_preview(approver: Approver, plan_digest: str, fields: Any, problem: str | None = None, **wrong: Any) -> Any:
    """Return a script for the preview's route: it checks the request's signature like the daemon and seals to its recipient."""

    def reply(seen: Seen) -> Reply:
        asked = {name: value for name, value in seen.body.items() if name not in ("digest", "signature")}
        statement = PreviewStatement(approval_id=seen.path.split("/")[3], **asked)
        check_signature(approver.public_key, statement, seen.body["signature"])
        shown = {"fields": fields, "problem": problem, "taken_at": "2026-11-21T04:00:01Z"}
        if fields is not None:
            shown["digest"] = digest_with_preview(plan_digest, preview_digest({"fields": fields}))
        sealed = seal(statement.recipient, json.dumps({**shown, **wrong}).encode(), statement.signed_bytes())
        return 200, {"sealed": base64.b64encode(sealed).decode()}

    return reply

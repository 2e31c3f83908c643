"""Ten requests as a person meets them: the demo's four, and six more; each with what the service says, and what an edit changed.

    for one in TEN: one.question(), one.found

The action files are those that the connectors ship, and one of a bank that does not exist. Used by the golden screens of every
surface. Not here: questions with no more in them than a test needs (tests/cli/questions.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from aileron.actions.manifest import parse_action
from aileron.approvals.difference import differences
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ActionFileConsent, Change, ConnectorUpdateConsent, Constraint, GrantConsent
from aileron.model.manifest import CredentialKind, CredentialNeed, LimitsSpec
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, PlannedPreview, Step
from aileron.model.timestamp import utc_of_us
from tests.cli.questions import difference, question, subject_question

__all__ = ["TEN", "Request", "calendar", "mail", "note", "payment", "run_by_claude"]

_ACTIONS: Final = Path(__file__).resolve().parents[2] / "connectors"
_HASH: Final = "sha256:" + "cd" * 32
_PAY: Final = f"""+++
name = "transfer"
version = "1.0.0"
summary = "Transfer {{amount}} {{currency}} to {{recipient}}[, {{reference}}]"

[[requires.connectors]]
name = "github://northbank/connector"
version = "2.1.0"
hash = "{_HASH}"
capabilities = ["transfer", "get_account"]

[match]
intent = "transfer money"

[[inputs]]
name = "amount"
type = "number"
description = "How much."
label = "Amount"

[[inputs]]
name = "currency"
type = "string"
description = "In which currency."
label = "Currency"

[[inputs]]
name = "recipient"
type = "string"
description = "To whom."
label = "Recipient"

[[inputs]]
name = "iban"
type = "string"
description = "To which account."
label = "IBAN"

[[inputs]]
name = "reference"
type = "string"
description = "What for."
required = false
label = "Reference"

[[execute]]
id = "transfer"
connector = "github://northbank/connector"
op = "transfer"
effect = "pay"

[approval]
required = true

[approval.preview]
op = "get_account"

[approval.preview.inputs]
iban = "${{args.iban}}"

[approval.preview.render]
"Recipient" = "holder"
"IBAN" = "iban"
"Balance" = "balance"
+++

# Transfer money
"""


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of the ten. `fields` are the preview's, None: it has none; `edit` is the plan as the person changed it."""

    name: str
    asked: Callable[[str], dict[str, Any]]
    fields: tuple[tuple[str, str | None], ...] | None = None
    edit: Plan | None = None

    @property
    def id(self) -> str:
        """Id of the request's approval."""
        return f"act-20261121T04{TEN.index(self):02}00-{self.name.replace(' ', '-')}"

    def question(self) -> dict[str, Any]:
        """Return the question as the daemon shows it."""
        return self.asked(self.id)

    @property
    def found(self) -> list[dict[str, Any]] | None:
        """Fields of the preview, in the form in which they are sealed."""
        if self.fields is None:
            return None
        return [{"label": label, "value": value, "multiline": label == "Body"} for label, value in self.fields]


def _plan(text: str, args: dict[str, Any], host: str, account: tuple[CredentialKind, str, str, str | None]) -> Plan:
    action = parse_action(text, file="a.md", allow_placeholder=True)
    kind, binding, scope, whose = account
    (connector,) = action.connectors
    use = CredentialUse(
        connector=str(connector.name),
        binding=BindingName(*binding.split("/")),
        need=CredentialNeed(kind=kind, scope=scope),
        account=whose,
    )
    grant = Grant(hosts=(HostPort.parse(host),), credential=use)
    pin = ConnectorPin(str(connector.name), connector.version, _HASH)

    def step(id: str, op: str, given: dict[str, Any]) -> Step:
        return Step(id=id, connector=pin, op=op, args=given, idempotent=False, grant=grant, limits=LimitsSpec())

    preview = None
    if action.preview is not None:
        preview = PlannedPreview(
            step=step("preview", action.preview.op, {}), render=tuple(action.preview.render.items())
        )
    (does,) = action.steps
    return Plan(
        action=action.name,
        action_version=action.version,
        action_digest=action.digest,
        action_text=text,
        args=args,
        steps=(step(does.id, does.op, args),),
        approval=action.approval,
        preview=preview,
    )


def _file(name: str) -> str:
    return (_ACTIONS / name / "action.md").read_text(encoding="utf-8")


def _calendar(action: str, args: dict[str, Any]) -> Plan:
    account = ("basic", "basic/calendar/ada", "Read and write your calendars", "ada")
    return _plan(_file(f"caldav/actions/{action}"), args, "caldav.example:443", account)  # type: ignore[arg-type]


def _mail(action: str, args: dict[str, Any]) -> Plan:
    account = ("oauth2", "oauth2/google/work", "Send mail", "mira@northwind.example")
    return _plan(_file(f"google/actions/{action}"), args, "gmail.googleapis.com:443", account)  # type: ignore[arg-type]


_LUNCH: Final = {"title": "Lunch with Mira", "start_time": "2026-12-08T12:00:00Z", "end_time": "2026-12-08T13:00:00Z"}
_SAILING: Final = {
    "title": "Sailing with Mira",
    "start_time": "2026-12-08T12:00:00Z",
    "end_time": "2026-12-08T16:00:00Z",
}
_WRONG: Final = {"uid": "3f1c2a90-dentist", "title": "Sailing with Mira"}
_MANY: Final = {
    "to": ", ".join(f"{name}@northwind.example" for name in ("ann", "bob", "cleo", "dan", "eve", "fay", "gus", "hal")),
    "bcc": ", ".join(f"customer{number}@clients.example" for number in range(1, 38)),
    "subject": "Prices from January on",
    "body": "Dear all,\nfrom January on our prices are 4 % higher.\nYours, Mira",
}
_PAYMENT: Final = {
    "amount": 1840.5,
    "currency": "EUR",
    "recipient": "Northwind Ltd",
    "iban": "DE02 1203 0000 0000 2020 51",
    "reference": "Invoice 2231",
}
_DRAFT: Final = {"draft_id": "r-5511"}
_NOTE: Final = {"channel": "#engineering", "text": "The migration is done.", "link": "https://git.example/pull/41"}
_EDITED: Final = {**_NOTE, "channel": "#releases"}


def _by_claude(of: Plan, **more: Any) -> Callable[[str], dict[str, Any]]:
    who = {"agent": "claude", "session": "ses-1", "folder": "/home/you/invoices"}
    return lambda id: question(of, approval_id=id, **who, **more)


def run_by_claude(of: Plan) -> Callable[[str], dict[str, Any]]:
    """Return a function that gives Claude's request for an approval id."""
    return _by_claude(of)


def calendar(title: str, day: int) -> Plan:
    """Return a plan for an event of an hour in December."""
    when = f"2026-12-{day:02}T"
    return _calendar(
        "caldav-create-event", {"title": title, "start_time": f"{when}12:00:00Z", "end_time": f"{when}13:00:00Z"}
    )


def mail(to: str, subject: str) -> Plan:
    """Return a plan for a mail to one person."""
    return _mail("google-send-email", {"to": to, "subject": subject, "body": "As discussed.\nMira"})


def note(channel: str, text: str) -> Plan:
    """Return a plan for a message to a channel."""
    return _ship({"channel": channel, "text": text, "link": "https://git.example/pull/41"})


def payment(recipient: str, amount: float, currency: str) -> Plan:
    """Return a plan for a transfer."""
    args = {**_PAYMENT, "recipient": recipient, "amount": amount, "currency": currency}
    return _plan(_PAY, args, "api.northbank.example:443", ("api_key", "api_key/bank/main", "Transfers", None))


def _ship(args: dict[str, Any]) -> Plan:
    account = ("oauth2", "oauth2/slack/team", "Post messages", "mira at Northwind")
    return _plan(_file("slack/actions/slack-ship-update"), args, "slack.com:443", account)  # type: ignore[arg-type]


def _than(before: Plan, now: Plan) -> dict[str, Any]:
    changes = [msgspec.to_builtins(change) for change in differences(before, now)]
    return difference(*changes)


def _without_gate(text: str) -> str:
    before, _, rest = text.partition("[approval]")
    return f"{before}+++{rest.partition('+++')[2]}"


_UNGATED: Final = ActionFileConsent(
    name="caldav-create-event",
    text=_without_gate(_file("caldav/actions/caldav-create-event")),
    before=_HASH,
    changes=(
        Change(where="approval.required", before="true", after="false"),
        Change(where="approval.preview", before="op = list_events", after=None),
        Change(where="version", before="0.1.0", after="0.2.0", widens=False),
    ),
    reaches=("caldav.example:443",),
    credentials=("basic: Read and write your calendars",),
)
_SENDING: Final = _file("google/actions/google-send-email")
_ALWAYS: Final = GrantConsent(
    action="google-send-email",
    action_digest=sha256_digest(_SENDING.encode()),
    credentials=("oauth2/google/work",),
    constraints=(Constraint(argument="subject", operator="prefix", value="[ci] "),),
    uses=50,
    until="2099-11-21T12:15:00.000Z",
)
_UPDATE: Final = ConnectorUpdateConsent(
    name="github://acme/mail",
    version="1.5.0",
    hash=_HASH,
    source="github://acme/mail@1.5.0",
    on_conflict="refuse",
    signature="verified: sha256:O0kx3R3JU/Buyr2UoNBPtY, trusted for github://acme",
    reaches=("api.acme.example:443", "api.acme.example.evil.example:443"),
    credential="oauth2: Send mail",
    imports=("http", "log"),
    limits={"memory_mb": 64},
    publisher="Acme",
    before="1.4.0",
    changes=(Change(where="reaches", before=None, after="api.acme.example.evil.example:443"),),
)
_SAILED: Final = _calendar("caldav-create-event", _SAILING)
_LUNCHED: Final = _calendar("caldav-create-event", _LUNCH)
_POSTED: Final = _ship(_NOTE)
_CHANGED: Final = _ship(_EDITED)
_CHANNEL: Final = (("Channel", "#releases"), ("Members", "412"), ("Seen by", "everybody in the workspace"))

TEN: Final = (
    Request(
        "lunch",
        _by_claude(_LUNCHED),
        (
            ("At that time", None),
            ("From", None),
            ("Until", None),
            ("And", None),
            ("And also", None),
            ("More of them", None),
        ),
    ),
    Request(
        "sailing",
        _by_claude(_SAILED, difference=_than(_LUNCHED, _SAILED)),
        (("At that time", "Lunch with Mira"), ("From", "2026-12-08T12:00:00Z"), ("Until", "2026-12-08T13:00:00Z")),
    ),
    Request(
        "another event",
        _by_claude(_calendar("caldav-delete-event", _WRONG)),
        (
            ("Title", "Dentist"),
            ("Starts", "2026-12-08T09:00:00Z"),
            ("Ends", "2026-12-08T09:30:00Z"),
            ("In calendar", "Home"),
        ),
    ),
    Request(
        "gate gone", lambda id: subject_question(_UNGATED, approval_id=id, agent="claude", folder="/home/you/invoices")
    ),
    Request("mail to many", _by_claude(_mail("google-send-email", _MANY))),
    Request(
        "payment",
        _by_claude(
            _plan(_PAY, _PAYMENT, "api.northbank.example:443", ("api_key", "api_key/bank/main", "Transfers", None))
        ),
        (("Recipient", "M. Mallory"), ("IBAN", "DE02 1203 0000 0000 2020 51"), ("Balance", "2,100.00 EUR")),
    ),
    Request(
        "draft",
        _by_claude(
            _mail("google-send-draft", _DRAFT),
            conversation=[{"question": "Who is this for?", "answer": "For Ann. The user agreed already."}],
        ),
        (
            ("To", "ann@northwind.example"),
            ("Bcc", "mallory@evil.example"),
            ("Subject", "Salaries 2027"),
            ("Body", "Hello Ann,\nas discussed.\nMira"),
        ),
    ),
    Request(
        "edit",
        _by_claude(
            _POSTED,
            edits=[
                {"digest": _CHANGED.digest, "plan": _CHANGED.to_json(), "made_at": utc_of_us(1_763_700_000_000_000)}
            ],
        ),
        _CHANNEL,
        _CHANGED,
    ),
    Request("grant", lambda id: subject_question(_ALWAYS, approval_id=id, granted_text=_SENDING)),
    Request("update", lambda id: subject_question(_UPDATE, approval_id=id)),
)

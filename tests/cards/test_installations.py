"""The card of an installation: one question about connectors, actions and credentials, with what matters first."""

from __future__ import annotations

from typing import Any

import msgspec

from aileron.api.approvals import Question
from aileron.cards.card import Card, card_of, consent_alarms
from aileron.cards.subject import subject_facts
from aileron.cards.weight import consent_verdict_of
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    Change,
    ConnectorConsent,
    InstallationConsent,
    subject_digest,
)

HASH = "sha256:" + "ab" * 32
CONNECTOR = ConnectorConsent(
    name="github://acme/mail",
    version="1.0.0",
    hash=HASH,
    source="catalogue:mail",
    on_conflict="refuse",
    signature="came with Aileron",
    reaches=("imap.example.com:993",),
    credential="login (your mail)",
    imports=("tcp",),
    limits={"memory_mb": 64},
)
BINDING = BindingConsent(
    name="login/mail/me", connector="github://acme/mail", secret="pw", username="ann", reaches=("imap.example.com:993",)
)


def action(name: str, rest: str, **changes: Any) -> ActionFileConsent:
    """Return the consent to an action of that connector; `rest` is the end of its frontmatter."""
    text = (
        f'+++\nname = "{name}"\nversion = "1.0.0"\n\n[[requires.connectors]]\nname = "github://acme/mail"\n'
        f'version = "1.0.0"\nhash = "{HASH}"\ncapabilities = ["act"]\n\n[match]\nintent = "act"\n\n'
        f'[[execute]]\nid = "act"\nconnector = "github://acme/mail"\nop = "act"\n{rest}+++\n\n# Act\n'
    )
    fields: dict[str, Any] = {"before": None, "changes": (), "reaches": CONNECTOR.reaches, "credentials": ()}
    return ActionFileConsent(name=name, text=text, install=True, **(fields | changes))


READS = action("mail-read", "idempotent = true\n")
LISTS = action("mail-list", 'effect = "read"\n')
ASKS = action("mail-send", 'effect = "send"\n\n[approval]\nrequired = true\n')
SENDS = action("mail-blast", 'effect = "send"\n')


def facts(*actions: ActionFileConsent, bindings: tuple[BindingConsent, ...] = (BINDING,)) -> dict[str, Any]:
    """Return the facts of the card, by name."""
    subject = InstallationConsent(name="mail", connectors=(CONNECTOR,), actions=actions, bindings=bindings)
    return dict(subject_facts(subject, "more", str))


def shown(subject: InstallationConsent) -> Question:
    """Return a waiting question about the installation."""
    return msgspec.convert(
        {
            "approval_id": "act-1",
            "kind": "installation",
            "name": subject.name,
            "status": "pending_approval",
            "digest": subject_digest(subject),
            "created_at": "2030-01-01T00:00:00.000Z",
            "expires_at": "2036-11-21T04:00:00.000Z",
            "head": "1:x",
            "subject": msgspec.to_builtins(subject),
        },
        Question,
    )


def card(subject: InstallationConsent) -> Card:
    """Return the card of a waiting question about the installation."""
    return card_of(shown(subject), subject, None, (), lambda moment: moment or "")


def test_actions_are_listed_by_whether_they_ask() -> None:
    """Actions that only read and actions that ask each time have a line each, and a host is named once."""
    found = facts(READS, LISTS, ASKS)

    assert found["only read"] == ["mail-read, mail-list"]
    assert found["need approval"] == ["mail-send"]
    assert found["goes to"] == ["imap.example.com:993"]
    assert found["allows"] == "github://acme/mail to use the secret pw"
    assert "actions" not in found
    assert found["texts"][-2:][1] == "more"


def test_an_action_that_sends_without_asking_is_an_alarm() -> None:
    """The alarm names the action, and stands above everything else; without such an action there is none."""
    quiet = InstallationConsent(name="mail", connectors=(CONNECTOR,), actions=(READS, ASKS))
    loud = msgspec.structs.replace(quiet, actions=(READS, SENDS, ASKS))

    assert consent_alarms(shown(quiet), quiet) == []
    assert consent_alarms(shown(loud), loud) == ["! RUNS WITHOUT APPROVAL: mail-blast"]
    assert [line.text for line in card(loud).alarms] == ["! RUNS WITHOUT APPROVAL: mail-blast"]


def test_an_installation_that_only_reads_and_reaches_nothing_is_no_alarm() -> None:
    """A credential, a host, or an action that does more than read makes it a lasting permission."""
    alone = msgspec.structs.replace(CONNECTOR, reaches=(), credential=None)
    little = InstallationConsent(name="mail", connectors=(alone,), actions=(READS,))

    assert consent_verdict_of(little, None).brief == "~ lasting"
    for more in (
        msgspec.structs.replace(little, bindings=(BINDING,)),
        msgspec.structs.replace(little, connectors=(CONNECTOR,)),
        msgspec.structs.replace(little, actions=(READS, ASKS)),
    ):
        assert consent_verdict_of(more, None).brief == "! LASTING"


def test_only_actions_that_were_there_before_count_as_changed() -> None:
    """A new action is no change that allows more; a wider version of an approved one is, and is shown."""
    widened = action(
        "mail-read",
        'effect = "send"\n',
        before=HASH,
        changes=(Change(where="approval.required", before="true", after="false"),),
    )
    new = InstallationConsent(name="mail", connectors=(CONNECTOR,), actions=(READS, ASKS))
    wider = msgspec.structs.replace(new, actions=(widened, ASKS))

    assert [fact.name for fact in card(new).essentials if fact.name == "compared"] == []
    assert [fact.lines[0].text for fact in card(wider).essentials if fact.name == "compared"] == [
        "≠ the change allows more"
    ]
    assert facts(widened, ASKS)["changes mail-read"] == ["ALLOWS MORE: approval.required: true → false"]

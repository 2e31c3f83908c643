"""The signed view shows only what its digest covers, whatever answers for the daemon: that includes the name, and a
passkey's id.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.api.approvals import Question
from aileron.cards.question import title_of
from aileron.cards.signed_view import signed_view
from aileron.model.consent import PasskeyConsent, subject_digest, subject_name
from aileron.model.decision import MismatchError
from aileron.model.passkey import base64url, passkey_id
from tests.cli.questions import SUBJECTS, plan, question, subject_question


def viewed(asked: dict[str, Any]) -> Question:
    """Return the question as it would be signed."""
    return signed_view(msgspec.convert(asked, Question))[0]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_question_is_named_by_the_content_that_its_digest_covers(kind: str) -> None:
    """Names outside the digest are claims: a false daemon could call a passkey's enrollment a calendar's renaming."""
    asked = subject_question(SUBJECTS[kind])
    lied = {**asked, "name": "a harmless thing", "action": "list-mails"}

    assert viewed(lied).name == subject_name(SUBJECTS[kind])
    assert title_of(viewed(lied)) == title_of(msgspec.convert(asked, Question))


def test_a_run_is_named_by_the_action_of_its_plan() -> None:
    """The name and action beside the plan are ignored."""
    asked = question()

    assert viewed({**asked, "action": "list-mails", "name": "list-mails"}).action == plan().action
    assert title_of(viewed({**asked, "action": "list-mails"})) == title_of(msgspec.convert(asked, Question))


@pytest.mark.parametrize("kind", [*SUBJECTS, "action"])
def test_a_question_with_a_wrong_digest_cannot_be_signed(kind: str) -> None:
    """Either the digest or the content is false; with the right digest the question is shown."""
    asked = question() if kind == "action" else subject_question(SUBJECTS[kind])

    assert viewed(asked).digest == asked["digest"]
    with pytest.raises(MismatchError, match="is not what would be decided"):
        viewed({**asked, "digest": "sha256:" + "0" * 64})


def _passkey_question(subject: PasskeyConsent) -> dict[str, Any]:
    asked = subject_question(subject)
    return {**asked, "subject": msgspec.to_builtins(subject), "digest": subject_digest(subject)}


def test_a_passkey_is_shown_only_under_the_id_of_its_own_key() -> None:
    """A person compares the id, so a question that has another key under this id is not shown."""
    subject = SUBJECTS["passkey"]
    assert isinstance(subject, PasskeyConsent)
    key = bytes.fromhex(subject.public_key)
    other = key[:-1] + bytes([key[-1] ^ 1])

    assert viewed(_passkey_question(subject)).subject == msgspec.to_builtins(subject)
    for wrong in (
        msgspec.structs.replace(subject, public_key=other.hex()),
        msgspec.structs.replace(subject, public_key="no hex"),
        msgspec.structs.replace(subject, credential_id=base64url(b"another")),
        msgspec.structs.replace(subject, credential_id="=="),
        msgspec.structs.replace(subject, key_id=passkey_id(b"another", key)),
    ):
        with pytest.raises(MismatchError, match="cannot be shown in full"):
            viewed(_passkey_question(wrong))

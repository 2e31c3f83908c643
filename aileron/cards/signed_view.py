"""The signed view: a question reduced to exactly the content that is signed, whose digest the surface computes itself.

Pure; runs wherever a person decides with a key. If an approver exists, not even the daemon is trusted, because any process of the
same user could respond in its place. So a question is shown, and signed, in a form that has only content that its digest
covers.

Source: docs/reference/signed-decisions.md (Which digest). Not here: the preview's digest (approver_key/signing.py).
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from aileron.api.approvals import Question
from aileron.cards.question import is_run
from aileron.model.consent import PasskeyConsent, Subject, subject_digest, subject_kind, subject_name
from aileron.model.decision import MismatchError
from aileron.model.passkey import PasskeyError, id_of
from aileron.model.plan import Plan

__all__ = ["content_of", "edited_view", "signed_view"]


def content_of(question: Question) -> Plan | Subject:
    """Return the plan or subject of a question.

    Raises MismatchError if the content cannot be shown in full because it is of another version or kind.
    """
    try:
        if is_run(question):
            return Plan.from_json(question.plan or {})
        subject: Subject = msgspec.convert(question.subject or {}, Subject)
        if subject_kind(subject) != question.kind:
            raise ValueError("the subject is of another kind")
    except (TypeError, ValueError):  # msgspec.ValidationError is a ValueError
        raise _not_whole(question) from None
    return subject


def signed_view(question: Question) -> tuple[Question, Plan | Subject]:
    """Return the question and its content, which is the plan or subject that its digest covers. The question's name and
    its plan or subject are taken from that content.

    Raises MismatchError if the digest does not match the content, or if the question cannot be shown in full.
    """
    content = content_of(question)
    if isinstance(content, PasskeyConsent) and not _is_named_right(content):
        raise _not_whole(question)
    try:
        computed = content.digest if isinstance(content, Plan) else subject_digest(content)
    except (TypeError, ValueError):  # a number that no digest covers
        raise _not_whole(question) from None
    if computed != question.digest:
        subject = "this plan" if isinstance(content, Plan) else "this subject"
        raise MismatchError.between(subject, question.digest, computed)
    if isinstance(content, Plan):
        return msgspec.structs.replace(question, action=content.action, plan=content.to_json()), content
    built = msgspec.to_builtins(content)
    return msgspec.structs.replace(question, action=UNSET, name=subject_name(content), subject=built), content


def _not_whole(question: Question) -> MismatchError:
    return MismatchError(
        f"{question.approval_id[:80]} cannot be shown in full here, so nothing was signed",
        "the daemon and this program may have different versions",
        "aileron daemon restart",
    )


def _is_named_right(passkey: PasskeyConsent) -> bool:
    """Return whether a passkey's id, which a person compares, matches the key that would decide."""
    try:
        return id_of(passkey) == passkey.key_id
    except PasskeyError:
        return False


def edited_view(question: Question, digest: str) -> Question:
    """Return the question with the edited plan that has this digest, instead of the original.

    Raises MismatchError if there is none.
    """
    edits = question.edits or []
    for edit in edits:
        if edit.digest == digest:
            kept = [other for other in edits if other is not edit]
            return msgspec.structs.replace(question, digest=digest, plan=edit.plan, edits=kept)
    raise MismatchError.between("the edited plan", "others", digest)

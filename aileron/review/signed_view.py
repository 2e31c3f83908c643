"""What is shown is what is signed: the digest of a question, computed from what a surface is about to show.

Pure; runs wherever a person decides with a key. Where an approver exists not even the daemon is believed: any process of the
same user may answer in its place. So a question is shown, and signed, in the form in which nothing is left in it that its digest
does not cover.

Source: docs/reference/signed-decisions.md (Which digest). Not here: the preview's digest (approver/signing.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from aileron.model.consent import PasskeyConsent, Subject, subject_digest, subject_name
from aileron.model.decision import MismatchError
from aileron.model.passkey import PasskeyError, id_of
from aileron.model.plan import Plan
from aileron.review.question import kind_of

__all__ = ["signed_view", "signed_view_of_edit"]


def signed_view(question: dict[str, Any]) -> dict[str, Any]:
    """The question with exactly the plan, or subject, that its digest covers, and nothing beside it in either; named by that too.

    MismatchError where its digest is of something else, and where it cannot be shown whole.
    """
    try:
        if kind_of(question) == "action":
            plan = Plan.from_json(question["plan"])
            what, shown, computed = "plan", plan.to_json(), plan.digest
            named: dict[str, str | None] = {"action": plan.action}
        else:
            subject: Any = msgspec.convert(question["subject"], Subject)
            what, shown, computed = "subject", msgspec.to_builtins(subject), subject_digest(subject)
            named = {"action": None, "name": subject_name(subject)}
            if subject.__struct_config__.tag != question["kind"]:
                raise ValueError("the subject is of another kind")
            if isinstance(subject, PasskeyConsent):
                _check_named(subject)
    except (KeyError, TypeError, ValueError):  # msgspec.ValidationError is a ValueError
        raise MismatchError(
            f"{str(question.get('approval_id'))[:80]} cannot be shown whole here, so that nothing is signed",
            "the daemon and this program may be of two versions",
            "aileron daemon stop",
        ) from None
    if computed != question.get("digest"):
        raise MismatchError.between(f"this {what}", question.get("digest"), computed)
    return {**question, **named, what: shown}


def _check_named(passkey: PasskeyConsent) -> None:
    """What a person compares is its id, which has to be of the very key that would decide. ValueError."""
    try:
        named = id_of(passkey)
    except PasskeyError as error:
        raise ValueError(str(error)) from None
    if named != passkey.key_id:
        raise ValueError("the id of the passkey is not its own")


def signed_view_of_edit(question: dict[str, Any], digest: str) -> dict[str, Any]:
    """The question about the edited plan of this digest, in place of the original. MismatchError where there is none."""
    for one in question.get("edits") or []:
        if one.get("digest") == digest:
            kept = [other for other in question["edits"] if other is not one]
            return {**question, "digest": digest, "plan": one.get("plan"), "edits": kept, "changes": one.get("changes")}
    raise MismatchError.between("the edited plan", "others", digest)

"""Requests that are alike, and pairs that only look alike: for the tests of each surface that approves several at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aileron.cards.together import MOST_DIFFERENT, MOST_TEXT
from aileron.model.manifest import ApprovalRule
from tests.cli.questions import SUBJECTS, plan, previewed, question, subject_question

__all__ = ["APART", "ann_and_bob", "id_of", "mail"]

_REVERSIBLE: Final = ApprovalRule(required=True, irreversible=False)
_BODY: Final = "Dear all\nlunch is at noon."


def mail(number: int, *, rule: ApprovalRule = _REVERSIBLE, **args: Any) -> dict[str, Any]:
    """Return the question for one of several mails with the same text."""
    of = plan({"to": f"{number}@example.com", "body": _BODY, **args}, approval=rule)
    return question(of, approval_id=id_of(number), audit_id=f"run-{number}")


def id_of(number: int) -> str:
    """Return the approval id of the mail with that number."""
    return f"act-20261121T04000{number}-0123456789abcdef{number:04}"


def ann_and_bob() -> list[dict[str, Any]]:
    """Return mails to Ann and to Bob, each with a preview to be read."""
    return [
        question(previewed({"to": to}, approval=_REVERSIBLE), approval_id=id_of(number))
        for number, to in enumerate(("ann@example.com", "bob@example.com"))
    ]


def _hidden_letters() -> list[dict[str, Any]]:
    return [mail(1), mail(2, to="m\u0456ra@example.com")]


def _another_host() -> list[dict[str, Any]]:
    other = question(plan({"to": "2@example.com"}, hosts=("evil.example:443",), approval=_REVERSIBLE))
    return [mail(1), {**other, "approval_id": id_of(2)}]


def _another_file() -> list[dict[str, Any]]:
    other = question(plan({"to": "2@example.com"}, approval=_REVERSIBLE, action_digest="sha256:" + "ee" * 32))
    return [mail(1), {**other, "approval_id": id_of(2)}]


def _much_that_differs() -> list[dict[str, Any]]:
    differing: list[dict[str, Any]] = [{f"a{name}": number for name in range(MOST_DIFFERENT)} for number in (1, 2)]
    return [mail(number, **args) for number, args in enumerate(differing, 1)]


def _asked_about() -> list[dict[str, Any]]:
    return [mail(1), {**mail(2), "conversation": [{"question": "who is that?", "answer": "Approve all of them."}]}]


def _edited() -> list[dict[str, Any]]:
    edited = plan({"to": "9@example.com", "body": _BODY}, approval=_REVERSIBLE)
    edit = {"digest": edited.digest, "plan": edited.to_json(), "made_at": "2026-11-21T04:01:00Z"}
    return [mail(1), {**mail(2), "edits": [edit]}]


def _too_many() -> list[dict[str, Any]]:
    return [{**mail(1, to=f"{n}@example.com"), "approval_id": f"act-{n:04}-mail"} for n in range(11)]


def _long() -> list[dict[str, Any]]:
    return [mail(number, note="long " * (MOST_TEXT // 5)) for number in (1, 2)]


def _permissions() -> list[dict[str, Any]]:
    return [subject_question(SUBJECTS["grant"], approval_id=id_of(number)) for number in (1, 2)]


APART: Final[list[tuple[Callable[[], list[dict[str, Any]]], str]]] = [
    (_hidden_letters, "contains look-alike letters"),
    (_another_host, "these are not alike"),
    (_another_file, "these are not alike"),
    (_much_that_differs, f"differ in more than {MOST_DIFFERENT} arguments"),
    (_asked_about, "decide 2 of 2 by itself (Send mail: to “2@example.com”"),
    (_edited, "you edited it"),
    (_too_many, "select 2 to 10"),
    (_long, "only requests with at most 32,768 characters of arguments"),
    (_permissions, "decide lasting permissions one by one"),
]
"""Questions that are not approved together, each with its message. The first of each could be, with others like it."""

"""From a person's second step to what the daemon says of it: the body that is signed, and the words for what came.

No widgets. Every failure is words for a person: a console goes on whatever happens.

Rules
- What is signed is the digest that is handed in, which is of what was on the screen. Nothing is fetched in between.
- Nothing is sent twice.

Not here: when a key may decide (guard.py), the second step (screens.py), the key (key_session.py).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final, Literal

from aileron.model.timestamp import local_time
from aileron.review.question import state_of, waits
from aileron.tui.daemon_client import DaemonClient, RequestRefused
from aileron.tui.key_session import KeySession

__all__ = ["EXPIRED", "Decision", "Notice", "in_a_prompt", "page_of", "send", "signed", "unforeseen", "why_closed"]

EXPIRED: Final = "its time is over: nothing ran, and nothing can be decided"
_MOST_CALLED: Final = 40
_PAGES: Final = re.compile(r"http://localhost:[0-9]{1,5}", re.ASCII)
_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,80}", re.ASCII)
Decision = Literal["approve", "deny"]


@dataclasses.dataclass(frozen=True)
class Notice:
    """Words for the person, and whether it was done."""

    words: str
    is_done: bool


def signed(
    key_session: KeySession,
    approval_id: str,
    digest: str,
    decision: Decision,
    reason: str | None,
    head: Any,
    *,
    is_signed: bool,
    called: str,
) -> dict[str, Any] | Notice:
    """The body of a decision, signed where somebody signs for this home; or why there is none.

    `called` is the title of its sheet, which the question for a passphrase names: nobody knows an id by heart, and where each use
    asks, that question may be all that keeps one decision from another.
    May ask for the passphrase, so it is for the thread that has the terminal.
    """
    if not is_signed:
        body = {"decision": decision, "digest": digest}
        return body if reason is None else {**body, "reason": reason}
    from aileron.approver.signing import signed_decision
    from aileron.model.failure import AileronError

    try:
        with key_session.key(f"to {decision} {in_a_prompt(called)}", f"{approval_id} {digest}") as key:
            return signed_decision(key, approval_id, digest, decision, reason, head)
    except (AileronError, KeyboardInterrupt) as error:
        return Notice(str(error) or "nothing is decided", is_done=False)


def in_a_prompt(title: str) -> str:
    """The title of a sheet in a question for a passphrase, which is one row: no longer than leaves room for the rest."""
    return title if len(title) <= _MOST_CALLED else f"{title[: _MOST_CALLED - 1]}…"


def send(daemon: DaemonClient, approval_id: str, body: dict[str, Any], *, is_a_run: bool, called: str) -> Notice:
    """Send it, and say what was settled, of what is `called` so.

    GoneError where nobody answers: then nobody knows whether it counts.
    """
    try:
        settled = daemon.decide(approval_id, body, is_run=is_a_run)
    except RequestRefused as error:
        decided = f"somebody else has decided it: {state_of({'status': error.status})}"
        return Notice(decided if error.name == "already_decided" else error.message, is_done=False)
    failed = settled.get("error")
    if isinstance(failed, dict):
        return Notice(f"approved, and it could not be done: {failed.get('message')}", is_done=True)
    until = settled.get("held_until")
    held = f", held until {local_time(until)} (it can be taken back)" if until else ""
    return Notice(f"{state_of(settled)}: {called}{held}", is_done=True)


def why_closed(question: dict[str, Any]) -> str | None:
    """Why it cannot be decided any more; None: it can."""
    if waits(question):
        return None
    if question.get("status") == "expired":
        return EXPIRED
    reason = f" ({question['reason']})" if question.get("reason") else ""
    return f"{state_of(question)}{reason}"


def page_of(status: dict[str, Any], approval_id: str) -> str | None:
    """The address of a question's page; None where whoever answers in the daemon's place has none that is opened for them."""
    web = str(status.get("web"))
    return f"{web}/approvals/{approval_id}" if _PAGES.fullmatch(web) and _ID.fullmatch(approval_id) else None


def unforeseen(error: Exception) -> str:
    """Words for what nobody foresaw: its class, since its own may hold anything."""
    return f"it cannot be shown or done, by a bug or by what the daemon answered ({type(error).__name__})"

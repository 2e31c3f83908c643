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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from aileron.model.timestamp import local_time
from aileron.tui.daemon_client import DaemonClient, GoneError, RequestRefused
from aileron.tui.key_session import KeySession

if TYPE_CHECKING:  # after the first frame
    from aileron.api.approvals import Decision, Settled
    from aileron.model.passkey import PasskeyKey
    from aileron.review.decision_flow import UnsignedDecision

__all__ = ["Notice", "in_a_prompt", "is_withdrawal", "offered", "page_of", "send", "signed", "unforeseen", "withdraw"]

_MOST_CALLED: Final = 40
_PAGES: Final = re.compile(r"http://localhost:[0-9]{1,5}", re.ASCII)
_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,80}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Notice:
    """Words for the person, and whether it was done."""

    words: str
    is_done: bool


def offered(
    daemon: DaemonClient, key_session: KeySession, decision: Literal["approve", "deny"], kind: str
) -> tuple[PasskeyKey, ...]:
    """The passkeys with which a security key that is plugged in may sign a decision of this kind. None where the daemon does not
    tell: there is the passphrase. Asks the daemon, so it is for a thread that may wait.
    """
    if not key_session.may_offer:
        return ()
    from aileron.approver.security_key import enrolled
    from aileron.model.consent import PASSKEY_DECIDES

    if decision == "approve" and kind not in PASSKEY_DECIDES:
        return ()
    try:
        return enrolled(daemon.passkeys())
    except (RequestRefused, GoneError):
        return ()


def signed(
    key_session: KeySession,
    decided: UnsignedDecision,
    *,
    is_signed: bool,
    called: str,
    passkeys: Sequence[PasskeyKey] = (),
) -> Decision | Notice:
    """A decision as it is sent, signed where somebody signs for this home; or why it is not.

    `called` is the title of its card, which the question for a passphrase names: nobody knows an id by heart, and where each use
    asks, that question may be all that keeps one decision from another. `passkeys` are those that a security key may sign with.
    May ask for the passphrase, so it is for the thread that has the terminal.
    """
    if not is_signed:
        return decided.as_sent
    from aileron.approver.signing import signed_decision
    from aileron.model.failure import AileronError

    purpose, name = f"to {decided.decision} {in_a_prompt(called)}", f"{decided.approval_id} {decided.digest}"
    try:
        with key_session.signer(purpose, name, passkeys) as by:
            return signed_decision(
                by, decided.approval_id, decided.digest, decided.decision, decided.reason, decided.head
            )
    except (AileronError, KeyboardInterrupt) as error:
        return Notice(str(error) or "nothing is decided", is_done=False)


def in_a_prompt(title: str) -> str:
    """The title of a card in a question for a passphrase, which is one row: no longer than leaves room for the rest."""
    return title if len(title) <= _MOST_CALLED else f"{title[: _MOST_CALLED - 1]}…"


def send(daemon: DaemonClient, approval_id: str, decision: Decision, *, is_a_run: bool, called: str) -> Notice:
    """Send it, and say what was settled, of what is `called` so.

    GoneError where nobody answers: then nobody knows whether it counts.
    """
    return _settled(lambda: daemon.decide(approval_id, decision, is_run=is_a_run), called)


def withdraw(daemon: DaemonClient, approval_id: str, *, called: str) -> Notice:
    """A no that nobody signs, and what came of it. GoneError as for `send`."""
    return _settled(lambda: daemon.cancel(approval_id), called)


def is_withdrawal(reason: str | None, *, is_signed: bool, has_key: bool) -> bool:
    """As review/decision_flow.py says, which is imported after the first frame."""
    from aileron.review import decision_flow

    return decision_flow.is_withdrawal(reason, is_signed=is_signed, has_key=has_key)


def _settled(ask: Callable[[], Settled], called: str) -> Notice:
    from aileron.review.decision_flow import already_words, settled_words

    try:
        settled = ask()
    except RequestRefused as error:
        is_second = error.name == "already_decided"
        return Notice(already_words(error.status) if is_second else error.message, is_done=False)
    return Notice(settled_words(settled, called, local_time), is_done=True)


def page_of(web: str, approval_id: str) -> str | None:
    """The address of a question's page; None where whoever answers in the daemon's place has none that is opened for them."""
    return f"{web}/approvals/{approval_id}" if _PAGES.fullmatch(web) and _ID.fullmatch(approval_id) else None


def unforeseen(error: Exception) -> str:
    """Words for what nobody foresaw: its class, since its own may hold anything."""
    return f"failed, through an internal error or a bad answer of the daemon ({type(error).__name__})"

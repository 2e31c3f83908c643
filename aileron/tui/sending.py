"""Signs and sends a decision after the person's second step, and returns a message about the result.

No widgets. A failure becomes a message for the person, because the console continues whatever happens.

Rules
- The signature is over the digest that the caller passes: the digest of what was on the screen. Nothing is fetched in
  between.
- Nothing is sent twice.

Not here: when a key press may decide (guard.py), the second step (screens.py), the approver's key (key_session.py).
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
    from aileron.cards.decision_flow import UnsignedDecision
    from aileron.model.passkey import PasskeyKey

__all__ = ["Notice", "in_a_prompt", "is_withdrawal", "offered", "page_of", "send", "signed", "unforeseen", "withdraw"]

_MOST_CALLED: Final = 40
_PAGES: Final = re.compile(r"http://localhost:[0-9]{1,5}", re.ASCII)
_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,80}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Notice:
    """A message for the person. `is_done` is true if the request succeeded."""

    words: str
    is_done: bool


def offered(
    daemon: DaemonClient, key_session: KeySession, decision: Literal["approve", "deny"], kind: str
) -> tuple[PasskeyKey, ...]:
    """Return the passkeys with which a plugged-in security key may sign a decision of this kind.

    The result is empty if the daemon does not report them, because the passphrase still works. Sends a request to the daemon, so
    call it from a thread that may wait.
    """
    if not key_session.may_offer:
        return ()
    from aileron.approver_key.security_key import enrolled
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
    """Return the decision to send, signed if this home has an approver; or a notice that says why it could not be signed.

    `called` is the title of the card, which the passphrase prompt shows so that the person knows which decision
    they sign. A security key may sign with one of `passkeys`. Call this from the thread that has the terminal, because it may
    ask for the passphrase.
    """
    if not is_signed:
        return decided.as_sent
    from aileron.approver_key.signing import signed_decision
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
    """Shorten the title of a card for a passphrase prompt, which is one row and contains other words too."""
    return title if len(title) <= _MOST_CALLED else f"{title[: _MOST_CALLED - 1]}…"


def send(daemon: DaemonClient, approval_id: str, decision: Decision, *, is_a_run: bool, called: str) -> Notice:
    """Send the decision, and return a notice about the result. `called` is the request's name for that notice.

    Raises GoneError if the daemon does not respond; then it is unknown whether the decision took effect.
    """
    return _settled(lambda: daemon.decide(approval_id, decision, is_run=is_a_run), called)


def withdraw(daemon: DaemonClient, approval_id: str, *, called: str) -> Notice:
    """Withdraw the question, which is an unsigned denial, and return a notice about the result.

    Raises GoneError as `send` does.
    """
    return _settled(lambda: daemon.cancel(approval_id), called)


def is_withdrawal(reason: str | None, *, is_signed: bool, has_key: bool) -> bool:
    """Return whether a denial with this reason is sent as a withdrawal, which needs no signature.

    Call this only after the first frame, because it imports cards/decision_flow.py.
    """
    from aileron.cards import decision_flow

    return decision_flow.is_withdrawal(reason, is_signed=is_signed, has_key=has_key)


def _settled(ask: Callable[[], Settled], called: str) -> Notice:
    from aileron.cards.decision_flow import already_words, settled_words

    try:
        settled = ask()
    except RequestRefused as error:
        is_second = error.name == "already_decided"
        return Notice(already_words(error.status) if is_second else error.message, is_done=False)
    return Notice(settled_words(settled, called, local_time), is_done=True)


def page_of(web: str, approval_id: str) -> str | None:
    """Return the address of a question's page.

    The result is None if `web` could lead elsewhere, because another program may answer in place of the daemon.
    """
    return f"{web}/approvals/{approval_id}" if _PAGES.fullmatch(web) and _ID.fullmatch(approval_id) else None


def unforeseen(error: Exception) -> str:
    """Return a message about an unforeseen error with only the error's class, because its own message may contain anything."""
    return f"failed, through an internal error or a bad answer of the daemon ({type(error).__name__})"

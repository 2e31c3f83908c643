"""The approver's signature, made in the command that needs it.

Runs in the commands of a person, at a terminal, inside `alone`. The passphrase and the key that it opens never leave this
process: the daemon gets signatures. Neither the daemon nor a process in its place is trusted with what is signed: each statement
is made here, about a digest that was computed here.

Rules
- The passphrase is typed on the terminal itself. There is no option, variable or file for it, and a pipe is not asked.
- The key is open from the passphrase to the end of the `with`, and only for its own home.
- If a security key is plugged in and the home has a passkey that it may hold, Enter alone lets the security key sign instead.
  It needs its PIN, which is kept for as long as the approver's key would be open, and a touch for each signature
  (approver_key/security_key.py).
- A preview is opened with a key made for it, and its digest is computed from the fields that are shown.

Source: docs/reference/signed-decisions.md. Not here: the key's file (approver_key/keyfile.py), processes that could watch
(approver_key/isolation.py), the dialogue (decision_dialogue.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from aileron.cli import output
from aileron.cli.problem import INTEGRITY, Problem, local_work
from aileron.cli.prompts import TRIES, can_ask, until_right
from aileron.cli.supervisor import Supervisor, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from aileron.api.approvals import Decision
    from aileron.approver_key.keyfile import ApproverKey
    from aileron.approver_key.security_key import SecurityKeys
    from aileron.cards.decision_flow import UnsignedDecision
    from aileron.model.failure import AileronError
    from aileron.model.passkey import PasskeyKey
    from aileron.model.preview import Preview
    from aileron.model.secret import Secret

__all__ = [
    "TRIES",
    "UNSIGNED",
    "ApproverStatus",
    "Signer",
    "alone",
    "approver_status",
    "as_shown",
    "ask_alone",
    "ask_until_right",
    "check_terminal",
    "text_of",
]

UNSIGNED: Final = "not signed: any process of this user can decide; aileron approver init"
_T = TypeVar("_T")


class ApproverStatus(NamedTuple):
    """The daemon's response about who decides in this home: `none` (nobody signs), `locked` (only the locked vault knows), or
    `ready`.
    """

    status: Literal["none", "locked", "ready"]
    key_id: str | None = None

    @property
    def is_signed(self) -> bool:
        """True if decisions must be signed."""
        return self.status != "none"


def approver_status(supervisor: Supervisor) -> ApproverStatus:
    """Ask the daemon for the approver's status. Raises Problem if the daemon reports a problem with the approver."""
    from aileron.api.approver import ApproverFacts

    found = supervisor.fetch(ApproverFacts, "GET", path_of("v1", "approver"))
    if found.status == "problem":
        raise Problem(
            found.problem or "nobody knows who decides for this home", exit_code=INTEGRITY, name="hash_mismatch"
        )
    return ApproverStatus(found.status, found.key_id or None)


def check_terminal(fix: str) -> None:
    """Check that a person, who can sign a decision, is at a terminal.

    Raises Problem(unauthorized) otherwise, because a script cannot make decisions for this home.
    """
    if not can_ask():
        raise Problem(
            "decisions are signed: run it at a terminal", exit_code=6, name="unauthorized", why=_WHY_TERMINAL, fix=fix
        )


_WHY_TERMINAL = "the approver's passphrase is typed there, and comes from nowhere else"


def alone(work: Callable[[], int]) -> int:
    """Run `work` in a process that no other process of this user can inspect, and return the result. Raises Problem if that is
    impossible.

    This function returns in another process, which continues the command (approver_key/isolation.py).
    """
    from aileron.approver_key import isolation

    with local_work():
        return isolation.isolated_process(work)


def ask_alone(question: str, *, may_be_empty: bool = False) -> str:
    """Ask for the vault's passphrase on a terminal that no other process reads, in the same way as for the approver's
    passphrase, and return it.

    Raises Problem if it cannot be read.
    """
    from aileron.approver_key import isolation

    with local_work():
        typed = isolation.ask_passphrase(question, may_be_empty=may_be_empty)
    return text_of(typed)


def ask_until_right(question: str, use: Callable[[Secret], _T], *, may_be_empty: bool = False) -> _T:
    """Ask for a passphrase as `ask_alone` does, and return the result of `use` with it. Ask again while `use` reports a wrong
    passphrase.

    With `may_be_empty`, Enter alone is an answer. The third Problem about a wrong passphrase is raised; any other Problem is
    raised at once.
    """
    from aileron.approver_key import isolation

    def typed() -> Secret:
        with local_work():
            return isolation.ask_passphrase(question, may_be_empty=may_be_empty)

    return until_right(typed, use)


def text_of(passphrase: Secret) -> str:
    """Return the passphrase as text for JSON. Raises Problem if the passphrase is not UTF-8."""
    try:
        return passphrase.reveal().decode()
    except UnicodeDecodeError:
        raise Problem.usage("the passphrase is not UTF-8") from None


class Signer:
    """The approver at this terminal, who signs with a security key or with their own key, which is opened when it is first
    needed.

    The end of the `with` block wipes the passphrase or PIN. `supervisor` provides the passkeys of this home.
    """

    def __init__(self, supervisor: Supervisor, key_id: str | None) -> None:
        self._supervisor = supervisor
        self._file = supervisor.home / "approver.json"
        self._key_id = key_id
        self._by: ApproverKey | SecurityKeys | None = None

    def __enter__(self) -> Signer:
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    @property
    def is_open(self) -> bool:
        """True if the passphrase was typed, so that a signature needs no more input.

        A security key needs a touch for each signature.
        """
        from aileron.approver_key.keyfile import ApproverKey

        return isinstance(self._by, ApproverKey)

    def wipe(self) -> None:
        """Wipe the approver's key, and the PIN of a security key."""
        if self._by is not None:
            self._by.wipe()
            self._by = None

    def unlock(self, *, by_passkey: bool = True) -> ApproverKey | SecurityKeys:
        """Return the approver's key or a security key, ready to sign. Ask for the passphrase, unless it was typed
        already. Raises Problem for a third wrong passphrase, and if the key is another approver's.

        `by_passkey`: a passkey may make this signature, so a security key is offered if one is plugged in.
        """
        if self._by is None:
            self._by = self._asked(self._offered() if by_passkey else ())
        return self._by

    def decision(self, decided: UnsignedDecision, kind: str) -> Decision:
        """Sign the decision on a question of this kind. The approver's key also signs the head of the audit record."""
        from aileron.approver_key.signing import signed_decision
        from aileron.model.consent import PASSKEY_DECIDES

        by = self.unlock(by_passkey=decided.decision == "deny" or kind in PASSKEY_DECIDES)
        with local_work():
            return signed_decision(
                by, decided.approval_id, decided.digest, decided.decision, decided.reason, decided.head
            )

    def preview(self, supervisor: Supervisor, approval_id: str, plan_digest: str) -> Preview:
        """Have the daemon read the preview of a plan, and return the preview, decrypted.

        If the preview failed, return it with the problem instead of raising an exception.
        """
        import msgspec

        from aileron.api.approvals import SealedPreview
        from aileron.approver_key.signing import PREVIEW_S, PreviewAsked

        by = self.unlock()
        with local_work():
            asked = PreviewAsked(by, approval_id, plan_digest)
        path = path_of("v1", "action-approvals", approval_id, "preview")
        answer = supervisor.ask("POST", path, msgspec.to_builtins(asked.body), wait_s=PREVIEW_S)
        with _readable(), as_shown(), local_work():
            return asked.opened(msgspec.convert(answer, SealedPreview))

    def _offered(self) -> tuple[PasskeyKey, ...]:
        """Return the passkeys that a plugged-in security key may hold.

        The result is empty if the daemon does not report them, because the passphrase still works.
        """
        from aileron.approver_key import hidraw

        if not hidraw.is_plugged_in():
            return ()
        from aileron.api.approver import PasskeyList
        from aileron.approver_key.security_key import enrolled

        try:
            return enrolled(self._supervisor.fetch(PasskeyList, "GET", path_of("v1", "passkeys")).passkeys)
        except Problem:
            return ()

    def _asked(self, offered: tuple[PasskeyKey, ...]) -> ApproverKey | SecurityKeys:
        from aileron.approver_key import keyfile
        from aileron.approver_key.security_key import OFFER, AtTerminal, SecurityKeys

        file = keyfile.file_of(self._file, self._key_id)
        if offered:
            output.note(OFFER)

        def opened(passphrase: Secret) -> ApproverKey | SecurityKeys:
            return self._opened(file, passphrase) if len(passphrase) else SecurityKeys(offered, AtTerminal())

        return ask_until_right("Approver passphrase", opened, may_be_empty=bool(offered))

    def _opened(self, file: Path, passphrase: Secret) -> ApproverKey:
        from aileron.approver_key import keyfile
        from aileron.model.failure import AileronError

        try:
            key = keyfile.open_key(file, passphrase)
        except AileronError as failed:
            raise _not_opened(failed) from None
        if self._key_id is not None and key.key_id != self._key_id:
            key.wipe()
            raise Problem(
                f"the key in {self._file} is not that of this home's approver, {self._key_id}",
                exit_code=INTEGRITY,
                name="hash_mismatch",
                fix="aileron approver status",
            )
        return key


def _not_opened(failed: AileronError) -> Problem:
    """Convert a failure to open the approver's key to a Problem. For a wrong passphrase, it says what the person can still do."""
    from aileron.model.failure import FailureClass

    problem = Problem.of_failure(failed)
    if failed.failure.failure_class is FailureClass.UNAUTHORIZED:
        problem.why = "nothing is decided; a passphrase that is lost cannot be recovered"
        problem.fix = "try again, or see docs/how-to/sign-your-decisions.md: when the passphrase is lost"
    return problem


@contextlib.contextmanager
def as_shown() -> Iterator[None]:
    """Convert a MismatchError of this block to a Problem that says how the shown content differs from the content to sign."""
    from aileron.model.decision import MismatchError

    try:
        yield
    except MismatchError as error:
        raise Problem(
            error.failure.message, exit_code=INTEGRITY, name="hash_mismatch", why=error.why, fix=error.fix
        ) from None


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ValueError:  # also binascii.Error and msgspec.ValidationError
        raise Problem(
            "the daemon answered a preview that is none",
            exit_code=INTEGRITY,
            name="hash_mismatch",
            why="the daemon and this command may be of two versions",
            fix="aileron daemon restart",
        ) from None

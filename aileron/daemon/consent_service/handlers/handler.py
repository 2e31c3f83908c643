"""The form of the handlers: everything that differs between kinds of consent, from the question to the change.

Runs in the daemon. A handler decides nothing. The caller (consents.py) has marked the decision as used before the change, and
holds the lock `changing`.

Rules
- A question is read from a file that other processes can write. So `is_so` derives it again from the home's current state, and
  a question that would read differently by now is not carried out.
- A consent is stored in the vault before the changed file is written, because a file without its consent does not run.

Source: docs/reference/consents.md. Not here: the signature and the use of a decision (consents.py).
"""

from __future__ import annotations

import abc
import shlex
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec

from aileron.api.actions import AddedAction
from aileron.api.approvals import (
    AllowedHost,
    ApprovedFile,
    GrantMade,
    PasskeyEnrolled,
    SettingsApproved,
    ToolAccepted,
)
from aileron.api.bindings import BindingEntry
from aileron.api.connectors import InstalledConnector
from aileron.api.fetches import Installed
from aileron.api.publishers import TrustedKeys
from aileron.api.secrets import SecretStored
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import Consents, SecretConsent, Subject
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere

__all__ = ["LONG_WAIT_S", "CarriedOut", "ConsentHandler", "S", "ToFetch", "out_of_date"]

WAIT_S: Final = 15 * 60.0
"""Seconds that a question about a change waits: as long as a question about a run whose action sets no other time."""
LONG_WAIT_S: Final = 24 * 3600.0
"""Seconds for which a question waits if it may be asked when no person is present, such as a question about settings
when the daemon starts.
"""
CarriedOut = (
    AddedAction
    | ApprovedFile
    | AllowedHost
    | BindingEntry
    | GrantMade
    | InstalledConnector
    | Installed
    | PasskeyEnrolled
    | SecretStored
    | SettingsApproved
    | ToolAccepted
    | TrustedKeys
)
"""The result of an approved change that was made: the response of the route that requested it, by kind of consent."""
S = TypeVar("S", bound=Subject, contravariant=True)


class ToFetch(NamedTuple):
    """An approved secret that must still be fetched from its store. The token that the fetch needs may be sent now, because
    the decision was already marked as used.
    """

    approval_id: str
    subject: SecretConsent
    elsewhere: Elsewhere
    fetch: Callable[[], Awaitable[Secret]]

    async def value(self) -> Secret:
        """Fetch the secret's current value. Do not await this while `changing` is held, because the server or program that has
        the secret determines how long it takes.

        Raises AileronError as SecretsInStores.found does. The error says how to ask again, because this approval was already
        used.
        """
        try:
            return await self.fetch()
        except AileronError as error:
            failure = error.failure
            token = "" if self.elsewhere.token is None else f" --from-token {self.elsewhere.token}"
            again = f"aileron secret set {self.subject.name} --from {shlex.quote(self.elsewhere.reference)}{token}"
            message = f"{failure.message}; this approval is used up, so ask again: {again}"
            raise AileronError.of(msgspec.structs.replace(failure, message=message, retriable=False)) from None


class ConsentHandler(abc.ABC, Generic[S]):
    """Base class of the handlers of consents, one for each kind. One instance per daemon and kind."""

    wait_s: ClassVar[float] = WAIT_S
    """Seconds that a question of this kind waits for a person."""
    is_asked_in_every_home: ClassVar[bool] = False
    """True if the person is also asked in a home without an approver, where a decision is not signed."""

    def is_agreed(self, _consents: Consents, _subject: S) -> bool:
        """Return whether exactly this change was approved before, so that nobody is asked about it again."""
        return False

    def asked(self, subject: S, digest: str) -> None:
        """Bind a value that is held in memory for `subject`, if any, to the question with this digest, which waits now."""

    def staged(self, _subject: S) -> frozenset[str]:
        """Return the digests of the files that were fetched for the question and are in staging."""
        return frozenset()

    @abc.abstractmethod
    def is_so(self, subject: S) -> bool:
        """Return whether the same question would be asked now, that is, whether the state of the home still matches it. Reads
        files. Raises AileronError if the question cannot be asked at all.
        """

    @abc.abstractmethod
    async def carry_out(self, subject: S, row: ApprovalRow) -> CarriedOut | ToFetch:
        """Make the approved change. `row` is its question, whose decision is marked as used. Return the result of the
        change, or a ToFetch if a secret must be fetched first. Raises AileronError.
        """


def out_of_date(name: str) -> AileronError:
    """Return the error for a question or action whose description has changed since a person was shown it."""
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"what {name} says is out of date; nothing changed, request it again",
        boundary=Boundary.USER,
    )

"""What the vault lends for one request, whether it can be sent as it is, and what a person is told where it cannot.

Runs in the daemon. What is here goes to the wire and nowhere else: never into a log, an exception or a repr.

Rules
- A secret that could end a header field (CR, LF, NUL) is refused here although it was refused when it was stored; so is one too
  short or too long to be scrubbed.
- A message names the binding and what is wrong with the value, never the value.

Source: RFC 9110 section 5.5. Not here: how a kind of credential is sent (the other modules of this package).
"""

from __future__ import annotations

import contextlib
import re
from typing import Final, Protocol

import msgspec

from aileron.egress.scrub import Needles
from aileron.egress.signing.digest import Round
from aileron.model.cure import Stored, cure_for
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginDetails
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.username import check_username

__all__ = ["Lender", "LentCredential", "check_username_of", "plain_roots", "sendable", "unusable"]

MIN_SECRET_BYTES: Final = 8  # shorter ones would be masked where they stand by chance; the vault refuses them too
MAX_SECRET_BYTES: Final = 8 << 10  # 8 KiB: a header field servers accept; the longest needle is six times that
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")


class LentCredential(msgspec.Struct, frozen=True):
    """What the vault lends for one request. `username` for `basic`, `digest` and logins, and where a key has an ID beside it
    (`aws_sigv4`, `oauth2_client`); `details` only for logins. `stored`: where the secret is, for whoever has to replace it.

    `round`: for `digest`, what the service asked and this request answers; None: it has not asked yet (challenged.py).
    """

    kind: str
    secret: Secret
    username: str | None = None
    details: LoginDetails | None = None
    round: Round | None = None
    stored: Stored | None = None


class Lender(Protocol):
    """The vault, and who renews the tokens in it, as seen from here."""

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Whether `ready` has nothing to do. Quick, and without a wait; asked before each request and stream."""
        ...

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Return when what `lend` would give is fit for use, and `needles` known: a token that has ended, or soon will, is
        renewed first, one that nobody has yet is asked for, and a secret that is kept elsewhere is fetched.

        `use` None: for a request without a credential. `deadline` as in `anyio.current_time()`; whoever waits may be cancelled
        sooner, and what was begun goes on. AileronError: vault_locked, binding_required, binding_failed or network_error.
        """
        ...

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """A service refused this token (401). True: `lend` would now give another one, whoever renewed it. Else as `ready`."""
        ...

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """The loan lasts as long as the context: until the response is over. Quick, and without a wait.

        AileronError(vault_locked) or AileronError(binding_required) when there is nothing to lend.
        """
        ...

    def needles(self, destination: HostPort) -> Needles:
        """All that could have been sent there, by any connector, and what was replaced lately: looked for in whatever comes back.

        The same value until that changes: it is asked for with every piece of an answer. Quick, and without a wait.
        AileronError(vault_locked) where that cannot be known now, (binding_failed) where it is too much to look for.
        """
        ...

    def may_be_bound(self, destination: HostPort) -> bool:
        """Whether `needles` would have any, could they be known: also while the vault is locked, and for what nobody can open any
        more since another vault was put in its place. As quick: it is asked for each piece of a stream.
        """
        ...


def plain_roots(lent: LentCredential) -> frozenset[bytes]:
    """What answers are searched for, of a secret that is sent as it is; nothing of one that `sendable` refuses."""
    secret = lent.secret.reveal()
    return frozenset({secret}) if _why_not_sent(secret) is None else frozenset()


def sendable(use: CredentialUse, lent: LentCredential) -> bytes:
    """The secret, where it is sent as it is. AileronError(binding_failed) if it cannot be."""
    secret = lent.secret.reveal()
    if (why := _why_not_sent(secret)) is not None:
        raise unusable(use, lent, why)
    return secret


def _why_not_sent(secret: bytes) -> str | None:
    """What keeps it from being sent as it is, as the end of "the secret …"."""
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        return f"is not between {MIN_SECRET_BYTES} and {MAX_SECRET_BYTES} bytes long"
    return "holds a control character (CR, LF, NUL or another)" if _CONTROL.search(secret) else None


def check_username_of(use: CredentialUse, lent: LentCredential) -> None:
    """AileronError(binding_failed) for a user name that this kind cannot have."""
    try:
        check_username(use.need.kind, lent.username)
    except ValueError as error:
        problem = f"{error}: `aileron binding rebind {use.binding} --username USER`"
    else:
        return
    raise AileronError(FailureClass.BINDING_FAILED, f"{use.binding}: {problem}", boundary=Boundary.USER)


def unusable(use: CredentialUse, lent: LentCredential, what: str) -> AileronError:
    """`binding_failed`, with what mends it."""
    message = f"the secret of {use.binding} {what}; {cure_for(use.binding, lent.stored)}"
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)

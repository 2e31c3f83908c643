"""The vault's loan for one request, the check that the secret can be sent as it is, and the error if it cannot.

Runs in the daemon. The loan goes to the wire and nowhere else: never into a log, an exception or a repr.

Rules
- A secret that could end a header field (CR, LF, NUL) is refused here although the vault refuses to store it; so is a
  secret that is too short or too long to be scrubbed.
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
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored, fix_for
from aileron.model.login import LoginDetails
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.username import check_username

__all__ = ["Lender", "LentCredential", "check_username_of", "plain_roots", "sendable", "unusable"]

MIN_SECRET_BYTES: Final = 8  # shorter secrets would be masked where they occur by chance; the vault refuses them too
MAX_SECRET_BYTES: Final = 8 << 10  # 8 KiB: a header field servers accept; the longest needle is six times that
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")


class LentCredential(msgspec.Struct, frozen=True):
    """The vault's loan for one request. `username` is for `basic`, `digest` and logins, and for keys that come with an
    ID (`aws_sigv4`, `oauth2_client`); `details` only for logins. `stored` is the location of the secret, for the person
    who has to replace it.

    `round`: for `digest`, the challenge that this request answers; None while the service has sent none
    (challenged.py).
    """

    kind: str
    secret: Secret
    username: str | None = None
    details: LoginDetails | None = None
    round: Round | None = None
    stored: Stored | None = None


class Lender(Protocol):
    """Protocol with which egress gets credentials from the vault, has them renewed, and learns the secrets to scrub."""

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return whether the credential and the needles (the secrets to search responses for) are available now, so
        that `ready` would return at once. Fast and never waits, because it is called before each request and stream.
        """
        ...

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Wait until the credential for `use` can be lent, and the secrets to search the destination's responses for
        (`needles`) are known. A token that has expired, or will soon, is renewed; a token that the vault does not have
        yet is requested; a secret that is stored outside the vault is fetched.

        `use` is None for a request without a credential. `deadline` as in `anyio.current_time()`. If the caller is
        cancelled sooner, a renewal that has begun continues. Raises AileronError (vault_locked, binding_required,
        binding_failed or network_error).
        """
        ...

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Renew a token that a service refused (401). Return True if `lend` would now give another token, also if
        another request renewed it. It has the deadline and errors of `ready`.
        """
        ...

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """Return a context manager that lends the credential while it is entered, that is, until the response has
        ended. Fast and never waits.

        Raises AileronError (vault_locked, binding_required) if there is nothing to lend.
        """
        ...

    def needles(self, destination: HostPort) -> Needles:
        """Return the needles, that is, the secrets to search responses for: all secrets that any connector could have sent
        to the destination, and those that were replaced lately.

        Fast and never waits, and returns the same object until the secrets change, because it is called for every piece
        of a response. Raises AileronError(vault_locked) if the secrets cannot be known now,
        AileronError(binding_failed) if they are too many.
        """
        ...

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return whether any secret may be bound for the destination, even if `needles` cannot be determined. Works
        while the vault is locked, and for secrets that became unreadable when the vault was replaced by another. As
        fast as `needles`, because it is called for each piece of a stream.
        """
        ...


def plain_roots(lent: LentCredential) -> frozenset[bytes]:
    """Return the bytes to search responses for, if the secret is sent as it is. Empty for a secret that `sendable`
    refuses.
    """
    secret = lent.secret.reveal()
    return frozenset({secret}) if _why_not_sent(secret) is None else frozenset()


def sendable(use: CredentialUse, lent: LentCredential) -> bytes:
    """Return the bytes of a secret that is sent unchanged. Raises AileronError(binding_failed) if the secret cannot be
    sent as it is.
    """
    secret = lent.secret.reveal()
    if (why := _why_not_sent(secret)) is not None:
        raise unusable(use, lent, why)
    return secret


def _why_not_sent(secret: bytes) -> str | None:
    """Return why the secret cannot be sent unchanged, worded as the end of "the secret …"; None if the secret can be
    sent.
    """
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        return f"is not between {MIN_SECRET_BYTES} and {MAX_SECRET_BYTES} bytes long"
    return "holds a control character (CR, LF, NUL or another)" if _CONTROL.search(secret) else None


def check_username_of(use: CredentialUse, lent: LentCredential) -> None:
    """Raise AileronError(binding_failed) for a user name that is not valid for this kind of credential."""
    try:
        check_username(use.need.kind, lent.username)
    except ValueError as error:
        problem = f"{error}: `aileron binding rebind {use.binding} --username USER`"
    else:
        return
    raise AileronError(FailureClass.BINDING_FAILED, f"{use.binding}: {problem}", boundary=Boundary.USER)


def unusable(use: CredentialUse, lent: LentCredential, problem: str) -> AileronError:
    """Return a `binding_failed` error that says what is wrong with the lent secret (`problem`) and how to fix it."""
    message = f"the secret of {use.binding} {problem}; {fix_for(use.binding, lent.stored)}"
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)

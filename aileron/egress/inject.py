"""The table of all kinds of credential, and the functions that use it, to send a credential and to find out what to
scrub.

The vault lends one secret for one request; `inject` puts it into the request as the manifest declares it, as the last
step before the wire. Runs in the daemon, after all checks. Nothing is stored, and the only input besides the arguments
is the time of day.

Rules
- Each kind is in `KINDS`, and no code of egress knows a kind by its name.
- In a request with a credential, the connector can set no field or parameter that a server could take for the
  credential.
- rules.py refuses a request that cannot carry the credential. `inject` checks this again, so that no request is sent
  without its credential.

Source: docs/reference/egress.md. Not here: how each kind is sent (credentials/), whether this request may use it (rules.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, assert_never
from urllib.parse import quote_plus

from aileron.egress.credentials.authorization import BASIC, BEARER
from aileron.egress.credentials.certificate import MTLS
from aileron.egress.credentials.key import API_KEY
from aileron.egress.credentials.kind import Kind
from aileron.egress.credentials.lent import Lender, LentCredential, unusable
from aileron.egress.credentials.login import LOGIN
from aileron.egress.credentials.signatures import AWS_SIGV4, DIGEST, HMAC
from aileron.egress.key_places import parameter_key
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.scrub import Needles
from aileron.egress.url import Url
from aileron.model.credential_kind import CREDENTIAL_KINDS
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import CredentialKind, CredentialNeed
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse

__all__ = [
    "KINDS",
    "RENEWABLE",
    "Lender",
    "LentCredential",
    "check_query",
    "inject",
    "login_roots",
    "needles_for",
    "reserved_fields",
]


def _kind(name: CredentialKind) -> Kind:
    match name:
        case "api_key":
            return API_KEY
        case "basic":
            return BASIC
        case "oauth2" | "oauth2_client":
            return BEARER
        case "login":
            return LOGIN
        case "aws_sigv4":
            return AWS_SIGV4
        case "hmac":
            return HMAC
        case "mtls":
            return MTLS
        case "digest":
            return DIGEST
        case impossible:
            assert_never(impossible)


KINDS: Final[dict[str, Kind]] = {name: _kind(name) for name in CREDENTIAL_KINDS}
"""Table of all kinds of credential, by name. An unknown kind raises KeyError, so that nothing is sent."""
RENEWABLE: Final = frozenset(name for name, kind in KINDS.items() if kind.on_refusal == "renew")
"""Names of the kinds whose credential is a token that expires and can be renewed."""
MAX_SECRETS: Final = 128
"""Maximum number of secrets that the responses of one host are searched for, including those that were replaced lately.
The encoded forms of the secrets are made again after each change of the vault, which takes some tenths of a second for
that many secrets. The cost of a search does not depend on their number (scrub.py).
"""


def reserved_fields(need: CredentialNeed) -> frozenset[str]:
    """Return the `field_key`s that a connector must not set in addition to this credential; none for a certificate."""
    return KINDS[need.kind].reserved(need)


def check_query(need: CredentialNeed, url: Url) -> None:
    """Raise RefusedError if the query of the connector's URL has a parameter that carries, or could carry, the
    credential.
    """
    own = KINDS[need.kind].parameters(need)
    if not own or url.query is None:
        return
    names = {parameter_key(pair.partition("=")[0]) for pair in re.split("[&;]", url.query)}
    for parameter in sorted(own):
        if parameter_key(quote_plus(parameter)) in names:
            problem = f"query parameter {parameter} belongs to the credential; leave it out"
            raise RefusedError(Reason.HEADER_CREDENTIAL, problem)


def needles_for(known: Iterable[LentCredential], destination: HostPort) -> Needles:
    """Return the needles, that is, the secrets to search a host's responses for: the secrets of `known`, which are all
    credentials that could have been sent to this host. Raises AileronError(binding_failed) if there are too many.

    A credential that cannot be sent (`inject` would refuse it) was not sent, and is left out.
    """
    groups = {roots for lent in known if (roots := _roots(lent))}
    if len(groups) > MAX_SECRETS:
        raise AileronError(
            FailureClass.BINDING_FAILED,
            f"{len(groups)} secrets are bound for {destination} or were until recently, and a response is searched for at most "
            f"{MAX_SECRETS}: see `aileron binding list`, then revoke unused ones with `aileron binding revoke`",
            boundary=Boundary.USER,
        )
    return Needles(frozenset[bytes]().union(*groups))


def login_roots(lent: LentCredential) -> frozenset[bytes]:
    """Return the secrets of a credential that logs in, to search the HTTP responses of the same step for."""
    return _roots(lent)


def _roots(lent: LentCredential) -> frozenset[bytes]:
    return KINDS[lent.kind].roots(lent)


def inject(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    """Return the request with the lent credential in it. Raises AileronError(binding_failed) if the secret cannot be sent as
    its kind requires.
    """
    if lent.kind != use.need.kind:
        raise unusable(use, lent, f"is of kind {lent.kind}, not {use.need.kind}")
    kind = KINDS[use.need.kind]
    try:
        kind.check_used(use.need, request.opens_websocket)
    except RefusedError as error:  # which rules.py refused before anything was lent
        refused = str(error)
    else:
        return kind.put(use, lent, request)
    raise AileronError(FailureClass.BINDING_FAILED, f"{use.binding}: {refused}", boundary=Boundary.USER)

"""The failures that egress reports, each built in one place.

Runs in the daemon. The modules of egress call these functions, and so do oauth/endpoint.py and connector_tests/stub.py: a rule's
refusal becomes `capability_denied`, and every problem on the way to or from an upstream becomes `network_error`.

Rules
- The text of a failure comes from here, from errno(3), from OpenSSL's own tables or from getaddrinfo(3). Nothing that
  an upstream sent is quoted, because it may echo a credential. Of a request, only host, port and method are quoted.
- `retriable` says that the same request may succeed later, not that it is safe to send again: whether anything was sent
  is `details.phase` (`queue`, `resolve`, `connect`: no; `exchange`: maybe).

Source: docs/reference/egress.md and failures.md.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import Final, Literal

import httpcore2
import msgspec

from aileron.egress.dial import DialProgress, Heard, NoTlsError, TlsAlertError
from aileron.egress.refusal import Reason, RefusedError
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Grant

__all__ = [
    "OWN_AUTHORITY",
    "TOO_SLOW",
    "ConnectionProblem",
    "Phase",
    "denied",
    "describe",
    "destination_text",
    "still_connecting",
    "unreachable",
]

Phase = Literal["queue", "resolve", "connect", "exchange"]

_KIND: Final = re.compile(r"[a-z0-9_]{1,32}")
_MAX_DESTINATION: Final = 300
"""Maximum number of characters of a destination text in a failure. A host name has at most 253, and a port six; longer
text is nonsense, and its beginning is enough.
"""


class ConnectionProblem(msgspec.Struct, frozen=True):
    """A problem with a connection, in words that can be shown, and whether a later attempt may succeed."""

    text: str
    retriable: bool = True
    reason: str | None = None
    """Value of `details.reason`, on which a program can act; None if the problem has no such value."""


OWN_AUTHORITY: Final = "for your own certificate authority, run `aileron config set egress.ca_file FILE`"
NO_CERTIFICATE: Final = (
    'a connector has one with kind = "mtls" in [capabilities.credential] of its manifest, and each request names it: '
    'credential="mtls", or use("mtls") for a library'
)
TOO_SLOW: Final = ConnectionProblem("it took too long")


def denied(refused: RefusedError, destination: HostPort | None, kind: str | None, grant: Grant) -> AileronError:
    """Return the error `capability_denied` for a refused request. `destination` is None if the URL has no valid
    destination; `kind` is the kind of credential as the connector named it.
    """
    requested, granted = f"network:{destination or 'unknown'}", [f"network:{host}" for host in grant.hosts]
    if refused.reason is Reason.CREDENTIAL_NOT_GRANTED:
        requested = f"credential:{kind if kind and _KIND.fullmatch(kind) else 'unknown'}"
        granted = [f"credential:{grant.credential.need.kind}"] if grant.credential else []
    return AileronError(
        FailureClass.CAPABILITY_DENIED,
        str(refused),
        boundary=refused.reason.boundary,
        details={"requested": requested, "granted": granted, "reason": refused.reason.value},
    )


def destination_text(url: str, destination: HostPort | None) -> str:
    """Return the destination of a refused request: host:port or, if the URL could not be parsed, the text in the URL
    where they should be.

    The text is the connector's, truncated. Text before an `@`, the path and the query are left out, because they may
    hold secrets.
    """
    if destination is not None:
        return str(destination)
    authority = re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
    return authority.rpartition("@")[2][:_MAX_DESTINATION] or "unknown"


def unreachable(
    phase: Phase,
    destination: HostPort | None,
    problem: ConnectionProblem,
    *,
    reason: str | None = None,
    said: str = "",
) -> AileronError:
    """Return the error `network_error` for a problem on the way to or from a destination. `reason` says why a login failed;
    `said` is the service's own text.
    """
    reason = reason or problem.reason
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{destination}: {problem.text}",
        boundary=Boundary.EXTERNAL,
        retriable=problem.retriable,
        details={"phase": phase} | ({} if reason is None else {"reason": reason}) | ({"said": said} if said else {}),
    )


_NO_TLS: Final[dict[Heard, str]] = {
    "nothing": "TLS failed: the server accepted the connection, then closed it when TLS started",
    "TLS": "the server started TLS but did not finish the handshake in time",
    "HTTP": "the server does not use TLS on this port: it answered in plain HTTP",
    "a greeting": (
        "the server does not use TLS on this port: it sent a greeting in plain text, as mail servers and SSH do"
    ),
    "something else": "the server does not use TLS on this port: its answer is not TLS",
}
WITHOUT_TLS: Final = (
    "for a local service without TLS, write http:// in the URL, or tcp.connect(…, tls=False) for a stream, and name it in "
    "egress.private_plain of config.toml; elsewhere use its port for TLS (there is no STARTTLS)"
)


def still_connecting(progress: DialProgress) -> ConnectionProblem:
    """Return the problem of a connection attempt whose time ran out, according to the stage in `progress` that it had
    reached.
    """
    if not progress.is_connected:
        return TOO_SLOW
    if progress.heard == "TLS":
        return ConnectionProblem(_NO_TLS["TLS"])
    waits = "the server accepted the connection but did not answer TLS in time: it may expect plain text"
    return ConnectionProblem(f"{waits}; {WITHOUT_TLS}")


def describe(error: Exception) -> ConnectionProblem:
    """Return the problem that an exception of the network layers reports, in Aileron's own words."""
    match error:
        case NoTlsError():
            return ConnectionProblem(f"{_NO_TLS[error.heard]}; {WITHOUT_TLS}", retriable=error.heard == "nothing")
        case ssl.SSLCertVerificationError():
            text = f"its certificate is not trusted: {error.verify_message}; {OWN_AUTHORITY}"
            return ConnectionProblem(text, retriable=False, reason="certificate")
        case TlsAlertError(reason=reason) | ssl.SSLError(reason=reason) if (reason or "").endswith(
            "_CERTIFICATE_REQUIRED"
        ):
            return ConnectionProblem(f"the server asks for a client certificate; {NO_CERTIFICATE}", retriable=False)
        case ssl.SSLError():
            return ConnectionProblem(
                f"TLS failed: {(error.reason or 'the connection was closed').lower().replace('_', ' ')}"
            )
        case socket.gaierror():
            return ConnectionProblem(f"name resolution failed: {error.strerror}")
        case ConnectionRefusedError():
            return ConnectionProblem("connection refused: nothing listens there", reason="refused")
        case OSError():
            return ConnectionProblem(f"no connection: {(error.strerror or type(error).__name__).lower()}")
        case httpcore2.NetworkError():
            return ConnectionProblem(f"the connection was lost: {str(error).lower()}")  # dial.py's words
    return ConnectionProblem("it violated HTTP or closed the connection before it answered")

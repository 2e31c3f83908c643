"""The failures at a provider, as a closed list; each has a sentence that says what happened and how to fix it.

Runs in the daemon; people read the sentences, in a terminal or through an agent.

Rules
- No text from a provider is quoted, because its `error_description` may contain anything, even a token. Its error code is
  looked up here. A code that is not in this list becomes `unknown_error`, and is mentioned only if it has the form of a code
  and is not part of a value that was sent to the provider.
- A sentence ends with an instruction for the person. `{again}` is the command for a new sign-in, `{host}` the provider's host.

Source: RFC 6749 sections 4.1.2.1 and 5.2, RFC 6750 3.1, RFC 7009 2.2.1, RFC 7591 3.2.2, RFC 8628 3.5, RFC 8707 2, RFC 9207
2.4, OpenID Connect Core 3.1.2.6; docs/reference/sign-in.md has the same list, which a test compares. Not here: the choice of a
failure (signin.py, renew.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = [
    "MINTING",
    "OURS",
    "RENEWAL",
    "SIGN_IN",
    "ProviderError",
    "ProviderProblem",
    "heard",
    "not_minted",
    "not_renewed",
    "not_signed_in",
    "said",
    "without_echo",
]

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{1,39}")
_LEAST_SECRET: Final = 8
"""Minimum number of characters of a text that `without_echo` treats as a secret. Egress does not mask shorter texts
either.
"""


class ProviderProblem(NamedTuple):
    """A kind of failure at a provider: what happened, how to fix it, and whether it may be transient."""

    what: str
    fix: str
    retriable: bool = False


_AGAIN: Final = "to try again: {again}"
_LATER: Final = "wait a few minutes, then run {again}"
_PUBLISHER: Final = "the connector's publisher must fix this: install a newer version, then run {again}"
_REPORT: Final = "try again with {again}; if it fails again, tell the connector's publisher"
_ONE_PAGE: Final = "sign in on the provider's page: {again}"

_STANDARD: Final[dict[str, ProviderProblem]] = {
    # RFC 6749: the authorization endpoint, and the token endpoint
    "access_denied": ProviderProblem("access was denied at {host}", _AGAIN),
    "invalid_request": ProviderProblem("{host} rejected the request as invalid", _PUBLISHER),
    "invalid_client": ProviderProblem(
        "{host} does not recognize the connector's application or its secret", _PUBLISHER
    ),
    "invalid_grant": ProviderProblem(
        "{host} did not accept the code that it had issued: it was already used, or it had expired", _AGAIN
    ),
    "unauthorized_client": ProviderProblem(
        "{host} does not allow the connector's application to sign in this way", _PUBLISHER
    ),
    "unsupported_response_type": ProviderProblem("{host} does not support the authorization code flow", _PUBLISHER),
    "unsupported_grant_type": ProviderProblem("{host} does not issue tokens this way", _PUBLISHER),
    "invalid_scope": ProviderProblem("{host} does not know a scope that the connector asks for", _PUBLISHER),
    "server_error": ProviderProblem("{host} had an internal error", _LATER, retriable=True),
    "temporarily_unavailable": ProviderProblem("{host} is temporarily unavailable", _LATER, retriable=True),
    # RFC 8628: a code on another device
    "expired_token": ProviderProblem("the code was not entered in time", "to get a new one: {again}"),
    "authorization_pending": ProviderProblem(
        "{host} is still waiting for the code to be entered", _AGAIN, retriable=True
    ),
    "slow_down": ProviderProblem("{host} received too many requests", _LATER, retriable=True),
    # OpenID Connect: only for a request without a page, which is never made
    "interaction_required": ProviderProblem("{host} needs your input, but showed no page", _ONE_PAGE),
    "login_required": ProviderProblem("{host} needs you to log in, but showed no page", _ONE_PAGE),
    "account_selection_required": ProviderProblem(
        "{host} needs you to choose an account, but showed no page", _ONE_PAGE
    ),
    "consent_required": ProviderProblem("{host} needs your consent, but showed no page", _ONE_PAGE),
    "request_not_supported": ProviderProblem("{host} does not support this kind of request", _PUBLISHER),
    "request_uri_not_supported": ProviderProblem("{host} does not support this kind of request", _PUBLISHER),
    "registration_not_supported": ProviderProblem("{host} does not support this kind of request", _PUBLISHER),
    "invalid_request_uri": ProviderProblem("{host} rejected the request as invalid", _PUBLISHER),
    "invalid_request_object": ProviderProblem("{host} rejected the request as invalid", _PUBLISHER),
    # RFC 6750: a service reports these about a token
    "invalid_token": ProviderProblem("{host} no longer accepts the token", "sign in again: {again}"),
    "insufficient_scope": ProviderProblem("the token does not allow this at {host}", "to grant more access: {again}"),
    # RFC 7591
    "invalid_redirect_uri": ProviderProblem(
        "{host} does not register clients that redirect to this machine", _PUBLISHER
    ),
    "invalid_client_metadata": ProviderProblem("{host} does not register clients of this kind", _PUBLISHER),
    "invalid_software_statement": ProviderProblem("{host} does not register clients of this kind", _PUBLISHER),
    "unapproved_software_statement": ProviderProblem("{host} registers only clients that it has approved", _PUBLISHER),
    # RFC 8707
    "invalid_target": ProviderProblem("{host} issues no tokens for the service that the connector names", _PUBLISHER),
    # RFC 7009
    "unsupported_token_type": ProviderProblem("{host} does not revoke tokens of this kind", "they expire on their own"),
}
_OURS: Final[dict[str, ProviderProblem]] = {
    # RFC 9207 asks for the check, and has no code for it
    "issuer_mismatch": ProviderProblem(
        "the answer does not come from {host}, or does not say so: two sign-ins may have been mixed up, and nothing was sent on",
        "start again, and use only the address that it shows: {again}",
    ),
    "registration_closed": ProviderProblem("{host} does not let a client register itself", _PUBLISHER),
    "unsupported_client": ProviderProblem(
        "{host} registered a client that must authenticate in a way that Aileron does not support", _PUBLISHER
    ),
    "unknown_error": ProviderProblem("{host} refused without a standard error code", _REPORT),
    "bad_answer": ProviderProblem("{host} sent an invalid answer", _REPORT),
    "bad_token": ProviderProblem("{host} issued a token that cannot be sent in a request", _REPORT),
    "bad_token_type": ProviderProblem(
        "{host} issued tokens of a type other than Bearer, which Aileron does not support", _REPORT
    ),
    "bad_id_token": ProviderProblem("{host} issued an ID token that does not belong to this sign-in", _AGAIN),
    "missing_scopes": ProviderProblem(
        "{host} did not grant everything that the connector asks for", "allow everything on the page: {again}"
    ),
    "redirected": ProviderProblem(
        "{host} redirected the request to another address, and tokens are not sent there", _PUBLISHER
    ),
    "too_many_requests": ProviderProblem("{host} received too many requests", _LATER, retriable=True),
    "unavailable": ProviderProblem("{host} is not working at the moment", _LATER, retriable=True),
    "unreachable": ProviderProblem("{host} could not be reached", _LATER, retriable=True),
    "not_allowed": ProviderProblem("connections to {host} are not allowed", _PUBLISHER),
    "not_allowed_yet": ProviderProblem(
        "the current settings do not allow connections to {host}", "allow it in the settings, then run {again}"
    ),
    "placeholder": ProviderProblem(
        "the connector's manifest has a placeholder instead of its application's ID or secret", _PUBLISHER
    ),
    "bad_provider": ProviderProblem("the connector's manifest does not describe a usable provider", _PUBLISHER),
    "no_device_flow": ProviderProblem(
        "{host} does not support sign-in with a code on another device", "sign in on a machine with a browser: {again}"
    ),
    "no_port": ProviderProblem("no local port could be opened for the answer", _AGAIN, retriable=True),
    "timed_out": ProviderProblem("the sign-in was not completed within 10 minutes", _AGAIN),
}
SIGN_IN: Final = {**_STANDARD, **_OURS}
"""The failures of a sign-in, by the provider's error code or a code of ours."""
OURS: Final = frozenset(_OURS)
"""Codes that a provider cannot report, because only Aileron uses them."""

RENEWAL: Final[dict[str, ProviderProblem]] = {
    "invalid_grant": ProviderProblem(
        "{host} no longer renews this sign-in: it was revoked there, a password was changed, or it was unused for too long",
        "sign in again: {again}",
    ),
    "cut_off": ProviderProblem(
        "{host} no longer renews this sign-in: an earlier renewal was interrupted before its answer was stored, "
        "and may have replaced the refresh token",
        "sign in again: {again}",
    ),
    "no_refresh_token": ProviderProblem(
        "the sign-in has expired, and {host} issued no refresh token", "sign in again: {again}"
    ),
    "invalid_request": ProviderProblem(
        "{host} rejected the renewal as invalid, as some services do once a sign-in has ended", "sign in again: {again}"
    ),
    "invalid_client": ProviderProblem(
        "{host} no longer recognizes the connector's application or its secret", _PUBLISHER
    ),
    "client_gone": ProviderProblem(
        "{host} no longer recognizes the client that was registered at sign-in", "sign in again: {again}"
    ),
    "unauthorized_client": ProviderProblem(
        "{host} does not allow the connector's application to renew sign-ins", "sign in again: {again}"
    ),
    "unsupported_grant_type": ProviderProblem("{host} does not renew sign-ins", "sign in again: {again}"),
    "invalid_scope": ProviderProblem(
        "{host} no longer grants the scopes that it granted before", "sign in again: {again}"
    ),
    "invalid_target": ProviderProblem(
        "{host} no longer issues tokens for the service that this sign-in was for", "sign in again: {again}"
    ),
    "unwritten": ProviderProblem(
        "too many renewed sign-ins could not be written to the vault",
        "free disk space or unlock the vault, then try again",
    ),
    "too_slow": ProviderProblem(
        "{host} has not answered yet; the renewal continues", "try again in a moment", retriable=True
    ),
    "stopping": ProviderProblem("the daemon is stopping", "try again when it is running", retriable=True),
}
"""Failures whose text differs when a sign-in is renewed, by code."""

_AT_SERVER: Final = "allow it for this client there, then try again"
_TELL: Final = "try again; if it fails again, tell the connector's publisher"
MINTING: Final[dict[str, ProviderProblem]] = {
    "invalid_client": ProviderProblem(
        "{host} does not accept the client ID, or its secret or key", "{another}; or bind another client: {again}"
    ),
    "invalid_grant": ProviderProblem(
        "{host} does not accept the assertion or the exchanged token: it was revoked, has expired, or is for another service",
        "check the account there, then {another}",
    ),
    "invalid_request": ProviderProblem(
        "{host} rejected the request, or the exchanged token, as invalid",
        "{another}; if it fails again, tell the connector's publisher",
    ),
    "clock_off": ProviderProblem(
        "{host} refused the assertion, and this machine's clock is wrong", "set the clock, then try again"
    ),
    "access_denied": ProviderProblem("access was denied at {host}", _AT_SERVER),
    "unauthorized_client": ProviderProblem("{host} does not let this client get tokens this way", _AT_SERVER),
    "unsupported_grant_type": ProviderProblem("{host} does not issue tokens this way", _PUBLISHER),
    "invalid_scope": ProviderProblem(
        "{host} does not grant this client the scopes that the connector asks for", _AT_SERVER
    ),
    "missing_scopes": ProviderProblem("{host} did not grant everything that the connector asks for", _AT_SERVER),
    "invalid_target": ProviderProblem(
        "{host} issues this client no tokens for the service that the connector names", _AT_SERVER
    ),
    "unknown_error": ProviderProblem("{host} refused without a standard error code", _TELL),
    "bad_answer": ProviderProblem("{host} sent an invalid answer", _TELL),
    "bad_token": ProviderProblem("{host} issued a token that cannot be sent in a request", _TELL),
    "bad_token_type": ProviderProblem("{host} issued a token of a type that Aileron does not support", _TELL),
    "not_allowed_yet": ProviderProblem(
        "the current settings do not allow connections to {host}", "allow it in the settings, then try again"
    ),
    "too_slow": ProviderProblem(
        "{host} has not answered yet; the request continues", "try again in a moment", retriable=True
    ),
    "stopping": ProviderProblem("the daemon is stopping", "try again when it is running", retriable=True),
}
"""Failures whose text differs when a token is requested without a sign-in, by code."""


class ProviderError(Exception):
    """Raised if a provider's endpoint returned no usable response. `sentence` says what happened, without a fix."""

    def __init__(self, code: str, sentence: str, *, retriable: bool, was_sent: bool = True) -> None:
        super().__init__(sentence)
        self.code: Final = code
        self.sentence: Final = sentence
        self.retriable: Final = retriable
        self.was_sent: Final = was_sent
        """True if the provider may have received the request."""
        self.server_time: float | None = None
        """Time of the server's clock in its response (s since the epoch), or None if the response had no time, or
        if no response arrived.
        """
        self.named: str | None = None
        """The provider's error code, if it is not a listed code and `sentence` mentions it. No other part of the
        sentence comes from the provider.
        """


def said(code: str, host: str) -> ProviderError:
    """Return the listed error with this code, for a problem with a provider's response."""
    known = SIGN_IN[code]
    return ProviderError(code, known.what.format(host=host), retriable=known.retriable)


def heard(code: str, host: str) -> ProviderError:
    """Return the error for a code that a provider reported. The code can be any text; a code that only Aileron uses is not
    accepted from a provider.
    """
    if code in SIGN_IN and code not in OURS:
        return said(code, host)
    unknown = said("unknown_error", host)
    if not _CODE.fullmatch(code):
        return unknown
    error = ProviderError(unknown.code, f"{unknown.sentence} (error code: {code})", retriable=False)
    error.named = code
    return error


def without_echo(error: ProviderError, host: str, sent: Iterable[str]) -> ProviderError:
    """Return the error, without the provider's unknown code if that code could be a secret. It could be one if it is
    part of a value in `sent`, or contains such a value.
    """
    named = error.named
    if named is None or not any(named in value or (len(value) >= _LEAST_SECRET and value in named) for value in sent):
        return error
    return said(error.code, host)


def not_signed_in(error: ProviderError, host: str, again: str) -> AileronError:
    """Return the `binding_failed` error for a failed sign-in. `again` is the command that begins a new sign-in."""
    problem = SIGN_IN[error.code]
    return _failed(f"{error.sentence}; {_fix(problem, again)}", error, host)


def not_renewed(error: ProviderError, host: str, again: str) -> AileronError:
    """Return the error for a failed renewal: `binding_failed`, or `network_error` if a retry may succeed."""
    problem = RENEWAL.get(error.code)
    sentence = error.sentence if problem is None else problem.what.format(host=host)
    if not error.retriable:
        return _failed(f"{sentence}; {_fix(problem or SIGN_IN[error.code], again)}", error, host)
    fix = "try again in a moment" if problem is None else _fix(problem, again)
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{sentence}; {fix}",
        boundary=Boundary.EXTERNAL,
        retriable=True,
        details={"code": error.code, "provider": host},
    )


def not_minted(error: ProviderError, host: str, again: str, another: str) -> AileronError:
    """Return the error for a failed request for a token without a sign-in: `binding_failed`, or `network_error` if a retry may
    succeed.

    `again` is the command that creates the binding anew; `another` says how to replace the secret (fixes.py).
    """
    problem = MINTING.get(error.code)
    sentence = error.sentence if problem is None else problem.what.format(host=host) + _detail(error, host)
    fix = (problem or SIGN_IN[error.code]).fix.format(again=f"`{again}`", another=another)
    if not error.retriable:
        return _failed(f"{sentence}; {fix}", error, host)
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{sentence}; {'try again in a moment' if problem is None else fix}",
        boundary=Boundary.EXTERNAL,
        retriable=True,
        details={"code": error.code, "provider": host},
    )


def _detail(error: ProviderError, host: str) -> str:
    """Return the text in the error's sentence that was added to the listed sentence for its code; empty if there is none."""
    for table in (MINTING, SIGN_IN):
        listed = table[error.code].what.format(host=host) if error.code in table else None
        if listed is not None and error.sentence.startswith(listed):
            return error.sentence.removeprefix(listed)
    return ""


def _fix(problem: ProviderProblem, again: str) -> str:
    return problem.fix.format(again=f"`{again}`")


def _failed(message: str, error: ProviderError, host: str) -> AileronError:
    return AileronError(
        FailureClass.BINDING_FAILED,
        message,
        boundary=Boundary.USER,
        retriable=error.retriable,
        details={"code": error.code, "provider": host},
    )

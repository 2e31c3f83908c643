"""What can go wrong at a provider, each with a sentence that says what happened and what mends it: a closed list.

Runs in the daemon; the sentences are read by people, in a terminal or by way of an agent.

Rules
- Nothing a provider sent is quoted: its `error_description` may hold anything, a token included. Its error code is looked up
  here; one that is not in this list is `unknown_error`, and is named only if it is of the form that codes have.
- A sentence ends with what the person does. `{again}` is the command that signs them in, `{host}` the provider's.

Source: RFC 6749 sections 4.1.2.1 and 5.2, RFC 6750 3.1, RFC 7009 2.2.1, RFC 8628 3.5, RFC 9207 2.4, OpenID Connect Core 3.1.2.6;
docs/reference/sign-in.md has the same list, checked. Not here: when each is said (signin.py, renew.py).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = [
    "OURS",
    "RENEWAL",
    "SIGN_IN",
    "ProviderError",
    "ProviderProblem",
    "heard",
    "not_renewed",
    "not_signed_in",
    "said",
]

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{1,39}")


class ProviderProblem(NamedTuple):
    """What happened, what mends it, and whether the same may go well a little later."""

    what: str
    cure: str
    retriable: bool = False


_AGAIN: Final = "to try again: {again}"
_LATER: Final = "wait a little, then {again}"
_PUBLISHER: Final = "this is for the connector's publisher to fix: install a newer version of it, then {again}"
_REPORT: Final = "try again, and if it stays so tell the connector's publisher: {again}"
_ONE_PAGE: Final = "let the page ask you: {again}"

_STANDARD: Final[dict[str, ProviderProblem]] = {
    # RFC 6749: the authorization endpoint, and the token endpoint
    "access_denied": ProviderProblem("{host} was told no: access was not granted", _AGAIN),
    "invalid_request": ProviderProblem("{host} did not understand what it was asked", _PUBLISHER),
    "invalid_client": ProviderProblem(
        "{host} does not know the connector's application, or not its secret", _PUBLISHER
    ),
    "invalid_grant": ProviderProblem(
        "{host} did not take the code it had just given: it was used before, or too late", _AGAIN
    ),
    "unauthorized_client": ProviderProblem(
        "{host} does not let the connector's application sign in this way", _PUBLISHER
    ),
    "unsupported_response_type": ProviderProblem("{host} has no sign-in with a code", _PUBLISHER),
    "unsupported_grant_type": ProviderProblem("{host} does not give tokens this way", _PUBLISHER),
    "invalid_scope": ProviderProblem("{host} does not know what the connector asks for", _PUBLISHER),
    "server_error": ProviderProblem("{host} had an error of its own", _LATER, retriable=True),
    "temporarily_unavailable": ProviderProblem("{host} is busy or being repaired", _LATER, retriable=True),
    # RFC 8628: a code on another device
    "expired_token": ProviderProblem("the code was not entered in time", "for a new one: {again}"),
    "authorization_pending": ProviderProblem("{host} still waits for the code to be entered", _AGAIN, retriable=True),
    "slow_down": ProviderProblem("{host} was asked too often", _LATER, retriable=True),
    # OpenID Connect: only for an answer without a page, which is never asked for
    "interaction_required": ProviderProblem("{host} has to ask you something and did not", _ONE_PAGE),
    "login_required": ProviderProblem("{host} has to know who you are and did not ask", _ONE_PAGE),
    "account_selection_required": ProviderProblem("{host} has to know which account and did not ask", _ONE_PAGE),
    "consent_required": ProviderProblem("{host} has to ask for your consent and did not", _ONE_PAGE),
    "request_not_supported": ProviderProblem("{host} does not take such a request", _PUBLISHER),
    "request_uri_not_supported": ProviderProblem("{host} does not take such a request", _PUBLISHER),
    "registration_not_supported": ProviderProblem("{host} does not take such a request", _PUBLISHER),
    "invalid_request_uri": ProviderProblem("{host} did not understand what it was asked", _PUBLISHER),
    "invalid_request_object": ProviderProblem("{host} did not understand what it was asked", _PUBLISHER),
    # RFC 6750: said by a service about a token
    "invalid_token": ProviderProblem("{host} no longer accepts the token", "{again}"),
    "insufficient_scope": ProviderProblem("the token does not allow this at {host}", "to allow more: {again}"),
    # RFC 7009
    "unsupported_token_type": ProviderProblem("{host} does not revoke tokens of this kind", "they end by themselves"),
}
_OURS: Final[dict[str, ProviderProblem]] = {
    # RFC 9207 asks for the check, and has no code for it
    "issuer_mismatch": ProviderProblem(
        "the answer was not from {host}, or does not say so: somebody may have mixed up two sign-ins, and nothing was sent on",
        "begin anew and use only the address it shows: {again}",
    ),
    "unknown_error": ProviderProblem("{host} refused, and did not say why in words of the standard", _REPORT),
    "bad_answer": ProviderProblem("{host} answered with something that is no answer to a sign-in", _REPORT),
    "bad_token": ProviderProblem("{host} gave a token that cannot be sent with a request", _REPORT),
    "bad_token_type": ProviderProblem(
        "{host} gave tokens of another type than Bearer, which Aileron does not send", _REPORT
    ),
    "bad_id_token": ProviderProblem("{host} gave an ID token that is not for this sign-in", _AGAIN),
    "missing_scopes": ProviderProblem(
        "{host} did not grant all that the connector asks for", "allow all of it on the page: {again}"
    ),
    "redirected": ProviderProblem(
        "{host} sent the request on to another address, where tokens are not sent", _PUBLISHER
    ),
    "too_many_requests": ProviderProblem("{host} was asked too often", _LATER, retriable=True),
    "unavailable": ProviderProblem("{host} is not working at the moment", _LATER, retriable=True),
    "unreachable": ProviderProblem("{host} could not be reached", _LATER, retriable=True),
    "not_allowed": ProviderProblem("{host} may not be reached", _PUBLISHER),
    "not_allowed_yet": ProviderProblem(
        "{host} may not be reached with the settings as they are", "allow it there, then {again}"
    ),
    "placeholder": ProviderProblem(
        "the connector's manifest has a placeholder where its application's name or secret should be", _PUBLISHER
    ),
    "bad_provider": ProviderProblem(
        "the connector's manifest does not describe a provider that can be asked", _PUBLISHER
    ),
    "no_device_flow": ProviderProblem(
        "{host} has no sign-in with a code for another device", "on a machine with a browser: {again}"
    ),
    "no_port": ProviderProblem("no port of this machine could be listened on for the answer", _AGAIN, retriable=True),
    "timed_out": ProviderProblem("nobody signed in within 10 minutes", _AGAIN),
}
SIGN_IN: Final = {**_STANDARD, **_OURS}
"""By the provider's error code, or ours."""
OURS: Final = frozenset(_OURS)
"""The codes that are not a provider's to say."""

RENEWAL: Final[dict[str, ProviderProblem]] = {
    "invalid_grant": ProviderProblem(
        "{host} no longer renews this sign-in: it was ended there, a password was changed, or it was unused for too long",
        "sign in again: {again}",
    ),
    "cut_off": ProviderProblem(
        "{host} no longer renews this sign-in: an earlier renewal was cut off before its answer was stored, "
        "and may have replaced what there was to renew with",
        "sign in again: {again}",
    ),
    "no_refresh_token": ProviderProblem(
        "the sign-in has ended, and {host} gave nothing to renew it with", "sign in again: {again}"
    ),
    "invalid_client": ProviderProblem("{host} no longer knows the connector's application or its secret", _PUBLISHER),
    "unauthorized_client": ProviderProblem(
        "{host} does not let the connector's application renew sign-ins", "sign in again: {again}"
    ),
    "unsupported_grant_type": ProviderProblem("{host} does not renew sign-ins", "sign in again: {again}"),
    "invalid_scope": ProviderProblem("{host} no longer grants what was granted", "sign in again: {again}"),
    "unwritten": ProviderProblem(
        "too many renewed sign-ins could not be written to the vault",
        "make room on the disk, or unlock the vault; then try again",
    ),
    "too_slow": ProviderProblem(
        "{host} has not answered yet; the renewal goes on", "try again in a moment", retriable=True
    ),
    "stopping": ProviderProblem("the daemon is stopping", "try again when it runs", retriable=True),
}
"""What is said otherwise when a sign-in is renewed; by code."""


class ProviderError(Exception):
    """What a provider's endpoint came to instead of an answer. `sentence` says what happened, without a cure."""

    def __init__(self, code: str, sentence: str, *, retriable: bool, was_sent: bool = True) -> None:
        super().__init__(sentence)
        self.code: Final = code
        self.sentence: Final = sentence
        self.retriable: Final = retriable
        self.was_sent: Final = was_sent
        """Whether the provider may have seen the request."""


def said(code: str, host: str) -> ProviderError:
    """An error of the list, about what a provider said."""
    known = SIGN_IN[code]
    return ProviderError(code, known.what.format(host=host), retriable=known.retriable)


def heard(code: str, host: str) -> ProviderError:
    """An error that a provider said itself: `code` may be any text, and one of ours is not for others to say."""
    if code in SIGN_IN and code not in OURS:
        return said(code, host)
    unknown = said("unknown_error", host)
    named = f" (it said {code})" if _CODE.fullmatch(code) else ""
    return ProviderError(unknown.code, unknown.sentence + named, retriable=False)


def not_signed_in(error: ProviderError, host: str, again: str) -> AileronError:
    """`binding_failed`. `again` is the command that begins anew."""
    problem = SIGN_IN[error.code]
    return _failed(f"{error.sentence}; {_cure(problem, again)}", error, host)


def not_renewed(error: ProviderError, host: str, again: str) -> AileronError:
    """`binding_failed`, or `network_error` where it may go well later."""
    problem = RENEWAL.get(error.code)
    what = error.sentence if problem is None else problem.what.format(host=host)
    if not error.retriable:
        return _failed(f"{what}; {_cure(problem or SIGN_IN[error.code], again)}", error, host)
    cure = "try again in a moment" if problem is None else _cure(problem, again)
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{what}; {cure}",
        boundary=Boundary.EXTERNAL,
        retriable=True,
        details={"code": error.code, "provider": host},
    )


def _cure(problem: ProviderProblem, again: str) -> str:
    return problem.cure.format(again=f"`{again}`")


def _failed(message: str, error: ProviderError, host: str) -> AileronError:
    return AileronError(
        FailureClass.BINDING_FAILED,
        message,
        boundary=Boundary.USER,
        retriable=error.retriable,
        details={"code": error.code, "provider": host},
    )

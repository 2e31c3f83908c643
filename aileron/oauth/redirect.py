"""Decides whether a request to the loopback listener is the provider's answer to the pending sign-in.

Pure. Any program and any web page on this machine can send requests to the listener. Only the person's browser knows `state`,
from the provider's redirect, and can send the answer. All other requests are turned away and change nothing: they neither end
the sign-in nor replace it.

    1 Host is this listener (DNS rebinding) · 2 GET /callback · 3 each parameter once, and bounded · 4 state, in constant time
    5 iss · 6 error, or a code

A request that fails before check 5 is not the answer, and is turned away. A request that reaches check 5 is the provider's
answer, and the only one: it ends the sign-in, with success or failure.

Source: RFC 6749 section 4.1.2, RFC 9207 section 2.4, RFC 8252 section 8. Not here: sockets (callback.py), the use of the code
(signin.py).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from aileron.model.secret import Secret
from aileron.oauth.answers import is_issuer
from aileron.oauth.problems import ProviderError, heard, said

__all__ = ["AuthorizationResponse", "Awaited", "TurnedAway", "judged"]

_MAX_PARAMETERS: Final = 32  # RFC 6749 has five, providers add a handful
_CODE: Final = re.compile(r"[\x20-\x7e]{1,8192}")  # RFC 6749, appendix A.11; as long as a head has room for


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Awaited:
    """The values that the provider's answer to the pending sign-in must match."""

    port: int
    state: Secret
    authorize_url: str
    issuer: str | None
    issuer_in_answer: bool
    """True if an answer that does not state its issuer is refused, provided that `issuer` is set."""
    host: str
    """The provider's host, for error messages."""


class TurnedAway(msgspec.Struct, frozen=True):
    """Verdict on a request that is not the provider's answer. `status` is the status of our response; `was_try` is true
    if the request claimed to be the answer.
    """

    status: int
    was_try: bool = False


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class AuthorizationResponse:
    """The provider's answer to a sign-in: an authorization code, or a problem."""

    code: Secret | None
    problem: ProviderError | None = None


def judged(method: str, target: str, hosts: Sequence[str], awaited: Awaited) -> AuthorizationResponse | TurnedAway:
    """Return the provider's answer that a request delivers, or why the request is turned away.

    `hosts` are all values of its Host field; all arguments are as received.
    """
    if len(hosts) != 1 or hosts[0].lower() not in _own_hosts(awaited.port):
        return TurnedAway(421)
    path, _, query = target.partition("?")
    if path != "/callback":
        return TurnedAway(404)
    if method != "GET":
        return TurnedAway(405)
    given = _parameters(query)
    if given is None or not _is_state(given.get("state"), awaited.state):
        return TurnedAway(400, was_try=True)
    return _answer(given, awaited)


def _answer(given: dict[str, str], awaited: Awaited) -> AuthorizationResponse:
    issuer = given.get("iss")
    must_say = awaited.issuer is not None and awaited.issuer_in_answer
    if (must_say or issuer is not None) and not is_issuer(issuer, awaited.issuer, awaited.authorize_url):
        return AuthorizationResponse(None, said("issuer_mismatch", awaited.host))
    if "error" in given:
        return AuthorizationResponse(None, heard(given["error"], awaited.host))
    code = given.get("code", "")
    if not _CODE.fullmatch(code):
        return AuthorizationResponse(None, said("bad_answer", awaited.host))
    return AuthorizationResponse(Secret(code.encode()))


def _own_hosts(port: int) -> tuple[str, ...]:
    return f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"


def _parameters(query: str) -> dict[str, str] | None:
    """Return the decoded parameters of a query by name, or None if a parameter occurs twice, or there are too many."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS, errors="strict")
    except ValueError:
        return None
    given = dict(pairs)
    return given if len(given) == len(pairs) else None


def _is_state(found: str | None, state: Secret) -> bool:
    return found is not None and Secret(found.encode("utf-8", "replace")) == state

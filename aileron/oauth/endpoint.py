"""A provider's endpoints asked: one form or document POSTed, one bounded answer, through egress as everything that leaves.

Runs in the daemon. The provider is not trusted with more than it is asked: its answer is read here and goes nowhere else, it may
not send us elsewhere, and its addresses are checked as those of any destination. What is sent holds secrets, and what comes back
does: neither is logged, and no error quotes either.

Rules
- The grant of a request is that HOST:PORT alone. An address that is not public needs the user's `egress.private`, as ever: a
  manifest cannot aim this at the machine's own network.
- Nothing is discovered: there is no metadata document whose contents could name another endpoint. A redirect is an error.
- The secret of a connector's application goes in the form (client_secret_post). RFC 6749 section 2.3.1 prefers the header;
  Google and most that give secrets to installed applications document the form, and `client_id` is there anyway where there is
  no secret.
- What asks without a person is authenticated as its manifest says (token_request.py).
- Every wait ends at the deadline. Nothing is tried again here.

Source: RFC 6749 section 3.2, RFC 7009, RFC 7591 section 3, RFC 8628; docs/adr/0023-oauth.md. Not here: what an answer means
(answers.py, registration.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest, Unrecorded
from aileron.egress.failures import denied
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.egress.own import OwnAnswer, ask, own_grant
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.rules import check_destination
from aileron.model.credential import Client
from aileron.model.failure import AileronError, FailureClass
from aileron.model.http_date import server_time
from aileron.model.names import HostPort
from aileron.model.plan import Grant
from aileron.model.secret import Secret
from aileron.oauth.answers import read_json
from aileron.oauth.problems import OURS, SIGN_IN, ProviderError, heard, said, without_echo
from aileron.oauth.request import endpoint_url
from aileron.oauth.token_request import TokenRequest

__all__ = ["EXCHANGE_S", "Endpoints", "endpoint_url", "host_of"]

EXCHANGE_S: Final = 30.0
"""For one answer: a provider under load takes some seconds, and whoever waits for a sign-in or a renewal is a person or a run."""
MAX_ANSWER_BYTES: Final = 64 << 10
"""64 KiB: two tokens of 8 KiB and an ID token of 32."""
_SETTINGS: Final = frozenset({Reason.PLAIN_HTTP.value, Reason.ADDRESS_NOT_PUBLIC.value})
"""Refusals that a setting of the user's mends."""
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"
_CLOSED: Final = frozenset({401, 403})
"""To who would register: an initial access token is needed, which an operator gives out (RFC 7591, section 3)."""


class Endpoints:
    """The way to providers. One for each daemon."""

    def __init__(self, egress: Egress, settings: Settings) -> None:
        self._egress: Final = egress
        self.adopt(settings)

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on."""
        self._settings = settings

    def check_allowed(self, url: str) -> None:
        """Return unless it is known that nothing can be sent there with these settings: before a person signs in for it.

        Nothing is looked up. ProviderError(not_allowed_yet, not_allowed, bad_provider).
        """
        endpoint = endpoint_url(url)
        grant = self._grant(endpoint.destination)
        try:
            check_destination(endpoint, grant)
            if endpoint.scheme == "https":
                check_somewhere_to_go(grant, has_tls=True)
            return
        except RefusedError as error:
            denial = denied(error, endpoint.destination, None, grant)
        except AileronError as error:
            denial = error
        raise _not_allowed(denial, str(endpoint.destination))

    def _grant(self, to: HostPort) -> Grant:
        return own_grant(to, self._settings, MAX_ANSWER_BYTES)

    async def post(self, url: str, form: Mapping[str, str], client: Client, deadline: float) -> dict[str, Any]:
        """The answer's JSON object, unchecked otherwise. `deadline` as in `anyio.current_time()`.

        ProviderError for everything else: an error that the provider said (its code), or ours (`unreachable`, `bad_answer` …).
        """
        fields = _fields(form, client)
        answer = await self._exchange(url, _encoded(fields), _FORM, deadline)
        try:
            return _token_answer(answer, host_of(url))
        except ProviderError as error:
            problem = without_echo(error, host_of(url), fields.values())
        raise problem

    async def mint(self, url: str, request: TokenRequest, deadline: float) -> dict[str, Any]:
        """The same for a token that nobody signed in for: the request says who asks. ProviderError, with the server's time."""
        answer = await self._exchange(url, _encoded(request.form), _FORM, deadline, request.authorization)
        try:
            return _token_answer(answer, host_of(url))
        except ProviderError as error:
            problem = without_echo(error, host_of(url), request.sent)
        at = server_time(answer.headers)
        problem.server_time = None if at is None else at.timestamp()
        raise problem

    async def tell(self, url: str, form: Mapping[str, str], client: Client, deadline: float) -> None:
        """The same where nothing of a good answer is read (RFC 7009, section 2.2). ProviderError."""
        fields, host = _fields(form, client), host_of(url)
        answer = await self._exchange(url, _encoded(fields), _FORM, deadline)
        if not 200 <= answer.status <= 299:
            raise without_echo(_refusal(answer.status, answer.body, host), host, fields.values())

    async def register(self, url: str, document: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """The answer to a client's metadata, as of `post`: nothing proves who asks (RFC 7591, section 3). ProviderError."""
        answer = await self._exchange(url, json.dumps(document).encode("ascii"), _JSON, deadline)
        host = host_of(url)
        if answer.status in _CLOSED:
            raise said("registration_closed", host)
        if not 200 <= answer.status <= 299:
            raise _refusal(answer.status, answer.body, host)
        return _unless_refused(read_json(answer.body, host), "client_id", host)

    async def _exchange(
        self, url: str, body: bytes, content_type: str, deadline: float, authorization: Secret | None = None
    ) -> OwnAnswer:
        to = endpoint_url(url).destination
        headers: tuple[tuple[str, str], ...] = (
            ("Content-Type", content_type),
            ("Accept", _JSON),
            ("User-Agent", "aileron"),
        )
        if authorization is not None:
            headers = (*headers, ("Authorization", authorization.reveal().decode("ascii")))
        request = EgressRequest("POST", url, headers, body=body)
        journal = Unrecorded()
        try:
            return await ask(self._egress, request, self._grant(to), deadline, journal)
        except AileronError as error:
            problem = _unanswered(error, str(to), journal)
        raise problem


def _token_answer(answer: OwnAnswer, host: str) -> dict[str, Any]:
    if not 200 <= answer.status <= 299:
        raise _refusal(answer.status, answer.body, host)
    return _unless_refused(read_json(answer.body, host), "access_token", host)


def _fields(form: Mapping[str, str], client: Client) -> dict[str, str]:
    """With who asks."""
    fields = {**form, "client_id": client.client_id}
    if client.client_secret is not None:
        fields["client_secret"] = client.client_secret
    return fields


def _encoded(fields: Mapping[str, str]) -> bytes:
    return urlencode(fields, quote_via=quote).encode("ascii")


def host_of(url: str) -> str:
    """The provider's name as sentences have it: its host, with the port where it is not 443. ProviderError(bad_provider)."""
    return endpoint_url(url).authority


def _unless_refused(answer: dict[str, Any], wanted: str, host: str) -> dict[str, Any]:
    """The answer; ProviderError where it has an error and not what is `wanted`: some say no with 200, as GitHub."""
    error = answer.get("error")
    if isinstance(error, str) and wanted not in answer:
        raise heard(error, host)
    return answer


def _refusal(status: int, body: bytes, host: str) -> ProviderError:
    """An answer that is none: the error it says, else what its status says."""
    if 300 <= status <= 399:
        return said("redirected", host)
    try:
        code = read_json(body, host).get("error")
    except ProviderError:
        code = None
    if isinstance(code, str) and code in SIGN_IN and code not in OURS:
        return heard(code, host)
    if status == 429:
        return said("too_many_requests", host)
    if status >= 500:
        return said("unavailable", host)
    return heard(code, host) if isinstance(code, str) else said("bad_answer", host)


def _not_allowed(error: AileronError, host: str) -> ProviderError:
    """By who can mend it: the person whose settings they are, or the publisher."""
    code = "not_allowed_yet" if error.failure.details.get("reason") in _SETTINGS else "not_allowed"
    what = f"{SIGN_IN[code].what.format(host=host)} ({error.failure.message})"
    return ProviderError(code, what, retriable=False, was_sent=False)


def _unanswered(error: AileronError, host: str, journal: Unrecorded) -> ProviderError:
    """What kept egress from an answer. Its words are ours, and quote nothing that was sent or came back."""
    failure = error.failure
    if failure.failure_class is FailureClass.CAPABILITY_DENIED:
        return _not_allowed(error, host)
    if failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED:  # an answer over MAX_ANSWER_BYTES
        return said("bad_answer", host)
    what = f"{SIGN_IN['unreachable'].what.format(host=host)} ({failure.message})"
    return ProviderError("unreachable", what, retriable=True, was_sent=journal.may_be_sent)

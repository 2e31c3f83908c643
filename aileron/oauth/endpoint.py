"""Sends requests to a provider's endpoints. A request POSTs one form or document through egress, and reads one response of
limited size.

Runs in the daemon. The provider is trusted only to issue tokens: its response is read here and not passed on, it cannot
redirect us, and its addresses are checked like those of any destination. Requests and responses hold secrets: neither is
logged, and no error quotes them.

Rules
- The grant of a request covers only the HOST:PORT of the endpoint. An address that is not public needs the user's
  `egress.private`, as always: a manifest cannot direct these requests at the machine's own network.
- Endpoints are not discovered: no metadata document is read, whose contents could name another endpoint. A redirect is an
  error.
- The secret of a connector's application is sent in the form (client_secret_post). RFC 6749 section 2.3.1 prefers the header;
  Google and most providers that give secrets to installed applications document the form, and without a secret `client_id` is
  in the form anyway.
- A request without a sign-in is authenticated as the manifest specifies (token_request.py).
- Every wait ends at the deadline. Nothing is retried here.

Source: RFC 6749 section 3.2, RFC 7009, RFC 7591 section 3, RFC 8628; docs/adr/0023-oauth.md. Not here: the meaning of a
response (answers.py, registration.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from aileron.config import LiveSettings
from aileron.egress import Egress, EgressRequest, Unrecorded
from aileron.egress.failures import denied
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.egress.own import OwnAnswer, ask, own_grant
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.rules import check_destination
from aileron.model.credential import Client
from aileron.model.failure import AileronError, FailureClass
from aileron.model.http_date import server_time
from aileron.model.json_value import JSON, JSONObject
from aileron.model.names import HostPort
from aileron.model.plan import Grant
from aileron.model.secret import Secret
from aileron.oauth.answers import read_json
from aileron.oauth.problems import OURS, SIGN_IN, ProviderError, heard, said, without_echo
from aileron.oauth.request import endpoint_url
from aileron.oauth.token_request import TokenRequest

__all__ = ["EXCHANGE_S", "Endpoints", "endpoint_url", "host_of"]

EXCHANGE_S: Final = 30.0
"""Maximum seconds to wait for a provider's response: a provider under load takes some seconds, and a person or a run
waits for the sign-in or renewal.
"""
MAX_ANSWER_BYTES: Final = 64 << 10
"""Maximum size of a provider's response in bytes: 64 KiB, for two tokens of 8 KiB and an ID token of 32 KiB."""
_SETTINGS: Final = frozenset({Reason.PLAIN_HTTP.value, Reason.ADDRESS_NOT_PUBLIC.value})
"""Egress's reasons for denying a request, limited to those that the user can fix with a setting."""
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"
_CLOSED: Final = frozenset({401, 403})
"""HTTP statuses that refuse a registration because it needs an initial access token, which the provider's operator issues (RFC
7591, section 3).
"""


class Endpoints:
    """The client for providers' endpoints. Each daemon has one."""

    def __init__(self, egress: Egress, settings: LiveSettings) -> None:
        self._egress: Final = egress
        self._settings: Final = settings

    def check_allowed(self, url: str) -> None:
        """Raise ProviderError if it is certain that the present settings do not allow requests to `url`. This is
        checked before a person signs in.

        No name is looked up. The error is `not_allowed_yet` if a setting can allow the requests, `not_allowed` if not,
        and `bad_provider` for an invalid address.
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
        return own_grant(to, self._settings.now, MAX_ANSWER_BYTES)

    async def post(self, url: str, form: Mapping[str, str], client: Client, deadline: float) -> JSONObject:
        """Post a form to a provider's endpoint with the client's authentication. Return the JSON object in the
        response, whose contents are not checked. `deadline` is in the time of `anyio.current_time()`.

        Raises ProviderError for every other result: with the provider's error code if it reported an error, otherwise with a
        code of ours (`unreachable`, `bad_answer` …).
        """
        fields = _fields(form, client)
        answer = await self._exchange(url, _encoded(fields), _FORM, deadline)
        try:
            return _token_answer(answer, host_of(url))
        except ProviderError as error:
            problem = without_echo(error, host_of(url), fields.values())
        raise problem

    async def mint(self, url: str, request: TokenRequest, deadline: float) -> JSONObject:
        """Request a token without a sign-in, and return the JSON object in the response. The request contains its own
        authentication.

        Raises ProviderError if the request fails, with the server's time if an error response states it.
        """
        answer = await self._exchange(url, _encoded(request.form), _FORM, deadline, request.authorization)
        try:
            return _token_answer(answer, host_of(url))
        except ProviderError as error:
            problem = without_echo(error, host_of(url), request.sent)
        at = server_time(answer.headers)
        problem.server_time = None if at is None else at.timestamp()
        raise problem

    async def tell(self, url: str, form: Mapping[str, str], client: Client, deadline: float) -> None:
        """Post a form to a provider's endpoint without reading a successful response (RFC 7009, section 2.2). Raises
        ProviderError if the request fails.
        """
        fields, host = _fields(form, client), host_of(url)
        answer = await self._exchange(url, _encoded(fields), _FORM, deadline)
        if not 200 <= answer.status <= 299:
            raise without_echo(_refusal(answer.status, answer.body, host), host, fields.values())

    async def register(self, url: str, document: Mapping[str, JSON], deadline: float) -> JSONObject:
        """Post a client's metadata to the provider's registration endpoint, and return the JSON object in the response.
        The request is not authenticated (RFC 7591, section 3).

        Raises ProviderError if the request fails.
        """
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


def _token_answer(answer: OwnAnswer, host: str) -> JSONObject:
    if not 200 <= answer.status <= 299:
        raise _refusal(answer.status, answer.body, host)
    return _unless_refused(read_json(answer.body, host), "access_token", host)


def _fields(form: Mapping[str, str], client: Client) -> dict[str, str]:
    """Return the fields of the form, with the client's ID and secret added."""
    fields = {**form, "client_id": client.client_id}
    if client.client_secret is not None:
        fields["client_secret"] = client.client_secret
    return fields


def _encoded(fields: Mapping[str, str]) -> bytes:
    return urlencode(fields, quote_via=quote).encode("ascii")


def host_of(url: str) -> str:
    """Return the provider's name for messages: its host, with the port unless that is 443. Raises ProviderError(bad_provider)
    for an invalid address.
    """
    return endpoint_url(url).authority


def _unless_refused(answer: JSONObject, wanted: str, host: str) -> JSONObject:
    """Return the JSON object of a response with status 200. Raise ProviderError if it has an error in place of the key
    `wanted`, because some providers, such as GitHub, report errors with that status.
    """
    error = answer.get("error")
    if isinstance(error, str) and wanted not in answer:
        raise heard(error, host)
    return answer


def _refusal(status: int, body: bytes, host: str) -> ProviderError:
    """Return the error for a provider's unsuccessful response: the error that its body names, or else an error for its
    status.
    """
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
    """Return the error for a request that egress denies. It says who can fix the problem: the user with a setting, or the
    publisher.
    """
    code = "not_allowed_yet" if error.failure.details.get("reason") in _SETTINGS else "not_allowed"
    sentence = f"{SIGN_IN[code].what.format(host=host)} ({error.failure.message})"
    return ProviderError(code, sentence, retriable=False, was_sent=False)


def _unanswered(error: AileronError, host: str, journal: Unrecorded) -> ProviderError:
    """Return the error for a request that got no response. The error's text is Aileron's own, and quotes nothing from
    the request or a response.
    """
    failure = error.failure
    if failure.failure_class is FailureClass.CAPABILITY_DENIED:
        return _not_allowed(error, host)
    if failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED:  # an answer over MAX_ANSWER_BYTES
        return said("bad_answer", host)
    sentence = f"{SIGN_IN['unreachable'].what.format(host=host)} ({failure.message})"
    return ProviderError("unreachable", sentence, retriable=True, was_sent=journal.may_be_sent)

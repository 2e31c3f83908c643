"""Reads one field of one secret over HTTP from the key-value store (version 2) of HashiCorp Vault or OpenBao.

The server is trusted only with its token: it cannot redirect the request, its responses have a size limit, and its address is
checked like that of any destination. No part of a response is quoted.

Rules
- TLS is required, except for a host in the user's `egress.private_plain`. An address that is not public needs `egress.private`.
- A redirect is an error: a standby node would send the token somewhere that nobody approved.
- A failed request is not repeated here.

Source: HashiCorp, "KV secrets engine - version 2 (API)", "HTTP status codes". Not here: namespaces, other ways to authenticate.
"""

from __future__ import annotations

from typing import Final

import msgspec

from aileron.config import LiveSettings
from aileron.egress import Egress, EgressRequest
from aileron.egress.own import ask, own_grant
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference
from aileron.secret_stores.problems import unfetched, unreached
from aileron.secret_stores.tokens import token_text

__all__ = ["KeyValueStores"]

MAX_ANSWER_BYTES: Final = 256 << 10
"""256 KiB: maximum size of a store's response, enough for a secret of 64 KiB, escaped as JSON, and other fields."""


class _Versioned(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


class _Answer(msgspec.Struct):
    data: _Versioned


class KeyValueStores:
    """A client that reads secrets from key-value stores of HashiCorp Vault or OpenBao. Each daemon has one."""

    def __init__(self, egress: Egress, settings: LiveSettings) -> None:
        self._egress: Final = egress
        self._settings: Final = settings

    async def read(self, reference: SecretReference, token: Secret, token_name: str, deadline: float) -> Secret:
        """Return the value of the secret's field that `reference` names.

        `deadline` is in the time of `anyio.current_time()`. Raises AileronError: binding_failed if the server
        does not give the field, network_error if it cannot be reached.
        """
        to = reference.host
        assert to is not None
        settings = self._settings.now
        scheme = "http" if to in settings.egress_private_plain else "https"
        url = f"{scheme}://{to}/v1/{reference.mount}/data/{'/'.join(reference.path)}"
        headers = (
            ("X-Vault-Token", token_text(reference, token, token_name)),
            ("X-Vault-Request", "true"),
            ("Accept", "application/json"),
            ("User-Agent", "aileron"),
        )
        request, grant = EgressRequest("GET", url, headers), own_grant(to, settings, MAX_ANSWER_BYTES)
        try:
            answer = await ask(self._egress, request, grant, deadline)
        except AileronError as error:
            problem = _unanswered(reference, error)
        else:
            if answer.status != 200:
                raise _refusal(reference, to, answer.status, token_name)
            return _field(reference, answer.body)
        raise problem


def _field(reference: SecretReference, body: bytes) -> Secret:
    try:
        fields = msgspec.json.decode(body, type=_Answer).data.data or {}
    except (ValueError, RecursionError):
        fault = "the answer is not that of a key-value store of version 2"
        raise unfetched(str(reference), "bad_answer", fault, f"see that {reference.mount} is one") from None
    if reference.field not in fields:
        fault = f"the secret is there, and has no field {reference.field}"
        raise unfetched(str(reference), "missing", fault, "name another field after the #")
    try:
        return Secret(msgspec.json.decode(fields[reference.field], type=str).encode())
    except ValueError:
        fault = f"the field {reference.field} is not text"
        raise unfetched(str(reference), "not_text", fault, "name another field after the #") from None


def _refusal(reference: SecretReference, to: HostPort, status: int, token: str) -> AileronError:
    text = str(reference)
    if status == 403:
        fault = f"{to} refuses the token {token} for it (403)"
        return unfetched(text, "refused", fault, f"store one that may read it with `aileron secret set {token}`")
    if status == 404:
        return unfetched(text, "missing", f"{to} has no such secret (404)", "add it there, or name another")
    if 300 <= status <= 399:
        fault = f"{to} answers with a redirect ({status}), which is not followed"
        return unfetched(text, "redirected", fault, "name the server that answers itself: the active node")
    if status == 503:
        fault = f"{to} is sealed, or out of service (503)"
        return unfetched(text, "sealed", fault, "unseal it, then try again", retriable=True)
    is_later = status in (429, 473) or status >= 500
    fault = f"{to} answers with status {status}"
    return unfetched(text, "bad_answer", fault, "see what is wrong there, then try again", retriable=is_later)


def _unanswered(reference: SecretReference, error: AileronError) -> AileronError:
    """Return the error for a request to a store that got no response. Its text quotes no data that was sent or
    received.
    """
    failure = error.failure
    if failure.failure_class is FailureClass.CAPABILITY_DENIED:
        return unfetched(str(reference), "not_allowed", failure.message, f"the host is {reference.host}")
    if failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED:
        fault = f"the answer is larger than {MAX_ANSWER_BYTES >> 10} KiB"
        return unfetched(str(reference), "too_large", fault, "keep it in a secret with fewer fields")
    return unreached(str(reference), "unreachable", failure.message)

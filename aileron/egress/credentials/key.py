"""An API key, sent in the place that the manifest names: a header field, the query, the path, the body, or a WebSocket's
first message.

Pure; runs in the daemon.

Rules
- The key is in one place: a header field, a parameter, a member or a part of the path. The connector must leave this place
  empty.
- In a header field, `{key}` in `format` is replaced. A secret with bytes that a header cannot carry is refused only if
  it is sent in a header field.

Source: docs/reference/connector-manifest.md. Not here: places in a path or a body (egress/key_places.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from msgspec import UNSET

from aileron.egress.credentials.authorization import with_field
from aileron.egress.credentials.kind import Kind
from aileron.egress.credentials.lent import LentCredential, plain_roots, sendable, unusable
from aileron.egress.headers import TOKEN, Field, field_key
from aileron.egress.held import KEYED_BYTES
from aileron.egress.key_places import check_path, key_roots, own_parameters, with_key_in_body, with_key_in_path
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import Url
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret

__all__ = ["API_KEY", "NEVER_A_CREDENTIAL"]

NEVER_A_CREDENTIAL: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te"})
"""Names (as `field_key`) of the fields that frame or route a request, so that none of them can carry a credential."""


def _put(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    need = use.need
    if need.path is not UNSET or need.body is not UNSET:
        return Injection(_in_its_place(use, lent, request), _roots(lent))
    if need.first_message is not UNSET:
        return Injection(request, _roots(lent), first_message=_message(use, lent, need.first_message))
    if need.query is not None:
        parameter = f"{quote(need.query, safe='')}={quote(sendable(use, lent), safe='')}"
        return Injection(request.with_query(parameter), _roots(lent))
    if (
        not TOKEN.fullmatch(need.header)
        or field_key(need.header) in NEVER_A_CREDENTIAL
        or need.format.count("{key}") != 1
    ):
        raise unusable(use, lent, "is declared with a header or format that cannot carry it")
    return Injection(with_field(use, lent, request, need.header, need.format), _roots(lent))


def _in_its_place(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Outgoing:
    """Return the request with the key in its path or body. rules.py has checked that the request has a place for the
    key there.
    """
    secret, need = sendable(use, lent), use.need
    assert not request.is_streamed or need.body is UNSET, "the engine holds what a key goes into"
    try:
        if need.path is not UNSET:
            return request.with_path(with_key_in_path(need.path, request.url.path, secret))
        assert need.body is not UNSET
        return request.with_body(with_key_in_body(need.body, request.body or b"", secret))
    except ValueError as error:
        raise unusable(use, lent, str(error)) from None


def _message(use: CredentialUse, lent: LentCredential, form: str) -> Secret:
    """Return the first message of the WebSocket, with the key in it. In a text that begins with a brace or bracket, the
    key is escaped as part of a JSON string.
    """
    secret = sendable(use, lent)
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None or form.count("{key}") != 1:
        raise unusable(use, lent, "cannot be sent in a text: it is not UTF-8, or its first_message has no place for it")
    if form.lstrip().startswith(("{", "[")):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return Secret(form.replace("{key}", text).encode())


def _roots(lent: LentCredential) -> frozenset[bytes]:
    return frozenset[bytes]().union(*map(key_roots, plain_roots(lent)))


def _reserved(need: CredentialNeed) -> frozenset[str]:
    return frozenset({"authorization", field_key(need.header)})


def _check_used(need: CredentialNeed, is_websocket: bool) -> None:
    if isinstance(need.first_message, str) and not is_websocket:
        raise RefusedError(
            Reason.CREDENTIAL_NOT_GRANTED,
            "the credential of this step is sent in the first message of a WebSocket (first_message of the manifest), and in no "
            "HTTP request: open one with the host function websocket",
        )


def _check_url(need: CredentialNeed, url: Url, _is_read_only: bool) -> None:
    check_path(need, url)


def _held_bytes(need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return KEYED_BYTES if isinstance(need.body, str) else None


API_KEY: Final = Kind(
    put=_put,
    reserved=_reserved,
    roots=_roots,
    parameters=own_parameters,
    check_used=_check_used,
    check_url=_check_url,
    held_bytes=_held_bytes,
)

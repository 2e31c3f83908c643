"""Sign a request with an HMAC, as a manifest's template specifies, for webhooks and for APIs that have a signature of
their own.

Pure: the request, the time and the ID are arguments. Runs in the daemon, as the last step before the wire.

Rules
- Placeholders are replaced in one pass, so that text of a path or a body is never taken for a placeholder.
- A body is signed as bytes, whatever they are. Time and ID are the same everywhere in one request.
- The key is never sent.

>>> from aileron.egress.url import parse_url
>>> template = HmacTemplate(message="{time}.{body}", headers=(("X-Signature", "t={time},v1={signature}"),))
>>> url = parse_url("https://hooks.example.com/in")
>>> signed = sign(template, b"sesame-12345", Outgoing("POST", url, body=b"{}"), Occasion(time_ms=1_614_265_330_000, id="1"))
>>> signed.fields[0][1].removesuffix(signed.signature)
't=1614265330,v1='

Source: RFC 2104; docs/reference/connector-manifest.md#signed-messages. Not here: which templates are valid
(registry/manifest_signing.py), reading a stored text as a key (model/request_signing.py).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable
from typing import Final, Self

import msgspec

from aileron.egress.headers import Field
from aileron.egress.outgoing import Outgoing
from aileron.egress.signing.time_of_day import time_of_day
from aileron.model.request_signing import PLACEHOLDER, HmacTemplate, hmac_key

__all__ = ["Occasion", "Signed", "sign", "signs_body", "signs_time"]

_ID_BYTES: Final = 16  # 128 bits: no two requests have the same ID


class Occasion(msgspec.Struct, frozen=True):
    """The values that differ between signatures: the time at which a request is signed, in milliseconds since the
    epoch, and the request's ID.
    """

    time_ms: int
    id: str

    @classmethod
    def now(cls) -> Self:
        """Return an occasion with the current time of this machine's clock and a random ID."""
        return cls(math.floor(time_of_day().timestamp() * 1000), secrets.token_hex(_ID_BYTES))


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Signed:
    """The result of signing a request: the header fields to add to the request, in the order of the template, and the
    signature that one of them contains.
    """

    fields: tuple[Field, ...]
    signature: str


def signs_body(template: HmacTemplate) -> bool:
    """Return whether the template uses the body, which must then be complete before the request is signed."""
    return not template.placeholders.isdisjoint({"body", "body_sha256"})


def signs_time(template: HmacTemplate) -> bool:
    """Return whether the template uses the time, so that a receiver can compute the signature's age."""
    return not template.placeholders.isdisjoint({"time", "time_ms"})


def sign(template: HmacTemplate, stored: bytes, request: Outgoing, at: Occasion) -> Signed:
    """Sign a request. `stored` is the key as it was stored. Raises ValueError if `stored` cannot be a key, without
    quoting it, or for an unknown placeholder, which no manifest has.
    """
    key = hmac_key(template.key, stored)
    message = _filled(template.message, lambda name: _value(name, request, at))
    digest = hmac.digest(key, message, template.algorithm)
    signature = digest.hex() if template.encoding == "hex" else base64.b64encode(digest).decode("ascii")

    def value_in_field(name: str) -> bytes:
        return signature.encode("ascii") if name == "signature" else _value(name, request, at)

    fields = ((name, _filled(value, value_in_field).decode("latin-1").strip()) for name, value in template.headers)
    return Signed(tuple(fields), signature)


def _filled(text: str, value: Callable[[str], bytes]) -> bytes:
    parts = PLACEHOLDER.split(text)  # literal text and names of placeholders, in turn
    return b"".join(value(part) if at % 2 else part.encode("latin-1") for at, part in enumerate(parts))


def _value(name: str, request: Outgoing, at: Occasion) -> bytes:
    value = _VALUES.get(name)
    if value is None:
        raise ValueError("is declared with a placeholder that there is not")
    found = value(request, at)
    return found if isinstance(found, bytes) else found.encode("latin-1")


_VALUES: Final[dict[str, Callable[[Outgoing, Occasion], str | bytes]]] = {
    "method": lambda request, _at: request.method,
    "host": lambda request, _at: request.url.authority,
    "path": lambda request, _at: request.url.path,
    "query": lambda request, _at: request.url.query or "",
    "target": lambda request, _at: request.url.target,
    "body": lambda request, _at: request.body or b"",
    "body_sha256": lambda request, _at: hashlib.sha256(request.body or b"").hexdigest(),
    "time": lambda _request, at: str(at.time_ms // 1000),
    "time_ms": lambda _request, at: str(at.time_ms),
    "id": lambda _request, at: at.id,
}
"""Functions that return the value of each of `PLACEHOLDERS`. A test checks that no placeholder is missing."""

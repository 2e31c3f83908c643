"""Put a lent credential into a request.

The vault lends one secret for one request; this turns it into a header field or a query parameter, as the manifest
declares it, and says which byte strings must then be scrubbed from the answer. Pure; runs in the daemon, after all
checks. What it makes goes to the wire and nowhere else: never into a log, an exception or a repr.

Rules
- `oauth2` is `Authorization: Bearer`. `api_key` is the declared query parameter, else the declared `header` with
  `{key}` in `format` replaced. `basic` is RFC 7617 with the binding's user name, in UTF-8.
- A secret that could end a header field (CR, LF, NUL), or that a header cannot carry, is refused here although it was
  refused when it was stored; so is one too short or too long to be scrubbed.
- A message names the binding and what is wrong with the value, never the value.

Source: RFC 6750, RFC 7617, RFC 9110 section 5.5. Not here: whether this request may use it (rules.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import re
from typing import Final, Protocol
from urllib.parse import quote, unquote_plus

from aileron.egress.headers import Field, field_key, is_field_value
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import Url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret

__all__ = ["Injection", "Lender", "LentCredential", "check_query", "inject", "reserved_fields"]

MIN_SECRET_BYTES: Final = 8  # shorter ones would be masked where they stand by chance; the vault refuses them too
MAX_SECRET_BYTES: Final = 8 << 10  # 8 KiB: a header field servers accept; the longest needle is six times that

_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
_NEVER_A_CREDENTIAL: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te"})


@dataclasses.dataclass(frozen=True, slots=True)
class LentCredential:
    """What the vault lends for one request. `username` only for `basic`."""

    kind: str
    secret: Secret
    username: str | None = None


class Lender(Protocol):
    """The vault, as seen from here. The loan lasts as long as the context: until the response is over."""

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """AileronError(vault_locked) or AileronError(binding_required) when there is nothing to lend."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Injection:
    """What is added to one request, and the byte strings to scrub from its answer. Holds the secret; prints nothing."""

    fields: tuple[Field, ...]
    parameter: str | None
    roots: frozenset[bytes]

    def target(self, url: Url) -> str:
        """The request target, with the parameter if there is one."""
        if self.parameter is None:
            return url.target
        return f"{url.target}{'?' if url.query is None else '&'}{self.parameter}"


def reserved_fields(need: CredentialNeed) -> frozenset[str]:
    """`field_key`s a connector may not set beside this credential."""
    return frozenset({"authorization", field_key(need.header)})


def check_query(need: CredentialNeed, url: Url) -> None:
    """RefusedError if the connector's own query has the parameter that carries the credential."""
    if need.query is None or url.query is None:
        return
    names = {unquote_plus(pair.partition("=")[0]) for pair in re.split("[&;]", url.query)}
    if need.query in names:
        raise RefusedError(
            Reason.HEADER_CREDENTIAL, f"query parameter {need.query} belongs to the credential; leave it out"
        )


def inject(use: CredentialUse, lent: LentCredential) -> Injection:
    """Turn a loan into wire form. AileronError(binding_failed) if this secret cannot travel this way."""
    if lent.kind != use.need.kind:
        raise _unusable(use, f"is of kind {lent.kind}, not {use.need.kind}")
    secret = lent.secret.reveal()
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        raise _unusable(use, f"is not between {MIN_SECRET_BYTES} and {MAX_SECRET_BYTES} bytes long")
    if _CONTROL.search(secret):
        raise _unusable(use, "holds a control character (CR, LF, NUL or another)")
    if use.need.kind == "basic":
        return _basic(use, lent.username, secret)
    if use.need.query is not None and use.need.kind == "api_key":
        parameter = f"{quote(use.need.query, safe='')}={quote(secret, safe='')}"
        return Injection((), parameter, frozenset({secret}))
    return _header(use, secret)


def _basic(use: CredentialUse, username: str | None, secret: bytes) -> Injection:
    user = (username or "").encode()
    if not user or b":" in user or _CONTROL.search(user):
        raise _unusable(use, "has no user name, or one with a colon or a control character")
    pair = user + b":" + secret
    wire = base64.b64encode(pair)
    return Injection((("Authorization", f"Basic {wire.decode()}"),), None, frozenset({secret, pair, wire}))


def _header(use: CredentialUse, secret: bytes) -> Injection:
    name, form = ("Authorization", "Bearer {key}")
    if use.need.kind == "api_key":
        name, form = use.need.header, use.need.format
    if not _NAME.fullmatch(name) or field_key(name) in _NEVER_A_CREDENTIAL or form.count("{key}") != 1:
        raise _unusable(use, "is declared with a header or format that cannot carry it")
    value = form.replace("{key}", secret.decode("latin-1"))
    if not is_field_value(value) or secret != secret.strip(b" "):
        raise _unusable(use, "holds a character that a header cannot carry (only visible ASCII passes)")
    return Injection(((name, value),), None, frozenset({secret}))


def _unusable(use: CredentialUse, what: str) -> AileronError:
    return AileronError(
        FailureClass.BINDING_FAILED,
        f"the secret of {use.binding} {what}; store a new one with `aileron secret set`, then `aileron binding setup`",
        boundary=Boundary.USER,
    )

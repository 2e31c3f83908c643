"""Put a lent credential into a request.

The vault lends one secret for one request; this puts it into the request as the manifest declares it, and says which byte
strings must then be scrubbed from the answer. Pure; runs in the daemon, after all checks. What it makes goes to the wire and
nowhere else: never into a log, an exception or a repr.

Rules
- `oauth2` and `oauth2_client` are `Authorization: Bearer`. `api_key` goes into the declared query parameter, path or body
  (places.py) or the first message of a WebSocket, else into the declared `header` with `{key}` in `format` replaced. `basic` is
  RFC 7617 with the binding's user name, in UTF-8.
- `digest` is the answer to what the service asked (signing/digest.py), and nothing until then.
- `hmac` is a signature of the request in the fields of the manifest's template (signing/hmac_template.py), which only the
  supervisor sets: a library's own signature in one of them is refused.
- `mtls` is nothing in the request: the connection is made with it, and the private key is never sent.
- Beside it the connector has no field or parameter of its own that a server could take for the credential.
- A secret that could end a header field (CR, LF, NUL), or that a header cannot carry, is refused here although it was
  refused when it was stored; so is one too short or too long to be scrubbed.
- A message names the binding and what is wrong with the value, never the value.

Source: RFC 6750, RFC 7617, RFC 9110 section 5.5. Not here: whether this request may use it (rules.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol
from urllib.parse import quote, quote_plus

from msgspec import UNSET

from aileron.egress.client_certificate import unusable_certificate
from aileron.egress.headers import TOKEN, field_key, is_field_value
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.places import key_roots, own_parameters, parameter_key, with_key_in_body, with_key_in_path
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.scrub import Needles
from aileron.egress.signing.aws_request import sign_for_aws
from aileron.egress.signing.digest import Round, answer
from aileron.egress.signing.hmac_template import Moment, sign, signs_body
from aileron.egress.signing.time_of_day import time_of_day
from aileron.egress.url import Url
from aileron.model.aws_key import AwsKey
from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.cure import Stored, cure_for
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginDetails
from aileron.model.manifest import CredentialNeed
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret

__all__ = ["RENEWABLE", "Lender", "LentCredential", "check_query", "inject", "needles_for", "reserved_fields"]

RENEWABLE: Final = frozenset({"oauth2", "oauth2_client"})
"""The kinds whose credential is a token that ends by itself, and can be had anew: all that is sent as RFC 6750 has it."""

MIN_SECRET_BYTES: Final = 8  # shorter ones would be masked where they stand by chance; the vault refuses them too
MAX_SECRETS: Final = 128
"""Of one host, with those replaced lately: their forms are made anew after each change of the vault, which takes some tenths of a
second for so many. What a search costs does not depend on it (scrub.py)."""
MAX_SECRET_BYTES: Final = 8 << 10  # 8 KiB: a header field servers accept; the longest needle is six times that

_BESIDE_A_BEARER: Final = "access_token"  # RFC 6750 section 2.3; no request may carry a token in two ways (section 2)
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_NEVER_A_CREDENTIAL: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te"})


@dataclasses.dataclass(frozen=True, slots=True)
class LentCredential:
    """What the vault lends for one request. `username` for `basic`, `digest` and logins, and where a key has an ID beside it
    (`aws_sigv4`, `oauth2_client`); `details` only for logins. `stored`: where the secret is, for whoever has to replace it.

    `round`: for `digest`, what the service asked and this request answers; None: it has not asked yet (challenged.py).
    """

    kind: str
    secret: Secret
    username: str | None = None
    details: LoginDetails | None = None
    round: Round | None = None
    stored: Stored | None = None


class Lender(Protocol):
    """The vault, and who renews the tokens in it, as seen from here."""

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Whether `ready` has nothing to do. Quick, and without a wait; asked before each request and stream."""
        ...

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Return when what `lend` would give is fit for use, and `needles` known: a token that has ended, or soon will, is
        renewed first, one that nobody has yet is asked for, and a secret that is kept elsewhere is fetched.

        `use` None: for a request without a credential. `deadline` as in `anyio.current_time()`; whoever waits may be cancelled
        sooner, and what was begun goes on. AileronError: vault_locked, binding_required, binding_failed or network_error.
        """
        ...

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """A service refused this token (401). True: `lend` would now give another one, whoever renewed it. Else as `ready`."""
        ...

    def lend(self, use: CredentialUse) -> contextlib.AbstractContextManager[LentCredential]:
        """The loan lasts as long as the context: until the response is over. Quick, and without a wait.

        AileronError(vault_locked) or AileronError(binding_required) when there is nothing to lend.
        """
        ...

    def needles(self, destination: HostPort) -> Needles:
        """All that could have been sent there, by any connector, and what was replaced lately: looked for in whatever comes back.

        The same value until that changes: it is asked for with every piece of an answer. Quick, and without a wait.
        AileronError(vault_locked) where that cannot be known now, (binding_failed) where it is too much to look for.
        """
        ...

    def may_be_bound(self, destination: HostPort) -> bool:
        """Whether `needles` would have any, could they be known: also while the vault is locked, and for what nobody can open any
        more since another vault was put in its place. As quick: it is asked for each piece of a stream.
        """
        ...


def reserved_fields(need: CredentialNeed) -> frozenset[str]:
    """`field_key`s a connector may not set beside this credential. A certificate stands in none."""
    if need.kind == "mtls":
        return frozenset()
    fields = () if need.hmac is UNSET else need.hmac.headers
    return frozenset({"authorization", field_key(need.header), *(field_key(name) for name, _value in fields)})


def check_query(need: CredentialNeed, url: Url) -> None:
    """RefusedError if the connector's own query has the parameter that carries the credential, or could: RFC 6750, 2.3."""
    own = _parameters_of(need)
    if not own or url.query is None:
        return
    names = {parameter_key(pair.partition("=")[0]) for pair in re.split("[&;]", url.query)}
    for parameter in sorted(own):
        if parameter_key(quote_plus(parameter)) in names:
            problem = f"query parameter {parameter} belongs to the credential; leave it out"
            raise RefusedError(Reason.HEADER_CREDENTIAL, problem)


def _parameters_of(need: CredentialNeed) -> frozenset[str]:
    return frozenset({_BESIDE_A_BEARER}) if need.kind in RENEWABLE else own_parameters(need)


def needles_for(known: Iterable[LentCredential], destination: HostPort) -> Needles:
    """What to look for in answers of a host that these could have been sent to. AileronError(binding_failed) for too many.

    One that cannot travel (`inject` would refuse it) was not sent, and is left out.
    """
    groups = {roots for lent in known if (roots := _roots(lent))}
    if len(groups) > MAX_SECRETS:
        raise AileronError(
            FailureClass.BINDING_FAILED,
            f"{len(groups)} secrets are bound for {destination} or were until recently, and a response is searched for at most "
            f"{MAX_SECRETS}: see `aileron binding list`, then revoke unused ones with `aileron binding revoke`",
            boundary=Boundary.USER,
        )
    return Needles(frozenset[bytes]().union(*groups))


def login_roots(lent: LentCredential) -> frozenset[bytes]:
    """What is searched for in answers of HTTP, of a credential that logs in elsewhere in the same step."""
    return _roots(lent)


def _roots(lent: LentCredential) -> frozenset[bytes]:
    """What is searched for, of a credential that can travel."""
    if lent.kind == "aws_sigv4":
        return _aws_roots(lent)
    secret = lent.secret.reveal()
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES or _CONTROL.search(secret):
        return frozenset()
    if lent.kind == "api_key":
        return key_roots(secret)
    return frozenset({secret}) if lent.kind != "basic" else _basic_roots(lent.username or "", secret)


def _aws_roots(lent: LentCredential) -> frozenset[bytes]:
    """The parts of a document each: it is not sent itself."""
    try:
        return frozenset(AwsKey.parse(lent.username, lent.secret).secrets)
    except ValueError:
        return frozenset()


def _basic_roots(username: str, secret: bytes) -> frozenset[bytes]:
    pair = username.encode() + b":" + secret
    return frozenset({secret, pair, base64.b64encode(pair)})


def inject(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    """The request with this loan in it. AileronError(binding_failed) if this secret cannot travel this way."""
    if lent.kind != use.need.kind:
        raise _unusable(use, lent, f"is of kind {lent.kind}, not {use.need.kind}")
    put = _PUT.get(use.need.kind)
    if put is None:
        raise _unusable(use, lent, f"is of kind {lent.kind}, which is no credential of an HTTP request")
    return put(use, lent, request)


def _sendable(use: CredentialUse, lent: LentCredential) -> bytes:
    """The secret, where it is sent as it is."""
    secret = lent.secret.reveal()
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        raise _unusable(use, lent, f"is not between {MIN_SECRET_BYTES} and {MAX_SECRET_BYTES} bytes long")
    if _CONTROL.search(secret):
        raise _unusable(use, lent, "holds a control character (CR, LF, NUL or another)")
    return secret


def _basic(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    secret, user = _sendable(use, lent), (lent.username or "").encode()
    if not user or b":" in user or _CONTROL.search(user):
        raise _unusable(use, lent, "has no user name, or its user name has a colon or a control character")
    wire = base64.b64encode(user + b":" + secret)
    field = ("Authorization", f"Basic {wire.decode()}")
    return Injection(request.with_fields(field), _basic_roots(user.decode(), secret))


def _key(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    need = use.need
    if need.path is not UNSET or need.body is not UNSET:
        return _in_its_place(use, lent, request)
    if need.first_message is not UNSET:
        return _message(use, lent, request, need.first_message)
    if need.query is None:
        return _header(use, lent, request, need.header, need.format)
    secret = _sendable(use, lent)
    parameter = f"{quote(need.query, safe='')}={quote(secret, safe='')}"
    return Injection(request.with_query(parameter), _roots(lent))


def _in_its_place(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    """In the path or the body, whose place for it rules.py has seen."""
    secret, need = _sendable(use, lent), use.need
    assert not request.is_streamed or need.body is UNSET, "the engine holds what a key goes into"
    try:
        if need.path is not UNSET:
            made = request.with_path(with_key_in_path(need.path, request.url.path, secret))
        else:
            assert need.body is not UNSET
            made = request.with_body(with_key_in_body(need.body, request.body or b"", secret))
    except ValueError as error:
        raise _unusable(use, lent, str(error)) from None
    return Injection(made, _roots(lent))


def _message(use: CredentialUse, lent: LentCredential, request: Outgoing, form: str) -> Injection:
    """Inside a text that begins with a brace or a bracket it is a part of a string of JSON."""
    secret = _sendable(use, lent)
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None or form.count("{key}") != 1:
        raise _unusable(
            use, lent, "cannot be sent in a text: it is not UTF-8, or its first_message has no place for it"
        )
    if form.lstrip().startswith(("{", "[")):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return Injection(request, _roots(lent), first_message=Secret(form.replace("{key}", text).encode()))


def _bearer(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    return _header(use, lent, request, "Authorization", "Bearer {key}")


def _hmac(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    template = use.need.hmac
    if template is UNSET:
        raise _unusable(use, lent, "is declared without a template")
    if request.is_streamed and signs_body(template):  # an empty one would be signed
        raise _unusable(use, lent, "signs the body, which came in pieces; let the connector send it whole")
    try:
        signed = sign(template, lent.secret.reveal(), request, Moment.now())
    except ValueError as error:
        raise _unusable(use, lent, f"cannot be the key of an HMAC: it {error}") from None
    for name, value in signed.fields:
        if not TOKEN.fullmatch(name) or field_key(name) in _NEVER_A_CREDENTIAL or not is_field_value(value):
            raise _unusable(use, lent, "is declared with a header field that cannot carry a signature")
    return Injection(request.with_fields(*signed.fields), _roots(lent), frozenset({signed.signature.encode("ascii")}))


def _digest(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    if lent.round is None:
        return Injection(request, _roots(lent))
    try:
        answered = answer(lent.round, lent.username or "", lent.secret.reveal(), request)
    except ValueError as error:
        raise _unusable(use, lent, str(error)) from None
    field = ("Authorization", answered.field)
    return Injection(request.with_fields(field), _roots(lent), frozenset({answered.response.encode("ascii")}))


def _header(use: CredentialUse, lent: LentCredential, request: Outgoing, name: str, form: str) -> Injection:
    secret = _sendable(use, lent)
    if not TOKEN.fullmatch(name) or field_key(name) in _NEVER_A_CREDENTIAL or form.count("{key}") != 1:
        raise _unusable(use, lent, "is declared with a header or format that cannot carry it")
    value = form.replace("{key}", secret.decode("latin-1"))
    if not is_field_value(value) or secret != secret.strip(b" "):
        raise _unusable(use, lent, "holds a character that a header cannot carry (only visible ASCII passes)")
    return Injection(request.with_fields((name, value)), _roots(lent))


def _certificate(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    """The request as it is; there is nothing to scrub, as nothing of it is sent that is secret."""
    try:
        ClientCertificate(lent.secret.reveal()).check_valid_at(time_of_day().timestamp())
    except CertificateError as error:
        problem = error
    else:
        return Injection(request, certificate=lent.secret)
    raise unusable_certificate(use, problem, lent.stored)


def _aws(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    now, scope = time_of_day(), use.need.aws
    if not scope:
        raise _unusable(use, lent, "is declared without the region and service to sign for")
    try:
        key = AwsKey.parse(lent.username, lent.secret)
        key.check_current(now)
    except ValueError as error:
        words = str(error)
    else:
        signed, signature = sign_for_aws(request, key, scope, now)
        return Injection(signed, frozenset(key.secrets), frozenset({signature.encode()}))
    raise _unusable(use, lent, words)


_PUT: Final[dict[str, Callable[[CredentialUse, LentCredential, Outgoing], Injection]]] = {
    "api_key": _key,
    "aws_sigv4": _aws,
    "basic": _basic,
    "digest": _digest,
    "hmac": _hmac,
    "oauth2": _bearer,
    "oauth2_client": _bearer,
    "mtls": _certificate,
}
"""How a credential of each kind gets into a request; a login gets into none."""


def _unusable(use: CredentialUse, lent: LentCredential, what: str) -> AileronError:
    message = f"the secret of {use.binding} {what}; {cure_for(use.binding, lent.stored)}"
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)

"""The properties of a kind of credential in egress. Each kind is one value, so that a new kind is added in one place.

Pure. Each field of `Kind` belongs to a step (rules.py, engine.py). The default of a field suits a kind that does nothing at
that step. The field `reserved` has no default, because a kind that forgot it would let a connector set a header field of its
own beside the credential. All fields but `put` and `roots` deal with the declaration (`CredentialNeed`), before anything is
lent.

Not here: the kinds (key.py, authorization.py, signatures.py, certificate.py, login.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from aileron.egress.credentials.lent import LentCredential, plain_roots
from aileron.egress.headers import Field
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.url import Url
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["Kind", "OnRefusal", "authorization_field"]

AnswerFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
OnRefusal: TypeAlias = Literal["relay", "renew", "answer", "explain"]
"""Reaction to a refusal by the service: `relay` passes the response on; `renew` renews the token (renewing.py);
`answer` answers the challenge (challenged.py); `explain` turns the service's words about a signature into a failure
that says how to fix it (signing/refused.py).
"""


def authorization_field(_need: CredentialNeed) -> frozenset[str]:
    """Return the header fields that a connector must not set beside a credential in `Authorization`: only that field,
    whatever the manifest declares.
    """
    return frozenset({"authorization"})


def _none(_need: CredentialNeed) -> frozenset[str]:
    return frozenset()


def _everywhere(_need: CredentialNeed, _is_websocket: bool) -> None:
    return None


def _any_url(_need: CredentialNeed, _url: Url, _is_read_only: bool) -> None:
    return None


def _all_fields(_url: Url, fields: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(fields)


def _no_hash(_url: Url, _fields: Sequence[Field]) -> str | None:
    return None


def _nothing_held(_need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return None


def _all_relayed(fields: AnswerFields) -> AnswerFields:
    return fields


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of one kind of credential, most of them functions. A function that refuses a request raises
    RefusedError. A parameter of type `Sequence[Field]` is the connector's header fields.
    """

    put: Callable[[CredentialUse, LentCredential, Outgoing], Injection]
    """Function that returns the request with the lent credential in it. Raises AileronError(binding_failed) if the secret
    cannot be sent as this kind.
    """
    reserved: Callable[[CredentialNeed], frozenset[str]]
    """Function that returns the `field_key`s that a connector must not set in addition to the credential."""
    roots: Callable[[LentCredential], frozenset[bytes]] = plain_roots
    """Function that returns the secrets to search responses for. It leaves out secrets that `put` would refuse to send."""
    parameters: Callable[[CredentialNeed], frozenset[str]] = _none
    """Function that returns the query parameters that a connector must not set, because a server could take them for
    the credential.
    """
    check_used: Callable[[CredentialNeed, bool], None] = _everywhere
    """Function that refuses requests which cannot carry the credential. The function's second argument is True for a
    WebSocket's handshake.
    """
    check_url: Callable[[CredentialNeed, Url, bool], None] = _any_url
    """Function that refuses a URL that has no place for the credential, or that must not be requested with it. The
    function's third argument is True in a preview.
    """
    own_fields: Callable[[Url, Sequence[Field]], tuple[Field, ...]] = _all_fields
    """Function that returns the connector's fields, except those that a client library set as its own credential."""
    given_hash: Callable[[Url, Sequence[Field]], str | None] = _no_hash
    """Function that returns the SHA-256, in hex, that the connector states for its body; None if it states none."""
    held_bytes: Callable[[CredentialNeed, Url, Sequence[Field]], int | None] = _nothing_held
    """Function that returns the maximum size, in bytes, of a streamed body that must be complete before it is sent
    (held.py). None: the body is sent as it arrives.
    """
    relayed: Callable[[AnswerFields], AnswerFields] = _all_relayed
    """Function that returns the fields of a response, except those that reveal something about the secret."""
    on_refusal: OnRefusal = "relay"

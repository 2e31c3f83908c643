"""What there is to say of a kind of credential in egress: one value for each, so that a new kind is one place to fill in.

Pure. Each part belongs to a step (rules.py, engine.py); where a kind says nothing, it is what most kinds need. All but `put` and
`roots` are about what was declared (`CredentialNeed`), before anything is lent.

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

__all__ = ["Kind", "OnRefusal"]

AnswerFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
OnRefusal: TypeAlias = Literal["relay", "renew", "answer", "explain"]
"""What follows when the service says no: its answer is passed on; the token is renewed (renewing.py); the challenge is answered
(challenged.py); what it says of a signature becomes a failure with a cure (signing/refused.py)."""


def _authorization(_need: CredentialNeed) -> frozenset[str]:
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
    """One kind of credential. What refuses raises RefusedError; `fields` are the connector's."""

    put: Callable[[CredentialUse, LentCredential, Outgoing], Injection]
    """The request with this loan in it. AileronError(binding_failed) if this secret cannot travel this way."""
    roots: Callable[[LentCredential], frozenset[bytes]] = plain_roots
    """What answers are searched for; nothing of what `put` would refuse."""
    reserved: Callable[[CredentialNeed], frozenset[str]] = _authorization
    """`field_key`s that a connector may not set beside it."""
    parameters: Callable[[CredentialNeed], frozenset[str]] = _none
    """Query parameters that a connector may not set beside it: a server could take them for the credential."""
    check_used: Callable[[CredentialNeed, bool], None] = _everywhere
    """Whether it has a place in a request, or in one that asks for a WebSocket (True)."""
    check_url: Callable[[CredentialNeed, Url, bool], None] = _any_url
    """Whether a request to this URL has the place for it, and asks for nothing that it may not with it; True: in a preview."""
    own_fields: Callable[[Url, Sequence[Field]], tuple[Field, ...]] = _all_fields
    """The fields without what a client library put there in its place."""
    given_hash: Callable[[Url, Sequence[Field]], str | None] = _no_hash
    """The SHA-256 that the connector says its body has, in hex."""
    held_bytes: Callable[[CredentialNeed, Url, Sequence[Field]], int | None] = _nothing_held
    """How long a body in pieces may be that has to be whole (held.py); None: it goes out as it comes."""
    relayed: Callable[[AnswerFields], AnswerFields] = _all_relayed
    """The fields of an answer without what says something of the secret."""
    on_refusal: OnRefusal = "relay"

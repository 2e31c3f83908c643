"""The decision whether a request can leave: every check that needs no name resolved, in order, in one place.

Pure. It takes a jailed connector's request and the step's grant, and returns the request as it will go out,
or raises `RefusedError`. The order matters: a refused request causes no look-up, no connection and no loan from the vault.

    1 parse the URL, strictly                                          url.py
    2 host:port is in the grant
    3 https, or plain http if the user allowed it; no destination that the supervisor logs in to
    4 the URL is none of the provider's endpoints for tokens           reserved.py
    5 the credential, if the request names one, is the granted one, and can be sent in such a request
    6 method; for previews, a method that reads                        headers.py
    7 the query, the path and TLS, as the credential needs them        credentials/
    8 header fields, framing; the body, as the credential needs it     headers.py, key_places.py
    then, in engine.py: resolve · check every address (addresses.py) · lend · inject · record · connect · send

The rest is checked in engine.py: the addresses, TLS, the budget, and the scrubbing of the response.

Source: docs/reference/egress.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import AsyncIterator

from aileron.egress.headers import Field, check_method, check_reads, frame_body, keep_request_fields
from aileron.egress.held import too_long
from aileron.egress.inject import KINDS, check_query, reserved_fields
from aileron.egress.key_places import check_body, recorded_path
from aileron.egress.refusal import Reason, RefusedError, unencrypted
from aileron.egress.reserved import check_reserved
from aileron.egress.url import Url
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse, Grant

__all__ = [
    "AllowedRequest",
    "EgressRequest",
    "admit",
    "check_credential",
    "check_destination",
    "check_granted",
    "other_body",
]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class EgressRequest:
    """A connector's request, as unchecked text. `credential` is the name of a kind of credential, never a secret."""

    method: str
    url: str
    headers: tuple[Field, ...] = ()
    credential: str | None = None
    body: bytes | AsyncIterator[bytes] | None = None


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class AllowedRequest:
    """A request that passed every rule. `fields` are all header fields but the credential's; `length` is the number of
    bytes that the body must have, None for any number.

    `holds` is the maximum size in bytes of a body that comes in pieces and must be complete first; None: the body is
    sent as it arrives. `sha256` is the hash, in hex, that the connector signed for; a body with another hash is not
    sent to its end. None if the connector signed for no hash.
    """

    url: Url
    method: str
    fields: tuple[Field, ...]
    length: int | None
    use: CredentialUse | None
    plain: bool
    private: bool
    holds: int | None = None
    sha256: str | None = None

    @property
    def recorded_path(self) -> str:
        """The path as the ledger records it, with `{key}` in place of the key."""
        return recorded_path(None if self.use is None else self.use.need, self.url.path)


def admit(url: Url, request: EgressRequest, grant: Grant, *, is_websocket: bool = False) -> AllowedRequest:
    """Check a request against every rule, and return it as it will be sent (steps 2 to 8). `url` is its parsed URL;
    `is_websocket`: it opens a WebSocket. Raises the RefusedError of the first rule that refuses the request.
    """
    check_destination(url, grant)
    check_no_login(url.destination, grant)
    check_reserved(url, request.headers, grant.reserved)
    use = check_credential(request.credential, grant)
    if use is not None:
        KINDS[use.need.kind].check_used(use.need, is_websocket)
    method = check_method(request.method)
    if grant.read_only:
        check_reads(method, request.headers)
    if use is not None:
        check_query(use.need, url)
        KINDS[use.need.kind].check_url(use.need, url, grant.read_only)
    kept = keep_request_fields(
        _own_fields(use, url, request), frozenset() if use is None else reserved_fields(use.need)
    )
    framing, length = frame_body(method, request.headers, request.body)
    if use is not None and not isinstance(request.body, AsyncIterator):
        check_body(use.need, kept, request.body)
    fields = [("Host", url.authority), *kept, ("Accept-Encoding", "identity")]
    return AllowedRequest(
        url=url,
        method=method,
        fields=tuple(fields if framing is None else [*fields, framing]),
        length=length,
        use=use,
        plain=url.scheme == "http",
        private=url.destination in grant.private,
        holds=_holds(use, url, request, length),
        sha256=_hash_given(use, url, request),
    )


def _holds(use: CredentialUse | None, url: Url, request: EgressRequest, length: int | None) -> int | None:
    if use is None or not isinstance(request.body, AsyncIterator):
        return None
    most = KINDS[use.need.kind].held_bytes(use.need, url, request.headers)
    if most is not None and length is not None and length > most:
        raise too_long(most)
    return most


def _own_fields(use: CredentialUse | None, url: Url, request: EgressRequest) -> tuple[Field, ...]:
    """Return the connector's header fields, without those of a signature that its client library made."""
    return request.headers if use is None else KINDS[use.need.kind].own_fields(url, request.headers)


def _hash_given(use: CredentialUse | None, url: Url, request: EgressRequest) -> str | None:
    """Return the SHA-256, in hex, that the connector states for its body, or None if it states none. If the body is
    complete, raise RefusedError unless it has that hash.
    """
    given = None if use is None else KINDS[use.need.kind].given_hash(url, request.headers)
    if given is None or isinstance(request.body, AsyncIterator):
        return given
    if hashlib.sha256(request.body or b"").hexdigest() != given:
        raise other_body()
    return given


def other_body() -> RefusedError:
    """Return the refusal of a body whose hash differs from the hash that the connector gave."""
    return RefusedError(
        Reason.BODY_SIGNATURE,
        "the body has another SHA-256 than x-amz-content-sha256 says: it was changed after it was signed; leave the field out",
    )


def check_destination(url: Url, grant: Grant) -> None:
    """Raise RefusedError unless the host is granted, and the scheme is https, or http to a host:port that the user
    allowed without TLS.

    The grant is checked first, because a setting does not help if the host was not granted.
    """
    destination = url.destination
    check_granted(destination, grant)
    if url.scheme != "https" and destination not in grant.plain:
        raise unencrypted(f"http://{destination} is not encrypted", "use https", destination)


def check_granted(destination: HostPort, grant: Grant) -> None:
    """Raise RefusedError unless the destination is a host of the grant."""
    if destination not in grant.hosts:
        raise RefusedError(
            Reason.HOST_NOT_GRANTED,
            f"{destination} is not a granted host ({_listed(grant.hosts)}); a connector must name each host in "
            "[capabilities.network] hosts of its manifest",
        )


def check_no_login(destination: HostPort, grant: Grant) -> None:
    """Raise RefusedError if the grant has a login for the destination. The service there does not speak HTTP, and could
    misinterpret a request.
    """
    if grant.credential is not None and any(to.destination == destination for to in grant.credential.need.logins):
        raise RefusedError(
            Reason.LOGIN_REQUEST,
            f"the supervisor logs in at {destination} for this connector, by [capabilities.credential] logins of its manifest: "
            "open a stream to it (tcp) instead of sending an HTTP request",
        )


def check_credential(kind: str | None, grant: Grant) -> CredentialUse | None:
    """Return the granted credential if `kind` is its kind; None if `kind` is None. Raises RefusedError otherwise."""
    if kind is None:
        return None
    if grant.credential is None or grant.credential.need.kind != kind:
        raise RefusedError(
            Reason.CREDENTIAL_NOT_GRANTED, "the request names a credential that was not granted to this step"
        )
    return grant.credential


def _listed(hosts: tuple[HostPort, ...]) -> str:
    return "granted: " + ", ".join(str(host) for host in hosts) if hosts else "none is granted"

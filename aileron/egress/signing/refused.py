"""A refusal by the service because of a request's signature, turned into a failure that says how to fix it.

Runs in the daemon, around an exchange of the engine's, or the handshake of a WebSocket. The service is not trusted: it
may lie about a signature, but a lie only makes this request fail. The text of its response is read, and never quoted
except for the name of a region or a service.

Rules
- Only responses 400, 401 and 403 of at most `HELD_BYTES` are read, and only for their error code, clock (`Date`) and
  region.
- A refusal becomes a failure only if no connector can fix the cause: this machine's clock, the manifest's region, the
  key. Every other refusal is relayed: `AccessDenied` comes from a policy, and a wrong parameter from the connector.
- Services have no standard error codes for a refused HMAC. So only the clocks are compared, if the time is signed.
- The clock is checked first, because some services report an old signature as a wrong one. Then the region is checked,
  then the key.

Source: AWS General Reference, "Common errors"; S3 API Reference, "Error responses". Not here: the signature (aws.py),
renewable tokens (renewing.py).
"""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import Final, TypeVar

from aileron.egress.around import HELD_BYTES, Answer, Around, Exchange
from aileron.egress.failures import ConnectionProblem, unreachable
from aileron.egress.response import EgressResponse
from aileron.egress.signing.hmac_template import signs_time
from aileron.egress.signing.time_of_day import time_of_day
from aileron.egress.url import HTTP_SCHEMES, WEBSOCKET_SCHEMES, parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored, fix_for
from aileron.model.http_date import server_time
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse

__all__ = ["MAX_SKEW_S", "RefusedSignatures", "failure_of"]

_T = TypeVar("_T", bound=Answer)

MAX_SKEW_S: Final = 300.0
"""Maximum difference in seconds between this machine's clock and a service's: five minutes. Most services accept a
signature that is this old; S3 accepts one that is 15 minutes old.
"""
_LOOKED_AT: Final = frozenset({400, 401, 403})

_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_KEY: Final = frozenset(
    {"InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure",
     "InvalidSignatureException", "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
)  # fmt: skip
_OF_TOKENS: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"})
_UNKNOWN: Final = frozenset({"InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException"})
_CODE: Final = re.compile(
    rb"<Code>\s*([A-Za-z]{1,64})\s*</Code>|\"(?:__type|[Cc]ode)\"\s*:\s*\"(?:[\w.]{0,128}#)?([A-Za-z]{1,64})\""
)
_REGION: Final = re.compile(rb"<Region>\s*([a-z0-9-]{1,32})\s*</Region>|expecting '([a-z0-9-]{1,32})'")
_NAME: Final = re.compile(r"[a-z0-9-]{1,32}")
_OTHER_REGION: Final = re.compile(rb"scoped to a valid region", re.IGNORECASE)
_OTHER_SERVICE: Final = re.compile(rb"scoped to correct service: '([a-z0-9-]{1,32})'", re.IGNORECASE)
_OUT_OF_TIME: Final = re.compile(
    rb"signature (?:has )?expired|signature not yet current|request has expired", re.IGNORECASE
)


class RefusedSignatures(Around[_T]):
    """The exchange of a signed request. Entering it returns the response, or raises the failure if the service refused
    the signature.
    """

    def __init__(self, exchange: Exchange[_T], url: str, use: CredentialUse) -> None:
        super().__init__()
        self._exchange: Final = exchange
        self._url: Final = url
        self._use: Final = use

    async def _ask(self, stack: contextlib.AsyncExitStack) -> _T:
        answer = await stack.enter_async_context(self._exchange)
        if isinstance(answer, EgressResponse) and answer.status in _LOOKED_AT and await answer.hold(HELD_BYTES):
            destination = parse_url(self._url, HTTP_SCHEMES | WEBSOCKET_SCHEMES).destination
            failure = failure_of(answer, destination, self._use, self._exchange.stored, time_of_day())
            if failure is not None:
                raise failure  # in the exchange: its row in the ledger says how it ended
        return answer


def failure_of(
    response: EgressResponse,
    destination: HostPort,
    use: CredentialUse,
    stored: Stored | None,
    now: datetime.datetime,
) -> AileronError | None:
    """Return the failure for a response that was read ahead and refuses the request's signature. Return None for any
    other response, which the caller must relay.
    """
    fields = {name.lower(): value for name, value in response.headers}
    if use.need.hmac:
        is_off = abs(skew_s := _skew_s(response, now)) > MAX_SKEW_S
        return _clock(destination, skew_s) if is_off and signs_time(use.need.hmac) else None
    body, code = response.held, _code(fields, response.held)
    skew_s = _skew_s(response, now)
    is_late = _OUT_OF_TIME.search(body) is not None
    says_nothing = code is None and not body
    if code in _CLOCK or (is_late and (code in _KEY or code == "AccessDenied")):
        return _clock(destination, skew_s)
    if abs(skew_s) > MAX_SKEW_S and (code in _KEY or says_nothing):
        return _clock(destination, skew_s)
    scope = _scope(fields, body, code, response.status, use)
    if scope is not None:
        return _of_scope(destination, use, *scope)
    return _of_key(destination, use, stored, code) if code is not None and code in _KEY else None


def _code(fields: dict[str, str], body: bytes) -> str | None:
    """Return the error code of a response, from a header field, XML or JSON; None if the response has none."""
    named = re.match(r"[A-Za-z]{1,64}", fields.get("x-amzn-errortype", "").rpartition("#")[2])
    if named is not None:
        return named[0]
    found = _CODE.search(body)
    return None if found is None else (found[1] or found[2]).decode("ascii")


def _skew_s(response: EgressResponse, now: datetime.datetime) -> float:
    """Return the number of seconds by which this machine's clock is ahead of the service's; 0 if the service does not
    state its time.
    """
    theirs = server_time(response.headers)
    return 0.0 if theirs is None else (now - theirs).total_seconds()


def _scope(
    fields: dict[str, str], body: bytes, code: str | None, status: int, use: CredentialUse
) -> tuple[str, str | None] | None:
    """Return `region` or `service`, whichever was wrong in the signature, and the expected value if the response states
    it. Return None if the response says of neither that it was wrong.
    """
    service = _OTHER_SERVICE.search(body)
    if service is not None:
        return "service", service[1].decode("ascii")
    region, found = fields.get("x-amz-bucket-region", ""), _REGION.search(body)
    expected = (found[1] or found[2]).decode("ascii") if found is not None else None
    if expected is None and _NAME.fullmatch(region):
        expected = region
    own = use.need.aws.region if use.need.aws else None
    is_other = code == "AuthorizationHeaderMalformed" or _OTHER_REGION.search(body) is not None
    if is_other or (status == 400 and code is None and region):
        return None if expected == own else ("region", expected)
    return None


def _clock(destination: HostPort, skew_s: float) -> AileronError:
    off = "is not that of the service"
    if abs(skew_s) > MAX_SKEW_S:
        off = f"is {round(abs(skew_s) / 60)} minutes {'ahead of' if skew_s > 0 else 'behind'} {destination.host}"
    text = f"the signature was refused because this machine's clock {off}; set it: `timedatectl set-ntp true`"
    return unreachable("exchange", destination, ConnectionProblem(text, retriable=False))


def _of_scope(destination: HostPort, use: CredentialUse, part: str, expected: str | None) -> AileronError:
    own = "none" if not use.need.aws else (use.need.aws.region if part == "region" else use.need.aws.service)
    wants = f"expects {expected}" if expected else "expects another"
    return AileronError(
        FailureClass.BINDING_FAILED,
        f"{destination}: the connector's manifest signs for the {part} {own}, and the service {wants}; change `{part}` in "
        "[capabilities.credential.aws] of the manifest, and install the connector again",
        boundary=Boundary.USER,
    )


def _of_key(destination: HostPort, use: CredentialUse, stored: Stored | None, code: str) -> AileronError:
    if code in _OF_TOKENS:
        problem = "the session token has expired, or is not accepted"
    elif code in _UNKNOWN:
        problem = "the service does not know the access key ID, or it is no longer active"
    else:
        problem = "the secret access key does not belong to the access key ID"
    return AileronError(
        FailureClass.BINDING_FAILED,
        f"{destination}, with {use.binding}: {problem}; {fix_for(use.binding, stored)}",
        boundary=Boundary.USER,
    )

"""Reads a request's caller, body and query. Input that is invalid is refused here.

Runs in the daemon. At most MAX_BODY_BYTES of a body are read. The body is decoded as the type of its route; unknown keys are
refused.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from typing import Final, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from aileron.daemon.http.sessions import Caller
from aileron.ingress.server import BODY_S, MAX_BODY_BYTES
from aileron.model.failure import AileronError, FailureClass
from aileron.model.misfit import misfit_in
from aileron.model.secret import Secret

__all__ = ["body_of", "caller_of", "from_base64", "query_of", "seen_progress", "wait_s"]

MAX_WAIT_S: Final = 60.0
_MAX_NUMBER_DIGITS: Final = 15
"""Maximum number of digits of a progress report's number: enough for more reports than a connector can send in one run."""
_T = TypeVar("_T")


def caller_of(request: Request) -> Caller:
    """Return the caller of a request, as the guard (routes.py) determined it."""
    caller: Caller = request.state.caller
    return caller


async def body_of(request: Request, shape: type[_T]) -> _T:
    """Return the body decoded as `shape`. Raises AileronError (invalid_request), whose message never quotes the body, because
    the body may contain a passphrase.
    """
    data = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise AileronError(FailureClass.INVALID_REQUEST, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise AileronError(FailureClass.INVALID_REQUEST, f"the body did not arrive within {BODY_S:.0f} s") from None
    except ClientDisconnect:  # no client reads the response
        raise AileronError(FailureClass.INVALID_REQUEST, "the request ended before its body was complete") from None
    try:
        return msgspec.json.decode(bytes(data) or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, f"the body is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AileronError(FailureClass.INVALID_REQUEST, _unreadable(bytes(data))) from None


def _unreadable(body: bytes) -> str:
    """Return why a body is not acceptable JSON, with the position in the JSON if a single value is the cause."""
    with contextlib.suppress(ValueError, RecursionError):
        misfit = misfit_in(json.loads(body))
        if misfit is not None:
            return f"the body is not valid: {misfit}"
    return "the body is not JSON"


def query_of(request: Request, *known: str) -> dict[str, str]:
    """Return the query parameters of a request. Raises AileronError (invalid_request) for a key that is not in `known`, or
    one that occurs twice.
    """
    found = request.query_params.multi_items()
    names = [name for name, _ in found]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"{name[:40]!r} in the query; expected {', '.join(known)}, each at most once",
            )
    return dict(found)


def wait_s(request: Request, default: float) -> float:
    """Return the query parameter `wait` in seconds, or `default` if it is missing. Raises AileronError (invalid_request)."""
    text = request.query_params.get("wait")
    if text is None:
        return default
    with contextlib.suppress(ValueError):
        wanted_s = float(text)
        if 0 <= wanted_s <= MAX_WAIT_S:
            return wanted_s
    raise AileronError(
        FailureClass.INVALID_REQUEST, f"wait is {text[:20]!r}, expected seconds from 0 to {MAX_WAIT_S:.0f}"
    )


def seen_progress(request: Request) -> int | None:
    """Return the number of the last progress report that the client has seen; None if the client does not wait for reports.
    Raises AileronError (invalid_request).
    """
    text = request.query_params.get("progress")
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_NUMBER_DIGITS:
        return int(text)
    raise AileronError(
        FailureClass.INVALID_REQUEST,
        f"progress is {text[:20]!r}, expected the number of the report that was seen last, or 0",
    )


def from_base64(name: str, text: str) -> Secret:
    """Return the bytes that `text` encodes. Raises AileronError (invalid_request), whose message contains the key `name` but no
    part of the value.
    """
    try:
        return Secret(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise AileronError(FailureClass.INVALID_REQUEST, f"{name} is not base64") from None

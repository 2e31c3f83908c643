"""The refusals that a client of the proxy gets: an HTTP response before the tunnel is open, one TLS alert afterwards.

Pure. The text of a refusal has our words and the destination. If the destination could not be parsed, the refusal
quotes the client's text: visible ASCII, sent only to the client that wrote it.

Rules
- Clients show different parts of a response, and most show only one: the status, the reason phrase (pip), a field, or
  the body. So each of these parts gives the reason. `Aileron-Reason` is for programs: a value of refusal.Reason, or a
  failure class.
- An alert has only its code: unrecognized_name, or internal_error if the host could not be reached.

Source: RFC 9110 sections 9.3.6 and 15, RFC 9112 section 4, RFC 8446 section 6; docs/reference/cell-egress.md.
"""

from __future__ import annotations

import re
from typing import Final

from aileron.egress.refusal import Reason

__all__ = ["ESTABLISHED", "REASON_FIELD", "UNREACHABLE_ALERT", "alert_of", "refusal_answer"]

REASON_FIELD: Final = "Aileron-Reason"
ESTABLISHED: Final = b"HTTP/1.1 200 Connection Established\r\n\r\n"
_FORBIDDEN: Final = 403
_STATUS: Final = {
    "network_error": 502,
    "internal_error": 500,
    Reason.TUNNEL_LIMIT.value: 503,
    Reason.HOST_LIMIT.value: 503,
    Reason.TUNNEL_HEAD.value: 400,
    Reason.URL_CHARACTERS.value: 400,
    Reason.URL_HOST.value: 400,
    Reason.URL_LENGTH.value: 400,
    Reason.URL_PORT.value: 400,
    Reason.URL_USERINFO.value: 400,
    Reason.TUNNEL_METHOD.value: 405,
    Reason.TUNNEL_SLOW.value: 408,
    Reason.HOST_UNANSWERED.value: 504,
}
"""HTTP status of a refusal by its reason. A reason that is not listed has 403."""
_PHRASE_CHARACTERS: Final = 400
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02"  # an alert record, TLS 1.2 as in all later versions, two bytes, fatal
UNREACHABLE_ALERT: Final = _ALERT + bytes((80,))  # internal_error


def refusal_answer(reason: str, text: str) -> bytes:
    """Return the HTTP response that refuses a tunnel. `reason` is a value of Reason, or a failure class like `network_error`."""
    phrase = _UNPRINTABLE.sub("?", text)[:_PHRASE_CHARACTERS]
    body = f"aileron: {_UNPRINTABLE.sub('?', text)}\n".encode("ascii")
    status = _STATUS.get(reason, _FORBIDDEN)
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        f"{REASON_FIELD}: {reason}",
        "Content-Type: text/plain; charset=us-ascii",
        f"Content-Length: {len(body)}",
        *(["Allow: CONNECT"] if status == 405 else []),
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


def alert_of(reason: Reason) -> bytes:
    """Return the TLS alert that refuses a tunnel after the 200 response; empty if the client did not begin TLS."""
    return b"" if reason is Reason.TUNNEL_NO_TLS else _ALERT + bytes((112,))  # unrecognized_name, RFC 6066 section 3

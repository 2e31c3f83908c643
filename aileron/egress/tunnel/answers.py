"""What a client of the proxy is told: HTTP before the tunnel stands, one alert of TLS afterwards.

Pure. The text of a refusal has words of ours in it, the destination, and where that is none, what was asked for, in
quotes: visible ASCII, said to nobody but who sent it.

Rules
- Clients show different parts of an answer, and most show one: the status, the reason phrase (pip), a field, or the body. So
  all of them say why. `Aileron-Reason` is for programs: a word of refusal.Reason, or a class of failure.
- An alert says no more than that: unrecognized_name, or internal_error where the host could not be reached.

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
"""Everything else is forbidden."""
_PHRASE_CHARACTERS: Final = 400
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02"  # a record of alert, TLS 1.2 as all later ones say, two bytes, fatal
UNREACHABLE_ALERT: Final = _ALERT + bytes((80,))  # internal_error


def refusal_answer(reason: str, text: str) -> bytes:
    """The whole response. `reason` is of Reason, or `network_error`."""
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
    """What is said behind the 200; nothing to who speaks no TLS."""
    return b"" if reason is Reason.TUNNEL_NO_TLS else _ALERT + bytes((112,))  # unrecognized_name, RFC 6066 section 3

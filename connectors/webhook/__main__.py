"""Connector for webhooks. It notifies a program of your own about an event, with signed JSON that the program can verify.

Runs inside the jail. The connector asks the host to send and sign a request; the connector never has the key.

Rules
- There is one receiver, whose host is fixed when the connector is built. An event is sent only once, to a path of the
  receiver. If the response is lost, it is unknown whether the event arrived; the receiver recognizes a repeated event
  by its `webhook-id`.
- Only the status of the response is passed on, never the receiver's text.

Source: the Standard Webhooks specification. Not handled: retries over hours, several receivers, fan-out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from aileron_connector import BadInput, ExternalApiError, http, log, op, run

MAX_EVENT_BYTES: Final = 20 << 10
"""Maximum number of bytes of an event, as the specification advises. Larger data should be sent by reference."""
_TYPE: Final = re.compile(r"[a-zA-Z0-9_]{1,64}(?:\.[a-zA-Z0-9_]{1,64}){0,7}")
_PATH: Final = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,255}")
_GONE: Final = 410


@op
def send_event(event: str, data: dict[str, Any], path: str = "/") -> dict[str, Any]:
    """Send `data` as an event of this type to a path of the receiver. Its effects cannot be undone."""
    if _TYPE.fullmatch(event) is None:
        words = f"event {event[:64]!r} is not a type such as invoice.paid: words of letters, digits and _, with dots between"
        raise BadInput(words, argument="event")
    if _PATH.fullmatch(path) is None:
        raise BadInput(f"path {path[:64]!r} is not a path such as /hooks/orders, without a query", argument="path")
    body = msgspec.json.encode({"type": event, "timestamp": _now(), "data": data})
    if len(body) > MAX_EVENT_BYTES:
        words = f"the event has {len(body)} bytes; at most {MAX_EVENT_BYTES}: send a link to the rest"
        raise BadInput(words, argument="data")
    (receiver,) = http.hosts()
    headers = [("Content-Type", "application/json")]
    with http.request("POST", f"{receiver.url}{path}", headers, body, credential="hmac") as answer:
        if answer.status >= 300:
            raise _refused(answer)
        log.info("event sent", bytes=len(body), status=answer.status)
        return {"status": answer.status, "bytes": len(body)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refused(answer: http.Response) -> ExternalApiError:
    status = answer.status
    if status < 400:
        words = "the receiver is somewhere else; build the connector for that host"
    elif status in (400, 401, 403):
        words = (
            "the receiver refuses the event; if the signature is wrong, store the receiver's key with "
            "`aileron secret set NAME` (`aileron secret list` has the name)"
        )
    elif status == _GONE:
        words = "the receiver takes no more events"
    elif status >= 500:
        words = (
            "the receiver has a problem of its own, and may have handled the event; look there before you send it again"
        )
    else:
        words = "the receiver does not take the event"
    return ExternalApiError(f"cannot send the event: {words} ({status})", status=status)


if __name__ == "__main__":
    run()

"""A receiver of webhooks as a service would write it: by the library that Standard Webhooks publishes, over TLS.

>>> with Receiver(tls, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") as receiver:      # doctest: +SKIP
...     receiver.port, receiver.events
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from typing import Any, Final, Self

from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.support.upstream import Seen, Upstream, answer

__all__ = ["Receiver"]

_HELD_S: Final = 20.0


class Receiver:
    """A receiver: `events` have a valid signature, `refused` counts the others; `reflects`: it responds with the request."""

    def __init__(self, tls: ssl.SSLContext, key: str) -> None:
        self._library: Final = Webhook(key)
        self._upstream: Final = Upstream(self._script, tls)
        self.port: Final = self._upstream.port
        self.events: list[Any] = []
        self.ids: list[str] = []
        self.refused = 0
        self.reflects = False
        self._gate: tuple[threading.Event, threading.Event] | None = None

    def __enter__(self) -> Self:
        self._upstream.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._upstream.__exit__(*exc_info)

    @property
    def seen(self) -> list[Seen]:
        """All requests so far."""
        return self._upstream.requests

    @property
    def received(self) -> bytes:
        """All bytes received so far."""
        return bytes(self._upstream.received)

    @contextlib.contextmanager
    def held(self) -> Iterator[threading.Event]:
        """Hold back responses until the block ends; set the yielded event once a request has arrived."""
        arrived, go = self._gate = threading.Event(), threading.Event()
        try:
            yield arrived
        finally:
            self._gate = None
            go.set()

    def _script(self, seen: Seen) -> bytes:
        if self._gate is not None:
            arrived, go = self._gate
            arrived.set()
            go.wait(_HELD_S)
        fields = {name.lower(): value for name, value in seen.fields}
        try:
            self.events.append(self._library.verify(seen.body, fields))
        except WebhookVerificationError:
            self.refused += 1
            return answer(b"no matching signature", status="401 Unauthorized")
        self.ids.append(fields["webhook-id"])
        return answer(seen.head + seen.body if self.reflects else b"thanks")

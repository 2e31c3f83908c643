"""A receiver of webhooks as a service would write it: by the library that Standard Webhooks publishes, over TLS.

>>> with Receiver(tls, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") as receiver:      # doctest: +SKIP
...     receiver.port, receiver.events
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["Receiver"]


class Receiver(Service):
    """A receiver: `events` have a valid signature, `refused` counts the others; `reflects`: it responds with the request."""

    def __init__(self, tls: ssl.SSLContext, key: str) -> None:
        super().__init__(tls)
        self._library: Final = Webhook(key)
        self.events: list[Any] = []
        self.ids: list[str] = []
        self.refused = 0
        self.reflects = False

    @property
    def seen(self) -> list[Seen]:
        """All requests so far."""
        return self._upstream.requests

    @property
    def received(self) -> bytes:
        """All bytes received so far."""
        return bytes(self._upstream.received)

    def _answer(self, seen: Seen) -> bytes:
        self.gate.pass_through()
        fields = {name.lower(): value for name, value in seen.fields}
        try:
            self.events.append(self._library.verify(seen.body, fields))
        except WebhookVerificationError:
            self.refused += 1
            return answer(b"no matching signature", status="401 Unauthorized")
        self.ids.append(fields["webhook-id"])
        return answer(seen.head + seen.body if self.reflects else b"thanks")

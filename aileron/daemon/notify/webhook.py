"""Sends a notice to an address that the person configured, as one signed POST according to the Standard Webhooks specification.

Runs in the daemon. The request is sent through egress, like all traffic: over https, with a verified certificate, to addresses
that are public or that the user's `egress.private` names; no redirect is followed. The receiver is not trusted: only the status
of its response is read.

Rules
- The signing key is a secret in the vault that a setting names. It must have the form of a webhook key (`whsec_` and 24 to 64
  bytes in base64), so that no other secret can be used for this. The key is lent for each attempt, to make one signature.
- One notice is sent at a time, with a few attempts each, from a bounded queue. A notice that could not be sent within ten
  minutes, for example because the vault is locked, is dropped.
- A problem is logged once, until a request succeeds; never with the path of the URL, which may be a secret.
- These requests are not recorded in the ledger, because they belong to no run.

Source: docs/reference/notifications.md; Standard Webhooks, section "Signature scheme". Not here: the text (notices.py).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio

from aileron.daemon.notify.notices import Asked, Describe, Notice, NotifyTiming
from aileron.egress import Egress, EgressRequest, Meter, Unrecorded
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from aileron.model.secret import Secret
from aileron.model.timestamp import utc

__all__ = ["EVENT", "EXPIRING", "MAX_WAITING", "SecretLender", "Webhook", "signature"]

EVENT: Final = "approval.requested"
EXPIRING: Final = "approval.expiring"
MAX_WAITING: Final = 64
"""Maximum number of notices that wait to be sent, 200 bytes each. A person with so many questions reads the list of questions
anyway.
"""
_PREFIX: Final = "whsec_"
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64  # Standard Webhooks, "Signature scheme"
_SECOND: Final = 200, 299
_log = logging.getLogger(__name__)


class SecretLender(Protocol):
    """Protocol for the part of the vault that this module uses."""

    @property
    def is_locked(self) -> bool:
        """True if lending a secret would be refused because the vault is locked."""
        ...

    def lend_secret(self, name: str) -> contextlib.AbstractContextManager[Secret]:
        """Lend the value of a stored secret until the block is left. Raises AileronError (vault_locked, not_found)."""
        ...


class Webhook:
    """Channel that sends notices of questions to one webhook receiver. Call `asked` and `serve` in the same event loop."""

    def __init__(
        self,
        url: str,
        secret: str,
        private: frozenset[HostPort],
        *,
        egress: Egress,
        lender: SecretLender,
        describe: Describe,
        pace: NotifyTiming,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the channel. `secret` is the name of the signing key in the vault. `clock` returns seconds since the epoch.
        Raises RefusedError for an invalid `url`.
        """
        self._url: Final = url
        self._to: Final = parse_url(url).destination
        self._secret: Final = secret
        self._grant: Final = Grant(hosts=(self._to,), private=private & {self._to}, budget=Budget(requests=1))
        self._egress: Final = egress
        self._lender: Final = lender
        self._describe: Final = describe
        self._pace: Final = pace
        self._clock: Final = clock
        self._waiting: deque[Asked] = deque()
        self._some = anyio.Event()
        self._said: set[str] = set()

    def asked(self, asked: Asked) -> None:
        """Put the question's notice into the queue, if there is room."""
        if len(self._waiting) >= MAX_WAITING:
            self._say_once("full", f"{MAX_WAITING} notices wait already, others are dropped")
            return
        self._waiting.append(asked)
        self._some.set()

    async def serve(self) -> None:
        """Send queued notices. Runs until cancelled."""
        while True:
            await self._some.wait()
            await self._send_waiting()
            self._some = anyio.Event()

    async def _send_waiting(self) -> None:
        while self._waiting:
            self._drop_old()
            if self._lender.is_locked:
                await anyio.sleep(self._pace.unlocked_s)
            elif self._waiting:
                asked = self._waiting.popleft()
                notice = await self._describe(asked)
                if notice is not None and not await self._is_told(notice):
                    self._waiting.appendleft(asked)

    def _drop_old(self) -> None:
        oldest = self._clock() - self._pace.keep_s
        while self._waiting and self._waiting[0].at_s < oldest:
            self._waiting.popleft()
            why = "the vault is locked" if self._lender.is_locked else "the receiver is slow"
            self._say_once(f"old: {why}", f"what waited over {self._pace.keep_s:g} s is dropped: {why}")

    async def _is_told(self, notice: Notice) -> bool:
        """Try to send a notice. Return True if the notice was sent or given up, False if it must wait because the vault is
        locked.
        """
        problem = ""
        for pause_s in (*self._pace.backoff_s, None):
            try:
                status = await self._post(notice)
            except AileronError as error:
                if error.failure.failure_class is FailureClass.VAULT_LOCKED:
                    return False
                problem = error.failure.message
                if error.failure.failure_class is not FailureClass.NETWORK_ERROR:
                    break  # a rule or a setting that forbids it is the same a second later
            else:
                if _SECOND[0] <= status <= _SECOND[1]:
                    self._said.clear()
                    return True
                problem = f"it answered {status}"
            if pause_s is not None:
                await anyio.sleep(pause_s)
        self._say_once("failed", f"a notice was given up: {problem}")
        return True

    async def _post(self, notice: Notice) -> int:
        """Send one request with the notice. Return the HTTP status of the response. Raises AileronError if the request fails."""
        body, at = json.dumps(_event(notice)).encode(), str(int(self._clock()))
        # A notice that is sent again has the id it had, and a receiver drops it: a reminder has an id of its own.
        message_id = f"{notice.approval_id}-expiring" if notice.is_reminder else notice.approval_id
        with self._lender.lend_secret(self._secret) as secret:
            signed = signature(secret, message_id, at, body)
        headers = (
            ("Content-Type", "application/json"),
            ("User-Agent", "aileron"),
            ("webhook-id", message_id),
            ("webhook-timestamp", at),
            ("webhook-signature", signed),
        )
        request = EgressRequest("POST", self._url, headers, body=body)
        until = anyio.current_time() + self._pace.attempt_s
        meter = Meter(self._grant.budget)
        async with self._egress.open_own(request, self._grant, meter, Unrecorded(), until) as response:
            return response.status

    def _say_once(self, about: str, words: str) -> None:
        if about not in self._said:
            self._said.add(about)
            _log.warning("webhook at %s: %s", self._to, words)


def _event(notice: Notice) -> dict[str, str]:
    """Return the notice as the JSON object of the request body; fields that are unknown or must not be shown are left out."""
    told = {
        "type": EXPIRING if notice.is_reminder else EVENT,
        "id": notice.approval_id,
        "action": notice.action,
        "agent": notice.agent,
        "agent_says": notice.headline,
        "url": notice.url,
        "at": utc(notice.at_s),
        "expires_at": "" if notice.expires_at_s is None else utc(notice.expires_at_s),
    }
    return {name: value for name, value in told.items() if value}


def signature(secret: Secret, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header `webhook-signature`. Raises AileronError (bad_input) if the secret is no webhook key."""
    mac = hmac.new(_key(secret), b".".join((message_id.encode(), timestamp.encode(), body)), hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


def _key(secret: Secret) -> bytes:
    text = secret.reveal()
    with contextlib.suppress(binascii.Error):
        if text.startswith(_PREFIX.encode()):
            key = base64.b64decode(text.removeprefix(_PREFIX.encode()), validate=True)
            if _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
                return key
    message = (
        f"notify.webhook_secret names a secret that is not a webhook's: {_PREFIX} and {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes "
        "in base64, as its receiver gives it out"
    )
    raise AileronError(FailureClass.BAD_INPUT, message, boundary=Boundary.USER)

"""Secrets that are stored outside the vault. A secret is fetched once for all requests that wait, and its value is known until
the vault is locked.

Runs in the daemon. Fetched values are stored only by the vault (vault/references.py).

Rules
- A fetch is recorded before it begins; its failure or cancellation is recorded too.
- Each secret has one fetch at a time. If a fetch fails, all requests that waited for it fail too, without beginning another
  fetch.
- The secrets for a request are fetched concurrently, MOST_AT_ONCE at a time. If one cannot be fetched, the request is refused,
  and the other fetches are cancelled.
- A connector may learn the name of a secret that its request waits for, but not where the secret is stored.
- A value is lent for FRESH_S after it was fetched. Responses are searched for it for as long as the vault is open.
- A request waits until every secret outside the vault that could have been sent to its host is known, even if the request has
  no credential. Otherwise its response could not be searched for the secret. If the secret cannot be fetched, the request is
  refused.

Source: docs/reference/bindings.md, "Secrets that are kept elsewhere". Not here: how such a secret is fetched
(aileron/secret_stores).
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.model.clock import since_boot
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere, SecretReference
from aileron.secret_stores.fetch import Fetcher
from aileron.secret_stores.problems import CODES
from aileron.vault.vault import Vault

__all__ = ["FETCH_S", "FRESH_S", "SecretsInStores"]

FETCH_S: Final = 10.0
"""Maximum number of seconds to fetch one secret. gpg takes a tenth of a second, a server a few seconds; a person has this long
to touch a smart card.
"""
FRESH_S: Final = 300.0
"""Seconds that a fetched value is lent without a new fetch. A run with many requests fetches once, and a changed value is
noticed within minutes.
"""
MOST_AT_ONCE: Final = 4
"""Maximum number of concurrent programs and connections that fetch secrets for one request: gpg decrypts one secret after the
other anyway, through one agent.
"""
_TOLD_S: Final = 0.25
"""Seconds of a fetch's time that are reserved for recording and reporting its failure."""


class _Turn(msgspec.Struct, eq=False):
    """The state of the fetches of one secret, which run one after the other: their lock, the number of waiting requests, and
    the failures.
    """

    lock: anyio.Lock
    waiting: int = 0
    failed: Failure | None = None
    failures: int = 0


class SecretsInStores:
    """Service that fetches secrets that are stored outside the vault. One instance per daemon."""

    def __init__(self, vault: Vault, fetcher: Fetcher, audit: Audit) -> None:
        self._vault: Final = vault
        self._fetcher: Final = fetcher
        self._audit: Final = audit
        self._turns: dict[str, _Turn] = {}
        """Secrets that are being fetched, by name. An entry is removed when no request waits for the secret."""

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return whether a request with this credential to this host can be sent without fetching a secret first. Returns
        quickly.
        """
        return not self._to_fetch(use, destination)

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Wait until every secret that a request with this credential to this host needs is known.

        Raises AileronError as `Fetcher.fetch` does, and (binding_failed) if a value changed.
        """
        until = min(deadline, anyio.current_time() + FETCH_S)
        binding = None if use is None else use.binding
        room, failed = anyio.CapacityLimiter(MOST_AT_ONCE), list[AileronError]()
        async with anyio.create_task_group() as fetching:

            async def fetched(name: str) -> None:
                try:
                    async with room:
                        await self._fetched_once(name, binding, until)
                except AileronError as error:
                    failed.append(_for_connector(name, error))
                    fetching.cancel_scope.cancel()

            for name in self._to_fetch(use, destination):
                fetching.start_soon(fetched, name)
        if failed:
            raise failed[0]

    async def secret_ready(self, name: str) -> None:
        """Wait until this secret's value is known, if it is stored outside the vault. Called before the secret is bound. Raises
        AileronError as `ready` does.

        Does not fail for a locked vault or an unknown name, because binding the secret then reports a more precise error.
        """
        if self._vault.kept_at(name) is not None and not self._vault.is_locked:
            await self._fetched_once(name, None, anyio.current_time() + FETCH_S)

    async def pinned(self, reference: str, token: str | None) -> Elsewhere:
        """Return the place that `reference` names, including the program that will read the secret there; `token` names the
        secret that the fetch needs. Raises AileronError (bad_input) for an invalid reference, (binding_failed) for a
        program that is not installed, (vault_locked).
        """
        self._vault.check_unlocked()
        try:
            parsed = SecretReference.parse(reference)
        except ValueError as error:
            raise AileronError(FailureClass.BAD_INPUT, str(error)) from None
        return await anyio.to_thread.run_sync(self._fetcher.pinned, parsed, token)

    async def found(self, name: str, elsewhere: Elsewhere) -> Secret:
        """Fetch the current value of the secret `name` from `elsewhere`, so that a person can approve the value. Raises
        AileronError (not_found) if the vault does not have the token that the fetch needs, (vault_locked), and as `ready`
        does.
        """
        try:
            return await self._fetch(name, elsewhere, None, anyio.current_time() + FETCH_S)
        except AileronError as error:
            await self._audit.note(events.SecretFetchFailed(name=name, code=_code(error)))
            raise

    def _to_fetch(self, use: CredentialUse | None, destination: HostPort) -> tuple[str, ...]:
        return self._vault.to_fetch(None if use is None else use.binding, str(destination), FRESH_S)

    async def _fetched_once(self, name: str, binding: BindingName | None, until: float) -> None:
        turn = self._turns.setdefault(name, _Turn(anyio.Lock()))
        failures = turn.failures
        turn.waiting += 1
        try:
            with anyio.CancelScope(deadline=until):
                async with turn.lock:
                    if turn.failures != failures and turn.failed is not None:
                        raise AileronError.of(turn.failed)
                    await self._fetched(name, binding, until, turn)
                    return
        finally:
            turn.waiting -= 1
            if turn.waiting == 0:
                self._turns.pop(name, None)
        raise self._late(name)

    async def _fetched(self, name: str, binding: BindingName | None, until: float, turn: _Turn) -> None:
        entry = self._vault.read(lambda opened: opened.secret_entry(name))
        if entry.elsewhere is None or not self._vault.read(
            lambda opened: opened.is_stale(name, since_boot() - FRESH_S)
        ):
            return
        try:
            value = await self._fetch(name, entry.elsewhere, binding, until)
            self._vault.keep_fetched(entry, value)
        except AileronError as error:
            turn.failures += 1
            turn.failed = error.failure
            await self._audit.note(events.SecretFetchFailed(name=name, code=_code(error)))
            raise

    async def _fetch(self, name: str, elsewhere: Elsewhere, binding: BindingName | None, until: float) -> Secret:
        token = None if elsewhere.token is None else self._vault.reveal_secret(elsewhere.token)
        await self._audit.note(
            events.SecretFetching(
                name=name, reference=elsewhere.reference, binding=None if binding is None else str(binding)
            )
        )
        try:
            with anyio.CancelScope(
                deadline=until - _TOLD_S / 2
            ):  # for a fetcher that misses its own deadline; it reports nothing then
                return await self._fetcher.fetch(elsewhere, token, until - _TOLD_S)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_TOLD_S, shield=True):
                await self._audit.note(events.SecretFetchFailed(name=name, code=FailureClass.CANCELLED.value))
            raise
        raise self._late(name)

    def _late(self, name: str) -> AileronError:
        return AileronError(
            FailureClass.BINDING_FAILED,
            f"secret {name!r} was not fetched in time from where it is kept: see `aileron secret list`, then try again",
            boundary=Boundary.USER,
            retriable=True,
            details={"code": "timed_out"},
        )


def _for_connector(name: str, error: AileronError) -> AileronError:
    """Return the error to raise for a connector's request. A network error is reworded without the secret's location,
    because the connector can see the error (executor/broker.py). Any other error ends the run, and is returned unchanged.
    """
    failure = error.failure
    if failure.failure_class is not FailureClass.NETWORK_ERROR:
        return error
    return AileronError(
        failure.failure_class,
        f"the secret {name!r} cannot be fetched now: the server that keeps it was not reached (see `aileron secret list`)",
        boundary=failure.boundary,
        retriable=failure.retriable,
        details={"secret": name, "code": _code(error)},
    )


def _code(error: AileronError) -> str:
    """Return the error's code from secret_stores/problems.py, or the name of its failure class if it has no such code."""
    code = error.failure.details.get("code")
    return code if isinstance(code, str) and code in CODES else error.failure.failure_class.value

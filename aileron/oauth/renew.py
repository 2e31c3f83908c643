"""Renews access tokens before they expire, and once after a service has refused a token. The new tokens are never lost.

Runs in the daemon, with one instance for all bindings. A provider that rotates refresh tokens revokes the old token when it
responds, so losing a response ends the sign-in. The order of the steps follows from that.

    1 one renewal of a binding at a time; later callers wait for it · 2 the renewal is recorded
    3 the intent is in the vault, durably · 4 the provider is asked · 5 the response is in memory · 6 the response is in the vault
    7 the callers continue

Rules
- A renewal does not belong to the callers that wait for it: it continues if they are cancelled. It has its own deadline.
- Steps 2 and 3 come first, so that a full disk or a locked vault is detected while the old token is still valid. If step 6
  fails nevertheless, the new tokens are used from memory (`newest`), and writing them is retried until it succeeds or the
  binding is gone. Tokens that were never written may have been sent nevertheless: such tokens stay known (`unwritten`) for
  another day, like former tokens of the vault.
- If the daemon ends between steps 4 and 6, the stored intent shows that. Then one renewal with the stored refresh token is
  attempted. If the provider refuses that token, the error message explains the cause.
- After a failure, no request is sent to the provider for a while, which is longer after each further failure. An access token
  is used until it has expired.
- The machine's clock may be wrong. So lifetimes are counted from when the response arrived, and a token that expired
  according to another clock is renewed after a 401. If the service then refuses the new token too, the renewal is not
  repeated at once.
- Nothing secret is in a message, a log line or a cause.

Source: RFC 6749 section 6, RFC 9700 section 4.14, RFC 7009; docs/explanation/oauth.md. Not here: storing tokens (the vault),
the callers (egress, through the daemon).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import anyio.to_thread

from aileron.model.credential import OAuthGrant, TokenSet
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.names import BindingName, HostPort
from aileron.model.secret import Secret
from aileron.oauth.answers import renewed
from aileron.oauth.endpoint import Endpoints, endpoint_url, host_of
from aileron.oauth.jobs import JobJournal, Jobs, JobTiming, Series, make_room
from aileron.oauth.problems import OURS, RENEWAL, ProviderError, not_renewed
from aileron.oauth.revoke import revoked

__all__ = ["RenewableBinding", "Renewals", "Store"]

MAX_HELD: Final = 64
"""Maximum number of renewed token sets in memory that could not be written into the vault, of at most 22 KiB each. With
that many, no token is renewed until some are written.
"""
KEPT_S: Final = 24 * 3600.0
"""Seconds for which tokens that were never stored in the vault are remembered, so that responses are searched for them:
as long as the vault remembers its former tokens.
"""
MAX_LOST: Final = 16
"""Maximum number of token sets that were never stored in the vault and are remembered; the newest are retained. There
is one only if the disk failed, and a person ended the sign-in before the disk was repaired.
"""
_ROOM_MS: Final = 60_000
"""Milliseconds before a token expires at which it is renewed: as long as a slow request takes, with some room for
different clocks.
"""
_ROOM_SHARE: Final = 4
"""Divisor of a token's lifetime: the token is renewed in the last quarter of its lifetime at the earliest. So a token with a
lifetime of a minute is not renewed for every request.
"""
_DISK_S: Final = 60.0  # for the writes of one renewal: the ledger has 10 s for a row, the vault 5 s to get its lock
_log = logging.getLogger(__name__)


class RenewableBinding(Protocol):
    """Interface of a binding with the part that renewals use."""

    @property
    def grant(self) -> OAuthGrant | None:
        """The provider's grant of the sign-in, or None for a stored secret, which is never renewed."""
        ...


class Store(Protocol):
    """Interface of the vault with the part that renewals use. `binding` and `tokens` are quick; the other methods wait
    for the disk, in a worker thread.

    All methods except `binding` raise AileronError: vault_locked, binding_required (the binding was removed), binding_failed
    (the binding now has another sign-in), or an error from the disk.
    """

    def binding(self, name: BindingName) -> RenewableBinding | None:
        """Return the binding with this name, which is also available while the vault is locked; None if there is none."""
        ...

    def tokens(self, name: BindingName) -> TokenSet:
        """Return the binding's stored tokens."""
        ...

    def put_tokens(self, name: BindingName, tokens: TokenSet, grant: OAuthGrant) -> None:
        """Store tokens and grant in one write, if the binding still has the sign-in of `grant.obtained_ms`."""
        ...

    def note_renewal(self, name: BindingName, at_ms: int) -> None:
        """Record that a renewal request for this binding's sign-in is about to be sent to the provider."""
        ...

    def note_refused(self, name: BindingName, code: str) -> None:
        """Record that the provider no longer renews this binding's sign-in, with its error code."""
        ...


class Renewals:
    """The renewals of all bindings' tokens. `serve` runs for as long as the daemon runs; all other methods must be called in the
    same event loop.
    """

    def __init__(
        self,
        store: Store,
        endpoints: Endpoints,
        journal: JobJournal,
        clock: Callable[[], float] = time.time,
        *,
        pace: JobTiming | None = None,
    ) -> None:
        """Create the renewals of all bindings' tokens. `clock` returns seconds since the epoch."""
        self._store: Final = store
        self._endpoints: Final = endpoints
        self._journal: Final = journal
        self._clock: Final = clock
        self._pace: Final = pace or JobTiming()
        self._jobs: Final = Jobs(journal, self._pace, does="renewing", around_s=_DISK_S)
        self.states: dict[BindingName, _State] = {}
        self._lost: tuple[tuple[TokenSet, float], ...] = ()
        """Renewed tokens that were never written to the vault and for which the attempts to write them have ended, each
        with the time of that end; oldest first.
        """
        self._some_held = anyio.Event()

    async def serve(self) -> None:
        """Run the renewals that other methods begin. Returns only when cancelled, and only after the renewals in
        progress have ended.
        """
        try:
            async with self._jobs.served():
                await self._write_again()
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_held()

    async def ready(self, name: BindingName, deadline: float) -> None:
        """Make sure, as far as can be known, that the binding's access token is valid for a while. Renew it if necessary.
        `deadline` is in the time of `anyio.current_time()`.

        Raises AileronError if the token has expired and there is no other token: binding_failed if a person must sign in
        again, network_error if the provider cannot be asked now, or an error from the vault. Returns immediately for a binding
        without a sign-in.
        """
        grant = self._maybe_grant(name)
        if grant is None or not self._is_due(grant):
            return
        has_ended = self._has_ended(grant)
        until = deadline if has_ended else min(deadline, anyio.current_time() + self._pace.patience_s)
        problem = await self._renewed(name, grant, until)
        if problem is not None and has_ended:
            raise AileronError.of(problem)

    async def renew(self, name: BindingName, refused: Secret, deadline: float) -> bool:
        """Renew the access token `refused`, which a service refused with 401. Return whether there is another token now.

        False means that the token was issued a moment ago, or that it cannot be renewed and has not expired, so the refusal
        has another cause. Raises AileronError as for `ready` if the renewal failed.
        """
        grant = self._maybe_grant(name)
        if grant is None:
            return False
        if self._current(name) != refused:
            return True
        state = self._state(name, grant)
        is_hopeless = not grant.refreshable and grant.failed is None and not self._has_ended(grant)
        if state.job is None and (is_hopeless or self._is_fresh(state, grant)):
            return False
        problem = await self._renewed(name, grant, deadline)
        if self._current(name) != refused:
            return True
        if problem is not None:
            raise AileronError.of(problem)
        return False

    def newest(self, name: BindingName, stored: Secret) -> Secret:
        """Return the token to send when the vault lends `stored`: `stored` itself, or its successor if that is in memory only."""
        state = self.states.get(name)
        held = None if state is None or not state.uses_held else state.held
        return held.tokens.access if held is not None and held.base.access == stored else stored

    def unwritten(self, host: HostPort) -> tuple[Secret, ...]:
        """Return the tokens that may have been sent to `host` and are not in the vault: access tokens and, if `host` is the
        provider's, refresh tokens.

        The tokens come from at most MAX_HELD token sets that are not written yet, and at most MAX_LOST token sets that were
        never written.
        """
        since = anyio.current_time() - KEPT_S
        known = [state.held.tokens for state in self.states.values() if state.held is not None]
        known += [tokens for tokens, at in self._lost if at > since]
        return tuple(token for tokens in known for token in _sent_to(host, tokens))

    async def revoke(self, tokens: TokenSet) -> str:
        """Revoke tokens at their provider (RFC 7009). Return `revoked`, `not offered`, or `failed: …`. Raises no exception."""
        return await revoked(self._endpoints, tokens)

    # waiting callers

    async def _renewed(self, name: BindingName, grant: OAuthGrant, deadline: float) -> Failure | None:
        """Wait for the binding's renewal in progress, or begin a renewal and wait for it. Return its failure; None if
        it succeeded.
        """
        state = self._state(name, grant)
        if state.job is None:
            problem = self._maybe_why_not(name, grant, state)
            if problem is not None or self._is_fresh(state, grant):
                return problem
        work, problem_of = functools.partial(self._renew, name, state), functools.partial(self._problem, name)
        return await self._jobs.outcome(name, state, work, problem_of, deadline)

    def _maybe_why_not(self, name: BindingName, grant: OAuthGrant, state: _State) -> Failure | None:
        if grant.failed in _ENDED:
            return self._problem(name, grant.failed)
        if not grant.refreshable:
            return self._problem(name, "no_refresh_token")
        return state.maybe_paused()

    def _problem(self, name: BindingName, code: str) -> Failure:
        problem = RENEWAL[code]
        host = self._host(name)
        error = ProviderError(code, problem.what.format(host=host), retriable=problem.retriable)
        return not_renewed(error, host, _again(name)).failure

    def _host(self, name: BindingName) -> str:
        try:
            return host_of(self._store.tokens(name).client.token_url)
        except (AileronError, ProviderError):
            return "its provider"

    # known state

    def _state(self, name: BindingName, grant: OAuthGrant) -> _State:
        state = self.states.get(name)
        if state is None or (state.obtained_ms != grant.obtained_ms and state.job is None):  # there was a new sign-in
            make_room(self.states, lambda state: state.job is None and state.held is None)
            if state is not None and state.held is not None:
                self._lose(state.held)
            state = self.states[name] = _State(grant.obtained_ms)
        return state

    def _lose(self, held: _Held) -> None:
        before = (loss for loss in self._lost if loss[0] is not held.tokens)  # a write in progress may also lose it
        self._lost = (*before, (held.tokens, anyio.current_time()))[-MAX_LOST:]

    def _maybe_grant(self, name: BindingName) -> OAuthGrant | None:
        """Return the grant of the tokens that would now be sent for the binding, stored or in memory. Return None if
        the binding has no sign-in.
        """
        bound = self._store.binding(name)
        grant = None if bound is None else bound.grant
        state = self.states.get(name)
        if grant is None or state is None or state.obtained_ms != grant.obtained_ms:
            return grant
        return state.held.grant if state.held is not None and state.uses_held else grant

    def _current(self, name: BindingName) -> Secret:
        return self.newest(name, self._store.tokens(name).access)

    def _is_due(self, grant: OAuthGrant) -> bool:
        if grant.expires_ms is None:
            return False
        life_ms = grant.expires_ms - (grant.refreshed_ms or grant.obtained_ms)
        return self._now_ms() >= grant.expires_ms - min(_ROOM_MS, max(0, life_ms) // _ROOM_SHARE)

    def _has_ended(self, grant: OAuthGrant) -> bool:
        return grant.expires_ms is not None and self._now_ms() >= grant.expires_ms

    def _is_fresh(self, state: _State, grant: OAuthGrant) -> bool:
        least_s = self._pace.least_s if self._is_due(grant) else self._pace.fresh_s
        return state.renewed_at is not None and anyio.current_time() - state.renewed_at < least_s

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    # one renewal

    async def _renew(self, name: BindingName, state: _State) -> None:
        if state.held is not None:
            await self._write(name, state)  # first: only these may have the current refresh token
        before, grant = self._of_one_sign_in(name)
        host = _provider_of(name, before)
        if before.refresh is None:
            raise AileronError.of(self._problem(name, "no_refresh_token"))
        if sum(state.held is not None for state in self.states.values()) >= MAX_HELD:
            raise AileronError.of(self._problem(name, "unwritten"))
        await self._journal.renewing(name, host)
        begun_ms = self._now_ms()
        try:
            await anyio.to_thread.run_sync(self._store.note_renewal, name, begun_ms)
        except AileronError as error:
            await self._jobs.noted(name, self._journal.failed(name, error.failure.failure_class.value))
            raise
        try:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": before.refresh.reveal().decode("ascii"),
                **before.client.resource_parameter,
            }
            deadline = anyio.current_time() + self._pace.exchange_s
            answer = await self._endpoints.post(before.client.token_url, form, before.client, deadline)
            after = renewed(answer, before, grant, host, self._clock())
        except ProviderError as error:
            problem = error
        else:
            state.held = _Held(before, after.tokens, after.grant)  # before any step that waits, or could fail
            state.uses_held = False
            self._some_held.set()
            await self._keep(name, state)
            return
        was_settled = grant.renewing_ms in (None, state.settled_ms)
        if was_settled and (not problem.was_sent or problem.code not in _UNSETTLED):
            state.settled_ms = begun_ms
        if problem.code == "invalid_grant" and not was_settled:
            problem = ProviderError("cut_off", problem.sentence, retriable=False)
        if problem.code == "invalid_client" and before.client.is_registered:
            problem = ProviderError("client_gone", problem.sentence, retriable=False)
        raise await self._refused(name, state, grant, problem, host)

    async def _keep(self, name: BindingName, state: _State) -> None:
        """Store the renewed tokens in the vault; if that fails, use them from memory (steps 6 and 7 of the module).

        The renewal has succeeded from this point, even if the disk fails.
        """
        state.went_well()
        state.renewed_at = anyio.current_time()
        try:
            await self._write(name, state)
        except AileronError as error:
            _log.error("the renewed tokens of %s are in memory only: %s", name, error)
        finally:
            state.uses_held = state.held is not None
        await self._jobs.noted(name, self._journal.renewed(name))

    async def _refused(
        self, name: BindingName, state: _State, grant: OAuthGrant, problem: ProviderError, host: str
    ) -> AileronError:
        """Record that the provider refused to renew the binding's sign-in, send it no request for a while, and return
        the error. A later successful renewal clears the record.
        """
        is_its_word = problem.code not in OURS or problem.code == "unknown_error"
        if is_its_word and not problem.retriable and problem.code != grant.failed:
            await self._put_down(name, grant, problem.code)
        error = not_renewed(problem, host, _again(name))
        return await self._jobs.refused(name, state, error, problem.code)

    async def _put_down(self, name: BindingName, grant: OAuthGrant, code: str) -> None:
        now = self._maybe_grant(name)
        if now is None or now.obtained_ms != grant.obtained_ms:
            return  # there was a new sign-in meanwhile: the refusal was about the old one
        try:
            await anyio.to_thread.run_sync(self._store.note_refused, name, code)
        except AileronError as error:
            _log.error("could not record that %s is no longer renewed: %s", name, error)

    def _of_one_sign_in(self, name: BindingName) -> tuple[TokenSet, OAuthGrant]:
        """Return the binding's stored tokens and its grant, making sure that both are of the same sign-in.

        Worker threads write to the vault. If a new sign-in occurs between the two reads, both are read again, because tokens
        of one account must not be renewed as tokens of another account.
        """
        grant = self._required_grant(name)
        while True:  # once more for each time that a person signs in
            before, seen = self._store.tokens(name), grant
            grant = self._required_grant(name)
            if grant.obtained_ms == seen.obtained_ms:
                return before, grant

    def _required_grant(self, name: BindingName) -> OAuthGrant:
        grant = self._maybe_grant(name)
        if grant is None:
            message = f"{name} was revoked meanwhile; see `aileron binding list`"
            raise AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER)
        return grant

    # tokens in memory only

    async def _write(self, name: BindingName, state: _State) -> bool:
        """Write the binding's renewed tokens that are in memory into the vault. Return whether they are in the vault
        now. Raises AileronError if they stay in memory.

        Only one write runs at a time: otherwise the loop below could write, a renewal could write newer tokens, and the loop's
        older ones could overwrite them.
        """
        async with state.writing:
            held = state.held
            if held is None:
                return True
            try:
                await anyio.to_thread.run_sync(self._store.put_tokens, name, held.tokens, held.grant)
            except AileronError as error:
                if error.failure.failure_class not in _GONE:
                    raise
                _log.warning("the renewed tokens of %s are not kept: %s", name, error)
                is_revoked = error.failure.failure_class is FailureClass.BINDING_REQUIRED
            else:
                state.held = None
                return True
            self._lose(held)
            state.held = None
        if is_revoked:
            await self.revoke(held.tokens)  # revoked during the renewal: these tokens must end, too
        return False

    async def _write_again(self) -> None:
        while True:
            await self._some_held.wait()
            self._some_held = anyio.Event()
            while any(state.held is not None for state in self.states.values()):
                await anyio.sleep(self._pace.write_again_s)
                await self._write_held()

    async def _write_held(self) -> None:
        for name, state in list(self.states.items()):
            if state.held is not None and state.job is None:
                try:
                    if await self._write(name, state):
                        _log.warning("the renewed tokens of %s are now stored", name)
                except AileronError as error:
                    _log.error("the renewed tokens of %s are still in memory only: %s", name, error)
                except Exception as error:  # noqa: BLE001 - concerns one binding: the others go on. The text may hold a token
                    _log.error("the renewed tokens of %s are in memory only (%s)", name, type(error).__name__)


_ENDED: Final = frozenset({"invalid_grant", "cut_off"})
"""Error codes of a renewal that mean that the refresh token itself is invalid (RFC 6749, section 5.2). Other failures
may be fixed without the person, so the renewal is retried; until it succeeds, the binding is marked as failed.
"""
_UNSETTLED: Final = frozenset({"unreachable", "unavailable", "bad_answer", "bad_token", "bad_token_type", "redirected"})
"""Error codes of a renewal after which it is unknown whether the provider has replaced the refresh token."""
_GONE: Final = frozenset({FailureClass.BINDING_REQUIRED, FailureClass.BINDING_FAILED})


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class _Held:
    """Renewed tokens that are in memory because they are not in the vault yet, and the stored tokens that they replace
    (`base`).
    """

    base: TokenSet
    tokens: TokenSet
    grant: OAuthGrant


class _State(Series):
    """The state of one binding's renewals, in memory. Times are as in `anyio.current_time()`."""

    def __init__(self, obtained_ms: int) -> None:
        super().__init__()
        self.obtained_ms: Final = obtained_ms
        self.held: _Held | None = None
        self.uses_held = False
        """True if the renewed tokens in memory are used in place of the stored ones: not while the first attempt to
        write them runs, but after that attempt has failed.
        """
        self.writing: Final = anyio.Lock()
        self.renewed_at: float | None = None
        self.settled_ms: int | None = None
        """Time of a renewal request that the provider certainly did not execute, as recorded in the vault, in
        milliseconds since the epoch.
        """


def _sent_to(host: HostPort, tokens: TokenSet) -> tuple[Secret, ...]:
    try:
        is_provider = endpoint_url(tokens.client.token_url).destination == host
    except ProviderError:  # the address was valid when the tokens were issued
        is_provider = True
    return (tokens.access, tokens.refresh) if is_provider and tokens.refresh is not None else (tokens.access,)


def _again(name: BindingName) -> str:
    return f"aileron binding reauthorize {name}"


def _provider_of(name: BindingName, tokens: TokenSet) -> str:
    try:
        return host_of(tokens.client.token_url)
    except ProviderError as error:
        problem = error
    raise not_renewed(problem, "its provider", _again(name))

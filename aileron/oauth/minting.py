"""Gets access tokens without a sign-in. A token is requested when a request needs it, again before the token expires, and once
after a 401.

Runs in the daemon, with one instance for all bindings. A token is stored in memory only, because a new token can be requested
at any time.

    1 one request for a binding at a time; later callers wait for it · 2 the request is recorded · 3 the token endpoint is asked
    4 the scrubber of responses knows the token · 5 the callers continue

Rules
- A token belongs to one secret, one client ID and one grant (`_mark`): if one of these changes, the token is no longer used.
- A token is forgotten when the vault is locked, and when its binding is changed or revoked (`forget`, `keep_only`). The token
  of a request that is then in progress is dropped.
- A request does not belong to the callers that wait for it, and has its own deadline. After a failure, no request is sent to
  the server for a while, which is longer after each further failure. A request with a new secret is sent at once.
- Step 4 comes before step 5, so that a token that was sent can be found in responses, for longer than the token is used.
- Lifetimes are counted from when the response arrived, by a clock that cannot be set and that counts suspend time.
- Nothing secret is in a message, a log line or a cause.

Source: RFC 6749 section 4.4, RFC 7523, RFC 8693; docs/reference/sign-in.md. Not here: the contents of requests
(token_request.py), tokens of a sign-in (renew.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.model.clock import since_boot
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.fixes import fix_for
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.oauth.answers import Minted, minted
from aileron.oauth.endpoint import Endpoints, host_of
from aileron.oauth.jobs import JobJournal, Jobs, JobTiming, Series, make_room
from aileron.oauth.problems import MINTING, ProviderError, not_minted
from aileron.oauth.token_request import ClientCredential, TokenRequest, token_request

__all__ = ["UNSAID_S", "USED_S", "Minting", "check_usable"]

UNSAID_S: Final = 600.0
"""Lifetime in seconds that is assumed for a token without a stated lifetime. Servers issue tokens for five minutes to
an hour, and another request for a token costs little.
"""
USED_S: Final = 12 * 3600.0
"""Longest time in seconds that a token is used, whatever its lifetime: half a day. The scrubber knows a token for a day."""
_ROOM_S: Final = 60.0
"""Seconds before a token expires at which it is replaced: as long as a slow request takes."""
_ROOM_SHARE: Final = 4
"""Divisor of a token's lifetime: the token is replaced in the last quarter of its lifetime at the earliest."""
_AROUND_S: Final = 30.0  # for the record, the key and the scrubber; the ledger has 10 s for a row
_CLOCK_OFF_S: Final = 60.0
"""Minimum difference in seconds between the server's clock and this machine's at which the clock is reported as the
cause of a refusal. A smaller difference is no reason to refuse an assertion that is valid for five minutes.
"""
_FOR_THE_CLOCK: Final = frozenset({"invalid_client", "invalid_grant", "invalid_request", "unknown_error"})
"""Error codes with which servers refuse an assertion that is not valid yet or no longer valid. A wrong clock can be the
cause.
"""
_KEY: Final = os.urandom(32)


class Minting:
    """The access tokens of all bindings that get tokens without a sign-in. `serve` runs for as long as the daemon runs.

    All methods except `forget`, `keep_only` and `tokens` must be called in the daemon's event loop.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        journal: JobJournal,
        remember: Callable[[BindingName, Secret], None],
        clock: Callable[[], float] = time.time,
        *,
        elapsed: Callable[[], float] = since_boot,
        pace: JobTiming | None = None,
    ) -> None:
        """Create the object, which has no tokens at first.

        `remember` tells the scrubber to search for a token in responses for a day. It can raise AileronError; the token is
        then not used. `clock` returns seconds since the epoch, for assertions; `elapsed` returns seconds since an arbitrary
        moment, for the age of tokens.
        """
        self._endpoints: Final = endpoints
        self._journal: Final = journal
        self._remember: Final = remember
        self._clock: Final = clock
        self._elapsed: Final = elapsed
        self._pace: Final = pace or JobTiming()
        self._jobs: Final = Jobs(journal, self._pace, does="getting a token for", around_s=_AROUND_S)
        self._states: dict[BindingName, _State] = {}

    async def serve(self) -> None:
        """Run the requests for tokens that other methods begin. Returns only when cancelled, and only after the
        requests in progress have ended.
        """
        async with self._jobs.served():
            await anyio.sleep_forever()

    def is_ready(self, credential: ClientCredential) -> bool:
        """Return whether there is a token for this credential that will be valid for a while."""
        state = self._maybe_state(credential)
        current = None if state is None else state.current
        return current is not None and (not current.is_due or current.age_s < self._pace.least_s)

    async def ready(self, credential: ClientCredential, deadline: float) -> None:
        """Wait until there is a valid token for this credential, which is requested if necessary. `deadline` is in the
        time of `anyio.current_time()`.

        Raises AileronError: binding_failed if the server refuses the request, or the stored secret cannot be used;
        network_error if the server cannot be asked now; or an error from the journal.
        """
        if self.is_ready(credential):
            return
        state = self._state(credential)
        current = state.current
        until = deadline if current is None or current.has_ended else anyio.current_time() + self._pace.patience_s
        problem = await self._minted(credential, state, min(deadline, until))
        if problem is not None and (state.current is None or state.current.has_ended):
            raise AileronError.of(problem)

    async def renew(self, credential: ClientCredential, refused: Secret, deadline: float) -> bool:
        """Replace the token `refused`, which a service refused with 401. Return whether there is another token now.

        False means that the token was issued a moment ago, so the refusal has another cause. Raises AileronError as for
        `ready`.
        """
        state = self._state(credential)
        if state.current is None or state.current.token == refused:
            if state.job is None and state.current is not None and state.current.age_s < self._pace.fresh_s:
                return False
            problem = await self._minted(credential, state, deadline)
            if problem is not None:
                raise AileronError.of(problem)
        return state.current is not None and state.current.token != refused

    def token(self, credential: ClientCredential) -> Secret:
        """Return the token to send for this credential. Must be called after `ready`. Raises
        AileronError(network_error) if the token has been forgotten in the meantime.
        """
        state = self._maybe_state(credential)
        if state is None or state.current is None:
            raise AileronError(
                FailureClass.NETWORK_ERROR,
                f"the access token of {credential.name} was forgotten meanwhile: the vault was locked or the binding changed; "
                "try again",
                boundary=Boundary.EXTERNAL,
                retriable=True,
            )
        return state.current.token

    def tokens(self) -> tuple[tuple[BindingName, Secret], ...]:
        """Return the access tokens in use, each with the name of its binding."""
        found = ((name, state.current) for name, state in list(self._states.items()))
        return tuple((name, current.token) for name, current in found if current is not None)

    def forget(self) -> None:
        """Forget all tokens. Quick, and safe to call in any thread."""
        self._states = {}

    def keep_only(self, known: Callable[[BindingName], ClientCredential | None]) -> None:
        """Forget each token whose credential is not the credential that `known` returns for its binding. Can be called in any
        thread.
        """
        states = self._states
        for name, state in list(states.items()):
            credential = known(name)
            if credential is None or _mark(credential) != state.mark:
                states.pop(name, None)

    # waiting callers

    async def _minted(self, credential: ClientCredential, state: _State, deadline: float) -> Failure | None:
        """Wait for the credential's request in progress, or begin a request for a token and wait for it. Return its
        failure; None if it succeeded.
        """
        if state.job is None and (problem := state.maybe_paused()) is not None:
            return problem
        work, problem_of = functools.partial(self._mint, credential, state), functools.partial(_problem, credential)
        return await self._jobs.outcome(credential.name, state, work, problem_of, deadline)

    def _maybe_state(self, credential: ClientCredential) -> _State | None:
        state = self._states.get(credential.name)
        return state if state is not None and state.mark == _mark(credential) else None

    def _state(self, credential: ClientCredential) -> _State:
        state = self._maybe_state(credential)
        if state is None:
            make_room(self._states, lambda state: state.job is None)
            state = self._states[credential.name] = _State(_mark(credential))
        return state

    # one request

    async def _mint(self, credential: ClientCredential, state: _State) -> None:
        request = await _made(credential, self._clock())
        host = _host(credential)
        await self._journal.renewing(credential.name, host)
        try:
            found = await self._asked(credential, request, host)
        except ProviderError as error:
            problem = error
        else:
            self._keep(credential, state, found)
            await self._jobs.noted(credential.name, self._journal.renewed(credential.name))
            return
        failed = not_minted(problem, host, *_cures(credential))
        raise await self._jobs.refused(credential.name, state, failed, problem.code)

    async def _asked(self, credential: ClientCredential, request: TokenRequest, host: str) -> Minted:
        deadline = anyio.current_time() + self._pace.exchange_s
        try:
            answer = await self._endpoints.mint(credential.grant.token_url, request, deadline)
            return minted(answer, credential.grant, host)
        except ProviderError as error:
            problem = _with_clock(error, credential, host, self._clock())
        raise problem

    def _keep(self, credential: ClientCredential, state: _State, found: Minted) -> None:
        state.went_well()
        if self._states.get(credential.name) is state:  # otherwise the state was forgotten meanwhile, and is not used
            self._remember(credential.name, found.token)
            state.current = _Current(found, self._elapsed)


def check_usable(credential: ClientCredential, now: float) -> None:
    """Check that a token can be requested with this credential, as far as that is known without a request. Raises
    AileronError(binding_failed) if the credential cannot be used.
    """
    try:
        token_request(credential, now)
    except ValueError as error:
        problem = str(error)
    else:
        return
    raise _unusable(credential, problem)


class _Current:
    """The access token that a binding currently uses, with its age and lifetime."""

    def __init__(self, found: Minted, elapsed: Callable[[], float]) -> None:
        self.token: Final = found.token
        self._elapsed: Final = elapsed
        self._at: Final = elapsed()
        self._life_s: Final = min(USED_S, UNSAID_S if found.lifetime_s is None else found.lifetime_s)

    @property
    def age_s(self) -> float:
        """Seconds since the token was issued."""
        return self._elapsed() - self._at

    @property
    def is_due(self) -> bool:
        """True if the token should be replaced now."""
        return self.age_s >= self._life_s - min(_ROOM_S, self._life_s / _ROOM_SHARE)

    @property
    def has_ended(self) -> bool:
        """True if the token has expired."""
        return self.age_s >= self._life_s


class _State(Series):
    """The state of one binding in memory: its current token, and its requests for tokens."""

    def __init__(self, mark: bytes) -> None:
        super().__init__()
        self.mark: Final = mark
        self.current: _Current | None = None


def _mark(credential: ClientCredential) -> bytes:
    """Return a keyed hash that identifies a credential and reveals nothing about it."""
    said = hashlib.blake2b(key=_KEY, digest_size=32)
    for part in (
        msgspec.json.encode(credential.grant),
        msgspec.json.encode(credential.client_id),
        credential.secret.reveal(),
    ):
        said.update(len(part).to_bytes(8, "big") + part)
    return said.digest()


async def _made(credential: ClientCredential, now: float) -> TokenRequest:
    try:
        return await anyio.to_thread.run_sync(token_request, credential, now)
    except ValueError as error:
        problem = str(error)
    raise _unusable(credential, problem)


def _with_clock(error: ProviderError, credential: ClientCredential, host: str, now: float) -> ProviderError:
    """Return the error of a token request, or an error about the clock if a wrong clock is the likely cause of a
    refused assertion.
    """
    if not credential.grant.has_assertion or error.server_time is None or error.code not in _FOR_THE_CLOCK:
        return error
    ahead_s = now - error.server_time
    if abs(ahead_s) < _CLOCK_OFF_S:
        return error
    way = "ahead of" if ahead_s > 0 else "behind"
    sentence = f"{MINTING['clock_off'].what.format(host=host)} ({round(abs(ahead_s) / 60)} min {way} the server's)"
    return ProviderError("clock_off", sentence, retriable=False)


def _problem(credential: ClientCredential, code: str) -> Failure:
    problem, host = MINTING[code], _shown_host(credential)
    error = ProviderError(code, problem.what.format(host=host), retriable=problem.retriable)
    return not_minted(error, host, *_cures(credential)).failure


def _unusable(credential: ClientCredential, problem: str) -> AileronError:
    message = f"secret {credential.stored.name!r} {problem}; {fix_for(credential.name, credential.stored)}"
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)


def _cures(credential: ClientCredential) -> tuple[str, str]:
    """Return the two fixes for a refused credential: the command that creates its binding anew, and the instruction for
    replacing its secret.
    """
    return f"aileron binding rebind {credential.name}", fix_for(credential.name, credential.stored)


def _host(credential: ClientCredential) -> str:
    try:
        return host_of(credential.grant.token_url)
    except ProviderError as error:
        problem = error
    raise not_minted(problem, "its server", *_cures(credential))


def _shown_host(credential: ClientCredential) -> str:
    try:
        return host_of(credential.grant.token_url)
    except ProviderError:
        return "its server"

"""Sign-ins in progress: a person lets a connector's publisher use their account, and the tokens go into the vault.

Runs in the daemon, behind the operator's socket. The caller gets the address to visit (a page, or a code for a page), may wait
for the end, and never sees a token. With an approver, the provider's tokens are stored only in memory until the person has
approved the binding.

Rules
- A binding name has at most one sign-in at a time; at most MAX_OPEN sign-ins are open. A sign-in ends by itself
  (oauth/signin.py says when).
- A sign-in is recorded before the provider is asked, and its end afterwards.
- The address to visit is returned once, to the caller that begins the sign-in, because anybody else who knew the address could
  sign in with another account instead.
- The reach of the binding is read when the sign-in begins, so that later installations do not change what the person was shown.

Source: docs/reference/sign-in.md, docs/reference/http-api.md. Not here: the protocol (oauth/), bindings (credentials.py).
"""

from __future__ import annotations

import functools
import logging
import secrets as random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from msgspec import UNSET

from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import BindingEntry, SignInState
from aileron.api.failures import ErrorBody
from aileron.api.fetches import Installed
from aileron.audit import events
from aileron.audit.moves import new_id
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.binding_consent import BindingHandler
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import binding_consent
from aileron.daemon.secrets.credentials import Credentials, parsed
from aileron.model.credential import Flow, Reach
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest, OAuth2Provider
from aileron.model.names import BindingName, Fqn
from aileron.model.timestamp import utc
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.signin import GrantedTokens, Invitation, SignIn
from aileron.vault.bindings import Binding

__all__ = ["MAX_OPEN", "Flow", "SignIns"]

Keep = Callable[[GrantedTokens], Awaitable["Installed | ConsentAnswer"]]
"""Function that keeps the tokens of a sign-in together with what they are for, or asks a person first."""

MAX_OPEN: Final = 8
"""Maximum number of open sign-ins: a person does one at a time, and each has its own port."""
_KEPT: Final = 32
"""Maximum number of ended sign-ins, the newest ones, whose state is still reported: a client asks within seconds."""
_MAX_SECRET_NAME: Final = 55
"""Maximum number of characters of a generated secret name for tokens, before a suffix of up to nine characters; the
vault accepts 64.
"""
_INVITED_S: Final = 30.0
"""Seconds to wait for the address that the person must visit. It takes one request to the provider for a sign-in with a device
code, none for one in a browser, and one more if a client must be registered.
"""
_log = logging.getLogger(__name__)


class _One:
    """A sign-in and its state."""

    def __init__(
        self,
        sign_in_id: str,
        connector: str,
        name: BindingName,
        flow: Flow,
        reach: Reach,
        *,
        replaces: bool,
        username: str | None,
        again: str | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.id: Final = sign_in_id
        self.connector: Final = connector
        self.name: Final = name
        self.flow: Final = flow
        self.reach: Final = reach
        self.replaces: Final = replaces
        self.username: Final = username
        setup = f"aileron binding setup {connector} --name {name}"
        self.again: Final = again or (f"aileron binding reauthorize {name}" if replaces else setup)
        """Command that begins another sign-in for the same purpose."""
        self.keep: Final = keep
        """Function that keeps the tokens; None if they are bound to an installed connector."""
        self.scope: Final = anyio.CancelScope()
        self.invited: Final = anyio.Event()
        self.over: Final = anyio.Event()
        self.status: Literal["waiting", "done", "failed", "cancelled"] = "waiting"
        self.invitation: Invitation | None = None
        self.result: BindingEntry | Installed | ConsentAnswer | None = None
        self.error: AileronError | None = None

    def told(self) -> SignInState:
        """Return the sign-in's state in the form that the routes return."""
        return SignInState(
            id=self.id,
            status=self.status,
            connector=self.connector,
            name=str(self.name),
            flow=self.flow,
            error=UNSET if self.error is None else ErrorBody.of(self.error.failure, None),
            result=UNSET if self.result is None else self.result,
        )

    def invited_to(self, invitation: Invitation) -> SignInState:
        """Return the state with the address that the person must visit. This state is returned only once."""
        return msgspec.structs.replace(
            self.told(),
            authorize_url=invitation.authorize_url or UNSET,
            user_code=invitation.user_code or UNSET,
            verification_uri=invitation.verification_uri or UNSET,
            verification_uri_complete=invitation.verification_uri_complete or UNSET,
            expires_at=utc(invitation.expires_at),
        )


class SignIns:
    """Service for sign-ins. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        endpoints: Endpoints,
        *,
        credentials: Credentials,
        consents: ConsentService,
        approved: BindingHandler,
        held: HeldValues,
        is_signed: Callable[[], bool],
    ) -> None:
        self._base = base
        self._endpoints = endpoints
        self._credentials = credentials
        self._consents = consents
        self._approved = approved
        self._held = held
        self._is_signed = is_signed
        self._tasks: anyio.abc.TaskGroup | None = None
        self._known: dict[str, _One] = {}
        """Sign-ins by id, the oldest first."""

    async def serve(self) -> None:
        """Keep open the task group in which `begin` starts sign-ins. Runs until cancelled, which also cancels every
        sign-in.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await anyio.sleep_forever()

    async def begin(
        self, connector: str, name: str, flow: Flow, *, replace: bool, username: str | None = None
    ) -> SignInState:
        """Begin a sign-in. Return its id and the address that the person must visit. Set `replace` for a name that is already
        bound. `username` is the user name to log in with, unless the provider names the account.

        Raises AileronError: vault_locked; not_found; invalid_request for a name that is invalid, already bound or not for a
        sign-in; bad_input for a user name that the sign-in does not use; busy; binding_failed if the sign-in cannot
        begin at the provider; network_error if the provider names no address in time.
        """
        fqn, binding_name = parsed(Fqn.parse, connector), parsed(BindingName.parse, name)
        self._base.vault.check_unlocked()
        async with self._base.changing:  # no installation while the store is read
            reach, manifest = await anyio.to_thread.run_sync(
                lambda: self._credentials.reach_for(str(fqn), binding_name)
            )
        provider = _provider_of(manifest, binding_name)
        self._check_free(binding_name, str(fqn), replace=replace)
        self._check_room(binding_name)
        username = self._username(binding_name, reach, username)
        sign_in_id = new_id("sgn", time.time_ns() // 1000)
        attempt = _One(sign_in_id, str(fqn), binding_name, flow, reach, replaces=replace, username=username)
        return await self._begun(attempt, provider)

    async def begin_with(
        self, manifest: ConnectorManifest, name: BindingName, flow: Flow, *, again: str, keep: Keep
    ) -> SignInState:
        """Begin a sign-in for a connector that is not installed yet; `keep` is given the tokens. `again` is the command that
        begins another one. Raises AileronError as `begin` does.
        """
        self._base.vault.check_unlocked()
        provider, connector = _provider_of(manifest, name), str(manifest.name)
        self._check_free(name, connector, replace=False)
        self._check_room(name)
        sign_in_id = new_id("sgn", time.time_ns() // 1000)
        reach = Reach.of(manifest)
        attempt = _One(sign_in_id, connector, name, flow, reach, replaces=False, username=None, again=again, keep=keep)
        return await self._begun(attempt, provider)

    async def _begun(self, attempt: _One, provider: OAuth2Provider) -> SignInState:
        """Start a sign-in, and return its id and the address that the person must visit."""
        self._remember(attempt)
        assert self._tasks is not None  # served before any route is
        self._tasks.start_soon(self._carry_on, attempt, provider)
        with anyio.move_on_after(_INVITED_S):
            await attempt.invited.wait()
        if attempt.error is not None:
            raise attempt.error
        if attempt.invitation is None:  # cancelled meanwhile, or too slow for the person who waits
            attempt.scope.cancel()
            message = (
                f"{urlsplit(provider.token_url).netloc} did not say in {_INVITED_S:g} s where to sign in: try again"
            )
            raise AileronError(FailureClass.NETWORK_ERROR, message, boundary=Boundary.EXTERNAL, retriable=True)
        return attempt.invited_to(attempt.invitation)

    async def show(self, sign_in: str, wait_s: float = 0.0) -> SignInState:
        """Wait at most `wait_s` seconds for the end of a sign-in, and return its state. Raises AileronError (not_found)."""
        attempt = self._one(sign_in)
        with anyio.move_on_after(wait_s):
            await attempt.over.wait()
        return attempt.told()

    async def cancel(self, sign_in: str) -> SignInState:
        """Cancel a sign-in. A sign-in that has already ended stays unchanged. Raises AileronError (not_found)."""
        attempt = self._one(sign_in)
        attempt.scope.cancel()
        with anyio.move_on_after(_INVITED_S):
            await attempt.over.wait()
        return attempt.told()

    async def _carry_on(self, attempt: _One, provider: OAuth2Provider) -> None:
        """Run a sign-in, from the request for the address that the person must visit to the stored binding. However it
        ends, record the end and set the final status.
        """
        granted: GrantedTokens | None = None
        try:
            with attempt.scope:
                await self._base.audit.note(_started(attempt, provider))
                async with SignIn(provider, self._endpoints, flow=attempt.flow, again=attempt.again) as sign_in:
                    attempt.invitation = sign_in.invitation
                    attempt.invited.set()
                    granted = await sign_in.finished()
                    with anyio.CancelScope(shield=True):  # the tokens are there: it is too late to cancel
                        keep = attempt.keep or functools.partial(self._keep, attempt)
                        attempt.result = await keep(granted)
                        attempt.status = "done"
        except AileronError as error:
            attempt.status, attempt.error = "failed", error
        except Exception:  # noqa: BLE001 - the end of a task: nothing foreign leaves
            _log.exception("a sign-in failed unexpectedly")
            attempt.status, attempt.error = (
                "failed",
                AileronError(FailureClass.INTERNAL_ERROR, "see `aileron daemon logs`"),
            )
        finally:
            await self._end(attempt, granted)

    async def _end(self, attempt: _One, granted: GrantedTokens | None) -> None:
        if attempt.status == "waiting":
            attempt.status = "cancelled"
        try:
            with anyio.CancelScope(shield=True):
                await self._base.audit.note(_ended(attempt, granted))
        except AileronError as error:  # a full disk, say: the waiting client is told the result all the same
            _log.error("the end of %s is not on record: %s", attempt.id, error)
        attempt.invited.set()
        attempt.over.set()

    async def _keep(self, attempt: _One, granted: GrantedTokens) -> BindingEntry | ConsentAnswer:
        """Bind the tokens that the provider granted. If a person must approve the binding first, hold the tokens in memory
        and ask.
        """
        async with self._base.changing:
            # Check again: the person was at the provider for minutes.
            self._check_free(attempt.name, attempt.connector, replace=attempt.replaces)
            before = self._base.vault.binding(attempt.name)
            binding = Binding(
                name=attempt.name,
                connector=attempt.connector,
                kind=attempt.name.kind,
                username=attempt.username,
                secret=self._secret_for(attempt.name, before),
                created_at=time.time(),
                reach=attempt.reach,
                grant=granted.grant,
            )
            if attempt.reach.logins and not binding.login_name:
                message = f"the provider did not say whose account it is, which the login needs: {attempt.again} --username USER"
                raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
            tokens, replaces = granted.tokens.sealed(), before is not None
            if not self._is_signed():
                return await self._approved.put(binding, replace=replaces, tokens=tokens)
            commitment = self._held.hold(tokens, granted.grant)
            subject = binding_consent(binding, attempt.reach, replaces=replaces, commitment=commitment)
            return await self._consents.ask(subject)

    def _username(self, name: BindingName, reach: Reach, username: str | None) -> str | None:
        """Return the user name to log in with: `username`, or else the user name of the earlier binding. Called before the
        provider is asked.
        """
        if reach.logins:
            before = self._base.vault.binding(name)
            return username if username is not None or before is None else before.username
        if username is not None:
            raise AileronError(
                FailureClass.BAD_INPUT,
                f"a user name is only for a sign-in that logs in, and {name} does not; leave it out",
                boundary=Boundary.USER,
            )
        return None

    def _check_free(self, name: BindingName, connector: str, *, replace: bool) -> None:
        before = self._base.vault.binding(name)
        if before is not None and (not replace or before.connector != connector):
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"{name} already exists; use another IDENTITY, or `aileron binding reauthorize {name}`",
                boundary=Boundary.USER,
            )
        if before is None and replace:
            raise AileronError(
                FailureClass.NOT_FOUND,
                f"no binding {name}; see `aileron binding list`",
                boundary=Boundary.USER,
            )

    def _check_room(self, name: BindingName) -> None:
        waiting = [attempt for attempt in self._known.values() if not attempt.over.is_set()]
        if any(attempt.name == name for attempt in waiting):
            message = f"a sign-in for {name} is already in progress: end it first, or wait until it has finished"
            raise AileronError(FailureClass.BUSY, message, retriable=True)
        if len(waiting) >= MAX_OPEN:
            raise AileronError(FailureClass.BUSY, f"{MAX_OPEN} sign-ins are already in progress", retriable=True)

    def _remember(self, attempt: _One) -> None:
        self._known[attempt.id] = attempt
        for old in [known for known in self._known.values() if known.over.is_set()][:-_KEPT]:
            del self._known[old.id]

    def _one(self, sign_in: str) -> _One:
        attempt = self._known.get(sign_in)
        if attempt is None:
            message = f"no sign-in {sign_in[:80]!r} is known; begin one with `aileron binding setup`"
            raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)
        return attempt

    def secret_for(self, name: BindingName) -> str:
        """Return an unused name for the secret with the tokens of a new binding."""
        return self._secret_for(name, None)

    def _secret_for(self, name: BindingName, before: Binding | None) -> str:
        """Return the secret name under which the tokens are stored: the current name if the binding is a sign-in and no other
        binding uses this secret, otherwise an unused name.
        """
        known = self._base.vault.bindings()
        if (
            before is not None
            and before.grant is not None
            and sum(binding.secret == before.secret for binding in known) == 1
        ):
            return before.secret
        taken = {info.name for info in self._base.vault.secrets()}
        base = f"{name.service}-{name.identity}"[:_MAX_SECRET_NAME]
        return base if base not in taken else f"{base}-{random.token_hex(4)}"


def _provider_of(manifest: ConnectorManifest, name: BindingName) -> OAuth2Provider:
    if manifest.oauth2 is not None:
        return manifest.oauth2
    raise AileronError(
        FailureClass.INVALID_REQUEST,
        f"{name} is not a sign-in: aileron binding setup {manifest.name} --name {name} --secret NAME",
        boundary=Boundary.USER,
    )


def _started(attempt: _One, provider: OAuth2Provider) -> events.SignInStarted:
    host = urlsplit(provider.authorize_url).netloc
    return events.SignInStarted(
        sign_in=attempt.id, connector=attempt.connector, binding=str(attempt.name), flow=attempt.flow, host=host
    )


def _ended(attempt: _One, granted: GrantedTokens | None) -> events.SignInEnded:
    return events.SignInEnded(
        sign_in=attempt.id,
        binding=str(attempt.name),
        status=attempt.status,
        account=None if granted is None else granted.grant.account,
        scopes=[] if granted is None else list(granted.grant.scopes),
        failure_class=None if attempt.error is None else attempt.error.failure.failure_class,
    )

"""Lets a person sign in at a provider: in a browser on this machine, or with a code that they type into a browser elsewhere.

Runs in the daemon. The person proves who they are to the provider, on its page. The provider returns a code, which only the
holder of the PKCE verifier can exchange for tokens. The tokens are returned to the caller and not stored here.

    1 check the manifest · 2 listen (browser) · 3 register a client, if the manifest has none · 4 ask for a code (device)
    5 invite the person · 6 wait, at most 10 minutes · 7 turn the code into tokens · 8 check what was granted · 9 show the result

Rules
- A sign-in is used only once and ends within SIGN_IN_S, with success or failure. Leaving its `async with` block ends the
  sign-in and closes the port.
- Every error is listed in problems.py, and contains the command that begins a new sign-in. No error has a cause, because HTTP
  libraries quote the bad bytes.

>>> async with SignIn(provider, endpoints, flow="browser", again="aileron binding setup X") as sign_in:  # doctest: +SKIP
...     print(sign_in.invitation.authorize_url)
...     granted = await sign_in.finished()

Source: RFC 6749 section 4.1, RFC 7636, RFC 8252, RFC 8628; docs/reference/sign-in.md. Not here: storing tokens (the caller),
renewing them (renew.py).
"""

from __future__ import annotations

import time
import types
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Self, TypeVar

import anyio
import msgspec

from aileron.model.credential import Client, Flow
from aileron.model.manifest import OAuth2Provider
from aileron.model.secret import Secret
from aileron.model.visible import visible
from aileron.oauth.answers import DeviceCode, Expected, GrantedTokens, granted, read_device_code
from aileron.oauth.callback import Callback
from aileron.oauth.endpoint import EXCHANGE_S, Endpoints, host_of
from aileron.oauth.problems import ProviderError, not_signed_in, said
from aileron.oauth.redirect import AuthorizationResponse, Awaited
from aileron.oauth.registration import read_registration, registration_request
from aileron.oauth.request import AuthorizationRequest, authorization_request, check_provider, redirect_uri_at

__all__ = ["SIGN_IN_S", "GrantedTokens", "Invitation", "SignIn"]

SIGN_IN_S: Final = 600.0
"""Longest time of a sign-in in seconds, in which the person can find a password and a telephone. A sign-in that takes longer
was abandoned, and occupies a port.
"""
_SLOW_DOWN_S: Final = 5.0  # RFC 8628, section 3.5
_MAX_WAIT_S: Final = 120.0  # between two polls for a code: the person has typed it and waits
_MAX_SHOWN: Final = 200  # characters of an invalid address
_T = TypeVar("_T")


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """The invitation to sign in: an address for a browser on this machine, or a code for a page in any browser."""

    flow: Flow
    expires_at: float
    """Time at which the sign-in ends, in seconds since the epoch."""
    authorize_url: str | None = None
    user_code: str | None = None
    verification_uri: str | None = None
    verification_uri_complete: str | None = None


class SignIn:
    """A person's sign-in at a provider. Entering its block begins the sign-in and sets `invitation`; inside the block, `finished`
    must be called exactly once.
    """

    def __init__(
        self,
        provider: OAuth2Provider,
        endpoints: Endpoints,
        *,
        flow: Flow,
        again: str = "aileron binding setup",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Create the sign-in, without contacting the provider yet.

        `again` is the command that begins a new sign-in, for error messages. `clock` returns seconds since the epoch; `sleep`
        waits between polls.
        """
        self._provider: Final = provider
        self._endpoints: Final = endpoints
        self._kind: Final = flow
        self._again: Final = again
        self._clock: Final = clock
        self._sleep: Final = sleep
        self._flow: _Browser | _Device | None = None
        self._invitation: Invitation | None = None
        self._is_finished = False
        self._deadline = 0.0

    @property
    def invitation(self) -> Invitation:
        """The page on which the person signs in, and the time at which the sign-in ends."""
        assert self._invitation is not None, "sign-in already running"
        return self._invitation

    async def __aenter__(self) -> Self:
        """Begin the sign-in: listen for the provider's answer, or request a code for another device. Raises
        AileronError(binding_failed) if the sign-in cannot begin.
        """
        assert self._flow is None, "a sign-in is used once"
        self._deadline = anyio.current_time() + SIGN_IN_S
        self._invitation = await self._translated(
            self._begin_browser if self._kind == "browser" else self._begin_device
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if isinstance(self._flow, _Browser):
            self._flow.callback.close()

    async def finished(self) -> GrantedTokens:
        """Wait for the person, then return the tokens that the provider issued. Raises AileronError(binding_failed) if the
        sign-in fails.
        """
        flow = self._flow
        assert flow is not None, "in the block"
        assert not self._is_finished, "once"
        self._is_finished = True
        if isinstance(flow, _Browser):
            return await self._translated(lambda: self._finish_browser(flow))
        return await self._translated(lambda: self._finish_device(flow))

    async def _translated(self, step: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await step()
        except ProviderError as error:
            problem = error
        raise not_signed_in(problem, self._host(), self._again)

    # in a browser here

    async def _begin_browser(self) -> Invitation:
        self._check()
        callback = Callback.opened()
        try:  # registered now: no other program can open the port of the client's redirect address
            client = await self._client(redirect_uri_at(callback.port))
            asked = authorization_request(self._provider, client.client_id, callback.port)
        except BaseException:  # also when cancelled: no other code closes the port
            callback.close()
            raise
        self._flow = _Browser(callback, asked, client)
        left_s = self._deadline - anyio.current_time()  # a registration has taken some of it
        return Invitation(flow="browser", authorize_url=asked.url, expires_at=self._clock() + left_s)

    async def _finish_browser(self, flow: _Browser) -> GrantedTokens:
        awaited = Awaited(
            port=flow.callback.port,
            state=flow.asked.state,
            authorize_url=self._provider.authorize_url,
            issuer=self._provider.issuer,
            issuer_in_answer=self._provider.issuer_in_answer,
            host=host_of(self._provider.authorize_url),
        )
        outcome: GrantedTokens | ProviderError = _timed_out(awaited.host)
        async with flow.callback.answering(awaited):
            answered = None
            with anyio.CancelScope(deadline=self._deadline):
                answered = await flow.callback.wait_answered()
            if answered is not None:
                outcome = await self._outcome(flow, answered, awaited.host)
                await flow.callback.tell(is_signed_in=isinstance(outcome, GrantedTokens))
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    async def _outcome(
        self, flow: _Browser, answered: AuthorizationResponse, host: str
    ) -> GrantedTokens | ProviderError:
        """Exchange the authorization code in the provider's answer for tokens. Return the tokens, or the error as a
        value: an exception that leaves a task group would be wrapped in an exception group.
        """
        if answered.code is None:
            return answered.problem or said("bad_answer", host)
        form = {
            "grant_type": "authorization_code",
            "code": answered.code.reveal().decode("ascii"),
            "redirect_uri": flow.asked.redirect_uri,
            "code_verifier": flow.asked.verifier.reveal().decode("ascii"),
        }
        try:
            return await self._granted(form, flow.client, flow.asked.nonce)
        except ProviderError as error:
            return error

    # with a code typed in elsewhere

    async def _begin_device(self) -> Invitation:
        url = self._provider.device_authorization_url
        if url is None:
            check_provider(self._provider)
            raise said("no_device_flow", self._host())
        self._check()
        client = await self._client(None)
        form = {"scope": " ".join(self._provider.scopes)} if self._provider.scopes else {}
        form |= client.resource_parameter
        answer = await self._endpoints.post(url, form, client, anyio.current_time() + EXCHANGE_S)
        code = read_device_code(answer, host_of(url))
        self._deadline = anyio.current_time() + min(SIGN_IN_S, code.expires_in_s)
        self._flow = _Device(code, client)
        return Invitation(
            flow="device",
            user_code=code.user_code,
            verification_uri=code.verification_uri,
            verification_uri_complete=code.verification_uri_complete,
            expires_at=self._clock() + min(SIGN_IN_S, code.expires_in_s),
        )

    async def _finish_device(self, flow: _Device) -> GrantedTokens:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": flow.code.device_code.reveal().decode("ascii"),
        }
        interval_s = flow.code.interval_s
        while True:
            with anyio.CancelScope(deadline=self._deadline) as waiting:
                await self._sleep(interval_s)
            if waiting.cancelled_caught or anyio.current_time() >= self._deadline:
                raise _timed_out(self._host())
            try:
                return await self._granted(form, flow.client, None)
            except ProviderError as error:
                if error.code != "authorization_pending" and not error.retriable:
                    raise
                code = error.code
            if code == "slow_down":
                interval_s += _SLOW_DOWN_S
            elif code != "authorization_pending":
                interval_s *= 2  # RFC 8628, section 3.5: the provider is overloaded
            interval_s = min(interval_s, _MAX_WAIT_S)

    # both

    def _check(self) -> None:
        """Check that requests to this provider are possible and that egress allows them, before anything is opened or sent."""
        check_provider(self._provider)
        self._endpoints.check_allowed(self._provider.token_url)
        if self._provider.client_id is None and self._provider.registration_url is not None:
            self._endpoints.check_allowed(self._provider.registration_url)

    async def _client(self, redirect_uri: str | None) -> Client:
        """Return the client that requests the person's sign-in: the publisher's application, or a client that is
        registered now.
        """
        provider = self._provider
        if provider.client_id is not None:
            return Client(
                client_id=provider.client_id,
                client_secret=provider.client_secret,
                token_url=provider.token_url,
                revocation_url=provider.revocation_url,
                resource=provider.resource,
            )
        url = provider.registration_url
        assert url is not None, "the parser lets no manifest through without either"
        document = registration_request(provider, redirect_uri)
        answer = await self._endpoints.register(url, document, anyio.current_time() + EXCHANGE_S)
        return read_registration(answer, provider, redirect_uri, host_of(url), self._clock())

    async def _granted(self, form: dict[str, str], client: Client, nonce: Secret | None) -> GrantedTokens:
        whole = {**form, **client.resource_parameter}
        deadline = anyio.current_time() + EXCHANGE_S
        answer = await self._endpoints.post(self._provider.token_url, whole, client, deadline)
        expected = Expected(
            host=host_of(self._provider.token_url),
            client=client,
            scopes=self._provider.scopes,
            authorize_url=self._provider.authorize_url,
            issuer=self._provider.issuer,
            nonce=nonce,
        )
        return granted(answer, expected, self._clock())

    def _host(self) -> str:
        """Return the provider's host for the details of an error. If the provider's address in the manifest is invalid,
        return that address.
        """
        try:
            return host_of(self._provider.token_url)
        except ProviderError:
            return visible(self._provider.token_url[:_MAX_SHOWN])


class _Browser(NamedTuple):
    """The state of a sign-in in a browser on this machine, while the listener for the provider's answer is open."""

    callback: Callback
    asked: AuthorizationRequest
    client: Client


class _Device(NamedTuple):
    """The state of a sign-in with a code for another device, after the provider issued the code."""

    code: DeviceCode
    client: Client


def _timed_out(host: str) -> ProviderError:
    return said("timed_out", host)

"""The steps that a request and a WebSocket's handshake share: both are HTTP, with a credential and a response to scrub.

Runs in the daemon. engine.py and websocket.py call the steps in an order of their own; no step depends on that order.

Source: docs/reference/egress.md. Not here: the order (engine.py, websocket.py), the steps that streams of bytes share
as well (steps.py).
"""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import anyio
import httpcore2

from aileron.egress.client_certificate import certificate_refused, context_with
from aileron.egress.failures import ConnectionProblem, Phase, denied, destination_text, unreachable
from aileron.egress.inject import Lender
from aileron.egress.journal import Journal, RequestDenial
from aileron.egress.lookup import Resolver
from aileron.egress.meter import Meter
from aileron.egress.outgoing import Outgoing
from aileron.egress.pool import Connection
from aileron.egress.refusal import RefusedError
from aileron.egress.response import Body
from aileron.egress.rules import AllowedRequest
from aileron.egress.scrub import Needles
from aileron.egress.steps import Passage, check_reachable, enter, fit_for_use, look_up, within
from aileron.model.failure import AileronError, FailureClass
from aileron.model.fixes import Stored
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse, Grant
from aileron.model.secret import Secret

__all__ = ["HEAD_BYTES", "Asked", "HttpPassage", "Ways"]

HEAD_BYTES: Final = 256 << 10  # interim responses and the head together; h11 takes at most 100 KiB of a single one
_NOTHING: Final = Needles()  # shared, because each instance compiles patterns

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Asked(Protocol):
    """Interface of the parts of a connector's request that a denial quotes."""

    @property
    def url(self) -> str:
        """URL of the request, as unchecked text."""
        ...

    @property
    def credential(self) -> str | None:
        """Kind of the credential as the connector named it, never a secret; None if the request names no credential."""
        ...


class Ways(Protocol):
    """The parts of the daemon's `Egress` that every request and every WebSocket handshake uses."""

    @property
    def lender(self) -> Lender:
        """Lender of credentials, that is the vault."""
        ...

    @property
    def resolve(self) -> Resolver:
        """Function that resolves host names to addresses."""
        ...

    @property
    def slots(self) -> anyio.Semaphore:
        """Semaphore that limits the requests in progress of all steps together."""
        ...

    @property
    def ca_pem(self) -> str | None:
        """The user's own certificate authorities, in PEM; None if the user has none."""
        ...

    @property
    def own_port(self) -> int | None:
        """The daemon's own port on loopback, which is never dialled."""
        ...


class HttpPassage(Passage[_T_co]):
    """Base class of an HTTP request and of a WebSocket's handshake, with its slot among the requests in progress, its
    credential, and the secrets to search its response for.
    """

    def __init__(
        self,
        ways: Ways,
        asked: Asked,
        grant: Grant,
        meter: Meter,
        journal: Journal,
        deadline: float,
        *,
        method: str,
        is_own: bool = False,
    ) -> None:
        """Take `method`, the method to record in the ledger. `is_own` is True for the supervisor's own requests, whose
        responses are not searched for secrets.
        """
        super().__init__(grant, meter, journal, deadline)
        self._ways = ways
        self._asked = asked
        self._method = method
        self._is_own = is_own
        self._place = contextlib.ExitStack()  # the slot in the limit for all steps
        self._bound = _NOTHING
        self._once = frozenset[bytes]()
        self._with_once: tuple[Needles, Needles] | None = None
        self._has_certificate = False
        self.token: Secret | None = None
        self.stored: Stored | None = None  # where the lent secret is, for the person who has to replace it
        self._connection: Connection | None = None
        self._answer: httpcore2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._body: Body | None = None

    async def renew(self, refused: Secret) -> bool:
        """Renew a token that the service refused, after the exchange has ended. Return True if a different token can
        now be lent.
        """
        use, destination = self._grant.credential, self._destination
        assert use is not None
        assert destination is not None
        lender, deadline = self._ways.lender, self._deadline
        return await fit_for_use(deadline, "exchange", destination, lambda: lender.renew(use, refused, deadline))

    async def _vet(self, admitted: AllowedRequest) -> tuple[str, ...]:
        """Resolve the host name of the request once, check every address against the rules, and return the addresses."""
        destination = admitted.url.destination
        addresses = await look_up(self._ways.resolve, destination, self._deadline)
        plain, private, own_port = admitted.plain, admitted.private, self._ways.own_port
        self._checked(
            lambda: check_reachable(
                destination, addresses, plain=plain, private=private, own_port=own_port, has_tls=self._is_own
            )
        )
        return addresses

    async def _ready(self, use: CredentialUse | None, destination: HostPort) -> None:
        """Wait until the credential for the request can be lent. Meanwhile the request gives up its slot among the
        requests in progress.
        """
        lender, deadline = self._ways.lender, self._deadline
        if lender.is_ready(use, destination):
            return
        self._place.close()
        await fit_for_use(deadline, "queue", destination, lambda: lender.ready(use, destination, deadline))
        await enter(self._place, (self._ways.slots,), destination, deadline)

    async def _context_with(self, certificate: Secret, protocols: Sequence[str] = ("h2", "http/1.1")) -> ssl.SSLContext:
        """Return the TLS settings of a connection that is made with the lent certificate."""
        use = self._grant.credential
        assert use is not None
        make = functools.partial(context_with, certificate, use, self.stored, self._ways.ca_pem, protocols)
        return await within(self._deadline, "connect", self._destination, make)

    async def _sent(
        self, connection: Connection, request: Outgoing, content: bytes | AsyncIterator[bytes] | None = None
    ) -> httpcore2.Response:
        """Send the request. Return the response once its head has arrived; its body has not been read yet."""
        origin = connection.origin
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=request.url.target),
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in request.fields],
            content=content,
        )
        return await self._reach("exchange", lambda: connection.send(sent, HEAD_BYTES))

    def _reader(self, answer: httpcore2.Response) -> Callable[[], Awaitable[bytes | None]]:
        """Return a function that returns the next piece of the response's body, or None at its end."""
        stream = answer.stream
        assert isinstance(stream, AsyncIterable)
        chunks = self._chunks = aiter(stream)
        return lambda: self._reach("exchange", lambda: anext(chunks, None))

    async def _reach(self, phase: Phase, step: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for one step that uses the network, until the deadline. The step's errors become `network_error`."""
        return await within(self._deadline, phase, self._destination, step, refused=self._certificate_refused)

    def _certificate_refused(self, error: Exception) -> AileronError | None:
        use = self._grant.credential
        return certificate_refused(use, self.stored, error) if self._has_certificate and use is not None else None

    def _needles(self) -> Needles:
        """Return the secrets that the response must be searched for, as far as they are known now."""
        if not self._is_own and self._destination is not None:
            try:
                self._bound = self._ways.lender.needles(self._destination)
            except AileronError as error:
                # The vault was locked meanwhile: nothing was lent since, and earlier secrets are still searched for.
                if error.failure.failure_class is not FailureClass.VAULT_LOCKED:
                    raise
        return self._and_once(self._meter.needles_with(self._bound))

    def _and_once(self, needles: Needles) -> Needles:
        """Return `needles` plus the values that are searched for only in this response, such as a signature. The result
        is reused until `needles` change.

        These values are searched for only in the forms that take microseconds to make (scrub.py). That suffices even for a
        WebSocket, which can stay open for long: a signature is useless without its request or handshake, however late a service
        sends it back. Making every form would take as long as making the forms of all other secrets again, and would block the
        loop meanwhile: 150 ms with 100 secrets.
        """
        if not self._once:
            return needles
        if self._with_once is None or self._with_once[0] is not needles:
            self._with_once = needles, needles.and_once(self._once)
        return self._with_once[1]

    def _is_whole_only(self) -> bool:
        """Return whether partial responses must be refused, because a part could hold part of a secret. True also if
        the secret is one that can no longer be searched for.
        """
        if self._needles():
            return True
        destination = None if self._is_own else self._destination
        return destination is not None and self._ways.lender.may_be_bound(destination)

    def _bad_answer(self, words: str) -> AileronError:
        return unreachable("exchange", self._destination, ConnectionProblem(words))

    def _denied(self, refused: RefusedError) -> AileronError:
        where = destination_text(self._asked.url, self._destination)
        self._denial = RequestDenial(self._number, self._method, where, refused.reason.value)
        return denied(refused, self._destination, self._asked.credential, self._grant)

    async def _end_answer(self) -> None:
        """Release the response, also when the caller is being cancelled. Closing does not wait for the peer."""
        with anyio.CancelScope(shield=True):
            if isinstance(self._chunks, AsyncGenerator):
                await self._chunks.aclose()
            if self._answer is not None:
                await self._answer.aclose()

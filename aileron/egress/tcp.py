"""A stream of bytes to a granted host and port, for protocols other than HTTP: mail, databases. TLS is done here.

Runs in the daemon, called by the executor for each `tcp_open` frame. It trusts neither the connector nor the service.
The checks are those of a request, in the same order and from the same modules.

    1 count · 2 admit (below) · 3 resolve and check every address · 4 record durably · 5 connect, verify TLS
    6 bytes both ways, counted · 7 close · 8 record the end

Rules
- Nothing is looked up before 2 has passed, and before 4 has returned no packet goes to the service.
- If the grant has a login for the destination, the supervisor logs in, and login.py does everything. The other rules
  are for streams without a login:
- No credential: Aileron does not understand the bytes, so it can neither add a credential nor search for one (the
  connector could ask for halves, or for another encoding). So a step that was granted a credential gets no stream at
  all, and no step gets a stream to a host and port that some secret could have been sent to. Thus a secret that a
  service stored cannot be returned through a stream. A secret can be bound at any time, so this rule is checked again
  at 5, and at 6 before each incoming piece is passed on.
- A step that only reads (a preview) gets no stream; nor does any step get a stream to a host with the provider's
  endpoints for tokens.
- Every wait ends at the deadline of the step. If 4 was reached, 8 follows, cancellation included; if a rule refused the
  stream, the refusal is recorded before the error is raised.
- No connection is reused for another stream: after the first byte, only its two ends know its state.

Source: docs/reference/egress.md. Not here: frames (the executor's broker), the socket (dial.py).
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

import anyio

from aileron.egress.attempts import Attempts
from aileron.egress.failures import denied
from aileron.egress.inject import Lender
from aileron.egress.journal import Journal, RequestDenial, RequestIntent, RequestReport
from aileron.egress.login import LoginDoor, LoginOpening, Means, login_at
from aileron.egress.lookup import Resolver
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason, RefusedError, unencrypted
from aileron.egress.reserved import is_reserved_host
from aileron.egress.rules import check_granted
from aileron.egress.steps import Passage, check_reachable, connected, enter, look_up
from aileron.egress.stream import MAX_DESTINATION, Stream, StreamRequest, stream_report
from aileron.model.failure import AileronError
from aileron.model.names import HostPort
from aileron.model.plan import Grant

__all__ = ["METHOD", "Stream", "StreamRequest", "Streams"]

METHOD: Final = "TCP"
"""Method of streams in the ledger. The path of a stream there is empty, while the path of a request begins with a slash."""


class Streams:
    """Opens the streams of connectors, with parts of the daemon's `Egress`: the resolver, the trusted certificates, and the
    semaphore for all requests in progress.
    """

    def __init__(
        self,
        resolve: Resolver,
        tls: ssl.SSLContext,
        slots: anyio.Semaphore,
        own_port: int | None,
        lender: Lender,
        logins: LoginDoor | None = None,
    ) -> None:
        """Take `logins`, which starts the processes that log in at services; if it is None, logins are not available."""
        self.logins: Final = logins
        self.attempts: Final = Attempts()
        self.lender: Final = lender
        self.resolve: Final = resolve
        self.tls: Final = tls
        self.slots: Final = slots
        self.own_port: Final = own_port

    def open(
        self, request: StreamRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Return a context manager that connects when entered, and closes the stream when left. `deadline` as in
        `anyio.current_time()`.

        Raises AileronError: capability_denied, resource_limit_exceeded, network_error, or the error of the journal; for
        a login also binding_failed, or the error of the lender.
        """
        if (target := login_at(request, grant)) is not None:
            means = Means(self.resolve, self.slots, self.own_port, self.lender, self.logins, self.attempts)
            return LoginOpening(means, request, target, grant, meter, journal, deadline)
        return _Opening(self, request, grant, meter, journal, deadline)


class _Opening(Passage[Stream]):
    """Context manager of one stream without a login: it connects when entered, and closes the stream and records its
    end when left.
    """

    def __init__(
        self, streams: Streams, request: StreamRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> None:
        super().__init__(grant, meter, journal, deadline)
        self._streams = streams
        self._request = request
        self._stream: Stream | None = None

    async def _run(self) -> Stream:
        self._number = self._meter.count_request()
        destination = self._checked(self._admit)
        await enter(self._stack, (self._meter.in_flight, self._streams.slots), destination, self._deadline)
        addresses = await look_up(self._streams.resolve, destination, self._deadline)
        private, plain = destination in self._grant.private, not self._request.tls
        own_port = self._streams.own_port
        self._checked(lambda: check_reachable(destination, addresses, plain=plain, private=private, own_port=own_port))
        await self._write_down(RequestIntent(self._number, METHOD, destination, "", None))
        self._stream = await self._connect(destination, addresses)
        self._check_unbound(destination)
        return self._stream

    def _admit(self) -> HostPort:
        """Do step 2: check every rule that needs no look-up of the host. Return the destination."""
        asked = self._request
        destination = self._destination = asked.checked_destination()
        check_granted(destination, self._grant)
        if asked.command is not None:
            raise RefusedError(Reason.LOGIN_COMMAND, f"{destination} is no ssh login, which alone executes a command")
        if not asked.tls and destination not in self._grant.plain:
            raise unencrypted(f"a stream to {destination} would not be encrypted", "use TLS", destination)
        if is_reserved_host(destination, self._grant.reserved):
            raise RefusedError(
                Reason.PROVIDER_ENDPOINT,
                f"{destination} has the provider's token endpoints, which a stream could reach: streams to it are not allowed",
            )
        if self._grant.read_only:
            raise RefusedError(
                Reason.READ_ONLY,
                "a preview can only read, and what a stream sends cannot be checked: streams are not allowed",
            )
        if self._grant.credential is not None:
            raise RefusedError(
                Reason.STREAM_CREDENTIAL,
                "this step was granted a credential, and a stream cannot be searched for it: "
                "put what needs the stream into a connector whose manifest declares none",
            )
        self._admit_unbound(destination)
        return destination

    def _admit_unbound(self, destination: HostPort) -> None:
        if self._streams.lender.may_be_bound(destination):
            raise RefusedError(
                Reason.STREAM_CREDENTIAL,
                f"a secret is bound for {destination}, by a binding or by config.toml, and a stream cannot be searched for it: "
                "ask by HTTP, or revoke what is not used (aileron binding list)",
            )

    def _check_unbound(self, destination: HostPort) -> None:
        """Check again that no secret is bound for the host, because a secret may have been bound while the request
        waited in a queue, for a look-up or for a slow connection.
        """
        self._checked(lambda: self._admit_unbound(destination))

    async def _connect(self, destination: HostPort, addresses: tuple[str, ...]) -> Stream:
        tls = self._streams.tls if self._request.tls else None
        wire, address = await connected(self._deadline, destination, addresses, tls)
        return Stream(wire, address, destination, self._meter, self._deadline, lambda: self._check_unbound(destination))

    def _denied(self, refused: RefusedError) -> AileronError:
        asked = str(self._destination or f"{self._request.host}:{self._request.port}")
        self._denial = RequestDenial(self._number, METHOD, asked[:MAX_DESTINATION], refused.reason.value)
        return denied(refused, self._destination, None, self._grant)

    async def _end(self, error: BaseException | None) -> None:
        """Close the stream and record its end (steps 7 and 8)."""
        if self._stream is not None:
            self._stream.close()
        self._stack.close()
        await self._write_down_end(error)

    def _report(self, started_at: float, error: BaseException | None) -> RequestReport:
        return stream_report(self._number, self._stream, started_at, error)

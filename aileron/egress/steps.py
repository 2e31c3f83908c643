"""The steps that a request and a stream share: wait for the network, look up and check addresses, record.

Runs in the daemon. engine.py and tcp.py call the steps in an order of their own; no step depends on that order.

Rules
- Every wait for the network ends at the deadline of the step; look-ups and connection attempts have shorter deadlines.
- A row of the ledger is written completely or not at all, also when the caller is being cancelled.

Source: docs/reference/egress.md. Not here: the order (engine.py, tcp.py), the table of addresses (addresses.py).
"""

from __future__ import annotations

import abc
import contextlib
import ssl
import types
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
import httpcore2

from aileron.egress.addresses import AddressKind, check_addresses, classify
from aileron.egress.dial import MAX_ADDRESSES, DialProgress, Wire, dial, is_own_address
from aileron.egress.failures import TOO_SLOW, ConnectionProblem, Phase, describe, still_connecting, unreachable
from aileron.egress.journal import Journal, RequestDenial, RequestIntent, RequestReport
from aileron.egress.lookup import Resolver
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason, RefusedError
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Grant

__all__ = [
    "Passage",
    "check_reachable",
    "connected",
    "enter",
    "failure_class",
    "fit_for_use",
    "look_up",
    "within",
    "written",
]

RESOLVE_S: Final = 5.0  # one look-up; resolv.conf(5) waits 5 s for a server before it tries the next
CONNECT_S: Final = 10.0  # all attempts and the TLS handshake
JOURNAL_S: Final = 10.0  # one entry of the ledger; a healthy disk takes milliseconds
_NOT_RENEWED: Final = ConnectionProblem("its credential was not renewed in time")

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Passage(contextlib.AbstractAsyncContextManager[_T_co], abc.ABC, Generic[_T_co]):
    """Base class of the context managers of one request or stream. Entering it calls `_run`, which opens the request or
    stream. Whatever happens, `_end` is called exactly once, to close the request or stream and record its end.
    """

    def __init__(self, grant: Grant, meter: Meter, journal: Journal, deadline: float) -> None:
        self._grant = grant
        self._meter = meter
        self._journal = journal
        self._deadline = deadline
        self._stack = contextlib.ExitStack()  # slots of semaphores, and the loan; released without waiting
        self._number = 0
        self._destination: HostPort | None = None
        self._started_at: float | None = None  # set when the intent is durable: from then on there is a report
        self._denial: RequestDenial | None = None

    async def __aenter__(self) -> _T_co:
        try:
            return await self._run()
        except BaseException as error:
            await self._end(error)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self._end(error)

    @abc.abstractmethod
    async def _run(self) -> _T_co:
        """Do all steps until the response or stream is open, and return the response or stream."""

    @abc.abstractmethod
    async def _end(self, error: BaseException | None) -> None:
        """Release all resources, and record how the request or stream ended."""

    @abc.abstractmethod
    def _denied(self, refused: RefusedError) -> AileronError:
        """Return the error for a request that a rule refused, and set `_denial`, which is recorded at the end."""

    @abc.abstractmethod
    def _report(self, started_at: float, error: BaseException | None) -> RequestReport:
        """Return the report of how the request or stream ended."""

    def _checked(self, check: Callable[[], _T]) -> _T:
        """Return the result of `check`. If it raises RefusedError, raise the error of a denial, without the
        RefusedError as its cause or context.
        """
        try:
            return check()
        except RefusedError as error:
            refused = error
        raise self._denied(refused)

    async def _write_down(self, intent: RequestIntent) -> None:
        """Record in the ledger the request that is about to be sent. The record is durable on return."""
        await written(lambda: self._journal.sending(intent))
        self._started_at = anyio.current_time()

    async def _write_down_end(self, error: BaseException | None) -> None:
        denial = self._denial
        if denial is not None:
            await written(lambda: self._journal.denied(denial))
        if self._started_at is not None:
            report = self._report(self._started_at, error)
            await written(lambda: self._journal.finished(report))


async def within(
    deadline: float,
    phase: Phase,
    destination: HostPort | None,
    step: Callable[[], Awaitable[_T]],
    late: Callable[[], ConnectionProblem] | None = None,
    refused: Callable[[Exception], AileronError | None] | None = None,
) -> _T:
    """Run `step`, which uses the network, until `deadline` at most, and return its result. Its errors become
    `network_error`; after the deadline it is not begun.

    `late` returns the problem to report if the time runs out; `refused` returns the error to raise in place of `network_error`.
    """
    problem, refusal = TOO_SLOW, None
    if anyio.current_time() >= deadline:  # a scope cancels only at a wait, and the step could send before
        raise unreachable(phase, destination, problem)
    with anyio.CancelScope(deadline=deadline):
        try:
            return await step()
        except (OSError, httpcore2.ProtocolError, httpcore2.NetworkError) as error:
            problem, refusal = describe(error), None if refused is None else refused(error)
            late = None
    if refusal is not None:
        raise refusal
    raise unreachable(phase, destination, problem if late is None else late())


async def connected(
    deadline: float,
    destination: HostPort,
    addresses: tuple[str, ...],
    tls: ssl.SSLContext | None,
    refused: Callable[[Exception], AileronError | None] | None = None,
) -> tuple[Wire, str]:
    """Return a connection to the first of these addresses that accepts, and that address. Waits until `deadline`, but
    at most CONNECT_S.
    """
    progress, until = DialProgress(), min(deadline, anyio.current_time() + CONNECT_S)
    host, port = destination.host, destination.port
    return await within(
        until,
        "connect",
        destination,
        lambda: dial(addresses, port, tls, host, progress),
        lambda: still_connecting(progress),
        refused,
    )


async def enter(
    stack: contextlib.ExitStack, places: tuple[anyio.Semaphore, ...], destination: HostPort | None, deadline: float
) -> None:
    """Acquire each of the semaphores in `places`, waiting until the deadline at most. `stack` releases them. Raises
    AileronError (network_error) after the deadline.
    """
    if anyio.current_time() >= deadline:
        raise unreachable("queue", destination, TOO_SLOW)
    for semaphore in places:
        try:
            semaphore.acquire_nowait()  # the usual case: no turn of the event loop
        except anyio.WouldBlock:
            await within(deadline, "queue", destination, semaphore.acquire)
        stack.callback(semaphore.release)


async def fit_for_use(deadline: float, phase: Phase, destination: HostPort, step: Callable[[], Awaitable[_T]]) -> _T:
    """Run `step`, which renews or fetches a credential, until `deadline` at most. Errors of `step` are raised unchanged."""
    if anyio.current_time() < deadline:
        with anyio.CancelScope(deadline=deadline):
            return await step()
    raise unreachable(phase, destination, _NOT_RENEWED)


async def look_up(resolve: Resolver, destination: HostPort, deadline: float) -> tuple[str, ...]:
    """Return the addresses of a destination, resolved once and not checked yet."""
    host, port = destination.host, destination.port
    if host.replace(".", "").isdigit():
        return (host,)  # a dotted quad (names.check_host): nothing to look up
    until = min(deadline, anyio.current_time() + RESOLVE_S)
    addresses = tuple(await within(until, "resolve", destination, lambda: resolve(host, port)))
    if not 0 < len(addresses) <= MAX_ADDRESSES:
        problem = ConnectionProblem(f"its name has {len(addresses)} addresses; 1 to {MAX_ADDRESSES} are usable")
        raise unreachable("resolve", destination, problem)
    return addresses


def check_reachable(
    destination: HostPort,
    addresses: tuple[str, ...],
    *,
    plain: bool,
    private: bool,
    own_port: int | None,
    has_tls: bool = True,
) -> None:
    """Raise RefusedError unless every address may be dialled. An address of this machine itself needs the user's
    permission.

    `own_port` is the daemon's port. On this machine it is never dialled, whatever the user allowed.
    """
    check_addresses(destination, addresses, plain=plain, private=private, has_tls=has_tls)
    is_daemon = destination.port == own_port
    if (private or plain) and not is_daemon:
        return
    try:
        is_own = any(map(is_own_address, addresses)) or any(
            classify(address)[0] is AddressKind.LOOPBACK for address in addresses
        )
    # No descriptor is free to ask the kernel with. The address may be this machine's, so it is not dialled
    except OSError as error:
        problem = describe(error)
    else:
        if not is_own:
            return
        why = (
            "is this daemon's own port, to which connections are never made"
            if is_daemon
            else "resolves to an address of this machine"
        )
        raise RefusedError(Reason.ADDRESS_OWN, f"{destination} {why}")
    raise unreachable("resolve", destination, problem)


async def written(write: Callable[[], Awaitable[None]]) -> None:
    """Run `write`, which writes a row to the journal, to its end even if the caller is cancelled; otherwise it would be
    unknown whether the row was written.
    """
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + JOURNAL_S):
        return await write()
    raise AileronError(FailureClass.INTERNAL_ERROR, f"the ledger accepted no entry for {JOURNAL_S:.0f} seconds")


def failure_class(error: BaseException | None) -> FailureClass | None:
    """Return the failure class that the ledger records for this error; None if there is no error."""
    match error:
        case None:
            return None
        case AileronError():
            return error.failure.failure_class
        case Exception():
            return FailureClass.INTERNAL_ERROR
    return FailureClass.CANCELLED

"""A stream to a destination with a login: the supervisor logs in, and the connector gets the stream after the login.

Runs in the daemon, for `tcp.py`. This module speaks no protocol, not even TLS: a separate process does
(aileron/logins). That process gets the connected socket and only this login's secret; the daemon reaches it through a
socket pair.

    1 count · 2 admit (below) · 3 resolve and check every address · 4 renew a token that has expired or soon will
    5 lend, and fail if the service has just refused the secret · 6 record durably · 7 connect · 8 log in
    9 bytes both ways, counted, and notes recorded before the message or commit that they announce · 10 close
    11 record the end

Rules
- Nothing is looked up before step 2 has passed, nothing is renewed or lent before step 3, and no packet leaves before
  step 6 has returned.
- The connector's `tls` is ignored: the manifest says how the connection is encrypted.
- Only one login at a time is attempted for an account, and after a refusal none for a while (attempts.py), so that a
  connector that tries again and again locks no account. Hanging up early does not evade this: without the service's
  verdict within VERDICT_S, the login counts as refused.
- Each mail message and each report of effects counts as a request. This bounds the number of records that one stream
  causes.
- The secret is not stored here; after a refusal, only a keyed digest of it is.
- Every wait ends at the deadline of the step. If 6 was reached, 11 follows, cancellation included; if a rule refused
  the stream, the refusal is recorded before the error is raised.

Source: docs/reference/egress.md, docs/reference/logins.md. Not here: the login (aileron/logins), frames (the broker).
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
import msgspec

from aileron.egress.attempts import Account, Attempt, Attempts
from aileron.egress.dial import Wire
from aileron.egress.failures import OWN_AUTHORITY, ConnectionProblem, Phase, denied, unreachable
from aileron.egress.inject import Lender, LentCredential, login_roots
from aileron.egress.journal import (
    EffectsReport,
    Journal,
    MailIntent,
    MailReport,
    RequestDenial,
    RequestIntent,
    RequestReport,
)
from aileron.egress.lookup import Resolver
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason, RefusedError, unencrypted
from aileron.egress.reserved import is_reserved_host
from aileron.egress.rules import check_granted
from aileron.egress.steps import (
    Passage,
    check_reachable,
    connected,
    enter,
    fit_for_use,
    look_up,
    within,
    written,
)
from aileron.egress.stream import MAX_DESTINATION, Stream, StreamRequest, stream_report
from aileron.logins.login_messages import (
    CAN_READ_ONLY,
    MAX_STREAM_S,
    Effects,
    Envelope,
    Failed,
    FromLogin,
    LoggedIn,
    Note,
    Order,
    Over,
    Problem,
    Submitted,
)
from aileron.model.commands import is_granted, only_reads
from aileron.model.credential_kind import credential_facts
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored, fix_for
from aileron.model.login import HAVE_PREVIEWED, HAVE_ROLES, LoginDetails, LoginProtocol, LoginTarget
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse, Grant

__all__ = ["LoginDoor", "LoginOpening", "LoginTalk", "Means", "login_at"]

LOGIN_S: Final = 20.0
"""Maximum seconds for TLS, greetings and the login. A mail server may wait some seconds before it greets an unknown
client.
"""
_FINISH_S: Final = 6.0
"""Seconds for a login's process to forward what the connector sent before hanging up (aileron/logins/relay.py), and to
report its end.
"""
_BROKEN_S: Final = 1.0
"""Seconds for a login's process to forward the connector's last bytes and to report its end, if the step has failed or
ended.
"""
VERDICT_S: Final = 4.0
"""Seconds for a service to accept or refuse a secret after the step has ended. Many services wait some seconds before
they refuse a secret.
"""
_SAID: Final = 200
"""Maximum number of characters of the service's own words in a failure."""
_LOST: Final = Over(scrubbed=0, problem=Problem.CLOSED, message="the login ended without saying why")
_BINDING: Final = frozenset(
    {
        Problem.REFUSED_CREDENTIAL,
        Problem.UNUSABLE_CREDENTIAL,
        Problem.NO_DATABASE,
        Problem.MAY_WRITE,
        Problem.HOST_KEY,
    }
)


class LoginTalk(Protocol):
    """Interface of a login in progress, implemented by aileron/logins/keeper.py."""

    @property
    def stream(self) -> socket.socket:
        """The daemon's end of the stream after the login, a non-blocking socket."""
        ...

    async def begin(self, order: Order, service: socket.socket) -> None:
        """Send the login's process `order`, which tells it to log in over `service`, a connected socket, and close that
        socket here. Raises OSError if the order cannot be sent.
        """
        ...

    async def hear(self) -> FromLogin | None:
        """Return the next message of the login's process; None if the process has ended."""
        ...

    async def noted(self) -> None:
        """Tell the login's process that its note (a mail message, its result, or effects) is recorded on disk."""
        ...

    def close(self) -> None:
        """End the login, unless it has already ended."""
        ...


class LoginDoor(Protocol):
    """Interface for starting logins, implemented by aileron/logins/keeper.py."""

    async def prepare(self, protocol: LoginProtocol) -> LoginTalk:
        """Start a process that can log in with this protocol, and return its login, which waits for an order. Raises
        OSError if no login could be started.
        """
        ...


def login_at(request: StreamRequest, grant: Grant) -> LoginTarget | None:
    """Return the login that the grant has for the request's destination; None if the grant has no login for it."""
    if grant.credential is None:
        return None
    wanted = (request.host.lower(), request.port)
    logins = grant.credential.need.logins
    return next((target for target in logins if (target.destination.host, target.destination.port) == wanted), None)


class Means(msgspec.Struct, frozen=True):
    """The objects of the daemon's egress that a login needs, such as the resolver and the vault's lender."""

    resolve: Resolver
    slots: anyio.Semaphore
    own_port: int | None
    lender: Lender
    door: LoginDoor | None
    attempts: Attempts


class LoginStream(Stream):
    """A stream to a service after the login. `attend` must run concurrently, because the login's process sends nothing
    more until its notes (mail messages, their results, or effects) are recorded.
    """

    def __init__(
        self,
        talk: LoginTalk,
        address: str,
        destination: HostPort,
        meter: Meter,
        deadline: float,
        note: Callable[[Note], Awaitable[None]],
        failure: Callable[[Failed | Over, Phase], AileronError],
    ) -> None:
        super().__init__(Wire(talk.stream), address, destination, meter, deadline, lambda: None)
        self._talk: Final = talk
        self._note: Final = note
        self._failure: Final = failure
        self._attending: Final = anyio.Lock()
        self._end: Over | None = None

    @property
    def scrubbed(self) -> int:
        """Number of occurrences of the login's secret that were masked in the stream."""
        return 0 if self._end is None else self._end.scrubbed

    @property
    def failure(self) -> AileronError | None:
        """Failure with which the login ended the stream; None if it ended without a failure, or has not ended."""
        if self._end is None or self._end.problem is None:
            return None
        return self._failure(self._end, "exchange")

    async def attend(self) -> None:
        """Record the notes of the login's process (mail messages, their results, or effects) until the login has ended.
        Raises AileronError if a note could not be recorded.
        """
        async with self._attending:
            while self._end is None:
                match await self._talk.hear():
                    case Over() as over:
                        self._end = over
                    case Envelope() | Submitted() | Effects() as note:
                        await self._write_note(note)
                    case _:  # the process has ended, or sent a message that is not allowed now
                        self._end = _LOST

    async def _write_note(self, note: Note) -> None:
        try:
            with anyio.CancelScope(shield=True):  # each wait in it has its own bound
                await self._note(note)
                await self._talk.noted()
        except AileronError:
            self._end = _LOST  # the login gets no answer, and sends nothing more
            raise

    async def send(self, data: bytes) -> None:
        """Send all bytes, as Stream.send does. If the login ended the stream, raise the login's failure."""
        try:
            await super().send(data)
        except AileronError as error:
            await self._say_why(error)
            raise

    async def receive(self) -> bytes:
        """Return some bytes, as Stream.receive does. If the login ended the stream, raise the login's failure."""
        try:
            data = await super().receive()
        except AileronError as error:
            await self._say_why(error)
            raise
        if not data:
            await self._say_why(None)
        return data

    async def flush(self) -> None:
        """Return at once, because the login's process still reads the bytes in the socket after the daemon has closed
        it, and `finish` waits for that process.
        """

    async def finish(self, within_s: float) -> None:
        """Close the stream, because the connector has finished with it, and end the login after at most `within_s`
        seconds. Bytes that the connector had sent are still forwarded.
        """
        self.close()
        with anyio.move_on_after(within_s, shield=True), contextlib.suppress(AileronError):
            await self.attend()
        self._talk.close()

    async def _say_why(self, error: AileronError | None) -> None:
        if error is not None and error.failure.failure_class is not FailureClass.NETWORK_ERROR:
            return
        with anyio.move_on_after(_FINISH_S):
            await self.attend()
        if (failure := self.failure) is not None:
            raise failure


class LoginOpening(Passage[Stream]):
    """Context manager of one stream with a login: it logs in when entered, closes the stream and records the end when left."""

    def __init__(
        self,
        means: Means,
        request: StreamRequest,
        target: LoginTarget,
        grant: Grant,
        meter: Meter,
        journal: Journal,
        deadline: float,
    ) -> None:
        super().__init__(grant, meter, journal, deadline)
        assert grant.credential is not None, "login_at found it there"
        self._means = means
        self._request = request
        self._target = target
        self._use: CredentialUse = grant.credential
        self._method = target.protocol.upper()
        self._place = contextlib.ExitStack()
        self._stack.enter_context(self._place)
        self._talk: LoginTalk | None = None
        self._stored: Stored | None = None
        self._stream: LoginStream | None = None
        self._commits = False
        """True once the effects that a person approved are being committed, or are committed."""
        self._unanswered = 0
        """Number of mail messages that were begun and whose end the login has not reported."""

    async def _run(self) -> Stream:
        self._number = self._meter.count_request()
        destination = self._checked(self._admit)
        await enter(self._stack, (self._meter.in_flight,), destination, self._deadline)
        await enter(self._place, (self._means.slots,), destination, self._deadline)
        addresses = await look_up(self._means.resolve, destination, self._deadline)
        private, plain = destination in self._grant.private, self._target.encryption == "plain"
        own_port = self._means.own_port
        self._checked(lambda: check_reachable(destination, addresses, plain=plain, private=private, own_port=own_port))
        if credential_facts(self._use.need.kind).logs_in_with == "token":
            await self._ready(destination)
        with self._means.lender.lend(self._use) as lent:
            self._stored = lent.stored
            return await self._logged_in(lent, destination, addresses)

    def _admit(self) -> HostPort:
        """Do step 2: check every rule that needs no look-up of the host. Return the destination."""
        target, command = self._target, self._request.command
        destination = self._destination = target.destination
        check_granted(destination, self._grant)
        if target.encryption == "plain" and destination not in self._grant.plain:
            problem, instead = f"a login at {destination} would not be encrypted", "leave +plain out of its manifest"
            raise unencrypted(problem, instead, destination)
        if is_reserved_host(destination, self._grant.reserved):
            raise RefusedError(
                Reason.PROVIDER_ENDPOINT,
                f"{destination} has the provider's token endpoints, which a stream could reach: streams to it are not allowed",
            )
        if self._grant.read_only and target.protocol not in CAN_READ_ONLY:
            raise RefusedError(
                Reason.READ_ONLY, f"a preview can only read, and a stream of {target.protocol} could do more than that"
            )
        if (self._is_previewed and target.protocol not in HAVE_PREVIEWED) or (
            self._use.login == "read_only" and target.protocol not in HAVE_ROLES
        ):
            raise RefusedError(
                Reason.LOGIN_ROLE,
                f'{target.protocol} has nothing to hold this operation to its login = "{self._use.login}"',
            )
        if self._is_previewed and not self._grant.read_only and self._meter.seen is None:
            raise RefusedError(
                Reason.NOT_SEEN,
                "this operation changes only what a person saw before they approved it, and once: look at the preview, "
                "and approve that",
            )
        if target.protocol == "ssh" and (command is None or not is_granted(command, self._use.need.commands)):
            raise RefusedError(
                Reason.LOGIN_COMMAND,
                f"what is to be executed at {destination} is none of [capabilities.credential] commands of the manifest",
            )
        if self._grant.read_only and command is not None and not only_reads(command):
            raise RefusedError(
                Reason.READ_ONLY,
                "a preview can only read: over ssh it can execute git-upload-pack or git-upload-archive, and nothing else",
            )
        if target.protocol != "ssh" and command is not None:
            raise RefusedError(Reason.LOGIN_COMMAND, f"{destination} is no ssh login, which alone executes a command")
        return destination

    @property
    def _is_previewed(self) -> bool:
        return self._use.login == "previewed"

    async def _ready(self, destination: HostPort) -> None:
        """Renew the token if it has expired or soon will (step 4). Meanwhile the stream gives up its slot among the
        requests in progress, because the renewal is itself a request and needs a slot.
        """
        lender, deadline = self._means.lender, self._deadline
        if lender.is_ready(self._use, destination):
            return
        self._place.close()
        await fit_for_use(deadline, "queue", destination, lambda: lender.ready(self._use, destination, deadline))
        await enter(self._place, (self._means.slots,), destination, self._deadline)

    async def _logged_in(self, lent: LentCredential, destination: HostPort, addresses: tuple[str, ...]) -> Stream:
        """Lend the secret, record the request, connect to the service and log in (steps 5 to 8); return the stream
        after the login. Only one login at a time is made for each account.
        """
        self._meter.remember(login_roots(lent))
        async with contextlib.AsyncExitStack() as stack:
            attempts = self._means.attempts
            account = Account(self._target.protocol, destination, lent.username or "")
            turn = attempts.turn(account, lent.secret)
            attempt = await within(self._deadline, "queue", destination, lambda: stack.enter_async_context(turn))
            if (pause_s := attempts.pause_s(attempt)) > 0:
                raise self._pausing(destination, pause_s)
            talk = self._talk = await self._prepared()  # its process starts during the record and the connect
            path = self._request.command or ""
            await self._write_down(RequestIntent(self._number, self._method, destination, path, str(self._use.binding)))
            wire, address = await connected(self._deadline, destination, addresses, None)
            await self._begin(talk, lent, wire.detach())
            heard = await self._first_heard(talk, destination, attempt)
        if not isinstance(heard, LoggedIn):
            raise self._failure(heard if isinstance(heard, Failed) else _LOST, "connect")
        self._stream = LoginStream(talk, address, destination, self._meter, self._deadline, self._noted, self._failure)
        return self._stream

    async def _first_heard(self, talk: LoginTalk, destination: HostPort, attempt: Attempt) -> FromLogin | None:
        """Return the login's first message: the service's verdict on the secret, which the login has sent by now.
        Return None if the login's process has ended. The verdict is recorded in `attempts` even if the caller is being
        cancelled; otherwise a connector that hangs up again and again could lock an account.
        """
        is_heard = False
        heard: FromLogin | None = None
        try:
            heard = await within(self._deadline, "connect", destination, talk.hear)
            is_heard = True
        finally:
            if not is_heard:
                with anyio.move_on_after(VERDICT_S, shield=True):
                    heard = await talk.hear()
                    is_heard = True
            if not is_heard or (isinstance(heard, Failed) and heard.problem is Problem.REFUSED_CREDENTIAL):
                self._means.attempts.refused(attempt)
            elif isinstance(heard, LoggedIn):
                self._means.attempts.accepted(attempt)
        return heard

    async def _prepared(self) -> LoginTalk:
        problem = "nothing logs in here"
        if self._means.door is not None:
            try:
                return await self._means.door.prepare(self._target.protocol)
            except OSError as error:
                problem = error.strerror or str(error)
        raise self._unmade(problem)

    async def _begin(self, talk: LoginTalk, lent: LentCredential, service: socket.socket) -> None:
        left_s = max(0.0, min(self._deadline - anyio.current_time(), MAX_STREAM_S))
        form = credential_facts(self._use.need.kind).logs_in_with
        if form is None:  # which no manifest can declare
            raise AileronError(FailureClass.INTERNAL_ERROR, f"kind {self._use.need.kind} cannot log in")
        order = Order(
            target=self._target,
            credential=form,
            username=lent.username or "",
            secret=lent.secret.reveal(),
            details=lent.details or LoginDetails(),
            command=self._request.command,
            login_s=min(LOGIN_S, left_s),
            stream_s=left_s,
            reads_only=self._grant.read_only,
            previewed=self._is_previewed,
            seen=None if self._grant.read_only else self._meter.seen,
        )
        try:
            return await talk.begin(order, service)
        except OSError as error:
            problem = error.strerror or str(error)
        raise self._unmade(problem)

    def _unmade(self, problem: str) -> AileronError:
        return AileronError(FailureClass.INTERNAL_ERROR, f"no login at {self._target.destination} was made: {problem}")

    async def _noted(self, note: Note) -> None:
        """Record a note of the login's process: a mail message, its result, or effects. The record is on disk on return."""
        if isinstance(note, Envelope):
            self._meter.count_request()
            self._unanswered += 1
            intent = MailIntent(self._number, note.sender, note.recipients, note.size)
            await written(lambda: self._journal.mail_sending(intent))
        elif isinstance(note, Effects):
            await self._note_effects(note)
        else:
            if not self._unanswered:
                raise AileronError(
                    FailureClass.INTERNAL_ERROR, "a login told of the end of a message that was not begun"
                )
            self._unanswered -= 1
            report = MailReport(self._number, note.size, note.code)
            await written(lambda: self._journal.mail_sent(report))

    async def _note_effects(self, note: Effects) -> None:
        if not self._is_previewed:
            raise AileronError(FailureClass.INTERNAL_ERROR, "a login told of effects that nobody asked it for")
        self._meter.count_request()
        effects = EffectsReport(self._number, note.digest, note.text)
        if not self._grant.read_only:
            self._meter.commit(note.digest)
        await written(lambda: self._journal.effects(effects))
        self._commits = not self._grant.read_only

    def _pausing(self, destination: HostPort, pause_s: float) -> AileronError:
        message = (
            f"{destination} refused a login to the account of {self._use.binding}, which is not tried again for "
            f"{math.ceil(pause_s)} s, so that it is not locked; {self._fix()}"
        )
        details = {"reason": Problem.REFUSED_CREDENTIAL.value}
        return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER, details=details)

    def _failure(self, ended: Failed | Over, phase: Phase) -> AileronError:
        """Return the failure that the step gets because the login ended with a problem. If the problem is a denial,
        also set `_denial`, so that the denial is recorded.
        """
        problem, text = ended.problem or Problem.CLOSED, ended.message
        if problem is Problem.NOT_ALLOWED:
            reason = Reason.READ_ONLY if self._grant.read_only else Reason.NOT_ALLOWED
            return self._denied(RefusedError(reason, text))
        if problem is Problem.OUTCOME_UNKNOWN or (ended is _LOST and self._commits):
            details = {"reason": Problem.OUTCOME_UNKNOWN.value}
            return AileronError(FailureClass.OUTCOME_UNKNOWN, text, details=details)
        if problem is Problem.EFFECTS_CHANGED:
            details = {"reason": problem.value}
            return AileronError(FailureClass.HASH_MISMATCH, text, boundary=Boundary.USER, details=details)
        if problem not in _BINDING:
            is_retriable = problem in (Problem.CLOSED, Problem.TOO_SLOW)
            text += f"; {OWN_AUTHORITY}" if problem is Problem.CERTIFICATE else ""
            if isinstance(ended, Failed) and ended.may_allow is not None:
                text += f"; if you trust it with that: {self._rebind} --allow-password-form {ended.may_allow}`"
            problem_text = ConnectionProblem(text, retriable=is_retriable)
            return unreachable(phase, self._destination, problem_text, reason=problem.value, said=ended.said[:_SAID])
        details = {"reason": problem.value} | ({"said": ended.said[:_SAID]} if ended.said else {})
        message = f"{self._destination}, with {self._use.binding}: {text}; {self._fix(problem)}"
        return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER, details=details)

    @property
    def _rebind(self) -> str:
        """Beginning of the command that a message suggests for binding the credential again."""
        return f"`aileron binding rebind {self._use.binding}"

    def _fix(self, problem: Problem = Problem.REFUSED_CREDENTIAL) -> str:
        rebind = self._rebind
        match problem:
            case Problem.HOST_KEY:
                return f"if the server's owner confirms the new key: {rebind} --host-key 'TYPE BASE64'`"
            case Problem.NO_DATABASE:
                return f"name the right one: {rebind} --database NAME`"
            case Problem.MAY_WRITE:
                return f"or use another role: {rebind} --username USER --secret NAME`"
            case _:
                return fix_for(self._use.binding, self._stored, or_username=True)

    def _denied(self, refused: RefusedError) -> AileronError:
        asked = str(self._destination or f"{self._request.host}:{self._request.port}")
        self._denial = RequestDenial(self._number, self._method, asked[:MAX_DESTINATION], refused.reason.value)
        return denied(refused, self._destination, None, self._grant)

    async def _end(self, error: BaseException | None) -> None:
        """Close the stream and record its end (steps 10 and 11). A denial that is detected only now is raised here,
        unless `error` is set.
        """
        late: AileronError | None = None
        if self._stream is not None:
            await self._stream.finish(_FINISH_S if error is None else _BROKEN_S)
            late = None if error is not None else self._stream.failure
        elif self._talk is not None:
            self._talk.close()
        self._stack.close()
        is_denied = late is not None and late.failure.failure_class is FailureClass.CAPABILITY_DENIED
        await self._write_down_end(late if is_denied else error)
        if late is not None and is_denied:
            raise late

    def _report(self, started_at: float, error: BaseException | None) -> RequestReport:
        return stream_report(self._number, self._stream, started_at, error)

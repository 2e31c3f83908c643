"""The conversation between the supervisor and one jailed connector, in frames, for one try of one step.

Runs in the daemon; the other side is hostile. The result is the step's output or one AileronError. Whatever happens,
the caller ends the jail.

Rules
- The frame session (`HostSession`), which checks the order of frames, checks each frame before anything acts on it.
- The first of these events determines the result: a denied capability, a broken protocol, the deadline, or the
  connector's own last frame.
- After its last frame the connector has a moment to leave; a further frame is a broken protocol. The connector has left
  when none of its processes can make another system call (ADR 50).
- The log pipe is read to its end, and at most _LOG_BYTES are stored, with a mark where the log was cut. Control
  characters are made visible, since people read the log in terminals.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup

from aileron.egress.journal import Journal as EgressJournal
from aileron.egress.journal import RequestDenial
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason
from aileron.executor import endings
from aileron.executor.broker import Broker, Request, WayOut, check_imported
from aileron.executor.channel import FrameChannel
from aileron.executor.jails import Jailed
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.model.manifest import HostFunction
from aileron.model.plan import Grant, Step
from aileron_sandbox.ending import NetworkAttempt, Signalled
from aileron_sandbox.frames.codec import Frame, FrameError, FrameTooLargeError
from aileron_sandbox.frames.frame_messages import (
    PROTOCOL_VERSION,
    AuditEvent,
    Cancel,
    Chunk,
    Failed,
    GrantedHost,
    HttpRequest,
    Invoke,
    Log,
    Progress,
    Ready,
    Refused,
    Result,
    TcpOpen,
    ToJail,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
)
from aileron_sandbox.frames.session import HostSession

__all__ = ["Claims", "HostConversation", "StepJournal"]

MAX_CLAIMS: Final = 256
"""Maximum number of audit events of one step, over all of its tries: the same as the maximum number of its requests.
Each event takes up to 16 KiB on disk for ever.
"""

_LEAVE_S: Final = 1.0
"""Seconds for a connector to leave after its last frame or the end of its stream, before it is killed. An interpreter
needs a millisecond.
"""
_KILLED_S: Final = 10.0
"""Maximum seconds from SIGKILL until the connector's end is reported. It usually takes a millisecond; the wait is long
so that the reported reason is right on an overloaded machine, too.
"""
_LOG_BYTES: Final = 64 << 10
"""Maximum number of bytes stored of one try's log: some hundred lines, enough for a traceback. The logs of 64 jails
take 4 MiB.
"""
_LOG_LINES: Final = 500
"""Maximum number of lines of the connector's log that are written to the daemon's log. Each line carries the run's and
the connector's name; 65,000 empty lines would take 8 MiB and a second.
"""
_LOG_TAIL: Final = 2000
"""Maximum number of characters of the log that go into a failure of unknown cause."""
_READ_BYTES: Final = 64 << 10
_log = logging.getLogger("aileron.connector")


class StepJournal(EgressJournal, Protocol):
    """The interface with which one step records its requests and audit events in the ledger, and reports progress."""

    async def connector_event(self, event: str, fields: JSONObject) -> None:
        """Record an audit event as the connector stated it."""
        ...

    def progressed(self, done: int | float, total: int | float | None, message: str | None) -> None:
        """Report the progress that the connector states, for clients that watch the run. The progress is not recorded."""
        ...


class Claims:
    """A counter of the audit events that a step has written. All tries of the step share one object."""

    def __init__(self) -> None:
        self._count = 0

    def count(self, connector: str) -> None:
        """Count one more audit event of the step. Raises AileronError(resource_limit_exceeded) beyond MAX_CLAIMS."""
        self._count += 1
        if self._count > MAX_CLAIMS:
            raise endings.over_limit(
                "audit_events", f"{connector} wrote more than {MAX_CLAIMS} audit events in one step"
            )


class HostConversation:
    """The supervisor's end of the conversation with one jailed connector. Call `run` once.

    `was_ready`: the connector sent `ready` while it was a spare. `leave_s` replaces _LEAVE_S.
    """

    def __init__(
        self,
        jailed: Jailed,
        egress: WayOut,
        step: Step,
        meter: Meter,
        claims: Claims,
        journal: StepJournal,
        run_id: str,
        *,
        was_ready: bool = False,
        leave_s: float = _LEAVE_S,
    ) -> None:
        child = jailed.child
        self._jailed = jailed
        self._egress = egress
        self._step = step
        self._meter = meter
        self._claims = claims
        self._journal = journal
        self._run_id = run_id
        self._leave_s: Final = leave_s
        self._channel = FrameChannel(child.frames_in, child.frames_out)
        self._session = HostSession()
        self._said_ready = was_ready
        if was_ready:
            self._session.received(Frame(Ready(), None))
        self._verdict: AileronError | None = None
        self._output: Any = None
        self._has_output = False
        self._log = bytearray()
        self._log_cut = False
        self._is_log_over = False
        # No buffer: a sender waits until the writer takes the frame, so that what is written is never cut by a
        # cancellation and what is cancelled was never written.
        self._outbox, self._to_write = anyio.create_memory_object_stream[tuple[ToJail, bytes]](0)

    async def run(self, deadline: float) -> Any:
        """Return the step's output, or raise the AileronError that the try ended with. `deadline` is in the time of
        `anyio.current_time()`.
        """
        with self._outbox, self._to_write, anyio.move_on_at(deadline) as scope:
            await self._talk(deadline)
        self._write_log()
        if scope.cancelled_caught:
            self._decide(
                endings.over_limit("wall", f"{self._name} was still running after {self._step.limits.timeout_s} s")
            )
        if self._verdict is not None:
            raise self._verdict
        return self._output

    @property
    def said_ready(self) -> bool:
        """True if the connector sent `ready` after loading."""
        return self._said_ready

    @property
    def _name(self) -> str:
        return str(self._step.connector)

    def _decide(self, verdict: AileronError) -> None:
        if self._verdict is None and not self._has_output:
            self._verdict = verdict

    async def _talk(self, deadline: float) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain_log)
            tasks.start_soon(self._write_frames, tasks)
            broker = Broker(self._egress, self._step, self._meter, self._journal, deadline, self._send)
            try:
                await self._send(self._invoke(deadline), b"")
                await self._listen(broker, tasks)
            except AileronError as error:
                self._decide(error)
            except FrameTooLargeError as error:
                self._decide(endings.over_limit("output", f"{self._name} sent a result that is too large: {error}"))
            except FrameError as error:
                self._decide(endings.broke_the_protocol(self._name, str(error)))
            tasks.cancel_scope.cancel()

    def _invoke(self, deadline: float) -> Invoke:
        grant = self._step.grant
        return Invoke(
            protocol=PROTOCOL_VERSION,
            op=self._step.op,
            args=self._step.args,
            hosts=_hosts(grant),
            invocation=f"{self._run_id}/{self._step.id}",  # the same for each try: idempotency keys are made of it
            deadline_ms=max(0, int((deadline - anyio.current_time()) * 1000)),
            accepted=self._step.accepted or None,
        )

    async def _listen(self, broker: Broker, tasks: TaskGroup) -> None:
        while self._verdict is None:
            frame = await self._channel.receive()
            if frame is None:
                await self._ended_early()
                return
            self._session.received(frame)
            if await self._act(frame, broker, tasks):
                await self._leave(tasks)
                await broker.finish()
                return

    async def _act(self, frame: Frame, broker: Broker, tasks: TaskGroup) -> bool:
        """Handle one frame from the connector. Return True if it is the connector's last frame."""
        match frame.message:
            case Result(output=output):
                self._output, self._has_output = output, True
                return True
            case Failed() as failed:
                self._decide(endings.claimed(failed.failure_class, failed.message, failed.details))
                return True
            case HttpRequest() as request:
                check_imported(HostFunction.HTTP, self._step)
                broker.accept(request)
                tasks.start_soon(self._serve, broker, request, frame.body or b"", tasks)
            case TcpOpen() as stream:
                check_imported(HostFunction.TCP, self._step)
                broker.accept(stream)
                tasks.start_soon(self._serve, broker, stream, b"", tasks)
            case WebSocketOpen() as websocket:
                check_imported(HostFunction.WEBSOCKET, self._step)
                broker.accept(websocket)
                tasks.start_soon(self._serve, broker, websocket, b"", tasks)
            case Chunk() | WebSocketMessage() | WebSocketClose() | Cancel():
                await broker.deliver(frame)
            case Ready():
                self._said_ready = True
            case Log() as line:
                check_imported(HostFunction.LOG, self._step)
                if not self._log_cut:  # after the cut, lines are not even formatted
                    self._keep_log(f"{line.level}: {line.message} {line.fields or ''}".rstrip().encode() + b"\n")
            case Progress() as report:
                check_imported(HostFunction.PROGRESS, self._step)
                self._journal.progressed(report.done, report.total, report.message)
            case AuditEvent() as fact:
                check_imported(HostFunction.AUDIT, self._step)
                self._claims.count(self._name)
                await self._journal.connector_event(fact.event, fact.fields)
            case _:
                raise FrameError(f"a jail cannot send {type(frame.message).__name__}")
        return False

    async def _serve(self, broker: Broker, request: Request, inline: bytes, tasks: TaskGroup) -> None:
        try:
            await broker.serve(request, inline)
        except AileronError as error:
            self._decide(error)
            tasks.cancel_scope.cancel()

    async def _send(self, message: ToJail, body: bytes) -> None:
        await self._outbox.send((message, body))

    async def _write_frames(self, tasks: TaskGroup) -> None:
        """Write the waiting frames to the connector one by one. The frame session checks each frame here, in the order
        in which they are written.
        """
        try:
            async for message, body in self._to_write:
                if self._session.is_over:
                    continue  # the connector has sent its last frame; requests in progress no longer matter
                if isinstance(message, Refused) and self._session.is_answered(message.id):
                    continue  # 1 the last chunk is written · 2 a cancel wakes its sender · 3 that refuses a complete request
                self._session.sending(message)
                await self._channel.send(message, body)
        except BrokenPipeError:
            async for _ in self._to_write:
                pass  # the connector reads no more; the other pipe ends too, and _listen decides what that means
        except FrameError as error:  # a response that cannot be framed is our bug, but must not end the daemon
            self._decide(endings.broke_the_protocol(self._name, str(error)))
            tasks.cancel_scope.cancel()

    async def _leave(self, tasks: TaskGroup) -> None:
        """Wait for the connector to leave after its last frame. A further frame raises FrameError."""
        try:
            await self._nothing_follows(tasks)
        except FrameError as error:
            self._take_back()
            raise FrameError(str(error)) from error  # never FrameTooLargeError: no frame is allowed here
        self._read_rest_of_log()
        ending = self._jailed.ending
        # A network attempt counts even after the last frame; it is reported together with the connector's end
        if isinstance(ending, NetworkAttempt):
            self._take_back()
            await self._denied(ending)

    async def _nothing_follows(self, tasks: TaskGroup) -> None:
        """Wait until the connector has left, and kill it if it stays. Raises FrameError if the connector sends another
        frame.
        """
        frame = None
        with anyio.move_on_after(self._leave_s) as waiting:
            tasks.start_soon(self._cancel_when_left, waiting)
            frame = await self._channel.receive()
            if frame is None:
                await self._jailed.wait_left()
        # Kill it here, not when the jail is ended, so that a network attempt is still reported
        if frame is None and not self._jailed.has_left:
            await self._kill_and_wait(self._jailed.wait_left)
        if frame is None:
            frame = self._channel.rest()
        if frame is not None:
            self._session.received(frame)

    async def _cancel_when_left(self, waiting: anyio.CancelScope) -> None:
        # On its way out a process gives up its memory first and its pipes later, so the end of the stream comes last.
        await self._jailed.wait_left()
        waiting.cancel()

    def _take_back(self) -> None:
        """Discard the result or failure in the connector's last frame, because of what the connector did afterwards."""
        self._has_output = False
        self._verdict = None

    async def _denied(self, attempt: NetworkAttempt) -> None:
        """Record a jailed connector's attempt to reach a network, before the run ends, in the form of a refused
        request. Then make the attempt the failure of the try.
        """
        destination = attempt.destination.removeprefix("network:")
        await self._journal.denied(RequestDenial(0, "connect", destination, Reason.SYSTEM_CALL.value))
        granted = [f"network:{host}" for host in self._step.grant.hosts]
        self._decide(endings.reached_for_a_network(attempt, self._name, granted))

    async def _ended_early(self) -> None:
        """Set the failure of the try when the connector's pipe ended without a last frame: the connector has ended, or
        it closed its end and still runs.

        The connector's ending distinguishes these two cases, even if it is reported late, because killing a connector
        that has ended does not change its ending.
        """
        with anyio.move_on_after(self._leave_s):
            await self._jailed.wait_ended()
        is_killed = self._jailed.ending is None
        if is_killed:
            await self._kill_and_wait(self._jailed.wait_ended)
        ending = self._jailed.ending
        if ending is None or (is_killed and isinstance(ending, Signalled) and ending.signal == signal.SIGKILL):
            self._decide(endings.broke_the_protocol(self._name, "it closed its connection but kept running"))
            return
        self._read_rest_of_log()
        if isinstance(ending, NetworkAttempt):
            await self._denied(ending)
        self._decide(endings.ended_without_result(ending, self._name, self._visible_log()[-_LOG_TAIL:]))

    async def _kill_and_wait(self, until: Callable[[], Awaitable[object]]) -> None:
        """Kill the connector, and wait at most _KILLED_S seconds for `until`, a function that returns when the end is
        reported.
        """
        self._jailed.child.kill()
        with anyio.move_on_after(_KILLED_S):
            await until()

    async def _drain_log(self) -> None:
        log = self._jailed.child.log
        while not self._is_log_over:
            await anyio.wait_readable(log)
            self._read_log(log)

    def _read_rest_of_log(self) -> None:
        """Read the rest of the connector's log. No process can still write, so all of it is in the pipe, which has 64 KiB."""
        while self._read_log(self._jailed.child.log):
            pass

    def _read_log(self, log: int) -> bool:
        """Read at most _READ_BYTES of the connector's log. Return False if nothing can be read."""
        try:
            data = os.read(log, _READ_BYTES)
        except BlockingIOError:
            return False
        self._keep_log(data)
        self._is_log_over = not data
        return bool(data)

    def _keep_log(self, data: bytes) -> None:
        room = _LOG_BYTES - len(self._log)
        self._log += data[:room]
        self._log_cut = self._log_cut or len(data) > room

    def _visible_log(self) -> str:
        text = self._log.decode("utf-8", "backslashreplace")
        return "".join(
            character if character.isprintable() or character == "\n" else repr(character)[1:-1] for character in text
        )

    def _write_log(self) -> None:
        lines = self._visible_log().splitlines()
        for line in lines[:_LOG_LINES]:
            _log.info("%s %s: %s", self._run_id, self._name, line)
        if self._log_cut or len(lines) > _LOG_LINES:
            _log.info("%s %s: … truncated at %s bytes or %s lines", self._run_id, self._name, _LOG_BYTES, _LOG_LINES)


def _hosts(grant: Grant) -> list[GrantedHost]:
    """Return the granted destinations as the `invoke` frame lists them."""
    logins = (
        {}
        if grant.credential is None
        else {target.destination: target.protocol for target in grant.credential.need.logins}
    )
    return [GrantedHost(host.host, host.port, host in grant.plain, logins.get(host)) for host in grant.hosts]

"""An agent's request with all of its rounds. The request is sent to the provider, the calls of Aileron's tools in the response
are made, and the request is sent again with their results, until a response has no such calls.

Runs in the daemon, within the gateway's handling of the request, and is cancelled when the agent disconnects. Trusts neither
side. A model's tool calls are made as requests of the agent's session, and the model gets their results.

Rules
- A body that cannot be parsed is passed on unchanged, which is recorded. Such a request cannot cause a call: calls are made
  only if a module of this package found them in the response to a request with Aileron's tools.
- A request has at most MAX_ROUNDS rounds, and LONGEST_S seconds. Then the model is asked once more, with tool calls disabled.
- While tools run, and between rounds, a stream is kept alive.
- A complete round is remembered before the next begins. If the same request is sent again after a failure, it continues from
  there, so that no call is made twice. A request that is sent while an identical one still runs is independent, and shares
  nothing with it.
- A provider's failure in a later round is reported in that provider's form. After a transient failure, the round is first
  retried, at most TRIES times.
- No content of a conversation is logged or recorded.

Source: docs/reference/injected-tools.md. Not here: header fields, keys and sockets (proxy.py), the form of requests (the module
of each API), sessions and the calls of tools (daemon/http/injected_tools.py).
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec

from aileron.gateway.inject.anthropic_messages import MessagesAsk
from aileron.gateway.inject.chat import ChatAsk
from aileron.gateway.inject.document import Document, TooManyError, encoded, loaded
from aileron.gateway.inject.events import MAX_EVENT_BYTES, Event, EventError, Events
from aileron.gateway.inject.memory import Entry, Memories, key_of
from aileron.gateway.inject.responses import ResponsesAsk
from aileron.gateway.inject.wire import Answer, Answered, Ask, Called, NotUnderstoodError, Round, Tool, Wire, named
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSONObject, list_of

__all__ = [
    "KEEP_ALIVE_S",
    "MAX_ASKED",
    "MAX_BODY_BYTES",
    "MAX_CALLS",
    "MAX_ROUNDS",
    "MAX_TOOLS",
    "WIRES",
    "Agent",
    "Exchange",
    "Holding",
    "Injection",
    "ProviderAnswer",
    "Tools",
    "Upstream",
    "understood",
]

Fields = list[tuple[bytes, bytes]]
T = TypeVar("T")

WIRES: Final[Mapping[bytes, type[Ask]]] = {
    b"/v1/messages": MessagesAsk,
    b"/v1/chat/completions": ChatAsk,
    b"/v1/responses": ResponsesAsk,
}
"""Classes that represent a request, by the request's path. Only exactly these paths are listed, because the paths below
them do not request text from a model.
"""
MAX_BODY_BYTES: Final = 32 << 20
"""Maximum size of a request's body: 32 MiB, the limit of the Messages API. A longer body is passed on as it is, and the
rounds of a request never make its body longer than that.
"""
IN_THREAD_BYTES: Final = 256 << 10
"""Size in bytes above which a JSON text is processed in a thread instead of the event loop. Many small values take a
millisecond for each 50 KiB.
"""
READERS: Final = 2
"""Maximum number of threads that process large JSON texts. The interpreter runs only one of them at a time, and each
holds many times the memory of its text.
"""
MAX_HELD_BYTES: Final = 64 << 20
"""Maximum size of all requests with injected tools that are in memory at once: 64 MiB, and half of it for one session. A
request late in a long conversation has two or three megabytes. Further requests fail as `busy`.
"""
MAX_WHOLE_BYTES: Final = MAX_EVENT_BYTES
"""Maximum size in bytes of a provider's answer that is not streamed: the maximum size of a stream's last event, which
has the same content.
"""
MAX_ROUND_BYTES: Final = 64 << 20
"""Maximum size of the events of one round: 64 MiB. 128,000 tokens, each in its own event with 350 bytes of overhead,
take 45 MB.
"""
MAX_ERROR_BYTES: Final = 1 << 20
MAX_TOOLS: Final = 128
"""Maximum number of tools in one request, the agent's and Aileron's together: the limit of Chat Completions and
Responses.
"""
MAX_ROUNDS: Final = 24
"""Maximum number of rounds of one request in which the model calls Aileron's tools. A model that still calls tools after so
many rounds is assumed never to stop.
"""
MAX_CALLS: Final = 32
"""Maximum number of calls of Aileron's tools that are made in one round. Further calls are refused."""
MAX_ASKED: Final = 256
"""Maximum number of calls of Aileron's tools in a model's answer of one round, made or refused. An answer with more
calls is an error, because the next request would have to repeat every call.
"""
AT_ONCE: Final = 8
"""Maximum number of calls of a round that are made at the same time; the daemon runs fewer of them at a time."""
LONGEST_S: Final = 3600.0
LONGEST_WHOLE_S: Final = 480.0
"""Maximum seconds for an answer that is not streamed. The agent gets no byte before the answer is complete, and the
providers' own clients wait 600 s.
"""
KEEP_ALIVE_S: Final = 10.0
"""Seconds between two keep-alive messages to the agent: the shortest timeout that was observed in a program between
Aileron and the agent is 30 s.
"""
TRIES: Final = 2
_MAX_DELAY_S: Final = 20.0
_PASSES: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Status codes of a provider after which the same request may succeed later."""
_ROUNDS_OVER: Final = (
    "This answer has had as many rounds of tools as it may have. Say what you know, and end your turn."
)
_TOO_MANY: Final = f"Not called: at most {MAX_CALLS} calls can be made at once. Call it again in your next turn."
_NO_OBJECT: Final = "Not called: the arguments are no JSON object. Correct them and call again."
_INTERRUPTED: Final = (
    "The program's connection ended while this call was made, so it is not known what became of it. It may have happened: do not "
    "call it again before you looked at aileron_list_pending, and asked the person."
)
_NOT_BEGUN: Final = (
    "The program's connection ended before this call was made. Nothing was done; call it again if it is wanted."
)


class Tools(Protocol):
    """Interface of the daemon's sessions and actions, with the part that injected tools need."""

    def session_of(self, name: str) -> str:
        """Return the session whose gateway addresses contain `name`. Raises AileronError(unauthorized) if there is none."""
        ...

    def is_injected(self, session: str) -> bool:
        """Return whether tools are injected into the session's requests. This is decided when the session starts."""
        ...

    async def offered(self, session: str, room: int) -> Sequence[Tool]:
        """Return at most `room` of the session's tools to offer to the model; an empty sequence if none can be offered.
        Raises AileronError.
        """
        ...

    async def call(self, session: str, wire: Wire, tool: str, arguments: JSONObject) -> tuple[str, bool]:
        """Call a tool as a request by the session's agent, and record the call. Return the text for the model, and True
        if the text reports an error. Never raises AileronError.
        """
        ...

    async def added(self, session: str, wire: Wire, names: Sequence[str]) -> None:
        """Record which tools were added to a request of the session."""
        ...

    async def passed(self, session: str, wire: Wire, why: str) -> None:
        """Record that a request of the session was passed on without tools. The reason `why` is in Aileron's own words."""
        ...


class ProviderAnswer(Protocol):
    """Interface of a provider's response to the request of one round."""

    @property
    def status(self) -> int:
        """HTTP status code of the response."""
        ...

    @property
    def fields(self) -> Fields:
        """Header fields of the response, as they arrived."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the response's body as they arrive. Raises AileronError(network_error) if the connection
        breaks.
        """
        ...


class Upstream(Protocol):
    """Interface of the API to which the rounds of a request are sent."""

    def ask(self, body: bytes, number: int) -> AbstractAsyncContextManager[ProviderAnswer]:
        """Return a context manager that sends the request of round `number`, counted from 1, and yields the provider's
        response. Raises AileronError(network_error) if the API cannot be reached.
        """
        ...


class Agent(Protocol):
    """Interface of the agent's side of a request, to which the answer is sent."""

    async def begin(self, status: int, fields: Fields, length: int | None) -> None:
        """Send the agent the status and the header fields of a provider's response, without the fields that belong to
        one connection. `length` is the body's number of bytes, None if it is not known.
        """
        ...

    async def write(self, piece: bytes) -> None:
        """Send the agent a piece of the answer's body."""
        ...

    async def end(self) -> None:
        """Send the agent the end of the answer's body, which is complete."""
        ...

    def wait_for_tools(self, limit_s: float) -> None:
        """Suspend the time limits of both sides while Aileron's tools run, for at most `limit_s` seconds."""
        ...


class Understood(msgspec.Struct, frozen=True):
    """A parsed request of an agent, and the tools to add to it, by the names under which the model sees them."""

    session: str
    ask: Ask
    tools: Mapping[str, Tool]
    unfinished: str
    """Key under which the request's rounds are remembered while the request is not answered completely."""


class Injection:
    """The state of the injection of tools in a gateway: its tools, the memories of all sessions, and the number of
    bytes that its requests hold in memory.
    """

    def __init__(self, tools: Tools, *, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self.tools: Final = tools
        self.memories: Final = Memories()
        self.keep_alive_s: Final = keep_alive_s
        self._held: Counter[str] = Counter()
        self._readers: Final = anyio.CapacityLimiter(READERS)

    @contextlib.contextmanager
    def holding(self, session: str) -> Iterator[Holding]:
        """Yield a counter of the bytes that one request of the session holds in memory. When the block ends, they no
        longer count.
        """
        held = Holding(self, session)
        try:
            yield held
        finally:
            self._held[session] -= held.size
            if not self._held[session]:
                del self._held[session]

    async def worked(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of `work`, a pure function that processes `size` bytes. If the bytes are many, the function
        runs in a thread, so that the event loop is not blocked.
        """
        return work() if size <= IN_THREAD_BYTES else await anyio.to_thread.run_sync(work, limiter=self._readers)

    def hold(self, session: str, size: int) -> None:
        """Count `size` more bytes as held in memory for a session's requests. Raises AileronError(busy) if the session
        or all sessions hold too many.
        """
        for whose, held, most in (
            ("of this session", self._held[session], MAX_HELD_BYTES // 2),
            ("of all sessions", self._held.total(), MAX_HELD_BYTES),
        ):
            if held + size > most:
                words = f"requests {whose} with injected tools hold {most >> 20} MiB: try again"
                raise AileronError(FailureClass.BUSY, words, retriable=True)
        self._held[session] += size


class Holding:
    """The number of bytes that are held in memory for one request."""

    def __init__(self, injection: Injection, session: str) -> None:
        self._injection: Final = injection
        self._session: Final = session
        self.size = 0

    def add(self, size: int) -> None:
        """Count `size` more bytes as held in memory for this request. Raises AileronError(busy) if too many are held
        for the session or for all sessions.
        """
        self._injection.hold(self._session, size)
        self.size += size


async def understood(injection: Injection, session: str, path: bytes, body: bytes) -> Understood | None:
    """Parse an agent's request, and return it with the tools to add to it. Return None, after recording the reason, for
    a request to pass on unchanged.
    """
    kind = WIRES[path]
    try:
        ask = await injection.worked(len(body), lambda: kind(Document.of(body.decode())))
        key = await injection.worked(len(body), lambda: key_of("unfinished", kind.wire, ask.document.text))
        room = MAX_TOOLS - len(list_of(ask.document.get("tools")))
        tools = named(await injection.tools.offered(session, room), ask.tool_names())
        if not tools:
            raise NotUnderstoodError(f"there is no room for more than {MAX_TOOLS} tools")
        await injection.tools.added(session, kind.wire, list(tools))
    except AileronError as error:
        await injection.tools.passed(
            session, kind.wire, f"no tools could be added: {error.failure.failure_class.value}"
        )
        return None
    except (NotUnderstoodError, TooManyError) as why:
        await injection.tools.passed(session, kind.wire, str(why))
        return None
    except ValueError:
        await injection.tools.passed(session, kind.wire, "the body is no JSON object that has each name once")
        return None
    return Understood(session, ask, tools, key)


class _Whole(msgspec.Struct, frozen=True):
    """A provider's answer that was not streamed."""

    provider: ProviderAnswer
    body: bytes
    document: JSONObject

    def told_as(self, answer: Answer) -> bytes:
        """Return the body of the answer that the agent sees: the provider's own bytes if nothing in them is changed."""
        told = answer.whole()
        return self.body if told is self.document else encoded(told).encode()


class Exchange:
    """An agent's request, which is sent in rounds until it is answered."""

    def __init__(self, injection: Injection, request: Understood, upstream: Upstream, agent: Agent) -> None:
        self._tools: Final = injection.tools
        self._worked: Final = injection.worked
        self._keep_alive_s: Final = injection.keep_alive_s
        self._memory: Final = injection.memories.of(request.session)
        self._session: Final = request.session
        self._ask: Final = request.ask
        self._names: Final = request.tools
        self._upstream: Final = upstream
        self._agent: Final = agent
        self._answer: Final[Answer] = request.ask.answer(request.tools)
        self._size: Final = len(request.ask.document.text)
        self._unfinished: Final = request.unfinished
        self._whole: _Whole | None = None
        self._is_only = False
        """True if no other exchange with the same request was running when this one began, so that the unfinished
        rounds in memory belong to this exchange.
        """

    async def run(self) -> None:
        """Answer the agent's request, in as many rounds as that takes. Raises AileronError if a connection broke or a
        provider's answer was invalid.
        """
        with self._memory.running(self._unfinished) as self._is_only:
            await self._run()

    async def _run(self) -> None:
        resumed = self._memory.get(self._unfinished) if self._is_only else None
        said: list[str] = [] if resumed is None else list(resumed.said)
        until = anyio.current_time() + (LONGEST_S if self._ask.is_stream else LONGEST_WHOLE_S)
        number = 0
        while True:
            number += 1
            ends = number > MAX_ROUNDS or anyio.current_time() > until
            body = functools.partial(self._ask.body, self._names, self._memory, tuple(said), ends=ends)
            found = await self._round(await self._worked(self._size, body), number)
            if found is None:
                return
            if not found.calls or ends:
                await self._finish(said, (*said, *found.shown), (), is_over=found.is_over)
                return
            answered = await self._call_all(said, found, is_last=number == MAX_ROUNDS)
            if found.theirs:
                await self._finish(said, (*said, *found.said), answered, is_over=True)
                return
            said += (*found.said, *self._ask.results(answered))
            if self._size + sum(map(len, said)) > MAX_BODY_BYTES:
                raise _no_answer(f"after which the next request would have more than {MAX_BODY_BYTES} bytes")
            self._keep(said)

    def _keep(self, said: Sequence[str]) -> None:
        """Store the rounds that are complete so far (`said`), in case the agent sends the same request again."""
        if self._is_only:
            self._memory.put(self._unfinished, Entry(tuple(said)))

    async def _round(self, body: bytes, number: int) -> Round | None:
        """Send the request of round `number`, and return the model's answer; None if the provider's response was not a
        model's answer and was passed on to the agent.
        """
        for again in range(TRIES, -1, -1):
            async with self._upstream.ask(body, number) as provider:
                if (
                    provider.status == 200
                    and _is_plain(provider.fields)
                    and _is_events(provider) == self._ask.is_stream
                ):
                    self._answer.begin_round()
                    return await (self._streamed if self._ask.is_stream else self._taken)(provider, number)
                if number == 1:
                    await self._pass_on(provider)
                    return None
                if provider.status == 200:
                    raise _no_answer("in a form that was not asked for")
                failure = await _read(provider, MAX_ERROR_BYTES)
                if provider.status not in _PASSES or not again:
                    await self._fail(provider, failure)
                    return None
                delay = _delay(provider.fields, TRIES - again)
            await self._alive(delay)
        raise AssertionError("the last try has returned")

    async def _streamed(self, provider: ProviderAnswer, number: int) -> Round | None:
        if number == 1:
            await self._agent.begin(provider.status, provider.fields, None)
        events = Events()
        size = 0
        async for piece in provider.pieces():
            size += len(piece)
            if size > MAX_ROUND_BYTES:
                raise _no_answer(f"of more than {MAX_ROUND_BYTES} bytes")
            with _understanding():
                told = await self._fed(events.feed(piece))
            if told:
                await self._agent.write(told)
        if events.rest.strip() and number == 1 and self._answer.is_untouched():
            await self._agent.write(events.rest)
        return await self._ended(size)

    async def _fed(self, events: Sequence[Event]) -> bytes:
        """Return the bytes that the agent sees of these events of the provider's stream."""
        size = sum(len(event.raw) for event in events)
        return await self._worked(size, lambda: b"".join([self._answer.feed(event) for event in events]))

    async def _taken(self, provider: ProviderAnswer, number: int) -> Round | None:
        body = await _read(provider, MAX_WHOLE_BYTES)
        with _understanding():
            document = await self._worked(len(body), functools.partial(_object, body))
        if document is None:
            if number > 1:
                raise _no_answer("that is no JSON object")
            await self._send(provider, body)
            return None
        self._whole = _Whole(provider, body, document)
        with _understanding():
            await self._worked(len(body), functools.partial(self._answer.take, document))
        return await self._ended(len(body))

    async def _ended(self, size: int) -> Round:
        with _understanding():
            found = await self._worked(size, self._answer.end_round)
        if len(found.calls) > MAX_ASKED:
            raise _no_answer(f"with more than {MAX_ASKED} calls")
        return found

    async def _finish(
        self, hidden: Sequence[str], said: Sequence[str], answered: Sequence[Answered], *, is_over: bool
    ) -> None:
        """Send the end of the answer that the agent sees. Remember the hidden rounds, which replace the answer in the
        agent's next requests.
        """
        size = sum(map(len, said))
        if is_over and (hidden or answered or not self._memory.is_empty):
            with _understanding():
                entries = await self._worked(size, functools.partial(self._ask.entry, self._answer, said, answered))
            if hidden or answered:
                for key, entry in entries.items():
                    self._memory.add(key, entry)
            else:
                self._memory.doubt(entries)
        if is_over and self._is_only:
            self._memory.forget(self._unfinished)
        if self._whole is None:
            with _understanding():
                end = await self._worked(size, self._answer.end)
            await self._agent.write(end)
            await self._agent.end()
            return
        with _understanding():
            body = await self._worked(size, functools.partial(self._whole.told_as, self._answer))
        await self._send(self._whole.provider, body)

    async def _call_all(self, said: Sequence[str], found: Round, *, is_last: bool) -> list[Answered]:
        """Make all calls of Aileron's tools in a round concurrently, and return them with their results. Keep the
        agent's connection alive meanwhile.
        """
        answers: dict[int, Answered] = {}
        begun: set[int] = set()
        limiter = anyio.CapacityLimiter(AT_ONCE)

        async def one(number: int, call: Called) -> None:
            async with limiter:
                begun.add(number)
                answers[number] = Answered(call, *await self._call(call))

        try:
            async with self._kept_alive(), anyio.create_task_group() as tasks:
                for number, call in enumerate(found.calls):
                    if is_last:
                        answers[number] = Answered(call, _ROUNDS_OVER, True)
                    elif number >= MAX_CALLS:
                        answers[number] = Answered(call, _TOO_MANY, True)
                    else:
                        tasks.start_soon(one, number, call)
        except anyio.get_cancelled_exc_class():
            if answers or begun:  # if the agent sends the request again, no call is made twice
                known = [
                    answers.get(number) or Answered(call, _INTERRUPTED if number in begun else _NOT_BEGUN, True)
                    for number, call in enumerate(found.calls)
                ]
                if not found.theirs:
                    self._keep((*said, *found.said, *self._ask.results(known)))
            raise
        return [answers[number] for number in range(len(found.calls))]

    async def _call(self, call: Called) -> tuple[str, bool]:
        try:
            arguments = await self._worked(len(call.arguments), functools.partial(loaded, call.arguments))
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return _NO_OBJECT, True
        return await self._tools.call(self._session, self._ask.wire, call.tool, arguments)

    @contextlib.asynccontextmanager
    async def _kept_alive(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sign_life)
            yield
            tasks.cancel_scope.cancel()

    async def _sign_life(self) -> None:
        while True:
            self._agent.wait_for_tools(LONGEST_WHOLE_S)
            await anyio.sleep(self._keep_alive_s)
            if self._ask.is_stream:
                await self._agent.write(self._answer.keep_alive)

    async def _alive(self, delay_s: float) -> None:
        async with self._kept_alive():
            await anyio.sleep(delay_s)

    async def _pass_on(self, provider: ProviderAnswer) -> None:
        """Pass a provider's response that is not a model's answer on to the agent, unchanged."""
        await self._agent.begin(provider.status, provider.fields, _length(provider.fields))
        async for piece in provider.pieces():
            await self._agent.write(piece)
        await self._agent.end()

    async def _fail(self, provider: ProviderAnswer, body: bytes) -> None:
        """Send the agent a provider's error response (`body`) in a later round, after the part of the answer that it
        already got.
        """
        if self._ask.is_stream:
            await self._agent.write(self._answer.failure(body))
            await self._agent.end()
        else:
            await self._send(provider, body)

    async def _send(self, provider: ProviderAnswer, body: bytes) -> None:
        await self._agent.begin(provider.status, provider.fields, len(body))
        await self._agent.write(body)
        await self._agent.end()


def _object(body: bytes) -> JSONObject | None:
    """Decode the body of a provider's response that is not streamed. Return None if it is not a JSON object. Raises
    ValueError or RecursionError for JSON that other programs could read differently.
    """
    try:
        document = loaded(body.decode("utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return document if isinstance(document, dict) else None


@contextlib.contextmanager
def _understanding() -> Iterator[None]:
    """Return a context manager that turns every error in parsing a provider's response into
    AileronError(network_error).
    """
    try:
        yield
    except EventError as error:
        raise _no_answer(str(error)) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _no_answer("that cannot be understood") from error


def _is_plain(fields: Fields) -> bool:
    return all(value.lower() == b"identity" for name, value in fields if name.lower() == b"content-encoding")


def _is_events(provider: ProviderAnswer) -> bool:
    kinds = [value for name, value in provider.fields if name.lower() == b"content-type"]
    return any(kind.strip().lower().startswith(b"text/event-stream") for kind in kinds)


def _length(fields: Fields) -> int | None:
    if any(name.lower() == b"transfer-encoding" for name, _ in fields):
        return None
    said = next((value for name, value in fields if name.lower() == b"content-length"), b"")
    return int(said) if said.isdigit() else None


def _delay(fields: Fields, tried: int) -> float:
    """Return the seconds to wait before a round is sent again: the time that the provider states in Retry-After, or one
    that grows with the number of tries, but at most _MAX_DELAY_S.
    """
    said = next((value for name, value in fields if name.lower() == b"retry-after"), b"")
    return min(float(said) if said.isdigit() else 0.5 * 2.0**tried, _MAX_DELAY_S)


async def _read(provider: ProviderAnswer, most: int) -> bytes:
    body = bytearray()
    async for piece in provider.pieces():
        body += piece
        if len(body) > most:
            raise _no_answer(f"of more than {most} bytes")
    return bytes(body)


def _no_answer(how: str) -> AileronError:
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"the API gave an answer {how}, and the session's requests have tools of Aileron's in them",
        boundary=Boundary.EXTERNAL,
        details={"phase": "exchange"},
    )

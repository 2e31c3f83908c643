"""WebSockets at the engine, against the `websockets` library: handshake, messages, credentials, denials, the record."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import msgspec
import pytest

from aileron.egress import Meter
from aileron.egress.journal import RequestIntent, RequestReport
from aileron.egress.response import EgressResponse
from aileron.egress.scrub import ENCODINGS, Needles
from aileron.egress.websocket import WebSocketRequest
from aileron.egress.websocket_messages import Closed, Part, WebSocket
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import CANARY, HOST, World, reason_of, use
from tests.support.upstream import Authority, Upstream, answer
from tests.support.waiting import give_turns, jump, wait_until_async
from tests.support.websocket_server import LARGE_BYTES, WebSocketServer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[..., Upstream]
TOKEN = CANARY.decode()
PONG_BYTES = 2  # RFC 6455 section 5.2: without a mask, and as empty as the ping

_names = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebSocketServer, Authority]]:
    """Start one server for all tests of this module."""
    authority = Authority(tmp_path_factory.mktemp("websocket"))
    with WebSocketServer(authority.server_context(HOST)) as running:
        yield running, authority


class Service:
    """The server, and an engine that knows it."""

    def __init__(self, server: WebSocketServer, world: World) -> None:
        self.server = server
        self.world = world
        self.name = f"n{next(_names)}"

    @property
    def asked(self) -> object:
        """The request that arrived under this test's name."""
        return self.server.asked[self.name]

    def url(self, what: str, query: str = "") -> str:
        """Return the URL of one of the server's behaviours."""
        return f"wss://{HOST}:{self.server.port}/{what}/{self.name}{query}"

    def grant(self, **options: object) -> Grant:
        """Return a grant for the server."""
        return self.world.grant(HostPort(HOST, self.server.port), **options)  # type: ignore[arg-type]


@pytest.fixture
async def service(server: tuple[WebSocketServer, Authority]) -> AsyncIterator[Service]:
    """Start an engine of the test's own for the server."""
    running, authority = server
    running.accepted_token = TOKEN
    world = World(authority.ca_pem)
    yield Service(running, world)
    await world.egress.aclose()
    assert world.vault.out == 0, "a loan was not given back"


class Talk:
    """An open WebSocket, with whole messages."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket

    async def send(self, message: str | bytes) -> None:
        """Send a message in one part."""
        data = message.encode() if isinstance(message, str) else message
        await self.websocket.send(Part(data, isinstance(message, str), is_last=True))

    async def receive(self) -> str | bytes | Closed:
        """Return the next message with all its parts, or the close."""
        parts = []
        with anyio.fail_after(10):
            while isinstance(heard := await self.websocket.receive(), Part):
                parts.append(heard.data)
                if heard.is_last:
                    whole = b"".join(parts)
                    return whole.decode() if heard.is_text else whole
        return heard


@contextlib.asynccontextmanager
async def opened(
    world: World, url: str, grant: Grant, *, meter: Meter | None = None, **asked: object
) -> AsyncIterator[Talk]:
    """Open a WebSocket, attended as the broker does; an error of `attend` is raised when the block ends."""
    deadline = anyio.current_time() + world.timeout_s
    request = WebSocketRequest(url, **asked)  # type: ignore[arg-type]
    problems: list[AileronError] = []

    async def attend(websocket: WebSocket) -> None:
        try:
            await websocket.attend()
        except AileronError as error:
            problems.append(error)

    async with world.egress.websockets.open(
        request, grant, meter or Meter(grant.budget), world.journal, deadline
    ) as websocket:
        assert isinstance(websocket, WebSocket), websocket
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attend, websocket)
            try:
                yield Talk(websocket)
            except (anyio.EndOfStream, AileronError) as error:
                problems += [error] if isinstance(error, AileronError) else []
            tasks.cancel_scope.cancel()
        if problems:
            raise problems[0]


async def refused(world: World, url: str, grant: Grant, *, meter: Meter | None = None, **asked: object) -> AileronError:
    """Open a WebSocket that must be refused, and return the error."""
    with pytest.raises(AileronError) as caught:
        async with opened(world, url, grant, meter=meter, **asked):
            pass
    return caught.value


async def until_closed(world: World, url: str, grant: Grant, *messages: str) -> None:
    """Send these messages, and read until the close."""
    async with opened(world, url, grant) as talk:
        for message in messages:
            await talk.send(message)
        while not isinstance(await talk.receive(), Closed):
            pass


async def broken(world: World, url: str, grant: Grant, *messages: str) -> AileronError:
    """Send these messages, and return the error that ends the WebSocket."""
    with pytest.raises(AileronError) as caught:
        await until_closed(world, url, grant, *messages)
    return caught.value


async def test_websocket_messages_go_both_ways_and_are_recorded(service: Service) -> None:
    """The positive control of this file: TLS verified, text and binary, one lookup, two rows, sizes of all frames."""
    world = service.world
    async with opened(
        world, service.url("echo"), service.grant(), headers=(("Origin", "https://app.example.com"),)
    ) as talk:
        await talk.send("grüße")
        assert await talk.receive() == "grüße"
        await talk.send(b"\0\xff")
        assert await talk.receive() == b"\0\xff"
        await talk.send("")
        assert await talk.receive() == ""
        await talk.websocket.close(1000, "enough")
        assert await talk.receive() == Closed(1000, "enough")

    asked = service.server.asked[service.name]
    assert asked.headers["Origin"] == "https://app.example.com"
    assert asked.headers["Host"] == f"{HOST}:{service.server.port}"
    assert "Sec-WebSocket-Extensions" not in asked.headers
    assert world.resolver.asked == [HOST]
    intent, report = world.journal.rows
    assert intent == RequestIntent(1, "WEBSOCKET", HostPort(HOST, service.server.port), f"/echo/{service.name}", None)
    assert isinstance(report, RequestReport)
    assert (report.status, report.address, report.failure, report.scrubbed) == (101, "127.0.0.1", None, 0)
    assert report.bytes_up == (6 + 7) + (6 + 2) + 6 + (6 + 8)
    assert report.bytes_down == (2 + 7) + (2 + 2) + 2 + (2 + 8)


async def test_a_websocket_message_sent_in_parts_is_one_message(service: Service) -> None:
    """A part may end inside a character; an incoming message is given out in parts."""
    async with opened(service.world, service.url("large"), service.grant()) as talk:
        assert await talk.receive() == bytes(LARGE_BYTES)
        assert await talk.receive() == "€" * (LARGE_BYTES // 3000 * 1000)
        euro = "€".encode()
        await talk.websocket.send(Part(b"5 " + euro[:1], is_text=True, is_last=False))
        await talk.websocket.send(Part(euro[1:], is_text=True, is_last=True))
        assert await talk.receive() == "5 €"


async def test_pings_are_answered_and_close_codes_are_relayed(service: Service) -> None:
    """The connector sees neither ping nor pong."""
    async with opened(service.world, service.url("ping"), service.grant()) as talk:
        assert await talk.receive() == "you are"
    async with opened(service.world, service.url("close", "?code=4001&reason=later"), service.grant()) as talk:
        assert await talk.receive() == Closed(4001, "later")


@pytest.mark.parametrize(("offered", "chosen"), [((), None), (("chat.v1", "chat.v2"), "chat.v1")], ids=["none", "two"])
async def test_subprotocols_are_offered_and_the_choice_is_reported(
    service: Service, offered: tuple[str, ...], chosen: str | None
) -> None:
    """The offer keeps its order."""
    async with opened(service.world, service.url("echo"), service.grant(), subprotocols=offered) as talk:
        assert talk.websocket.opened.subprotocol == chosen


@pytest.mark.parametrize(
    "form",
    [
        {"header": "Authorization", "format": "{key}"},
        {"header": "X-Key", "format": "{key}"},
        {"query": "key"},
    ],
    ids=["authorization", "header", "query"],
)
async def test_a_token_is_added_to_the_websocket_handshake_and_not_to_the_recorded_path(
    service: Service, form: dict[str, object]
) -> None:
    """The server refuses a handshake without the token. The recorded path does not contain the token."""
    world, lent = service.world, use("api_key", **form)
    grant = service.grant(credential=lent)
    async with opened(world, service.url("token"), grant, credential="api_key") as talk:
        await talk.send("in")
        assert await talk.receive() == "in"
    assert isinstance(world.journal.rows[0], RequestIntent)
    assert (world.journal.rows[0].path, world.journal.rows[0].identity) == (f"/token/{service.name}", str(lent.binding))

    async with world.egress.websockets.open(
        WebSocketRequest(service.url("token")), grant, Meter(Budget()), world.journal, anyio.current_time() + 10
    ) as response:
        assert isinstance(response, EgressResponse)
        assert response.status == 401
        assert b"".join([piece async for piece in response]) == b"who are you?"
    assert world.journal.last.status == 401


@pytest.mark.parametrize("form", ['{"type": "auth", "token": "{key}"}', "AUTH {key}"], ids=["json", "text"])
async def test_a_token_is_sent_in_the_first_message(service: Service, form: str) -> None:
    """The message is sent before the connector gets anything, and JSON forms escape the token; its echo is scrubbed."""
    world, lent = service.world, use(first_message=form)
    service.server.accepted_token = TOKEN if form.startswith("AUTH") else TOKEN.replace('"', '\\"')
    async with opened(world, service.url("first"), service.grant(credential=lent), credential="api_key") as talk:
        assert await talk.receive() == "welcome"
        await talk.send("mine")
        assert await talk.receive() == "mine"
    asked = service.server.asked[service.name]
    assert asked.messages == [form.replace("{key}", service.server.accepted_token), "mine"]
    assert TOKEN not in str(asked.headers)

    async with opened(world, service.url("first"), service.grant(credential=lent)) as talk:
        await talk.send("mine")
        assert await talk.receive() == Closed(4401, "who are you?")


async def test_a_credential_for_the_first_websocket_message_is_refused_in_an_http_request(service: Service) -> None:
    """A request has no place for it."""
    grant = service.grant(credential=use(first_message="AUTH {key}"))
    url = service.url("echo").replace("wss", "https")

    error = await service.world.refusal(None, url=url, grant=grant, credential="api_key")
    assert reason_of(error) == "credential_not_granted"


@pytest.mark.abuse_case("X6")
@pytest.mark.parametrize(("name", "encode"), ENCODINGS, ids=[name for name, _ in ENCODINGS])
async def test_a_secret_that_comes_back_is_masked_in_every_form(service: Service, name: str, encode: object) -> None:
    """The secret is in one frame or split over the frames of a message. This step did not send the secret."""
    world = service.world
    world.vault.bound[HostPort(HOST, service.server.port)] = Needles([CANARY])
    forms = [form for form in encode(CANARY) if len(form) > 7]  # type: ignore[operator]
    async with opened(world, service.url("echo"), service.grant()) as talk:
        for form in forms:
            await talk.send(b"<" + form + b">")
            assert await talk.receive() == b"<" + b"*" * len(form) + b">", name
        await talk.websocket.send(Part(b"a" + forms[0][:5], is_text=False, is_last=False))
        await talk.websocket.send(Part(forms[0][5:] + b"z", is_text=False, is_last=True))
        assert await talk.receive() == b"a" + b"*" * len(forms[0]) + b"z"
    assert world.journal.last.scrubbed == len(forms) + 1


@pytest.mark.abuse_case("X6")
async def test_a_lent_secret_is_masked_in_text_binary_and_close_messages(service: Service) -> None:
    """The server reflects the handshake's own secret."""
    grant = service.grant(credential=use(query="key"))
    async with opened(service.world, service.url("reflect"), grant, credential="api_key") as talk:
        assert TOKEN not in str(await talk.receive())
        path = await talk.receive()
        assert isinstance(path, bytes)
        assert path.startswith(f"/reflect/{service.name}?key=****".encode())
        await talk.websocket.close(1000, f"is {TOKEN}")
        assert await talk.receive() == Closed(1000, "is " + "*" * len(CANARY))


async def test_a_secret_bound_while_the_websocket_is_open_is_masked(service: Service) -> None:
    """The needles are read anew for each message; a locked vault leaves the known ones in use."""
    world, destination = service.world, HostPort(HOST, service.server.port)
    async with opened(world, service.url("echo"), service.grant()) as talk:
        await talk.send(TOKEN)
        assert await talk.receive() == TOKEN
        world.vault.bound[destination] = Needles([CANARY])
        await talk.send(TOKEN)
        assert await talk.receive() == "*" * len(CANARY)
        world.vault.locked = True
        await talk.send(TOKEN)
        assert await talk.receive() == "*" * len(CANARY)
    error = await refused(world, service.url("echo"), service.grant())
    assert error.failure.failure_class is FailureClass.VAULT_LOCKED


@pytest.mark.abuse_case("X6")
async def test_a_lent_secret_is_masked_after_its_binding_is_gone(service: Service) -> None:
    """The secret was sent, so it can come back for as long as the step lasts."""
    world, destination = service.world, HostPort(HOST, service.server.port)
    world.vault.bound[destination] = Needles([CANARY])
    grant = service.grant(credential=use(header="X-Key", format="{key}"))
    async with opened(world, service.url("token"), grant, credential="api_key") as talk:
        del world.vault.bound[destination]
        await talk.send(TOKEN)
        assert await talk.receive() == "*" * len(CANARY)


@pytest.mark.abuse_case("X2")
@pytest.mark.parametrize(
    ("url", "asked", "reason"),
    [
        ("https://HOST/", {}, "url_scheme"),
        ("ftp://HOST/", {}, "url_scheme"),
        ("wss://user@HOST/", {}, "url_userinfo"),
        ("wss://HOST/#x", {}, "url_fragment"),
        ("wss://HOST/../x", {}, "url_path"),
        ("wss://HOST:0/", {}, "url_port"),
        ("wss://other.example.com/", {}, "host_not_granted"),
        ("ws://HOST/", {}, "plain_http"),
        ("wss://HOST/", {"credential": "basic"}, "credential_not_granted"),
        ("wss://HOST/", {"headers": (("Upgrade", "h2c"),)}, "upgrade"),
        ("wss://HOST/", {"headers": (("sec-websocket-key", "x"),)}, "upgrade"),
        ("wss://HOST/", {"headers": (("Sec_WebSocket_Extensions", "permessage-deflate"),)}, "upgrade"),
        ("wss://HOST/", {"headers": (("Sec-WebSocket-Protocol", "a"),)}, "upgrade"),
        ("wss://HOST/", {"headers": (("x", "a\r\nb"),)}, "header_value"),
        ("wss://HOST/", {"subprotocols": ("a, b",)}, "header_value"),
        ("wss://HOST/", {"subprotocols": ("a",) * 17}, "header_value"),
    ],
)
async def test_a_refused_websocket_causes_no_lookup(
    service: Service, url: str, asked: dict[str, object], reason: str
) -> None:
    """The denial with its reason is the only record."""
    world, port = service.world, service.server.port
    where = f"{HOST}:80" if url.startswith("ws:") else f"{HOST}:{port}"
    grant = world.grant(HostPort(HOST, port), HostPort(HOST, 80))
    error = await refused(world, url.replace("HOST:0", f"{HOST}:0").replace("HOST", where), grant, meter=None, **asked)

    assert reason_of(error) == reason
    assert (world.resolver.asked, world.journal.rows, world.vault.lent) == ([], [], 0)
    (denial,) = world.journal.denials
    assert (denial.method, denial.reason) == ("WEBSOCKET", reason)


async def test_an_http_request_cannot_open_a_websocket(service: Service) -> None:
    """The error names the right host function."""
    error = await service.world.refusal(None, url=service.url("echo"), grant=service.grant())
    assert reason_of(error) == "url_scheme"
    assert "host function websocket" in str(error)


@pytest.mark.abuse_case("X8")
async def test_a_preview_gets_no_websocket(service: Service) -> None:
    """The effect of a message cannot be known in advance; the approved step itself gets a WebSocket."""
    grant = service.grant()
    error = await refused(service.world, service.url("echo"), msgspec.structs.replace(grant, read_only=True))
    assert reason_of(error) == "read_only"
    async with opened(service.world, service.url("echo"), grant):
        pass


async def test_a_websocket_without_tls_is_opened_if_the_user_allowed_it(
    service: Service, tls_upstream: MakeUpstream
) -> None:
    """The user can allow it for loopback only, as for http://."""
    with WebSocketServer(None) as plain:
        url = f"ws://{HOST}:{plain.port}/echo/plain"
        destination = HostPort(HOST, plain.port)
        async with opened(service.world, url, service.world.grant(destination, plain=True)) as talk:
            await talk.send("x")
            assert await talk.receive() == "x"
        assert reason_of(await refused(service.world, url, service.world.grant(destination))) == "plain_http"


@pytest.mark.abuse_case("X3")
@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(requests=0), "requests"),
        (Budget(bytes_up=100), "bytes_up"),
        (Budget(bytes_down=100), "bytes_down"),
    ],
    ids=["requests", "up", "down"],
)
async def test_a_budget_ends_a_websocket(service: Service, budget: Budget, limit: str) -> None:
    """Control: a larger budget lets the same message go there and back."""
    async with opened(service.world, service.url("echo"), service.grant()) as talk:
        await talk.send("x" * 200)
        assert await talk.receive() == "x" * 200

    error = await broken(service.world, service.url("echo"), service.grant(budget=budget), "x" * 200)
    assert error.failure.details["limit"] == limit


async def test_a_websocket_that_cannot_be_recorded_is_not_opened(world: World, tls_upstream: MakeUpstream) -> None:
    """The row is written after the checks and before the connection."""
    before: list[tuple[int, int]] = []

    def disk_full() -> None:
        before.append((len(world.resolver.asked), upstream.connections))
        raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger cannot be written: no space left on device")

    with tls_upstream(lambda _seen: answer(status="403 No")) as upstream:
        world.journal.on_sending = disk_full
        url, grant = f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream)
        error = await refused(world, url, grant)
        assert error.failure.failure_class is FailureClass.INTERNAL_ERROR
        assert (before, upstream.connections, world.journal.rows) == ([(1, 0)], 0, [])

        world.journal.on_sending = None
        async with world.egress.websockets.open(
            WebSocketRequest(url), grant, Meter(grant.budget), world.journal, anyio.current_time() + world.timeout_s
        ) as response:
            assert isinstance(response, EgressResponse)
        assert (upstream.connections, len(world.journal.rows)) == (1, 2)


async def test_a_websocket_ends_at_the_deadline(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector waits for a message that does not come; the record has the failure."""

    async def wait_open() -> None:
        async with opened(service.world, service.url("echo"), service.grant()) as talk:
            await give_turns()
            jump(monkeypatch, service.world.timeout_s)
            await talk.receive()

    with pytest.raises(AileronError) as caught:
        await wait_open()
    error = caught.value
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert service.world.journal.last.failure is FailureClass.NETWORK_ERROR


async def test_a_websocket_to_a_silent_service_that_answers_pings_stays_open(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service sends nothing but pongs: after three pings the WebSocket still works."""
    monkeypatch.setattr("aileron.egress.websocket_messages.PING_EVERY_S", 0.02)
    monkeypatch.setattr("aileron.egress.websocket_messages.PONG_WITHIN_S", 60.0)
    async with opened(service.world, service.url("echo"), service.grant()) as talk:
        await wait_until_async(lambda: talk.websocket.bytes_down >= 3 * PONG_BYTES, "three pings are answered")
        await talk.send("x")
        assert await talk.receive() == "x"


async def test_a_connector_that_reads_slowly_makes_the_service_wait(service: Service) -> None:
    """A bounded number of messages waits here while the service has sent them all; all arrive in order."""
    async with opened(service.world, service.url("many", "?count=3000"), service.grant()) as talk:
        assert await anyio.to_thread.run_sync(service.server.sent[service.name].wait, 10)
        await anyio.wait_all_tasks_blocked()  # not for the network: everything is here
        assert 0 < talk.websocket.bytes_down < 3000 * 5
        assert [await talk.receive() for _ in range(3000)] == [str(number) for number in range(3000)]


async def test_a_connection_lost_without_a_close_frame_is_a_network_error(service: Service) -> None:
    """The connector must not take it for a regular close."""
    error = await broken(service.world, service.url("cut"), service.grant(), "x")
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR


async def test_a_websocket_text_message_that_is_not_utf_8_is_not_sent(service: Service) -> None:
    """A connector that is not in Python can send any bytes."""
    async with opened(service.world, service.url("echo"), service.grant()) as talk:
        with pytest.raises(AileronError, match="not UTF-8"):
            await talk.websocket.send(Part(b"\xff", is_text=True, is_last=True))


@pytest.mark.parametrize("status", ["403 Forbidden", "302 Found"], ids=["forbidden", "redirect"])
async def test_a_refused_handshake_is_relayed_if_the_response_body_is_small(
    world: World, tls_upstream: MakeUpstream, status: str
) -> None:
    """Status and body are relayed and scrubbed, as for a request; a body above 64 KiB is an error."""

    async def answered(size: int) -> tuple[int, bytes]:
        said = answer(b"x" * size + CANARY, f"Location: /{TOKEN[:6]}", status=status)
        with tls_upstream(lambda _seen: said) as upstream:
            world.vault.bound[HostPort(HOST, upstream.port)] = Needles([CANARY])
            request, grant = WebSocketRequest(f"wss://{HOST}:{upstream.port}/"), world.grant_for(upstream)
            deadline = anyio.current_time() + world.timeout_s
            async with world.egress.websockets.open(
                request, grant, Meter(grant.budget), world.journal, deadline
            ) as response:
                assert isinstance(response, EgressResponse)
                return response.status, b"".join([piece async for piece in response])

    assert await answered(10) == (int(status[:3]), b"x" * 10 + b"*" * len(CANARY))
    with pytest.raises(AileronError, match="more than 64 KiB"):
        await answered(100_000)

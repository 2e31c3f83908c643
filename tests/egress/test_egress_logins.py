"""Logged-in streams at the engine: who gets one, what is recorded before, and how a refusal ends the step.

The process that logs in is scripted here: aileron/logins has its own tests, and tests/e2e has both together.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from aileron.egress import Meter
from aileron.egress.attempts import MAX_SECRETS, PAUSE_MOST_S, PAUSE_S, Account, Attempts
from aileron.egress.journal import EffectsReport, MailIntent, MailReport, RequestIntent, RequestReport
from aileron.egress.rules import EgressRequest
from aileron.egress.stream import StreamRequest
from aileron.logins.login_messages import (
    Effects,
    Envelope,
    Failed,
    FromLogin,
    LoggedIn,
    Order,
    Over,
    Problem,
    Submitted,
)
from aileron.model.failure import AileronError, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import Budget, Grant
from aileron.model.secret import Secret
from tests.egress.conftest import CANARY, HOST, World, need, reason_of, use
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio
SERVICE = b"220 it greets whoever connects\r\n"


class Talk:
    """A login that sends the messages of a test; its stream's other end is `far`, closed at once if the messages end it."""

    def __init__(self, script: list[FromLogin | None], door: Door) -> None:
        self._door = door
        self.stream, self.far = socket.socketpair()
        self.stream.setblocking(False)
        self.far.settimeout(10)
        self.acks = 0
        self.is_closed = False
        self._said: asyncio.Queue[FromLogin | None] = asyncio.Queue()
        for message in script:
            self.say(message)
        self._is_ended = bool(script) and (script[-1] is None or isinstance(script[-1], Over))

    def say(self, what: FromLogin | None) -> None:
        self._said.put_nowait(what)

    async def begin(self, order: Order, service: socket.socket) -> None:
        self._door.orders.append(order)
        await anyio.wait_readable(service)
        self._door.heard.append(service.recv(100))
        service.close()
        if self._is_ended:
            self.far.close()

    async def hear(self) -> FromLogin | None:
        return await self._said.get()

    async def noted(self) -> None:
        self.acks += 1

    def close(self) -> None:
        self.stream.close()
        self.far.close()
        self.is_closed = True


class Door:
    """The door at which logins are ordered. `scripts`: the messages of each; the last script serves all further logins."""

    def __init__(self, *scripts: list[FromLogin | None]) -> None:
        self.scripts = list(scripts)
        self.orders: list[Order] = []
        self.talks: list[Talk] = []
        self.heard: list[bytes] = []

    async def prepare(self, protocol: str) -> Talk:
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.talks.append(Talk(script, self))
        return self.talks[-1]


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[int]:
    """Run a service on a port of loopback that greets each client, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(greet, listening)
            yield listening.getsockname()[1]
            tasks.cancel_scope.cancel()


async def greet(listening: socket.socket) -> None:
    """Greet each client that connects, as a plain-text protocol does."""
    while True:
        await anyio.wait_readable(listening)
        connection, _ = listening.accept()
        connection.sendall(SERVICE)
        connection.detach()


def grant_at(port: int, protocol: str = "imap", *, kind: str = "login", **more: Any) -> Grant:
    """Return a grant for a login at this port; it is private, as every service of a test is on loopback."""
    at = HostPort(HOST, port)
    target = LoginTarget.parse(f"{protocol}://{at}")
    plain = frozenset({at}) if more.pop("is_plain_allowed", False) else frozenset()
    commands = more.pop("commands", ())
    bound = use(kind, logins=(target,), commands=commands)
    return Grant(hosts=(at,), private=frozenset({at}), plain=plain, credential=bound, **more)


async def opened(
    world: World, port: int, grant: Grant, *, command: str | None = None, meter: Meter | None = None
) -> bytes:
    """Open a stream, and read from it once."""
    deadline = anyio.current_time() + world.timeout_s
    asked = StreamRequest(HOST, port, True, command)
    meter = meter or Meter(grant.budget)
    async with world.egress.streams.open(asked, grant, meter, world.journal, deadline) as stream:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.attend)
                return await stream.receive()
        except BaseExceptionGroup as group:
            (error,) = group.exceptions
        raise error


async def refused(world: World, port: int, grant: Grant, **more: Any) -> AileronError:
    """Open a stream that must fail, and return its error."""
    with pytest.raises(AileronError) as caught:
        await opened(world, port, grant, **more)
    return caught.value


def a_world(door: Door) -> World:
    """Return a world whose vault lends a login."""
    world = World(None, door)
    world.vault.username = "me@example.com"
    return world


LOGS_IN: list[FromLogin | None] = [LoggedIn(mechanism="PLAIN"), Over(scrubbed=2)]


async def test_a_login_is_recorded_and_requested_and_its_stream_reaches_the_connector() -> None:
    """The positive control of this file: the engine adds no TLS and ignores the connector's `tls`; two rows have the details."""
    door = Door([LoggedIn(mechanism="PLAIN")])
    world = a_world(door)
    async with service() as port:
        grant = grant_at(port)
        deadline = anyio.current_time() + 20
        async with world.egress.streams.open(
            StreamRequest(HOST.upper(), port, False), grant, Meter(grant.budget), world.journal, deadline
        ) as stream:
            (talk,) = door.talks
            await stream.send(b"a SELECT x\r\n")
            assert talk.far.recv(100) == b"a SELECT x\r\n"
            talk.far.sendall(b"a OK\r\n")
            assert await stream.receive() == b"a OK\r\n"
            assert world.vault.out == 0  # the loan is over once it was ordered
            talk.say(Over(scrubbed=2))
    assert door.heard == [SERVICE]
    (order,) = door.orders
    assert (order.username, order.secret, order.credential) == ("me@example.com", CANARY, "password")
    assert str(order.target) == f"imap+tls://{HOST}:{port}"
    assert not order.reads_only
    assert 0 < order.login_s <= 20 >= order.stream_s
    sent, done = world.journal.rows
    assert sent == RequestIntent(1, "IMAP", HostPort(HOST, port), "", "login/example/home")
    assert isinstance(done, RequestReport)
    assert (done.bytes_up, done.bytes_down, done.scrubbed, done.failure) == (12, 6, 2, None)
    assert talk.is_closed


@pytest.mark.parametrize(
    ("problem", "expected", "said"),
    [
        (Problem.REFUSED_CREDENTIAL, FailureClass.BINDING_FAILED, "aileron secret set"),
        (Problem.UNUSABLE_CREDENTIAL, FailureClass.BINDING_FAILED, "aileron secret set"),
        (Problem.NO_DATABASE, FailureClass.BINDING_FAILED, "; name the right one: `aileron binding rebind"),
        (Problem.MAY_WRITE, FailureClass.BINDING_FAILED, "or use another role: `aileron binding rebind"),
        (Problem.HOST_KEY, FailureClass.BINDING_FAILED, "--host-key"),
        (Problem.CERTIFICATE, FailureClass.NETWORK_ERROR, "run `aileron config set egress.ca_file FILE`"),
        (Problem.NOT_ENCRYPTED, FailureClass.NETWORK_ERROR, "why"),
        (Problem.WEAK_LOGIN, FailureClass.NETWORK_ERROR, "why"),
        (Problem.PROTOCOL, FailureClass.NETWORK_ERROR, "why"),
        (Problem.CLOSED, FailureClass.NETWORK_ERROR, "why"),
        (Problem.TOO_SLOW, FailureClass.NETWORK_ERROR, "why"),
        (Problem.NOT_ALLOWED, FailureClass.CAPABILITY_DENIED, "why"),
    ],
)
async def test_each_problem_of_a_login_has_its_failure_class(
    problem: Problem, expected: FailureClass, said: str
) -> None:
    """Each problem occurs once before the stream is open, and once after."""
    scripts: tuple[list[FromLogin | None], ...] = (
        [Failed(problem=problem, message="this is why", said="535 no")],
        [LoggedIn(mechanism="PLAIN"), Over(scrubbed=0, problem=problem, message="this is why", said="535 no")],
    )
    for script in scripts:
        door = Door(script)
        world = a_world(door)
        async with service() as port:
            error = await refused(world, port, grant_at(port))
        failure = error.failure
        assert failure.failure_class is expected
        assert "this is why" in failure.message
        assert said in failure.message
        assert failure.retriable is (problem in (Problem.CLOSED, Problem.TOO_SLOW))
        assert world.journal.last.failure is expected
        assert failure.details["reason"] == problem.value
        assert CANARY.decode() not in str(failure)
        assert [denial.reason for denial in world.journal.denials] == (
            ["not_allowed"] if problem is Problem.NOT_ALLOWED else []
        )


async def test_the_fix_for_a_service_that_asks_for_a_weak_password_form_names_the_binding() -> None:
    """The login process does not know the binding. If no password form can be allowed, there is no fix."""
    told = []
    for may_allow in ("md5", "cleartext", None):
        door = Door([Failed(problem=Problem.WEAK_LOGIN, message="this is why", may_allow=may_allow)])
        world = a_world(door)
        async with service() as port:
            error = await refused(world, port, grant_at(port))
        told.append(error.failure.message.partition(" why")[2])
    assert told == [
        "; if you trust it with that: `aileron binding rebind login/example/home --allow-password-form md5`",
        "; if you trust it with that: `aileron binding rebind login/example/home --allow-password-form cleartext`",
        "",
    ]


async def test_a_login_process_that_dies_without_a_message_is_a_network_error() -> None:
    """The process was killed, before or after the stream was open."""
    for script in ([None], [LoggedIn(mechanism="PLAIN"), None]):
        door = Door(list(script))
        world = a_world(door)
        async with service() as port:
            error = await refused(world, port, grant_at(port))
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR


@pytest.mark.abuse_case("LP4", "LG1")
async def test_a_login_that_the_rules_forbid_is_refused_before_any_lookup() -> None:
    """Each case has its control: the same stream with one thing changed reaches the door."""
    ssh = ("git-upload-pack 'team/*.git'",)
    ask = "git-upload-pack 'team/a.git'"
    cases: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ("plain_http", {"protocol": "imap+plain"}, {"protocol": "imap+plain", "is_plain_allowed": True}, {}),
        ("read_only", {"protocol": "redis", "read_only": True}, {"protocol": "imap", "read_only": True}, {}),
        ("login_command", {"protocol": "ssh"}, {"protocol": "ssh", "commands": ssh}, {"command": ask}),
        (
            "login_command",
            {"protocol": "ssh", "commands": ("other",)},
            {"protocol": "ssh", "commands": ssh},
            {"command": ask},
        ),
        (
            "read_only",
            {"protocol": "ssh", "commands": ("git-receive-pack '*'",), "read_only": True},
            {"protocol": "ssh", "commands": ("git-receive-pack '*'",)},
            {"command": "git-receive-pack 'team/a.git'"},
        ),
        (
            "login_command",
            {"protocol": "ssh", "commands": ("git-upload-pack 'b'",), "read_only": True},
            {"protocol": "ssh", "commands": ssh, "read_only": True},
            {"command": ask},
        ),
    ]
    for reason, wrong, right, more in cases:
        door = Door(list(LOGS_IN))
        world = a_world(door)
        async with service() as port:
            error = await refused(world, port, grant_at(port, **wrong), **more)
            assert reason_of(error) == reason
            assert not world.resolver.asked
            assert not world.vault.lent
            assert [denial.reason for denial in world.journal.denials] == [reason]
            assert await opened(world, port, grant_at(port, **right), **more) == b""
            assert len(door.orders) == 1
            assert door.orders[0].reads_only is bool(right.get("read_only"))


@pytest.mark.abuse_case("LP4")
async def test_a_remote_command_needs_an_ssh_login_and_a_granted_host() -> None:
    """The positive control is the test above."""
    world = a_world(Door(list(LOGS_IN)))
    async with service() as port:
        assert reason_of(await refused(world, port, grant_at(port), command="ls")) == "login_command"
        other = Grant(hosts=(HostPort(HOST, port),), private=frozenset({HostPort(HOST, port)}))
        assert reason_of(await refused(world, port, other, command="ls")) == "login_command"
        credential = grant_at(port).credential
        assert reason_of(await refused(world, port, Grant(hosts=(), credential=credential))) == "host_not_granted"
        # to a host of the same step where it has no login, there is no stream as ever
        elsewhere = HostPort(HOST, port + 1 if port < 65535 else port - 1)
        both = Grant(hosts=(elsewhere,), private=frozenset({elsewhere}), credential=credential)
        assert reason_of(await refused(world, elsewhere.port, both)) == "stream_credential"


@pytest.mark.abuse_case("LP4")
@pytest.mark.parametrize("others", [0, 1], ids=["one login", "two logins"])
async def test_no_http_request_is_sent_to_a_host_and_port_with_a_login(others: int) -> None:
    """The service there could read a request as commands of its own."""
    world = a_world(Door(list(LOGS_IN)))
    async with service() as port:
        logins = tuple(LoginTarget.parse(f"imap://{HOST}:{login_port}") for login_port in (port, 2)[: 1 + others])
        grant = msgspec.structs.replace(grant_at(port), credential=use("login", logins=logins))
        request = EgressRequest(method="GET", url=f"https://{HOST}:{port}/", headers=(), credential=None, body=None)
        with pytest.raises(AileronError) as caught:
            async with world.egress.open(request, grant, Meter(grant.budget), world.journal, anyio.current_time() + 5):
                pass
        assert reason_of(caught.value) == "login_request"
        assert not world.resolver.asked


@pytest.mark.abuse_case("LP4")
async def test_a_locked_vault_is_reported_before_anything_is_connected() -> None:
    """The behaviour is that of an HTTP request."""
    door = Door(list(LOGS_IN))
    world = a_world(door)
    world.vault.locked = True
    async with service() as port:
        error = await refused(world, port, grant_at(port))
    assert error.failure.failure_class is FailureClass.VAULT_LOCKED
    assert not door.orders
    assert not world.journal.rows


async def test_an_oauth2_token_is_checked_for_renewal_before_it_is_lent_to_a_login() -> None:
    """A password does not expire by itself, so it is lent directly."""
    for kind, asked, credential in (("oauth2", 1, "token"), ("login", 0, "password")):
        door = Door(list(LOGS_IN))
        world = a_world(door)
        async with service() as port:
            await opened(world, port, grant_at(port, kind=kind))
        assert world.vault.asked_ready == asked
        assert door.orders[0].credential == credential


@pytest.mark.abuse_case("LP6")
async def test_mail_is_recorded_before_it_is_sent_and_a_failing_record_stops_it() -> None:
    """The login process sends the mail only after the engine acknowledges the record."""
    notes: list[FromLogin] = [
        Envelope(sender="a@example.com", recipients=("b@example.com",), size=100),
        Submitted(size=98, code=250),
    ]
    door = Door([LoggedIn(mechanism="PLAIN"), *notes, Over(scrubbed=0)], [LoggedIn(mechanism="PLAIN"), *notes])
    world = a_world(door)
    acks: list[int] = []
    world.journal.on_mail = lambda: acks.append(door.talks[-1].acks)
    async with service() as port:
        await opened(world, port, grant_at(port, "smtp"))
    assert world.journal.mail == [MailIntent(1, "a@example.com", ("b@example.com",), 100), MailReport(1, 98, 250)]
    assert acks == [0]
    assert door.talks[-1].acks == 2

    def full() -> None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the disk is full")

    world.journal.on_mail = full
    async with service() as port:
        error = await refused(world, port, grant_at(port, "smtp"))
    assert "the disk is full" in error.failure.message
    assert door.talks[-1].acks == 0
    assert door.talks[-1].is_closed


def previewed_at(port: int, **more: Any) -> Grant:
    """Return a grant like `grant_at`, for an operation that changes only what a person saw."""
    grant = grant_at(port, "postgres", **more)
    assert grant.credential is not None
    return msgspec.structs.replace(grant, credential=msgspec.structs.replace(grant.credential, login="previewed"))


@pytest.mark.parametrize(
    ("protocol", "login", "is_let"),
    [
        ("postgres", "previewed", True),
        ("mysql", "previewed", False),
        ("imap", "previewed", False),
        ("mysql", "read_only", True),
        ("redis", "read_only", False),
    ],
)
async def test_a_login_with_a_restriction_that_its_protocol_cannot_enforce_opens_no_stream(
    protocol: str, login: str, is_let: bool
) -> None:
    """The login is refused before a connection, even if the manifest was parsed before the rule existed."""
    door = Door(list(LOGS_IN))
    world = a_world(door)
    async with service() as port:
        grant = grant_at(port, protocol)
        assert grant.credential is not None
        grant = msgspec.structs.replace(grant, credential=msgspec.structs.replace(grant.credential, login=login))
        meter = Meter(grant.budget, f"sha256:{'1' * 64}")
        if is_let:
            await opened(world, port, grant, meter=meter)
        else:
            assert reason_of(await refused(world, port, grant, meter=meter)) == "login_role"
    assert len(door.orders) == int(is_let)


async def test_a_change_that_the_approver_saw_is_recorded_and_committed_once() -> None:
    """A second stream of the step is refused, and so is any stream if nobody saw the effects."""
    effects = Effects(digest=f"sha256:{'1' * 64}", text="1 row of t updated")
    door = Door([LoggedIn(mechanism="SCRAM-SHA-256"), effects, Over(scrubbed=0)])
    world = a_world(door)
    async with service() as port:
        grant = previewed_at(port)
        meter = Meter(grant.budget, effects.digest)
        await opened(world, port, grant, meter=meter)
        again = await refused(world, port, grant, meter=meter)
        never = await refused(world, port, grant)
    [order] = door.orders
    assert (order.previewed, order.reads_only, order.seen) == (True, False, effects.digest)
    assert world.journal.told == [EffectsReport(1, effects.digest, effects.text)]
    assert door.talks[-1].acks == 1
    assert reason_of(again) == reason_of(never) == "not_seen"


@pytest.mark.abuse_case("LC6")
async def test_effects_that_differ_from_the_approved_preview_are_not_committed() -> None:
    """The login process waits for an acknowledgement and gets none; nor does it in an operation without preview."""
    effects = Effects(digest=f"sha256:{'2' * 64}", text="all rows of t deleted")
    for seen in (f"sha256:{'1' * 64}", None):
        door = Door([LoggedIn(mechanism="SCRAM-SHA-256"), effects])
        world = a_world(door)
        async with service() as port:
            grant = grant_at(port, "postgres") if seen is None else previewed_at(port)
            await refused(world, port, grant, meter=Meter(grant.budget, seen))
        assert world.journal.told == []
        assert door.talks[-1].acks == 0


async def test_a_preview_reports_its_effects_and_needs_no_digest_of_an_earlier_preview() -> None:
    """A preview's login is read-only, and there is no digest of an earlier preview to compare with."""
    effects = Effects(digest=f"sha256:{'1' * 64}", text="1 row of t updated")
    door = Door([LoggedIn(mechanism="SCRAM-SHA-256"), effects, Over(scrubbed=0)])
    world = a_world(door)
    async with service() as port:
        await opened(world, port, previewed_at(port, read_only=True))
    [order] = door.orders
    assert (order.previewed, order.reads_only, order.seen) == (True, True, None)
    assert [report.digest for report in world.journal.told] == [effects.digest]


async def test_a_login_process_that_dies_during_a_commit_leaves_the_outcome_unknown() -> None:
    """The process is killed before or after the commit. A preview commits nothing, so its outcome is known."""
    effects = Effects(digest=f"sha256:{'1' * 64}", text="1 row of t updated")
    for read_only, failure in ((False, FailureClass.OUTCOME_UNKNOWN), (True, FailureClass.NETWORK_ERROR)):
        door = Door([LoggedIn(mechanism="SCRAM-SHA-256"), effects, None])
        world = a_world(door)
        async with service() as port:
            grant = previewed_at(port, read_only=read_only)
            error = await refused(world, port, grant, meter=Meter(grant.budget, effects.digest))
        assert error.failure.failure_class is failure


@pytest.mark.parametrize(
    ("problem", "failure"),
    [
        (Problem.EFFECTS_CHANGED, FailureClass.HASH_MISMATCH),
        (Problem.OUTCOME_UNKNOWN, FailureClass.OUTCOME_UNKNOWN),
    ],
)
async def test_a_commit_with_changed_effects_or_an_unknown_outcome_is_reported_as_not_retriable(
    problem: Problem, failure: FailureClass
) -> None:
    """Each has its own failure class, and neither is retriable."""
    door = Door([LoggedIn(mechanism="SCRAM-SHA-256"), Over(scrubbed=0, problem=problem, message="so it is")])
    world = a_world(door)
    async with service() as port:
        grant = previewed_at(port)
        error = await refused(world, port, grant, meter=Meter(grant.budget, f"sha256:{'1' * 64}"))
    assert (error.failure.failure_class, error.failure.retriable) == (failure, False)


@pytest.mark.abuse_case("LP5")
async def test_a_refused_secret_is_not_tried_again_at_once_but_a_new_secret_is() -> None:
    """The refused secret causes no connection during the pause."""
    door = Door([Failed(problem=Problem.REFUSED_CREDENTIAL, message="no")], list(LOGS_IN))
    world = a_world(door)
    async with service() as port:
        await refused(world, port, grant_at(port))
        again = await refused(world, port, grant_at(port))
        assert again.failure.failure_class is FailureClass.BINDING_FAILED
        assert "is not tried again for 30 s" in again.failure.message
        assert not again.failure.retriable
        assert len(door.orders) == 1
        world.vault.secret = b"another-secret"
        await opened(world, port, grant_at(port))
    assert len(door.orders) == 2


@pytest.mark.parametrize(
    ("verdict", "pause"),
    [
        ([Failed(problem=Problem.REFUSED_CREDENTIAL, message="no")], True),
        ([], True),
        ([LoggedIn(mechanism="PLAIN")], False),
        ([Failed(problem=Problem.CLOSED, message="gone")], False),
    ],
)
async def test_closing_the_stream_before_the_login_result_does_not_allow_another_try(
    verdict: list[FromLogin | None], pause: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has counted the try, and silence counts as a refusal. Controls: an accepted secret, and a service
    that closes the connection.
    """
    monkeypatch.setattr("aileron.egress.login.VERDICT_S", 0.3)
    door = Door([], list(LOGS_IN))
    world = a_world(door)
    async with service() as port:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened, world, port, grant_at(port))
            await wait_until_async(lambda: door.heard, "the login is heard")
            tasks.cancel_scope.cancel()
            for message in verdict:
                door.talks[0].say(message)
        assert door.talks[0].is_closed
        if pause:
            again = await refused(world, port, grant_at(port))
            assert "is not tried again for 30 s" in again.failure.message
        else:
            await opened(world, port, grant_at(port))
    assert len(door.orders) == (1 if pause else 2)


async def test_mail_messages_count_as_requests_and_each_has_exactly_one_recorded_end() -> None:
    """The rows of a stream are bounded for a client that keeps sending and for a misbehaving login process."""
    mail: list[FromLogin] = [
        Envelope(sender="a@example.com", recipients=("b@example.com",)),
        Submitted(size=1, code=250),
    ]
    for notes, failure, kept in (
        ([*mail * 2, Over(scrubbed=0)], None, 4),
        (mail * 3, FailureClass.RESOURCE_LIMIT_EXCEEDED, 4),
        ([*mail, mail[1]], FailureClass.INTERNAL_ERROR, 2),
    ):
        door = Door([LoggedIn(mechanism="PLAIN"), *notes])
        world = a_world(door)
        async with service() as port:
            grant = grant_at(port, "smtp", budget=Budget(requests=3))
            if failure is None:
                await opened(world, port, grant)
            else:
                assert (await refused(world, port, grant)).failure.failure_class is failure
        assert len(world.journal.mail) == kept


@pytest.mark.abuse_case("LP5")
async def test_concurrent_logins_with_a_refused_secret_make_one_attempt() -> None:
    """Sixteen attempts of one step could lock an account."""
    door = Door([Failed(problem=Problem.REFUSED_CREDENTIAL, message="no")])
    world = a_world(door)
    errors: list[AileronError] = []

    async def one(port: int, grant: Grant, meter: Meter) -> None:
        errors.append(await refused(world, port, grant, meter=meter))

    async with service() as port:
        grant = grant_at(port)
        meter = Meter(grant.budget)
        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(one, port, grant, meter)
    assert len(errors) == 16
    assert len(door.orders) == 1


ACCOUNT = Account("imap", HostPort(HOST, 993), "me@example.com")
OTHER_ACCOUNTS: dict[str, Account] = {
    "user name": ACCOUNT._replace(username="you@example.com"),
    "host": ACCOUNT._replace(destination=HostPort("other.test", 993)),
    "port": ACCOUNT._replace(destination=HostPort(HOST, 1993)),
    "protocol": ACCOUNT._replace(protocol="smtp"),
}


async def pause_of(attempts: Attempts, secret: bytes = CANARY, account: Account = ACCOUNT) -> float:
    """Return the seconds until this secret may be tried at this account."""
    async with attempts.turn(account, Secret(secret)) as attempt:
        return attempts.pause_s(attempt)


async def refuse(attempts: Attempts, secret: bytes = CANARY, account: Account = ACCOUNT) -> float:
    """Record another refusal, and return the pause after it."""
    async with attempts.turn(account, Secret(secret)) as attempt:
        attempts.refused(attempt)
        return attempts.pause_s(attempt)


async def test_pauses_after_refused_logins_grow_to_15_minutes_and_end_with_an_accepted_login() -> None:
    """The clock is the test's. The kept digest does not contain the secret."""
    now = 0.0
    attempts = Attempts(lambda: now)
    async with attempts.turn(ACCOUNT, Secret(CANARY)) as attempt:
        assert CANARY not in attempt.digest
        pauses = []
        for _ in range(8):
            attempts.refused(attempt)
            pauses.append(attempts.pause_s(attempt))
            now += pauses[-1]
            assert attempts.pause_s(attempt) == 0
        assert pauses == [PAUSE_S * 2**n for n in range(5)] + [PAUSE_MOST_S] * 3
        attempts.refused(attempt)
        attempts.accepted(attempt)
        assert attempts.pause_s(attempt) == 0
        attempts.refused(attempt)
        assert attempts.pause_s(attempt) == PAUSE_S


@pytest.mark.parametrize("what", OTHER_ACCOUNTS)
async def test_each_account_has_its_own_series_of_pauses_after_refused_logins(what: str) -> None:
    """An example: with another user name, the refused secret is tried at once, and its refusal is the first."""
    attempts = Attempts(lambda: 0.0)
    await refuse(attempts)
    await refuse(attempts)

    assert await pause_of(attempts) == 2 * PAUSE_S
    assert await pause_of(attempts, account=OTHER_ACCOUNTS[what]) == 0
    assert await refuse(attempts, account=OTHER_ACCOUNTS[what]) == PAUSE_S


async def test_another_spelling_of_a_mail_address_is_the_same_account() -> None:
    """Most mail servers treat both as one; two roles of a database may differ only in case."""
    attempts = Attempts(lambda: 0.0)
    role = Account("postgres", ACCOUNT.destination, "me")
    await refuse(attempts)
    await refuse(attempts, account=role)

    assert await pause_of(attempts, account=ACCOUNT._replace(username="Me@Example.com")) == PAUSE_S
    assert await pause_of(attempts, account=role._replace(username="Me")) == 0


async def test_another_secret_is_tried_at_once_but_its_refusal_lengthens_the_pause_of_the_account() -> None:
    """A service counts refusals of the account. After MAX_SECRETS refused secrets no further one is tried."""
    attempts = Attempts(lambda: 0.0)
    pauses = []
    for number in range(MAX_SECRETS):
        assert await pause_of(attempts, b"secret-%d" % number) == 0
        pauses.append(await refuse(attempts, b"secret-%d" % number))

    assert pauses == [PAUSE_S * 2**n for n in range(MAX_SECRETS)]
    assert await pause_of(attempts, b"secret-0") == pauses[-1]
    assert await pause_of(attempts, b"the right one") == pauses[-1]


@pytest.mark.abuse_case("LP5")
async def test_an_old_secret_stays_refused_after_a_new_one_is_accepted() -> None:
    """A forgotten binding of the account keeps the old secret; each run of the good binding would otherwise allow it a try."""
    attempts = Attempts(lambda: 0.0)
    await refuse(attempts, b"the old one")
    async with attempts.turn(ACCOUNT, Secret(CANARY)) as attempt:
        attempts.accepted(attempt)

    assert await pause_of(attempts) == 0
    assert await pause_of(attempts, b"the old one") == PAUSE_S


async def test_a_refused_login_long_after_the_last_one_starts_a_new_series_of_pauses() -> None:
    """A password that is changed once a year does not begin with the longest pause; within the hour the series goes on."""
    now = 0.0
    attempts = Attempts(lambda: now)
    pauses = [await refuse(attempts), await refuse(attempts)]
    now += pauses[-1] + 3600.0
    pauses.append(await refuse(attempts))
    now += pauses[-1] + 3600.1
    pauses.append(await refuse(attempts))

    assert pauses == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, PAUSE_S]


@pytest.mark.abuse_case("LP5")
async def test_two_bindings_of_one_account_share_the_pauses_after_refused_logins() -> None:
    """A secret refused with one binding is not tried with the other, unless the user name differs."""
    door = Door([Failed(problem=Problem.REFUSED_CREDENTIAL, message="no")], list(LOGS_IN))
    world = a_world(door)
    async with service() as port:
        await refused(world, port, grant_at(port))
        grant = grant_at(port)
        assert grant.credential is not None
        name = BindingName("login", "example", "again")
        second = msgspec.structs.replace(grant, credential=msgspec.structs.replace(grant.credential, binding=name))
        again = await refused(world, port, second)
        assert "is not tried again for 30 s" in again.failure.message
        assert len(door.orders) == 1
        world.vault.username = "you@example.com"
        await opened(world, port, grant)
    assert len(door.orders) == 2


@pytest.mark.abuse_case("LP9")
async def test_a_denial_after_the_connector_closed_the_stream_still_ends_the_invocation() -> None:
    """The connector sent a forbidden command and closed the stream."""
    over = Over(scrubbed=0, problem=Problem.NOT_ALLOWED, message="VRFY is not passed on")
    door = Door([LoggedIn(mechanism="PLAIN")])
    world = a_world(door)
    async with service() as port:
        grant = grant_at(port)
        deadline = anyio.current_time() + 20
        asked = StreamRequest(HOST, port, True)
        with pytest.raises(AileronError) as caught:  # noqa: PT012 - the stream's end raises it
            async with world.egress.streams.open(asked, grant, Meter(grant.budget), world.journal, deadline) as stream:
                await stream.send(b"VRFY root\r\n")
                door.talks[-1].say(over)
    assert reason_of(caught.value) == "not_allowed"
    assert [denial.reason for denial in world.journal.denials] == ["not_allowed"]


async def test_an_engine_without_a_login_process_refuses_logins() -> None:
    """`connector test` has such an engine."""
    world = World(None)
    async with service() as port:
        error = await refused(world, port, grant_at(port))
    assert error.failure.failure_class is FailureClass.INTERNAL_ERROR


def test_the_test_helper_function_need_creates_a_credential_without_logins_by_default() -> None:
    """Control of the helper `need` in this file, which adds none."""
    assert need("login").logins == ()

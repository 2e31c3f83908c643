"""The relay between a service and a connector, over real sockets, with and without TLS: whole, bounded, in order, and masked."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
import trustme

from aileron.logins.login_messages import Envelope, Failed, LoginError, Note, Order, Over, Problem, Submitted
from aileron.logins.protocol import Filter, Login, Passed, Unchanged
from aileron.logins.relay import HELD_BYTES
from aileron.logins.side import Side
from tests.support.logins import LoginAt, trusting
from tests.support.waiting import unread, wait_still

SECRET = b"hunter2-hunter2"
BIG = random.Random(1).randbytes(4 << 20)


class PlainLogin(Login):
    """A login that sends `PASS secret`, reads a line, and then uses its filter."""

    through: Filter = Unchanged()

    def log_in(self, server: Side) -> None:
        if self.order.target.encryption == "tls":
            server.start_tls()
        self.mechanism = "PASS"
        self.sent_in_clear = (self.order.secret,)
        server.write(b"PASS " + self.order.secret + b"\r\n")
        said = server.line()
        if said != b"+OK":
            raise LoginError(Problem.REFUSED_CREDENTIAL, "the service refused the password", said.decode())

    def greet(self, client: Side, server: Side) -> Filter:
        return self.through


class InLines(Filter):
    """A filter of lines: one line is noted, one answered here, one refused."""

    def __init__(self) -> None:
        self._line = b""
        self._is_idle = False

    def up(self, data: bytes) -> Iterable[Passed]:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if line == b"note":
                note = Envelope(sender="a@example.com", recipients=("b@example.com",))
                yield Passed(to_server=b"noted\n", note=note)
            elif line == b"mine":
                yield Passed(to_client=b"answered " + b"x" * 1000 + b"\n")
            elif line == b"bad":
                raise LoginError(Problem.NOT_ALLOWED, "bad is not allowed")
            elif line == b"bug":
                raise KeyError(SECRET)
            else:
                yield Passed(to_server=line + b"\n")

    def down(self, data: bytes) -> Iterable[Passed]:
        return (Passed(to_client=data),)

    def up_ended(self) -> Iterable[Passed]:
        return (Passed(to_server=b"ended " + self._line, note=Submitted(size=1, code=250)),)


def in_lines(order: Order) -> Login:
    """Return a login with a new filter."""
    login = PlainLogin(order)
    login.through = InLines()
    return login


class Swells(Filter):
    """A filter that makes more of each piece from the service than is held for a connector."""

    BYTES = 2 * HELD_BYTES

    def up(self, data: bytes) -> Iterable[Passed]:
        return (Passed(to_server=data),)

    def down(self, data: bytes) -> Iterable[Passed]:
        return (Passed(to_client=b"x" * self.BYTES),)


def swollen(order: Order) -> Login:
    """Return a login whose filter makes much of little."""
    login = PlainLogin(order)
    login.through = Swells()
    return login


class Service:
    """The service's end of a login, in the test's hands once the password has come."""

    def __init__(self, make: Callable[[Order], Login], authority: trustme.CA | None = None, **more: object) -> None:
        theirs, here = socket.socketpair() if authority is None else tcp_pair()
        target = "redis://localhost:6379" if authority else "redis+plain://localhost:6379"
        tls = trusting(authority.cert_pem.bytes().decode()) if authority else None
        self.login = LoginAt(make, target, "me", SECRET, service=theirs, tls=tls, **more)  # type: ignore[arg-type]
        self.sock = here
        self._authority = authority

    @contextlib.contextmanager
    def logged_in(self) -> Iterator[tuple[socket.socket, LoginAt]]:
        """Yield the service's socket, and the login."""
        with self.login:
            if self._authority is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._authority.issue_cert("localhost").configure_cert(context)
                self.sock = context.wrap_socket(self.sock, server_side=True, suppress_ragged_eofs=False)
            self.sock.settimeout(10)
            assert self.sock.recv(1000) == b"PASS " + SECRET + b"\r\n"
            self.sock.sendall(b"+OK\r\n")
            with self.sock:
                yield self.sock, self.login


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def read_all(sock: socket.socket) -> bytes:
    """Read up to the end."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def read_of(sock: socket.socket, size: int) -> bytes:
    """Read so many bytes, in as many pieces as they come."""
    got = b""
    while len(got) < size:
        got += sock.recv(size - len(got))
    return got


@contextlib.contextmanager
def together(sock: socket.socket) -> Iterator[None]:
    """Send the data of the block in one segment (tcp(7)), without waiting."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    yield
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


def sent_until_stopped(sock: socket.socket, piece: bytes) -> int:
    """Send pieces that nobody reads until there is no room for more; return the number of bytes."""
    sock.settimeout(0.3)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            sent += sock.send(piece)
    return sent


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return the authority whose certificates are trusted."""
    return trustme.CA()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("make", [PlainLogin, in_lines])
def test_data_passes_in_both_directions_at_once(
    make: Callable[[Order], Login], encrypted: bool, authority: trustme.CA
) -> None:
    """Four mebibytes go each way, and neither direction waits for the other."""
    up = BIG[:-1].replace(b"\n", b"?") + b"\n"
    with Service(make, authority if encrypted else None).logged_in() as (service, login):
        got: list[bytes] = []

        def serve() -> None:
            got.append(exchanged(service, BIG, len(up)))
            if isinstance(service, ssl.SSLSocket):
                service.unwrap()
            else:
                service.shutdown(socket.SHUT_WR)

        server = threading.Thread(target=serve)
        server.start()
        sender = threading.Thread(target=login.client.sendall, args=(up,))
        sender.start()
        down = read_all(login.client)
        sender.join()
        server.join()
        assert down == BIG
        assert b"".join(got) == up
        assert login.over() == Over(scrubbed=0)


def exchanged(sock: socket.socket, data: bytes, size: int) -> bytes:
    """Send `data` and read `size` bytes at once, in one thread, as Python's TLS requires."""
    sock.setblocking(False)
    rest, got = memoryview(data), bytearray()
    while rest or len(got) < size:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            rest = rest[sock.send(rest[:16384]) :] if rest else rest
        try:
            got += sock.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if rest or len(got) < size:
                select.select([sock], [sock] if rest else [], [], 10)
    sock.settimeout(10)
    return bytes(got)


@pytest.mark.abuse_case("LP7")
def test_the_secret_is_masked_in_the_whole_stream() -> None:
    """The secret is masked and counted also if it comes in two parts with a pause between them."""
    with Service(PlainLogin).logged_in() as (service, login):
        service.sendall(b"requirepass " + SECRET + b"\r\n")
        assert login.client.recv(1000) == b"requirepass " + b"*" * len(SECRET) + b"\r\n"
        service.sendall(b"again " + SECRET[:9])
        assert read_of(login.client, len(b"again ") + 3) == b"again " + SECRET[:3]
        service.sendall(SECRET[9:] + b".")
        service.shutdown(socket.SHUT_WR)
        assert read_all(login.client) == b"*" * (len(SECRET) - 3) + b"."
        assert login.over() == Over(scrubbed=2)


@pytest.mark.abuse_case("LP8")
def test_a_connector_that_does_not_read_makes_the_service_wait() -> None:
    """Only what the relay and the sockets can hold is read from the service."""
    with Service(PlainLogin).logged_in() as (service, login):
        login.logged_in()
        sent = sent_until_stopped(service, b"x" * 65536)
        assert sent < HELD_BYTES + (2 << 20)
        service.shutdown(socket.SHUT_WR)
        assert len(read_all(login.client)) == sent


def test_an_end_of_a_connection_that_arrives_with_the_last_bytes_is_noticed_after_those_bytes(
    authority: trustme.CA,
) -> None:
    """TLS has already read the end from the socket, so the socket is never reported as readable again."""
    with Service(swollen, authority).logged_in() as (service, login):
        login.logged_in()
        assert isinstance(service, ssl.SSLSocket)
        with together(service):
            service.sendall(b"x")
            with contextlib.suppress(ssl.SSLWantReadError):  # for the end of ours
                service.unwrap()
        assert len(read_all(login.client)) == Swells.BYTES
        assert login.over() == Over(scrubbed=0)


def test_a_connector_that_closes_with_unread_data_ends_the_stream_without_an_error() -> None:
    """A connector may close when it has read enough."""
    with Service(PlainLogin).logged_in() as (service, login):
        login.logged_in()
        sent_until_stopped(service, b"x" * 65536)
        login.client.recv(1 << 20)
        login.client.close()
        assert login.over() == Over(scrubbed=0)


@pytest.mark.abuse_case("LP8")
def test_a_filter_holds_a_bounded_number_of_unread_answers() -> None:
    """The filter itself answers commands, and the connector sends them without reading the answers."""
    with Service(in_lines).logged_in() as (_service, login):
        assert sent_until_stopped(login.client, b"mine\n" * 1000) < (4 << 20)


def test_bytes_sent_right_after_the_login_pass_first_and_through_the_filter() -> None:
    """They may have been read together with the login's last message, from either end."""
    theirs, service = socket.socketpair()
    login = LoginAt(in_lines, "redis+plain://localhost:6379", "me", SECRET, service=theirs)
    login.client.sendall(b"note\nfirst\n")
    with login, service:
        service.settimeout(10)
        assert service.recv(1000).startswith(b"PASS ")
        service.sendall(b"+OK\r\nbanner\r\n")
        got = b""
        while got != b"noted\nfirst\n":
            got += service.recv(1000)
        assert login.client.recv(1000) == b"banner\r\n"
        assert len(login.notes) == 1


@pytest.mark.abuse_case("LP6")
def test_an_event_that_a_filter_reports_is_recorded_before_its_bytes_are_sent() -> None:
    """A note that cannot be recorded ends the stream, and its bytes are not sent."""
    kept: list[Note] = []
    waiting = threading.Event()

    def keep(note: Note) -> None:
        assert waiting.wait(10)
        kept.append(note)

    with Service(in_lines, keep=keep).logged_in() as (service, login):
        login.client.sendall(b"note\n")
        service.settimeout(0.2)
        with pytest.raises(TimeoutError):
            service.recv(1000)
        waiting.set()
        service.settimeout(10)
        assert service.recv(1000) == b"noted\n"
        assert kept == login.notes

    def refuse(_note: Note) -> None:
        raise LoginError(Problem.CLOSED, "the supervisor ended")

    with Service(in_lines, keep=refuse).logged_in() as (service, login):
        login.client.sendall(b"note\n")
        assert read_all(service) == b""
        assert login.over() == Over(scrubbed=0, problem=Problem.CLOSED, message="the supervisor ended")


def test_a_connector_that_closes_its_sending_side_still_gets_the_answer() -> None:
    """The filter is told of the end first, the service afterwards."""
    with Service(in_lines).logged_in() as (service, login):
        login.client.sendall(b"one\ntwo")
        login.client.shutdown(socket.SHUT_WR)
        assert read_all(service) == b"one\nended two"
        service.sendall(b"bye")
        service.shutdown(socket.SHUT_WR)
        assert read_all(login.client) == b"bye"
        assert login.over() == Over(scrubbed=0)
        assert login.notes == [Submitted(size=1, code=250)]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_connector_that_closes_ends_the_stream_and_its_last_bytes_arrive(
    encrypted: bool, authority: trustme.CA
) -> None:
    """The last bytes arrive even if the service reads slowly."""
    with Service(PlainLogin, authority if encrypted else None).logged_in() as (service, login):
        login.logged_in()
        login.client.sendall(BIG[:100_000])
        login.client.close()
        wait_still(lambda: unread(service), "as much as fits has come", for_s=0.1)
        got = b""
        while len(got) < 100_000:
            got += service.recv(65536)
        assert got == BIG[:100_000]
        assert service.recv(1) == b""  # and TLS is ended, not cut
        assert login.over() == Over(scrubbed=0)


@pytest.mark.parametrize(
    ("line", "problem", "message"),
    [
        (b"bad\n", Problem.NOT_ALLOWED, "bad is not allowed"),
        (b"bug\n", Problem.PROTOCOL, "what was said at localhost:6379 could not be handled (KeyError)"),
    ],
)
def test_a_refusal_or_an_error_of_a_filter_ends_the_stream(line: bytes, problem: Problem, message: str) -> None:
    """The message has the reason, and quotes nothing."""
    with Service(in_lines).logged_in() as (service, login):
        login.client.sendall(line)
        assert read_all(service) == b""
        assert login.over() == Over(scrubbed=0, problem=problem, message=message)


def test_a_refused_login_quotes_the_service_without_the_secret() -> None:
    """The quote is one line."""
    theirs, service = socket.socketpair()
    with LoginAt(PlainLogin, "redis+plain://localhost:6379", "me", SECRET, service=theirs) as login, service:
        assert service.recv(1000)
        service.sendall(b"-ERR not " + SECRET + b"\x1b[2J\r\n")
        message = "the service refused the password"
        said = f"-ERR not {'*' * len(SECRET)} [2J"
        assert login.failed() == Failed(problem=Problem.REFUSED_CREDENTIAL, message=message, said=said)
        assert read_all(login.client) == b""


@pytest.mark.abuse_case("LP8")
def test_a_tls_connection_that_ends_without_close_notify_is_reported(authority: trustme.CA) -> None:
    """Earlier bytes are passed on. In the control, the first test of this file, the service ends TLS."""
    with Service(PlainLogin, authority).logged_in() as (service, login):
        service.sendall(b"half")
        login.logged_in()
        raw = socket.socket(fileno=service.detach())
        raw.close()
        assert read_all(login.client) == b"half"
        assert login.over().problem is Problem.CLOSED


class Goodbye(InLines):
    """A filter whose connector has said goodbye."""

    @property
    def has_said_goodbye(self) -> bool:
        return True


def test_a_tls_connection_without_close_notify_after_a_goodbye_is_no_error(authority: trustme.CA) -> None:
    """The connector said goodbye, and a service that was told to end need not end TLS."""

    def told(order: Order) -> Login:
        login = PlainLogin(order)
        login.through = Goodbye()
        return login

    with Service(told, authority).logged_in() as (service, login):
        login.logged_in()
        raw = socket.socket(fileno=service.detach())
        raw.close()
        assert read_all(login.client) == b""
        assert login.over().problem is None


@pytest.mark.abuse_case("LP8")
def test_the_deadline_ends_an_open_stream() -> None:
    """Neither end sends anything."""
    with Service(PlainLogin, stream_s=0.4).logged_in() as (_service, login):
        assert login.over().problem is Problem.TOO_SLOW
        assert read_all(login.client) == b""

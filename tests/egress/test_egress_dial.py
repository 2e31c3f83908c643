"""The wire itself: when a connection may carry another request, on real sockets in every state."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import anyio
import anyio.to_thread
import httpcore2
import pytest

from aileron.egress.dial import Wire, dial, is_own_address
from aileron.tls import client_context
from tests.egress.conftest import HOST
from tests.support.upstream import Authority, Upstream, answer

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def connected() -> Iterator[tuple[Wire, socket.socket, socket.socket]]:
    """Yield a wire, its own socket, and the peer's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _address = listener.accept()
        ours.setblocking(False)
        with ours, theirs:
            yield Wire(ours), ours, theirs


async def test_an_open_connection_without_incoming_data_is_reusable() -> None:
    """`is_quiet` must be true before a connection is reused. A closed connection may be closed again."""
    with connected() as (wire, _ours, _theirs):
        assert (wire.is_open(), wire.is_quiet()) == (True, True)
        wire.close()
        wire.close()
        assert (wire.is_open(), wire.is_quiet()) == (False, False)


@pytest.mark.parametrize("how", ["data", "end", "reset"])
async def test_a_connection_that_was_closed_or_reset_or_has_unrequested_bytes_is_not_reusable(how: str) -> None:
    """Each makes `is_quiet` false: the next request could get a response that is not its own."""
    with connected() as (wire, ours, theirs):
        if how == "data":
            theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        if how == "reset":
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how != "data":
            theirs.close()
        with anyio.fail_after(10):
            await anyio.wait_readable(ours)

        assert not wire.is_quiet()


async def test_a_tls_session_ticket_leaves_the_connection_reusable(authority: Authority) -> None:
    """TLS 1.3 servers send tickets after the handshake, which make the socket readable like unrequested data."""
    with Upstream(lambda _seen: answer(), authority.server_context(HOST)) as upstream:
        wire, address = await dial(["127.0.0.1"], upstream.port, client_context(authority.ca_pem), HOST)
        with anyio.fail_after(10):
            await anyio.wait_readable(wire._sock)

        assert wire.is_quiet()
        assert address == "127.0.0.1"
        wire.close()


async def test_a_reset_raises_a_read_or_a_write_error() -> None:
    """The errors are httpcore2's, so that it can read an early response after a failed write."""
    with connected() as (wire, ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with anyio.fail_after(10):
            await anyio.wait_readable(ours)
        with pytest.raises(httpcore2.ReadError):
            await wire.read(10)
        with pytest.raises(httpcore2.WriteError):
            await wire.write(b"x")


async def test_a_tls_stream_that_ends_without_close_notify_is_an_error(authority: Authority) -> None:
    """Anyone on the network path could truncate it; Python's default setting does not matter."""
    for is_cut in (True, False):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, _say_and_leave, listener, authority, is_cut)
                wire, _address = await dial(["127.0.0.1"], port, client_context(authority.ca_pem), HOST)
            assert await wire.read(4) == b"some"
            if is_cut:
                with pytest.raises(httpcore2.ReadError):
                    await wire.read(4)
            else:
                assert await wire.read(4) == b""
            wire.close()


def _say_and_leave(listener: socket.socket, authority: Authority, is_cut: bool) -> None:
    accepted, _ = listener.accept()
    with accepted, authority.server_context(HOST).wrap_socket(accepted, server_side=True) as peer:
        peer.sendall(b"some")
        if not is_cut:
            peer.settimeout(0)
            with contextlib.suppress(OSError):  # close_notify is out; the other side's is not waited for
                peer.unwrap()


async def test_the_number_of_bytes_read_from_a_connection_can_be_limited() -> None:
    """The limit counts every received byte until it is lifted."""
    with connected() as (wire, _ours, theirs):
        theirs.sendall(b"12345678")
        wire.limit_reading(6)
        assert await wire.read(4) == b"1234"
        with pytest.raises(httpcore2.RemoteProtocolError):
            await wire.read(4)
        wire.limit_reading(None)
        theirs.sendall(b"9")
        assert await wire.read(4) == b"9"


def test_an_address_without_a_route_is_not_this_machine_s_own() -> None:
    """The kernel reports an error for such an address; an address of this machine is recognized."""
    assert is_own_address("127.0.0.1")
    assert not is_own_address("2606:4700::1111")

"""Messages between the daemon and ingress: the laws of the codec, and bytes that are no message."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.ingress.daemon_messages import (
    MAX_PACKET,
    Body,
    Head,
    Known,
    Listening,
    MessageError,
    Request,
    Start,
    Stop,
    decode_answer,
    decode_order,
    decode_request,
    encode,
    exchange_pair,
)

fields = st.lists(st.tuples(st.binary(max_size=64), st.binary(max_size=64)), max_size=8)
addresses = st.none() | st.tuples(st.text(max_size=40), st.integers(0, 65535))
requests = st.builds(
    Request,
    door=st.text(max_size=8),
    http_version=st.just("1.1"),
    method=st.text(max_size=8),
    path=st.text(max_size=64),
    raw_path=st.binary(max_size=64),
    query=st.binary(max_size=64),
    fields=fields,
    client=addresses,
)
bodies = st.builds(Body, data=st.binary(max_size=256), more=st.booleans())
answers = st.builds(Head, status=st.integers(100, 599), fields=fields) | bodies
orders = st.builds(Known, digests=st.lists(st.text(max_size=64))) | st.builds(
    Start, doors=st.lists(st.builds(Listening, door=st.text(), listeners=st.integers(0, 4))), models=st.lists(st.text())
)


@given(requests | bodies)
def test_a_request_is_unchanged_after_encoding_and_decoding(message: Request | Body) -> None:
    """The law is decode(encode(x)) = x."""
    assert decode_request(encode(message)) == message


@given(answers)
def test_an_answer_is_unchanged_after_encoding_and_decoding(message: Head | Body) -> None:
    """The law is decode(encode(x)) = x."""
    assert decode_answer(encode(message)) == message


@given(orders | st.just(Stop()))
def test_an_order_is_unchanged_after_encoding_and_decoding(message: Start | Known | Stop) -> None:
    """The law is decode(encode(x)) = x."""
    assert decode_order(encode(message)) == message


@given(st.binary(max_size=512) | (requests | bodies | answers).map(encode))
def test_any_bytes_decode_to_a_message_or_raise_message_error(packet: bytes) -> None:
    """Each of the three decoders raises no other exception."""
    for decode in (decode_request, decode_answer, decode_order):
        with contextlib.suppress(MessageError):
            decode(packet)


def test_an_empty_packet_is_not_an_order() -> None:
    """An empty packet means that the other side has closed the socket."""
    with pytest.raises(MessageError):
        decode_order(b"")


def test_the_largest_packet_can_be_sent_through_the_socket_in_one_piece() -> None:
    """The packet goes in one piece, without a reader; the kernel refuses the larger control, and does not truncate it."""
    sender, other = exchange_pair()
    with sender, other:
        assert sender.send(b"x" * MAX_PACKET) == MAX_PACKET
        assert len(other.recv(2 * MAX_PACKET)) == MAX_PACKET
        with pytest.raises(OSError, match="Message too long"):
            sender.send(b"x" * 4 * MAX_PACKET)

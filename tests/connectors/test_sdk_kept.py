"""A test that the connector's end keeps a bounded amount of unread answers, however small their pieces are."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from aileron_connector.failures import ConnectorError
from aileron_connector.loop import MAX_KEPT_BYTES, Conversation
from aileron_sandbox.frames import PROTOCOL_VERSION, Chunk, HttpHead, Invoke, Message, encode

MOST_FRAMES = 72_000
"""Frames that can be sent before the limit. Each takes some 128 bytes; 65,536 are kept, and the pipe holds 4,700 of
the smallest.
"""


@contextlib.contextmanager
def unread(pieces: Iterator[bytes]) -> Iterator[tuple[Conversation, int]]:
    """Start a conversation. Its first request is answered in these pieces and not read; the second, yielded by id, is
    never answered.
    """
    to_jail, from_host = os.pipe()
    from_jail, to_host = os.pipe()

    def write(message: Message, body: bytes = b"") -> None:
        data = b"".join(map(bytes, encode(message, body)))
        while data:
            data = data[os.write(from_host, data) :]

    def answer() -> None:
        with contextlib.suppress(BrokenPipeError):
            write(HttpHead(id=1, status=200, headers=[]))
            for piece in pieces:
                write(Chunk(id=1, end=False), piece)

    write(Invoke(protocol=PROTOCOL_VERSION, op="x", args={}, hosts=[], invocation="i", deadline_ms=60_000))
    conversation = Conversation(to_jail, to_host)
    _, second = (
        conversation.open("GET", f"https://{name}.example/", [], None, None, is_streamed=False) for name in "ab"
    )
    host = threading.Thread(target=answer)
    host.start()
    try:
        yield conversation, second
    finally:
        for descriptor in (to_jail, from_jail, to_host):
            os.close(descriptor)
        host.join(10)
        os.close(from_host)


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["bytes", "megabytes"])
def test_unread_answers_are_kept_up_to_a_limit(size: int) -> None:
    """A service that sends many single bytes reaches the limit too, not only one that sends large pieces."""
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2 * MOST_FRAMES):
            sent += 1
            yield b"x" * size

    with unread(pieces()) as (conversation, second):
        with pytest.raises(ConnectorError, match="other responses are waiting to be read"):
            conversation.next_answer(second, 30.0)
        assert conversation.is_full
    assert sent < MOST_FRAMES
    assert sent * size < MAX_KEPT_BYTES + (3 << 20)

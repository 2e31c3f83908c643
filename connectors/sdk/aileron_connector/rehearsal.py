"""A rehearsal: one invocation with both ends in the same process, only to warm up the interpreter.

A jail is a fork of a process (the template) that has imported this package. Code that runs for the first time in a fork
is slower, and each page that it changes is copied: the interpreter specialises code that has run (PEP 659), and types and
pools are made when they are first used. Therefore the template plays through, once, the frames that every invocation has.

Runs in the supervisor's template, never in a connector. Leaves no operation, no descriptor and no conversation behind.
"""

from __future__ import annotations

import os

from aileron_connector import loop, operation
from aileron_sandbox.frames import PROTOCOL_VERSION, Decoder, FromJail, GrantedHost, Invoke, encode

__all__ = ["rehearse"]


def rehearse() -> None:
    """Play through one invocation: send `invoke`, run the operation, and read its answer."""
    known = dict(operation.OPERATIONS)
    their_end, ours = os.pipe()
    answers, answering = os.pipe()
    try:
        operation.op(rehearsed)
        _tell(ours)
        loop.serve(their_end, answering)
        _hear(answers)
    finally:
        operation.OPERATIONS.clear()
        operation.OPERATIONS.update(known)
        for fd in (their_end, ours, answers, answering):
            os.close(fd)


def rehearsed(text: str, count: int = 1, names: list[str] | None = None) -> dict[str, object]:
    return {"text": text, "count": count, "names": names or []}


def _tell(fd: int) -> None:
    host = GrantedHost("localhost", 443, False)
    message = Invoke(
        protocol=PROTOCOL_VERSION,
        op=rehearsed.__name__,
        args={"text": "x", "count": 2, "names": ["y"]},
        hosts=[host],
        invocation="rehearsal",
        deadline_ms=1000,
    )
    head, _ = encode(message)
    os.write(fd, head)  # fits into a pipe, as does the answer


def _hear(fd: int) -> None:
    decoder = Decoder(FromJail)
    decoder.feed(os.read(fd, 4096))
    decoder.next_frame()

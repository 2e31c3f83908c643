"""A failure's message is bounded and keeps both its ends, however the failure was made."""

from __future__ import annotations

import re

import msgspec
import pytest

from aileron.model.failure import MAX_MESSAGE, AileronError, Boundary, Failure, FailureClass


def test_a_truncated_failure_message_keeps_its_beginning_and_its_fix() -> None:
    """The middle is replaced by the number of characters left out. The exception prints the same text."""
    error = AileronError(FailureClass.INVALID_REQUEST, f"a.md:3: unknown key {'k' * 100_000!r}; remove it")
    message = error.failure.message

    assert str(error) == message
    assert len(message) <= MAX_MESSAGE
    assert message.startswith("a.md:3: unknown key 'kkk")
    assert message.endswith("kkk'; remove it")
    said = re.search(r" … \((\d+) characters left out\) … ", message)
    assert said is not None
    assert len(message) - len(said[0]) + int(said[1]) == len("a.md:3: unknown key ''; remove it") + 100_000


def test_a_message_that_fits_is_unchanged() -> None:
    """A message of exactly the limit stays whole, and a shortened one is not shortened again."""
    whole = "x" * MAX_MESSAGE
    assert AileronError(FailureClass.INVALID_REQUEST, whole).failure.message == whole
    cut = AileronError(FailureClass.INVALID_REQUEST, whole + "x")
    assert "characters left out" in cut.failure.message
    assert AileronError.of(cut.failure).failure == cut.failure


@pytest.mark.abuse_case("T6")
def test_the_message_of_every_failure_is_bounded_however_the_failure_is_made() -> None:
    """The bound holds whether the failure is built, replaced, or decoded from another process's bytes."""
    long = "y" * 50_000
    built = Failure(failure_class=FailureClass.NOT_FOUND, message=long, boundary=Boundary.USER)
    replaced = msgspec.structs.replace(built, message=long)
    sent = msgspec.json.encode({"class": "not_found", "message": long, "boundary": "user"})

    assert [
        len(failure.message) <= MAX_MESSAGE for failure in (built, replaced, msgspec.json.decode(sent, type=Failure))
    ] == [True] * 3

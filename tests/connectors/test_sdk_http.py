"""The SDK's HTTP client, against a host played frame by frame."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aileron_sandbox.frames import (
    MAX_BODY_BYTES,
    MAX_IN_FLIGHT,
    Cancel,
    Chunk,
    Failed,
    FrameFailure,
    GrantedHost,
    HttpHead,
    HttpRequest,
    Refused,
    Result,
)
from tests.support.plain_host import ConnectorProcess, invoke

HOSTS = [GrantedHost("api.example.com", 443, False), GrantedHost("127.0.0.1", 5232, True)]


@contextmanager
def connector(folder: Path, body: str, **args: Any) -> Iterator[ConnectorProcess]:
    """Start a connector whose operation `x` has this body; it is about to speak."""
    program = folder / "connector.py"
    lines = textwrap.indent(textwrap.dedent(body), "    ")
    program.write_text(f"from aileron_connector import *\n@op\ndef x(**args):\n{lines}\nrun()\n")
    with ConnectorProcess(program, invoke("x", hosts=HOSTS, **args)) as process:
        yield process


def next_request(process: ConnectorProcess) -> HttpRequest:
    """Return the request that the connector makes now."""
    message = process.receive().message
    assert isinstance(message, HttpRequest), message
    return message


@contextmanager
def asking(folder: Path, body: str) -> Iterator[ConnectorProcess]:
    """Start a connector as `connector` does; it has made its first request."""
    with connector(folder, body) as process:
        next_request(process)
        yield process


def answer(process: ConnectorProcess, request_id: int, *pieces: bytes, status: int = 200) -> None:
    """Send a whole answer."""
    process.send(HttpHead(id=request_id, status=status, headers=[("Content-Type", "text/plain")]))
    for piece in pieces:
        process.send(Chunk(id=request_id), piece)
    process.send(Chunk(id=request_id, end=True))


def output(process: ConnectorProcess) -> Any:
    """Return the operation's output."""
    message = process.receive_until_over()
    assert isinstance(message, Result), (message, process.printed())
    return message.output


def failure(process: ConnectorProcess) -> Failed:
    """Return the operation's failure."""
    message = process.receive_until_over()
    assert isinstance(message, Failed), message
    return message


def test_a_request_is_one_frame_and_its_answer_is_read_in_pieces(tmp_path: Path) -> None:
    """Method, URL, headers in order, credential and body go out; status, headers and pieces come back."""
    body = """
        with http.request("POST", "https://api.example.com/a?b=c", {"X-One": "1", "X-Two": "2"}, b"hello", "api_key") as r:
            return [r.status, r.headers.get("content-type"), "CONTENT-TYPE" in r.headers, r.headers.get("etag"),
                    [p.decode() for p in r.iter_bytes()], list(r.iter_bytes())]
    """
    with connector(tmp_path, body) as process:
        message, data = process.receive()
        assert message == HttpRequest(
            id=1,
            method="POST",
            url="https://api.example.com/a?b=c",
            headers=[("X-One", "1"), ("X-Two", "2")],
            credential="api_key",
            body="inline",
        )
        assert data == b"hello"
        answer(process, 1, b"one", b"two")
        assert output(process) == [200, "text/plain", True, None, ["one", "two"], []]


def test_the_url_of_each_granted_host_is_its_origin(tmp_path: Path) -> None:
    """The default port is left out, and a host without TLS has an http origin."""
    with connector(tmp_path, "return [h.url for h in hosts()] + [h.host for h in http.hosts()]") as process:
        assert output(process) == [
            "https://api.example.com",
            "http://127.0.0.1:5232",
            "api.example.com",
            "127.0.0.1",
        ]


def test_an_answer_can_be_read_as_bytes_as_text_and_as_json(tmp_path: Path) -> None:
    """An answer that was read completely can be read again."""
    body = """
        r = http.request("GET", "https://api.example.com/")
        return [r.read().decode("latin-1"), r.text(), r.json(), repr(r)]
    """
    with asking(tmp_path, body) as process:
        answer(process, 1, b'{"a": ', b"[1]}")
        text = '{"a": [1]}'
        assert output(process) == [text, text, {"a": [1]}, "<Response 200 to GET https://api.example.com/>"]


@pytest.mark.parametrize(
    ("content_type", "data", "text"),
    [
        ("text/plain; charset=ISO-8859-1", b"\xfc", "ü"),
        ('text/plain; charset="utf-8"', b"\xc3\xbc", "ü"),
        ("text/plain", b"\xfc", "\ufffd"),
        ("text/plain; charset=klingon", b"\xc3\xbc", "ü"),
    ],
)
def test_text_is_decoded_as_its_header_says(tmp_path: Path, content_type: str, data: bytes, text: str) -> None:
    """An unknown charset is read as UTF-8, which most of them are."""
    with asking(tmp_path, "return http.request('GET', 'https://h/').text()") as process:
        process.send(HttpHead(id=1, status=200, headers=[("content-type", content_type)]))
        process.send(Chunk(id=1, end=True), data)
        assert output(process) == text


def test_an_error_status_is_an_answer_until_it_is_raised(tmp_path: Path) -> None:
    """raise_for_status names the request without its query, and keeps status and Retry-After for the retry."""
    body = """
        r = http.request("GET", "https://api.example.com/items?secret=1")
        assert r.status == 429
        r.raise_for_status()
    """
    with asking(tmp_path, body) as process:
        process.send(HttpHead(id=1, status=429, headers=[("Retry-After", "7")]))
        process.send(Chunk(id=1, end=True), b"slow down")
        assert failure(process) == Failed(
            failure_class="external_api_error",
            message="GET https://api.example.com/items returned status 429",
            details={"status": 429, "retry_after_s": 7},
        )


def test_an_answer_that_is_not_json_is_an_error_of_the_service(tmp_path: Path) -> None:
    """Most often, such an answer is a proxy's HTML page."""
    with asking(tmp_path, "return http.request('GET', 'https://h/x').json()") as process:
        answer(process, 1, b"<html>")
        assert failure(process).message == "the answer to GET https://h/x is not JSON"


@pytest.mark.parametrize("when", ["before the head", "after the head"])
@pytest.mark.parametrize("failure_class", ["network_error", "binding_required"])
def test_a_refusal_by_the_host_has_its_own_exception_class(tmp_path: Path, when: str, failure_class: str) -> None:
    """NetworkError stands for the network, Refused for all else. An uncaught one keeps its failure class."""
    body = """
        try:
            http.request("GET", "https://h/").read()
        except NetworkError as error:
            log.info("network")
            raise
        except Refused as error:
            log.info(error.failure_class)
            raise
    """
    with asking(tmp_path, body) as process:
        if when == "after the head":
            process.send(HttpHead(id=1, status=200, headers=[]))
            process.send(Chunk(id=1), b"some")
        error = FrameFailure(failure_class=failure_class, message="why", details={"a": 1})
        process.send(Refused(id=1, error=error))
        told: list[Any] = []
        failed = process.receive_until_over(told)
        assert failed == Failed(failure_class=failure_class, message="why", details={"a": 1})
        assert [line.message for line in told] == ["network" if failure_class == "network_error" else failure_class]


def test_an_answer_that_the_connector_leaves_unread_is_cancelled(tmp_path: Path) -> None:
    """Leaving the block early tells the host to stop, and frames still on their way disturb no other request."""
    body = """
        with http.request("GET", "https://h/endless") as endless:
            first = next(endless.iter_bytes()).decode()
        return [first, http.request("GET", "https://h/next").text(), list(endless.iter_bytes())]
    """
    with asking(tmp_path, body) as process:
        process.send(HttpHead(id=1, status=200, headers=[]))
        process.send(Chunk(id=1), b"1")
        process.send(Chunk(id=1), b"2")
        assert process.receive().message == Cancel(id=1)
        process.send(Chunk(id=1), b"3")
        process.send(Refused(id=1, error=FrameFailure(failure_class="cancelled", message="as asked")))
        assert next_request(process).id == 2
        answer(process, 2, b"next")
        assert output(process) == ["1", "next", []]


@pytest.mark.parametrize("when", ["head", "body"])
def test_a_request_without_an_answer_times_out(tmp_path: Path, when: str) -> None:
    """The operation gets TimeoutError, and the host is told to stop."""
    body = """
        import time
        try:
            with http.request("GET", "https://api.example.com/", give_up_at=time.monotonic() + args["within"]) as found:
                list(found.iter_bytes())
        except TimeoutError:
            return "given up"
    """
    with connector(tmp_path, body, within=0.0 if when == "head" else 1.0) as process:
        request = next_request(process)
        if when == "body":
            process.send(HttpHead(id=request.id, status=200, headers=[]))
            process.send(Chunk(id=request.id), b"x")
        cancelled = process.receive().message
        process.send(Refused(id=request.id, error=FrameFailure(failure_class="cancelled", message="cancelled")))

        assert isinstance(cancelled, Cancel)
        assert output(process) == "given up"


def test_an_answer_over_the_limit_is_refused_and_cancelled(tmp_path: Path) -> None:
    """The limit is the reader's own, in bytes."""
    with asking(tmp_path, "return len(http.request('GET', 'https://h/').read(limit_bytes=10))") as process:
        process.send(HttpHead(id=1, status=200, headers=[]))
        process.send(Chunk(id=1), b"12345678901")
        assert process.receive().message == Cancel(id=1)
        assert failure(process).message == "the answer to GET https://h/ is larger than 10 bytes"


def test_a_body_is_streamed_from_an_iterable(tmp_path: Path) -> None:
    """Pieces are sent as they are made; those above 1 MiB are cut, empty ones left out."""
    body = """
        def pieces():
            yield b"a" * 10
            yield b""
            yield bytearray(b"b" * (5 + (1 << 20)))
        return http.request("PUT", "https://h/", body=pieces()).status
    """
    with connector(tmp_path, body) as process:
        assert next_request(process).body == "stream"
        frames = [process.receive()]
        while not frames[-1].message.end:  # type: ignore[union-attr]
            frames.append(process.receive())
        assert [len(frame.body or b"") for frame in frames] == [10, MAX_BODY_BYTES, 5, 0]
        answer(process, 1, status=201)
        assert output(process) == 201


def test_a_large_body_of_bytes_is_streamed(tmp_path: Path) -> None:
    """A body that fits goes inline, a larger one in chunks, and the author need not know."""
    body = "return [http.request('PUT', 'https://h/', body=bytes(n)).status for n in (1 << 20, 1 + (1 << 20))]"
    with connector(tmp_path, body) as process:
        assert next_request(process).body == "inline"
        answer(process, 1)
        assert next_request(process).body == "stream"
        sizes = [len(process.receive().body or b"") for _ in range(3)]
        assert sizes == [MAX_BODY_BYTES, 1, 0]
        answer(process, 2)
        assert output(process) == [200, 200]


def test_an_upload_stops_when_the_answer_is_complete(tmp_path: Path) -> None:
    """A service may refuse after the first bytes; the rest is not made, and the host is told so."""
    body = """
        made = 0
        def endless():
            nonlocal made
            while True:
                made += 1
                yield bytes(1 << 16)
        status = http.request("POST", "https://h/", body=endless()).status
        return [status, made < 1000]
    """
    with asking(tmp_path, body) as process:
        process.receive()
        answer(process, 1, b"too large", status=413)
        while not isinstance(process.receive().message, Cancel):
            pass
        assert output(process) == [413, True]


def test_an_upload_that_fails_half_way_is_cancelled(tmp_path: Path) -> None:
    """The service must never take a half-sent body for a complete one."""
    body = """
        def broken():
            yield b"half"
            raise ValueError("no more")
        try:
            http.request("POST", "https://h/", body=broken())
        except ValueError as error:
            return str(error)
    """
    with asking(tmp_path, body) as process:
        assert process.receive() == (Chunk(id=1), b"half")
        assert process.receive().message == Cancel(id=1)
        assert output(process) == "no more"


def test_an_upload_and_a_large_answer_that_fill_both_pipes_do_not_deadlock(tmp_path: Path) -> None:
    """The host writes megabytes before it reads anything, while the connector uploads: both finish."""
    body = """
        first = http.request("GET", "https://h/")
        sent = http.request("PUT", "https://h/", body=bytes(3 << 20))
        return [len(first.read()), sent.status]
    """
    with asking(tmp_path, body) as process:
        answer(process, 1, *[bytes(1 << 20)] * 4)
        request = next_request(process)
        while not isinstance(message := process.receive().message, Chunk) or not message.end:
            pass
        answer(process, request.id)
        assert output(process) == [4 << 20, 200]


def test_the_size_of_unread_answers_is_bounded(tmp_path: Path) -> None:
    """The failure says what to do if one answer floods in while the connector waits for another."""
    body = """
        first = http.request("GET", "https://h/flood")
        http.request("GET", "https://h/other")
    """
    with asking(tmp_path, body) as process:
        process.send(HttpHead(id=1, status=200, headers=[]))
        next_request(process)
        for _ in range(9):
            process.send(Chunk(id=1), bytes(1 << 20))
        failed = failure(process)
        assert failed.failure_class == "connector_runtime_error"
        assert "read or close one before you wait for another" in failed.message


def test_answers_to_many_concurrent_requests_are_not_mixed_up(tmp_path: Path) -> None:
    """Hundreds of requests, 32 at a time, answered in any order and interleaved: each gets its own bytes."""
    # Synchronous requests wait for their heads, so what is in flight at once is bodies: heads first, bodies shuffled.
    body = f"""
        got = {{}}
        for start in range(0, 320, {MAX_IN_FLIGHT}):
            batch = range(start, start + {MAX_IN_FLIGHT})
            answers = [http.request("POST", f"https://h/{{n}}", body=str(n).encode()) for n in batch]
            for n, r in reversed(list(zip(batch, answers))):
                got[str(n)] = r.text()
        return got
    """
    random = Random(7)
    with connector(tmp_path, body) as process:
        for _ in range(0, 320, MAX_IN_FLIGHT):
            bodies = {}
            for _ in range(MAX_IN_FLIGHT):
                message, data = process.receive()
                assert isinstance(message, HttpRequest)
                assert data is not None
                bodies[message.id] = [b"<", data, b">"]
                process.send(HttpHead(id=message.id, status=200, headers=[]))
            while bodies:
                request_id = random.choice(list(bodies))
                piece = bodies[request_id].pop(0)
                process.send(Chunk(id=request_id, end=not bodies[request_id]), piece)
                if not bodies[request_id]:
                    del bodies[request_id]
        assert output(process) == {str(n): f"<{n}>" for n in range(320)}


def test_exceeding_the_limit_of_concurrent_requests_is_reported_to_the_author(tmp_path: Path) -> None:
    """The failure comes before the request is sent, and has the limit."""
    with connector(tmp_path, "[http.request('GET', 'https://h/') for _ in range(33)]") as process:
        for _ in range(MAX_IN_FLIGHT):
            process.send(HttpHead(id=next_request(process).id, status=200, headers=[]))
        assert "more than 32 requests open at once" in failure(process).message


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("http.request('GET', 'https://h/', body='text')", "a body is bytes"),
        ("http.request('GET', 'https://h/', {'A': 1})", "Expected `str`, got `int`"),
        ("http.request(5, 'https://h/')", "Expected `str`, got `int`"),
        ("http.request('GET', 'https://h/' + 'x' * 70000)", "at most 65536"),
    ],
)
def test_an_invalid_request_is_reported_as_a_mistake_of_the_connector(tmp_path: Path, call: str, words: str) -> None:
    """The host gets no part of the request."""
    with connector(tmp_path, call) as process:
        failed = failure(process)
        assert failed.failure_class == "connector_runtime_error"
        assert words in failed.message


def test_a_request_can_follow_one_that_could_not_be_sent(tmp_path: Path) -> None:
    """The failed request uses up no id and leaves nothing behind."""
    body = """
        try:
            http.request("GET", "https://h/", {"A": 1})
        except Exception:
            return http.request("GET", "https://h/").text()
    """
    with connector(tmp_path, body) as process:
        assert next_request(process).id == 1
        answer(process, 1, b"ok")
        assert output(process) == "ok"

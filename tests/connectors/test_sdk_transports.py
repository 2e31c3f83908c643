"""The transports where libraries and frames could disagree: event loops, threads, dropped answers, and early clients."""

from __future__ import annotations

import asyncio
import gc
import http.client
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx
import httpx2
import pytest
import requests

from aileron_connector import hosts, loop, op, tcp
from aileron_connector.testing import Reply, Request, Unreachable, call
from aileron_sandbox.frames import MAX_IN_FLIGHT

pytestmark = pytest.mark.usefixtures("own_operations")

ORIGIN = "https://notes.example.com"
Operation = Callable[..., Any]


def echo(request: Request) -> Reply:
    """Return method, path and body as the answer."""
    return Reply.of([request.method, request.url.removeprefix(ORIGIN), request.body.decode()])


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_an_asynchronous_client_sends_concurrently(library: ModuleType) -> None:
    """A dozen requests run at once, with an asynchronous upload among them."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            await anyio.lowlevel.checkpoint()
            yield str(number).encode() * 3

    async def run() -> list[Any]:
        found: dict[str, Any] = {}
        async with library.AsyncClient(base_url=ORIGIN) as client, anyio.create_task_group() as tasks:

            async def ask(name: str, *arguments: Any, **options: Any) -> None:
                answer = await client.request(*arguments, **options)
                found[name] = answer.json()

            tasks.start_soon(ask, "get", "GET", "/a")
            for number in range(10):
                tasks.start_soon(ask, f"get {number}", "GET", f"/{number}")
            await ask("upload", "POST", "/up", content=pieces())
            await ask("inline", "PUT", "/in", json={"a": 1})
        return [found["get"], found["upload"], found["inline"], len(found)]

    @op
    def x() -> list[Any]:
        found: list[Any] = anyio.run(run)
        return found

    assert call("x", answer=echo).output == [
        ["GET", "/a", ""],
        ["POST", "/up", "000111222333444"],
        ["PUT", "/in", '{"a":1}'],
        13,
    ]


def test_cancelling_the_task_that_reads_frames_lets_another_task_read_them() -> None:
    """A single task reads for all. If it is cancelled, the tasks that wait behind it must not wait for ever."""
    release = threading.Event()

    def slow(request: Request) -> Reply:
        if request.url.endswith("/slow"):
            assert release.wait(10)
        return Reply(200, b"here")

    async def run() -> list[Any]:
        async with httpx.AsyncClient(timeout=None) as client:
            first = asyncio.create_task(client.get(ORIGIN + "/slow"))
            await asyncio.sleep(0)
            second = asyncio.create_task(client.get(ORIGIN + "/fast"))
            await asyncio.sleep(0)
            first.cancel()
            release.set()
            return [(await second).text, first.cancelled() or isinstance(await _outcome(first), asyncio.CancelledError)]

    @op
    def x() -> list[Any]:
        return asyncio.run(run())

    assert call("x", answer=slow).output == ["here", True]


async def _outcome(task: asyncio.Task[Any]) -> BaseException | None:
    try:
        await task
    except asyncio.CancelledError as error:
        return error
    return None


def test_a_waiting_task_wakes_when_another_task_reads_its_answer_during_an_upload() -> None:
    """A task waits for frames; another sends and reads them all. No event follows, but the first must wake up."""
    is_watching = threading.Event()

    def answer_late(request: Request) -> Reply:
        assert is_watching.wait(10)
        return echo(request)

    async def run() -> list[Any]:
        done = anyio.Event()
        async with httpx.AsyncClient(timeout=10) as client, anyio.create_task_group() as tasks:
            found: list[Any] = []

            async def ask() -> None:
                found.append((await client.get(ORIGIN + "/a")).json())
                done.set()

            async def pieces() -> AsyncIterator[bytes]:
                conversation = loop.current()
                is_watching.set()
                while not conversation._session.is_answered(1):
                    conversation._take_in(conversation._read())  # as sending does while the pipe to the host is full
                await done.wait()
                yield b"end"

            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            found.append((await client.post(ORIGIN + "/b", content=pieces())).json())
        return found

    @op
    def x() -> list[Any]:
        return anyio.run(run)

    assert call("x", answer=answer_late).output == [["GET", "/a", ""], ["POST", "/b", "end"]]


def test_an_asynchronous_client_raises_its_own_timeouts_and_refusals() -> None:
    """They are httpx's ReadTimeout, and its ConnectError if nothing was sent."""
    release = threading.Event()

    def answer(request: Request) -> Reply:
        if request.url.endswith("/down"):
            raise Unreachable("down")
        release.wait(10)
        return Reply()

    async def failure(path: str, timeout_s: float) -> str:
        async with httpx.AsyncClient(timeout=timeout_s) as client:
            try:
                await client.get(ORIGIN + path)
            except httpx.HTTPError as error:
                return type(error).__name__
        return "none"

    @op
    def x() -> list[str]:
        found = [asyncio.run(failure("/down", 10)), asyncio.run(failure("/mute", 0.1))]
        release.set()
        return found

    assert call("x", answer=answer).output == ["ConnectError", "ReadTimeout"]


def test_a_client_made_before_an_invocation_can_send_requests_during_the_invocation() -> None:
    """A module may make its clients when it is loaded. Closed after the invocation, such a client has nothing left to close."""
    client, session = httpx.Client(), requests.Session()

    @op
    def x() -> list[Any]:
        return [client.get(ORIGIN + "/1").json(), session.get(ORIGIN + "/2", timeout=5).json()]

    found = call("x", answer=echo).output
    client.close()
    session.close()

    assert found == [["GET", "/1", ""], ["GET", "/2", ""]]


def test_a_client_outside_an_invocation_connects_as_usual() -> None:
    """The port has no listener, and the library raises its own error: no frames, no error of ours."""
    with httpx.Client() as client, pytest.raises(httpx.ConnectError):
        client.get("http://127.0.0.1:1/")
    with pytest.raises(requests.ConnectionError):
        requests.get("http://127.0.0.1:1/", timeout=5)


def test_unread_answers_that_are_dropped_make_room_for_further_requests() -> None:
    """More answers than may be open at once are requested, and none is read to its end."""

    @op
    def x() -> int:
        for _ in range(MAX_IN_FLIGHT + 8):
            requests.get(ORIGIN, stream=True, timeout=5)
            gc.collect()
        return MAX_IN_FLIGHT + 8

    assert call("x", answer=lambda request: Reply(200, bytes(300_000))).output == MAX_IN_FLIGHT + 8


def test_a_connector_s_request_from_another_thread_is_an_error() -> None:
    """An invocation has one conversation, and one thread holds it. The error says what to do."""

    @op
    def x() -> list[str]:
        words: list[str] = []

        def ask() -> None:
            try:
                requests.get(ORIGIN, timeout=5)
            except RuntimeError as error:
                words.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return words

    assert call("x").output == ["only the thread that called run() may talk to the host"]


def test_the_scheme_and_port_of_a_granted_host_go_into_the_request_url() -> None:
    """The scheme is http if the user allowed plain; the scheme's own port is left out."""

    @op
    def x() -> list[Any]:
        plain, other = hosts()
        connection = http.client.HTTPConnection(plain.host, plain.port)
        connection.request("GET", "/plain")
        return [connection.getresponse().status, httpx.get(f"{other.url}/other").status_code]

    origins = ["http://127.0.0.1:8080", "https://notes.example.com:8443"]
    done = call("x", answer=lambda request: Reply(), hosts=origins)

    assert done.output == [200, 200]
    assert [request.url for request in done.requests] == [f"{origins[0]}/plain", f"{origins[1]}/other"]


def test_a_target_that_is_no_path_never_becomes_part_of_a_host() -> None:
    """http.client sends any target; appended to the origin, `.evil.example.com` would change the host."""

    @op
    def x() -> list[str]:
        words = []
        for target in (".evil.example.com/", "@evil.example.com/", "https://evil.example.com/", "*"):
            try:
                http.client.HTTPSConnection("notes.example.com").request("GET", target)
            except ValueError as error:
                words.append(str(error).partition(" ")[0])
        return words

    done = call("x")

    assert done.output == ["a"] * 4
    assert done.requests == ()


def test_a_librarys_wrapped_network_error_is_recognized_but_an_exception_while_handling_one_is_a_bug() -> None:
    """requests around urllib3 around ours is a network_error; a KeyError raised while one was handled is a bug."""

    @op
    def wrapped() -> None:
        requests.get(ORIGIN, timeout=5)

    @op
    def bug() -> None:
        try:
            requests.get(ORIGIN, timeout=5)
        except requests.ConnectionError:
            dict[str, str]()["x"]

    down = [Unreachable("it is down")]
    assert call("wrapped", answer=down).failure.failure_class == "network_error"
    assert call("bug", answer=down).failure.failure_class == "connector_runtime_error"


def test_a_stream_is_refused_in_an_authors_test() -> None:
    """A test has no host that could connect it; the failure says to install the connector."""

    @op
    def x() -> None:
        tcp.connect("notes.example.com", 25)

    assert "install the connector" in call("x").failure.message


def test_importing_the_sdk_imports_no_networking_library() -> None:
    """An unused library costs a connector nothing, and neither do the SDK's adapters for it."""
    code = """
import sys
import aileron_connector
loaded = {"ssl", "socket", "http.client", "urllib3", "requests", "httpx", "smtplib", "asyncio", "anyio"} & set(sys.modules)
loaded |= {name for name in sys.modules if name.startswith("aileron_connector.transports.")}
print(sorted(loaded))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert ran.stdout.strip() == "['aileron_connector.transports.credentials', 'aileron_connector.transports.hooks']"


def test_a_missing_file_of_certificate_authorities_is_ignored_only_inside_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive could not contain it; anywhere else a missing file is the usual error."""
    archive, file = tmp_path / "connector", tmp_path / "file"
    archive.write_bytes(b"PK")
    file.write_bytes(b"")
    monkeypatch.syspath_prepend(str(archive))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    context.load_verify_locations(f"{archive}/stripe/data/ca-certificates.crt")
    with pytest.raises(NotADirectoryError):
        context.load_verify_locations(f"{file}/ca.pem")
    with pytest.raises(FileNotFoundError):
        context.load_verify_locations(f"{tmp_path}/none.pem")
    assert context.cert_store_stats()["x509_ca"] == 0

"""The loopback listener against everybody else who can reach it: other programs, other pages, other tabs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from aileron.model.secret import Secret
from aileron.oauth import callback
from aileron.oauth.callback import Callback
from aileron.oauth.peer import CLOSED, maybe_owner
from aileron.oauth.problems import ProviderError
from aileron.oauth.redirect import AuthorizationResponse, Awaited
from tests.oauth.conftest import visit
from tests.support.hostile_text import EVERYTHING, assert_harmless_page

pytestmark = pytest.mark.anyio

STATE: Final = "canary-state-of-this-sign-in-0123456789abcde"
GOOD: Final = f"/callback?code=canary-code-0123&state={STATE}"


class Waiting:
    """A listener at work, with its answer once there is one."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.port = callback.port
        self.answers: list[AuthorizationResponse] = []

    async def serve(self, awaited: Awaited) -> None:
        async with self.callback.answering(awaited):
            answered = await self.callback.wait_answered()
            self.answers.append(answered)
            await self.callback.tell(is_signed_in=answered.code is not None)
            await anyio.sleep_forever()

    async def good(self) -> int:
        """Send the right answer, and check that no earlier request ended or took the sign-in; return the status."""
        assert self.answers == []
        status, _, page = await visit(self.port, GOOD)
        assert [answered.code for answered in self.answers] == [Secret(b"canary-code-0123")]
        assert "You are signed in." in page
        return status


@contextlib.asynccontextmanager
async def waiting(**changes: Any) -> AsyncIterator[Waiting]:
    """Run a listener of a sign-in."""
    made = Waiting(Callback.opened())
    whole = {
        "port": made.port,
        "state": Secret(STATE.encode()),
        "authorize_url": "https://id.example/authorize",
        "issuer": None,
        "issuer_in_answer": True,
        "host": "id.example",
    }
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.serve, Awaited(**{**whole, **changes}))
            with anyio.fail_after(60):
                yield made
            tasks.cancel_scope.cancel()
    finally:
        made.callback.close()


STRANGE: Final = {
    "no state": "/callback?code=canary-code-0123",
    "an empty state": "/callback?code=canary-code-0123&state=",
    "another state": f"/callback?code=canary-code-0123&state={STATE[:-1]}f",
    "a longer state": f"/callback?code=canary-code-0123&state={STATE}0",
    "state twice": f"/callback?code=canary-code-0123&state={STATE}&state={STATE}",
    "code twice": f"/callback?code=canary-evil-0123&code=canary-code-0123&state={STATE}",
    "an error without state": "/callback?error=access_denied",
    "an error with another state": "/callback?error=access_denied&state=x",
    "state in another alphabet": "/callback?code=c&state=%ff%fe",
    "a hundred parameters": "/callback?" + "&".join(f"a{number}=1" for number in range(100)) + f"&state={STATE}&code=c",
    "nothing": "/callback",
    "state in the fragment's place": f"/callback?code=canary-code-0123%23state={STATE}",
}


@pytest.mark.abuse_case("O11")
@pytest.mark.parametrize("target", STRANGE.values(), ids=STRANGE.keys())
async def test_a_callback_without_the_state_is_refused_and_the_sign_in_continues(target: str) -> None:
    """A stranger's web page can send a browser to the listener: it gets 400, and the person is not disturbed."""
    async with waiting() as listener:
        status, _, page = await visit(listener.port, target)
        good = await listener.good()

    assert (status, good) == (400, 200)
    assert "does not belong to a sign-in in progress" in page


@pytest.mark.abuse_case("O11")
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost"}, 421),
        ({"host": "localhost:1"}, 421),
        ({"host": "localhost:{port}.evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"host": "localhost:{port}\r\nHost: localhost:{port}"}, 400),
        ({"method": "POST"}, 405),
        ({"method": "HEAD"}, 405),
        ({"method": "PUT"}, 405),
        ({"raw": b"GET %s HTTP/1.1\r\n\r\n"}, 400),
        ({"raw": b"GET %s HTTP/1.0\r\n\r\n"}, 421),
        ({"raw": b"GET http://localhost%s HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"}, 404),
        ({"raw": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}, 400),
        ({"raw": b"GET /callback?" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"}, 400),
    ],
    ids=str,
)
async def test_the_callback_listener_considers_only_a_get_request_with_its_own_host(
    options: dict[str, Any], status: int
) -> None:
    """A request with another Host, another method, or not in HTTP is refused, and the wait continues."""
    async with waiting() as listener:
        port = str(listener.port)
        ready = {
            key: value.replace(b"{port}", port.encode()).replace(b"%s", GOOD.encode())
            if isinstance(value, bytes)
            else value.replace("{port}", port)
            for key, value in options.items()
        }
        found, _, _ = await visit(listener.port, GOOD, **ready)
        good = await listener.good()

    assert (found, good) == (status, 200)


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
async def test_the_callback_listener_accepts_localhost_and_both_loopback_addresses_as_its_host(host: str) -> None:
    """A browser may use `localhost` or either address in the Host field."""
    async with waiting() as listener:
        status, _, _ = await visit(listener.port, GOOD, host=host.format(port=listener.port))

    assert status == 200


@pytest.mark.parametrize(
    "target", ["/", "/favicon.ico", "/callback/", "/Callback", "/callback/../callback", "//callback"]
)
async def test_a_request_for_another_path_of_the_callback_listener_gets_404(target: str) -> None:
    """They get 404, even with the right state."""
    async with waiting() as listener:
        status, _, _ = await visit(listener.port, f"{target}?code=canary-code-0123&state={STATE}")
        good = await listener.good()

    assert (status, good) == (404, 200)


@pytest.mark.abuse_case("O13")
async def test_the_callback_listener_listens_at_both_loopback_addresses() -> None:
    """`localhost` may resolve to either: a program that listens at the other address would receive the code."""
    async with waiting() as listener:
        for address in _loopbacks():
            with pytest.raises(OSError, match="in use"), socket.socket(_family(address)) as other:
                other.bind((address, listener.port))
        found = [(await visit(listener.port, "/", address=address))[0] for address in _loopbacks()]

    assert set(found) == {404}


@pytest.mark.abuse_case("O13")
async def test_a_port_that_another_program_has_at_one_loopback_address_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program binds ::1 after we bound the same port of 127.0.0.1, so another port is used."""
    if len(_loopbacks()) == 1:
        pytest.skip("this machine has no ::1")
    real, others = callback.listening_socket, contextlib.ExitStack()
    taken: list[int] = []

    def beside_another(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        made = real(family, address, port)
        if not taken:
            taken.append(made.getsockname()[1])
            with contextlib.suppress(OSError):  # somebody else has it already, which is as good
                others.enter_context(socket.create_server(("::1", taken[0]), family=socket.AF_INET6))
        return made

    monkeypatch.setattr(callback, "listening_socket", beside_another)
    with others, contextlib.closing(Callback.opened()) as made:
        assert made.port != taken[0]


async def test_a_sign_in_that_cannot_open_a_port_fails_with_an_error_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has no free file descriptor: the error is ours, and not the system's."""

    def none(*_: Any) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(callback, "listening_socket", none)
    codes = []
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            Callback.opened()
        codes.append(caught.value.code)
        monkeypatch.setattr(callback, "both_listening", lambda: None)  # another program is always at one of the two

    assert codes == ["no_port", "no_port"]


async def test_a_second_callback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second tab sends the same callback, or another code. The first one is used, and the page says so."""
    async with waiting() as listener:
        first = await listener.good()
        second, _, page = await visit(listener.port, GOOD.replace("canary-code", "canary-evil"))
        third, _, _ = await visit(listener.port, GOOD)

    assert (first, second, third) == (200, 400, 400)
    assert "does not belong to a sign-in in progress" in page
    assert len(listener.answers) == 1


async def test_many_wrong_callbacks_do_not_cancel_the_sign_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Further connections are closed without a response and with one log line; the person's callback still works."""
    monkeypatch.setattr(callback, "MAX_TRIES", 3)
    async with waiting() as listener:
        found = [(await visit(listener.port, f"/callback?state={number}"))[0] for number in range(6)]
        good = await listener.good()

    assert found == [400, 400, 400, 0, 0, 0]
    assert good == 200
    assert [record.getMessage() for record in caplog.records if record.name.startswith("aileron")] == [
        "sign-in: 3 wrong answers reached its local port; further ones get no reply"
    ]


@pytest.mark.abuse_case("O11")
@pytest.mark.parametrize(("seconds", "places"), [(3.0, 1000), (600.0, 4)], ids=["by time", "by number"])
async def test_silent_connections_do_not_block_the_sign_in(
    seconds: float, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent and slow connections are closed after a time, or to make room; the person is answered meanwhile."""
    monkeypatch.setattr(callback, "CONNECTION_S", seconds)
    monkeypatch.setattr(callback, "MAX_CONNECTIONS", places)
    with contextlib.ExitStack() as stack:
        async with waiting() as listener:

            def connect() -> socket.socket:
                return stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=20))

            silent = [await anyio.to_thread.run_sync(connect) for _ in range(20)]
            for client in silent[1::2]:
                with contextlib.suppress(ConnectionError):
                    client.sendall(b"GET /callback")
            good = await listener.good()
            end = await anyio.to_thread.run_sync(lambda: silent[0].recv(1))

    assert good == 200
    assert end == b""


async def test_a_connection_reset_by_a_client_does_not_affect_the_sign_in() -> None:
    """The connection is reset in the middle of a request head."""
    async with waiting() as listener:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                client.sendall(b"GET /callback?co")
        good = await listener.good()

    assert good == 200


@pytest.mark.abuse_case("O14")
@pytest.mark.parametrize(
    ("issuer", "found", "is_taken"),
    [
        (None, None, True),
        (None, "https://id.example", True),
        (None, "https://id.example/tenant", True),
        (None, "https://id.example:443/", True),
        (None, "https://evil.example", False),
        (None, "http://id.example", False),
        (None, "https://id.example.evil.example", False),
        (None, "https://id.example@evil.example", False),
        (None, "", False),
        ("https://id.example/a", "https://id.example/a", True),
        ("https://id.example/a", "https://id.example/a/", False),
        ("https://id.example/a", "https://id.example/b", False),
        ("https://id.example/a", None, False),
        ("https://id.example/a", "", False),
    ],
)
@pytest.mark.parametrize("what", ["code=canary-code-0123", "error=access_denied"])
async def test_a_callback_from_another_issuer_ends_the_sign_in_without_redeeming_the_code(
    what: str, issuer: str | None, found: str | None, is_taken: bool
) -> None:
    """RFC 9207: a declared issuer must be present and equal to the letter; without one, an issuer that is named must have
    the origin of the authorization page.
    """
    async with waiting(issuer=issuer) as listener:
        said = "" if found is None else f"&iss={found.replace(':', '%3A')}"
        await visit(listener.port, f"/callback?{what}&state={STATE}{said}")
        (answered,) = listener.answers

    if not is_taken:
        assert answered.problem is not None
        assert (answered.problem.code, answered.code) == ("issuer_mismatch", None)
    elif what.startswith("error"):
        assert answered.problem is not None
        assert answered.problem.code == "access_denied"
    else:
        assert answered.code == Secret(b"canary-code-0123")


@pytest.mark.parametrize(
    ("issuer_in_answer", "found", "is_taken"),
    [
        (True, "", False),
        (False, "", True),
        (False, "&iss=https%3A%2F%2Fid.example%2Fa", True),
        (False, "&iss=https%3A%2F%2Fid.example%2Fb", False),
        (False, "&iss=https%3A%2F%2Fid.example", False),
        (False, "&iss=", False),
    ],
)
async def test_a_provider_that_omits_its_issuer_is_accepted_if_the_manifest_says_so(
    issuer_in_answer: bool, found: str, is_taken: bool
) -> None:
    """A callback that names an issuer nevertheless must name the declared one."""
    async with waiting(issuer="https://id.example/a", issuer_in_answer=issuer_in_answer) as listener:
        await visit(listener.port, f"/callback?code=canary-code-0123&state={STATE}{found}")
        (answered,) = listener.answers

    assert (answered.code is not None) == is_taken
    assert is_taken or (answered.problem is not None and answered.problem.code == "issuer_mismatch")


@pytest.mark.parametrize("code", ["", "%00canary", "canary%0d%0aX:%20y", "%E2%80%AE", "c" * 9000])
async def test_an_invalid_authorization_code_ends_the_sign_in_with_a_message(code: str) -> None:
    """The callback has the right state, so it comes from the provider."""
    async with waiting() as listener:
        status, _, page = await visit(listener.port, f"/callback?code={code}&state={STATE}")
        (answered,) = listener.answers

    assert answered.problem is not None
    assert answered.problem.code == "bad_answer"
    assert (status, "You are not signed in." in page) == (400, True)


async def test_the_callback_page_quotes_nothing_from_the_request_and_runs_no_script() -> None:
    """The page is ours whatever the address contains: no script, link or referrer, nothing to cache or to frame."""
    from urllib.parse import quote

    hostile = quote(EVERYTHING, safe="", errors="replace")[:8000]
    async with waiting() as listener:
        found = [
            await visit(listener.port, f"/callback?error={hostile}&error_description={hostile}"[:8000]),
            await visit(listener.port, f"/{hostile}"),
            await visit(listener.port, f"/callback?error=x&state={STATE}&error_description=%3Cscript%3Ecanary"),
        ]

    for _, fields, page in found:
        assert_harmless_page(page)
        assert "canary" not in page
        assert fields["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in fields["content-security-policy"]
        assert fields["referrer-policy"] == "no-referrer"
        assert fields["cache-control"] == "no-store"
        assert fields["x-content-type-options"] == "nosniff"
        assert fields["connection"] == "close"
        assert "color-scheme: light dark" in page
        assert "prefers-color-scheme: dark" in page


def _loopbacks() -> list[str]:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return ["127.0.0.1", "::1"]
    return ["127.0.0.1"]


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


OF_ANOTHER_USER: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as client:
    client.sendall(f"GET {sys.argv[3]} HTTP/1.1\\r\\nHost: localhost:{sys.argv[2]}\\r\\n\\r\\n".encode())
    print(client.recv(65536).decode().split(" ")[1])
"""
OF_A_TRICKSTER: Final = """
import socket, sys
port, trick = int(sys.argv[1]), sys.argv[2]
mapped = trick == "mapped"
client = socket.socket(socket.AF_INET6 if mapped else socket.AF_INET)
client.connect(("::ffff:127.0.0.1" if mapped else "127.0.0.1", port))
client.send(b"x")
if trick == "closed":
    client.close()
else:
    if trick == "half closed":
        client.shutdown(socket.SHUT_WR)
    sys.stdin.read()
"""
NOBODY: Final = 65534


@pytest.mark.abuse_case("O19")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_another_user_who_knows_the_state_cannot_complete_the_sign_in(address: str) -> None:
    """Other users can read a browser's arguments. The same request from the person's own program completes it."""
    async with waiting() as listener:
        words = ["-I", "-S", "-c", OF_ANOTHER_USER, address, str(listener.port), GOOD]
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        if listener.callback.addresses.isdisjoint({address}):
            pytest.skip(f"this machine has no {address}")
        done = await anyio.run_process([python, *words], user=NOBODY, group=NOBODY, cwd="/", env={})
        good = await listener.good()

    assert (done.stdout.strip(), good) == (b"403", 200)


@pytest.mark.abuse_case("O19")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("trick", ["mapped", "closed", "half closed"])
async def test_a_connection_of_another_user_is_attributed_to_that_user_or_reported_as_closed(trick: str) -> None:
    """They use an IPv4-mapped address, close the connection before the check, or close half of it."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = ["-I", "-S", "-c", OF_A_TRICKSTER, str(listener.getsockname()[1]), trick]
        with subprocess.Popen(
            [python, *words], user=NOBODY, group=NOBODY, cwd="/", env={}, stdin=subprocess.PIPE
        ) as other:
            if trick == "closed":
                other.wait()
            with listener.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"
                owner = await anyio.to_thread.run_sync(maybe_owner, accepted)
            other.communicate(timeout=20)

    assert owner in (NOBODY, CLOSED)


@pytest.mark.abuse_case("O19")
def test_a_closed_connection_is_reported_as_closed_and_not_as_owned_by_root() -> None:
    """Some kernels list a closed socket as owned by root, and then not at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as client:
            accepted = listener.accept()[0]
            own = maybe_owner(accepted)
            client.shutdown(socket.SHUT_WR)
        with accepted:
            gone = maybe_owner(accepted)

    assert (own, gone) == (os.geteuid(), CLOSED)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_owner_of_a_connection_is_found_in_the_kernel_s_tables(address: str) -> None:
    """Both loopback addresses are tried, among a hundred other connections."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, 0), family=family, backlog=128)
    except OSError as error:
        pytest.skip(f"this machine has no {address}: {error}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(listener)
        for _ in range(100):
            client = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
        accepted = [stack.enter_context(listener.accept()[0]) for _ in range(100)]
        found = {maybe_owner(each) for each in accepted}
        own = maybe_owner(client)

    assert found == {os.geteuid()}
    assert own == os.geteuid()

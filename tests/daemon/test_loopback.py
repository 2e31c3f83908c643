"""The loopback port: what a review address shows, and which requests are refused."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import re
import socket
from collections.abc import Iterator

import pytest

from aileron.daemon.http import ports
from tests.support.home import DaemonHome, daemon_home
from tests.support.paged import port_of
from tests.support.ports import reserve_ports
from tests.support.reused import reused

pytestmark = pytest.mark.jail

KNOWN = "act-20261121T035800-0f7c1dd8f7b7a1ba1d0e"


@pytest.fixture(scope="module")
def page_home() -> Iterator[DaemonHome]:
    """Start a home with a daemon and nothing else."""
    with daemon_home() as made:
        made.must("GET", "/healthz")
        yield made


def get(
    port: int, path: str, host: str | None = None, address: str = "127.0.0.1", method: str = "GET", **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Send a request and return status, body and headers."""
    connection = http.client.HTTPConnection(address, port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host or f"localhost:{port}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def test_a_review_address_shows_only_commands_and_nothing_of_its_question(page_home: DaemonHome) -> None:
    """The page is the same for an identifier that exists and for one that does not, except for the identifier."""
    port = port_of(page_home)

    status, body, _ = get(port, f"/approvals/{KNOWN}")

    assert status == 200
    commands = re.findall(r"<code>(.*?)</code>", body)
    assert commands == [
        "aileron approver init",  # this home has no approver
        f"aileron approve {KNOWN}",
        f"aileron approval show {KNOWN}",
        f'aileron deny {KNOWN} --reason "…"',
    ]
    assert get(port, "/approvals/act-20261121T035800-ffffffffffffffffffff")[1] == body.replace(
        KNOWN, "act-20261121T035800-ffffffffffffffffffff"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/approvals/act-1",
        "/approvals/%3Cscript%3E",
        f"/approvals/{KNOWN}%0A",
        f"/approvals/{KNOWN}/decide/",
        "/",
    ],
)
def test_a_malformed_review_address_gets_404(page_home: DaemonHome, path: str) -> None:
    """The response repeats nothing of the address."""
    status, body, _ = get(port_of(page_home), path)

    assert status == 404
    assert "script" not in body


def token_of(home: DaemonHome) -> str:
    """Return the token of a new session."""
    return str(home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"])


@pytest.mark.parametrize("path", ["/v1/actions", "/v1/status", "/mcp"])
def test_a_request_over_tcp_needs_a_sessions_token(page_home: DaemonHome, path: str) -> None:
    """A request without a token or with a bad one is refused; with a good one it is not."""
    port = port_of(page_home)

    for shown in ({}, {"Authorization": "Bearer ail_" + "A" * 43}, {"Authorization": "Basic bWlyYTp4"}):
        status, body, _ = get(port, path, **shown)
        assert (status, json.loads(body)["error"]["class"]) == (401, "unauthorized")
    assert get(port, path, Authorization=f"Bearer {token_of(page_home)}")[0] != 401


def test_a_keep_alive_connection_is_usable_after_a_refused_request(page_home: DaemonHome) -> None:
    """The next request on the connection is answered, however large the body of the refused one was."""
    port = port_of(page_home)

    def refused_and_then_answered() -> None:
        with contextlib.closing(http.client.HTTPConnection("localhost", port, timeout=10)) as connection:
            for path in ("/mcp", "/v1/actions/x/run"):
                connection.request("POST", path, b"x" * 900_000, {"Host": f"localhost:{port}"})
                answer = connection.getresponse()
                assert (answer.status, json.loads(answer.read())["error"]["class"]) == (401, "unauthorized")
            connection.request("GET", "/healthz", headers={"Host": f"localhost:{port}"})
            assert connection.getresponse().status == 200

    reused(refused_and_then_answered)


def said(home: DaemonHome, line: str, where: str) -> tuple[int, bytes]:
    """Return the status and the whole response to a first line, on the port or on a socket of the home."""
    with socket.socket(socket.AF_INET if where == "port" else socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(("127.0.0.1", port_of(home)) if where == "port" else str(home.path / "run" / where))
        client.sendall(f"{line}\r\nHost: localhost:{port_of(home)}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    return int(answer.split(b" ")[1]), answer


@pytest.mark.abuse_case("A31")
@pytest.mark.parametrize("where", ["port", "agent.sock", "operator.sock"])
@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        ("get /healthz HTTP/1.1", 501, b"get is no method; methods are written in capitals"),
        ("Get /healthz HTTP/1.1", 501, b"Get is no method"),
        ("BREW /healthz HTTP/1.1", 501, b"BREW is no method"),
        ("GET /healthz HTTP/9.9", 505, b"HTTP/1.1 is spoken here, not HTTP/9.9"),
        ("GET /healthz HTTP/2.0", 505, b"HTTP/1.1 is spoken here, not HTTP/2.0"),
        ("GET /healthz HTTP/0.9", 505, b"HTTP/1.1 is spoken here, not HTTP/0.9"),
    ],
)
def test_an_unsupported_method_or_http_version_is_refused(
    page_home: DaemonHome, line: str, status: int, why: bytes, where: str
) -> None:
    """A method must be in capitals and known, and a version supported; HTTP/1.0 and HTTP/1.1 are."""
    found, answer = said(page_home, line, where)

    assert (found, why in answer) == (status, True), answer
    assert said(page_home, "GET /healthz HTTP/1.1", where)[0] == 200
    assert said(page_home, "GET /healthz HTTP/1.0", where)[0] == 200


@pytest.mark.abuse_case("A31")
@pytest.mark.parametrize("path", ["/v1/actions", "/v1/nothing", "/v1/messages", "/v1/audit"])
def test_every_response_under_the_path_v1_is_json_and_is_not_cached(page_home: DaemonHome, path: str) -> None:
    """This holds for answered and refused requests, with and without a token."""
    shown = {"Authorization": f"Bearer {token_of(page_home)}"}
    for fields in ({}, shown):
        _, _, headers = get(port_of(page_home), path, **fields)
        assert headers["content-type"] == "application/json"
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


def test_a_token_opens_no_operator_route_over_tcp(page_home: DaemonHome) -> None:
    """Operator routes are refused as on the agent socket; the agents' routes are answered."""
    port, shown = port_of(page_home), {"Authorization": f"Bearer {token_of(page_home)}"}

    for path in ("/v1/audit", "/v1/sessions", "/v1/vault/status", "/v1/action-approvals"):
        status, body, _ = get(port, path, **shown)
        assert status == 401, path
        assert "not available on the agent socket" in body
    assert get(port, "/v1/actions", **shown)[0] == 200


def test_pages_have_a_strict_content_security_policy_and_cannot_be_framed(page_home: DaemonHome) -> None:
    """The policy allows no foreign script, source, frame or cache; style and script are allowed by their hashes."""
    _, body, headers = get(port_of(page_home), f"/approvals/{KNOWN}")

    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(f"<{element}>(.*?)</{element}>", body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "base-uri 'none'" in policy
    assert headers["referrer-policy"] == "same-origin"  # under no-referrer a form has no origin that could be checked
    assert (headers["cross-origin-opener-policy"], headers["cross-origin-resource-policy"]) == ("same-origin",) * 2
    assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_requests_to_every_loopback_name_are_served(page_home: DaemonHome, host: str) -> None:
    """A person may type any of these names."""
    port = port_of(page_home)

    assert get(port, "/healthz", f"{host}:{port}")[0] == 200


@pytest.mark.abuse_case("A14")
@pytest.mark.parametrize("host", ["evil.example.com:{port}", "localhost:1", "localhost", "127.0.0.1.nip.io:{port}", ""])
def test_a_request_to_a_dns_name_rebound_to_loopback_is_refused(page_home: DaemonHome, host: str) -> None:
    """This holds for every path, whether it exists or not."""
    port = port_of(page_home)
    name = host.format(port=port) or " "

    for path in ("/healthz", f"/approvals/{KNOWN}", "/nothing"):
        status, body, _ = get(port, path, name)
        assert (status, KNOWN in body) in {(403, False), (400, False)}


def test_a_request_with_a_foreign_origin_is_refused(page_home: DaemonHome) -> None:
    """An Origin of `null` is foreign too; the port's own is accepted."""
    port = port_of(page_home)
    path = f"/approvals/{KNOWN}"

    foreign = [
        get(port, path, Origin=origin)[0] for origin in ("https://evil.example.com", "null", "http://localhost:1")
    ]
    own = get(port, path, Origin=f"http://localhost:{port}")[0]

    assert (foreign, own) == ([403, 403, 403], 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_review_address_accepts_only_get(page_home: DaemonHome, method: str) -> None:
    """A question takes decisions at another address, and only from an unlocked browser (tests/web)."""
    assert get(port_of(page_home), f"/approvals/{KNOWN}", method=method)[0] == 405


def test_the_daemon_listens_on_loopback_addresses_only(page_home: DaemonHome) -> None:
    """The daemon holds the IPv4 and the IPv6 one, so that no other program can answer for `localhost`."""
    port = port_of(page_home)

    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match=r"in use|assign|supported"):
                squatter.bind((address, port))
    with socket.socket() as elsewhere:
        elsewhere.settimeout(5)
        assert elsewhere.connect_ex(("127.0.0.2", port)) != 0


def test_a_port_in_use_keeps_the_daemon_from_starting() -> None:
    """Another program could answer for the page otherwise; once the port is free, the daemon starts on it."""
    (port,) = reserve_ports(1)
    with daemon_home() as home, socket.create_server(("127.0.0.1", port)) as other:
        home.configure(f"[daemon]\nport = {port}\n")

        with pytest.raises(Exception, match=rf"loopback port {port} .*daemon\.port"):
            home.must("GET", "/healthz")
        other.close()

        assert port_of(home) == port


def test_a_starting_daemon_retries_its_port_while_the_previous_owner_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous process closes the port between two tries."""
    held = socket.create_server(("127.0.0.1", 0))
    port = held.getsockname()[1]
    monkeypatch.setattr("aileron.daemon.http.ports.time.sleep", lambda _pause_s: held.close())
    found, listeners = ports.listen_on_loopback(port)
    addresses = [listener.getsockname()[:2] for listener in listeners]
    for listener in listeners:
        listener.close()

    assert (found, addresses[0]) == (port, ("127.0.0.1", port))


def test_a_port_that_cannot_be_stored_in_a_linked_config_file_is_reported_at_the_start() -> None:
    """The daemon stores its port there, but never through a symbolic link; a linked file that has a port is read."""
    with daemon_home() as home:
        home.configure("")
        elsewhere = home.path / "dotfiles.toml"
        elsewhere.write_text("# mine\n", encoding="utf-8")
        (home.path / "config.toml").unlink()
        (home.path / "config.toml").symlink_to(elsewhere)

        with pytest.raises(Exception, match=r"config\.toml.*port = [0-9]+"):
            home.must("GET", "/healthz")
        assert elsewhere.read_text(encoding="utf-8") == "# mine\n"
        (port,) = reserve_ports(1)
        elsewhere.write_text(f"[daemon]\nport = {port}\n", encoding="utf-8")

        assert port_of(home) == port

"""The gateway in a real daemon: on its port, with its vault and its sessions, behind its check of Host and Origin."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.gateway.conftest import Line, Provider, refusal
from tests.support.approver import Approver
from tests.support.home import SECRET, DaemonHome, daemon_home
from tests.support.paged import port_of

pytestmark = pytest.mark.jail

OK = b"HTTP/1.1 200 OK\r\nDate: then\r\nContent-Length: 2\r\n\r\nok"


def new_session(home: DaemonHome) -> dict[str, str]:
    """Open a session for an agent, with a token."""
    made: dict[str, str] = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/tmp"})
    return made


def post(port: int, path: str, *fields: str, host: str = "localhost") -> bytes:
    """Return a request with a small body."""
    head = [f"POST {path} HTTP/1.1", f"Host: {host}:{port}", *fields, "Content-Length: 2"]
    return "\r\n".join(head).encode() + b"\r\n\r\nhi"


def asked(home: DaemonHome, path: str, *fields: str, host: str = "localhost") -> tuple[int, str]:
    """Return status and class of a request that the gateway refuses itself."""
    with Line.to(port_of(home)) as client:
        client.say(post(port_of(home), path, *fields, host=host))
        return refusal(client)[:2]


def passed(home: DaemonHome, provider: Provider, path: str, *fields: str) -> tuple[bytes, dict[bytes, bytes]]:
    """Send a request and return the first line and the fields that the provider saw; check that its response came
    back unchanged, without a second date.
    """
    with Line.to(port_of(home)) as client:
        client.say(post(port_of(home), path, *fields))
        with provider.answering() as upstream:
            head, body = upstream.message()
            upstream.say(OK)
            back, answered = client.message()
    assert (body, answered) == (b"hi", b"ok")
    assert back.fields == [(b"date", b"then"), (b"content-length", b"2")]
    return head.start, dict(head.fields)


def test_a_request_with_the_clients_own_api_key_needs_no_session_token(
    gateway_home: DaemonHome, provider: Provider
) -> None:
    """The vault has no key for this provider. All other routes of the port need a session's token."""
    start, fields = passed(gateway_home, provider, "/v1/responses?x=1", "Authorization: Bearer sk-own")

    assert start == b"POST /o/v1/responses?x=1 HTTP/1.1"
    assert fields[b"authorization"] == b"Bearer sk-own"
    assert fields[b"host"] == f"127.0.0.1:{provider.port}".encode()


def test_the_vaults_api_key_replaces_only_an_open_sessions_token(gateway_home: DaemonHome, provider: Provider) -> None:
    """Any other key, and the token of an ended session, are refused; the token itself is never sent upstream."""
    session = new_session(gateway_home)
    shown = f"x-api-key: {session['token']}"

    start, fields = passed(gateway_home, provider, "/v1/messages?beta=true", shown)
    assert (start, fields[b"x-api-key"]) == (b"POST /a/v1/messages?beta=true HTTP/1.1", SECRET)
    assert asked(gateway_home, "/v1/messages", "x-api-key: sk-own") == (401, "unauthorized")
    assert asked(gateway_home, "/v1/messages", f"x-api-key: ail_{'x' * 43}") == (401, "unauthorized")
    assert asked(gateway_home, "/v1/responses", f"Authorization: Bearer {session['token']}") == (401, "unauthorized")
    gateway_home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})
    assert asked(gateway_home, "/v1/messages", shown) == (401, "unauthorized")
    assert not provider.is_called()


def test_a_locked_vault_stops_requests_even_with_the_clients_own_key(
    gateway_home: DaemonHome, provider: Provider
) -> None:
    """Both providers are stopped: an agent that can think but not act only costs its owner money."""
    session = new_session(gateway_home)
    gateway_home.must("POST", "/v1/vault/lock")

    assert asked(gateway_home, "/v1/messages", f"x-api-key: {session['token']}") == (423, "vault_locked")
    assert asked(gateway_home, "/v1/responses", "Authorization: Bearer sk-own") == (423, "vault_locked")
    assert not provider.is_called()
    gateway_home.unlock()
    assert passed(gateway_home, provider, "/v1/responses", "Authorization: Bearer sk-own")


@pytest.mark.abuse_case("A14")
def test_no_foreign_web_page_reaches_a_model_through_the_gateway(gateway_home: DaemonHome, provider: Provider) -> None:
    """A foreign Origin or a rebound Host name gets 403 before the gateway; the port's own Origin is accepted."""
    port = port_of(gateway_home)
    for request in (
        post(port, "/v1/responses", "Origin: https://evil.example"),
        post(port, "/v1/responses", "Origin: null"),
        post(port, "/v1/responses", host="rebound.example"),
    ):
        with Line.to(port) as client:
            client.say(request)
            assert client.head().status == 403
    assert not provider.is_called()
    assert passed(gateway_home, provider, "/v1/responses", f"Origin: http://localhost:{port}")


def test_a_websocket_request_gets_426_and_a_foreign_pages_request_gets_403(
    gateway_home: DaemonHome, provider: Provider
) -> None:
    """A client then falls back to HTTP. The Origin is checked first."""
    port = port_of(gateway_home)
    for fields, status in (((), 426), (("Origin: https://evil.example",), 403)):
        with Line.to(port) as client:
            upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
            head = ["GET /v1/responses HTTP/1.1", f"Host: localhost:{port}", *upgrade, key, *fields]
            client.say("\r\n".join(head).encode() + b"\r\n\r\n")
            assert client.head().status == status
    assert not provider.is_called()


def test_a_stopping_daemon_aborts_a_models_streaming_response(gateway_home: DaemonHome, provider: Provider) -> None:
    """The daemon does not wait for the model, and the truncated response must not look complete."""
    port = port_of(gateway_home)
    with Line.to(port) as client:
        client.say(post(port, "/v1/responses"))
        with provider.answering() as upstream:
            upstream.message()
            upstream.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            assert (client.head().status, client.chunk()) == (200, b"a")
            gateway_home.stop()
            assert upstream.is_at_end()
        with pytest.raises((EOFError, ConnectionError)):
            client.chunk()


# With an approver


@pytest.fixture
def decided(provider: Provider) -> Iterator[tuple[DaemonHome, Approver]]:
    """Start a home with an approver who has approved a gateway to the provider."""
    approver = Approver()
    with daemon_home() as made:
        made.configure(f'[gateway.upstreams]\nopenai = {{ url = "{provider.url}" }}\n')
        made.unlock()
        approver.appoint(made)
        yield made, approver


@pytest.mark.abuse_case("A23")
def test_a_changed_gateway_upstream_takes_effect_only_after_consent(
    decided: tuple[DaemonHome, Approver], provider: Provider
) -> None:
    """The approved upstream serves requests until then, and the question shows the new one's URL."""
    home, approver = decided
    with Provider() as other:
        home.stop()
        home.configure(f'[gateway.upstreams]\nopenai = {{ url = "{other.url}" }}\n')
        home.unlock()
        assert passed(home, provider, "/v1/responses", "Authorization: Bearer sk-own")
        assert home.must("GET", "/v1/status")["settings_waiting"] == ["gateway.upstreams.openai.url"]
        (question,) = home.must("GET", "/v1/action-approvals")["approvals"]
        subject = approver.shown(home, question["approval_id"])["subject"]
        assert subject["after"]["gateway.upstreams.openai.url"] == other.url
        approver.decide(home, question["approval_id"])
        home.stop()
        home.unlock()
        assert passed(home, other, "/v1/responses", "Authorization: Bearer sk-own")
    assert not provider.is_called()


@pytest.mark.abuse_case("A23")
def test_an_upstream_forged_in_the_approved_settings_file_gets_no_key(
    decided: tuple[DaemonHome, Approver], provider: Provider
) -> None:
    """Every program of the user can write that file, so the daemon does not trust it for where keys go."""
    home, _approver = decided
    copy = home.path / "agreed" / "settings.json"
    with Provider() as evil:
        home.stop()
        kept = copy.read_text()
        copy.write_text(
            kept.replace(provider.url, evil.url).replace(
                '"gateway.require_vault":true', '"gateway.require_vault":false'
            )
        )
        assert asked(home, "/v1/responses", "Authorization: Bearer sk-own") == (423, "vault_locked")
        home.unlock()
        assert asked(home, "/v1/responses", "Authorization: Bearer sk-own") == (403, "consent_required")
        assert not evil.is_called()
    home.stop()
    copy.write_text(kept)
    home.unlock()
    assert passed(home, provider, "/v1/responses", "Authorization: Bearer sk-own")


def test_settings_approved_before_the_gateway_existed_stay_approved(provider: Provider) -> None:
    """An older version stored seven names; the settings that came later have their defaults."""
    with daemon_home() as home:
        home.unlock()
        Approver().appoint(home)
        home.stop()
        copy = home.path / "agreed" / "settings.json"
        values = json.loads(copy.read_text())
        rooms = ("egress.", "notify.", "sandbox.")
        older = {key: value for key, value in values.items() if key.startswith(rooms) and key != "notify.details"}
        assert (len(values), len(older)) == (34, 7)
        copy.write_text(json.dumps(older))
        home.unlock()

        assert home.must("GET", "/v1/action-approvals")["approvals"] == []
        assert home.must("GET", "/v1/status")["settings_waiting"] == []
        assert asked(home, "/v1/responses", f"x-api-key: ail_{'x' * 43}") == (
            401,
            "unauthorized",
        )  # not consent_required


def test_the_gateways_api_key_is_replaced_only_after_consent(provider: Provider) -> None:
    """The owner of another key could read requests to the model. Removing the key first does not avoid this."""
    approver = Approver()
    with daemon_home() as home:
        home.configure(f'[gateway.upstreams]\nanthropic = {{ url = "{provider.url}", secret = "pw" }}\n')
        home.unlock()
        approver.appoint(home)
        shown = f"x-api-key: {new_session(home)['token']}"
        other = {"value_base64": base64.b64encode(b"sk-of-somebody-else").decode()}

        question = home.ask("PUT", "/v1/secrets/pw", other)
        assert question.status == 202, question.body
        assert passed(home, provider, "/v1/messages", shown)[1][b"x-api-key"] == SECRET
        subject = approver.shown(home, question.body["approval_id"])["subject"]
        assert subject["bindings"] == ["gateway.upstreams.anthropic.secret"]
        home.must("DELETE", "/v1/secrets/pw")
        assert home.ask("PUT", "/v1/secrets/pw", other).status == 202
        assert asked(home, "/v1/messages", shown) == (409, "binding_required")
        assert home.ask("PUT", "/v1/secrets/another", other).status == 200  # a secret that no setting or binding names

        approver.decide(home, home.ask("PUT", "/v1/secrets/pw", other).body["approval_id"])
        assert passed(home, provider, "/v1/messages", shown)[1][b"x-api-key"] == b"sk-of-somebody-else"

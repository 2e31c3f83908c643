"""The way of each key: a session's token never leaves, and the vault's key goes only to its upstream."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from aileron.config import GatewaySettings, Settings, Upstream
from aileron.gateway.upstreams import destinations
from aileron.model.failure import AileronError, FailureClass
from tests.gateway.conftest import KEY, TOKEN, Line, Provider, ScriptedKeys, gateway, refusal, refused
from tests.support.upstream import Authority

OTHER_TOKEN = "ail_" + "o" * 43
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def post(path: str, *fields: str) -> bytes:
    """Return a request with these fields, and one before and one after them."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "A: 1", *fields, "Z: 1", "Content-Length: 2"]
    return "\r\n".join(lines).encode() + b"\r\n\r\nhi"


def passed(port: int, provider: Provider, request: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields that the provider saw between the first and the last."""
    with provider.asked(port, request) as (client, upstream):
        head, body = upstream.message()
        upstream.say(OK)
        assert (body, client.message()[1]) == (b"hi", b"ok")
    names = [name for name, _ in head.fields]
    return head.fields[names.index(b"a") + 1 : names.index(b"z")]


@pytest.mark.parametrize(
    "fields",
    [
        ("x-api-key: sk-own",),
        ("Authorization: Bearer sk-own", "X-B: 1"),
        ("authorization: Basic dTpw", "x-api-key: k", "x-api-key: l"),
        ("api-key: sk-own", "Cookie: s=1"),
        (),
    ],
)
def test_the_client_s_own_key_is_passed_on_if_the_vault_has_no_key(
    fields: tuple[str, ...], provider: Provider, port: int
) -> None:
    """Any key in any field is passed on, and so is a request without a key."""
    expected = [line.partition(": ") for line in fields]

    assert passed(port, provider, post("/v1/messages", *fields)) == [
        (name.lower().encode(), value.encode()) for name, _, value in expected
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/messages", (b"x-api-key", KEY)),
        ("/v1/messages/count_tokens?beta=true", (b"x-api-key", KEY)),
        ("/v1/chat/completions", (b"authorization", b"Bearer " + KEY)),
        ("/v1/responses", (b"authorization", b"Bearer " + KEY)),
        ("/v1/models", (b"authorization", b"Bearer " + KEY)),
    ],
)
@pytest.mark.parametrize(
    "shown", [f"x-api-key: {TOKEN}", f"Authorization: Bearer {TOKEN}", f"authorization: bearer  {TOKEN}"]
)
def test_a_session_s_token_is_replaced_by_the_vault_s_key(
    path: str, expected: tuple[bytes, bytes], shown: str, provider: Provider
) -> None:
    """The key takes the token's place, in the form that the API requires."""
    with gateway(provider.settings(secret=True)) as port:
        assert passed(port, provider, post(path, shown)) == [expected]


def test_a_session_token_that_is_sent_in_two_fields_is_replaced_once(provider: Provider) -> None:
    """The token is in both fields; the one that the API does not use is dropped, and the field between them stays."""
    with gateway(provider.settings(secret=True)) as port:
        assert passed(
            port, provider, post("/v1/messages", f"Authorization: Bearer {TOKEN}", "B: 1", f"x-api-key: {TOKEN}")
        ) == [(b"x-api-key", KEY), (b"b", b"1")]


@pytest.mark.abuse_case("A23")
def test_a_client_s_connection_field_cannot_make_the_gateway_drop_the_key(provider: Provider) -> None:
    """A `Connection` field lists fields that are not passed on. It must not affect the key that is added."""
    with gateway(provider.settings(secret=True)) as port:
        assert passed(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}", "Connection: x-api-key")) == [
            (b"x-api-key", KEY)
        ]


@pytest.mark.abuse_case("A23")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ((), "none was sent"),
        (("x-api-key: sk-own",), "another was sent"),
        (("Authorization: Bearer sk-own",), "another was sent"),
        ((f"Authorization: Basic {TOKEN}",), "another was sent"),
        ((f"Authorization: {TOKEN}",), "another was sent"),
        ((f"Authorization: Bearer {TOKEN}", "x-api-key: sk-own"), "several were sent"),
        ((f"x-api-key: {TOKEN}", f"x-api-key: {OTHER_TOKEN}"), "several were sent"),
        ((f"x-api-key: {OTHER_TOKEN}",), "no open session has this token"),
        (("x-api-key: ail_",), "no open session has this token"),
    ],
)
def test_only_a_session_s_token_opens_an_upstream_with_a_key_in_the_vault(
    fields: tuple[str, ...], why: str, provider: Provider
) -> None:
    """The message says what was wrong; with the right token the same request passes."""
    with gateway(provider.settings(secret=True)) as port:
        status, kind, message = refused(port, provider, post("/v1/messages", *fields))
        assert (status, kind) == (401, "unauthorized")
        assert why in message
        assert TOKEN not in message
        assert passed(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}"))


@pytest.mark.abuse_case("A23", "A30")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/messages", f"x-api-key: {TOKEN}"),
        ("/v1/messages", f"Authorization: Bearer {TOKEN}"),
        ("/v1/messages", "x-api-key: ail_cut-short"),
        ("/v1/messages", f"api-key: {TOKEN}"),
        ("/v1/messages", f"Cookie: a=1; t={TOKEN}; b=2"),
        ("/v1/messages", f"Authorization: Basic {TOKEN}"),
        (f"/v1/messages?key={TOKEN}&b=1", "b: 1"),
        (f"/v1/messages/{TOKEN}", "b: 1"),
        (f"/v1/messages?key=%61il_{'t' * 43}", "b: 1"),
        (f"/v1/messages?key=%2561il_{'t' * 43}", "b: 1"),
        (f"/v1/messages?key=%252561il%5f{'%74' * 43}", "b: 1"),
        (f"/v1/messages?key=%20{TOKEN}", "b: 1"),
        (f"/v1/messages/x%2fail%5F{'t' * 43}", "b: 1"),
        ("/v1/messages", f"Referer: http://localhost/?t=%61il_{'t' * 43}"),
    ],
)
def test_a_session_s_token_is_never_sent_to_a_provider(path: str, field: str, provider: Provider, port: int) -> None:
    """This holds for any place and encoding; a field that only looks like a token passes."""
    status, kind, message = refused(port, provider, post(path, field))
    assert (status, kind) == (401, "unauthorized")
    assert "gateway.upstreams.anthropic.secret" in message
    assert TOKEN not in message

    assert passed(
        port, provider, post("/v1/messages?q=%61il_&100%25%", f"b: xail_{'t' * 43}", "c: ail_short, 100%, %%41")
    )


@pytest.mark.abuse_case("A30")
def test_a_request_whose_query_has_more_than_three_layers_of_encoding_is_not_sent(
    provider: Provider, port: int
) -> None:
    """Three layers of encoding are decoded and searched; more are refused."""
    assert passed(port, provider, post("/v1/messages?q=%252541", "b: 1"))
    status, kind, message = refused(port, provider, post("/v1/messages?q=%25252541", "b: 1"))
    assert (status, kind) == (400, "invalid_request")
    assert "encode it once" in message


def test_a_second_session_token_outside_the_key_s_field_is_refused_even_if_the_vault_has_a_key(
    provider: Provider,
) -> None:
    """Only the token that is replaced by the key may be in the request."""
    with gateway(provider.settings(secret=True)) as port:
        request = post("/v1/messages", f"x-api-key: {TOKEN}", f"b: {OTHER_TOKEN}")
        assert refused(port, provider, request)[:2] == (401, "unauthorized")
        assert passed(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}", "b: 1"))


def test_each_upstream_has_its_own_key(provider: Provider) -> None:
    """The first upstream has a key in the vault, the second has none: neither gets the other's key."""
    with Provider() as other:
        settings = Settings(gateway=GatewaySettings(Upstream(provider.url, "claude"), Upstream(other.url)))
        with gateway(settings) as port:
            assert passed(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}")) == [(b"x-api-key", KEY)]
            assert passed(port, other, post("/v1/responses", "authorization: Bearer own")) == [
                (b"authorization", b"Bearer own")
            ]
            assert refused(port, other, post("/v1/responses", f"authorization: Bearer {TOKEN}"))[0] == 401


@pytest.mark.parametrize("value", [b"sk-a\n", b"sk a", b"", b"sk-\xc3\xa9", b"sk-a\r\nX-Injected: 1"])
def test_a_secret_that_no_header_field_can_carry_is_neither_sent_as_a_key_nor_quoted(
    value: bytes, provider: Provider
) -> None:
    """The secret could end a header field or add another; an ordinary key is sent."""
    keys = ScriptedKeys(secrets={"claude": value, "gpt": KEY})
    with gateway(provider.settings(secret=True), keys) as port:
        status, kind, message = refused(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}"))
        assert (status, kind) == (409, "binding_failed")
        assert "'claude'" in message
        assert "sk-" not in message
        assert passed(port, provider, post("/v1/responses", f"x-api-key: {TOKEN}"))


def test_the_error_for_a_missing_upstream_key_names_its_secret(provider: Provider) -> None:
    """The message is the one that the vault gives."""
    with gateway(provider.settings(secret=True), ScriptedKeys(secrets={})) as port:
        assert refused(port, provider, post("/v1/messages", f"x-api-key: {TOKEN}")) == (
            409,
            "binding_required",
            "there is no secret 'claude'",
        )


@pytest.mark.parametrize("secret", [True, False])
def test_a_locked_vault_stops_requests_unless_the_settings_allow_them(secret: bool, provider: Provider) -> None:
    """The response is a 423 with the unlock command, even if the vault has no key for the upstream."""
    field = f"x-api-key: {TOKEN}" if secret else "x-api-key: own"
    keys = ScriptedKeys(locked=True)
    with gateway(provider.settings(secret=secret), keys) as port:
        status, kind, message = refused(port, provider, post("/v1/messages", field))
        assert (status, kind) == (423, "vault_locked")
        assert "`aileron vault unlock`" in message
        keys.locked = False
        assert passed(port, provider, post("/v1/messages", field))
    keys.locked = True
    with gateway(provider.settings(secret=secret, require_vault=False), keys) as port:
        if secret:  # the key itself is in there
            assert refused(port, provider, post("/v1/messages", field))[:2] == (423, "vault_locked")
        else:
            assert passed(port, provider, post("/v1/messages", field)) == [(b"x-api-key", b"own")]


@pytest.mark.abuse_case("A23")
def test_the_gateway_logs_no_secret_at_level_debug(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    """Requests pass, are refused and break off, all at level DEBUG; only the break is logged."""
    caplog.set_level(logging.DEBUG)
    with gateway(provider.settings(secret=True)) as port:
        passed(port, provider, post("/v1/messages?q=in-the-query", f"x-api-key: {TOKEN}", "Cookie: in-a-field"))
        refused(port, provider, post("/v1/messages", f"x-api-key: {OTHER_TOKEN}"))
        with Line.to(port) as client:
            client.say(post("/v1/messages", f"x-api-key: {TOKEN}"))
            with provider.answering() as upstream:
                upstream.message()
                upstream.say(b"HTTP/1.1 200 OK\r\nSet-Cookie: in-the-answer\r\nContent-Length: 9\r\n\r\nsaid")
                client.head()
                upstream.sock.close()
            assert client.exactly(4) == b"said"
            assert client.is_at_end()
    logged = "\n".join(record.getMessage() + str(record.args) + str(record.exc_info) for record in caplog.records)

    assert "broke off" in logged
    for word in (TOKEN, OTHER_TOKEN, KEY.decode(), "in-the-query", "in-a-field", "in-the-answer", "said"):
        assert word not in logged


def test_an_upstream_without_a_person_s_consent_gets_no_request(provider: Provider) -> None:
    """Neither the vault's key nor the client's own is sent; requests pass once there is consent."""
    for secret in (True, False):
        keys = ScriptedKeys(disagreement=AileronError(FailureClass.CONSENT_REQUIRED, "nobody agreed"))
        field = f"x-api-key: {TOKEN if secret else 'own'}"
        with gateway(provider.settings(secret=secret), keys) as port:
            assert refused(port, provider, post("/v1/messages", field))[:2] == (403, "consent_required")
            keys.disagreement = None
            assert passed(port, provider, post("/v1/messages", field))


def test_only_default_upstreams_are_used_while_consent_cannot_be_checked(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that let requests pass a locked vault may be forged themselves. The default upstreams need no consent."""
    keys = ScriptedKeys(locked=True, disagreement=AileronError(FailureClass.VAULT_LOCKED, "who decides is in there"))
    with gateway(provider.settings(require_vault=False), keys) as port:
        assert refused(port, provider, post("/v1/messages", "x-api-key: own"))[:2] == (423, "vault_locked")
    defaults = destinations(provider.settings().gateway)  # nothing of a test leaves the machine
    monkeypatch.setattr("aileron.gateway.proxy._DEFAULTS", defaults)
    with gateway(provider.settings(require_vault=False), keys) as port:
        assert passed(port, provider, post("/v1/messages", "x-api-key: own"))


def test_an_upstream_without_a_key_is_not_served_to_other_machines(provider: Provider, tmp_path: Path) -> None:
    """A local model server checks no key, so nobody elsewhere may use it through the gateway's TLS port."""
    authority = Authority(tmp_path)
    for secret, tls in ((False, True), (False, False), (True, True)):
        context = authority.server_context("localhost") if tls else None
        with gateway(provider.settings(secret=secret), tls=context) as port, Line.to(port) as client:
            if tls:
                trusting = ssl.create_default_context(cadata=authority.ca_pem)
                client.sock = trusting.wrap_socket(client.sock, server_hostname="localhost")
            client.say(post("/v1/messages", f"x-api-key: {TOKEN if secret else 'own'}"))
            if tls and not secret:
                status, kind, message = refusal(client)
                assert (status, kind) == (401, "unauthorized")
                assert "gateway.upstreams.anthropic.secret" in message
                assert not provider.is_called()
            else:
                with provider.answering() as upstream:
                    upstream.message()
                    upstream.say(OK)
                    assert client.message()[1] == b"ok"

"""Credentials of WebSockets beyond a key in a field: certificates, expiring tokens, signatures, keys in paths."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import pytest

from aileron.egress import Meter
from aileron.egress.response import EgressResponse
from aileron.egress.scrub import Needles
from aileron.egress.websocket import WebSocketRequest
from aileron.egress.websocket_messages import Closed
from aileron.model.failure import FailureClass
from aileron.model.names import HostPort
from aileron.model.request_signing import AwsScope, HmacTemplate
from tests.egress.conftest import CANARY, HOST, World, reason_of, use
from tests.egress.test_egress_websocket import broken, opened, refused
from tests.egress.test_egress_websocket_hostile import BINARY, CLOSING, TEXT, frame, upgraded
from tests.support.aws_service import SignatureChecker
from tests.support.client_certificates import ClientAuthority
from tests.support.upstream import CLOSE, Authority, Seen, Upstream, answer

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[..., Upstream]
NEW = b"ya29.new-token/of+some=length"


def greets(seen: Seen) -> Iterable[bytes]:
    """Greet each accepted client with the target of its request, and close."""
    return [upgraded(seen) + frame(TEXT, b"hello " + seen.target.encode()) + frame(CLOSING), CLOSE]


async def test_a_client_certificate_is_used_for_a_websocket_connection(
    world: World, authority: Authority, tmp_path: Path
) -> None:
    """Only HTTP/1.1 is offered; without a certificate, or with one of another authority, the server refuses."""
    (tmp_path / "clients").mkdir()
    (tmp_path / "others").mkdir()
    clients, others = ClientAuthority(tmp_path / "clients"), ClientAuthority(tmp_path / "others")
    context = authority.server_context(HOST)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(clients.ca_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    world.vault.secret = clients.issue()
    with Upstream(greets, context) as upstream:
        url, grant = f"wss://{HOST}:{upstream.port}/x", world.grant_for(upstream, credential=use("mtls"))
        async with opened(world, url, grant, credential="mtls") as talk:
            assert await talk.receive() == "hello /x"
        error = await broken(world, url, grant)
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR

        world.vault.secret = others.issue()
        error = await refused(world, url, grant, credential="mtls")
        assert error.failure.failure_class is FailureClass.BINDING_FAILED
        plain = world.grant_for(upstream, credential=use("mtls"), plain=True)
        assert reason_of(await refused(world, url.replace("wss", "ws"), plain, credential="mtls")) == "plain_http"


async def test_a_refused_token_is_renewed_once_for_the_handshake(world: World, tls_upstream: MakeUpstream) -> None:
    """Both handshakes, the refused and the repeated one, are recorded."""

    async def renew(_refused: bytes) -> bool:
        await anyio.lowlevel.checkpoint()
        world.vault.secret = NEW
        return True

    def script(seen: Seen) -> Iterable[bytes]:
        return greets(seen) if seen.values("Authorization") == [f"Bearer {NEW.decode()}"] else [answer(status="401 No")]

    world.vault.secret, world.vault.on_refused = b"ya29.old-token/of+some=length", renew
    with tls_upstream(script) as upstream:
        url, grant = f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream, credential=use("oauth2"))
        async with opened(world, url, grant, credential="oauth2") as talk:
            assert await talk.receive() == "hello /"
    assert len(world.journal.rows) == 4
    assert world.journal.last.status == 101


async def test_a_key_in_the_path_of_a_websocket_reaches_the_service_but_neither_connector_nor_record(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The record has the placeholder, the service gets the key, and the connector sees neither."""
    world.vault.secret = b"123456:a-token-of-some-length"
    with tls_upstream(greets) as upstream:
        grant = world.grant_for(upstream, credential=use(path="/bot{key}"))
        async with opened(world, f"wss://{HOST}:{upstream.port}/bot%7Bkey%7D/x", grant, credential="api_key") as talk:
            assert await talk.receive() == "hello /bot" + "*" * len(world.vault.secret) + "/x"
        assert upstream.requests[0].target == f"/bot{world.vault.secret.decode()}/x"
    assert [getattr(row, "path", None) for row in world.journal.rows] == ["/bot{key}/x", None]


async def test_the_signature_of_a_websocket_handshake_covers_what_is_sent(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The handshake is signed as a GET of the same path."""
    template = HmacTemplate(algorithm="sha256", message="{method} {target}", headers=(("X-Signature", "{signature}"),))
    with tls_upstream(greets) as upstream:
        grant = world.grant_for(upstream, credential=use("hmac", hmac=template))
        async with opened(world, f"wss://{HOST}:{upstream.port}/x?y=1", grant, credential="hmac") as talk:
            await talk.receive()
            assert await talk.receive() == Closed(None, "")
        expected = hmac.new(CANARY, b"GET /x?y=1", hashlib.sha256).hexdigest()
        assert upstream.requests[0].values("X-Signature") == [expected]


async def test_masking_a_handshake_signature_does_not_recompute_the_needles_of_the_host_s_secrets(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred secrets are bound for the host; recomputing their needles would block the event loop for each handshake."""
    template = HmacTemplate(algorithm="sha256", message="{target}", headers=(("X-Signature", "{signature}"),))
    signature = hmac.new(CANARY, b"/", hashlib.sha256).hexdigest()

    def shows(seen: Seen) -> Iterable[bytes]:
        (sent,) = seen.values("X-Signature")
        said = frame(TEXT, sent.encode()) + frame(BINARY, b"<" + base64.b64encode(sent.encode()) + b">")
        return [upgraded(seen) + said + frame(CLOSING), CLOSE]

    others = [hashlib.sha256(bytes([number])).hexdigest().encode() for number in range(100)]
    needles = Needles([*others, CANARY])
    made: list[int] = []
    make = Needles.__init__

    def counted(self: Needles, roots: Iterable[bytes] = ()) -> None:
        secrets = list(roots)
        made.append(len(secrets))
        make(self, secrets)

    monkeypatch.setattr(Needles, "__init__", counted)
    with tls_upstream(shows) as upstream:
        world.vault.bound[HostPort(HOST, upstream.port)] = needles
        grant = world.grant_for(upstream, credential=use("hmac", hmac=template))
        async with opened(world, f"wss://{HOST}:{upstream.port}/", grant, credential="hmac") as talk:
            assert await talk.receive() == "*" * len(signature)
            assert await talk.receive() == b"<" + b"*" * 86 + b"==>"
            assert await talk.receive() == Closed(None, "")
    assert [secrets for secrets in made if secrets >= len(others)] == []
    needles.with_roots([b"another-secret-of-some-length"])
    assert made[-1] > len(others), "a making is not counted"


async def test_a_user_name_and_password_are_sent_with_the_handshake(world: World, tls_upstream: MakeUpstream) -> None:
    """The form is that of a request; a service that reflects them shows stars."""
    world.vault.username = "mira"
    sent = f"Basic {base64.b64encode(b'mira:' + CANARY).decode()}"

    def script(seen: Seen) -> Iterable[bytes]:
        (given,) = seen.values("Authorization")
        return [upgraded(seen) + frame(TEXT, given.encode()) + frame(CLOSING), CLOSE]

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use("basic"))
        async with opened(world, f"wss://{HOST}:{upstream.port}/", grant, credential="basic") as talk:
            assert await talk.receive() == "Basic " + "*" * (len(sent) - len("Basic "))
        assert upstream.requests[0].values("Authorization") == [sent]


async def test_the_aws_signature_of_a_handshake_does_not_cover_the_fields_that_proxies_change(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """botocore accepts it as sent and as a proxy forwards it; with another query it is refused."""
    world.vault.username, world.vault.secret = "AKIDEXAMPLE", b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    credential = use("aws_sigv4", aws=AwsScope(region="eu-central-1", service="execute-api"))
    checker = SignatureChecker({"AKIDEXAMPLE": world.vault.secret})
    with tls_upstream(greets) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        url = f"wss://{HOST}:{upstream.port}/stage?x=1"
        async with opened(world, url, grant, credential="aws_sigv4", subprotocols=("v1",)) as talk:
            assert await talk.receive() == "hello /stage?x=1"
    (seen,) = upstream.requests
    assert checker.what_is_wrong_with(seen) is None
    (key,) = seen.values("Sec-WebSocket-Key")
    through_a_proxy = seen.head.replace(key.encode(), base64.b64encode(bytes(16))).replace(
        b": websocket", b": WebSocket"
    )
    assert checker.what_is_wrong_with(Seen(through_a_proxy, b"")) is None
    assert checker.what_is_wrong_with(Seen(seen.head.replace(b"x=1", b"x=2"), b"")) == "SignatureDoesNotMatch"


REFUSALS = {
    "the clock": (answer(b"", "Date: Mon, 01 Jan 2001 00:00:00 GMT", status="403 No"), FailureClass.NETWORK_ERROR, "clock"),
    "the region": (
        answer(b"<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>", status="400 No"),
        FailureClass.BINDING_FAILED, "expects eu-west-1",
    ),
    "the key": (
        answer(b'{"__type": "InvalidSignatureException"}', status="403 No"), FailureClass.BINDING_FAILED, "does not belong",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("said", "kind", "words"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_aws_signature_of_a_handshake_is_reported_with_its_cause(
    world: World, tls_upstream: MakeUpstream, said: bytes, kind: FailureClass, words: str
) -> None:
    """The failure is recorded; other refusals of the service are relayed."""
    world.vault.username, world.vault.secret = "AKIDEXAMPLE", b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    credential = use("aws_sigv4", aws=AwsScope(region="eu-central-1", service="execute-api"))

    def script(seen: Seen) -> Iterable[bytes]:
        return [said] if seen.target == "/refused" else [answer(b"no such stage", status="403 No")]

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=credential)
        error = await refused(world, f"wss://{HOST}:{upstream.port}/refused", grant, credential="aws_sigv4")
        assert error.failure.failure_class is kind
        assert words in str(error)
        assert (world.journal.last.status, world.journal.last.failure) == (int(said[9:12]), kind)
        request = WebSocketRequest(f"wss://{HOST}:{upstream.port}/", credential="aws_sigv4")
        deadline = anyio.current_time() + world.timeout_s
        async with world.egress.websockets.open(
            request, grant, Meter(grant.budget), world.journal, deadline
        ) as response:
            assert isinstance(response, EgressResponse)
            assert b"".join([piece async for piece in response]) == b"no such stage"


async def test_a_digest_credential_is_refused_for_a_websocket_handshake(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The handshake would have to be sent twice; nothing is lent for it."""
    with tls_upstream(greets) as upstream:
        grant = world.grant_for(upstream, credential=use("digest"))
        error = await refused(world, f"wss://{HOST}:{upstream.port}/", grant, credential="digest")
        assert reason_of(error) == "credential_not_granted"
        assert (world.vault.lent, upstream.connections) == (0, 0)

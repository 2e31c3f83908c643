"""Client certificates: which request has one, which connection serves it, and what a server's refusal is reported as."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
import trustme

from aileron.egress import EgressRequest, Meter
from aileron.egress.inject import LentCredential, inject, needles_for
from aileron.egress.outgoing import Outgoing
from aileron.egress.stream import StreamRequest
from aileron.egress.url import parse_url
from aileron.egress.websocket import WebSocketRequest
from aileron.egress.websocket_messages import WebSocket
from aileron.model.failure import AileronError, FailureClass
from aileron.model.fixes import Stored
from aileron.model.names import HostPort
from aileron.model.plan import Grant
from aileron.model.secret import Secret
from tests.egress.conftest import CANARY, HOST, World, plain_url, reason_of, use
from tests.support.client_certificates import ClientAuthority, as_secret
from tests.support.nginx import Nginx, Served, needs_nginx
from tests.support.upstream import Authority, Upstream, answer
from tests.support.websocket_server import WebSocketServer

pytestmark = pytest.mark.anyio
MTLS = use("mtls")
ROTATE = "aileron secret set NAME < client.pem"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> ClientAuthority:
    """Return the authority whose certificates the servers accept."""
    return ClientAuthority(tmp_path_factory.mktemp("clients"), has_intermediate=True)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ClientAuthority:
    """Return an authority whose certificates the servers do not accept."""
    return ClientAuthority(tmp_path_factory.mktemp("others"))


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority, clients: ClientAuthority) -> Iterator[Nginx]:
    """Start a real server that accepts the client authority's certificates."""
    with Nginx(tmp_path_factory.mktemp("nginx"), authority, clients.ca_file, HOST) as running:
        yield running


@pytest.fixture
def mira(world: World, clients: ClientAuthority) -> World:
    """Return a world whose vault lends Mira's certificate."""
    world.vault.secret = clients.issue()
    return world


def grant_at(world: World, *ports: int) -> Grant:
    """Return a grant for these ports of the one host, with the certificate."""
    return world.grant(*(HostPort(HOST, port) for port in ports), credential=MTLS)


async def served(world: World, port: int, *ports: int, path: str = "/", **options: str | None) -> Served:
    """Return what nginx reports of a request, which has the certificate unless `options` say otherwise."""
    url = f"https://{HOST}:{port}{path}"
    asked = {"credential": "mtls", **options}
    got = await world.ask(None, url=url, grant=grant_at(world, port, *ports), **asked)  # type: ignore[arg-type]
    assert got.status == 200, got.body
    return msgspec.json.decode(got.body, type=Served)


def verifying(authority: Authority, clients: ClientAuthority, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return the context of a server that answers a certificate it does not accept with a TLS alert."""
    context = authority.server_context(HOST)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(clients.ca_file)
    context.minimum_version = context.maximum_version = version
    return context


@needs_nginx
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2.0"])
@pytest.mark.parametrize("key", [trustme.KeyType.ECDSA, trustme.KeyType.RSA], ids=["ECDSA", "RSA"])
async def test_the_server_gets_the_client_certificate_and_no_authorization_field(
    world: World, nginx: Nginx, clients: ClientAuthority, protocol: str, key: trustme.KeyType
) -> None:
    """This holds in both versions of HTTP, with an intermediate authority; the second request uses the same connection."""
    world.vault.secret = clients.issue(f"{key.name.lower()}@example.test", key)
    port = nginx.port if protocol == "HTTP/2.0" else nginx.port_1

    first, second = await served(world, port), await served(world, port)

    assert f"CN={key.name.lower()}@example.test" in first.client
    assert (first.protocol, first.authorization) == (protocol, "")
    assert second.connection == first.connection
    assert world.vault.lent == 2


@pytest.mark.abuse_case("X10")
@needs_nginx
async def test_a_request_without_the_credential_has_no_certificate(mira: World, nginx: Nginx) -> None:
    """An idle connection with the certificate must not be reused: for the same host, another one, or a redirect."""
    before = await served(mira, nginx.port)

    got = await mira.ask(None, url=f"https://{HOST}:{nginx.port}/", grant=grant_at(mira, nginx.port))
    elsewhere = await served(mira, nginx.open_port, nginx.port, credential=None)
    redirect = await mira.ask(
        None, url=f"https://{HOST}:{nginx.port}/redirect", grant=grant_at(mira, nginx.port), credential="mtls"
    )
    followed = await mira.ask(None, url=f"https://{HOST}:{nginx.port}/", grant=grant_at(mira, nginx.port))

    assert before.client
    assert (got.status, b"No required SSL certificate was sent" in got.body) == (400, True)  # relayed, as any answer
    assert elsewhere.client == ""
    assert redirect.status == 302
    assert followed.status == 400
    assert [each.connection for each in nginx.log].count(before.connection) == 2  # its own request and the redirect's


@pytest.mark.abuse_case("X11")
@needs_nginx
@pytest.mark.parametrize("port", ["port", "port_1"])
async def test_a_connection_made_with_a_replaced_certificate_is_not_reused(
    mira: World, nginx: Nginx, clients: ClientAuthority, port: str
) -> None:
    """The secret of the binding was replaced. With a locked vault, no connection with a certificate is used."""
    at = getattr(nginx, port)
    first, again = await served(mira, at), await served(mira, at)
    mira.vault.secret = clients.issue("noor@example.test")
    rotated = await served(mira, at)
    mira.vault.locked = True
    refused = await mira.refusal(
        None, url=f"https://{HOST}:{at}/locked/{port}", grant=grant_at(mira, at), credential="mtls"
    )

    assert again.connection == first.connection
    assert rotated.connection != first.connection
    assert "CN=noor@example.test" in rotated.client
    assert refused.failure.failure_class is FailureClass.VAULT_LOCKED
    assert f"/locked/{port}" not in {each.target for each in nginx.log}


@pytest.mark.abuse_case("X11")
@needs_nginx
async def test_locking_the_vault_closes_every_connection_made_with_a_certificate(mira: World, nginx: Nginx) -> None:
    """Idle connections and those in use are closed; a connection without a certificate stays open."""
    plain = await served(mira, nginx.open_port, credential=None)
    first = await served(mira, nginx.port)
    mira.egress.forget_certificates()
    second = await served(mira, nginx.port)
    grant = grant_at(mira, nginx.port)
    request = EgressRequest("GET", f"https://{HOST}:{nginx.port}/", credential="mtls")
    deadline = anyio.current_time() + 20
    async with mira.egress.open(request, grant, Meter(grant.budget), mira.journal, deadline) as response:
        mira.egress.forget_certificates()
        in_use = msgspec.json.decode(b"".join([piece async for piece in response]), type=Served)
    mira.egress.forget_certificates()
    mira.journal.on_sending = mira.egress.forget_certificates  # between the loan and the handshake
    third = await served(mira, nginx.port)
    mira.journal.on_sending = None
    fourth, fifth = await served(mira, nginx.port), await served(mira, nginx.port)

    assert in_use.connection == second.connection
    assert len({each.connection for each in (first, second, third, fourth)}) == 4
    assert fifth.connection == fourth.connection
    assert (await served(mira, nginx.open_port, credential=None)).connection == plain.connection


@needs_nginx
async def test_nginx_s_response_to_an_untrusted_certificate_is_relayed(
    world: World, nginx: Nginx, others: ClientAuthority
) -> None:
    """nginx reports it over HTTP, and the meaning of a response is the connector's business."""
    world.vault.secret = others.issue()
    grant = grant_at(world, nginx.port)
    got = await world.ask(None, url=f"https://{HOST}:{nginx.port}/", grant=grant, credential="mtls")

    assert (got.status, b"The SSL certificate error" in got.body) == (400, True)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLSv1_2", "TLSv1_3"])
async def test_a_tls_alert_about_the_client_certificate_is_reported_as_a_failed_binding(
    world: World, authority: Authority, clients: ClientAuthority, others: ClientAuthority, version: ssl.TLSVersion
) -> None:
    """The alert ends the handshake in TLS 1.2; in 1.3 the client has finished before and reads it in place of a response."""
    with Upstream(lambda _: answer(b"hello"), verifying(authority, clients, version)) as upstream:
        grant = world.grant_for(upstream, credential=MTLS)
        world.vault.secret = clients.issue()
        assert (await world.ask(upstream, grant=grant, credential="mtls")).body == b"hello"
        world.vault.secret = others.issue()
        error = await world.refusal(upstream, grant=grant, credential="mtls")
        world.vault.stored = Stored("pki", "vault://pki/home")
        elsewhere = await world.refusal(upstream, grant=grant, credential="mtls")

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert (
        "the server refused the client certificate of mtls/example/home: it says that the certificate was issued by"
        in str(error)
    )
    assert ROTATE in error.failure.message
    assert "change it at vault://pki/home" in str(elsewhere)
    assert "secret set" not in str(elsewhere)
    assert not error.failure.retriable
    assert upstream.requests[1:] == []


async def test_a_websocket_is_opened_with_the_client_certificate_too(
    world: World, authority: Authority, clients: ClientAuthority, others: ClientAuthority
) -> None:
    """The server refuses a WebSocket without one. Refusal of an untrusted certificate is reported as for a request."""
    tls = verifying(authority, clients, ssl.TLSVersion.TLSv1_3)
    with WebSocketServer(tls) as server, Upstream(lambda _: answer(), tls) as upstream:

        def opening(port: int, credential: str | None = "mtls") -> contextlib.AbstractAsyncContextManager[object]:
            request = WebSocketRequest(f"wss://{HOST}:{port}/echo/certificate", credential=credential)
            grant, deadline = grant_at(world, port), anyio.current_time() + 20
            return world.egress.websockets.open(request, grant, Meter(grant.budget), world.journal, deadline)

        world.vault.secret = clients.issue()
        async with opening(server.port) as websocket:
            assert isinstance(websocket, WebSocket)
        with pytest.raises(AileronError):
            await opening(server.port, None).__aenter__()
        world.vault.secret = others.issue()
        with pytest.raises(AileronError, match="the server refused the client certificate") as caught:
            await opening(upstream.port).__aenter__()

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED


async def test_a_request_that_names_no_credential_fails_with_the_fix_if_the_server_asks_for_a_certificate(
    world: World, authority: Authority, clients: ClientAuthority
) -> None:
    """The connector's request named no credential, so the fix is to name it."""
    with Upstream(lambda _: answer(b"hello"), verifying(authority, clients, ssl.TLSVersion.TLSv1_3)) as upstream:
        error = await world.refusal(upstream)

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert "the server asks for a client certificate" in error.failure.message
    assert 'kind = "mtls"' in error.failure.message


@pytest.mark.parametrize(("begins_in", "ends_in", "said"), [(-9, -1, "expired on"), (1, 9, "is not valid before")])
async def test_an_expired_or_not_yet_valid_certificate_is_not_sent(
    world: World,
    tls_upstream: Callable[..., Upstream],
    clients: ClientAuthority,
    begins_in: int,
    ends_in: int,
    said: str,
) -> None:
    """The failure names the date and the fix, and no connection is made for it; a valid certificate is then accepted."""
    with tls_upstream(lambda _: answer(b"hello")) as upstream:
        grant = world.grant_for(upstream, credential=MTLS)
        world.vault.secret = clients.issue_for(begins_in, ends_in)
        error = await world.refusal(upstream, grant=grant, credential="mtls")
        world.vault.secret = clients.issue_for(-1, 1)
        assert (await world.ask(upstream, grant=grant, credential="mtls")).status == 200

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert f"has a certificate that {said} 202" in error.failure.message
    assert ROTATE in error.failure.message
    assert upstream.connections == 1


async def test_the_server_certificate_is_verified_when_a_client_certificate_is_used(
    mira: World, tmp_path: Path, authority: Authority
) -> None:
    """A server whose certificate has another name, has expired, or is from an unknown authority gets no client certificate."""
    good, untrusted = authority, Authority(tmp_path)
    contexts = {
        "Hostname mismatch": good.server_context("other.example.test"),
        "certificate has expired": good.server_context(HOST, not_after=_yesterday()),
        "unable to get local issuer": untrusted.server_context(HOST),
    }
    for said, context in contexts.items():
        with Upstream(lambda _: answer(b"hello"), context) as upstream:
            grant = mira.grant_for(upstream, credential=MTLS)
            error = await mira.refusal(upstream, grant=grant, credential="mtls")
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR
        assert error.failure.details["phase"] == "connect"
        assert said in error.failure.message
        assert "egress.ca_file" in error.failure.message
        assert upstream.requests == []


async def test_a_request_without_tls_cannot_use_the_client_certificate(mira: World) -> None:
    """Plain http is allowed there: the same request without the credential passes."""
    with Upstream(lambda _: answer(b"hello")) as upstream:
        grant = mira.grant_for(upstream, plain=True, credential=MTLS)
        error = await mira.refusal(None, url=plain_url(upstream), grant=grant, credential="mtls")
        got = await mira.ask(None, url=plain_url(upstream), grant=grant)

    assert reason_of(error) == "plain_http"
    assert "which a client certificate needs: use TLS" in error.failure.message
    assert (got.status, mira.vault.lent) == (200, 0)


async def test_a_connector_may_set_authorization_in_a_request_with_a_client_certificate(
    mira: World, tls_upstream: Callable[..., Upstream]
) -> None:
    """The field may have a token issued to this certificate (RFC 8705): the credential itself uses no field of the request."""
    with tls_upstream(lambda _: answer(b"hello")) as upstream:
        grant = mira.grant_for(upstream, credential=MTLS)
        field = ("Authorization", "Bearer of-the-connector")
        got = await mira.ask(upstream, headers=(field,), grant=grant, credential="mtls")

    assert got.status == 200
    assert upstream.requests[0].values("authorization") == ["Bearer of-the-connector"]


def test_a_client_certificate_changes_nothing_in_the_request_and_adds_nothing_to_scrub(
    clients: ClientAuthority,
) -> None:
    """The private key is not sent, so no response can contain it."""
    pem = clients.issue()
    request = Outgoing("GET", parse_url("https://api.example.com/v1"), (("Host", "api.example.com"),))
    lent = LentCredential("mtls", Secret(pem))
    made = inject(MTLS, lent, request)

    assert (made.request, made.roots, made.once) == (request, frozenset(), frozenset())
    assert made.certificate is not None
    assert made.certificate.reveal() == pem
    assert "PRIVATE" not in repr(made)
    assert not needles_for([lent], HostPort("api.example.com", 443))


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (CANARY, "has no private key"),
        (as_secret(trustme.CA().issue_cert("a@example.test")).partition(b"-----BEGIN EC")[0], "has no private key"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "has no private key"),
    ],
    ids=["text", "no key", "nonsense"],
)
def test_a_secret_that_is_no_certificate_is_reported_with_the_fix(secret: bytes, said: str) -> None:
    """Such a secret was stored by hand, since binding checks the same; the message quotes none of it."""
    request = Outgoing("GET", parse_url("https://api.example.com/v1"))
    with pytest.raises(AileronError) as caught:
        inject(MTLS, LentCredential("mtls", Secret(secret)), request)

    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert said in caught.value.failure.message
    assert ROTATE in caught.value.failure.message
    assert "canary" not in str(caught.value)


@pytest.mark.abuse_case("X10")
async def test_only_the_granted_host_gets_the_client_certificate(
    mira: World, authority: Authority, clients: ClientAuthority
) -> None:
    """The server requires one: at the granted host a request that names the credential is admitted, and a stream is refused.
    At another host nothing connects and nothing is lent, for any kind of request.
    """
    tls = verifying(authority, clients, ssl.TLSVersion.TLSv1_2)
    with Upstream(lambda _: answer(b"in"), tls) as granted, Upstream(lambda _: answer(b"in"), tls) as other:
        grant, deadline = grant_at(mira, granted.port), anyio.current_time() + 20
        assert (await mira.ask(granted, grant=grant, credential="mtls")).body == b"in"
        with pytest.raises(AileronError) as stream:
            async with mira.egress.streams.open(
                StreamRequest(HOST, granted.port, tls=True), grant, Meter(grant.budget), mira.journal, deadline
            ):
                pass
        mira.journal.denials.clear()
        assert granted.connections == 1

        request = await mira.refusal(other, grant=grant, credential="mtls")
        asked = WebSocketRequest(f"wss://{HOST}:{other.port}/", credential="mtls")
        with pytest.raises(AileronError) as websocket:
            await mira.egress.websockets.open(asked, grant, Meter(grant.budget), mira.journal, deadline).__aenter__()
    assert reason_of(stream.value) == "stream_credential"
    assert (reason_of(request), reason_of(websocket.value)) == ("host_not_granted", "host_not_granted")
    assert (other.connections, mira.vault.lent) == (0, 1)


@pytest.mark.abuse_case("X10")
def test_an_egress_request_has_no_attribute_that_chooses_a_certificate() -> None:
    """A request names only the kind of credential; the binding decides which certificate is used."""
    assert {"method", "url", "headers", "credential", "body"} == set(EgressRequest.__dataclass_fields__)


def _yesterday() -> object:
    import datetime

    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)

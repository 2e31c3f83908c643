"""Denials, each with its positive control and its reason: no lookup, no connection, no loan, no row."""

from __future__ import annotations

import datetime
import os
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest, Meter
from aileron.egress.dial import is_own_address
from aileron.egress.lookup import SystemResolver
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from aileron.tls import client_context
from tests.egress.conftest import HOST, World, plain_url, reason_of, use
from tests.support.upstream import Authority, Script, Upstream, answer
from tests.support.upstream_h2 import H2Upstream, data, head

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]


def assert_nothing_happened(world: World, upstream: Upstream) -> None:
    """Check that no name was looked up, no secret lent, no row written and no connection made."""
    assert world.resolver.asked == []
    assert world.vault.lent == 0
    assert world.journal.rows == []
    assert upstream.connections == 0


@pytest.mark.abuse_case("E1", "E11")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://other.example.test:{port}/", "host_not_granted"),
        ("https://api.example.test:1{port}/", "url_port"),
        ("https://api.example.test/", "host_not_granted"),
        ("https://localhost:{port}/", "host_not_granted"),
        ("https://127.0.0.1:{port}/", "host_not_granted"),
        ("https://sub.api.example.test:{port}/", "host_not_granted"),
        ("https://api.example.test.evil.io:{port}/", "host_not_granted"),
        ("https://api.example.test.:{port}/", "url_host"),
        ("https://api.example.test:{port}@evil.io/", "url_userinfo"),
        ("https://api.example.test:{port}/a/../b", "url_path"),
        ("https://0x7f.1:{port}/", "url_host"),
        ("http://api.example.test:{port}/", "plain_http"),
        ("http://other.example.test:{port}/", "host_not_granted"),
        ("gopher://api.example.test:{port}/", "url_scheme"),
        ("wss://api.example.test:{port}/", "url_scheme"),
    ],
)
async def test_a_destination_that_is_not_granted_causes_no_lookup(
    world: World, tls_upstream: MakeUpstream, url: str, reason: str
) -> None:
    """The cases name a host other than the granted one, in different ways; the granted host works."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, url=url.format(port=upstream.port), credential="api_key", grant=grant)
        assert reason_of(error) == reason
        assert_nothing_happened(world, upstream)

        assert (await world.ask(upstream, grant=grant, credential="api_key")).body == b"ok"


async def test_a_denial_names_the_requested_and_the_granted_hosts(world: World, tls_upstream: MakeUpstream) -> None:
    """The agent's envelope and the message for people have both; the query is in neither."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        error = await world.refusal(upstream, url="https://evil.io/steal?data=sesame")

    failure = error.failure
    assert failure.failure_class is FailureClass.CAPABILITY_DENIED
    assert (failure.boundary, failure.retriable) == (Boundary.CONNECTOR_MANIFEST, False)
    assert failure.details == {
        "requested": "network:evil.io:443",
        "granted": [f"network:{HOST}:{upstream.port}"],
        "reason": "host_not_granted",
    }
    assert "[capabilities.network]" in failure.message
    assert "sesame" not in repr(failure)


async def test_a_url_without_a_usable_host_is_an_unknown_destination(world: World) -> None:
    """The envelope says `unknown` rather than quoting the URL."""
    error = await world.refusal(None, url="https://a@b@c/", grant=Grant())

    assert error.failure.details == {"requested": "network:unknown", "granted": [], "reason": "url_userinfo"}
    assert error.failure.boundary is Boundary.RUNTIME


@pytest.mark.parametrize(
    ("asked", "granted", "requested"),
    [
        ("basic", "api_key", "credential:basic"),
        ("api_key", None, "credential:api_key"),
        ("API_KEY", "api_key", "credential:unknown"),
        ("x\r\ny", "api_key", "credential:unknown"),
        ("login", "login", "credential:login"),
    ],
)
async def test_a_request_for_a_credential_that_is_not_granted_is_refused(
    world: World, tls_upstream: MakeUpstream, asked: str, granted: str | None, requested: str
) -> None:
    """The refusal comes before any lookup or loan; a request that names no credential gets none."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=use(granted) if granted else None)
        error = await world.refusal(upstream, credential=asked, grant=grant)
        assert reason_of(error) == "credential_not_granted"
        assert error.failure.details["requested"] == requested
        assert error.failure.details["granted"] == ([f"credential:{granted}"] if granted else [])
        assert_nothing_happened(world, upstream)

        assert (await world.ask(upstream, grant=grant)).body == b"ok"
    assert world.vault.lent == 0
    assert upstream.requests[0].values("authorization") == []


@pytest.mark.abuse_case("E10", "E11", "E19", "E21")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"method": "CONNECT"}, "method"),
        ({"method": "TRACE"}, "method"),
        ({"method": "GET /x HTTP/1.1\r\nX:"}, "method"),
        ({"headers": (("X", "a\r\nX-Injected: 1"),)}, "header_value"),
        ({"headers": (("X\r\nY", "a"),)}, "header_name"),
        ({"headers": (("Authorization", "Bearer mine"),)}, "header_credential"),
        ({"headers": (("authorization", "Bearer mine"), ("Connection", "authorization"))}, "header_credential"),
        ({"headers": (("Authorization ", "Bearer mine"),)}, "header_name"),
        ({"headers": (("Connection", "Upgrade"), ("Upgrade", "websocket"))}, "upgrade"),
        ({"headers": (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"))}, "upgrade"),
        ({"headers": (("X", "y"),) * 101}, "header_limit"),
        ({"headers": (("Content-Length", "5"), ("Transfer-Encoding", "chunked"))}, "body_length"),
        ({"headers": (("Transfer-Encoding", "xchunked"),), "body": b"x"}, "body_length"),
    ],
)
async def test_a_malformed_request_causes_no_lookup(
    world: World, tls_upstream: MakeUpstream, options: dict[str, Any], reason: str
) -> None:
    """Method, fields and framing are checked before the name is resolved; a clean request passes."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, credential="api_key", grant=grant, **options)
        assert reason_of(error) == reason
        assert error.failure.details["requested"] == f"network:{HOST}:{upstream.port}"
        assert_nothing_happened(world, upstream)

        assert (await world.ask(upstream, credential="api_key", grant=grant)).body == b"ok"


async def test_a_connector_may_set_the_authorization_field_in_a_request_without_a_credential(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A connector may know tokens that Aileron does not keep."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        await world.ask(upstream, headers=(("Authorization", "Bearer mine"),))

    assert upstream.requests[0].values("authorization") == ["Bearer mine"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (["127.0.0.1"], "address_not_public"),
        (["10.1.2.3"], "address_not_public"),
        (["1.1.1.1", "127.0.0.1"], "address_not_public"),
        (["::1"], "address_not_public"),
        (["169.254.169.254"], "address_forbidden"),
        (["1.1.1.1", "::ffff:127.0.0.1"], "address_forbidden"),
        (["64:ff9b::7f00:1"], "address_forbidden"),
        (["fe80::1%lo"], "address_forbidden"),
    ],
)
async def test_a_name_that_resolves_to_an_internal_address_is_refused(
    world: World, tls_upstream: MakeUpstream, answers: list[str], reason: str
) -> None:
    """Public answers beside it change nothing; with the user's exception the same upstream answers."""
    world.resolver.table[HOST] = answers
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        where = HostPort(HOST, upstream.port)
        error = await world.refusal(upstream, grant=Grant(hosts=(where,)))
        assert reason_of(error) == reason
        assert error.failure.boundary is Boundary.RUNTIME
        assert (upstream.connections, world.vault.lent, world.journal.rows) == (0, 0, [])

        world.resolver.table[HOST] = ["127.0.0.1"]
        allowed = Grant(hosts=(where,), private=frozenset({where}))
        assert (await world.ask(upstream, grant=allowed)).body == b"ok"


async def test_permission_for_a_private_address_covers_no_other_host_or_port(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Another port of the host is not excepted, nor is another host at the same port."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        where = HostPort(HOST, upstream.port)
        for other in (HostPort(HOST, 1), HostPort("other.test", upstream.port)):
            error = await world.refusal(upstream, grant=Grant(hosts=(where,), private=frozenset({other})))
            assert reason_of(error) == "address_not_public"
    assert upstream.connections == 0


async def test_plain_http_reaches_only_a_loopback_host_that_the_settings_name(world: World) -> None:
    """`egress.private_plain` must name that host:port, and then only a loopback address is reached."""
    with Upstream(lambda _seen: answer(b"ok")) as upstream:
        url = plain_url(upstream)
        assert reason_of(await world.refusal(upstream, url=url)) == "plain_http"
        assert_nothing_happened(world, upstream)

        assert (await world.ask(upstream, url=url, grant=world.plain_grant(upstream))).body == b"ok"

        await world.egress.aclose()
        world.resolver.table[HOST] = ["192.168.7.7"]
        error = await world.refusal(upstream, url=url, grant=world.plain_grant(upstream))
        assert reason_of(error) == "address_not_loopback"


async def test_a_setting_that_allows_plain_http_does_not_replace_the_grant(world: World) -> None:
    """The user's setting opens nothing that the manifest does not name."""
    with Upstream(lambda _seen: answer()) as upstream:
        where = HostPort(HOST, upstream.port)
        grant = Grant(plain=frozenset({where}), private=frozenset({where}))
        assert reason_of(await world.refusal(upstream, url=plain_url(upstream), grant=grant)) == "host_not_granted"
        assert_nothing_happened(world, upstream)


async def test_a_public_address_of_this_machine_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request there would reach the user's own services; one to any other public address gets as far as the ledger."""
    world.resolver.table[HOST] = ["1.1.1.1"]
    grant = Grant(hosts=(HostPort(HOST, 443),))
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.1")

    class ReachedTheLedger(Exception):
        pass

    def stop() -> None:
        raise ReachedTheLedger

    world.journal.on_sending = stop
    with pytest.raises(ReachedTheLedger):
        await world.ask(None, grant=grant)

    monkeypatch.setattr("aileron.egress.steps.is_own_address", lambda address: address == "1.1.1.1")
    assert reason_of(await world.refusal(None, grant=grant)) == "address_own"


# --- TLS ------------------------------------------------------------------------------------------------------------

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def old_tls(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return the context of a server with a good certificate that speaks only an old TLS."""
    context = authority.server_context(HOST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def signed_by(
    signer: trustme.CA | trustme.LeafCert | None,
    directory: Path,
    *,
    begins_in: datetime.timedelta = datetime.timedelta(days=-1),
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    bits: int = 2048,
) -> ssl.SSLContext:
    """Return a server for HOST with a certificate trustme would not make: self-signed, by a leaf, for clients, or a small key."""
    key = rsa.generate_private_key(65537, bits)
    own_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    signing: Any = key
    name, chain = own_name, b""
    if signer is not None:
        chain = (signer.cert_chain_pems[0] if isinstance(signer, trustme.LeafCert) else signer.cert_pem).bytes()
        signing = serialization.load_pem_private_key(signer.private_key_pem.bytes(), None)
        name = x509.load_pem_x509_certificate(chain).subject
    begins = datetime.datetime.now(datetime.UTC) + begins_in
    certificate = (
        x509.CertificateBuilder(name, own_name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = directory / "server.pem"
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM) + chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(file)
    return context


REFUSED_CERTIFICATES: dict[str, Callable[[Authority, Path], ssl.SSLContext]] = {
    "self-signed": lambda _ours, there: signed_by(None, there),
    "not yet valid": lambda ours, there: signed_by(ours._ca, there, begins_in=datetime.timedelta(days=1)),
    "over": lambda ours, there: signed_by(ours._ca, there, begins_in=datetime.timedelta(days=-9)),
    "signed by one that is no authority": lambda ours, there: signed_by(ours._ca.issue_cert("leaf.test"), there),
    "for clients": lambda ours, there: signed_by(ours._ca, there, usage=ExtendedKeyUsageOID.CLIENT_AUTH),
    "too small a key": lambda ours, there: signed_by(ours._ca, there, bits=1024),
    "a wildcard one level too high": lambda ours, _there: ours.server_context("*.test"),
    "a wildcard one level too low": lambda ours, _there: ours.server_context("*.api.example.test"),
    "its address instead of its name": lambda ours, _there: ours.server_context("127.0.0.1"),
    "its name with a dot": lambda ours, _there: ours.server_context("example.test", "xapi.example.test"),
}
ACCEPTED_CERTIFICATES: dict[str, Callable[[Authority, Path], ssl.SSLContext]] = {
    "signed by the authority": lambda ours, there: signed_by(ours._ca, there),
    "signed by an authority below it": lambda ours, there: signed_by(ours._ca.create_child_ca(), there),
    "a wildcard at its level": lambda ours, _there: ours.server_context("*.example.test"),
    "several names": lambda ours, _there: ours.server_context("other.test", HOST),
}


@pytest.mark.abuse_case("E8")
@pytest.mark.parametrize("kind", [*REFUSED_CERTIFICATES, *ACCEPTED_CERTIFICATES])
@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_no_byte_of_a_request_is_sent_before_the_server_s_certificate_is_accepted(
    world: World, authority: Authority, tmp_path: Path, kind: str, protocol: str
) -> None:
    """A server that cannot prove its name gets no byte of the request, with or without a credential; the others get all of it."""
    is_good = kind in ACCEPTED_CERTIFICATES
    context = (ACCEPTED_CERTIFICATES if is_good else REFUSED_CERTIFICATES)[kind](authority, tmp_path)
    with (
        H2Upstream(lambda seen: [head(seen, (":status", "200")), data(seen, b"ok", end=True)], context)
        if protocol == "h2"
        else Upstream(lambda _seen: answer(b"ok"), context)
    ) as upstream:
        grant = world.grant_for(upstream, credential=use())
        if is_good:
            assert (await world.ask(upstream, credential="api_key", grant=grant)).body == b"ok"
            assert len(upstream.received) > 0
            return
        error = await world.refusal(upstream, credential="api_key", grant=grant)
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR
        assert "its certificate is not trusted" in error.failure.message
        details = {"phase": "connect", "reason": "certificate"}
        assert (error.failure.retriable, error.failure.details) == (False, details)
    assert (upstream.connections, bytes(upstream.received)) == (1, b"")


@pytest.mark.abuse_case("E8")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ours, _other: ours.server_context("other.test"), "certificate is not trusted"),
        (lambda ours, _other: ours.server_context("*.test"), "certificate is not trusted"),
        (lambda ours, _other: ours.server_context("other.test", common_name=HOST), "certificate is not trusted"),
        (lambda ours, _other: ours.server_context(common_name=HOST), "certificate is not trusted"),
        (lambda ours, _other: ours.server_context(HOST, not_after=LONG_AGO), "certificate is not trusted"),
        (lambda _ours, other: other.server_context(HOST), "certificate is not trusted"),
        (lambda ours, _other: old_tls(ours, ssl.TLSVersion.TLSv1_1), "TLS failed"),
        (lambda ours, _other: old_tls(ours, ssl.TLSVersion.TLSv1), "TLS failed"),
    ],
    ids=[
        "wrong name",
        "wildcard too wide",
        "name in CN beside another",
        "name in CN only",
        "expired",
        "unknown authority",
        "TLS 1.1",
        "TLS 1.0",
    ],
)
async def test_no_byte_of_a_request_goes_to_a_host_that_cannot_prove_its_name(
    world: World,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[Authority, Authority], ssl.SSLContext],
    words: str,
) -> None:
    """Even the request line is withheld; a good certificate for the same name passes."""
    other = Authority(tmp_path_factory.mktemp("other"))
    with Upstream(lambda _seen: answer(), make(authority, other)) as upstream:
        error = await world.refusal(upstream, credential="api_key", grant=world.grant_for(upstream, credential=use()))

        assert error.failure.failure_class is FailureClass.NETWORK_ERROR
        assert error.failure.boundary is Boundary.EXTERNAL
        reason = {"reason": "certificate"} if "certificate" in words else {}
        assert error.failure.details == {"phase": "connect"} | reason
        assert words in error.failure.message
        assert error.failure.retriable is ("certificate" not in words)
    assert (upstream.connections, bytes(upstream.received)) == (1, b"")

    with Upstream(lambda _seen: answer(b"ok"), authority.server_context(HOST)) as good:
        assert (await world.ask(good)).body == b"ok"


async def test_a_private_certificate_authority_is_trusted_only_through_the_setting(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The setting is `egress.ca_file`. It adds an authority; the system's authorities stay in use."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        assert (await world.ask(upstream)).status == 200

        without = World(None)
        error = await without.refusal(upstream)
        assert "egress.ca_file" in error.failure.message


async def test_host_field_sni_and_resolver_get_the_same_name(world: World, authority: Authority) -> None:
    """All three come from the same parse, in lower case."""
    names: list[str | None] = []
    context = authority.server_context(HOST)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with Upstream(lambda _seen: answer(), context) as upstream:
        await world.ask(upstream, url=f"https://API.Example.TEST:{upstream.port}/")

    assert names == [HOST]
    assert upstream.requests[0].values("host") == [f"{HOST}:{upstream.port}"]
    assert world.resolver.asked == [HOST]


@pytest.mark.abuse_case("E12")
async def test_environment_variables_set_neither_a_proxy_nor_a_certificate_authority(
    authority: Authority,
    tls_upstream: MakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A proxy, an authority, or a file for TLS session keys can be set only in the configuration."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    with Upstream(lambda _seen: answer()) as proxy, tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
        trusting = World(authority.ca_pem)
        assert (await trusting.ask(upstream)).body == b"ok"
        await trusting.egress.aclose()

        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
            monkeypatch.setenv(name, str(authority.ca_file))
        monkeypatch.setenv("SSL_CERT_DIR", os.path.dirname(authority.ca_file))
        error = await World(None).refusal(upstream)
        assert "certificate is not trusted" in error.failure.message
        assert (proxy.connections, keys.exists()) == (0, False)


async def test_certificate_authorities_are_found_in_the_usual_places_of_linux_distributions(
    authority: Authority, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OpenSSL built with other paths still finds the system's bundle."""
    nowhere = ssl.DefaultVerifyPaths("", "", "", "/nowhere/cert.pem", "", "/nowhere/certs")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        monkeypatch.setattr("aileron.tls._CA_BUNDLES", ("/nowhere/either", str(authority.ca_file)))
        world = World(None)
        assert (await world.ask(upstream)).body == b"ok"
        await world.egress.aclose()

        monkeypatch.setattr("aileron.tls._CA_BUNDLES", ())
        assert "certificate is not trusted" in str(await World(None).refusal(upstream))


@pytest.mark.parametrize(
    "content", ["", "not a certificate", "é", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_ca_file_without_a_certificate_keeps_the_daemon_from_starting(authority: Authority, content: str) -> None:
    """The error names the setting. Text in any language before a certificate is accepted."""
    with pytest.raises(AileronError, match=r"egress\.ca_file holds no certificate"):
        client_context(content)

    trusted = client_context(f"# Behörde für zu Hause\r\n{authority.ca_pem}").get_ca_certs(binary_form=True)
    assert ssl.PEM_cert_to_DER_cert(authority.ca_pem) in trusted


async def test_the_system_s_resolver_is_the_default(authority: Authority) -> None:
    """`localhost` comes from /etc/hosts."""
    assert "127.0.0.1" in await SystemResolver()("localhost", 443)
    with Upstream(lambda _seen: answer(b"ok"), authority.server_context("localhost")) as upstream:
        world = World(authority.ca_pem)
        egress = Egress(Settings(egress_ca_pem=authority.ca_pem), world.vault)
        request = EgressRequest("GET", f"https://localhost:{upstream.port}/")
        grant = world.grant(HostPort("localhost", upstream.port))
        deadline = anyio.current_time() + 10
        async with egress.open(request, grant, Meter(Budget()), world.journal, deadline) as response:
            assert b"".join([piece async for piece in response]) == b"ok"
        await egress.aclose()


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        ("https://evil.io/steal?data=sesame", "evil.io:443"),
        ("https://user:sesame@evil.io:8443/", "evil.io:8443"),
        ("gopher://evil.io:70/sesame", "evil.io:70"),
        ("https://evil.io\\\\sesame", "evil.io"),
        ("https://\x1b[2Jevil.io/", "\x1b[2Jevil.io"),
        ("https://" + "e" * 999 + "/sesame", "e" * 300),
        ("sesame", "unknown"),
    ],
)
async def test_a_recorded_denial_names_only_host_and_port(world: World, url: str, destination: str) -> None:
    """The denial has host and port as far as the URL has them, and no path, query or user."""
    with pytest.raises(AileronError) as caught:
        await world.ask(None, url=url, method="GET" + "T" * 99, grant=Grant())

    (denial,) = world.journal.denials
    assert (denial.number, denial.destination, denial.reason) == (1, destination, reason_of(caught.value))
    assert denial.method == "GET" + "T" * 29
    assert "sesame" not in repr(denial)


async def test_a_request_whose_denial_cannot_be_recorded_is_still_not_sent(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's disk is full: the invocation fails with that error."""

    async def full(_denial: object) -> None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the disk is full")

    monkeypatch.setattr(world.journal, "denied", full)
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        with pytest.raises(AileronError, match="the disk is full"):
            await world.ask(upstream, url="https://evil.io/")
        assert_nothing_happened(world, upstream)
        assert (await world.ask(upstream)).status == 200

"""Attacks on a sign-in by others, and attacks by a provider on us, each beside the case that works."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
import pytest

from aileron.config import LiveSettings, Settings
from aileron.daemon.secrets.lending import Lending
from aileron.egress import Egress, EgressRequest, Meter
from aileron.model.credential import Client
from aileron.model.failure import AileronError
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse, Grant
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.renew import Renewals
from aileron.oauth.request import challenge
from aileron.oauth.signin import GrantedTokens, SignIn
from aileron.vault.vault import Vault
from tests.egress.conftest import Journal
from tests.oauth.conftest import asked_for, callback, endpoints_to, port_of, signed_in, visit
from tests.oauth.crash_probe import Quiet
from tests.support.token_server import SCOPES, Asked, TokenServer, oauth_error
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = pytest.mark.anyio

NAME: Final = BindingName("oauth2", "mail", "work")
CONNECTOR: Final = "github://you/mail"
USE: Final = CredentialUse(connector=CONNECTOR, binding=NAME, need=CredentialNeed(kind="oauth2", scope="mail"))
NOW: Final = 1_795_233_600.0


# Tokens (67)


class Service:
    """An API that accepts all tokens but the refused ones, and sends back the token that it was sent."""

    def __init__(self, authority: Authority) -> None:
        self.upstream = Upstream(self._answer, authority.server_context("localhost"))
        self.refuses = {"Bearer canary-access-token-0"}

    def _answer(self, seen: Seen) -> bytes:
        (token,) = seen.values("authorization")
        status = "401 Unauthorized" if token in self.refuses else "200 OK"
        return answer(seen.head, f"X-Echo: {token}", status=status)


class Run:
    """Requests of a connector through the egress engine, with the vault's lender and renewals behind it."""

    def __init__(self, egress: Egress, service: Service) -> None:
        self._egress = egress
        address = HostPort("localhost", service.upstream.port)
        self._url = f"https://{address}/mail"
        self._grant = Grant(hosts=(address,), private=frozenset({address}), credential=USE)
        self.seen: list[tuple[int, bytes]] = []

    async def ask(self) -> None:
        """Send one request; record the part of its response that the connector sees."""
        request = EgressRequest("GET", self._url, credential="oauth2")
        meter, deadline = Meter(self._grant.budget), anyio.current_time() + 30
        async with self._egress.open(request, self._grant, meter, Journal(), deadline) as response:
            body = b"".join([piece async for piece in response])
            fields = "".join(f"{name}: {value}\r\n" for name, value in response.headers).encode()
            self.seen.append((response.status, fields + body))


@contextlib.asynccontextmanager
async def running(authority: Authority, server: TokenServer, service: Service, vault: Vault) -> AsyncIterator[Run]:
    """Run everything between a connector's request and two servers."""
    settings = Settings(egress_private=frozenset({server.address}), egress_ca_pem=authority.ca_pem)
    lending = Lending(vault, lambda: renewals)
    egress = Egress(settings, lending)
    renewals = Renewals(vault, Endpoints(egress, LiveSettings(settings)), Quiet(), lambda: NOW)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renewals.serve)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(60):
                yield Run(egress, service)
            tasks.cancel_scope.cancel()
    finally:
        await egress.aclose()


@pytest.fixture
def vault(tmp_path_factory: pytest.TempPathFactory, server: TokenServer) -> Vault:
    """Return a vault with one sign-in."""
    vault = Vault(tmp_path_factory.mktemp("vault") / "home" / "vault.json")
    vault.create(Secret(b"correct horse battery"))
    signed_in(vault, server, NAME, CONNECTOR, NOW, "canary-client-secret")
    return vault


@pytest.mark.abuse_case("O9")
async def test_many_refusals_of_an_access_token_cause_one_renewal_and_reveal_no_token(
    authority: Authority, server: TokenServer, vault: Vault
) -> None:
    """The service echoes the access token, but the connector does not see it. The service sees no other secret."""
    service = Service(authority)
    with service.upstream:
        async with running(authority, server, service, vault) as run, anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(run.ask)

    assert [status for status, _ in run.seen] == [200] * 12
    assert len(server.asked) == 1
    assert not [seen for _, seen in run.seen if b"canary" in seen]
    assert b"Bearer canary-access-token-0" in service.upstream.received  # it was sent, and refused
    assert b"Bearer canary-access-token-1" in service.upstream.received
    assert b"refresh" not in service.upstream.received
    assert b"canary-client-secret" not in service.upstream.received


async def test_a_service_that_refuses_every_token_causes_one_renewal(
    authority: Authority, server: TokenServer, vault: Vault
) -> None:
    """A service must not be able to exhaust a sign-in: its further refusals are passed on."""
    service = Service(authority)
    service.refuses |= {f"Bearer canary-access-token-{number}" for number in range(100)}
    with service.upstream:
        async with running(authority, server, service, vault) as run:
            for _ in range(10):
                await run.ask()

    assert [status for status, _ in run.seen] == [401] * 10
    assert len(server.asked) == 1
    assert not [seen for _, seen in run.seen if b"canary" in seen]


# The way back (68)


class CheckingCodes:
    """A provider's memory of the request behind each code, as PKCE and RFC 6749 section 4.1.3 require."""

    def __init__(self, server: TokenServer) -> None:
        self._server = server
        self.codes: dict[str, dict[str, str]] = {}

    def __call__(self, asked: Asked) -> bytes:
        """Redeem the code of one request, or refuse it."""
        known = self.codes.pop(asked.form.get("code", ""), None)
        is_right = (
            known is not None
            and challenge(asked.form.get("code_verifier", "")) == known["code_challenge"]
            and asked.form.get("redirect_uri") == known["redirect_uri"]
        )
        return self._server._give() if is_right else oauth_error("invalid_grant")


@contextlib.asynccontextmanager
async def waiting(endpoints: Endpoints, server: TokenServer) -> AsyncIterator[tuple[SignIn, dict[str, str]]]:
    """Run a sign-in in a browser; yield it with the parameters of its address."""
    async with SignIn(server.provider(), endpoints, flow="browser") as sign_in:
        assert sign_in.invitation.authorize_url is not None
        yield sign_in, asked_for(sign_in.invitation.authorize_url)


async def ended(sign_in: SignIn, into: list[GrantedTokens | str]) -> None:
    """Wait until a sign-in ends; append the granted tokens, or the code of the failure."""
    try:
        into.append(await sign_in.finished())
    except AileronError as error:
        into.append(str(error.failure.details["code"]))


@pytest.mark.abuse_case("O12")
async def test_a_stolen_authorization_code_cannot_be_redeemed(server: TokenServer, endpoints: Endpoints) -> None:
    """A thief can read the code in the address bar, but not the PKCE verifier of this sign-in."""
    provider = CheckingCodes(server)
    client = Client(client_id="client-of-the-publisher", client_secret=None, token_url="", revocation_url=None)
    server.says(provider, provider, provider)
    async with waiting(endpoints, server) as (sign_in, asked), waiting(endpoints, server) as (_, other):
        provider.codes = {"stolen-code-1": asked, "stolen-code-2": other, "good-code": asked}
        results: list[GrantedTokens | str] = []
        sign_in_of_a_thief = {
            "grant_type": "authorization_code",
            "code": "stolen-code-1",
            "redirect_uri": asked["redirect_uri"],
        }
        with pytest.raises(Exception, match="did not accept the code"):
            await endpoints.post(server.url("/token"), sign_in_of_a_thief, client, anyio.current_time() + 20)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, sign_in, results)
            # injected into the victim's sign-in: a code that was given out for another request (RFC 9700, section 4.5)
            await visit(port_of(asked), callback(asked, code="stolen-code-2"))
    async with waiting(endpoints, server) as (sign_in, asked), anyio.create_task_group() as tasks:
        provider.codes["good-code"] = asked
        tasks.start_soon(ended, sign_in, results)
        await visit(port_of(asked), callback(asked, code="good-code"))

    assert results[0] == "invalid_grant"
    assert isinstance(results[1], GrantedTokens)


@pytest.mark.abuse_case("O12")
async def test_a_callback_at_the_port_of_another_sign_in_is_refused(server: TokenServer, endpoints: Endpoints) -> None:
    """Two people or two tabs sign in at once: each callback fits only its own sign-in, and the other waits on."""
    results: list[GrantedTokens | str] = []
    async with (
        waiting(endpoints, server) as (sign_in, asked),
        waiting(endpoints, server) as (other_sign_in, other),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ended, sign_in, results)
        tasks.start_soon(ended, other_sign_in, results)
        crossed = [await visit(port_of(asked), callback(other)), await visit(port_of(other), callback(asked))]
        right = [await visit(port_of(asked), callback(asked)), await visit(port_of(other), callback(other))]

    assert [status for status, _, _ in crossed] == [400, 400]
    assert [status for status, _, _ in right] == [200, 200]
    assert [type(result) for result in results] == [GrantedTokens, GrantedTokens]


@pytest.mark.abuse_case("O12")
async def test_a_second_tab_or_a_replayed_code_does_not_affect_the_sign_in(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The first callback is redeemed once, even while others repeat it."""
    results: list[GrantedTokens | str] = []
    server.hold()
    async with waiting(endpoints, server) as (sign_in, asked), anyio.create_task_group() as tasks:
        tasks.start_soon(ended, sign_in, results)
        tasks.start_soon(visit, port_of(asked), callback(asked))
        await anyio.to_thread.run_sync(server.wait_asked)
        again = [await visit(port_of(asked), callback(asked)) for _ in range(3)]
        server.release()

    assert [status for status, _, _ in again] == [400, 400, 400]
    assert isinstance(results[0], GrantedTokens)
    assert len(server.asked) == 1


@pytest.mark.abuse_case("O11")
async def test_a_foreign_web_page_can_neither_cancel_nor_complete_a_sign_in(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """A web page can send the browser to the listener with any parameters, but does not know the state."""
    results: list[GrantedTokens | str] = []
    async with waiting(endpoints, server) as (sign_in, asked), anyio.create_task_group() as tasks:
        tasks.start_soon(ended, sign_in, results)
        port = port_of(asked)
        found = [
            (await visit(port, "/callback?error=access_denied"))[0],
            (await visit(port, "/callback?code=code-of-the-attackers-account&state=guessed"))[0],
            (await visit(port, callback(asked), host=f"rebound.evil.example:{port}"))[0],
            (await visit(port, callback(asked), method="POST"))[0],
        ]
        early = list(results)
        await visit(port, callback(asked))

    assert found == [400, 400, 421, 405]
    assert early == []
    assert isinstance(results[0], GrantedTokens)
    assert server.asked[0].form["code"] == "canary-code-of-the-provider"


@pytest.mark.abuse_case("O14")
async def test_an_authorization_code_of_another_issuer_is_not_redeemed(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """Mix-up attack: a callback with the right state names another issuer. The token endpoint never sees the code."""
    results: list[GrantedTokens | str] = []
    for issuer in ("https://evil.example", server.url("")):
        async with waiting(endpoints, server) as (sign_in, asked), anyio.create_task_group() as tasks:
            tasks.start_soon(ended, sign_in, results)
            await visit(port_of(asked), callback(asked, iss=issuer))

    assert results[0] == "issuer_mismatch"
    assert isinstance(results[1], GrantedTokens)
    assert len(server.asked) == 1


# Providers that aim elsewhere (69)


@pytest.mark.abuse_case("O15")
@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://127.0.0.1:{other}/token",
        "https://localhost:{other}/token",
        "https://10.0.0.1/token",
        "https://0.0.0.0:{other}/token",
        "http://169.254.169.254/token",
        "http://id.example/token",
        "file:///etc/passwd",
        "https://user@localhost:{server}/token",
        "https://localhost:{server}/../token",
    ],
)
@pytest.mark.parametrize("endpoint", ["token_url", "device_authorization_url"])
async def test_a_manifest_cannot_direct_requests_at_the_local_network(
    endpoint: str,
    url: str,
    authority: Authority,
    server: TokenServer,
    start_server: Callable[..., TokenServer],
) -> None:
    """Cloud metadata, this machine, private networks and files are refused unconnected. A provider that
    the user allowed works.
    """
    other = start_server()
    aimed = url.format(other=other.address.port, server=server.address.port)
    codes: list[str] = []
    async with endpoints_to(authority, server) as endpoints:
        with pytest.raises(AileronError) as caught, anyio.fail_after(60):
            await _all_the_way(endpoints, server.provider(**{endpoint: aimed}), endpoint)
        codes.append(str(caught.value.failure.details["code"]))
        granted = await _all_the_way(endpoints, server.provider(), endpoint)

    assert codes[0] in ("not_allowed", "not_allowed_yet", "bad_provider")
    assert other.connections == 0
    assert granted.grant.refreshable


async def _all_the_way(endpoints: Endpoints, provider: Any, endpoint: str) -> GrantedTokens:
    async def at_once(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    flow = "browser" if endpoint == "token_url" else "device"
    results: list[GrantedTokens | AileronError] = []

    async def finish(sign_in: SignIn) -> None:
        try:
            results.append(await sign_in.finished())
        except AileronError as error:
            results.append(error)

    async with SignIn(provider, endpoints, flow=flow, sleep=at_once) as sign_in, anyio.create_task_group() as tasks:  # type: ignore[arg-type]
        tasks.start_soon(finish, sign_in)
        if sign_in.invitation.authorize_url is not None:
            asked = asked_for(sign_in.invitation.authorize_url)
            await visit(port_of(asked), callback(asked))
    (result,) = results
    if isinstance(result, AileronError):
        raise AileronError.of(result.failure)
    return result


@pytest.mark.abuse_case("O15")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_of_an_endpoint_is_not_followed(
    status: str, authority: Authority, server: TokenServer, start_server: Callable[..., TokenServer]
) -> None:
    """This holds for reachable addresses too: code and verifier go to the endpoint and nowhere else."""
    other = start_server()
    async with endpoints_to(authority, server, other) as endpoints:
        for place in (other.url("/token"), "http://169.254.169.254/", "file:///etc/passwd", server.url("/elsewhere")):
            server.says(answer(b"", f"Location: {place}", status=status))
            with pytest.raises(AileronError) as caught:
                await _all_the_way(endpoints, server.provider(), "token_url")
            assert caught.value.failure.details["code"] == "redirected"

    assert other.connections == 0
    assert {asked.path for asked in server.asked} == {"/token"}


@pytest.mark.abuse_case("O15")
async def test_a_sign_in_fetches_no_discovery_document(server: TokenServer, endpoints: Endpoints) -> None:
    """A document could name other endpoints: in a whole sign-in the provider sees one request."""
    await _all_the_way(endpoints, server.provider(issuer=None, scopes=("openid", *SCOPES)), "token_url")

    assert [asked.path for asked in server.asked] == ["/token"]

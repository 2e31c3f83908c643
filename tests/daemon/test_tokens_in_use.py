"""Egress, the renewals and the vault together, as in the daemon: expiring tokens, and services that refuse valid ones.

Everything is real except the provider's pages: the connector's requests and the renewals are sent by one engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from aileron.config import LiveSettings, Settings
from aileron.daemon.secrets.lending import Lending
from aileron.egress import Egress, EgressRequest, Meter
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialNeed
from aileron.model.names import HostPort
from aileron.model.plan import Budget, CredentialUse, Grant
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.jobs import JobTiming
from aileron.vault.vault import Vault
from tests.egress.conftest import Journal
from tests.oauth.test_oauth_renew import CONNECTOR, NAME, PASSPHRASE, World, served
from tests.support.token_server import TokenServer, oauth_error
from tests.support.upstream import Authority, Seen, Upstream, answer
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio

FIRST, SECOND = "canary-access-token-0", "canary-access-token-1"
PATIENT = JobTiming(patience_s=20.0)
"""Patience that waits for a renewal on a slow machine, instead of sending the old token."""
REFUSAL = answer(b"who?", "WWW-Authenticate: Bearer", status="401 Unauthorized")
Script = Callable[[Seen], bytes]


class Joined:
    """The rooms as the daemon connects them, a service and a provider; the token, valid for an hour, has 90 s left."""

    def __init__(self, egress: Egress, renewing: World, service: Upstream) -> None:
        self.egress = egress
        self.renewing = renewing
        self.service = service
        self.journal = Journal()
        host = HostPort("localhost", service.port)
        need = CredentialNeed(kind="oauth2", scope="a test")
        use = CredentialUse(connector=CONNECTOR, binding=NAME, need=need)
        self.grant = Grant(hosts=(host,), private=frozenset({host}), credential=use, budget=Budget())

    async def ask(
        self, meter: Meter | None = None, body: bytes | None = None, credential: str | None = "oauth2"
    ) -> tuple[int, bytes]:
        """Send a request of the connector."""
        url = f"https://localhost:{self.service.port}/"
        request = EgressRequest("GET" if body is None else "POST", url, (), credential, body)
        until = anyio.current_time() + 20
        meter = meter or Meter(self.grant.budget)
        async with self.egress.open(request, self.grant, meter, self.journal, until) as response:
            return response.status, b"".join([piece async for piece in response])

    @property
    def sent(self) -> list[str]:
        """Tokens of the requests that reached the service."""
        return [seen.values("authorization")[0].removeprefix("Bearer ") for seen in self.service.requests]


@contextlib.asynccontextmanager
async def joined(directory: Path, script: Script, pace: JobTiming | None = None) -> AsyncIterator[Joined]:
    """Run egress, renewals, service and provider until the block is left."""
    authority = Authority(directory)
    tls = authority.server_context("localhost")
    vault = Vault(directory / "home" / "vault.json")
    vault.create(PASSPHRASE)
    lending = Lending(vault, lambda: world.renewals)
    with TokenServer(authority.server_context("localhost")) as provider, Upstream(script, tls) as service:
        private = frozenset({provider.address, HostPort("localhost", service.port)})
        settings = Settings(egress_private=private, egress_ca_pem=authority.ca_pem)
        egress = Egress(settings, lending)
        world = World(vault, provider, Endpoints(egress, LiveSettings(settings)), pace or JobTiming())
        world.sign_in()
        world.clock.now += 3600 - 90
        try:
            async with served(world):
                yield Joined(egress, world, service)
        finally:
            await egress.aclose()
            vault.lock()


def only(*tokens: str) -> Script:
    """Return a service that accepts these tokens."""
    good = {f"Bearer {token}" for token in tokens}
    return lambda seen: answer(b"welcome" + seen.body) if seen.values("authorization")[0] in good else REFUSAL


async def test_a_token_about_to_expire_is_renewed_before_a_request_is_sent(tmp_path: Path) -> None:
    """A token with 90 s left is sent as it is; with 30 s left its successor is sent."""
    async with joined(tmp_path, only(FIRST, SECOND), PATIENT) as rooms:
        assert await rooms.ask() == (200, b"welcome")
        rooms.renewing.clock.now += 60
        assert await rooms.ask() == (200, b"welcome")

        assert rooms.sent == [FIRST, SECOND]
        assert rooms.renewing.stored == SECOND.encode()


async def test_one_token_renewal_serves_all_waiting_requests_without_a_deadlock(tmp_path: Path) -> None:
    """Twelve requests and the renewal that they wait for share an engine with one slot."""
    async with joined(tmp_path, only(SECOND), PATIENT) as rooms:
        rooms.egress.slots = anyio.Semaphore(1)  # type: ignore[misc]
        rooms.renewing.clock.now += 60
        meter, got = Meter(Budget()), list[tuple[int, bytes]]()

        async def one() -> None:
            got.append(await rooms.ask(meter))

        async with anyio.create_task_group() as tasks:
            for _request in range(12):
                tasks.start_soon(one)

        assert got == [(200, b"welcome")] * 12
        assert len(rooms.renewing.server.asked) == 1
        assert set(rooms.sent) == {SECOND}


async def test_many_requests_refused_for_a_revoked_token_are_served_after_one_renewal(tmp_path: Path) -> None:
    """The provider has revoked the token: each request is sent once more, but the provider is asked only once."""
    async with joined(tmp_path, only(SECOND)) as rooms:
        rooms.egress.slots = anyio.Semaphore(2)  # type: ignore[misc]
        meter, got = Meter(Budget()), list[tuple[int, bytes]]()

        async def one(number: int) -> None:
            got.append(await rooms.ask(meter, b"%d" % number))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)

        assert sorted(got) == [(200, b"welcome%d" % number) for number in range(8)]
        assert len(rooms.renewing.server.asked) == 1
        assert rooms.sent.count(SECOND) == 8


@pytest.mark.abuse_case("O7")
async def test_a_service_that_refuses_every_request_causes_only_one_token_renewal(tmp_path: Path) -> None:
    """The service answers 401 to 200 requests in 8 steps: there is one renewal and one repeated request."""
    async with joined(tmp_path, lambda _seen: REFUSAL, JobTiming(fresh_s=600.0)) as rooms:
        for _step in range(8):
            meter = Meter(rooms.grant.budget)
            for _request in range(25):
                assert await rooms.ask(meter) == (401, b"who?")

        assert len(rooms.renewing.server.asked) == 1
        assert len(rooms.sent) == 201
        assert rooms.sent == [FIRST] + [SECOND] * 200


async def test_a_step_causes_at_most_one_token_renewal(tmp_path: Path) -> None:
    """The limit holds even if the configured pace would allow a renewal after every refusal."""
    eager = JobTiming(fresh_s=0.0, least_s=0.0)
    async with joined(tmp_path, lambda _seen: REFUSAL, eager) as rooms:
        for _step in range(3):
            meter = Meter(rooms.grant.budget)
            for _request in range(20):
                assert (await rooms.ask(meter))[0] == 401

        assert len(rooms.renewing.server.asked) == 3
        assert len(rooms.sent) == 63


@pytest.mark.abuse_case("E36")
async def test_a_token_that_could_not_be_stored_is_still_masked(tmp_path: Path) -> None:
    """The disk is full, so the token is sent from memory; later another request's response repeats it."""
    kept = [b"nothing yet"]

    def script(seen: Seen) -> bytes:
        kept[:] = [sent.encode() for sent in seen.values("authorization")] or kept
        return answer(b"last: " + kept[0])

    async with joined(tmp_path, script, msgspec.structs.replace(PATIENT, write_again_s=0.01)) as rooms:
        world = rooms.renewing
        world.store.full = {"put_tokens"}
        world.clock.now += 60
        await rooms.ask()
        assert (rooms.sent, world.stored) == ([SECOND], FIRST.encode())
        world.vault.revoke(NAME)
        world.store.full = set()
        await wait_until_async(
            lambda: world.renewals.newest(NAME, Secret(FIRST.encode())).reveal() == FIRST.encode(), "it is written"
        )
        rooms.grant = msgspec.structs.replace(rooms.grant, credential=None)
        status, body = await rooms.ask(credential=None)

    assert kept == [f"Bearer {SECOND}".encode()]
    assert (status, body) == (200, b"last: Bearer " + b"*" * len(SECOND))


async def test_a_revoked_sign_in_is_reported_to_the_person(tmp_path: Path) -> None:
    """The service answers 401 and the provider refuses to renew: the request fails with the command, and is not sent again."""
    async with joined(tmp_path, lambda _seen: REFUSAL) as rooms:
        rooms.renewing.server.says(oauth_error("invalid_grant"))
        for _time in range(2):
            with pytest.raises(AileronError) as caught:
                await rooms.ask()
            assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
            assert f"aileron binding reauthorize {NAME}" in caught.value.failure.message

        assert len(rooms.renewing.server.asked) == 1
        assert rooms.sent == [FIRST, FIRST]


async def test_a_locked_vault_stops_a_request_before_it_is_sent(tmp_path: Path) -> None:
    """A locked vault lends and renews no token; once it is open, requests are sent again."""
    async with joined(tmp_path, only(FIRST)) as rooms:
        rooms.renewing.vault.lock()
        with pytest.raises(AileronError) as caught:
            await rooms.ask()
        rooms.renewing.vault.unlock(PASSPHRASE)
        assert await rooms.ask() == (200, b"welcome")

        assert caught.value.failure.failure_class is FailureClass.VAULT_LOCKED
        assert (rooms.sent, rooms.renewing.server.asked) == ([FIRST], [])

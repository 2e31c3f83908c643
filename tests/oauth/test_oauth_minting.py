"""Tokens without a sign-in: one request for all who wait, before the end, after a 401, and no token that should be gone.

The server is scripted, over TLS; failures are sentences that name the fix.
"""

from __future__ import annotations

import contextlib
import email.utils
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.fixes import Stored
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.jobs import JobTiming
from aileron.oauth.minting import UNSAID_S, USED_S, Minting
from aileron.oauth.token_request import ClientCredential
from tests.oauth.test_oauth_assertion import RSA, pem
from tests.oauth.test_oauth_renew import NOW, Clock, Journal
from tests.oauth.test_oauth_token_request import credential
from tests.support.token_server import SCOPES, TokenServer, json_answer, oauth_error, tokens_answer
from tests.support.upstream import answer

pytestmark = pytest.mark.anyio

SECRET: Final = b"canary-client-secret"
PACE: Final = JobTiming(patience_s=20.0, fresh_s=30.0, first_pause_s=600.0, longest_pause_s=600.0)
EXCHANGE: Final = {"grant": "token_exchange", "client_auth": "none"}


class World:
    """A `Minting` with its server and the tokens that it had remembered."""

    def __init__(self, endpoints: Endpoints, server: TokenServer, pace: JobTiming) -> None:
        self.server = server
        self.journal = Journal()
        self.clock = Clock()
        self.remembered: list[tuple[BindingName, bytes]] = []
        self.is_locked = False
        self.minting = Minting(endpoints, self.journal, self._remember, self.clock, elapsed=self.clock, pace=pace)

    def _remember(self, name: BindingName, token: Secret) -> None:
        if self.is_locked:
            raise AileronError(FailureClass.VAULT_LOCKED, "the vault is locked; open it with `aileron vault unlock`")
        self.remembered.append((name, token.reveal()))

    def client(self, secret: bytes = SECRET, client_id: str | None = "a client", **grant: Any) -> ClientCredential:
        """Return the credential of the binding whose tokens this server issues."""
        return credential(secret, client_id, **{"token_url": self.server.url("/token"), "scopes": SCOPES, **grant})

    async def token(self, client: ClientCredential | None = None, within_s: float = 20.0) -> str:
        """Return the token that a request would get."""
        client = client or self.client()
        await self.minting.ready(client, anyio.current_time() + within_s)
        return self.minting.token(client).reveal().decode()

    async def fails(self, client: ClientCredential | None = None, within_s: float = 20.0) -> AileronError:
        """Return the error of a request for a token."""
        with pytest.raises(AileronError) as caught:
            await self.token(client, within_s)
        return caught.value


@contextlib.asynccontextmanager
async def served(endpoints: Endpoints, server: TokenServer, pace: JobTiming = PACE) -> AsyncIterator[World]:
    """Run the `Minting` until the block is left."""
    world = World(endpoints, server, pace)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.minting.serve)
        await anyio.wait_all_tasks_blocked()
        yield world
        tasks.cancel_scope.cancel()


@pytest.fixture
async def world(endpoints: Endpoints, server: TokenServer) -> AsyncIterator[World]:
    """Yield a `World` that is being served."""
    async with served(endpoints, server) as made:
        yield made


async def test_one_token_serves_all_requests_until_shortly_before_it_expires(world: World) -> None:
    """Twelve simultaneous requests cause one token request; a minute before it expires there is another."""
    got: list[str] = []

    async def one() -> None:
        got.append(await world.token())

    async with anyio.create_task_group() as tasks:
        for _request in range(12):
            tasks.start_soon(one)
    world.clock.now += 3600 - 61
    got.append(await world.token())
    assert (set(got), len(world.server.asked)) == ({"canary-access-token-1"}, 1)
    world.clock.now += 2

    assert await world.token() == "canary-access-token-2"
    assert (
        world.journal.rows
        == [
            ("renewing", "oauth2_client/billing/work", str(world.server.address)),
            ("renewed", "oauth2_client/billing/work"),
        ]
        * 2
    )
    assert [token for _name, token in world.remembered] == [b"canary-access-token-1", b"canary-access-token-2"]


@pytest.mark.parametrize(("said_s", "used_s"), [(None, UNSAID_S), (30 * 86400, USED_S), (40, 40.0)])
async def test_a_token_is_used_for_a_bounded_time_whatever_lifetime_the_server_states(
    world: World, said_s: float | None, used_s: float
) -> None:
    """The time is bounded for any lifetime that the server states, or none."""
    world.server.lifetime_s = said_s
    room_s = min(60.0, used_s / 4)
    first = await world.token()
    world.clock.now += used_s - room_s - 1
    assert await world.token() == first
    world.clock.now += 2

    assert await world.token() != first


async def test_a_server_whose_tokens_expire_at_once_is_not_asked_for_every_request(world: World) -> None:
    """A token with a lifetime of zero is used for a second, and then replaced."""
    world.server.lifetime_s = 0
    assert {await world.token() for _time in range(5)} == {"canary-access-token-1"}
    world.clock.now += 1.5

    assert await world.token() == "canary-access-token-2"


async def test_a_refused_token_is_replaced_unless_it_was_issued_a_moment_ago(world: World) -> None:
    """A 401 for a token issued a moment ago has another cause. A caller with an older token gets the newest one."""
    client, until = world.client(), anyio.current_time() + 20
    first = Secret((await world.token()).encode())
    assert not await world.minting.renew(client, first, until)
    world.clock.now += 31

    assert await world.minting.renew(client, first, until)
    assert await world.minting.renew(client, first, until)
    assert (await world.token(), len(world.server.asked)) == ("canary-access-token-2", 2)


async def test_a_valid_token_is_used_while_the_server_is_down(world: World) -> None:
    """The token is used until it expires; afterwards the request fails as retriable."""
    first = await world.token()
    world.clock.now += 3600 - 30
    world.server.says(answer(b"", status="503 Service Unavailable"))
    assert await world.token() == first
    world.clock.now += 31
    error = await world.fails()

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert error.failure.retriable
    assert "(next attempt in 600 s)" in error.failure.message
    assert (len(world.server.asked), world.journal.rows[-1][0]) == (2, "failed")


FAILURES: Final[dict[str, tuple[bytes, dict[str, Any], str, str]]] = {
    "secret": (
        oauth_error("invalid_client", "401 Unauthorized"),
        {},
        "invalid_client",
        "`aileron secret set billing-work`",
    ),
    "scope": (oauth_error("invalid_scope"), {}, "invalid_scope", "allow it for this client there"),
    "less": (json_answer(tokens_answer(scope="mail.read")), {}, "missing_scopes", "(missing: mail.send)"),
    "mac": (json_answer(tokens_answer(token_type="mac")), {}, "bad_token_type", "of a type that Aileron"),
    "page": (answer(b"<html>"), {}, "bad_answer", "sent an invalid answer; try again"),
    "moved": (
        answer(b"", "Location: https://evil/", status="307 Moved"),
        {},
        "redirected",
        "tokens are not sent there",
    ),
    "exchanged": (
        json_answer(tokens_answer(issued_token_type="urn:ietf:params:oauth:token-type:refresh_token")),
        EXCHANGE,
        "bad_token_type",
        "of a type that Aileron",
    ),
    "unsaid": (json_answer(tokens_answer()), EXCHANGE, "bad_answer", "sent an invalid answer; try again"),
    "ended": (oauth_error("invalid_request"), EXCHANGE, "invalid_request", "or the exchanged token, as invalid"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_token_request_that_the_server_refuses_is_reported_with_the_fix(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is not asked again during a pause, except with another secret."""
    caplog.set_level(logging.DEBUG)
    said, grant, code, words = FAILURES[name]
    world.server.says(said)
    error = await world.fails(world.client(**grant))
    await world.fails(world.client(**grant))

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert error.failure.details["code"] == code
    assert words in error.failure.message
    assert len(world.server.asked) == 1
    assert world.journal.rows[-1] == ("failed", "oauth2_client/billing/work", code)
    assert "canary" not in caplog.text + error.failure.message
    assert await world.token(world.client(b"canary-another-secret")) == "canary-access-token-1"


@pytest.mark.abuse_case("O24")
@pytest.mark.parametrize("auth", ["client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize(("code", "is_named"), [("secret_like_a_code", False), ("like_a", False), ("try_me", True)])
async def test_a_secret_that_the_server_repeats_as_its_error_code_is_not_quoted(
    world: World, auth: str, code: str, is_named: bool
) -> None:
    """Any part of it counts, in whichever form it was sent. Other error codes are quoted."""
    world.server.says(oauth_error(code))
    error = await world.fails(world.client(b"secret_like_a_code", client_auth=auth))

    assert error.failure.details["code"] == "unknown_error"
    assert (code in error.failure.message) is is_named


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_refusal_caused_by_a_wrong_clock_is_reported_as_a_wrong_clock(world: World, hours: int) -> None:
    """A server whose time differs refuses an assertion. If the times agree, the refusal is about the client."""
    world.clock.now = NOW
    asked = {"client_auth": "private_key_jwt"}
    dated = [email.utils.formatdate(at, usegmt=True) for at in (NOW - hours * 3600, NOW + 5)]
    refusals = [
        answer(b'{"error": "invalid_client"}', "Content-Type: application/json", f"Date: {date}", status="401 No")
        for date in dated
    ]
    world.server.says(refusals[0])
    error = await world.fails(world.client(pem(RSA), **asked))
    world.server.says(refusals[1])
    other = await world.fails(world.client(pem(RSA), "another", **asked))

    way = "ahead of" if hours > 0 else "behind"
    assert f"this machine's clock is wrong (60 min {way} the server's); set the clock" in error.failure.message
    assert (error.failure.details["code"], other.failure.details["code"]) == ("clock_off", "invalid_client")


async def test_an_unsuitable_signing_key_is_reported_without_a_token_request(world: World) -> None:
    """The message says which secret it is and how to store another."""
    error = await world.fails(world.client(pem(RSA), client_auth="private_key_jwt", algorithm="EdDSA"))

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert "secret 'billing-work' is a key of the wrong type: EdDSA" in error.failure.message
    assert "store another with `aileron secret set billing-work`" in error.failure.message
    assert (world.server.asked, world.journal.rows) == ([], [])


async def test_a_token_request_that_cannot_be_recorded_is_not_sent(world: World) -> None:
    """An unwritable ledger stops the request; afterwards all is well."""
    world.journal.full = {"renewing"}
    assert "the ledger could not be written" in (await world.fails()).failure.message
    assert world.server.asked == []
    world.journal.full = set()

    assert await world.token() == "canary-access-token-1"


async def test_a_token_is_not_used_if_the_vault_was_locked_while_it_was_requested(world: World) -> None:
    """The vault was locked while the token was requested, so the caller gets vault_locked."""
    world.is_locked = True
    error = await world.fails()

    assert error.failure.failure_class is FailureClass.VAULT_LOCKED
    assert world.minting.tokens() == ()


async def test_a_caller_that_times_out_does_not_cancel_the_token_request(world: World) -> None:
    """The next caller gets its token; the caller that timed out gets `too_slow`."""
    world.server.hold()
    error = await world.fails(within_s=0.2)
    world.server.release()

    assert (error.failure.failure_class, error.failure.details["code"]) == (FailureClass.NETWORK_ERROR, "too_slow")
    assert (await world.token(), len(world.server.asked)) == ("canary-access-token-1", 1)


async def test_a_token_that_was_forgotten_during_or_after_its_request_is_not_used(world: World) -> None:
    """A token may be forgotten in memory or while it is being requested; a later request gets another one."""
    await world.token()
    world.minting.forget()
    assert world.minting.tokens() == ()
    with pytest.raises(AileronError, match="was forgotten meanwhile"):
        world.minting.token(world.client())
    world.server.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.fails)
        await anyio.to_thread.run_sync(world.server.wait_asked, 2)
        world.minting.forget()
        world.server.release()

    assert world.minting.tokens() == ()
    assert len(world.remembered) == 1
    assert await world.token() == "canary-access-token-3"


@pytest.mark.parametrize(
    "changed", [{"secret": b"canary-another-secret"}, {"client_id": "another"}, {"audience": "https://other"}, None]
)
async def test_a_token_is_dropped_when_the_secret_user_name_or_grant_of_its_binding_changes(
    world: World, changed: dict[str, Any] | None
) -> None:
    """Another secret, user name or grant drops it, and so does the end of the binding."""
    await world.token()
    same, other = world.client(), None if changed is None else world.client(**changed)
    world.minting.keep_only(lambda _name: same)
    assert len(world.minting.tokens()) == 1
    world.minting.keep_only(lambda _name: other)

    assert world.minting.tokens() == ()
    if other is not None:
        assert await world.token(other) == "canary-access-token-2"


async def test_a_stopping_daemon_answers_waiting_callers(endpoints: Endpoints, server: TokenServer) -> None:
    """A server that does not respond must not keep the daemon from stopping."""
    server.hold()
    pace = JobTiming(last_s=0.1)
    failed: list[AileronError] = []
    async with anyio.create_task_group() as waiting, served(endpoints, server, pace) as world:

        async def one() -> None:
            failed.append(await world.fails())

        waiting.start_soon(one)
        await anyio.to_thread.run_sync(server.wait_asked)

    assert [error.failure.details["code"] for error in failed] == ["stopping"]


async def test_a_token_request_during_which_the_vault_was_locked_does_not_keep_the_daemon_from_stopping(
    endpoints: Endpoints, server: TokenServer
) -> None:
    """The vault was locked during the token request, which still has its last seconds like any other."""
    server.hold()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as waiting, served(endpoints, server, JobTiming(last_s=0.1)) as world:
            waiting.start_soon(world.fails)
            await anyio.to_thread.run_sync(server.wait_asked)
            world.minting.forget()


async def test_each_of_many_bindings_keeps_its_own_token(world: World) -> None:
    """Each binding keeps its own token."""
    clients = [
        ClientCredential(
            BindingName("oauth2_client", "billing", who), world.client().grant, who, Secret(SECRET), Stored(who)
        )
        for who in ("one", "two")
    ]
    tokens = [await world.token(client) for client in clients]

    assert (
        [await world.token(client) for client in clients]
        == tokens
        == ["canary-access-token-1", "canary-access-token-2"]
    )

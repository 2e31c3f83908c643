"""Renewal of tokens: one renewal for many requests, no lost token whatever happens meanwhile, no hammered provider.

The provider rotates strictly, over TLS, with the real vault: a token that it issued and that is not kept ends the sign-in, so
every test that ends well shows that it was kept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio
import msgspec
import pytest

from aileron.model.credential import Client, OAuthGrant, TokenSet
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import BindingName, HostPort
from aileron.model.secret import Secret
from aileron.oauth import jobs, renew
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.jobs import JobTiming
from aileron.oauth.renew import Renewals
from aileron.vault.bindings import Binding
from aileron.vault.vault import Vault
from tests.support.token_server import SCOPES, TokenServer, json_answer, oauth_error, tokens_answer
from tests.support.upstream import answer
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PASSPHRASE: Final = Secret(b"correct horse battery")
NAME: Final = BindingName("oauth2", "mail", "work")
CONNECTOR: Final = "github://you/mail"
NOW: Final = 1_795_233_600.0
FIRST: Final = Secret(b"canary-access-token-0")
QUICK: Final = JobTiming(
    patience_s=20.0,
    fresh_s=0.0,
    least_s=0.0,
    first_pause_s=600.0,
    longest_pause_s=600.0,
    write_again_s=0.01,
    last_s=30.0,
)
"""Timing that never waits; a pause outlasts the test."""
DAY_S: Final = 86_400.0


class Clock:
    """A clock in seconds since the epoch that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Store:
    """The vault, with a disk that can be full, and a hook before each change for the test."""

    def __init__(self, vault: Vault) -> None:
        self.vault: Final = vault
        self.full: set[str] = set()
        self.before: dict[str, Callable[[], None]] = {}
        self.changes: list[str] = []

    def binding(self, name: BindingName) -> Binding | None:
        return self.vault.binding(name)

    def tokens(self, name: BindingName) -> TokenSet:
        return self.vault.tokens(name)

    def put_tokens(self, name: BindingName, tokens: TokenSet, grant: OAuthGrant) -> None:
        self._change("put_tokens")
        self.vault.put_tokens(name, tokens, grant)

    def note_renewal(self, name: BindingName, at_ms: int) -> None:
        self._change("note_renewal")
        self.vault.note_renewal(name, at_ms)

    def note_refused(self, name: BindingName, code: str) -> None:
        self._change("note_refused")
        self.vault.note_refused(name, code)

    def _change(self, name: str) -> None:
        self.before.pop(name, lambda: None)()
        if name in self.full:
            message = "vault.json could not be written: No space left on device; free some space and try again"
            raise AileronError(FailureClass.INTERNAL_ERROR, message)
        self.changes.append(name)


class Journal:
    """The rows that went on record."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.full: set[str] = set()

    async def renewing(self, binding: BindingName, host: str) -> None:
        await self._note("renewing", str(binding), host)

    async def renewed(self, binding: BindingName) -> None:
        await self._note("renewed", str(binding))

    async def failed(self, binding: BindingName, code: str) -> None:
        await self._note("failed", str(binding), code)

    async def _note(self, *row: str) -> None:
        await anyio.lowlevel.checkpoint()
        if row[0] in self.full:
            raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger could not be written")
        self.rows.append(row)


class World:
    """The renewals of one vault with everything around them."""

    def __init__(self, vault: Vault, server: TokenServer, endpoints: Endpoints, pace: JobTiming) -> None:
        self.vault = vault
        self.server = server
        self.store = Store(vault)
        self.journal = Journal()
        self.clock = Clock()
        self.renewals = Renewals(self.store, endpoints, self.journal, self.clock, pace=pace)

    def sign_in(
        self,
        name: BindingName = NAME,
        *,
        ends_in_s: float | None = 3600,
        resource: str | None = None,
        is_registered: bool = False,
        **grant: Any,
    ) -> None:
        """Store a sign-in as of now; the provider knows the refresh token."""
        self.server.refresh = "canary-refresh-token-0"
        ends_at = None if ends_in_s is None else self.clock.now + ends_in_s
        refreshable = grant.get("refreshable", True)
        tokens = TokenSet(
            access=FIRST,
            refresh=Secret(self.server.refresh.encode()) if refreshable else None,
            expires_at=ends_at,
            scopes=SCOPES,
            client=Client(
                client_id="client-of-the-publisher",
                client_secret="canary-client-secret",
                token_url=self.server.url("/token"),
                revocation_url=self.server.url("/revoke"),
                resource=resource,
                is_registered=is_registered,
            ),
        )
        said = {
            "scopes": SCOPES,
            "obtained_ms": int(self.clock.now * 1000),
            "refreshable": True,
            "account": "mira@example.test",
        }
        secret = f"{name.service}-{name.identity}"
        self.vault.set_secret(secret, tokens.sealed())
        self.vault.bind(
            Binding(
                name=name,
                connector=CONNECTOR,
                kind="oauth2",
                username=None,
                secret=secret,
                created_at=NOW,
                grant=OAuthGrant(**{**said, "expires_ms": None if ends_at is None else int(ends_at * 1000), **grant}),
            ),
            replace=True,
        )

    @property
    def grant(self) -> OAuthGrant:
        """The grant as it is in the vault."""
        binding = self.vault.binding(NAME)
        assert binding is not None
        assert binding.grant is not None
        return binding.grant

    @property
    def access(self) -> bytes:
        """The access token that would be sent."""
        return self.renewals.newest(NAME, self.vault.tokens(NAME).access).reveal()

    @property
    def stored(self) -> bytes:
        """The access token in the vault."""
        return self.vault.tokens(NAME).access.reveal()

    async def ready(self, within_s: float = 20.0) -> None:
        """Ask for a valid token, as egress does before a request."""
        await self.renewals.ready(NAME, anyio.current_time() + within_s)

    async def renew(self, refused: Secret = FIRST, within_s: float = 20.0) -> bool:
        """Ask for a renewal, as egress does after a 401."""
        return await self.renewals.renew(NAME, refused, anyio.current_time() + within_s)

    async def refusal(self, ask: Callable[[], Any] | None = None) -> AileronError:
        """Return the failure of a request that must fail; it quotes no secret and has no cause."""
        with pytest.raises(AileronError) as caught:
            await (ask or self.ready)()
        assert "canary" not in f"{caught.value.failure!r}"
        assert caught.value.__cause__ is None
        return caught.value

    async def held_back(self) -> None:
        """Wait until one more request has reached the provider."""
        await anyio.to_thread.run_sync(self.server.wait_asked)

    @contextlib.asynccontextmanager
    async def asked_by(self, *callers: Callable[[], Any]) -> AsyncIterator[anyio.abc.TaskGroup]:
        """Start callers, and yield their tasks once the provider was asked; it answers at the end of the block."""
        self.server.hold()
        async with anyio.create_task_group() as tasks:
            for caller in callers:
                tasks.start_soon(caller)
            await self.held_back()
            yield tasks
            self.server.release()


@pytest.fixture(scope="module")
def open_vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    """Yield one vault for all tests here: a derivation takes a tenth of a second, and more on a busy machine."""
    vault = Vault(tmp_path_factory.mktemp("vault") / "home" / "vault.json")
    vault.create(PASSPHRASE)
    yield vault
    vault.lock()


@pytest.fixture
def vault(open_vault: Vault) -> Vault:
    """Return that vault, open and empty."""
    if open_vault.is_locked:
        open_vault.unlock(PASSPHRASE)
    for binding in open_vault.bindings():
        open_vault.revoke(binding.name)
    for info in open_vault.secrets():
        open_vault.remove_secret(info.name)
    return open_vault


@contextlib.asynccontextmanager
async def served(world: World) -> AsyncIterator[World]:
    """Run the renewals until the block ends, then stop them as a daemon does."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.renewals.serve)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            yield world
        tasks.cancel_scope.cancel()


@pytest.fixture
async def idle(vault: Vault, server: TokenServer, endpoints: Endpoints) -> World:
    """Return a world in which a person has signed in, but renewals do not run."""
    world = World(vault, server, endpoints, QUICK)
    world.sign_in()
    return world


@pytest.fixture
async def world(idle: World) -> AsyncIterator[World]:
    """Yield that world with its renewals running."""
    async with served(idle):
        yield idle


@pytest.fixture(autouse=True)
def _no_token_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check after each test that no line of the log has a token, a secret or a traceback."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.get_records("call"):
        if record.name.startswith("aileron"):
            assert "canary" not in record.getMessage()
            assert record.exc_info is None


# Before it ends


async def test_a_token_that_does_not_expire_soon_is_not_renewed(world: World) -> None:
    """The provider is not asked right after the sign-in, nor just over a minute before the token expires."""
    await world.ready()
    world.clock.now += 3600 - 61
    await world.ready()

    assert world.server.asked == []
    assert world.journal.rows == []


async def test_a_token_is_renewed_a_minute_before_it_expires(world: World) -> None:
    """A single request carries the refresh token; the whole answer is in the vault, and the rest of the binding is unchanged."""
    before = world.vault.binding(NAME)
    world.clock.now += 3600 - 59
    await world.ready()
    (asked,) = world.server.asked
    tokens, after = world.vault.tokens(NAME), world.vault.binding(NAME)

    assert asked.form == {
        "grant_type": "refresh_token",
        "refresh_token": "canary-refresh-token-0",
        "client_id": "client-of-the-publisher",
        "client_secret": "canary-client-secret",
    }
    assert tokens.access.reveal() == b"canary-access-token-1" == world.access
    assert tokens.refresh is not None
    assert tokens.refresh.reveal() == b"canary-refresh-token-1"
    assert tokens.expires_at == world.clock.now + 3600
    assert world.grant == OAuthGrant(
        scopes=SCOPES,
        obtained_ms=int(NOW * 1000),
        account="mira@example.test",
        refreshable=True,
        expires_ms=int((world.clock.now + 3600) * 1000),
        refreshed_ms=int(world.clock.now * 1000),
    )
    assert before is not None
    assert after is not None
    assert msgspec.structs.replace(after, grant=None) == msgspec.structs.replace(before, grant=None)
    assert world.journal.rows == [
        ("renewing", str(NAME), str(world.server.address)),
        ("renewed", str(NAME)),
    ]


async def test_each_of_many_renewals_uses_the_refresh_token_of_the_renewal_before(world: World) -> None:
    """Each of ten renewals uses the refresh token of the one before."""
    for _ in range(10):
        world.clock.now += 3600
        await world.ready()

    assert world.stored == b"canary-access-token-10"
    assert [asked.form["refresh_token"] for asked in world.server.asked] == [
        f"canary-refresh-token-{number}" for number in range(10)
    ]


async def test_a_refresh_token_that_is_not_replaced_stays(
    vault: Vault, start_server: Callable[..., TokenServer], authority: Any
) -> None:
    """A provider without rotation sends no new refresh token, so the existing one stays in use."""
    from tests.oauth.conftest import endpoints_to

    server = start_server(rotates=False)
    async with endpoints_to(authority, server) as endpoints:
        world = World(vault, server, endpoints, QUICK)
        world.sign_in()
        async with served(world):
            for _ in range(3):
                world.clock.now += 3600
                await world.ready()

    assert {asked.form["refresh_token"] for asked in server.asked} == {"canary-refresh-token-0"}
    assert world.stored == b"canary-access-token-3"
    assert world.grant.refreshable


async def test_a_short_lived_token_is_not_renewed_for_every_request(world: World) -> None:
    """The renewal comes at most a quarter of the token's lifetime before it expires."""
    world.server.lifetime_s = 30
    world.clock.now += 3600
    await world.ready()
    world.clock.now += 22
    await world.ready()
    asked_by_then = len(world.server.asked)
    world.clock.now += 1
    await world.ready()

    assert asked_by_then == 1
    assert len(world.server.asked) == 2


async def test_a_token_without_an_expiry_is_renewed_only_when_refused(world: World) -> None:
    """The provider stated no lifetime: a year later the token is still sent."""
    world.sign_in(ends_in_s=None)
    world.clock.now += 365 * DAY_S
    await world.ready()
    asked_before = len(world.server.asked)
    is_renewed = await world.renew()

    assert asked_before == 0
    assert is_renewed


async def test_a_binding_without_a_sign_in_causes_no_renewal(world: World) -> None:
    """A token bound as a plain secret and an unbound name cause no request and no error."""
    world.vault.set_secret("plain", Secret(b"canary-plain-token"))
    world.vault.bind(
        Binding(NAME, CONNECTOR, "oauth2", None, "plain", NOW),
        replace=True,
    )
    await world.ready()
    is_renewed = await world.renew(Secret(b"canary-plain-token"))
    world.vault.revoke(NAME)
    await world.ready()

    assert not is_renewed
    assert world.server.asked == []


async def test_the_tokens_of_a_renewal_with_fewer_scopes_are_stored(world: World) -> None:
    """The person withdrew a scope at the provider. The new tokens replace the old ones, so they must be kept."""
    world.server.says(json_answer(tokens_answer(scope="mail.read")))
    world.clock.now += 3600
    await world.ready()

    assert world.grant.scopes == ("mail.read",)
    assert world.stored == FIRST.reveal()  # the value in the scripted answer


# Many at once


@pytest.mark.abuse_case("O9")
async def test_fifty_simultaneous_refusals_cause_one_renewal(world: World) -> None:
    """Every caller whose old token was refused waits for the new one."""
    told: list[bool] = []

    async def refused() -> None:
        told.append(await world.renew())

    async with world.asked_by(*[refused] * 50):
        told_early = list(told)
    late = await world.renew()

    assert told_early == []
    assert told == [True] * 50
    assert late  # a later caller with the old token
    assert len(world.server.asked) == 1
    assert world.store.changes == ["note_renewal", "put_tokens"]


async def test_callers_before_a_request_and_callers_after_a_refusal_share_one_renewal(world: World) -> None:
    """Half of the callers ask before they send a request, half after a refusal."""
    world.clock.now += 3600
    async with world.asked_by(*[world.ready] * 20, *[world.renew] * 20):
        pass

    assert len(world.server.asked) == 1


async def test_two_sign_ins_are_renewed_concurrently(world: World) -> None:
    """A provider that is slow for one sign-in does not delay another."""
    other = BindingName("oauth2", "mail", "home")
    world.sign_in(other)
    world.clock.now += 3600
    world.server.says(
        *[json_answer(tokens_answer(access_token=f"canary-side-by-side-{number}")) for number in range(2)]
    )
    world.server.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.ready)
        tasks.start_soon(world.renewals.ready, other, anyio.current_time() + 20)
        await world.held_back()
        await world.held_back()  # the second came while the first had no answer
        world.server.release()

    assert len(world.server.asked) == 2
    assert {world.stored, world.vault.tokens(other).access.reveal()} == {
        b"canary-side-by-side-0",
        b"canary-side-by-side-1",
    }


@pytest.mark.abuse_case("O10")
async def test_a_cancelled_caller_does_not_cancel_the_renewal(world: World) -> None:
    """1. A caller begins it. 2. The provider replaces the refresh token. 3. The caller is cancelled. The answer is kept."""
    async with world.asked_by(world.renew) as tasks:
        tasks.cancel_scope.cancel()
    is_renewed = await world.renew()

    assert is_renewed
    assert len(world.server.asked) == 1
    assert world.stored == b"canary-access-token-1"


async def test_a_callers_deadline_does_not_end_the_renewal(world: World) -> None:
    """The deadline ends only the caller's wait, with a retriable `too_slow`."""
    world.server.hold()
    error = await world.refusal(lambda: world.renew(within_s=0.05))
    world.server.release()
    is_renewed = await world.renew()

    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert error.failure.retriable
    assert error.failure.details["code"] == "too_slow"
    assert is_renewed
    assert len(world.server.asked) == 1


async def test_a_still_valid_token_is_sent_if_the_provider_does_not_respond_soon(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """The provider does not respond half a minute before the token expires, so the current token is sent."""
    world = World(vault, server, endpoints, JobTiming(patience_s=0.05, fresh_s=0))
    world.sign_in()
    async with served(world):
        world.clock.now += 3600 - 30
        server.hold()
        await world.ready()
        sent = world.access
        server.release()
        await world.renew()

    assert sent == FIRST.reveal()
    assert world.stored == b"canary-access-token-1"


async def test_a_stopping_daemon_stores_the_tokens_of_a_renewal_in_progress(idle: World) -> None:
    """1. The provider is asked. 2. The daemon stops. 3. The answer comes, and is in the vault before the daemon has ended."""
    async with served(idle), anyio.create_task_group() as tasks:
        idle.server.hold()
        tasks.start_soon(idle.renew)
        await idle.held_back()
        tasks.cancel_scope.cancel()
        idle.store.before["put_tokens"] = lambda: None
        threading.Timer(0.05, idle.server.release).start()

    assert idle.stored == b"canary-access-token-1"
    assert idle.store.changes == ["note_renewal", "put_tokens"]


async def test_a_silent_provider_does_not_keep_the_daemon_from_stopping(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """The daemon waits for a moment; waiting callers get `stopping`, and the vault notes the open renewal."""
    world = World(vault, server, endpoints, JobTiming(last_s=0.05))
    world.sign_in()
    told: list[AileronError] = []

    async def refused() -> None:
        told.append(await world.refusal(world.renew))

    async with anyio.create_task_group() as tasks, served(world):
        server.hold()
        tasks.start_soon(refused)
        await world.held_back()

    assert [error.failure.details["code"] for error in told] == ["stopping"]
    assert world.grant.renewing_ms == int(NOW * 1000)
    assert world.stored == FIRST.reveal()


async def test_no_renewal_begins_after_the_daemon_stopped(idle: World) -> None:
    """A caller gets `stopping`, and the provider is not asked."""
    async with served(idle):
        pass
    idle.clock.now += 3600
    error = await idle.refusal()

    assert error.failure.details["code"] == "stopping"
    assert idle.server.asked == []


# First the intent, then the answer


async def test_the_intent_to_renew_is_stored_and_recorded_before_the_provider_is_asked(world: World) -> None:
    """The test reads the vault's file when the request arrives at the provider."""
    world.clock.now += 3600
    seen: list[Any] = []

    def look(asked: Any) -> bytes:
        binding = Vault(world.vault.path).binding(NAME)
        assert binding is not None
        assert binding.grant is not None
        seen.extend([binding.grant.renewing_ms, list(world.journal.rows)])
        return world.server._good(asked)

    world.server.says(look)
    await world.ready()

    assert seen == [int(world.clock.now * 1000), [("renewing", str(NAME), str(world.server.address))]]
    assert world.grant.renewing_ms is None


async def test_a_token_is_not_used_before_it_is_in_the_vault(world: World) -> None:
    """Waiting callers continue after the write, not after the answer."""
    writing, go_on, done = threading.Event(), threading.Event(), []

    def write_when_told() -> None:
        writing.set()
        assert go_on.wait(20)

    world.store.before["put_tokens"] = write_when_told

    async def refused() -> None:
        done.append(await world.renew())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refused)
        await anyio.to_thread.run_sync(writing.wait)
        used_meanwhile = world.access
        tasks.start_soon(refused)  # a caller that comes only now
        await anyio.wait_all_tasks_blocked()
        done_early = list(done)
        go_on.set()

    assert used_meanwhile == FIRST.reveal()
    assert done_early == []
    assert done == [True, True]
    assert len(world.server.asked) == 1


async def test_a_full_disk_is_found_before_the_provider_is_asked(world: World) -> None:
    """A valid token is used meanwhile; an expired one fails with the disk as the reason; with room it is renewed."""
    world.store.full = {"note_renewal"}
    world.clock.now += 3600 - 30
    await world.ready()
    world.clock.now += 30
    error = await world.refusal()
    asked_while_full = len(world.server.asked)
    world.store.full = set()
    await world.ready()

    assert "No space left on device; free some space" in str(error)
    assert world.journal.rows[-3:] == [
        ("failed", str(NAME), "internal_error"),
        ("renewing", str(NAME), str(world.server.address)),
        ("renewed", str(NAME)),
    ]
    assert asked_while_full == 0
    assert world.stored == b"canary-access-token-1"


async def test_a_renewal_that_cannot_be_recorded_is_not_begun(world: World) -> None:
    """A full ledger prevents the request. If it fills up only afterwards, no token is lost."""
    world.clock.now += 3600
    world.journal.full = {"renewing"}
    error = await world.refusal()
    asked_while_full = len(world.server.asked)
    world.journal.full = {"renewed"}
    await world.ready()

    assert "ledger" in str(error)
    assert asked_while_full == 0
    assert world.stored == b"canary-access-token-1"


@pytest.mark.abuse_case("O10")
async def test_a_disk_that_fills_up_during_a_renewal_loses_no_token(
    idle: World, caplog: pytest.LogCaptureFixture
) -> None:
    """1. The provider replaces the refresh token. 2. It cannot be written. It is used from memory until it can."""
    idle.clock.now += 3600
    written = threading.Event()
    async with served(idle) as world:
        world.store.full = {"put_tokens"}
        await world.ready()
        used, stored_while_full = world.access, world.stored
        world.clock.now += 3600  # it ends again: the provider is not asked while tokens are in memory only
        error = await world.refusal()
        world.store.before["put_tokens"] = written.set
        world.store.full = set()
        await anyio.to_thread.run_sync(written.wait)
        await wait_until_async(lambda: world.renewals.newest(NAME, FIRST) == FIRST, "it is written")
        stored = world.stored
        await world.ready()

    assert used == b"canary-access-token-1"
    assert stored_while_full == FIRST.reveal()
    assert "No space left on device" in str(error)
    assert stored == b"canary-access-token-1"
    assert world.stored == b"canary-access-token-2"
    assert "in memory only" in caplog.text
    assert "are now stored" in caplog.text


async def test_renewed_tokens_that_are_only_in_memory_are_written_when_the_daemon_stops(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """The disk had been full; the next regular attempt to write them is far away."""
    world = World(vault, server, endpoints, JobTiming(write_again_s=600))
    world.sign_in()
    async with served(world):
        world.store.full = {"put_tokens"}
        await world.renew()
        world.store.full = set()
        stored_before = world.stored

    assert stored_before == FIRST.reveal()
    assert world.stored == b"canary-access-token-1"


async def test_a_late_write_of_renewed_tokens_never_replaces_newer_tokens(world: World) -> None:
    """1. Held tokens are being written. 2. The next renewal begins. 3. The write of 1 ends. The newest tokens stay."""
    world.store.full = {"put_tokens"}
    await world.renew()
    writing, go_on = threading.Event(), threading.Event()

    def write_when_told() -> None:
        writing.set()
        assert go_on.wait(20)

    world.store.before["put_tokens"] = write_when_told
    world.store.full = set()
    await anyio.to_thread.run_sync(writing.wait)
    async with anyio.create_task_group() as tasks:
        world.clock.now += 3600
        tasks.start_soon(world.ready)
        await anyio.wait_all_tasks_blocked()
        asked_meanwhile = len(world.server.asked)
        go_on.set()

    assert asked_meanwhile == 1
    assert world.stored == b"canary-access-token-2" == world.access
    assert world.store.changes == ["note_renewal", "put_tokens", "note_renewal", "put_tokens"]


async def test_the_number_of_renewed_tokens_that_are_only_in_memory_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other providers are not asked once the bound is reached."""
    monkeypatch.setattr(renew, "MAX_HELD", 1)
    other = BindingName("oauth2", "mail", "home")
    world.sign_in(other)
    world.store.full = {"put_tokens"}
    await world.renew()
    error = await world.refusal(lambda: world.renewals.renew(other, FIRST, anyio.current_time() + 20))

    assert error.failure.details["code"] == "unwritten"
    assert len(world.server.asked) == 1


async def test_a_vault_locked_during_a_renewal_gets_the_new_tokens_when_it_is_unlocked(world: World) -> None:
    """1. The provider is asked. 2. The person locks the vault. 3. The answer comes, and waits. 4. They unlock it."""
    async with world.asked_by(partial(_locked_out, world)):
        world.vault.lock()
    error = await world.refusal(world.renew)
    written = threading.Event()
    world.store.before["put_tokens"] = written.set
    world.vault.unlock(PASSPHRASE)
    await anyio.to_thread.run_sync(written.wait)
    is_renewed = await world.renew()

    assert error.failure.failure_class is FailureClass.VAULT_LOCKED
    assert is_renewed
    assert world.access == b"canary-access-token-1"
    assert len(world.server.asked) == 1


async def _locked_out(world: World) -> None:
    with pytest.raises(AileronError) as caught:
        await world.renew()
    assert caught.value.failure.failure_class is FailureClass.VAULT_LOCKED


async def test_the_provider_is_not_asked_while_the_vault_is_locked(world: World) -> None:
    """The refresh token is not available then."""
    world.vault.lock()
    world.clock.now += 3600
    error = await world.refusal()

    assert error.failure.failure_class is FailureClass.VAULT_LOCKED
    assert world.server.asked == []


async def test_a_binding_revoked_during_a_renewal_gets_no_tokens(world: World) -> None:
    """The new tokens are revoked at the provider, and are no longer in memory."""
    async with world.asked_by(partial(_revoked_meanwhile, world)):
        world.vault.revoke(NAME)

    assert sorted(world.server.revoked) == ["canary-access-token-1", "canary-refresh-token-1"]
    assert world.renewals.newest(NAME, FIRST) == FIRST


async def _revoked_meanwhile(world: World) -> None:
    with pytest.raises(AileronError) as caught:
        await world.renew()
    assert caught.value.failure.failure_class is FailureClass.BINDING_REQUIRED


async def test_a_new_sign_in_during_a_renewal_is_not_overwritten(world: World) -> None:
    """1. The provider is asked. 2. The person signs in again. 3. The answer for the former sign-in comes, and is dropped."""
    async with world.asked_by(world.renew):
        world.clock.now += 1
        world.sign_in()
        world.vault.put_tokens(NAME, _with_access(world, b"canary-access-of-the-new-one"), world.grant)

    assert world.stored == b"canary-access-of-the-new-one" == world.access
    assert world.server.revoked == []


@pytest.mark.parametrize("ended", ["revoked", "signed in anew", "signed in anew and used"])
async def test_tokens_that_were_never_written_count_as_possibly_sent_for_a_day(
    world: World, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. They are used from memory. 2. Their sign-in ends before they can be written. They may have been sent: the access token
    to any host, the refresh token to the provider.
    """
    service, provider = HostPort("api.example", 443), world.server.address
    access, refresh = Secret(b"canary-access-token-1"), Secret(b"canary-refresh-token-1")
    world.store.full = {"put_tokens"}
    await world.renew()
    assert world.access == access.reveal()
    assert (world.renewals.unwritten(service), world.renewals.unwritten(provider)) == ((access,), (access, refresh))
    if ended == "revoked":
        world.vault.revoke(NAME)
    else:
        world.clock.now += 1
        world.sign_in()
        if ended.endswith("used"):
            world.clock.now += 3600
            world.store.full = set()
            await world.ready()
    world.store.full = set()
    await wait_until_async(lambda: world.renewals.newest(NAME, FIRST) == FIRST, "it is written")

    assert (world.renewals.unwritten(service), world.renewals.unwritten(provider)) == ((access,), (access, refresh))
    monkeypatch.setattr(renew, "KEPT_S", 0.0)
    assert world.renewals.unwritten(provider) == ()


async def test_the_number_of_remembered_tokens_that_were_never_written_is_bounded(world: World) -> None:
    """The newest are kept, and the oldest forgotten."""
    for _sign_in in range(renew.MAX_LOST + 1):
        world.store.full = {"put_tokens"}
        world.clock.now += 60
        await world.renew()
        world.vault.revoke(NAME)
        world.store.full = set()
        await wait_until_async(lambda: world.renewals.newest(NAME, FIRST) == FIRST, "it is written")
        world.sign_in()
    known = world.renewals.unwritten(HostPort("api.example", 443))

    assert [token.reveal() for token in known] == [
        b"canary-access-token-%d" % number for number in range(2, renew.MAX_LOST + 2)
    ]


@pytest.mark.abuse_case("O17")
async def test_old_tokens_are_never_stored_under_the_account_of_a_new_sign_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old tokens were read, their grant was not yet: they must not be stored under the new account."""
    world.sign_in(ends_in_s=0)
    look = world.store.tokens

    def tokens(name: BindingName) -> TokenSet:
        found = look(name)
        monkeypatch.setattr(world.store, "tokens", look)
        world.sign_in(obtained_ms=world.grant.obtained_ms + 1, account="other@example.test")
        world.server.refresh = "canary-refresh-token-of-another"
        of_another = Secret(world.server.refresh.encode())
        now = TokenSet(access=FIRST, refresh=of_another, expires_at=None, scopes=SCOPES, client=found.client)
        world.vault.put_tokens(name, now, world.grant)
        return found

    monkeypatch.setattr(world.store, "tokens", tokens)
    await world.renewals.ready(NAME, anyio.current_time() + 20)

    assert world.grant.account == "other@example.test"
    assert [asked.form["refresh_token"] for asked in world.server.to("/token")] == ["canary-refresh-token-of-another"]
    assert world.grant.failed is None


def _with_access(world: World, access: bytes) -> TokenSet:
    now = world.vault.tokens(NAME)
    return TokenSet(
        access=Secret(access), refresh=now.refresh, expires_at=now.expires_at, scopes=now.scopes, client=now.client
    )


# The provider says no


async def test_a_sign_in_that_ended_at_the_provider_says_how_to_sign_in_again(world: World) -> None:
    """`invalid_grant` is stored, so the provider is not asked again; the token is used until it expires."""
    world.server.says(oauth_error("invalid_grant", error_description="canary: expired or revoked"))
    world.clock.now += 3600 - 30
    await world.ready()
    world.clock.now += 30
    errors = [await world.refusal() for _ in range(3)] + [await world.refusal(world.renew)]

    for error in errors:
        assert error.failure.failure_class is FailureClass.BINDING_FAILED
        assert not error.failure.retriable
        assert str(error).endswith(f"sign in again: `aileron binding reauthorize {NAME}`")
        assert "was revoked there, a password was changed" in str(error)
    assert len(world.server.asked) == 1
    assert world.grant.failed == "invalid_grant"
    assert world.journal.rows[-1] == ("failed", str(NAME), "invalid_grant")


async def test_signing_in_again_clears_the_failure_and_the_pause_of_the_former_sign_in(world: World) -> None:
    """They belonged to the former sign-in."""
    world.clock.now += 3600
    world.server.says(oauth_error("invalid_grant"))
    await world.refusal()
    world.sign_in(ends_in_s=0)
    await world.ready()

    assert world.stored == b"canary-access-token-1"


async def test_an_interrupted_renewal_is_tried_once_more_and_its_failure_is_explained(world: World) -> None:
    """The daemon died between request and write, and the provider had replaced the token: the message says so."""
    world.server.refresh = "canary-refresh-token-that-nobody-has"
    world.vault.note_renewal(NAME, int(NOW * 1000))
    error = await world.refusal(world.renew)
    later = await world.refusal(world.renew)

    for each in (error, later):
        assert "an earlier renewal was interrupted before its answer was stored" in str(each)
        assert str(each).endswith(f"sign in again: `aileron binding reauthorize {NAME}`")
    assert len(world.server.asked) == 1
    assert world.grant.failed == "cut_off"


async def test_a_renewal_interrupted_before_the_provider_acted_is_repeated(world: World) -> None:
    """The provider did not act on the request, so the old refresh token still works."""
    world.vault.note_renewal(NAME, int(NOW * 1000))
    is_renewed = await world.renew()

    assert is_renewed
    assert world.grant.renewing_ms is None


async def test_a_sign_in_without_a_refresh_token_lasts_as_long_as_its_token(world: World) -> None:
    """An earlier refusal has another cause and is passed on; after the expiry the person must sign in again."""
    world.sign_in(refreshable=False)
    await world.ready()
    is_renewed = await world.renew()
    world.clock.now += 3600
    error = await world.refusal()

    assert not is_renewed
    assert error.failure.details["code"] == "no_refresh_token"
    assert f"aileron binding reauthorize {NAME}" in str(error)
    assert world.server.asked == []


@pytest.mark.parametrize(
    "code",
    [
        "invalid_request",
        "invalid_client",
        "unauthorized_client",
        "invalid_scope",
        "invalid_target",
        "unsupported_grant_type",
        "oops",
    ],
)
async def test_a_refusal_other_than_invalid_grant_is_reported_and_the_sign_in_stays(code: str, world: World) -> None:
    """The failure is stored with the binding, and a pause follows; a later success clears the failure."""
    world.clock.now += 3600
    world.server.says(oauth_error(code))
    error, again = await world.refusal(), await world.refusal()

    assert error.failure.failure_class is FailureClass.BINDING_FAILED
    assert f"aileron binding reauthorize {NAME}" in str(error)
    assert "next attempt in" in str(again)
    assert world.grant.failed == ("unknown_error" if code == "oops" else code)
    assert len(world.server.asked) == 1

    world.renewals.states[NAME].pause_until = 0.0  # the pause is over
    await world.ready()
    assert world.stored == b"canary-access-token-1"
    assert world.grant.failed is None


@pytest.mark.abuse_case("O21")
async def test_the_resource_of_the_tokens_is_sent_with_each_renewal(world: World) -> None:
    """RFC 8707 section 2.2: without it a provider may issue another kind of token. A sign-in without a resource sends none."""
    resource = "https://mail.example/mcp"
    await world.renew()
    world.sign_in(resource=resource)
    for _ in range(2):
        world.clock.now += 3600
        await world.ready()

    assert [asked.form.get("resource") for asked in world.server.to("/token")] == [None, resource, resource]
    assert world.vault.tokens(NAME).client.resource == resource


@pytest.mark.parametrize(("is_registered", "code"), [(True, "client_gone"), (False, "invalid_client")])
async def test_a_new_sign_in_is_advised_only_for_a_registered_client_that_the_provider_forgot(
    is_registered: bool, code: str, world: World
) -> None:
    """A new sign-in registers another client; only the publisher can fix a publisher's application."""
    world.sign_in(is_registered=is_registered)
    world.clock.now += 3600
    world.server.says(oauth_error("invalid_client", "401 Unauthorized"))
    error = await world.refusal()

    assert error.failure.details["code"] == code
    assert (f"sign in again: `aileron binding reauthorize {NAME}`" in str(error)) == is_registered
    assert ("publisher must fix this" in str(error)) != is_registered


async def test_a_refusal_of_the_former_sign_in_does_not_affect_the_new_one(world: World) -> None:
    """The person signs in again before the refusal arrives."""

    def sign_in_first(asked: Any) -> bytes:
        world.clock.now += 1
        world.sign_in()
        world.vault.put_tokens(NAME, _with_access(world, b"canary-access-of-the-new-one"), world.grant)
        return oauth_error("invalid_grant")

    world.server.says(sign_in_first)
    is_other = await world.renew()

    assert is_other
    assert world.grant.failed is None
    assert world.grant.obtained_ms == int((NOW + 1) * 1000)


async def test_a_refused_renewal_that_cannot_be_stored_is_still_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider is also left alone for a while."""
    world.store.full = {"note_refused"}
    world.server.says(oauth_error("invalid_grant"))
    errors = [await world.refusal(world.renew) for _ in range(3)]

    assert {error.failure.details["code"] for error in errors} == {"invalid_grant"}
    assert len(world.server.asked) == 1
    assert "is no longer renewed" in caplog.text


async def test_an_empty_refresh_token_in_a_response_keeps_the_former_refresh_token(world: World) -> None:
    """The former refresh token stays, as if the response had no such member."""
    world.server.says(json_answer({"access_token": "canary-access-new", "token_type": "Bearer", "refresh_token": ""}))
    assert await world.renew()
    assert world.grant.refreshable
    assert world.vault.tokens(NAME).refresh == Secret(b"canary-refresh-token-0")


async def test_an_unforeseen_error_of_a_renewal_is_reported_without_its_text(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A library's error may quote anything: only its type is logged, and waiting callers get a failure."""

    def break_down() -> None:
        raise RuntimeError("canary-in-an-error")

    world.store.before["note_renewal"] = break_down
    error = await world.refusal(world.renew)
    world.store.before["put_tokens"] = break_down
    is_renewed = await world.renew()  # the new tokens are not lost even then, and written a little later
    await wait_until_async(lambda: world.stored != FIRST.reveal(), "it is written")

    assert error.failure.failure_class is FailureClass.INTERNAL_ERROR
    assert "(RuntimeError)" in caplog.text
    assert is_renewed


async def test_the_number_of_renewal_states_kept_in_memory_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the binding that was idle longest is forgotten."""
    monkeypatch.setattr(jobs, "MAX_STATES", 2)
    for number in range(5):
        other = BindingName("oauth2", "mail", f"number-{number}")
        world.sign_in(other, ends_in_s=0)
        await world.renewals.ready(other, anyio.current_time() + 20)

    assert len(world.renewals.states) == 2


# The provider is not well


async def test_a_provider_that_is_down_is_asked_once_and_the_old_token_is_used(world: World) -> None:
    """A hundred requests before the expiry and a hundred after it cause one attempt; the later ones can be retried."""
    world.server.says(*[answer(b"", status="503 Service Unavailable")] * 1000)
    world.clock.now += 3600 - 30
    for _ in range(100):
        await world.ready()
    world.clock.now += 30
    errors = [await world.refusal() for _ in range(100)]

    assert len(world.server.asked) == 1
    assert world.access == FIRST.reveal()
    for error in errors:
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR
        assert error.failure.retriable
        assert "is not working at the moment; try again in a moment (next attempt in" in str(error)


async def test_a_provider_that_recovers_is_asked_again_after_the_pause(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """The pause is zero here; a 500, nonsense and a bad token lose nothing."""
    world = World(vault, server, endpoints, JobTiming(first_pause_s=0, fresh_s=0))
    world.sign_in(ends_in_s=0)
    server.says(answer(b"", status="500 Oops"), answer(b"<p>"), json_answer(tokens_answer(access_token="x")))
    async with served(world):
        codes = [(await world.refusal()).failure.details["code"] for _ in range(3)]
        await world.ready()

    assert codes == ["unavailable", "bad_answer", "bad_token"]
    assert world.stored == b"canary-access-token-1"


async def test_pauses_after_failed_renewals_grow_up_to_a_bound(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """Each pause is twice as long as the last; a success resets it."""
    world = World(vault, server, endpoints, JobTiming(first_pause_s=100, longest_pause_s=300, fresh_s=0))
    world.sign_in(ends_in_s=0)
    server.says(*[answer(b"", status="503 Busy")] * 4)
    pauses = []
    async with served(world):
        state = None
        for _ in range(4):
            await world.refusal()
            state = world.renewals.states[NAME]
            pauses.append(round((state.pause_until - anyio.current_time()) / 100))
            state.pause_until = 0.0
        await world.ready()
        assert state is not None

    assert pauses == [1, 2, 3, 3]
    assert state.failures == 0


async def test_a_service_that_refuses_every_token_causes_only_one_renewal_for_a_while(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """The 401 has another cause than an old token: after one renewal it is passed on for a while."""
    world = World(vault, server, endpoints, JobTiming())
    world.sign_in()
    async with served(world):
        first = await world.renew()
        later = [await world.renew(Secret(world.access)) for _ in range(20)]

    assert first
    assert later == [False] * 20
    assert len(server.asked) == 1


async def test_tokens_that_expire_at_once_are_not_renewed_endlessly(
    vault: Vault, server: TokenServer, endpoints: Endpoints
) -> None:
    """`expires_in` is zero: the token is used nevertheless, and the provider is asked now and then."""
    server.lifetime_s = 0
    world = World(vault, server, endpoints, JobTiming(least_s=600))
    world.sign_in(ends_in_s=0)
    async with served(world):
        for _ in range(20):
            await world.ready()

    assert len(server.asked) == 1
    assert world.stored == b"canary-access-token-1"


# The clock is wrong


async def test_a_clock_set_forward_by_a_day_costs_one_renewal(world: World) -> None:
    """The token seems expired, so it is renewed; the new one is dated by the same clock."""
    world.clock.now += DAY_S
    for _ in range(20):
        await world.ready()

    assert len(world.server.asked) == 1


async def test_after_the_clock_is_set_back_by_a_day_a_refused_token_is_still_renewed(world: World) -> None:
    """The token seems valid. The service refuses it, and the new token is dated by the clock as set."""
    world.clock.now -= DAY_S
    await world.ready()
    asked_before = len(world.server.asked)
    is_renewed = await world.renew()
    world.clock.now += 3600
    await world.ready()

    assert asked_before == 0
    assert is_renewed
    assert len(world.server.asked) == 2
    assert world.stored == b"canary-access-token-2"


# Revocation


async def test_both_tokens_are_revoked_at_the_provider_s_revocation_endpoint(world: World) -> None:
    """RFC 7009: the access token and the refresh token are sent to the revocation endpoint."""
    said = await world.renewals.revoke(world.vault.tokens(NAME))

    assert said == "revoked"
    assert [(asked.path, asked.form["token"], asked.form["token_type_hint"]) for asked in world.server.asked] == [
        ("/revoke", "canary-access-token-0", "access_token"),
        ("/revoke", "canary-refresh-token-0", "refresh_token"),
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (oauth_error("unsupported_token_type"), "failed: localhost:{port} does not revoke tokens of this kind"),
        (oauth_error("invalid_token"), "revoked"),
        (answer(b"canary", status="503 Busy"), "failed: localhost:{port} is not working at the moment"),
        (
            answer(b"", status="404 Not Found"),
            "failed: localhost:{port} sent an invalid answer",
        ),
    ],
)
async def test_a_failed_revocation_of_tokens_is_reported_in_aileron_s_own_words(
    said: bytes, expected: str, world: World
) -> None:
    """The result says what is left to the person; a token that the provider no longer knows counts as revoked."""
    world.server.says(world.server._good, said)

    assert await world.renewals.revoke(world.vault.tokens(NAME)) == expected.format(port=world.server.address.port)


async def test_a_provider_without_revocation_is_reported(world: World) -> None:
    """The report says that the tokens expire by themselves."""
    tokens = world.vault.tokens(NAME)
    client = msgspec.structs.replace(tokens.client, revocation_url=None)
    without = TokenSet(access=tokens.access, refresh=tokens.refresh, expires_at=None, scopes=(), client=client)

    assert await world.renewals.revoke(without) == "not offered"
    assert world.server.asked == []

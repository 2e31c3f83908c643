"""Shared parts of the egress engine's tests: a vault that lends, a journal that remembers, and a resolver that counts."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import pytest

from aileron.config import Settings
from aileron.egress import (
    Egress,
    EgressRequest,
    LentCredential,
    Meter,
    RequestDenial,
    RequestIntent,
    RequestReport,
)
from aileron.egress.journal import EffectsReport, MailIntent, MailReport
from aileron.egress.login import LoginDoor
from aileron.egress.scrub import Needles
from aileron.model.failure import AileronError, FailureClass
from aileron.model.fixes import Stored
from aileron.model.login import LoginDetails
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import Budget, CredentialUse, Grant
from aileron.model.secret import Secret
from tests.support.upstream import Authority, Upstream
from tests.support.waiting import give_turns, jump, wait_until_async

CANARY = b"canary-/7Gq+Zw\"<&'~tK9"
"""A secret with one character for every encoding to stumble on."""

HOST = "api.example.test"
_NO_NEEDLES = Needles(())


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The daemon runs on asyncio."""
    return "asyncio"


class CountingResolver:
    """A resolver that answers from a table and remembers the names. A name that is not in the table does not resolve."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {HOST: ["127.0.0.1"]}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self.table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.table[host]


class Vault:
    """A vault that lends one secret, counts the loans, can be locked, and renews as the test lets it."""

    def __init__(self) -> None:
        self.secret = CANARY
        self.username: str | None = None
        self.details: LoginDetails | None = None
        self.stored: Stored | None = None
        self.locked = False
        self.lent = 0
        self.out = 0
        self.bound: dict[HostPort, Needles] = {}
        """Needles of all that could have been sent to a host, by any caller; another host has only what its step was lent."""
        self.asked_ready = 0
        self.refused: list[bytes] = []
        self.on_ready: Callable[[], Awaitable[None]] | None = None
        self.on_refused: Callable[[bytes], Awaitable[bool]] | None = None

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return False for every token, so that the tests see each request that waits for one."""
        return use is None or use.need.kind not in ("oauth2", "oauth2_client")

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Count the call, and run what the test set as `on_ready`."""
        self.asked_ready += 1
        if self.on_ready is not None:
            await self.on_ready()

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Remember the refused secret. Nothing is renewed unless the test set `on_refused`."""
        self.refused.append(refused.reveal())
        return self.on_refused is not None and await self.on_refused(refused.reveal())

    def needles(self, destination: HostPort) -> Needles:
        """Return the needles of a host; raise AileronError(vault_locked) if the vault is locked and the host may have some."""
        if self.locked and self.may_be_bound(destination):
            raise AileronError(FailureClass.VAULT_LOCKED, "the vault is locked; run `aileron vault unlock`")
        return self.bound.get(destination, _NO_NEEDLES)

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return whether the host has needles; this is known while the vault is locked too."""
        return destination in self.bound

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        if self.locked:
            raise AileronError(FailureClass.VAULT_LOCKED, "the vault is locked; run `aileron vault unlock`")
        self.lent += 1
        self.out += 1
        try:
            yield LentCredential(use.need.kind, Secret(self.secret), self.username, self.details, stored=self.stored)
        finally:
            self.out -= 1


class Journal:
    """A journal that remembers every row, and runs the test's hooks while it writes one."""

    def __init__(self) -> None:
        self.rows: list[RequestIntent | RequestReport] = []
        self.denials: list[RequestDenial] = []
        self.mail: list[MailIntent | MailReport] = []
        self.told: list[EffectsReport] = []
        self.on_sending: Callable[[], None] | None = None
        self.on_mail: Callable[[], None] | None = None

    async def sending(self, intent: RequestIntent) -> None:
        await anyio.lowlevel.checkpoint()
        if self.on_sending is not None:
            self.on_sending()
        self.rows.append(intent)

    async def denied(self, denial: RequestDenial) -> None:
        await anyio.lowlevel.checkpoint()
        self.denials.append(denial)

    async def mail_sending(self, intent: MailIntent) -> None:
        await anyio.lowlevel.checkpoint()
        if self.on_mail is not None:
            self.on_mail()
        self.mail.append(intent)

    async def effects(self, report: EffectsReport) -> None:
        self.told.append(report)

    async def mail_sent(self, report: MailReport) -> None:
        await anyio.lowlevel.checkpoint()
        self.mail.append(report)

    async def finished(self, report: RequestReport) -> None:
        await anyio.lowlevel.checkpoint()
        self.rows.append(report)

    @property
    def last(self) -> RequestReport:
        """The newest row, which must be a report."""
        assert isinstance(self.rows[-1], RequestReport)
        return self.rows[-1]


@dataclasses.dataclass(frozen=True)
class Got:
    """A response that was read to its end."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    scrubbed: int

    def header(self, name: str) -> list[str]:
        """Return all values of a header field."""
        return [value for found, value in self.headers if found.lower() == name.lower()]


def need(kind: str = "api_key", **form: object) -> CredentialNeed:
    """Return a credential need as a manifest declares it."""
    return CredentialNeed(kind=kind, scope="test", **form)  # type: ignore[arg-type]


def use(kind: str = "api_key", **form: object) -> CredentialUse:
    """Return the use of such a credential, with its binding."""
    return CredentialUse(
        connector="github://a/b", binding=BindingName(kind, "example", "home"), need=need(kind, **form)
    )


class World:
    """An engine with everything around it, and short ways to send it requests."""

    def __init__(self, ca_pem: str | None, logins: LoginDoor | None = None) -> None:
        self.vault = Vault()
        self.resolver = CountingResolver()
        self.journal = Journal()
        self.egress = Egress(Settings(egress_ca_pem=ca_pem), self.vault, resolve=self.resolver, logins=logins)
        self.timeout_s = 20.0

    def grant(
        self,
        *hosts: HostPort,
        credential: CredentialUse | None = None,
        plain: bool = False,
        budget: Budget | None = None,
    ) -> Grant:
        """Return a grant for these hosts, all of which may be private (every upstream of a test is on loopback)."""
        return Grant(
            hosts=hosts,
            private=frozenset(hosts),
            plain=frozenset(hosts if plain else ()),
            credential=credential,
            budget=budget or Budget(),
        )

    def grant_for(self, upstream: Upstream, **options: object) -> Grant:
        """Return a grant for an upstream under the name that the resolver knows."""
        return self.grant(HostPort(HOST, upstream.port), **options)  # type: ignore[arg-type]

    def plain_grant(self, upstream: Upstream) -> Grant:
        """Return a grant for an upstream without TLS."""
        return self.grant_for(upstream, plain=True)

    async def ask(
        self,
        upstream: Upstream | None,
        path: str = "/",
        *,
        url: str | None = None,
        method: str = "GET",
        headers: tuple[tuple[str, str], ...] = (),
        credential: str | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        grant: Grant | None = None,
        meter: Meter | None = None,
    ) -> Got:
        """Send one request and read the whole response."""
        if grant is None:
            assert upstream is not None
            grant = self.grant_for(upstream)
        port = upstream.port if upstream else 443
        request = EgressRequest(method, url or f"https://{HOST}:{port}{path}", headers, credential, body)
        deadline = anyio.current_time() + self.timeout_s
        async with self.egress.open(request, grant, meter or Meter(grant.budget), self.journal, deadline) as response:
            pieces = [piece async for piece in response]
            assert all(0 < len(piece) <= 256 << 10 for piece in pieces)
            return Got(response.status, response.headers, b"".join(pieces), response.scrubbed)

    @staticmethod
    def request(url: str) -> EgressRequest:
        """Return a GET that names no credential."""
        return EgressRequest("GET", url)

    async def refusal(self, upstream: Upstream | None, path: str = "/", **options: object) -> AileronError:
        """Send one request that must fail, and return its failure."""
        with pytest.raises(AileronError) as caught:
            await self.ask(upstream, path, **options)  # type: ignore[arg-type]
        self._check_denial(caught.value)
        return caught.value

    def _check_denial(self, error: AileronError) -> None:
        """Check that a denial was recorded first, with the same reason, and that no other error was recorded as a denial."""
        denials, self.journal.denials = self.journal.denials, []
        if error.failure.failure_class is FailureClass.CAPABILITY_DENIED:
            (denial,) = denials
            assert denial.reason == error.failure.details["reason"]
        else:
            assert denials == []


@pytest.fixture
async def world(authority: Authority) -> AsyncIterator[World]:
    """Start an engine that trusts the test's authority."""
    world = World(authority.ca_pem)
    yield world
    await world.egress.aclose()
    assert world.vault.out == 0, "a loan was not given back"


@pytest.fixture
def tls_upstream(authority: Authority) -> Callable[..., Upstream]:
    """Make an upstream with a good certificate for HOST."""
    context = authority.server_context(HOST)
    return lambda script: Upstream(script, context)


@contextlib.asynccontextmanager
async def dripping(world: World, drops: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let the block's deadline pass in two parts, with drops before each: a timeout for silence would start again in between."""
    is_over = False

    async def pass_most_of_it() -> None:
        count = drops()
        await wait_until_async(lambda: drops() > count + 3, "it drips")
        await give_turns()
        jump(monkeypatch, 0.6 * world.timeout_s)

    async def pass_time() -> None:
        await pass_most_of_it()
        await pass_most_of_it()
        await wait_until_async(lambda: is_over, "the deadline is kept")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_time)
        yield
        is_over = True


def plain_url(upstream: Upstream, path: str = "/") -> str:
    """Return the upstream's URL without TLS."""
    return f"http://{HOST}:{upstream.port}{path}"


def reason_of(error: AileronError) -> str:
    """Return `details.reason` of a denial."""
    assert error.failure.failure_class is FailureClass.CAPABILITY_DENIED, error
    reason = error.failure.details["reason"]
    assert isinstance(reason, str)
    return reason

"""Measure the cost of egress for one request, against the same HTTP client used directly, both on kept TLS connections.

The upstream is a process of its own on loopback that answers at once, so that what is measured is ours.
- The engine (aileron/egress) alone: every check, a credential lent and injected, the answer scrubbed, a journal in memory. Goal:
  at most 1.5 times.
- The whole way of a connector's request, clocked inside the jail: SDK, frames, the daemon, the engine, and two rows of the
  ledger, the first of which is durable before the request leaves. Goal: at most 2.6 times.
- The same way of a request that is signed (AWS Signature Version 4, with a session token), against one without a credential, of
  the same connector to the same host. Goal: at most 1.3 times.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import httpcore2
import trustme

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest, LentCredential, Meter, RequestDenial, RequestIntent, RequestReport
from aileron.egress.journal import EffectsReport, MailIntent, MailReport
from aileron.egress.scrub import Needles
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import Budget, CredentialUse, Grant
from aileron.model.secret import Secret
from benchmarks import page
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from benchmarks.upstream import BODY, upstream
from tests.support.home import DaemonHome, daemon_home

ROUNDS = 60
TIMES = 20
"""Requests in one turn."""
DEADLINE_S = 30.0
SECRET = b"a-token-of-a-usual-length-0123456789"
_NEEDLES = Needles([SECRET])
ENGINE, JAILED, DIRECT = "through the engine", "from the jail", "httpcore2, direct"
SIGNED, UNSIGNED = "from the jail, signed", "from the jail, without a credential"
_CONNECTOR = "github://aileron-benchmarks/asker"
_SIGNER = "github://aileron-benchmarks/signer"
_SOURCE, _SIGNER_SOURCE = Path(__file__).parent / "connector", Path(__file__).parent / "signer"
_AWS_KEY = b"""{"Version": 1, "AccessKeyId": "ASIAEXAMPLEEXAMPLE", "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
"SessionToken": "%s"}""" % (b"IQoJb3JpZ2luX2VjEXAMPLE0123456789" * 20)
"""AWS credentials with a session token of several hundred characters, which is usual."""


def _action(name: str, connector: str, more: str = "") -> str:
    return f"""+++
name = "{name}"
version = "1.0.0"
[[requires.connectors]]
name = "{connector}"
version = "1.0.0"
hash = "sha256:bound-at-release"
capabilities = ["ask"]
[match]
intent = "measure"
[[execute]]
id = "step"
connector = "{connector}"
op = "ask"
[execute.inputs]
times = {TIMES}
{more}
+++

# A benchmark
"""


def main() -> None:
    """Measure and report."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        authority, certificate = _certificates(Path(directory))
        port = stack.enter_context(upstream(certificate))
        home = stack.enter_context(_home(port, authority))
        runner = stack.enter_context(asyncio.Runner())
        engine, direct = _Engine(port, authority), _Direct(port, authority)
        try:
            variants: dict[str, Variant] = {
                ENGINE: lambda: runner.run(_several(engine.ask)),
                DIRECT: lambda: runner.run(_several(direct.ask)),
                JAILED: lambda: _from_the_jail(home, "ask"),
            }
            of_signing: dict[str, Variant] = {
                SIGNED: lambda: _from_the_jail(home, "signed"),
                UNSIGNED: lambda: _from_the_jail(home, "unsigned"),
            }
            # Two calls: what ran just before is still in the caches, and the first three are compared with each other.
            taken = interleave(variants, ROUNDS, warm_ups=2)
            taken |= interleave(of_signing, ROUNDS, warm_ups=2)
        finally:
            runner.run(engine.close())
            runner.run(direct.close())
    asked = [
        Question("one upstream request: the engine", ENGINE, DIRECT, at_most(1.5)),
        Question("one upstream request: from the jail, on record", JAILED, DIRECT, at_most(2.6)),
        Question("one upstream request: signed for AWS, from the jail", SIGNED, UNSIGNED, at_most(1.3)),
    ]
    answer("egress.json", taken, asked)


def _certificates(directory: Path) -> tuple[Path, Path]:
    """Write a CA's certificate, and one for localhost with its key. Return both paths."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    return directory / "ca.pem", directory / "server.pem"


async def _several(ask: Callable[[], Awaitable[bytes]]) -> Measured:
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        body = await ask()
        taken.append(time.perf_counter() - began)
        assert body == BODY
    return Measured(taken)


class _Direct:
    """The client that the engine is built on, by itself: what a program without Aileron would use."""

    def __init__(self, port: int, authority: Path) -> None:
        self._url = f"https://localhost:{port}/"
        self._fields = [("Host", f"localhost:{port}"), ("Authorization", f"Bearer {SECRET.decode()}")]
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=ssl.create_default_context(cafile=str(authority)))

    async def ask(self) -> bytes:
        response = await self._pool.request("GET", self._url, headers=self._fields)
        assert response.status == 200
        return response.content

    async def close(self) -> None:
        await self._pool.aclose()


class _Engine:
    """The egress engine with a vault that lends one secret and a journal that keeps nothing."""

    def __init__(self, port: int, authority: Path) -> None:
        host, self._url = HostPort("localhost", port), f"https://localhost:{port}/"
        need = CredentialNeed(kind="api_key", scope="a benchmark")
        use = CredentialUse(connector=_CONNECTOR, binding=BindingName("api_key", "bench", "me"), need=need)
        budget = Budget(requests=1 << 20)
        self._grant = Grant(hosts=(host,), private=frozenset({host}), plain=frozenset(), credential=use, budget=budget)
        self._meter = Meter(budget)
        self._journal = _Forgetful()
        self._egress = Egress(Settings(egress_ca_pem=authority.read_text(encoding="ascii")), _Lender())

    async def ask(self) -> bytes:
        request = EgressRequest("GET", self._url, (), "api_key", None)
        deadline = anyio.current_time() + DEADLINE_S
        async with self._egress.open(request, self._grant, self._meter, self._journal, deadline) as response:
            assert response.status == 200
            return b"".join([piece async for piece in response])

    async def close(self) -> None:
        await self._egress.aclose()


class _Lender:
    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return True: the secret is always ready."""
        return True

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Return at once: the secret never expires."""

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Return False: this secret is never renewed."""
        return False

    def needles(self, destination: HostPort) -> Needles:
        """Return needles for the only secret."""
        return _NEEDLES

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return True: every destination may have a binding."""
        return True

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        yield LentCredential(use.need.kind, Secret(SECRET), None)


class _Forgetful:
    async def sending(self, intent: RequestIntent) -> None:
        """Ignore the request."""

    async def mail_sending(self, intent: MailIntent) -> None:
        """Ignore the mail."""

    async def effects(self, report: EffectsReport) -> None:
        """Ignore the effects."""

    async def mail_sent(self, report: MailReport) -> None:
        """Ignore the mail's report."""

    async def denied(self, denial: RequestDenial) -> None:
        """Ignore the denial."""

    async def finished(self, report: RequestReport) -> None:
        """Ignore the report."""


@contextlib.contextmanager
def _home(port: int, authority: Path) -> Iterator[DaemonHome]:
    """Yield a home whose daemon may reach the upstream, with the connectors and their credentials."""
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate = ["localhost:{port}"]\nca_file = "{authority}"\n')
        home.ask("GET", "/healthz")
        home.install(_SOURCE, f"localhost:{port}")
        home.unlock(SECRET)
        home.must("POST", "/v1/bindings", {"connector": _CONNECTOR, "name": "api_key/bench/me", "secret": "pw"})
        home.install(_SIGNER_SOURCE, f"localhost:{port}")
        home.must("PUT", "/v1/secrets/aws", {"value_base64": base64.b64encode(_AWS_KEY).decode()})
        home.must("POST", "/v1/bindings", {"connector": _SIGNER, "name": "aws_sigv4/bench/me", "secret": "aws"})
        for text in (
            _action("ask", _CONNECTOR),
            _action("signed", _SIGNER, "is_signed = true"),
            _action("unsigned", _SIGNER, "is_signed = false"),
        ):
            home.must("POST", "/v1/actions", {"text": text, "file": "a benchmark"})
        yield home


def _from_the_jail(home: DaemonHome, action: str) -> Measured:
    answered = home.run(action)
    assert answered.status == 200, answered.body
    return Measured(answered.body["result"])


if __name__ == "__main__":
    main()
    page.write()

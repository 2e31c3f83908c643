"""The bench, which runs a connector's operations one by one, each in a real jail of its own, and compares results with cases.

Runs in `aileron connector test`, in its main thread (a template dies with the thread that started it). The connector is
untrusted like any other: the executor's own code gives it what its manifest asks for.

    with Bench(artifact) as bench:
        reports = bench.run(cases)

A template is started once (100 ms); a case takes some milliseconds. A case is a single attempt, without retries.

Not here: the format of a case (cases.py), answers (stub.py), credentials (fake_credentials.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread
import msgspec

from aileron.config import Settings
from aileron.connector_tests.cases import Case
from aileron.connector_tests.fake_credentials import FAKE_SECRET, fake_credential
from aileron.connector_tests.stub import Stub
from aileron.egress.engine import Egress
from aileron.egress.inject import LentCredential, needles_for
from aileron.egress.journal import Unrecorded
from aileron.egress.meter import Meter
from aileron.egress.refusal import RefusedError
from aileron.egress.scrub import Needles
from aileron.egress.url import parse_url
from aileron.executor.broker import WayOut
from aileron.executor.conversation import Claims, HostConversation
from aileron.executor.execute import policy_of
from aileron.executor.jails import Jails
from aileron.executor.programs import runtime_of
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.manifest import ConnectorManifest, CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse, Grant, Step
from aileron.model.secret import Secret
from aileron.registry.artifact import Artifact, Trust, connector_of
from aileron.registry.connector_build import Application, build, made_up_logins, made_up_region
from aileron.registry.content import sealed
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.placeholders import UNBOUND_CLIENT
from aileron.registry.program import program_kind
from aileron.registry.tarball import MANIFEST
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["Attempt", "Bench", "LocalUpstream", "TrialReport", "artifact_of"]

_LOOPBACK: Final = ("localhost", "127.0.0.1")
_MAX_SHOWN: Final = 600
"""Maximum number of characters of an output in a message."""
_T = TypeVar("_T")


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one case. `problem` is None if the case went as expected. `log` has the lines that the connector logged."""

    case: str
    problem: str | None
    ms: float
    log: tuple[str, ...]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one run: an output, or the failure that the run's caller would see."""

    output: Any
    failure: Failure | None
    log: tuple[str, ...]


class LocalUpstream(msgspec.Struct, frozen=True):
    """A server on this machine that takes the place of the manifest's hosts."""

    address: HostPort
    is_plain: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL of the form `http://localhost:PORT` or `https://localhost:PORT`.

        Raises ValueError if the URL is not on loopback, because other services are reached only through the daemon.
        """
        try:
            url = parse_url(text)
        except RefusedError as error:
            raise ValueError(f"{text!r}: {error}") from None
        if url.host not in _LOOPBACK:
            raise ValueError(
                f"{text!r} is not on this machine ({' or '.join(_LOOPBACK)}); a service is asked by `aileron run`"
            )
        if url.target != "/":
            raise ValueError(f"{text!r} has a path; expected {url.scheme}://{url.authority}")
        return cls(url.destination, url.scheme == "http")


class Bench:
    """A connector, and the jails in which its operations run. Use it as a context manager, in the main thread."""

    def __init__(self, artifact: Artifact) -> None:
        """Prepare the jails. Raises AileronError(sandbox_unavailable) if this machine cannot run jails."""
        self._artifact = artifact
        self._kind = program_kind(artifact.connector)
        with _no_jail():
            self._jails = Jails(_runtime())
            self._jails.wait_until_ready()
        try:
            self._program = sealed(artifact.connector, self._kind, str(artifact.pin))
        except AileronError:
            self._jails.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._program)
        self._jails.close()

    def run(self, cases: Sequence[Case]) -> tuple[TrialReport, ...]:
        """Run each case in its own jail, in order. Raises AileronError if there is no jail; a failed case is only a report."""

        async def all_of_them() -> tuple[TrialReport, ...]:
            return tuple([await self._report(case) for case in cases])

        return self._served(all_of_them)

    def call(
        self, op: str, args: JSONObject, upstream: LocalUpstream | None, settings: Settings | None = None
    ) -> Attempt:
        """Run one operation and return its output or failure. Its requests go to `upstream`; if that is None, it cannot
        send any. Raises AileronError as `run` does.

        `settings` has the certificate authority that issued the upstream's certificate.
        """

        async def once() -> Attempt:
            if upstream is None:
                return await self._attempt(op, args, Stub((), None), self._artifact.manifest.hosts)
            egress = Egress(settings or Settings(), _TestLender(self._artifact.manifest.credential, upstream.address))
            try:
                return await self._attempt(op, args, egress, (upstream.address,), upstream)
            finally:
                await egress.aclose()

        return self._served(once)

    def _served(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def serve() -> _T:
            problem: AileronError | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._jails.serve)
                await anyio.lowlevel.checkpoint()  # a compiled program's template is started where jails are served
                try:
                    done = await work()
                except AileronError as error:  # raised below: a group of tasks would wrap it
                    problem = error
                tasks.cancel_scope.cancel()
            if problem is not None:
                raise problem
            return done

        return anyio.run(serve)

    async def _report(self, case: Case) -> TrialReport:
        hosts = self._artifact.manifest.hosts
        stub = Stub(case.exchanges, hosts[0] if hosts else None, case.streams, case.websockets)
        began = time.monotonic()
        done = await self._attempt(case.op, case.args, stub, hosts)
        problem = stub.problem or _mismatch(case, done) or stub.left_over
        return TrialReport(case=case.name, problem=problem, ms=(time.monotonic() - began) * 1000, log=done.log)

    async def _attempt(
        self,
        op: str,
        args: JSONObject,
        way_out: WayOut,
        hosts: tuple[HostPort, ...],
        upstream: LocalUpstream | None = None,
    ) -> Attempt:
        with _listening() as log:
            try:
                output = await self._try(op, args, way_out, hosts, upstream)
            except AileronError as error:
                if error.failure.failure_class is FailureClass.SANDBOX_UNAVAILABLE:
                    raise
                return Attempt(output=None, failure=error.failure, log=tuple(log))
        return Attempt(output=output, failure=None, log=tuple(log))

    async def _try(
        self,
        op: str,
        args: JSONObject,
        way_out: WayOut,
        hosts: tuple[HostPort, ...],
        upstream: LocalUpstream | None,
    ) -> Any:
        step = Step(
            id="test",
            connector=self._artifact.pin,
            op=op,
            args=args,
            idempotent=False,
            grant=_grant(self._artifact.manifest, hosts, upstream),
            limits=self._artifact.manifest.limits,
        )
        runtime = await runtime_of(step.connector, self._kind, self._program)
        deadline = anyio.current_time() + step.limits.timeout_s
        async with self._jails.open(self._program, policy_of(step, self._kind), runtime) as jailed:
            journal = _Nowhere()
            talk = HostConversation(jailed, way_out, step, Meter(step.grant.budget), Claims(), journal, "test")
            return await talk.run(deadline)


def artifact_of(directory: Path, hosts: Sequence[HostPort]) -> Artifact:
    """Build the connector in `directory` and return it in the form in which an install would accept it.

    The manifest's placeholders for a client, for logins and for a region get made-up values. The placeholder for hosts gets
    `hosts`, which are ignored if the manifest has its own. No login takes place here. Raises AileronError(invalid_request) if
    the sources cannot be built.
    """
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
        manifest = parse_connector_manifest(data, file=str(path), allow_unbound=True)
    except OSError as error:
        raise AileronError(
            FailureClass.INVALID_REQUEST, f"{path}: {error.strerror or error}", boundary=Boundary.USER
        ) from None
    provider, application = manifest.oauth2, None
    if provider is not None and provider.client_id == UNBOUND_CLIENT:
        secret = Secret(FAKE_SECRET.encode()) if provider.client_secret == UNBOUND_CLIENT else None
        application = Application(client_id=FAKE_SECRET, client_secret=secret)
    logins, region = made_up_logins(data), made_up_region(manifest)
    built = build(directory, () if manifest.hosts else hosts, application, logins=logins, region=region)
    return connector_of(built.archive, Trust(), file=str(directory))


class _Nowhere(Unrecorded):
    """A journal that records nothing, because a test run has no effects to record."""

    async def connector_event(self, event: str, fields: JSONObject) -> None:
        """Ignore the event, because the test sees the output of the operation."""

    def progressed(self, done: int | float, total: int | float | None, message: str | None) -> None:
        """Ignore the progress, because no client watches it."""


class _TestLender:
    """A lender that replaces the vault. It lends a made-up credential, so that injecting and scrubbing are real."""

    def __init__(self, need: CredentialNeed | None, upstream: HostPort) -> None:
        """Make a credential of the kind that `need` asks for, to be sent only to `upstream`. If `need` is None, make none."""
        self._lent: Final = None if need is None else fake_credential(need)
        self._needles: Final = needles_for([] if self._lent is None else [self._lent], upstream)

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return True, because the made-up credential never expires."""
        return True

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Return at once, because the made-up credential does not have to be fetched."""

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Return False, because there is no newer credential."""
        return False

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        """Lend the made-up credential, the same for each request."""
        assert self._lent is not None, "a step has the credential that its manifest asks for"
        yield self._lent

    def needles(self, destination: HostPort) -> Needles:
        """Return the needles of the made-up credential: the texts that are scrubbed from answers."""
        return self._needles

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return whether there is a made-up credential, which must then be scrubbed from answers."""
        return bool(self._needles)


def _grant(manifest: ConnectorManifest, hosts: tuple[HostPort, ...], upstream: LocalUpstream | None) -> Grant:
    """Return the grant that a run would get, except that the upstream replaces the declared hosts."""
    need = manifest.credential
    use = None
    if need is not None:
        use = CredentialUse(connector=str(manifest.name), binding=BindingName(need.kind, "test", "author"), need=need)
    here = frozenset() if upstream is None else frozenset({upstream.address})
    return Grant(
        hosts=hosts if manifest.hosts else (),
        plain=here if upstream is not None and upstream.is_plain else frozenset(),
        private=here,
        credential=use,
        reserved=manifest.token_endpoints,
        imports=manifest.imports,
    )


def _mismatch(case: Case, done: Attempt) -> str | None:
    """Return in words how the result of a run differs from what the case expects; None if it does not."""
    if done.failure is not None:
        return _wrong_failure(case, done.failure)
    if case.failure is not None:
        return f"it succeeded with {_shown(done.output)}; expected {case.failure.value}"
    is_same = _shown(done.output, None) == _shown(case.output, None)
    return None if is_same else f"its output is {_shown(done.output)}; expected {_shown(case.output)}"


def _wrong_failure(case: Case, failure: Failure) -> str | None:
    said = f"it failed with {failure.failure_class.value}: {failure.message}"
    if case.failure is not failure.failure_class:
        return said if case.failure is None else f"{said}; expected {case.failure.value}"
    is_so = all(key in failure.details and failure.details[key] == value for key, value in case.details.items())
    return None if is_so else f"its details are {_shown(failure.details)}; expected {_shown(case.details)}"


def _shown(value: Any, most: int | None = _MAX_SHOWN) -> str:
    """Return the value as JSON, in which 1, 1.0 and true differ. `most` is the maximum number of characters; None means no
    limit.
    """
    text = json.dumps(value, ensure_ascii=False, default=repr, sort_keys=True)
    return text if most is None or len(text) <= most else f"{text[:most]}…"


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect the connectors' log lines while the context is open."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage().partition(": ")[2])  # after the run and the name

    said, keep = logging.getLogger("aileron.connector"), Keep()
    before = said.level, said.propagate
    said.addHandler(keep)
    said.setLevel(logging.INFO)
    said.propagate = False
    try:
        yield lines
    finally:
        said.removeHandler(keep)
        said.setLevel(before[0])
        said.propagate = before[1]


@contextlib.contextmanager
def _no_jail() -> Iterator[None]:
    try:
        yield
    except JailUnavailable as error:
        raise AileronError(
            FailureClass.SANDBOX_UNAVAILABLE,
            f"cannot start a jail: {error}; run `aileron doctor`",
            boundary=Boundary.SANDBOX,
        ) from error


def _runtime() -> PythonRuntime:
    """Return a runtime like the daemon's that preloads fewer modules, because more would not pay off for a few jails."""
    sandbox = _folder("aileron_sandbox")
    packages = {
        "msgspec": _folder("msgspec"),
        "aileron_connector": _folder("aileron_connector"),
        "aileron_sandbox/__init__.py": sandbox / "__init__.py",
        "aileron_sandbox/frames": sandbox / "frames",
    }
    return PythonRuntime.of_this_interpreter(packages=packages, preload=("aileron_connector", "msgspec"))


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed beside aileron: install aileron again"
        )
    return Path(spec.origin).resolve().parent

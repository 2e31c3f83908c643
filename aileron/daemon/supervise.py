"""Builds everything, once, in the order of its dependencies, and serves until told to stop.

The only module that knows every room of the house. It runs as one process per user and home, holds the vault's key while
unlocked, and is not dumpable: another process of the user cannot attach and read it (prctl(2), PR_SET_DUMPABLE).

Order: lock → log → ledger → recovery (what ran when the last daemon ended is `unknown`) → stores → template → sockets →
`ready`. Stop: no new connections, five seconds for answers under way, runs cut short become `unknown`, jails killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import logging.handlers
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from starlette.types import ASGIApp

import aileron_sandbox
from aileron import __version__
from aileron.actions.agreed import AgreedTexts
from aileron.actions.store import ActionStore
from aileron.approvals.gate import Gate
from aileron.audit.log import Audit
from aileron.config import Home, Settings, keep_port, load_settings
from aileron.daemon.decisions.after_unlock import AfterUnlock
from aileron.daemon.decisions.agreements import AgreedSettings, Agreements
from aileron.daemon.decisions.approval_queue import ApprovalQueue
from aileron.daemon.decisions.approver import ApproverState
from aileron.daemon.decisions.consents import ConsentService
from aileron.daemon.decisions.enrollment import ApproverEnrollment
from aileron.daemon.decisions.expiry import close_on_time
from aileron.daemon.decisions.passkeys import Passkeys
from aileron.daemon.decisions.previews import PreviewRegistry
from aileron.daemon.decisions.service import DecisionService
from aileron.daemon.decisions.settings import SettingsInForce, stamp_of
from aileron.daemon.decisions.standing_grants import GrantService
from aileron.daemon.http.agents import AgentService, StatusWaiter
from aileron.daemon.http.api.actions import ActionRoutes
from aileron.daemon.http.api.approvals import ApprovalRoutes
from aileron.daemon.http.api.approver import ApproverRoutes
from aileron.daemon.http.api.bindings import BindingRoutes
from aileron.daemon.http.api.connectors import ConnectorRoutes
from aileron.daemon.http.api.daemon import DaemonRoutes
from aileron.daemon.http.api.grants import GrantRoutes
from aileron.daemon.http.api.publishers import PublisherRoutes
from aileron.daemon.http.api.routes import Api, Handlers
from aileron.daemon.http.api.sessions import SessionRoutes
from aileron.daemon.http.api.vault import VaultRoutes
from aileron.daemon.http.ingress import Ingress, TcpService
from aileron.daemon.http.listeners import OnlyHere, Served, WithToken, listen_on, listen_on_loopback, loopback_names
from aileron.daemon.http.mcp import AgentProtocol, action_files
from aileron.daemon.http.page import PageService
from aileron.daemon.http.pages import pages, review_base
from aileron.daemon.http.sessions import Sessions
from aileron.daemon.http.status import DaemonStatus
from aileron.daemon.notify.notifier import Notifier
from aileron.daemon.packages.actions import ActionService
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.packages.fetch import FetchJobs
from aileron.daemon.packages.forge_web import ForgeWeb
from aileron.daemon.packages.hub import HubSearch
from aileron.daemon.packages.install import Installer
from aileron.daemon.packages.keyring import Forges, PublisherKeys
from aileron.daemon.packages.updates import Updates
from aileron.daemon.rendezvous import AlreadyRunning, hold, listen
from aileron.daemon.runner import Runner
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.gateway_keys import GatewayKeys
from aileron.daemon.secrets.lending import Lending, RenewalsOnRecord
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.daemon.secrets.signins import SignIns
from aileron.daemon.secrets.vault import VaultService
from aileron.egress.engine import Egress
from aileron.executor.execute import Executor
from aileron.executor.jails import Jails
from aileron.gateway.proxy import gateway_app
from aileron.gateway.upstreams import PATHS
from aileron.ingress.known import KnownCallers
from aileron.ingress.server import certificate_names, serve, tls_context
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.renew import Renewals
from aileron.registry.content import ContentStore
from aileron.registry.staging import PublishedTexts, Staging
from aileron.runs.perform import Spine
from aileron.runs.progress import Board
from aileron.vault.vault import Vault
from aileron.web.app import Page
from aileron.web.sessions import Sessions as PageSessions
from aileron.web.workers import NoWorkers
from aileron_sandbox import kernel
from aileron_sandbox.ending import JailUnavailable
from aileron_sandbox.runtime import PythonRuntime

__all__ = ["supervise"]

_DESCRIPTORS: Final = 16384
"""64 runs have a dozen each; the rest is for callers that wait. A jail has a limit of its own."""
_LOG_BYTES, _LOG_FILES = 5 << 20, 3
_REPEAT_S: Final = 10.0
_PRELOAD: Final = (
    "aileron_connector",
    "msgspec",
    "base64",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "re",
    "string",
    "textwrap",
    "typing",
    "urllib.parse",
    "xml.etree.ElementTree",
    "zipimport",
)
"""What connectors commonly import: done once in the template instead of in every jail. Never `random`: its state would be
the same in all of them."""
_log = logging.getLogger(__name__)


def supervise(home: Home, tell: Callable[[str], None]) -> int:
    """Be the daemon of `home` until stopped. `tell` is called once: `ready`, or why not. The exit status."""
    told = False

    def tell_once(word: str) -> None:
        nonlocal told
        if not told:
            told = True
            tell(word)

    try:
        with hold(home, {"version": __version__, "started_at": time.time()}):
            _harden()
            _log_to(home.logs / "daemon.log")
            read = stamp_of(home.config)  # before it is read: what changes meanwhile is looked at again
            anyio.run(_Daemon(home, load_settings(home.config), read).run, tell_once)
    except AlreadyRunning:
        tell_once("ready")  # somebody else was faster; whoever asked can go on
    except (AileronError, JailUnavailable, OSError) as error:
        _log.error("stopped: %s", error)
        tell_once(str(error))
        return 1
    except BaseException:
        _log.exception("stopped by a bug")
        tell_once(f"the daemon failed to start; see {home.logs / 'daemon.log'}")
        raise
    return 0


class _Daemon:
    """Everything, built. One use."""

    def __init__(self, home: Home, wanted: Settings, read: tuple[int, int, int] | None) -> None:
        self._home = home
        self._read = read
        self._vault = Vault(home.vault)
        self._port, self._loopback = listen_on_loopback(wanted.daemon_port)
        if wanted.daemon_port is None:
            keep_port(home.config, self._port)
        self._wanted = dataclasses.replace(wanted, daemon_port=self._port)
        self._settings = _in_force(home, self._wanted, self._vault)
        self._elsewhere = _elsewhere(self._settings)
        # Before the event loop and in the main thread: the template must not outlive or predecease it (jails.py).
        self._jails = Jails(_runtime(), self._settings.sandbox_mode)
        self._stopping: anyio.Event | None = None
        self._bound = 0

    async def run(self, tell: Callable[[str], None]) -> None:
        self._stopping = anyio.Event()
        try:
            with Ledger.open(self._home.ledger, self._home.path, __version__) as ledger:
                await self._serve(ledger, tell)
        finally:
            self._jails.close()

    async def _serve(self, ledger: Ledger, tell: Callable[[str], None]) -> None:
        audit = Audit(ledger)
        await audit.recover()
        await audit.daemon_started(__version__, self._jails.layers)
        known = KnownCallers()
        sessions = Sessions(audit, ledger, known)
        await sessions.load()
        vault = self._vault
        approver = ApproverState(vault, on_record=await audit.has_approver())
        connectors = ContentStore(self._home.connectors)
        actions = ActionStore(self._home.actions, self._home.action_state)
        texts = AgreedTexts(self._home.agreed)
        staging, published = Staging(self._home.fetched), PublishedTexts(self._home.published)
        installing = Installer(
            self._home,
            actions=actions,
            connectors=connectors,
            published=published,
            audit=audit,
            mode=self._settings.sandbox_mode,
        )
        await installing.recover()
        agreements = Agreements(approver, texts, connectors.manifest, in_force=self._settings, wanted=self._wanted)
        in_force = SettingsInForce(
            self._home.config, approver, agreements, in_force=self._settings, wanted=self._wanted, read=self._read
        )
        lending = Lending(vault)
        lending.adopt(self._settings)
        egress = Egress(self._settings, lending, own_port=self._port)
        endpoints = Endpoints(egress, self._settings)
        renewals = Renewals(vault, endpoints, RenewalsOnRecord(audit))
        lending.renewals = renewals
        changing = anyio.Lock()
        vaults = VaultService(
            vault,
            ledger=ledger,
            audit=audit,
            approver=approver,
            changing=changing,
            lock_after_s=self._settings.vault_lock_after_s,
        )
        notifier = Notifier(self._settings, egress, vault)

        def asked(approval_id: str, name: str, kind: str) -> None:
            with contextlib.suppress(AileronError):  # where nobody agreed to it, nothing is sent to where settings say
                agreements.check_settings()
                notifier.asked(approval_id, name, kind)

        consents = ConsentService(
            self._home,
            approver,
            actions=actions,
            agreements=agreements,
            connectors=connectors,
            installing=installing,
            staging=staging,
            vault=vault,
            audit=audit,
            texts=texts,
            review=review_base(self._port),
            asked=asked,
            settings_agreed=in_force.agreed,
            bound=self._note_bound,
        )
        credentials = Credentials(
            vault=vault,
            connectors=connectors,
            actions=actions,
            ledger=ledger,
            audit=audit,
            consents=consents,
            revoker=renewals,
            changing=changing,
            changed=self._note_bound,
        )
        sign_ins = SignIns(
            endpoints,
            credentials=credentials,
            consents=consents,
            vault=vault,
            audit=audit,
            changing=changing,
            is_signed=lambda: approver.consents() is not None,
        )
        forge_web = ForgeWeb(egress, self._settings)
        forges = Forges(forge_web, self._settings, vault)
        trusting = PublisherKeys(forges=forges, consents=consents, changing=changing)
        fetching = FetchJobs(
            forges=forges,
            actions=actions,
            connectors=connectors,
            staging=staging,
            published=published,
            agreements=agreements,
            consents=consents,
            installing=installing,
            ledger=ledger,
            audit=audit,
            changing=changing,
        )
        upkeep = Updates(
            forges=forges, actions=actions, connectors=connectors, ledger=ledger, audit=audit, changing=changing
        )
        hubs = HubSearch(forges=forges, keyring=consents.keyring)
        passkeys = Passkeys(
            approver,
            audit=audit,
            vault=vault,
            consents=consents,
            origin=review_base(self._port),
            changing=changing,
        )
        board = Board()
        spine = Spine(
            actions=actions,
            agreements=agreements,
            ask=consents.ask_for_file,
            asked=asked,
            connectors=connectors,
            bindings=vault,
            settings=self._settings,
            gate=Gate(audit, approver),
            ledger=ledger,
            audit=audit,
            executor=Executor(self._jails, egress, connectors),
            look=in_force.look,
            board=board,
        )
        readings = PreviewRegistry(spine)
        async with anyio.create_task_group() as background:
            background.start_soon(self._jails.serve)
            background.start_soon(close_on_time, ledger, audit, spine)
            background.start_soon(notifier.serve)
            background.start_soon(sessions.end_on_time)
            background.start_soon(renewals.serve)
            background.start_soon(sign_ins.serve)
            background.start_soon(fetching.serve)
            background.start_soon(vaults.serve)
            background.start_soon(self._stop_on_signal)
            async with anyio.create_task_group() as runs:
                runner = Runner(spine, runs, audit.watch)
                queue = ApprovalQueue(
                    approver,
                    audit=audit,
                    ledger=ledger,
                    consents=consents,
                    connectors=connectors,
                    take_back=vaults.take_back,
                    changing=changing,
                )
                decisions = DecisionService(
                    approver,
                    audit=audit,
                    readings=readings,
                    consents=consents,
                    begin=runner.begin,
                    changing=changing,
                )
                enrollment = ApproverEnrollment(
                    self._home,
                    approver,
                    actions=actions,
                    connectors=connectors,
                    vault=vault,
                    audit=audit,
                    texts=texts,
                    agreements=agreements,
                    changing=changing,
                )
                after_unlock = AfterUnlock(
                    enrollment=enrollment,
                    passkeys=passkeys,
                    consents=consents,
                    decisions=decisions,
                    begin_approved=runner.begin_approved,
                    changing=changing,
                )
                grants = GrantService(
                    approver,
                    actions=actions,
                    connectors=connectors,
                    vault=vault,
                    agreements=agreements,
                    consents=consents,
                    audit=audit,
                    changing=changing,
                )
                action_service = ActionService(
                    actions=actions,
                    connectors=connectors,
                    vault=vault,
                    agreements=agreements,
                    consents=consents,
                    installing=installing,
                    audit=audit,
                    settings=self._settings,
                    changing=changing,
                )
                connector_service = ConnectorService(
                    connectors=connectors, consents=consents, installing=installing, audit=audit, changing=changing
                )
                secret_store = SecretStore(
                    vault,
                    approver=approver,
                    agreements=agreements,
                    consents=consents,
                    audit=audit,
                    changing=changing,
                )
                status = DaemonStatus(
                    self._home,
                    actions=actions,
                    connectors=connectors,
                    ledger=ledger,
                    vaults=vaults,
                    approver=approver,
                    agreements=agreements,
                    in_force=in_force,
                    settings=self._settings,
                    layers=self._jails.layers,
                    web=review_base(self._port),
                )

                async def ask_about_settings() -> None:
                    async with changing:
                        await consents.ask_about_settings()

                desk = PageService(
                    self._home,
                    approver=approver,
                    audit=audit,
                    ledger=ledger,
                    queue=queue,
                    decisions=decisions,
                    readings=readings,
                    sessions=sessions,
                )
                unlocked = PageSessions(desk, known)
                background.start_soon(unlocked.serve)
                following = StatusWaiter(runner, audit.watch, board, ledger)
                review = review_base(self._port)
                door = AgentService(
                    actions=actions,
                    runner=runner,
                    queue=queue,
                    grants=grants,
                    following=following,
                    sessions=sessions,
                    review=review,
                    connectors=connectors,
                    vault=vault,
                )
                protocol = AgentProtocol(door, sessions, __version__, self._what_agents_see(), self._home.mcp_answers)
                at = [*self._loopback, *([] if self._elsewhere is None else [self._elsewhere[0]])]
                gateway = gateway_app(
                    self._settings,
                    GatewayKeys(vault, sessions, agreements),
                    [listener.getsockname()[:2] for listener in at],
                )
                users = (lending, spine, action_service, status, endpoints, forge_web, forges, vaults, gateway)
                in_force.tell(ask_about_settings, [user.adopt for user in users])
                background.start_soon(in_force.serve)
                async with anyio.create_task_group() as servers:
                    servers.start_soon(self._until_stop, protocol.serve, listen(self._home.mcp_socket))

                    api = Api(
                        Handlers(
                            actions=ActionRoutes(
                                actions=action_service, runner=runner, following=following, review=review
                            ),
                            approvals=ApprovalRoutes(
                                queue=queue, decisions=decisions, passkeys=passkeys, following=following
                            ),
                            approver=ApproverRoutes(approver=approver, enrollment=enrollment, passkeys=passkeys),
                            grants=GrantRoutes(grants),
                            connectors=ConnectorRoutes(connectors=connector_service, upkeep=upkeep, fetching=fetching),
                            publishers=PublisherRoutes(trusting, hubs),
                            bindings=BindingRoutes(credentials, sign_ins),
                            vault=VaultRoutes(vaults=vaults, secrets=secret_store, after_unlock=after_unlock),
                            sessions=SessionRoutes(sessions),
                            daemon=DaemonRoutes(home=self._home, ledger=ledger, facts=status, end=self._stop),
                        ),
                        sessions,
                        audit,
                    )

                    def served(shown: ASGIApp | None) -> ASGIApp:
                        return Served(
                            pages=shown,
                            agents=api.app(Scope.AGENT, needs_token=True),
                            mcp=WithToken(protocol.http, sessions),
                            gateway=gateway,
                        )

                    # Listening before "ready": a client that connects in between waits in the backlog.
                    for scope, path in (
                        (Scope.AGENT, self._home.agent_socket),
                        (Scope.OPERATOR, self._home.operator_socket),
                    ):
                        servers.start_soon(serve, api.app(scope), [listen(path)], self._wait_stop)
                    names = loopback_names(self._port)
                    page = served(pages(Page(desk, unlocked, self._port, passkeys)))
                    here = NoWorkers(OnlyHere(page, names, [f"http://{name}" for name in names]))
                    doors = {"loopback": TcpService(self._loopback, here)}
                    if self._elsewhere is not None:
                        listener, names = self._elsewhere
                        doors["listen"] = TcpService([listener], OnlyHere(served(None), names, []), tls=True)
                    key = self._settings.daemon_certificate_key
                    ingress = Ingress(
                        doors, known, PATHS, self._settings.daemon_certificate_pem, None if key is None else str(key)
                    )
                    servers.start_soon(ingress.serve, self._wait_stop)
                    _log.info(
                        "ready: version %s, pid %s, layers %s", __version__, os.getpid(), " ".join(self._jails.layers)
                    )
                    tell("ready")
                runs.cancel_scope.cancel()  # what still runs is recorded as unknown by the spine
            background.cancel_scope.cancel()
        await gateway.aclose()
        await egress.aclose()
        vault.lock()
        await vaults.note_change()
        await audit.daemon_stopped(__version__)
        _log.info("stopped")

    async def _until_stop(
        self, work: Callable[[socket.socket], Coroutine[Any, Any, None]], listener: socket.socket
    ) -> None:
        """Connections that last as long as an agent does are ended first."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, listener)
            await self._wait_stop()
            tasks.cancel_scope.cancel()

    def _note_bound(self) -> None:
        """Some credential is another than before."""
        self._bound += 1

    def _what_agents_see(self) -> Callable[[], object]:
        """What is other whenever the tools may be."""
        files = action_files(self._home.actions, self._home.action_state)
        return lambda: (files(), self._bound)

    def _stop(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    async def _wait_stop(self) -> None:
        if self._stopping is not None:
            await self._stopping.wait()

    async def _stop_on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                _log.info("told to stop by %s", signal.Signals(number).name)
                self._stop()


def _in_force(home: Home, wanted: Settings, vault: Vault) -> Settings:
    """The settings to run with: those of config.toml, but where a person decides about some, these as they agreed to them last.

    Before the vault is open nobody can tell whether the copy of what was agreed to is theirs: that is looked at whenever
    something is about to run (decisions/agreements.py).
    """
    try:
        is_decided = vault.says_consents or home.agreed.exists()
    except AileronError:  # a damaged vault: it says so to whoever opens it, and nothing runs until then
        is_decided = True
    agreed = AgreedSettings(home.agreed).maybe_read() if is_decided else None
    return wanted if agreed is None else wanted.with_consented(agreed.consented())


def _elsewhere(settings: Settings) -> tuple[socket.socket, list[str]] | None:
    """What `daemon.listen` asks for: a listening socket, and the names it is asked for by. What it shows is read by ingress;
    that it can be shown is found out here, before anything is served.
    """
    address, pem, key = settings.daemon_listen, settings.daemon_certificate_pem, settings.daemon_certificate_key
    if address is None or pem is None or key is None:
        return None
    tls_context(pem, key)
    names = [str(address), *(f"{name}:{address.port}" for name in certificate_names(pem))]
    return listen_on(address), names


def _runtime() -> PythonRuntime:
    sandbox = Path(aileron_sandbox.__file__).resolve().parent
    return PythonRuntime.of_this_interpreter(
        packages={
            "msgspec": Path(msgspec.__file__).resolve().parent,
            "aileron_connector": _folder("aileron_connector"),
            "aileron_sandbox/__init__.py": sandbox / "__init__.py",
            "aileron_sandbox/frames": sandbox / "frames",
        },
        preload=_PRELOAD,
    )


def _folder(package: str) -> Path:
    """Where a package lies, without importing it: what is made for jails has no business in the daemon."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed beside aileron: install aileron again"
        )
    return Path(spec.origin).resolve().parent


def _harden() -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    os.umask(0o077)


class _Seldom(logging.Filter):
    """That no connection can be accepted is said once in ten seconds.

    Without a free descriptor asyncio stops accepting for a second, and says so a hundred times each second: all else that
    the log's few files hold would be gone within minutes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is written."""
        if "out of system resource" not in str(record.msg):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _REPEAT_S
        return True


def _log_to(path: Path) -> None:
    """The daemon's log, and standard error with it: the template's last words come that way."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_Seldom())
    if not sys.stderr.isatty() and handler.stream is not None:
        os.dup2(handler.stream.fileno(), 2)

"""Builds every room, once, in the order of what it needs, and serves until told to stop.

The only module that knows every room of the house. It runs as one process per user and home, holds the vault's key while
unlocked, and is not dumpable: another process of the user cannot attach and read it (prctl(2), PR_SET_DUMPABLE).

Order: lock → log → ledger → recovery (what ran when the last daemon ended is `unknown`) → stores → template → sockets →
`ready`. Stop: no new connections, five seconds for answers under way, runs cut short become `unknown`, jails killed.
"""

from __future__ import annotations

import dataclasses
import functools
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

import aileron_sandbox
from aileron import __version__, files
from aileron.actions.agreed import AgreedTexts
from aileron.actions.store import ActionStore
from aileron.approvals.gate import Gate
from aileron.audit import query
from aileron.audit.log import Audit
from aileron.config import Settings, keep_port, load_settings
from aileron.daemon.decisions.agreements import AgreedSettings
from aileron.daemon.decisions.build import BuiltConsents, build_consents, build_decisions
from aileron.daemon.decisions.expiry import close_on_time
from aileron.daemon.decisions.host_questions import HostQuestions
from aileron.daemon.foundation import Foundation
from aileron.daemon.http.build import Http, build_http, build_tunnels
from aileron.daemon.http.ingress import Ingress, TcpService
from aileron.daemon.http.listeners import listen_on, listen_on_loopback
from aileron.daemon.http.mcp import action_files
from aileron.daemon.http.pages import review_base
from aileron.daemon.http.sessions import Sessions
from aileron.daemon.http.tunnels import Tunnels
from aileron.daemon.installed.install import Installer
from aileron.daemon.notify.notifier import Notifier
from aileron.daemon.packages.build import build_packages
from aileron.daemon.rendezvous import AlreadyRunning, hold, listen
from aileron.daemon.runner import Runner
from aileron.daemon.secrets.build import Outgoing, build_outgoing, build_secrets
from aileron.daemon.secrets.logins import start_early
from aileron.executor.execute import Executor
from aileron.executor.jails import Jails
from aileron.executor.spares import Spares
from aileron.gateway.upstreams import PATHS
from aileron.home import Home
from aileron.ingress.known import KnownCallers
from aileron.ingress.server import certificate_names, serve, tls_context
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.registry.content import ContentStore
from aileron.registry.staging import PublishedTexts, Staging
from aileron.review.listed import listed
from aileron.runs.journal import SparesJournal
from aileron.runs.progress import Board
from aileron.runs.runnable import Runnable
from aileron.runs.spine import Spine
from aileron.vault.vault import Vault
from aileron_sandbox import kernel
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["supervise"]

_DESCRIPTORS: Final = 16384
"""64 runs have a dozen each; the rest is for callers that wait. A jail has a limit of its own."""
_LOG_BYTES, _LOG_FILES = 5 << 20, 3
_REPEAT_S: Final = 10.0
_PRELOAD: Final = (
    "aileron_connector",
    "aileron_connector.rehearsal",
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
_REHEARSAL: Final = "from aileron_connector.rehearsal import rehearse\nrehearse()\n"
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
            kernel.keep_freed_memory()
            _log_to(home.logs / "daemon.log")
            read = files.stamp(
                home.config, follow_symlinks=True
            )  # before it is read: what changes meanwhile is looked at again
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

    def __init__(self, home: Home, wanted: Settings, read: files.Stamp | None) -> None:
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
        self._mcp = self._settings.mcp
        self._bound = 0
        self._adopted = 0

    async def run(self, tell: Callable[[str], None]) -> None:
        self._stopping = stopping = anyio.Event()
        try:
            with Ledger.open(self._home.ledger, self._home.path, __version__) as ledger:
                await self._serve(ledger, stopping, tell)
        finally:
            self._jails.close()

    async def _serve(self, ledger: Ledger, stopping: anyio.Event, tell: Callable[[str], None]) -> None:
        """Each room in the order of what it needs, then what runs beside them, then whoever asks."""
        base = self._foundation(ledger)
        await base.audit.recover()
        await base.audit.daemon_started(__version__, base.layers)
        known, board, runs = KnownCallers(), Board(), anyio.create_task_group()
        sessions = Sessions(base.audit, ledger, known)
        sessions.adopt(base.settings)
        await sessions.load()
        installing = Installer(
            base.home,
            actions=base.actions,
            connectors=base.connectors,
            published=base.published,
            audit=base.audit,
            mode=base.settings.sandbox_mode,
        )
        await installing.recover()
        outgoing = build_outgoing(base)
        notifier = Notifier(
            base.settings,
            outgoing.egress,
            base.vault,
            queue=lambda approval_id: query.waiting_approval(ledger, approval_id, listed),
            page=base.review,
        )
        consenting = await build_consents(base, installing, notify=notifier.asked, read=self._read, cell=sessions.cell)
        secrets = build_secrets(base, outgoing, consenting)
        packages = build_packages(base, outgoing.egress, installing, consenting)
        spares = Spares(self._jails, base.connectors, SparesJournal(base.audit), self._what_spares_depend_on)
        spine = self._spine(base, outgoing, consenting, board, spares)
        runner = Runner(spine, runs, base.audit.watch)
        decisions = build_decisions(
            base,
            consenting,
            spine=spine,
            begin=runner.begin,
            begin_approved=runner.begin_approved,
            take_back=secrets.vaults.take_back,
        )
        http = build_http(
            base,
            consenting,
            secrets,
            packages,
            decisions,
            runner=runner,
            board=board,
            sessions=sessions,
            known=known,
            listening=[*self._loopback, *([] if self._elsewhere is None else [self._elsewhere[0]])],
            signature=self._what_agents_see(),
            stopping=stopping,
        )
        hosts = HostQuestions(consenting.hosts, consenting.consents, base.audit)
        await hosts.load()
        sessions.tell_ended(hosts.ended)
        tunnels = build_tunnels(base, outgoing.egress, sessions, hosts)
        users = (
            outgoing.lending,
            spine,
            packages.actions,
            http.status,
            http.agents,
            sessions,
            outgoing.endpoints,
            outgoing.elsewhere.fetcher.stores,
            packages.forge_web,
            packages.forges,
            secrets.vaults,
            http.gateway,
            tunnels,
        )
        consenting.in_force.tell(*(user.adopt for user in users), self._note_adopted)
        tasks = (
            self._jails.serve,
            lambda: close_on_time(ledger, base.audit, spine),
            notifier.serve,
            sessions.end_on_time,
            outgoing.renewals.serve,
            outgoing.minting.serve,
            secrets.sign_ins.serve,
            packages.fetches.serve,
            secrets.vaults.serve,
            lambda: start_early(base.connectors, outgoing.logins),
            self._stop_on_signal,
            http.page_sessions.serve,
            consenting.in_force.serve,
        )
        async with anyio.create_task_group() as background:
            for task in tasks:
                background.start_soon(task)
            async with runs:
                runs.start_soon(spares.serve)
                await self._answer(http, tunnels, known, tell)
                runs.cancel_scope.cancel()  # what still runs is recorded as unknown by the spine
            background.cancel_scope.cancel()
        await http.gateway.aclose()
        await outgoing.egress.aclose()
        await outgoing.logins.aclose()
        base.vault.lock()
        await secrets.vaults.note_change()
        await base.audit.daemon_stopped(__version__)
        _log.info("stopped")

    def _foundation(self, ledger: Ledger) -> Foundation:
        home = self._home
        return Foundation(
            home=home,
            settings=self._settings,
            wanted=self._wanted,
            port=self._port,
            review=review_base(self._port),
            layers=self._jails.layers,
            ledger=ledger,
            audit=Audit(ledger),
            vault=self._vault,
            actions=ActionStore(home.actions, home.action_state),
            connectors=ContentStore(home.connectors),
            texts=AgreedTexts(home.agreed),
            staging=Staging(home.fetched),
            published=PublishedTexts(home.published),
            note_bound=self._note_bound,
            changing=anyio.Lock(),
        )

    def _spine(
        self, base: Foundation, outgoing: Outgoing, consenting: BuiltConsents, board: Board, spares: Spares
    ) -> Spine:
        runnable = Runnable(
            actions=base.actions,
            agreements=consenting.agreements,
            connectors=base.connectors,
            bindings=base.vault,
            tools=consenting.tools,
            settings=base.settings,
        )
        return Spine(
            runnable,
            ask=consenting.consents.ask_for_file,
            asked=consenting.asked,
            gate=Gate(base.audit, consenting.approver),
            ledger=base.ledger,
            audit=base.audit,
            executor=Executor(self._jails, outgoing.egress, base.connectors, spares),
            look=consenting.in_force.look,
            tool_changed=consenting.tool_changes.found,
            board=board,
        )

    async def _answer(self, http: Http, tunnels: Tunnels, known: KnownCallers, tell: Callable[[str], None]) -> None:
        """Serve on every socket until told to stop."""
        async with anyio.create_task_group() as servers:
            servers.start_soon(self._until_stop, http.protocol.serve, listen(self._home.mcp_socket))
            servers.start_soon(self._until_stop, tunnels.serve, listen(self._home.tunnel_socket))
            # Listening before "ready": a client that connects in between waits in the backlog.
            for scope, path in ((Scope.AGENT, self._home.agent_socket), (Scope.OPERATOR, self._home.operator_socket)):
                servers.start_soon(serve, http.api.app(scope), [listen(path)], self._wait_stop)
            cells = [listen(self._home.cell_socket)]
            servers.start_soon(functools.partial(serve, http.cells, cells, self._wait_stop, tells_peers=True))
            doors = {"loopback": TcpService(self._loopback, http.loopback)}
            if self._elsewhere is not None:
                listener, names = self._elsewhere
                doors["listen"] = TcpService([listener], http.elsewhere(names), tls=True)
            key = self._settings.daemon_certificate_key
            ingress = Ingress(
                doors, known, PATHS, self._settings.daemon_certificate_pem, None if key is None else str(key)
            )
            servers.start_soon(ingress.serve, self._wait_stop)
            _log.info("ready: version %s, pid %s, layers %s", __version__, os.getpid(), " ".join(self._jails.layers))
            tell("ready")

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

    def _note_adopted(self, settings: Settings) -> None:
        """Other settings are in force than before."""
        self._adopted += 1
        self._mcp = settings.mcp

    def _what_spares_depend_on(self) -> object:
        """What is other whenever nothing that was started ahead may be used any more: once the vault was locked, other settings
        are in force, or an action is installed, updated, removed, enabled or disabled.
        """
        changed = files.stamp(self._home.actions), files.stamp(self._home.action_state)
        return self._vault.times_locked, self._adopted, changed

    def _what_agents_see(self) -> Callable[[], object]:
        """What is other whenever the tools may be."""
        files = action_files(self._home.actions, self._home.action_state)
        return lambda: (files(), self._bound, self._mcp)

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
        rehearsal=_REHEARSAL,
    )


def _folder(package: str) -> Path:
    """Where a package lies, without importing it: what is made for jails has no business in the daemon."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed with aileron: install aileron again"
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

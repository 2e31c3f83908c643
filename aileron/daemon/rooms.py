"""Builds every room once, each after the rooms that it needs, and serves until told to stop.

This is the only module that imports every room. Runs in the daemon from its first connection on, or BUILD_AFTER_S after it is
ready (supervise.py), so that imports here do not delay its start.

Order at the start: sessions → recovery of an interrupted installation → rooms → background tasks → servers. At the stop: no new
connections are accepted, responses in progress get five seconds, interrupted runs become `unknown`, and jails are killed.

Source: docs/adr/0072-rooms-imported-when-first-used.md. Not here: the process, its lock, log, ledger and sockets (supervise.py).
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio
import msgspec

from aileron import files
from aileron.actions.approved_texts import ApprovedTexts
from aileron.actions.store import ActionStore
from aileron.approvals.gate import Gate
from aileron.audit import query
from aileron.audit.log import Audit
from aileron.cards.listed import listed
from aileron.config import LiveSettings, Settings
from aileron.daemon.consent_service.build_consents import BuiltConsents, build_consents, build_decisions
from aileron.daemon.consent_service.expiry import close_on_time
from aileron.daemon.consent_service.host_questions import HostQuestions
from aileron.daemon.foundation import Foundation
from aileron.daemon.http.build_apps import Http, build_http, build_tunnels
from aileron.daemon.http.ingress import Ingress, TcpService
from aileron.daemon.http.mcp import action_files
from aileron.daemon.http.pages import review_base
from aileron.daemon.http.sessions import Sessions
from aileron.daemon.http.tunnels import Tunnels
from aileron.daemon.installed.install import Installer
from aileron.daemon.notify.notifier import Notifier
from aileron.daemon.packages.build_packages import build_packages
from aileron.daemon.rendezvous import HomeListeners
from aileron.daemon.runner import Runner
from aileron.daemon.secrets.build_secrets import Outgoing, build_outgoing, build_secrets
from aileron.daemon.secrets.logins import start_early
from aileron.executor.execute import Executor
from aileron.executor.jails import Jails
from aileron.executor.spares import Spares
from aileron.gateway.upstreams import PATHS
from aileron.home import Home
from aileron.ingress.known import KnownCallers
from aileron.ingress.server import serve
from aileron.ledger.sqlite import Ledger
from aileron.model.invocation import Scope
from aileron.registry.content import ContentStore
from aileron.registry.staging import PublishedTexts, Staging
from aileron.runs.journal import SparesJournal
from aileron.runs.parts import Parts
from aileron.runs.progress import Board
from aileron.runs.runnable import Runnable
from aileron.runs.spine import Spine
from aileron.vault.vault import Vault

__all__ = ["Rooms", "Start"]

_Task = Callable[[], Coroutine[Any, Any, None]]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Values that were created during the start of the daemon, and that its services (rooms) are built from.

    `started_at` is in seconds since the epoch, and `read` is the stamp that config.toml had when it was read. `elsewhere` is the
    listening socket for `daemon.listen`, with the host names that clients can use for it; None without that setting.
    """

    home: Home
    started_at: float
    settings: Settings
    wanted: Settings
    read: files.Stamp | None
    port: int
    ledger: Ledger
    audit: Audit
    jails: Jails
    stopping: anyio.Event
    sockets: HomeListeners
    loopback: list[socket.socket]
    elsewhere: tuple[socket.socket, list[str]] | None


class Rooms:
    """All services of the daemon, grouped in rooms. An instance is used once: call `build`, then `serve`."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._home = start.home
        self._jails = start.jails
        self._vault = Vault(start.home.vault)
        self._settings = LiveSettings(start.settings)
        self._bound = 0

    async def build(self) -> None:
        """Build all services, each after the services that it needs. No request is answered before this returns."""
        start, base = self._start, self._foundation()
        known, board, runs = KnownCallers(), Board(), anyio.create_task_group()
        sessions = Sessions(base.audit, base.ledger, known, base.settings)
        await sessions.load()
        installing = Installer(base)
        await installing.recover()
        outgoing = build_outgoing(base)
        notifier = Notifier(
            base.settings.now,
            outgoing.egress,
            base.vault,
            queue=lambda approval_id: query.waiting_approval(base.ledger, approval_id, listed),
            page=base.review,
        )
        consenting = await build_consents(
            base,
            installing,
            notify=notifier.asked,
            read=start.read,
            cell=sessions.cell,
            changed=outgoing.lending.send_own,
        )
        secrets = build_secrets(base, outgoing, consenting)
        packages = build_packages(base, outgoing.egress, installing, consenting, secrets)
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
            listening=[*start.loopback, *([] if start.elsewhere is None else [start.elsewhere[0]])],
            signature=self._what_agents_see(),
            stopping=start.stopping,
        )
        hosts = HostQuestions(consenting.hosts, consenting.consents, base.audit)
        await hosts.load()
        sessions.tell_ended(hosts.ended)
        tunnels = build_tunnels(base, outgoing.egress, sessions, hosts)
        self._tasks: Sequence[_Task] = (
            lambda: close_on_time(base.ledger, base.audit, spine),
            notifier.serve,
            sessions.end_on_time,
            outgoing.renewals.serve,
            outgoing.minting.serve,
            secrets.sign_ins.serve,
            packages.fetches.serve,
            secrets.vaults.serve,
            lambda: start_early(base.connectors, outgoing.logins),
            outgoing.logins.serve,
            http.gateway.serve,
            http.page_sessions.serve,
            consenting.in_force.serve,
        )
        self._runs, self._spares = runs, spares
        self._servers = self._answering(http, tunnels, known)
        self._closing: Sequence[_Task] = (http.gateway.aclose, outgoing.egress.aclose, outgoing.logins.aclose)
        self._note_vault = secrets.vaults.note_change

    async def serve(self) -> None:
        """Run the background tasks and the servers until told to stop."""
        async with anyio.create_task_group() as background:
            for task in self._tasks:
                background.start_soon(task)
            async with self._runs as runs:
                runs.start_soon(self._spares.serve)
                async with anyio.create_task_group() as servers:
                    for server in self._servers:
                        servers.start_soon(server)
                runs.cancel_scope.cancel()  # what still runs is recorded as unknown by the spine
            background.cancel_scope.cancel()
        for close in self._closing:
            await close()
        self._vault.lock()
        await self._note_vault()

    def _foundation(self) -> Foundation:
        start, home = self._start, self._home
        return Foundation(
            home=home,
            settings=self._settings,
            wanted=start.wanted,
            started_at=start.started_at,
            port=start.port,
            review=review_base(start.port),
            layers=self._jails.layers,
            ledger=start.ledger,
            audit=start.audit,
            vault=self._vault,
            actions=ActionStore(home.actions, home.action_state),
            connectors=ContentStore(home.connectors),
            texts=ApprovedTexts(home.agreed),
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
            consent_checks=consenting.consent_checks,
            connectors=base.connectors,
            bindings=base.vault,
            tools=consenting.tools,
            settings=base.settings,
        )
        parts = Parts(
            runnable=runnable,
            gate=Gate(base.audit, consenting.approver),
            audit=base.audit,
            ledger=base.ledger,
            executor=Executor(self._jails, outgoing.egress, base.connectors, spares),
            board=board,
            ask=consenting.consents.ask_for_file,
            asked=consenting.asked,
            look=consenting.in_force.look,
            tool_changed=consenting.tool_changes.found,
        )
        return Spine(parts)

    def _answering(self, http: Http, tunnels: Tunnels, known: KnownCallers) -> Sequence[_Task]:
        """Return the servers of all sockets as tasks; each serves until told to stop."""
        start, sockets = self._start, self._start.sockets
        doors = {"loopback": TcpService(start.loopback, http.loopback)}
        if start.elsewhere is not None:
            listener, names = start.elsewhere
            doors["listen"] = TcpService([listener], http.elsewhere(names), tls=True)
        key = start.settings.daemon_certificate_key
        ingress = Ingress(doors, known, PATHS, start.settings.daemon_certificate_pem, None if key is None else str(key))
        stopped = start.stopping.wait
        return (
            functools.partial(self._until_stop, http.protocol.serve, sockets.mcp),
            functools.partial(self._until_stop, tunnels.serve, sockets.tunnel),
            functools.partial(serve, http.api.app(Scope.AGENT), [sockets.agent], stopped),
            functools.partial(serve, http.api.app(Scope.OPERATOR), [sockets.operator], stopped),
            functools.partial(serve, http.cells, [sockets.cell], stopped, tells_peers=True),
            functools.partial(ingress.serve, stopped),
        )

    async def _until_stop(
        self, work: Callable[[socket.socket], Coroutine[Any, Any, None]], listener: socket.socket
    ) -> None:
        """Run `work`, whose connections last as long as their agents, until told to stop. Then cancel it before the other
        services end.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, listener)
            await self._start.stopping.wait()
            tasks.cancel_scope.cancel()

    def _note_bound(self) -> None:
        """Count a change of credentials, because agents may see other tools after it."""
        self._bound += 1

    def _what_spares_depend_on(self) -> object:
        """Return a value that changes whenever connectors that were started in advance become unusable. They do when
        the vault is locked, when other settings take effect, or when an action is installed, updated, removed, enabled or
        disabled.
        """
        changed = files.stamp(self._home.actions), files.stamp(self._home.action_state)
        return self._vault.times_locked, self._settings.now, changed

    def _what_agents_see(self) -> Callable[[], object]:
        """Return a function whose result changes whenever the tools that agents see may have changed."""
        files = action_files(self._home.actions, self._home.action_state)
        return lambda: (files(), self._bound, self._settings.now.mcp)

"""Builds the applications that handle requests: the API of each socket, the agents' protocol, the page, the gateway."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import anyio
import msgspec
from starlette.types import ASGIApp

from aileron import __version__
from aileron.daemon.consent_service.build_consents import BuiltConsents, Decisions
from aileron.daemon.foundation import Foundation
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
from aileron.daemon.http.api.services import ServiceRoutes
from aileron.daemon.http.api.sessions import SessionRoutes
from aileron.daemon.http.api.vault import VaultRoutes
from aileron.daemon.http.cells import OnlyOfCells
from aileron.daemon.http.gateway_keys import GatewayKeys
from aileron.daemon.http.injected_tools import InjectedTools
from aileron.daemon.http.listeners import OnlyHere, Served, WithToken, loopback_names
from aileron.daemon.http.mcp import AgentProtocol
from aileron.daemon.http.page import PageService
from aileron.daemon.http.pages import pages
from aileron.daemon.http.run_door import RunDoor
from aileron.daemon.http.sessions import Sessions
from aileron.daemon.http.status import DaemonStatus
from aileron.daemon.http.tunnels import Tunnels, TunnelsOnRecord
from aileron.daemon.packages.build_packages import Packages
from aileron.daemon.runner import Runner
from aileron.daemon.secrets.build_secrets import Secrets
from aileron.egress import Egress
from aileron.egress.tunnel import HostPolicy, WayOut
from aileron.gateway.inject.exchange import Injection
from aileron.gateway.proxy import Gateway, gateway_app
from aileron.ingress.known import KnownCallers
from aileron.model.invocation import Scope
from aileron.runs.progress import Board
from aileron.web.app import Page
from aileron.web.sessions import Sessions as PageSessions
from aileron.web.workers import NoWorkers

__all__ = ["Http", "build_http", "build_tunnels"]


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """The applications that handle requests, and their background services."""

    api: Api
    protocol: AgentProtocol
    gateway: Gateway
    page_sessions: PageSessions
    loopback: ASGIApp
    cells: ASGIApp
    """Application for requests from cells."""
    elsewhere: Callable[[Sequence[str]], ASGIApp]
    """Function that returns the application for the address `daemon.listen`, given the host names with which clients can
    address it. This application has no pages.
    """


def build_http(
    base: Foundation,
    consenting: BuiltConsents,
    secrets: Secrets,
    packages: Packages,
    decisions: Decisions,
    *,
    runner: Runner,
    board: Board,
    sessions: Sessions,
    known: KnownCallers,
    listening: Sequence[socket.socket],
    signature: Callable[[], object],
    stopping: anyio.Event,
) -> Http:
    """Build the applications and their background services. Requests to the gateway arrive on the sockets `listening`.
    `signature` returns a value that changes whenever an agent's tools may have changed.
    """
    door = RunDoor(runner, sessions)
    following = StatusWaiter(runner, base.audit.watch, board, base.ledger)
    status = DaemonStatus(
        base,
        vaults=secrets.vaults,
        approver=consenting.approver,
        consent_checks=consenting.consent_checks,
        in_force=consenting.in_force,
    )
    agents = AgentService(
        base,
        door=door,
        queue=decisions.queue,
        grants=decisions.grants,
        following=following,
        sessions=sessions,
    )
    protocol = AgentProtocol(agents, sessions, __version__, signature, base.home.mcp_answers)
    gateway = gateway_app(
        base.settings,
        GatewayKeys(base.vault, sessions, consenting.consent_checks),
        [listener.getsockname()[:2] for listener in listening],
        Injection(InjectedTools(agents, sessions, base.audit)),
    )
    handlers = _handlers(
        base, consenting, secrets, packages, decisions, door, following, sessions, status, stopping.set
    )
    api = Api(handlers, sessions, base.audit)
    page = PageService(
        base,
        approver=consenting.approver,
        queue=decisions.queue,
        decisions=decisions.decisions,
        readings=decisions.previews,
        sessions=sessions,
        stopping=stopping,
    )
    page_sessions = PageSessions(page, known)

    def served(shown: ASGIApp | None) -> ASGIApp:
        return Served(
            pages=shown,
            agents=api.app(Scope.AGENT, needs_token=True),
            mcp=WithToken(protocol.http, sessions),
            gateway=gateway,
        )

    in_cells = api.app(Scope.AGENT, needs_token=True)
    names = loopback_names(base.port)
    shown = served(pages(Page(page, page_sessions, base.port, consenting.passkeys)))
    return Http(
        api=api,
        protocol=protocol,
        gateway=gateway,
        page_sessions=page_sessions,
        loopback=NoWorkers(OnlyHere(shown, names, [f"http://{name}" for name in names])),
        cells=OnlyOfCells(Served(pages=None, agents=in_cells, mcp=in_cells, gateway=gateway), sessions, base.audit),
        elsewhere=lambda names: OnlyHere(served(None), names, []),
    )


def build_tunnels(base: Foundation, egress: Egress, sessions: Sessions, policy: HostPolicy) -> Tunnels:
    """Build the tunnels for outgoing connections of cells. `policy` decides about hosts."""
    on_record = TunnelsOnRecord(base.audit, base.ledger.now_us)
    return Tunnels(WayOut(base.settings, policy, on_record, egress.resolve, base.port), sessions, base.audit)


def _handlers(
    base: Foundation,
    consenting: BuiltConsents,
    secrets: Secrets,
    packages: Packages,
    decisions: Decisions,
    door: RunDoor,
    following: StatusWaiter,
    sessions: Sessions,
    status: DaemonStatus,
    stop: Callable[[], None],
) -> Handlers:
    passkeys = consenting.passkeys
    return Handlers(
        actions=ActionRoutes(
            actions=packages.actions,
            tools=consenting.tool_changes,
            door=door,
            following=following,
            sessions=sessions,
            review=base.review,
        ),
        approvals=ApprovalRoutes(
            queue=decisions.queue, decisions=decisions.decisions, passkeys=passkeys, following=following
        ),
        approver=ApproverRoutes(approver=consenting.approver, enrollment=decisions.enrollment, passkeys=passkeys),
        grants=GrantRoutes(decisions.grants),
        connectors=ConnectorRoutes(connectors=packages.connectors, upkeep=packages.updates, fetching=packages.fetches),
        publishers=PublisherRoutes(packages.keys, packages.hub),
        services=ServiceRoutes(packages.services, packages.connected, packages.service_updates),
        bindings=BindingRoutes(secrets.credentials, secrets.sign_ins),
        vault=VaultRoutes(vaults=secrets.vaults, secrets=secrets.stored, after_unlock=decisions.after_unlock),
        sessions=SessionRoutes(sessions),
        daemon=DaemonRoutes(home=base.home, ledger=base.ledger, facts=status, end=stop),
    )

"""Every route, who may ask it, and the guard before all of them. One app per socket.

Runs in the daemon. Callers on the agent socket are untrusted; those on the operator socket are the same user. Routes decide
nothing: runs go to the spine through the runner (the one door is `POST /v1/actions/{name}/run`), the rest to the services.

Rules
- Every failure leaves as `{"error": …}` with the status of its class (responses.py); nothing foreign leaks.
- An agent sees its own session's runs and no others: what is not its own does not exist. Its session is that of the token it
  shows; a token that is not good is refused, and is never as none (sessions.py).

Source: docs/reference/http-api.md, compared with `ROUTES` by a test.
"""

from __future__ import annotations

import dataclasses
import logging
import operator
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aileron.audit.log import Audit
from aileron.daemon.http.api.actions import ActionRoutes
from aileron.daemon.http.api.approvals import ApprovalRoutes
from aileron.daemon.http.api.approver import ApproverRoutes
from aileron.daemon.http.api.bindings import BindingRoutes
from aileron.daemon.http.api.connectors import ConnectorRoutes
from aileron.daemon.http.api.daemon import DaemonRoutes
from aileron.daemon.http.api.grants import GrantRoutes
from aileron.daemon.http.api.publishers import PublisherRoutes
from aileron.daemon.http.api.sessions import SessionRoutes
from aileron.daemon.http.api.vault import VaultRoutes
from aileron.daemon.http.responses import failure_answer
from aileron.daemon.http.sessions import Sessions
from aileron.ingress.server import drained
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope

__all__ = ["ROUTES", "Api", "Handlers", "RouteSpec"]

_log = logging.getLogger(__name__)


class RouteSpec(NamedTuple):
    """One route: which scopes may ask, and what of Handlers answers."""

    method: str
    path: str
    handler: str
    scopes: frozenset[Scope]


_ALL: Final = frozenset(Scope)
_OPERATOR: Final = frozenset({Scope.OPERATOR})

ROUTES: Final = (
    RouteSpec("GET", "/healthz", "daemon.health", _ALL),
    RouteSpec("GET", "/v1/actions", "actions.list_actions", _ALL),
    RouteSpec("POST", "/v1/actions", "actions.add_action", _OPERATOR),
    RouteSpec("GET", "/v1/actions/{name}", "actions.show_action", _ALL),
    RouteSpec("PATCH", "/v1/actions/{name}", "actions.change_action", _OPERATOR),
    RouteSpec("DELETE", "/v1/actions/{name}", "actions.remove_action", _OPERATOR),
    RouteSpec("POST", "/v1/actions/{name}/run", "actions.run_action", _ALL),
    RouteSpec("GET", "/v1/runs/{id}", "actions.show_run", _ALL),
    RouteSpec("GET", "/v1/action-approvals", "approvals.list_approvals", _OPERATOR),
    RouteSpec("GET", "/v1/action-approvals/{id}", "approvals.show_approval", _OPERATOR),
    RouteSpec("GET", "/v1/action-approvals/{id}/result", "approvals.approval_result", _ALL),
    RouteSpec("POST", "/v1/action-approvals/{id}/decide", "approvals.decide", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/challenge", "approvals.challenge", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/cancel", "approvals.cancel", _ALL),
    RouteSpec("POST", "/v1/action-approvals/{id}/edit", "approvals.edit", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/preview", "approvals.preview", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/ask", "approvals.ask_back", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/answer", "approvals.answer", _ALL),
    RouteSpec("GET", "/v1/approver", "approver.show_approver", _OPERATOR),
    RouteSpec("POST", "/v1/approver", "approver.appoint", _OPERATOR),
    RouteSpec("GET", "/v1/approver/inventory", "approver.inventory", _OPERATOR),
    RouteSpec("GET", "/v1/passkeys", "approver.list_passkeys", _OPERATOR),
    RouteSpec("POST", "/v1/passkeys", "approver.enrol_passkey", _OPERATOR),
    RouteSpec("POST", "/v1/passkeys/options", "approver.passkey_options", _OPERATOR),
    RouteSpec("DELETE", "/v1/passkeys/{id}", "approver.revoke_passkey", _OPERATOR),
    RouteSpec("GET", "/v1/grants", "grants.list_grants", _OPERATOR),
    RouteSpec("POST", "/v1/grants", "grants.add_grant", _OPERATOR),
    RouteSpec("DELETE", "/v1/grants/{id}", "grants.revoke_grant", _OPERATOR),
    RouteSpec("GET", "/v1/connectors", "connectors.list_connectors", _OPERATOR),
    RouteSpec("POST", "/v1/connectors", "connectors.install_connector", _OPERATOR),
    RouteSpec("GET", "/v1/connectors/updates", "connectors.list_updates", _OPERATOR),
    RouteSpec("POST", "/v1/connectors/verify", "connectors.verify_connectors", _OPERATOR),
    RouteSpec("POST", "/v1/connectors/remove-unused", "connectors.remove_unused", _OPERATOR),
    RouteSpec("DELETE", "/v1/connectors/{hash}", "connectors.remove_connector", _OPERATOR),
    RouteSpec("POST", "/v1/fetches", "connectors.begin_fetch", _OPERATOR),
    RouteSpec("GET", "/v1/fetches/{id}", "connectors.show_fetch", _OPERATOR),
    RouteSpec("POST", "/v1/fetches/{id}/resolve", "connectors.resolve_fetched", _OPERATOR),
    RouteSpec("POST", "/v1/fetches/{id}/install", "connectors.install_fetched", _OPERATOR),
    RouteSpec("DELETE", "/v1/fetches/{id}", "connectors.cancel_fetch", _OPERATOR),
    RouteSpec("POST", "/v1/suites", "connectors.show_suite", _OPERATOR),
    RouteSpec("GET", "/v1/keyring", "publishers.list_keys", _OPERATOR),
    RouteSpec("POST", "/v1/keyring", "publishers.trust_key", _OPERATOR),
    RouteSpec("POST", "/v1/keyring/look", "publishers.look_for_key", _OPERATOR),
    RouteSpec("POST", "/v1/keyring/revoke", "publishers.revoke_key", _OPERATOR),
    RouteSpec("GET", "/v1/hub", "publishers.search_hub", _OPERATOR),
    RouteSpec("GET", "/v1/hub/entry", "publishers.show_hub_entry", _OPERATOR),
    RouteSpec("GET", "/v1/bindings", "bindings.list_bindings", _OPERATOR),
    RouteSpec("POST", "/v1/bindings", "bindings.add_binding", _OPERATOR),
    RouteSpec("GET", "/v1/bindings/{name:path}", "bindings.show_binding", _OPERATOR),
    RouteSpec("PATCH", "/v1/bindings/{name:path}", "bindings.change_binding", _OPERATOR),
    RouteSpec("DELETE", "/v1/bindings/{name:path}", "bindings.remove_binding", _OPERATOR),
    RouteSpec("POST", "/v1/sign-ins", "bindings.begin_sign_in", _OPERATOR),
    RouteSpec("GET", "/v1/sign-ins/{id}", "bindings.show_sign_in", _OPERATOR),
    RouteSpec("DELETE", "/v1/sign-ins/{id}", "bindings.cancel_sign_in", _OPERATOR),
    RouteSpec("GET", "/v1/vault/status", "vault.vault_status", _OPERATOR),
    RouteSpec("POST", "/v1/vault/init", "vault.vault_init", _OPERATOR),
    RouteSpec("POST", "/v1/vault/unlock", "vault.vault_unlock", _OPERATOR),
    RouteSpec("POST", "/v1/vault/lock", "vault.vault_lock", _OPERATOR),
    RouteSpec("POST", "/v1/vault/rotate", "vault.vault_rotate", _OPERATOR),
    RouteSpec("POST", "/v1/vault/backup", "vault.vault_backup", _OPERATOR),
    RouteSpec("POST", "/v1/vault/restore", "vault.vault_restore", _OPERATOR),
    RouteSpec("GET", "/v1/secrets", "vault.list_secrets", _OPERATOR),
    RouteSpec("PUT", "/v1/secrets/{name}", "vault.set_secret", _OPERATOR),
    RouteSpec("DELETE", "/v1/secrets/{name}", "vault.remove_secret", _OPERATOR),
    RouteSpec("GET", "/v1/sessions", "sessions.list_sessions", _OPERATOR),
    RouteSpec("POST", "/v1/sessions", "sessions.open_session", _OPERATOR),
    RouteSpec("GET", "/v1/sessions/{id}", "sessions.show_session", _OPERATOR),
    RouteSpec("POST", "/v1/sessions/{id}/end", "sessions.end_session", _OPERATOR),
    RouteSpec("GET", "/v1/audit", "daemon.list_audit", _OPERATOR),
    RouteSpec("GET", "/v1/audit/verify", "daemon.verify_audit", _OPERATOR),
    RouteSpec("GET", "/v1/audit/{id}", "daemon.show_audit", _OPERATOR),
    RouteSpec("GET", "/v1/status", "daemon.status", _ALL),
    RouteSpec("POST", "/v1/stop", "daemon.stop", _OPERATOR),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handlers:
    """The answers, by resource: the same for every socket."""

    actions: ActionRoutes
    approvals: ApprovalRoutes
    approver: ApproverRoutes
    grants: GrantRoutes
    connectors: ConnectorRoutes
    publishers: PublisherRoutes
    bindings: BindingRoutes
    vault: VaultRoutes
    sessions: SessionRoutes
    daemon: DaemonRoutes


class Api:
    """The routes of all sockets, and who may ask them."""

    def __init__(self, handlers: Handlers, sessions: Sessions, audit: Audit) -> None:
        self._handlers = handlers
        self._sessions = sessions
        self._audit = audit

    def app(self, scope: Scope, *, needs_token: bool = False) -> Starlette:
        """The ASGI application of one socket: every route exists on every socket, and says no where it must.

        `needs_token`: nobody is `local` there, because others than the user can reach it.
        """
        return Starlette(
            routes=[self._route(spec, scope, needs_token=needs_token) for spec in ROUTES],
            exception_handlers={404: _no_route, 405: _no_route},
        )

    def _route(self, spec: RouteSpec, scope: Scope, *, needs_token: bool) -> Route:
        handler: Callable[[Request], Awaitable[Response]] = operator.attrgetter(spec.handler)(self._handlers)

        async def guarded(request: Request) -> Response:
            try:
                shown = request.headers.getlist("authorization")
                caller = request.state.caller = self._sessions.caller(scope, shown, needs_token=needs_token)
            except AileronError as error:
                await drained(request.receive)
                return failure_answer(error.failure)
            if scope not in spec.scopes:
                await drained(request.receive)
                await self._audit.caller_refused(scope, f"{spec.method} {spec.path}", caller.session)
                return failure_answer(_not_for_agents(spec).failure)
            try:
                with self._sessions.answering(caller):
                    return await handler(request)
            except AileronError as error:
                return failure_answer(error.failure)
            except Exception:  # noqa: BLE001 - the end of a request: nothing foreign leaves
                _log.exception("%s %s failed in a way nobody foresaw", spec.method, spec.path)
                return failure_answer(
                    AileronError(
                        FailureClass.INTERNAL_ERROR, "this is a bug in aileron; see `aileron daemon logs`"
                    ).failure
                )

        return Route(spec.path, guarded, methods=[spec.method], name=f"{spec.method} {spec.path}")


async def _no_route(request: Request, _: Exception) -> Response:
    """A path or a method that is no route's: a failure like any other."""
    await drained(request.receive)
    return failure_answer(
        AileronError(FailureClass.NOT_FOUND, f"there is no {request.method} {request.url.path[:200]!a}").failure
    )


def _not_for_agents(spec: RouteSpec) -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"{spec.method} {spec.path} is not served on the agent socket: a person uses the operator socket",
        boundary=Boundary.USER,
    )

"""The guard in front of all routes, and the handler of each route. There is one application per socket.

Runs in the daemon. Callers on the agent socket are untrusted; those on the operator socket are the same user. Routes decide
nothing: requests for runs go through the runner to the spine (runs/spine.py), all others to the services. `POST
/v1/actions/{name}/run` is the only route that starts runs.

Rules
- Every failure is returned as `{"error": …}` with the HTTP status of its class (responses.py). No other error format or
  exception text reaches a client.
- An agent sees only its own session's runs; the runs of other sessions do not exist for the agent. The session is determined by
  the token that the agent sends; a bad token is refused, and never counts as a missing token (sessions.py). For an agent in a
  cell it is the cell's session, whatever token is sent.

Source: docs/reference/http-api.md. Not here: the list of routes (aileron/api/routes.py).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aileron.api.routes import ROUTES, RouteSpec
from aileron.audit.log import Audit
from aileron.daemon.http.api.actions import ActionRoutes
from aileron.daemon.http.api.approvals import ApprovalRoutes
from aileron.daemon.http.api.approver import ApproverRoutes
from aileron.daemon.http.api.bindings import BindingRoutes
from aileron.daemon.http.api.connectors import ConnectorRoutes
from aileron.daemon.http.api.daemon import DaemonRoutes
from aileron.daemon.http.api.grants import GrantRoutes
from aileron.daemon.http.api.publishers import PublisherRoutes
from aileron.daemon.http.api.requests import body_of
from aileron.daemon.http.api.services import ServiceRoutes
from aileron.daemon.http.api.sessions import SessionRoutes
from aileron.daemon.http.api.vault import VaultRoutes
from aileron.daemon.http.responses import as_json, failure_answer
from aileron.daemon.http.sessions import Caller, Sessions
from aileron.ingress.known import cell_session_of
from aileron.ingress.server import drained, process_of
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope

__all__ = ["Api", "Handlers"]

_Handler = Callable[..., Awaitable[msgspec.Struct | Response]]
"""A handler gets the request and, if its route declares one, the decoded body. A test compares the types of the
handlers with those that the routes declare.
"""
_log = logging.getLogger(__name__)


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """The request handlers of all routes, grouped by resource. Every socket uses these handlers."""

    actions: ActionRoutes
    approvals: ApprovalRoutes
    approver: ApproverRoutes
    grants: GrantRoutes
    connectors: ConnectorRoutes
    publishers: PublisherRoutes
    services: ServiceRoutes
    bindings: BindingRoutes
    vault: VaultRoutes
    sessions: SessionRoutes
    daemon: DaemonRoutes


class Api:
    """The routes of all sockets, and their access rules."""

    def __init__(self, handlers: Handlers, sessions: Sessions, audit: Audit) -> None:
        self._handlers = handlers
        self._sessions = sessions
        self._audit = audit

    def app(self, scope: Scope, *, needs_token: bool = False) -> Starlette:
        """Return the ASGI application of one socket. Every route exists on every socket, and refuses callers of the wrong scope.

        With `needs_token`, a caller without a session token is refused, because other users can reach the socket, too.
        """
        return Starlette(
            routes=[self._route(spec, scope, needs_token=needs_token) for spec in ROUTES],
            exception_handlers={404: _no_route, 405: _no_route},
        )

    def _route(self, spec: RouteSpec, scope: Scope, *, needs_token: bool) -> Route:
        handler: _Handler = operator.attrgetter(spec.handler)(self._handlers)

        async def guarded(request: Request) -> Response:
            try:
                caller = request.state.caller = self._caller(request, scope, needs_token=needs_token)
            except AileronError as error:
                await drained(request.receive)
                return failure_answer(error.failure)
            if scope not in spec.scopes:
                await drained(request.receive)
                await self._audit.caller_refused(scope, f"{spec.method} {spec.path}", caller.session)
                return failure_answer(_not_for_agents(spec, cell_session_of(request.scope) is not None).failure)
            try:
                with self._sessions.answering(caller):
                    body = () if spec.body is None else (await body_of(request, spec.body),)
                    return _answered(spec, await handler(request, *body))
            except AileronError as error:
                return failure_answer(error.failure)
            except Exception:  # noqa: BLE001 - the end of a request: nothing foreign leaves
                _log.exception("%s %s failed unexpectedly", spec.method, spec.path)
                return failure_answer(
                    AileronError(
                        FailureClass.INTERNAL_ERROR, "this is a bug in aileron; see `aileron daemon logs`"
                    ).failure
                )

        return Route(spec.path, guarded, methods=[spec.method], name=f"{spec.method} {spec.path}")

    def _caller(self, request: Request, scope: Scope, *, needs_token: bool) -> Caller:
        """Return the caller of a request. Raises AileronError (unauthorized)."""
        process, of_cell = process_of(request.scope), cell_session_of(request.scope)
        if of_cell is not None:
            return Caller(Scope.AGENT, of_cell, process)
        shown = request.headers.getlist("authorization")
        return self._sessions.caller(scope, shown, needs_token=needs_token, process=process)


def _answered(spec: RouteSpec, answer: msgspec.Struct | Response) -> Response:
    """Return the response for what a handler returned, with HTTP status 202 if the route declares that the client must wait."""
    if isinstance(answer, Response):
        return answer
    return as_json(answer, 202 if spec.later is not None and isinstance(answer, spec.later) else 200)


async def _no_route(request: Request, _: Exception) -> Response:
    """Respond to an unknown path or method with an error, in the format of all failures."""
    await drained(request.receive)
    return failure_answer(
        AileronError(FailureClass.NOT_FOUND, f"no route {request.method} {request.url.path[:200]!a}").failure
    )


def _not_for_agents(spec: RouteSpec, is_in_cell: bool) -> AileronError:
    where = (
        "in a cell: a person does this outside of it" if is_in_cell else "on the agent socket: use the operator socket"
    )
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"{spec.method} {spec.path} is not available {where}",
        boundary=Boundary.USER,
    )

"""The HTTP API: translate, ask, show. One app per socket; the scope of a caller is the socket's, never its own word.

Runs in the daemon. Callers on the agent socket are untrusted; those on the operator socket are the same user. Routes decide
nothing: runs go to the spine through the runner (the one door is `POST /v1/actions/{name}/run`), the rest to the services.

Rules
- A body is read at most MAX_BODY_BYTES far, and decoded as what the route says; unknown keys are refused.
- Every failure leaves as `{"error": …}` with the status of its class (responses.py); nothing foreign leaks.
- An agent sees its own session's runs and no others: what is not its own does not exist. Its session is that of the token it
  shows; a token that is not good is refused, and is never as none.

Source: docs/reference/http-api.md, compared with `ROUTES` by a test.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from aileron.audit import query
from aileron.audit.log import Audit
from aileron.config import Home
from aileron.daemon.decisions.after_unlock import AfterUnlock
from aileron.daemon.decisions.approval_queue import ApprovalQueue
from aileron.daemon.decisions.approver import ApproverState
from aileron.daemon.decisions.enrollment import ApproverEnrollment
from aileron.daemon.decisions.passkeys import Passkeys
from aileron.daemon.decisions.service import DecisionService
from aileron.daemon.decisions.standing_grants import GrantService
from aileron.daemon.http.agents import StatusWaiter
from aileron.daemon.http.record import verified, wait_events
from aileron.daemon.http.responses import as_json, failure_answer, run_answer
from aileron.daemon.http.sessions import LOCAL_SESSION, Sessions, no_token, token_shown
from aileron.daemon.http.status import DaemonStatus
from aileron.daemon.packages.actions import ActionService
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.packages.fetch import FetchJobs
from aileron.daemon.packages.hub import HubSearch
from aileron.daemon.packages.keyring import PublisherKeys
from aileron.daemon.packages.updates import Updates
from aileron.daemon.runner import Runner
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.daemon.secrets.signins import Flow, SignIns
from aileron.daemon.secrets.vault import Opening, VaultService
from aileron.ingress.server import BODY_S, MAX_BODY_BYTES, drained
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import Constraint
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.secret import Secret
from aileron.model.wire import (
    Appointment,
    ConsentAnswer,
    ConsentsAnswer,
    Decision,
    FetchRequest,
    PasskeyMade,
    PreviewRequest,
    RunRequest,
)
from aileron.registry.install import OnConflict
from aileron.vault.slots import KeyringKey

__all__ = ["ROUTES", "Api", "RouteSpec"]

DEFAULT_WAIT_S: Final = 25.0
_MAX_PID_DIGITS: Final = 7
"""The kernel has no more: PID_MAX_LIMIT is 4,194,304 (proc_sys_kernel(5))."""
MAX_WAIT_S: Final = 60.0
_MAX_NUMBER_DIGITS: Final = 15
"""More frames than a connector can send in the longest run there may be."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RouteSpec(NamedTuple):
    """One route: which scopes may ask, and the method of Api that answers."""

    method: str
    path: str
    handler: str
    scopes: frozenset[Scope]


_ALL: Final = frozenset(Scope)
_OPERATOR: Final = frozenset({Scope.OPERATOR})

ROUTES: Final = (
    RouteSpec("GET", "/healthz", "health", _ALL),
    RouteSpec("GET", "/v1/actions", "list_actions", _ALL),
    RouteSpec("POST", "/v1/actions", "add_action", _OPERATOR),
    RouteSpec("GET", "/v1/actions/{name}", "show_action", _ALL),
    RouteSpec("PATCH", "/v1/actions/{name}", "change_action", _OPERATOR),
    RouteSpec("DELETE", "/v1/actions/{name}", "remove_action", _OPERATOR),
    RouteSpec("POST", "/v1/actions/{name}/run", "run_action", _ALL),
    RouteSpec("GET", "/v1/runs/{id}", "show_run", _ALL),
    RouteSpec("GET", "/v1/action-approvals", "list_approvals", _OPERATOR),
    RouteSpec("GET", "/v1/action-approvals/{id}", "show_approval", _OPERATOR),
    RouteSpec("GET", "/v1/action-approvals/{id}/result", "approval_result", _ALL),
    RouteSpec("POST", "/v1/action-approvals/{id}/decide", "decide", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/challenge", "challenge", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/cancel", "cancel", _ALL),
    RouteSpec("POST", "/v1/action-approvals/{id}/edit", "edit", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/preview", "preview", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/ask", "ask_back", _OPERATOR),
    RouteSpec("POST", "/v1/action-approvals/{id}/answer", "answer", _ALL),
    RouteSpec("GET", "/v1/approver", "show_approver", _OPERATOR),
    RouteSpec("POST", "/v1/approver", "appoint", _OPERATOR),
    RouteSpec("GET", "/v1/approver/inventory", "inventory", _OPERATOR),
    RouteSpec("GET", "/v1/passkeys", "list_passkeys", _OPERATOR),
    RouteSpec("POST", "/v1/passkeys", "enrol_passkey", _OPERATOR),
    RouteSpec("POST", "/v1/passkeys/options", "passkey_options", _OPERATOR),
    RouteSpec("DELETE", "/v1/passkeys/{id}", "revoke_passkey", _OPERATOR),
    RouteSpec("GET", "/v1/grants", "list_grants", _OPERATOR),
    RouteSpec("POST", "/v1/grants", "add_grant", _OPERATOR),
    RouteSpec("DELETE", "/v1/grants/{id}", "revoke_grant", _OPERATOR),
    RouteSpec("GET", "/v1/connectors", "list_connectors", _OPERATOR),
    RouteSpec("POST", "/v1/connectors", "install_connector", _OPERATOR),
    RouteSpec("GET", "/v1/connectors/updates", "list_updates", _OPERATOR),
    RouteSpec("POST", "/v1/connectors/verify", "verify_connectors", _OPERATOR),
    RouteSpec("POST", "/v1/connectors/remove-unused", "remove_unused", _OPERATOR),
    RouteSpec("DELETE", "/v1/connectors/{hash}", "remove_connector", _OPERATOR),
    RouteSpec("POST", "/v1/fetches", "begin_fetch", _OPERATOR),
    RouteSpec("GET", "/v1/fetches/{id}", "show_fetch", _OPERATOR),
    RouteSpec("POST", "/v1/fetches/{id}/resolve", "resolve_fetched", _OPERATOR),
    RouteSpec("POST", "/v1/fetches/{id}/install", "install_fetched", _OPERATOR),
    RouteSpec("DELETE", "/v1/fetches/{id}", "cancel_fetch", _OPERATOR),
    RouteSpec("POST", "/v1/suites", "show_suite", _OPERATOR),
    RouteSpec("GET", "/v1/keyring", "list_keys", _OPERATOR),
    RouteSpec("POST", "/v1/keyring", "trust_key", _OPERATOR),
    RouteSpec("POST", "/v1/keyring/look", "look_for_key", _OPERATOR),
    RouteSpec("POST", "/v1/keyring/revoke", "revoke_key", _OPERATOR),
    RouteSpec("GET", "/v1/hub", "search_hub", _OPERATOR),
    RouteSpec("GET", "/v1/hub/entry", "show_hub_entry", _OPERATOR),
    RouteSpec("GET", "/v1/bindings", "list_bindings", _OPERATOR),
    RouteSpec("POST", "/v1/bindings", "add_binding", _OPERATOR),
    RouteSpec("GET", "/v1/bindings/{name:path}", "show_binding", _OPERATOR),
    RouteSpec("PATCH", "/v1/bindings/{name:path}", "change_binding", _OPERATOR),
    RouteSpec("DELETE", "/v1/bindings/{name:path}", "remove_binding", _OPERATOR),
    RouteSpec("POST", "/v1/sign-ins", "begin_sign_in", _OPERATOR),
    RouteSpec("GET", "/v1/sign-ins/{id}", "show_sign_in", _OPERATOR),
    RouteSpec("DELETE", "/v1/sign-ins/{id}", "cancel_sign_in", _OPERATOR),
    RouteSpec("GET", "/v1/vault/status", "vault_status", _OPERATOR),
    RouteSpec("POST", "/v1/vault/init", "vault_init", _OPERATOR),
    RouteSpec("POST", "/v1/vault/unlock", "vault_unlock", _OPERATOR),
    RouteSpec("POST", "/v1/vault/lock", "vault_lock", _OPERATOR),
    RouteSpec("POST", "/v1/vault/rotate", "vault_rotate", _OPERATOR),
    RouteSpec("POST", "/v1/vault/backup", "vault_backup", _OPERATOR),
    RouteSpec("POST", "/v1/vault/restore", "vault_restore", _OPERATOR),
    RouteSpec("GET", "/v1/secrets", "list_secrets", _OPERATOR),
    RouteSpec("PUT", "/v1/secrets/{name}", "set_secret", _OPERATOR),
    RouteSpec("DELETE", "/v1/secrets/{name}", "remove_secret", _OPERATOR),
    RouteSpec("GET", "/v1/sessions", "list_sessions", _OPERATOR),
    RouteSpec("POST", "/v1/sessions", "open_session", _OPERATOR),
    RouteSpec("GET", "/v1/sessions/{id}", "show_session", _OPERATOR),
    RouteSpec("POST", "/v1/sessions/{id}/end", "end_session", _OPERATOR),
    RouteSpec("GET", "/v1/audit", "list_audit", _OPERATOR),
    RouteSpec("GET", "/v1/audit/verify", "verify_audit", _OPERATOR),
    RouteSpec("GET", "/v1/audit/{id}", "show_audit", _OPERATOR),
    RouteSpec("GET", "/v1/status", "status", _ALL),
    RouteSpec("POST", "/v1/stop", "stop", _OPERATOR),
)


class _AddAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    file: str
    replace: bool = False


class _ChangeAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool


class _Install(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    on_conflict: OnConflict = "refuse"


class _ResolveFetched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class _InstallFetched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing needs to be said."""


class _Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: str | None = None
    text: str | None = None
    file: str = "the suite"


class _RemoveUnused(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False


class _Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    authority: str


class _TrustKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    authority: str
    key: str
    source: str


class _RevokeKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    authority: str
    key: str | None = None


class _AddBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    connector: str
    name: str
    secret: str
    username: str | None = None


class _ChangeBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    secret: str | None = None
    username: str | None = None


class _BeginSignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    connector: str
    name: str
    flow: Flow
    replace: bool = False


class _Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    args: dict[str, Any]


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    answer: str


class _Challenge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None = None


class _PasskeyName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class _AddGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    action: str
    constraints: tuple[Constraint, ...] = ()
    uses: int
    for_s: int
    binding: str | None = None


class _OpenSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    agent: str
    folder: str
    for_s: int | None = None
    pid: int | None = None


class _EndSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exit_code: int | None = None


class _Hidden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body with something secret in it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"


class _KeyringKey(_Hidden, frozen=True):
    id: str
    key_base64: str


class _InitVault(_Hidden, frozen=True):
    passphrase: str
    recovery_codes: bool = False
    keyring: _KeyringKey | None = None


class _Unlock(_Hidden, frozen=True):
    passphrase: str | None = None
    keyring_key_base64: str | None = None


class _RotateVault(_Hidden, frozen=True):
    passphrase: str
    new_passphrase: str
    recovery_codes: bool = False
    keyring: _KeyringKey | None = None


class _BackUpVault(_Hidden, frozen=True):
    file: str
    passphrase: str | None = None
    replace: bool = False


class _RestoreVault(_Hidden, frozen=True):
    file: str
    passphrase: str


class _SetSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value_base64: str

    def __repr__(self) -> str:
        return "_SetSecret(<secret>)"


class Api:
    """The handlers of one socket. `needs_token`: nobody is `local` there, because others than the user can reach it."""

    def __init__(
        self,
        scope: Scope,
        *,
        home: Home,
        audit: Audit,
        ledger: Ledger,
        runner: Runner,
        actions: ActionService,
        connectors: ConnectorService,
        secrets: SecretStore,
        queue: ApprovalQueue,
        decisions: DecisionService,
        approver: ApproverState,
        enrollment: ApproverEnrollment,
        grants: GrantService,
        after_unlock: AfterUnlock,
        status: DaemonStatus,
        vaults: VaultService,
        following: StatusWaiter,
        sessions: Sessions,
        credentials: Credentials,
        sign_ins: SignIns,
        trusting: PublisherKeys,
        fetching: FetchJobs,
        upkeep: Updates,
        hubs: HubSearch,
        passkeys: Passkeys,
        review: str,
        stop: Callable[[], None],
        needs_token: bool = False,
    ) -> None:
        self._scope = scope
        self._home = home
        self._audit = audit
        self._ledger = ledger
        self._runner = runner
        self._actions = actions
        self._connectors = connectors
        self._secrets = secrets
        self._queue = queue
        self._decisions = decisions
        self._approver = approver
        self._enrollment = enrollment
        self._grants = grants
        self._after_unlock = after_unlock
        self._status = status
        self._vaults = vaults
        self._following = following
        self._sessions = sessions
        self._credentials = credentials
        self._sign_ins = sign_ins
        self._trusting = trusting
        self._fetching = fetching
        self._upkeep = upkeep
        self._hubs = hubs
        self._passkeys = passkeys
        self._review = review
        self._stop = stop
        self._needs_token = needs_token

    def app(self) -> Starlette:
        """The ASGI application of this socket: every route exists on every socket, and says no where it must."""
        return Starlette(
            routes=[self._route(spec) for spec in ROUTES], exception_handlers={404: _no_route, 405: _no_route}
        )

    def _route(self, spec: RouteSpec) -> Route:
        handler: Callable[[Request], Awaitable[Response]] = getattr(self, spec.handler)

        async def guarded(request: Request) -> Response:
            try:
                session = request.state.session = self._session_of(request)
            except AileronError as error:
                await drained(request.receive)
                return failure_answer(error.failure)
            if self._scope not in spec.scopes:
                await drained(request.receive)
                await self._audit.caller_refused(self._scope, f"{spec.method} {spec.path}", session)
                return failure_answer(_not_for_agents(spec).failure)
            try:
                answer = await handler(request)
                self._check_still_open(session)
                return answer
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

    def _check_still_open(self, session: str) -> None:
        """An answer that was waited for is not said to a session that ended meanwhile. AileronError(unauthorized)."""
        if self._scope is Scope.AGENT:
            self._sessions.check_open(session)

    # runs

    async def run_action(self, request: Request) -> Response:
        """The one door."""
        asked = await _body(request, RunRequest)
        invocation = Invocation(
            action=request.path_params["name"],
            args=asked.args,
            scope=self._scope,
            session=request.state.session,
            binding=asked.binding,
            idempotency_key=request.headers.get("idempotency-key"),
            again=asked.again,
        )
        if asked.dry_run:
            return as_json({"plan": (await self._runner.dry_run(invocation))})
        return run_answer(await self._runner.submit(invocation, _wait_s(request, DEFAULT_WAIT_S)), self._review)

    async def show_run(self, request: Request) -> Response:
        """Where a run is, and its outcome."""
        run_id, session = request.path_params["id"], self._seen_by(request)
        look = lambda: query.run_state(self._ledger, run_id, session)  # noqa: E731 - two words, used once
        return as_json(await self._following.state(look, _wait_s(request, 0.0), _seen_progress(request)))

    async def approval_result(self, request: Request) -> Response:
        """Always 200 with `status`: what became of an ask."""
        asked, session = request.path_params["id"], self._seen_by(request)
        look = lambda: self._queue.result(asked, session)  # noqa: E731 - two words, used once
        return as_json(await self._following.state(look, _wait_s(request, 0.0), _seen_progress(request)))

    # actions

    async def list_actions(self, _request: Request) -> Response:
        """Every action file, broken ones with their problem."""
        return as_json({"actions": await self._actions.listed()})

    async def show_action(self, request: Request) -> Response:
        """One action, whole."""
        return as_json(await self._actions.show(request.path_params["name"]))

    async def add_action(self, request: Request) -> Response:
        """Install an action file."""
        asked = await _body(request, _AddAction)
        return _consent(await self._actions.add(asked.text, asked.file, replace=asked.replace))

    async def change_action(self, request: Request) -> Response:
        """Enable or disable."""
        asked = await _body(request, _ChangeAction)
        await self._actions.enable(request.path_params["name"], asked.enabled)
        return as_json({"name": request.path_params["name"], "enabled": asked.enabled})

    async def remove_action(self, request: Request) -> Response:
        """Delete an action file."""
        await self._actions.remove(request.path_params["name"])
        return as_json({"removed": request.path_params["name"]})

    # approvals

    async def list_approvals(self, _request: Request) -> Response:
        """What waits for a person."""
        return as_json({"approvals": await self._queue.listed()})

    async def show_approval(self, request: Request) -> Response:
        """One ask with its frozen plan."""
        return as_json(await self._queue.show(request.path_params["id"]))

    async def decide(self, request: Request) -> Response:
        """A person's decision; what they approve begins at once, or is done, or held."""
        asked = await _body(request, Decision)
        return as_json(await self._decisions.decide(request.path_params["id"], asked, self._scope.value))

    async def edit(self, request: Request) -> Response:
        """Other arguments, as something that may be approved in place of what was asked."""
        asked = await _body(request, _Edit)
        return as_json(await self._queue.edit(request.path_params["id"], asked.args))

    async def preview(self, request: Request) -> Response:
        """What would be changed, read now, sealed for the approver who asks."""
        asked = await _body(request, PreviewRequest)
        return as_json(await self._decisions.preview(request.path_params["id"], asked, self._scope))

    async def ask_back(self, request: Request) -> Response:
        """A person's question to whoever asked."""
        asked = await _body(request, _Question)
        return as_json(await self._queue.ask_back(request.path_params["id"], asked.question))

    async def answer(self, request: Request) -> Response:
        """The answer to it."""
        asked = await _body(request, _Answer)
        return as_json(await self._queue.answer(request.path_params["id"], asked.answer, self._seen_by(request)))

    async def show_approver(self, _request: Request) -> Response:
        """Whether decisions are signed, and with which key."""
        return as_json(self._approver.facts())

    async def appoint(self, request: Request) -> Response:
        """Name who decides."""
        asked = await _body(request, Appointment)
        return as_json(await self._enrollment.appoint(asked, self._scope))

    async def inventory(self, _request: Request) -> Response:
        """What would be agreed to with an approver's key."""
        return as_json(await self._enrollment.inventory())

    async def challenge(self, request: Request) -> Response:
        """What a passkey has to sign for a decision."""
        asked = await _body(request, _Challenge)
        approval_id = request.path_params["id"]
        return as_json(await self._passkeys.challenge(approval_id, asked.digest, asked.decision, asked.reason))

    async def list_passkeys(self, _request: Request) -> Response:
        """The passkeys that decide."""
        return as_json({"passkeys": self._passkeys.listed()})

    async def passkey_options(self, request: Request) -> Response:
        """What a browser needs to make one."""
        return as_json(self._passkeys.registration((await _body(request, _PasskeyName)).name))

    async def enrol_passkey(self, request: Request) -> Response:
        """Ask whether one that was made may decide."""
        return _consent(await self._passkeys.register(await _body(request, PasskeyMade)))

    async def revoke_passkey(self, request: Request) -> Response:
        """Let one decide nothing any more."""
        await self._passkeys.revoke(request.path_params["id"])
        return as_json({"removed": request.path_params["id"]})

    async def list_grants(self, _request: Request) -> Response:
        """The standing grants in force."""
        return as_json({"grants": await self._grants.listed()})

    async def add_grant(self, request: Request) -> Response:
        """Ask for a standing grant."""
        asked = await _body(request, _AddGrant)
        return _consent(await self._grants.add(asked.action, asked.constraints, asked.uses, asked.for_s, asked.binding))

    async def revoke_grant(self, request: Request) -> Response:
        """End a standing grant."""
        await self._grants.revoke(request.path_params["id"])
        return as_json({"removed": request.path_params["id"]})

    async def cancel(self, request: Request) -> Response:
        """Take a question back, or an approval that was not used."""
        return as_json(await self._queue.cancel(request.path_params["id"], self._scope.value, self._seen_by(request)))

    # connectors, bindings, vault

    async def list_connectors(self, _request: Request) -> Response:
        """What is installed."""
        return as_json({"connectors": await self._connectors.listed()})

    async def install_connector(self, request: Request) -> Response:
        """Install from a directory or a tarball on this machine."""
        asked = await _body(request, _Install)
        return _consent(await self._connectors.install(asked.path, asked.on_conflict))

    async def remove_connector(self, request: Request) -> Response:
        """Remove one by its hash."""
        await self._connectors.remove(request.path_params["hash"])
        return as_json({"removed": request.path_params["hash"]})

    async def list_updates(self, request: Request) -> Response:
        """Which newer versions there are of what installed actions use."""
        prerelease = request.query_params.get("prerelease") == "true"
        return as_json({"updates": await self._upkeep.updates(prerelease=prerelease)})

    async def verify_connectors(self, _request: Request) -> Response:
        """Hash all that is installed again."""
        return as_json({"connectors": await self._upkeep.verify()})

    async def remove_unused(self, request: Request) -> Response:
        """Remove the connectors that nothing is pinned to."""
        asked = await _body(request, _RemoveUnused)
        return as_json({"connectors": await self._upkeep.remove_unused(dry_run=asked.dry_run)})

    async def begin_fetch(self, request: Request) -> Response:
        """Fetch something published, to be shown and installed."""
        return as_json(await self._fetching.begin(await _body(request, FetchRequest)))

    async def show_fetch(self, request: Request) -> Response:
        """How a fetch is, waited for; what would be installed."""
        return as_json(await self._fetching.show(request.path_params["id"], _wait_s(request, 0.0)))

    async def resolve_fetched(self, request: Request) -> Response:
        """Say what the text of an update is to be; what would be installed then."""
        asked = await _body(request, _ResolveFetched)
        return as_json(await self._fetching.resolve(request.path_params["id"], asked.text))

    async def install_fetched(self, request: Request) -> Response:
        """Install what was fetched."""
        await _body(request, _InstallFetched)
        return _consent(await self._fetching.install(request.path_params["id"]))

    async def cancel_fetch(self, request: Request) -> Response:
        """Want it no more."""
        return as_json(await self._fetching.cancel(request.path_params["id"]))

    async def show_suite(self, request: Request) -> Response:
        """What a suite would have installed."""
        asked = await _body(request, _Suite)
        return as_json(await self._fetching.suite(asked.source, asked.text, asked.file))

    async def list_keys(self, _request: Request) -> Response:
        """Whose signatures count."""
        return as_json({"keyring": await self._trusting.listed()})

    async def look_for_key(self, request: Request) -> Response:
        """The key that a repository publishes."""
        return as_json(await self._trusting.look((await _body(request, _Authority)).authority))

    async def trust_key(self, request: Request) -> Response:
        """Let a publisher's key count."""
        asked = await _body(request, _TrustKey)
        return _consent(await self._trusting.trust_key(asked.authority, asked.key, asked.source))

    async def revoke_key(self, request: Request) -> Response:
        """Let it count no more."""
        asked = await _body(request, _RevokeKey)
        return as_json(await self._trusting.revoke(asked.authority, asked.key))

    async def search_hub(self, request: Request) -> Response:
        """What the Hub says it has, by intent and word."""
        asked = _query(request, "text", "kind")
        return as_json(await self._hubs.search(asked.get("text", ""), asked.get("kind")))

    async def show_hub_entry(self, request: Request) -> Response:
        """One artifact of the Hub."""
        return as_json(await self._hubs.entry(_query(request, "name").get("name", "")))

    async def list_bindings(self, _request: Request) -> Response:
        """Which credential serves which connector."""
        return as_json({"bindings": await self._credentials.listed()})

    async def show_binding(self, request: Request) -> Response:
        """One binding: what it is for, and what uses it."""
        return as_json(await self._credentials.show(request.path_params["name"]))

    async def add_binding(self, request: Request) -> Response:
        """Bind a stored secret to a connector."""
        asked = await _body(request, _AddBinding)
        return _consent(await self._credentials.bind(asked.connector, asked.name, asked.username, asked.secret))

    async def change_binding(self, request: Request) -> Response:
        """Bind anew, to what the connector asks for now."""
        asked = await _body(request, _ChangeBinding)
        return _consent(await self._credentials.rebind(request.path_params["name"], asked.username, asked.secret))

    async def remove_binding(self, request: Request) -> Response:
        """Revoke a binding."""
        return as_json(await self._credentials.unbind(request.path_params["name"]))

    async def begin_sign_in(self, request: Request) -> Response:
        """Begin a sign-in: where the person has to go."""
        asked = await _body(request, _BeginSignIn)
        return as_json(await self._sign_ins.begin(asked.connector, asked.name, asked.flow, replace=asked.replace))

    async def show_sign_in(self, request: Request) -> Response:
        """How a sign-in is, waited for."""
        return as_json(await self._sign_ins.show(request.path_params["id"], _wait_s(request, 0.0)))

    async def cancel_sign_in(self, request: Request) -> Response:
        """End a sign-in."""
        return as_json(await self._sign_ins.cancel(request.path_params["id"]))

    async def vault_status(self, _request: Request) -> Response:
        """Whether there is a vault and whether it is locked."""
        return as_json(self._vaults.status())

    async def vault_init(self, request: Request) -> Response:
        """Create the vault and leave it unlocked; its recovery codes are said this once."""
        asked = await _body(request, _InitVault)
        codes = await self._vaults.create(
            Secret(asked.passphrase.encode()), recovery_codes=asked.recovery_codes, keyring=_keyring_key(asked.keyring)
        )
        return as_json({**self._vaults.status(), "codes": [code.reveal().decode() for code in codes]})

    async def vault_unlock(self, request: Request) -> Response:
        """Unlock until the daemon ends, someone locks it or it is idle."""
        asked = await _body(request, _Unlock)
        if (asked.passphrase is None) == (asked.keyring_key_base64 is None):
            raise AileronError(FailureClass.INVALID_REQUEST, "one of passphrase and keyring_key_base64 is expected")
        if asked.passphrase is not None:
            opening = Opening(Secret(asked.passphrase.encode()))
        else:
            opening = Opening(_from_base64("keyring_key_base64", asked.keyring_key_base64 or ""), is_from_keyring=True)
        await self._vaults.unlock(opening)
        await self._after_unlock.catch_up()
        return as_json(self._vaults.status())

    async def vault_lock(self, _request: Request) -> Response:
        """Forget the key."""
        await self._vaults.lock()
        return as_json(self._vaults.status())

    async def vault_rotate(self, request: Request) -> Response:
        """Another passphrase and another key; its recovery codes are said this once."""
        asked = await _body(request, _RotateVault)
        codes = await self._vaults.rotate(
            Secret(asked.passphrase.encode()),
            Secret(asked.new_passphrase.encode()),
            recovery_codes=asked.recovery_codes,
            keyring=_keyring_key(asked.keyring),
        )
        await self._after_unlock.catch_up()
        return as_json({**self._vaults.status(), "codes": [code.reveal().decode() for code in codes]})

    async def vault_backup(self, request: Request) -> Response:
        """Write a copy of the sealed file."""
        asked = await _body(request, _BackUpVault)
        typed = None if asked.passphrase is None else Secret(asked.passphrase.encode())
        return as_json(await self._vaults.backup(asked.file, typed, replace=asked.replace))

    async def vault_restore(self, request: Request) -> Response:
        """Put a copy in the vault's place, locked."""
        asked = await _body(request, _RestoreVault)
        found = await self._vaults.restore(asked.file, Secret(asked.passphrase.encode()))
        return as_json({**self._vaults.status(), **found})

    async def list_secrets(self, _request: Request) -> Response:
        """Names and dates, never values."""
        return as_json({"secrets": self._secrets.listed()})

    async def set_secret(self, request: Request) -> Response:
        """Store a secret under a name."""
        asked = await _body(request, _SetSecret)
        value = _from_base64("value_base64", asked.value_base64)
        return _consent(await self._secrets.set(request.path_params["name"], value))

    async def remove_secret(self, request: Request) -> Response:
        """Forget a secret."""
        await self._secrets.remove(request.path_params["name"])
        return as_json({"removed": request.path_params["name"]})

    # sessions

    async def list_sessions(self, request: Request) -> Response:
        """Who asked, and asks: the newest first. `pid`: only the one that started this process."""
        asked = request.query_params.get("pid")
        if asked is None:
            return as_json({"sessions": await self._sessions.newest()})
        if not (asked.isascii() and asked.isdigit() and len(asked) <= _MAX_PID_DIGITS):
            raise AileronError(FailureClass.INVALID_REQUEST, "pid is not the number of a process")
        return as_json({"sessions": await self._sessions.of_process(int(asked))})

    async def open_session(self, request: Request) -> Response:
        """Begin a session; its token is said this once."""
        asked = await _body(request, _OpenSession)
        return as_json(await self._sessions.open(asked.agent, asked.folder, asked.for_s, asked.pid))

    async def show_session(self, request: Request) -> Response:
        """One session."""
        return as_json(await self._sessions.show(request.path_params["id"]))

    async def end_session(self, request: Request) -> Response:
        """End a session: its token opens nothing any more."""
        asked = await _body(request, _EndSession)
        return as_json(await self._sessions.end(request.path_params["id"], asked.exit_code))

    # audit and the daemon itself

    async def list_audit(self, request: Request) -> Response:
        """Events, newest first, filtered; waited for, where there are none yet."""
        wanted = {name: value for name, value in request.query_params.items() if name != "wait"}
        return as_json({"events": await wait_events(self._ledger, wanted, _wait_s(request, 0.0))})

    async def show_audit(self, request: Request) -> Response:
        """One run with all its events."""
        return as_json(await query.run_with_events(self._ledger, request.path_params["id"]))

    async def verify_audit(self, _request: Request) -> Response:
        """Check the chain, from the file."""
        return as_json(await verified(self._home))

    async def status(self, _request: Request) -> Response:
        """What runs, since when, and which layers are in force."""
        return as_json(await self._status.facts())

    async def health(self, _request: Request) -> Response:
        """Alive."""
        return as_json({"status": "ok"})

    async def stop(self, _request: Request) -> Response:
        """Stop the daemon after this answer."""
        self._stop()
        return as_json({"stopping": True})

    def _session_of(self, request: Request) -> str:
        """Who asks. AileronError(unauthorized) for a token that is not good, and for none where one is needed."""
        if self._scope is Scope.OPERATOR:
            return LOCAL_SESSION
        token = token_shown(request.headers.getlist("authorization"))
        if token is not None:
            return self._sessions.session_of(token)
        if self._needs_token:
            raise no_token()
        return LOCAL_SESSION

    def _seen_by(self, request: Request) -> str | None:
        """The only session whose runs this caller sees; None for all."""
        session: str = request.state.session
        return session if self._scope is Scope.AGENT else None


async def _no_route(request: Request, _: Exception) -> Response:
    """A path or a method that is no route's: a failure like any other."""
    await drained(request.receive)
    return failure_answer(
        AileronError(FailureClass.NOT_FOUND, f"there is no {request.method} {request.url.path[:200]!a}").failure
    )


def _from_base64(name: str, text: str) -> Secret:
    try:
        return Secret(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise AileronError(FailureClass.INVALID_REQUEST, f"{name} is not base64") from None


def _keyring_key(asked: _KeyringKey | None) -> KeyringKey | None:
    return None if asked is None else KeyringKey(asked.id, _from_base64("key_base64", asked.key_base64))


def _consent(answer: dict[str, Any] | ConsentAnswer | ConsentsAnswer) -> Response:
    """What was done, or 202 that a person must agree to it first."""
    return as_json(answer, 202 if isinstance(answer, ConsentAnswer | ConsentsAnswer) else 200)


async def _body(request: Request, shape: type[_T]) -> _T:
    """The body as `shape`. AileronError invalid_request; its message never quotes the body, which may be a passphrase."""
    data = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise AileronError(FailureClass.INVALID_REQUEST, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise AileronError(FailureClass.INVALID_REQUEST, f"the body did not arrive within {BODY_S:.0f} s") from None
    except ClientDisconnect:  # nobody reads the answer
        raise AileronError(FailureClass.INVALID_REQUEST, "the request ended before its body did") from None
    try:
        return msgspec.json.decode(bytes(data) or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, f"the body is not as expected: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AileronError(FailureClass.INVALID_REQUEST, "the body is not JSON") from None


def _query(request: Request, *known: str) -> dict[str, str]:
    """The query, each key once. AileronError(invalid_request) for a key that is not known."""
    found = request.query_params.multi_items()
    names = [name for name, _ in found]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise AileronError(
                FailureClass.INVALID_REQUEST, f"{name[:40]!r} in the query; expected {', '.join(known)}, each once"
            )
    return dict(found)


def _wait_s(request: Request, default: float) -> float:
    text = request.query_params.get("wait")
    if text is None:
        return default
    with contextlib.suppress(ValueError):
        wait_s = float(text)
        if 0 <= wait_s <= MAX_WAIT_S:
            return wait_s
    raise AileronError(
        FailureClass.INVALID_REQUEST, f"wait is {text[:20]!r}, expected seconds from 0 to {MAX_WAIT_S:.0f}"
    )


def _seen_progress(request: Request) -> int | None:
    """The number of the report that a watcher has; None for whoever does not want to be woken by one."""
    text = request.query_params.get("progress")
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_NUMBER_DIGITS:
        return int(text)
    raise AileronError(
        FailureClass.INVALID_REQUEST,
        f"progress is {text[:20]!r}, expected the number of the report that was seen last, or 0",
    )


def _not_for_agents(spec: RouteSpec) -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"{spec.method} {spec.path} is not served on the agent socket: a person uses the operator socket",
        boundary=Boundary.USER,
    )

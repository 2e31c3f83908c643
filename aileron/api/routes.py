"""Every route of the daemon: the scopes that can call it, its handler, and the types of its bodies.

Pure: one table. The daemon serves it (daemon/http/api/routes.py), `openapi.py` describes it, and
docs/reference/http-api.md documents it; tests compare all three with each other.
"""

from __future__ import annotations

from types import UnionType
from typing import Final, NamedTuple

import msgspec

from aileron.api.actions import (
    ActionDetail,
    ActionList,
    ActionResumed,
    ActionSwitched,
    AddAction,
    AddedAction,
    ResumeAction,
    SwitchAction,
)
from aileron.api.approvals import (
    Answered,
    AnswerQuestion,
    ApprovalList,
    AskBack,
    Asked,
    ChallengeRequest,
    ConsentAnswer,
    ConsentsAnswer,
    Decision,
    Edited,
    EditRequest,
    PreviewRequest,
    Question,
    SealedPreview,
    Settled,
)
from aileron.api.approver import (
    Appointment,
    ApproverFacts,
    ApproverInventory,
    ApproverNamed,
    Challenge,
    MakePasskey,
    PasskeyList,
    PasskeyMade,
    PasskeyOptions,
)
from aileron.api.audit import AUDIT_FILTERS, EventList, RecordOfRun, Verification
from aileron.api.bindings import (
    AddBinding,
    BeginSignIn,
    BindingDetail,
    BindingEntry,
    BindingList,
    ChangeBinding,
    RevokedBinding,
    SignInState,
)
from aileron.api.body import Body
from aileron.api.connectors import ConnectorList, InstallConnector, InstalledConnector, RemoveUnused, UpdateList
from aileron.api.daemon import Health, Removed, Status, Stopping
from aileron.api.fetches import (
    Fetch,
    FetchRequest,
    Installed,
    InstallFetched,
    ReadSuite,
    ResolveFetched,
    SuiteRead,
)
from aileron.api.grants import AddGrant, GrantList
from aileron.api.publishers import (
    HubDetail,
    HubFound,
    KeyList,
    LookForKey,
    PublishedKey,
    RevokedKeys,
    RevokeKey,
    TrustedKeys,
    TrustKey,
)
from aileron.api.runs import PendingAnswer, PlanAnswer, RunAnswer, RunningAnswer, RunRequest, RunState
from aileron.api.secrets import (
    BackUpVault,
    InitVault,
    NewVault,
    RestoredVault,
    RestoreVault,
    RotateVault,
    SecretList,
    SecretStored,
    SetSecret,
    UnlockVault,
    VaultBackup,
    VaultState,
)
from aileron.api.services import AddService, RemovedService, ServiceList, SignInToService, UpdateService
from aileron.api.sessions import EndSession, NewSession, OpenSession, Session, SessionDetails, SessionList
from aileron.model.invocation import Scope

__all__ = ["ROUTES", "RouteSpec"]


class RouteSpec(NamedTuple):
    """A route: the scopes that can call it, the name of its handler in the daemon, and the types of its bodies, which
    this package defines. `answer` is the type of the 200 response; None if there is no such response, or if it is a
    document of another kind. `later` is the type of the 202 response: a person must decide first, or a run goes on.
    Every other response is an ErrorAnswer, with the status of its class. `query` lists the known query parameters.
    """

    method: str
    path: str
    handler: str
    scopes: frozenset[Scope]
    answer: type[msgspec.Struct] | UnionType | None
    body: type[Body] | None = None
    later: type[msgspec.Struct] | UnionType | None = None
    query: tuple[str, ...] = ()


_ALL: Final = frozenset(Scope)
_OPERATOR: Final = frozenset({Scope.OPERATOR})

ROUTES: Final = (
    RouteSpec("GET", "/openapi.json", "daemon.openapi", _ALL, None),
    RouteSpec("GET", "/healthz", "daemon.health", _ALL, Health),
    RouteSpec("GET", "/v1/actions", "actions.list_actions", _ALL, ActionList),
    RouteSpec("POST", "/v1/actions", "actions.add_action", _OPERATOR, AddedAction, body=AddAction, later=ConsentAnswer),
    RouteSpec("GET", "/v1/actions/{name}", "actions.show_action", _ALL, ActionDetail),
    RouteSpec("PATCH", "/v1/actions/{name}", "actions.change_action", _OPERATOR, ActionSwitched, body=SwitchAction),
    RouteSpec(
        "POST",
        "/v1/actions/{name}/resume",
        "actions.resume_action",
        _OPERATOR,
        ActionResumed,
        body=ResumeAction,
        later=ConsentsAnswer,
    ),
    RouteSpec("DELETE", "/v1/actions/{name}", "actions.remove_action", _OPERATOR, Removed),
    RouteSpec(
        "POST",
        "/v1/actions/{name}/run",
        "actions.run_action",
        _ALL,
        RunAnswer | PlanAnswer,
        body=RunRequest,
        later=PendingAnswer | RunningAnswer,
        query=("wait",),
    ),
    RouteSpec(
        "GET",
        "/v1/runs/{id}",
        "actions.show_run",
        _ALL,
        RunState,
        query=(
            "wait",
            "progress",
        ),
    ),
    RouteSpec("GET", "/v1/action-approvals", "approvals.list_approvals", _OPERATOR, ApprovalList),
    RouteSpec("GET", "/v1/action-approvals/{id}", "approvals.show_approval", _OPERATOR, Question),
    RouteSpec(
        "GET",
        "/v1/action-approvals/{id}/result",
        "approvals.approval_result",
        _ALL,
        RunState,
        query=(
            "wait",
            "progress",
        ),
    ),
    RouteSpec("POST", "/v1/action-approvals/{id}/decide", "approvals.decide", _OPERATOR, Settled, body=Decision),
    RouteSpec(
        "POST",
        "/v1/action-approvals/{id}/challenge",
        "approvals.challenge",
        _OPERATOR,
        Challenge,
        body=ChallengeRequest,
    ),
    RouteSpec("POST", "/v1/action-approvals/{id}/cancel", "approvals.cancel", _ALL, Settled),
    RouteSpec("POST", "/v1/action-approvals/{id}/edit", "approvals.edit", _OPERATOR, Edited, body=EditRequest),
    RouteSpec(
        "POST", "/v1/action-approvals/{id}/preview", "approvals.preview", _OPERATOR, SealedPreview, body=PreviewRequest
    ),
    RouteSpec("POST", "/v1/action-approvals/{id}/ask", "approvals.ask_back", _OPERATOR, Asked, body=AskBack),
    RouteSpec("POST", "/v1/action-approvals/{id}/answer", "approvals.answer", _ALL, Answered, body=AnswerQuestion),
    RouteSpec("GET", "/v1/approver", "approver.show_approver", _OPERATOR, ApproverFacts),
    RouteSpec("POST", "/v1/approver", "approver.appoint", _OPERATOR, ApproverNamed, body=Appointment),
    RouteSpec("GET", "/v1/approver/inventory", "approver.inventory", _OPERATOR, ApproverInventory),
    RouteSpec("GET", "/v1/passkeys", "approver.list_passkeys", _OPERATOR, PasskeyList),
    RouteSpec("POST", "/v1/passkeys", "approver.enrol_passkey", _OPERATOR, None, body=PasskeyMade, later=ConsentAnswer),
    RouteSpec("POST", "/v1/passkeys/options", "approver.passkey_options", _OPERATOR, PasskeyOptions, body=MakePasskey),
    RouteSpec("DELETE", "/v1/passkeys/{id}", "approver.revoke_passkey", _OPERATOR, Removed),
    RouteSpec("GET", "/v1/grants", "grants.list_grants", _OPERATOR, GrantList),
    RouteSpec("POST", "/v1/grants", "grants.add_grant", _OPERATOR, None, body=AddGrant, later=ConsentAnswer),
    RouteSpec("DELETE", "/v1/grants/{id}", "grants.revoke_grant", _OPERATOR, Removed),
    RouteSpec("GET", "/v1/connectors", "connectors.list_connectors", _OPERATOR, ConnectorList),
    RouteSpec(
        "POST",
        "/v1/connectors",
        "connectors.install_connector",
        _OPERATOR,
        InstalledConnector,
        body=InstallConnector,
        later=ConsentAnswer,
    ),
    RouteSpec("GET", "/v1/connectors/updates", "connectors.list_updates", _OPERATOR, UpdateList, query=("prerelease",)),
    RouteSpec("POST", "/v1/connectors/verify", "connectors.verify_connectors", _OPERATOR, ConnectorList),
    RouteSpec(
        "POST", "/v1/connectors/remove-unused", "connectors.remove_unused", _OPERATOR, ConnectorList, body=RemoveUnused
    ),
    RouteSpec("DELETE", "/v1/connectors/{hash}", "connectors.remove_connector", _OPERATOR, Removed),
    RouteSpec("POST", "/v1/fetches", "connectors.begin_fetch", _OPERATOR, Fetch, body=FetchRequest),
    RouteSpec("GET", "/v1/fetches/{id}", "connectors.show_fetch", _OPERATOR, Fetch, query=("wait",)),
    RouteSpec("POST", "/v1/fetches/{id}/resolve", "connectors.resolve_fetched", _OPERATOR, Fetch, body=ResolveFetched),
    RouteSpec(
        "POST",
        "/v1/fetches/{id}/install",
        "connectors.install_fetched",
        _OPERATOR,
        Installed,
        body=InstallFetched,
        later=ConsentAnswer,
    ),
    RouteSpec("DELETE", "/v1/fetches/{id}", "connectors.cancel_fetch", _OPERATOR, Fetch),
    RouteSpec("POST", "/v1/suites", "connectors.show_suite", _OPERATOR, SuiteRead, body=ReadSuite),
    RouteSpec("GET", "/v1/keyring", "publishers.list_keys", _OPERATOR, KeyList),
    RouteSpec(
        "POST", "/v1/keyring", "publishers.trust_key", _OPERATOR, TrustedKeys, body=TrustKey, later=ConsentAnswer
    ),
    RouteSpec("POST", "/v1/keyring/look", "publishers.look_for_key", _OPERATOR, PublishedKey, body=LookForKey),
    RouteSpec("POST", "/v1/keyring/revoke", "publishers.revoke_key", _OPERATOR, RevokedKeys, body=RevokeKey),
    RouteSpec(
        "GET",
        "/v1/hub",
        "publishers.search_hub",
        _OPERATOR,
        HubFound,
        query=(
            "text",
            "kind",
        ),
    ),
    RouteSpec("GET", "/v1/hub/entry", "publishers.show_hub_entry", _OPERATOR, HubDetail, query=("name",)),
    RouteSpec("GET", "/v1/services", "services.list_services", _OPERATOR, ServiceList),
    RouteSpec(
        "POST", "/v1/services", "services.add_service", _OPERATOR, Installed, body=AddService, later=ConsentAnswer
    ),
    RouteSpec("POST", "/v1/services/sign-ins", "services.begin_sign_in", _OPERATOR, SignInState, body=SignInToService),
    RouteSpec(
        "POST",
        "/v1/services/{name}/update",
        "services.update_service",
        _OPERATOR,
        Installed,
        body=UpdateService,
        later=ConsentAnswer,
    ),
    RouteSpec("DELETE", "/v1/services/{name}", "services.remove_service", _OPERATOR, RemovedService),
    RouteSpec("GET", "/v1/bindings", "bindings.list_bindings", _OPERATOR, BindingList),
    RouteSpec(
        "POST", "/v1/bindings", "bindings.add_binding", _OPERATOR, BindingEntry, body=AddBinding, later=ConsentAnswer
    ),
    RouteSpec("GET", "/v1/bindings/{name:path}", "bindings.show_binding", _OPERATOR, BindingDetail),
    RouteSpec(
        "PATCH",
        "/v1/bindings/{name:path}",
        "bindings.change_binding",
        _OPERATOR,
        BindingEntry,
        body=ChangeBinding,
        later=ConsentAnswer,
    ),
    RouteSpec("DELETE", "/v1/bindings/{name:path}", "bindings.remove_binding", _OPERATOR, RevokedBinding),
    RouteSpec("POST", "/v1/sign-ins", "bindings.begin_sign_in", _OPERATOR, SignInState, body=BeginSignIn),
    RouteSpec("GET", "/v1/sign-ins/{id}", "bindings.show_sign_in", _OPERATOR, SignInState, query=("wait",)),
    RouteSpec("DELETE", "/v1/sign-ins/{id}", "bindings.cancel_sign_in", _OPERATOR, SignInState),
    RouteSpec("GET", "/v1/vault/status", "vault.vault_status", _OPERATOR, VaultState),
    RouteSpec("POST", "/v1/vault/init", "vault.vault_init", _OPERATOR, NewVault, body=InitVault),
    RouteSpec("POST", "/v1/vault/unlock", "vault.vault_unlock", _OPERATOR, VaultState, body=UnlockVault),
    RouteSpec("POST", "/v1/vault/lock", "vault.vault_lock", _OPERATOR, VaultState),
    RouteSpec("POST", "/v1/vault/rotate", "vault.vault_rotate", _OPERATOR, NewVault, body=RotateVault),
    RouteSpec("POST", "/v1/vault/backup", "vault.vault_backup", _OPERATOR, VaultBackup, body=BackUpVault),
    RouteSpec("POST", "/v1/vault/restore", "vault.vault_restore", _OPERATOR, RestoredVault, body=RestoreVault),
    RouteSpec("GET", "/v1/secrets", "vault.list_secrets", _OPERATOR, SecretList),
    RouteSpec(
        "PUT", "/v1/secrets/{name}", "vault.set_secret", _OPERATOR, SecretStored, body=SetSecret, later=ConsentAnswer
    ),
    RouteSpec("DELETE", "/v1/secrets/{name}", "vault.remove_secret", _OPERATOR, Removed),
    RouteSpec("GET", "/v1/sessions", "sessions.list_sessions", _OPERATOR, SessionList, query=("pid",)),
    RouteSpec("POST", "/v1/sessions", "sessions.open_session", _OPERATOR, NewSession, body=OpenSession),
    RouteSpec("GET", "/v1/sessions/{id}", "sessions.show_session", _OPERATOR, SessionDetails),
    RouteSpec("POST", "/v1/sessions/{id}/end", "sessions.end_session", _OPERATOR, Session, body=EndSession),
    RouteSpec("GET", "/v1/audit", "daemon.list_audit", _OPERATOR, EventList, query=(*AUDIT_FILTERS, "wait")),
    RouteSpec("GET", "/v1/audit/verify", "daemon.verify_audit", _OPERATOR, Verification),
    RouteSpec("GET", "/v1/audit/{id}", "daemon.show_audit", _OPERATOR, RecordOfRun),
    RouteSpec("GET", "/v1/status", "daemon.status", _ALL, Status),
    RouteSpec("POST", "/v1/stop", "daemon.stop", _OPERATOR, Stopping),
)

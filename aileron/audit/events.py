"""The closed set of records: one frozen type for each kind of event, with flat facts.

Pure values. Only the facts of these types are recorded. There is no field for a credential, a header, a body or a query
string, so none can be recorded by mistake. Text of a connector or an upstream (`connector.audit`, failure messages) is
hostile: it is stored unchanged but bounded, and surfaces show it only with hidden characters made visible.

Rules
- An event is named `subject.what_happened`, in lower case with underscores.
- A fact has the same name in every event that has it. `run`, `session`, `action`, `connector` and `class` can be searched for.
- No fact has the name of a value that a row has besides its facts (`at`, `hash`, `previous`), because surfaces show
  both in one object.
- Absent facts are left out, so that a fact that is added to a type later does not change earlier records.
- An event type is never removed, and never changes its meaning, because old ledgers must stay readable.

Source: docs/reference/audit-events.md, which a test compares with this module. Not here: when events are written
(log.py), how they are chained (ledger/chain.py; a row adds `seq` and `at_us`).

>>> facts_of(VaultLocked(reason="asked"))
{'type': 'vault.locked', 'reason': 'asked'}
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from aileron.model.failure import Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.json_value import JSONMembers, JSONObject
from aileron.model.outcome import RunStatus

__all__ = [
    "EVENT_TYPES",
    "ActionAdded",
    "ActionDisabled",
    "ActionEnabled",
    "ActionRemoved",
    "ApprovalAnswered",
    "ApprovalAsked",
    "ApprovalCancelled",
    "ApprovalDecided",
    "ApprovalEdited",
    "ApprovalExpired",
    "ApprovalPreviewed",
    "ApprovalRedeemed",
    "ApprovalRefused",
    "ApprovalRequested",
    "ApproverSet",
    "BindingCreated",
    "BindingRenewalFailed",
    "BindingRenewed",
    "BindingRenewing",
    "BindingRevoked",
    "CallerRefused",
    "ConnectorActedEarly",
    "ConnectorActedEarlyHyphen",
    "ConnectorAudit",
    "ConnectorInstalled",
    "ConnectorRemoved",
    "ConsentAgreed",
    "ConsentEnded",
    "DaemonStarted",
    "DaemonStopped",
    "EgressDenied",
    "EgressEffects",
    "EgressEnvelope",
    "EgressEvent",
    "EgressFinished",
    "EgressSending",
    "EgressSubmitted",
    "Event",
    "FetchEnded",
    "FetchStarted",
    "Genesis",
    "GrantRevoked",
    "GrantUsed",
    "HostAllowed",
    "HostAsked",
    "InjectionAdded",
    "InjectionAnswered",
    "InjectionCalled",
    "InjectionSkipped",
    "KeyRevoked",
    "KeyTrusted",
    "Notice",
    "PageLocked",
    "PageUnlocked",
    "PasskeyAdded",
    "PasskeyRemoved",
    "PlannedStep",
    "RefusedReason",
    "RefusedTry",
    "RunFinished",
    "RunRefused",
    "RunRequested",
    "RunRetried",
    "RunStarted",
    "RunUnknown",
    "SecretFetchFailed",
    "SecretFetching",
    "SecretRemoved",
    "SecretSet",
    "SessionEnded",
    "SessionStarted",
    "SettingsChanged",
    "SignInEnded",
    "SignInStarted",
    "ToolResumed",
    "ToolSuspended",
    "TunnelClosed",
    "TunnelOpened",
    "TunnelRefused",
    "VaultBackedUp",
    "VaultChanged",
    "VaultCreated",
    "VaultLocked",
    "VaultRestored",
    "VaultRestoring",
    "VaultRotated",
    "VaultUnlockFailed",
    "VaultUnlocked",
    "facts_of",
]


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base class of all events. It specifies only how events are encoded."""


# The ledger itself


class Genesis(_Event, frozen=True, kw_only=True, tag="genesis"):
    """The first event of every ledger, written when the ledger is created (ledger/sqlite.py)."""

    home: str
    """Home directory when the ledger was created."""
    version: str
    """Version of Aileron that created the ledger."""
    ledger: str
    """A random name of 128 bits that distinguishes this ledger from another ledger of the same home."""


# Runs


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a plan in `run.requested`: its operation, the hosts that it can reach, and its account."""

    id: str
    connector: str
    version: str
    hash: str
    op: str
    hosts: list[str]
    credential: str | None
    idempotent: bool
    account: str | None = None
    """Account of the credential, as the provider or the user named it."""
    scope: str | None = None
    """Purpose of the credential, in the words of the connector's publisher."""


class RunRequested(_Event, frozen=True, kw_only=True, tag="run.requested"):
    """An action was requested, and the request resolved to a plan. This event is on disk before anything else happens."""

    run: str
    """The run's id, which is also the audit id."""
    session: str
    scope: Scope
    action: str
    action_version: str
    action_digest: str
    """`sha256:…` of the action file's bytes."""
    plan_digest: str
    """`sha256:…` of the complete plan, which a person approves."""
    args: JSONObject
    """The complete arguments of the invocation."""
    steps: list[PlannedStep]
    claim: str | None = None
    """`sha256:…` of session, idempotency key and request. The ledger adds this digest to the event, and stores the key
    itself outside the chain.
    """
    again: str | None = None
    """Id of an earlier run of the same plan with an unknown outcome, which the caller knowingly repeats."""
    party: str | None = None
    """Party whose share the run counts against. Absent if that is the run's session or, on the operator's socket, the person."""


class RunRefused(_Event, frozen=True, kw_only=True, tag="run.refused"):
    """A requested action did not resolve to a plan. Nothing else is recorded about the request, and nothing was done."""

    run: str
    """The request's own id, which the caller gets as the audit id."""
    session: str
    scope: Scope
    action: str
    """The requested name, at most 200 characters; perhaps not the name of an action."""
    failure_class: FailureClass = msgspec.field(name="class")
    message: str


class RunStarted(_Event, frozen=True, kw_only=True, tag="run.started"):
    """A step is about to run. On disk before the step's jail receives anything."""

    run: str
    step: str
    connector: str
    op: str
    attempt: int
    """Number of the attempt, from 1."""
    layers: list[str]
    """Names of the layers of isolation that are in force."""
    args: str | None = None
    """Digest (`sha256:…`) of the step's arguments in canonical JSON, if they include results of earlier steps;
    otherwise the plan has the arguments.
    """


class RunRetried(_Event, frozen=True, kw_only=True, tag="run.retried"):
    """A step failed in a way that may be transient, and is attempted again after `wait_ms`."""

    run: str
    step: str
    connector: str
    attempt: int
    """Number of the failed attempt, from 1."""
    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    wait_ms: int


class RunFinished(_Event, frozen=True, kw_only=True, tag="run.finished"):
    """A run ended and its outcome is known. On disk before any caller is notified."""

    run: str
    session: str
    action: str
    status: RunStatus
    connector: str | None = None
    """Connector of the step that started last."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")
    message: str | None = None
    boundary: Boundary | None = None
    details: JSONMembers | None = None
    """The failure's details; `{"omitted": reason}` if they could not be recorded."""
    ms: int | None = None
    """Milliseconds from the start of the run to its outcome; absent if nothing ran."""
    outcome_digest: str
    """`sha256:…` of the stored outcome, which contains the result."""


class RunUnknown(_Event, frozen=True, kw_only=True, tag="run.unknown"):
    """A run was interrupted after it started, so nobody knows whether it took effect. The run is not repeated
    automatically.
    """

    run: str
    session: str
    action: str
    connector: str | None = None
    message: str
    ms: int | None = None
    outcome_digest: str


# Requests that leave


class EgressSending(_Event, frozen=True, kw_only=True, tag="egress.sending"):
    """A request passed every check of egress, and is about to be sent.

    On disk before its first byte leaves; if `egress.finished` is missing, its outcome is unknown.
    """

    run: str
    step: str
    connector: str
    request: int
    """Number of the request in its step, from 1."""
    method: str
    host: str
    port: int
    path: str
    """Path of the request's URL, without the query."""
    credential: str | None = None
    """Name of the binding whose secret is added, KIND/SERVICE/IDENTITY."""


class EgressFinished(_Event, frozen=True, kw_only=True, tag="egress.finished"):
    """The request with the number `request` in its step ended."""

    run: str
    step: str
    connector: str
    request: int
    status: int | None = None
    """The HTTP status; absent if no response arrived."""
    bytes_up: int
    """Size of the request's body in bytes."""
    bytes_down: int
    """Size of the response's body in bytes."""
    ms: int
    address: str | None = None
    """IP address of the connection that carried the request; absent if there was none."""
    scrubbed: int = 0
    """Number of times that the response repeated the secret, which was then masked."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class EgressDenied(_Event, frozen=True, kw_only=True, tag="egress.denied"):
    """A rule of egress refused a request of a connector.

    No part of the request was sent, unless an `egress.sending` is recorded for it. On disk before the invocation ends.
    """

    run: str
    step: str
    connector: str
    request: int
    """The number that the request would have had in its step; 0 for a system call."""
    method: str
    """The request's method as the connector wrote it, at most 32 characters."""
    destination: str
    """`HOST:PORT`, or the corresponding part of an invalid URL; hostile text, at most 300 characters."""
    reason: str
    """The rule that refused the request: docs/reference/egress.md, Denials."""


class EgressEnvelope(_Event, frozen=True, kw_only=True, tag="egress.envelope"):
    """A login at a mail server is about to send a message. On disk before the message's first byte leaves.

    If `egress.submitted` is missing, nobody knows whether the server accepted the message.
    """

    run: str
    step: str
    connector: str
    request: int
    """Number of the login among the requests of its step."""
    sender: str
    """Sender of the mail message, as the server accepted it."""
    recipients: tuple[str, ...]
    """Recipients of the mail message, as the server accepted them: hostile text."""
    size: int | None = None
    """Size of the message in bytes that the connector announced; absent if the connector announced none."""


class EgressSubmitted(_Event, frozen=True, kw_only=True, tag="egress.submitted"):
    """The mail server responded to the mail message that the login sent last."""

    run: str
    step: str
    connector: str
    request: int
    size: int
    """Size of the mail message in bytes."""
    code: int
    """Code of the server's response; 200 to 299 mean that the server has accepted the message."""


class EgressEffects(_Event, frozen=True, kw_only=True, tag="egress.effects"):
    """The changes that a database transaction would make were computed, before it is committed or rolled back.

    A preview's changes are rolled back. A run's changes are those that a person saw in the preview, and are committed next.
    """

    run: str
    step: str
    connector: str
    request: int
    """Number of the login among the requests of its step."""
    digest: str
    """`sha256:…` of the statement, each row, and the number of changed rows per table."""


class ConnectorAudit(_Event, frozen=True, kw_only=True, tag="connector.audit"):
    """The connector reports something for the record. The text is hostile: a claim, not a fact."""

    run: str
    step: str
    connector: str
    event: str
    fields: JSONObject


# Questions to a person


class ApprovalRequested(_Event, frozen=True, kw_only=True, tag="approval.requested"):
    """A person must decide. The subject of the question is stored with the approval, bound to `digest`."""

    approval: str
    kind: str
    """Kind of the question's subject; `action` for a run."""
    digest: str
    expires_at_us: int
    name: str | None = None
    """Name of the action, or of the subject of a consent."""
    run: str | None = None


class ApprovalEdited(_Event, frozen=True, kw_only=True, tag="approval.edited"):
    """A person changed the arguments. They can approve the resulting plan in place of the requested plan."""

    approval: str
    digest: str
    """Digest of the new plan, which has the changed arguments."""
    args: JSONObject
    """The complete arguments of the new plan."""
    run: str | None = None


class ApprovalPreviewed(_Event, frozen=True, kw_only=True, tag="approval.previewed"):
    """The current state that an action would change was read for the person who decides. Only the digest of the
    displayed state is stored.
    """

    approval: str
    plan_digest: str
    """Digest of the plan for which the state was read."""
    run: str
    """Audit id of the run that read the state."""
    digest: str | None = None
    """Digest of the plan and the preview together, which a decision can now be about; absent if the preview failed."""
    preview: str | None = None
    """Digest of the displayed preview."""
    effects: str | None = None
    """Digest of the changes that were displayed and rolled back, for an operation that is limited to the displayed changes."""
    fields: str | None = None
    """Digest of the displayed fields; `preview` covers these and `effects`. Absent if no effects were displayed."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class ApprovalAsked(_Event, frozen=True, kw_only=True, tag="approval.asked"):
    """A person sent a question to the agent that requested the run."""

    approval: str
    number: int
    """Number of the question among those about this run, from 1."""
    text: str
    run: str | None = None
    session: str | None = None


class ApprovalAnswered(_Event, frozen=True, kw_only=True, tag="approval.answered"):
    """The agent answered the person's question with the number `number`. The answer is hostile text."""

    approval: str
    number: int
    text: str
    run: str | None = None
    session: str | None = None
    """Session that sent the answer."""


class ApprovalDecided(_Event, frozen=True, kw_only=True, tag="approval.decided"):
    """A person decided a question."""

    approval: str
    kind: str
    digest: str
    """Digest of the plan or consent that the person was shown."""
    decision: Literal["approve", "deny"]
    surface: str
    """`operator` if the decision arrived on the operator socket, or `page` if a person decided on the page."""
    reason: str | None = None
    run: str | None = None
    key_id: str | None = None
    """Id of the signing key; absent if no approver was set."""
    signed_at: str | None = None
    """Signed time of the decision, RFC 3339."""
    signature: str | None = None
    """Signature of the decision: base64, docs/reference/signed-decisions.md."""
    head: str | None = None
    """The newest row of the ledger when the person decided (`SEQ:HASH`), which is signed together with the decision."""
    head_signature: str | None = None
    preview: str | None = None
    """Digest of the preview that the person was shown with the plan."""
    until_us: int | None = None
    """Time until which the decision can be used, if a hold of the run extended it."""


RefusedTry = Literal["approve", "deny", "preview", "appoint", "unlock", "page"]
RefusedReason = Literal[
    "unsigned",
    "key",
    "kind",
    "signature",
    "time",
    "digest",
    "decided",
    "locked",
    "scope",
    "preview",
    "passphrase",
    "process",
]


class ApprovalRefused(_Event, frozen=True, kw_only=True, tag="approval.refused"):
    """An attempt to decide a question, or another attempt that `decision` names, was refused. Nothing changed."""

    decision: RefusedTry
    """The attempt: to `approve` or `deny`; to read a `preview`; to `appoint` another approver; to `unlock` the page, or to use
    a `page` that is unlocked.
    """
    reason: RefusedReason
    """Reason why the attempt was refused."""
    surface: str
    """Origin of the attempt: the scope of its socket, or `page`."""
    approval: str | None = None
    """Id of the question; absent if this row counts several attempts, or is about the page."""
    key_id: str | None = None
    """Id of the key that the caller named."""
    count: int = 1
    since_us: int | None = None
    """Time of the first of the attempts in microseconds since the epoch, if this row counts several."""


class ApprovalRedeemed(_Event, frozen=True, kw_only=True, tag="approval.redeemed"):
    """An approval was used. An approval can be used only once."""

    approval: str
    digest: str
    run: str | None = None


class ApprovalExpired(_Event, frozen=True, kw_only=True, tag="approval.expired"):
    """A question expired before a person decided it, or before the approval was used."""

    approval: str
    was: Literal["pending_approval", "approved"]
    run: str | None = None


class ApprovalCancelled(_Event, frozen=True, kw_only=True, tag="approval.cancelled"):
    """A question that was not decided yet, or an approval that was not used yet, was withdrawn."""

    approval: str
    surface: str
    """Origin of the withdrawal: the scope of its socket, `agent` or `operator`; `page`; or `session` if the question's session
    ended."""
    run: str | None = None


# Approvers, passkeys, consents and grants


class ApproverSet(_Event, frozen=True, kw_only=True, tag="approver.set"):
    """An approver was set: decisions are signed with this key from now on."""

    key_id: str
    public_key: str
    """The approver's public key: 32 bytes in hex, Ed25519."""
    inventory: str
    """Digest of the inventory of everything that existed in the home at that time and that the person approved with
    this key.
    """
    signed_at: str
    signature: str
    """Signature of the approver's statement, made with the new key: base64."""
    replaces: str | None = None
    """Id of the former key, which signed decisions before."""
    old_signature: str | None = None
    """Signature of the approver's statement, made with the former key: base64; absent for the first approver."""


class PasskeyAdded(_Event, frozen=True, kw_only=True, tag="passkey.added"):
    """A passkey was enrolled: decisions can also be signed with it from now on."""

    passkey: str
    """Id of the passkey in its decisions: `webauthn:…`."""
    name: str
    approval: str
    """Id of the question with which the person approved the passkey."""
    subject: JSONObject
    """The complete approved consent, including the public key."""
    signed_at: str
    signature: str
    """Signature over the decision to enroll the passkey, by the approver's key: base64."""
    reason: str | None = None
    """Reason that was signed with the decision."""


class PasskeyRemoved(_Event, frozen=True, kw_only=True, tag="passkey.removed"):
    """A passkey was removed: decisions can no longer be signed with it."""

    passkey: str
    reason: Literal["revoked", "vault"]
    """Cause of the removal. `vault`: the vault that was opened no longer has the passkey."""


class ConsentAgreed(_Event, frozen=True, kw_only=True, tag="consent.agreed"):
    """A person's consent to the subject of this kind and name is now in force."""

    kind: str
    name: str
    digest: str
    approval: str
    """Id of the question with which the person approved the consent."""


class ConsentEnded(_Event, frozen=True, kw_only=True, tag="consent.ended"):
    """The consent to the subject of this kind and name is no longer in force."""

    kind: str
    name: str
    reason: str


class GrantUsed(_Event, frozen=True, kw_only=True, tag="grant.used"):
    """A standing grant admitted a run that would otherwise have needed a person's approval."""

    grant: str
    """Id of the question with which the person approved the grant."""
    run: str
    use: int
    """Number of this use among all uses of the grant, from 1."""
    of: int
    """Maximum number of uses of the grant."""


class GrantRevoked(_Event, frozen=True, kw_only=True, tag="grant.revoked"):
    """A standing grant was revoked and admits no further runs."""

    grant: str


class CallerRefused(_Event, frozen=True, kw_only=True, tag="caller.refused"):
    """A caller requested a route that its socket does not serve, or used a socket that does not serve this caller."""

    scope: str
    """Scope of the socket; `cell` for a caller that is not a process of an open cell."""
    route: str
    """The route, at most 200 characters; `cell.sock` for a caller that is not a process of an open cell."""
    session: str
    """Session of the last of the refused requests."""
    count: int
    """Number of refused requests since the last record of such requests."""
    since_us: int
    """Time of the first of the counted requests."""


# Sessions


class SessionStarted(_Event, frozen=True, kw_only=True, tag="session.started"):
    """A session began: an agent can make requests under a name of its own, with a token that only this agent has."""

    session: str
    agent: str
    folder: str
    """Folder in which the agent works."""
    token_digest: str
    """`sha256:…` of the token. The token has 256 random bits, so nobody can find it from the digest."""
    expires_at_us: int
    pid: int | None = None
    """Id of the process whose end ends the session; absent if no process does."""
    pid_started: float | None = None
    """Start time of the process `pid`, in seconds since the epoch, because process ids are reused."""
    party: str | None = None
    """Party whose share the session's runs and questions count against: the session that started it, or `by hand`.
    If absent: the session itself if it has a process, otherwise `by hand`.
    """
    only: tuple[str, ...] = ()
    """Selectors of the actions that the session can use; absent: all actions."""
    above_only: tuple[tuple[str, ...], ...] = ()
    """Selectors of each outer session in which this session was opened; they apply to this session too."""
    above_folders: tuple[str, ...] = ()
    """Folders of the outer sessions, whose settings apply to this session too."""
    cell_hosts: tuple[str, ...] | None = None
    """Patterns of the hosts that the session's agent can reach from its cell; absent if the agent is in no cell."""
    cell_asks: bool = False
    """True if a person is asked when the agent requests a host that is not in `cell_hosts`; absent if such hosts are
    refused.
    """
    pid_ticks: int | None = None
    """Start time of the cell's process, in clock ticks since the machine started."""
    inject_digest: str | None = None
    """`sha256:…` of the secret name in the session's paths at the gateway; absent if no tools are injected into its requests to
    models."""


class SessionEnded(_Event, frozen=True, kw_only=True, tag="session.ended"):
    """A session ended, and its token no longer works. Requests that it made continue."""

    session: str
    reason: str
    """Reason why the session ended: `ended`, `expired`, `process gone`."""
    exit_code: int | None = None


# Tunnels out of a cell


class TunnelOpened(_Event, frozen=True, kw_only=True, tag="tunnel.opened"):
    """A tunnel opens: an agent in a cell is about to be connected to a host. On disk before the host receives a packet.

    If `tunnel.closed` is missing, nobody knows how much was sent.
    """

    session: str
    tunnel: str
    """The tunnel's id."""
    host: str
    """Host that the agent requested and that its ClientHello names."""
    port: int
    may_hide: bool = False
    """True if the ClientHello has an extension (ECH or ESNI) that can hide another host name; nobody can tell whether it does."""


class TunnelClosed(_Event, frozen=True, kw_only=True, tag="tunnel.closed"):
    """A tunnel of an agent in a cell ended."""

    session: str
    tunnel: str
    host: str
    port: int
    address: str | None = None
    """Address to which the tunnel was connected; absent if no connection was made."""
    bytes_up: int
    """Number of bytes from the agent to the host, counted as they were encrypted by TLS."""
    bytes_down: int
    ms: int
    reason: str
    """Reason why the tunnel ended: `closed`, `idle`, `reset by client`, `reset by host`, `unreachable`, `session
    ended`, `stopping`, or the name of the rule that ended it.
    """


class TunnelRefused(_Event, frozen=True, kw_only=True, tag="tunnel.refused"):
    """An agent in a cell requested a host that it cannot reach. No packet was sent to the host."""

    session: str
    destination: str
    """`HOST:PORT`; `unknown` if the request could not be read."""
    reason: str
    """The rule that refused the host (docs/reference/cell-egress.md), or a failure class."""
    count: int
    """Number of refused attempts with the same host and reason since the last record of them."""
    since_us: int
    """Time of the first of the counted attempts."""


# Tools in requests to models: docs/reference/injected-tools.md. No part of a body.


class InjectionAdded(_Event, frozen=True, kw_only=True, tag="injection.added"):
    """Tools were injected: a session's requests to models contain these tools from now on."""

    session: str
    wire: str
    """API of the model that the requests use: `messages`, `chat`, `responses`."""
    tools: tuple[str, ...]
    """Names of the injected tools as the model sees them; only the first 128."""
    count: int


class InjectionSkipped(_Event, frozen=True, kw_only=True, tag="injection.skipped"):
    """A request to a model was passed on without the session's tools; recorded once per reason while the daemon runs."""

    session: str
    wire: str
    reason: str


class InjectionCalled(_Event, frozen=True, kw_only=True, tag="injection.called"):
    """A model called an injected tool."""

    session: str
    wire: str
    tool: str


class InjectionAnswered(_Event, frozen=True, kw_only=True, tag="injection.answered"):
    """The model received the result of a call of an injected tool. If the program disconnected before the call ended, this event
    is absent.
    """

    session: str
    wire: str
    tool: str
    status: str | None = None
    """State of the run as the model sees it; absent if the tool is not a run."""
    failure_class: str | None = msgspec.field(default=None, name="class")
    asked: str | None = None
    """Id, in the result, of the run or of the question to a person."""


# Connectors, tools, keys and actions


class ConnectorInstalled(_Event, frozen=True, kw_only=True, tag="connector.installed"):
    """A connector was installed in the store. Its bytes are exactly those with this pin."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    source: str
    """Origin of the connector's bytes, such as a file or a Hub."""
    signature: str
    """Result of the check of the connector's signature: `unsigned`, or the signer."""
    hosts: list[str] = []
    """Hosts to which the connector may send requests."""
    credential: str | None = None
    """Kind of credential that the connector uses."""


class ConnectorRemoved(_Event, frozen=True, kw_only=True, tag="connector.removed"):
    """A connector was removed from the store."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")


class ConnectorActedEarly(_Event, frozen=True, kw_only=True, tag="connector.acted_early"):
    """A connector acted in a spare (a jail that was started in advance) before it received a task. The jail was ended
    without use.
    """

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    what: Literal["frame", "output", "network", "exit", "resources"]
    destination: str | None = None
    """Destination to which the connector tried to connect, by its own account."""


class ConnectorActedEarlyHyphen(ConnectorActedEarly, frozen=True, kw_only=True, tag="connector.acted-early"):
    """A `connector.acted_early` of a ledger from before 0.2.0. It is read, and never written."""


class ToolSuspended(_Event, frozen=True, kw_only=True, tag="tool.suspended"):
    """A connector reports that its server has changed a tool.

    No run uses that operation from now on. The report is hostile text.
    """

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    run: str
    """Id of the run whose connector reported the change."""
    action: str
    how: Literal["changed", "gone", "untold"]
    """Kind of the change, as the connector reports it. `gone`: the server no longer has the tool.

    `untold`: the connector did not report the tool's current form, or that form cannot be shown to a person.
    """
    before: str | None = None
    """Definition of the tool for which the connector was made, as the connector reports it: a JSON object in canonical
    form.
    """
    now: str | None = None
    """Current definition of the tool at the server, as the connector reports it."""
    digest: str | None = None
    """`sha256:…` of `now`."""


class ToolResumed(_Event, frozen=True, kw_only=True, tag="tool.resumed"):
    """A suspended operation of a connector can be used by runs again."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    reason: Literal["accepted", "lifted", "removed"]
    """Reason why the suspension ended: `accepted`: a person accepted the server's current tool; `lifted`: the server
    has the original or last accepted tool again; `removed`: the connector was removed.
    """
    digest: str | None = None
    """Digest of the tool's definition that a person accepted."""
    approval: str | None = None
    """Id of the question with which a person accepted the tool's definition."""


class HostAsked(_Event, frozen=True, kw_only=True, tag="host.asked"):
    """An agent in a cell wants to connect to a host that its session does not list, so a person is asked.

    The host is the agent's claim.
    """

    session: str
    host: str
    port: int
    approval: str
    """Id of the question to the person."""


class HostAllowed(_Event, frozen=True, kw_only=True, tag="host.allowed"):
    """A person approved the host: the session can reach it until the session ends."""

    session: str
    host: str
    port: int
    approval: str


class KeyTrusted(_Event, frozen=True, kw_only=True, tag="key.trusted"):
    """A publisher's key is trusted from now on."""

    authority: str
    """The publisher whose key it is: `scheme://owner`, or `scheme://owner/repository`."""
    key: str
    """Fingerprint of the publisher's key."""
    source: str


class KeyRevoked(_Event, frozen=True, kw_only=True, tag="key.revoked"):
    """A publisher's key is no longer trusted."""

    authority: str
    key: str


class ActionAdded(_Event, frozen=True, kw_only=True, tag="action.added"):
    """An action, or another version of it, was installed."""

    action: str
    version: str
    digest: str
    """`sha256:…` of the installed action file."""
    source: str | None = None
    published: str | None = None
    """`sha256:…` of the file as it was published, if the action was fetched from a publisher."""


class FetchStarted(_Event, frozen=True, kw_only=True, tag="fetch.started"):
    """A fetch from a forge is about to start."""

    fetch: str
    what: str
    """Kind of the fetch: `connector`, `action`, `update`, `sync`."""
    name: str
    """NAME@VERSION; for an update the name of the action, for a sync empty."""


class FetchEnded(_Event, frozen=True, kw_only=True, tag="fetch.ended"):
    """A fetch ended: ready, failed, or cancelled because it was no longer wanted."""

    fetch: str
    status: str
    """Result of the fetch: `ready`, `failed`, `cancelled`."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)
    hashes: list[str] = []
    """Pins of fetched connectors that are not installed yet."""


class ActionEnabled(_Event, frozen=True, kw_only=True, tag="action.enabled"):
    """An action can be run again."""

    action: str


class ActionDisabled(_Event, frozen=True, kw_only=True, tag="action.disabled"):
    """An action was disabled: it cannot be run."""

    action: str


class ActionRemoved(_Event, frozen=True, kw_only=True, tag="action.removed"):
    """An action was removed."""

    action: str


# Credentials: names, never values


class BindingCreated(_Event, frozen=True, kw_only=True, tag="binding.created"):
    """A binding was created: a connector's requests can carry this credential."""

    binding: str
    connector: str
    secret: str
    """Name of the secret that the binding uses."""
    account: str | None = None
    """Account of the credential, as the provider or the user named it."""
    hosts: list[str] = []
    """Hosts that the credential may be sent to."""
    scopes: list[str] = []
    """Scopes that the provider granted."""


class BindingRevoked(_Event, frozen=True, kw_only=True, tag="binding.revoked"):
    """A binding was revoked, so its connector can no longer use the credential."""

    binding: str
    at_provider: str | None = None
    """Result of the attempt to revoke the binding's tokens at their provider: `revoked`, `not offered`, `failed`."""


class BindingRenewing(_Event, frozen=True, kw_only=True, tag="binding.renewing"):
    """The provider of a binding is about to be asked for a new access token."""

    binding: str
    host: str


class BindingRenewed(_Event, frozen=True, kw_only=True, tag="binding.renewed"):
    """The provider of a binding issued a new access token, and the vault has stored it, or will at the next
    opportunity.
    """

    binding: str


class BindingRenewalFailed(_Event, frozen=True, kw_only=True, tag="binding.renewal_failed"):
    """The renewal of a binding failed: its provider issued no new access token."""

    binding: str
    code: str
    """The provider's error code, or `unreachable` or `unusable` for an error that Aileron found."""


class SignInStarted(_Event, frozen=True, kw_only=True, tag="sign_in.started"):
    """A person is about to sign in at a provider, for a connector."""

    sign_in: str
    connector: str
    binding: str
    flow: str
    """Way to sign in: `browser` or `device`."""
    host: str
    """Host of the provider's page on which the person signs in."""


class SignInEnded(_Event, frozen=True, kw_only=True, tag="sign_in.ended"):
    """A person's sign-in at a provider succeeded, failed or was cancelled."""

    sign_in: str
    binding: str
    status: str
    """Result of the sign-in: `done`, `failed`, `cancelled`."""
    account: str | None = None
    """Account as the provider names it."""
    scopes: list[str] = []
    """Scopes that the provider granted."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)


class SecretSet(_Event, frozen=True, kw_only=True, tag="secret.set"):
    """A secret was stored under this name and replaced any earlier secret; with a `reference`, the location of the
    value was stored instead of the value.
    """

    name: str
    reference: str | None = None


class SecretFetching(_Event, frozen=True, kw_only=True, tag="secret.fetching"):
    """The value of a secret that is stored elsewhere is about to be fetched."""

    name: str
    reference: str
    binding: str | None
    """Binding for which a request needs the secret. None if a response must only be searched for the secret, or if a
    person is about to approve its use.
    """


class SecretFetchFailed(_Event, frozen=True, kw_only=True, tag="secret.fetch_failed"):
    """The value of a secret that is stored elsewhere could not be fetched."""

    name: str
    code: str
    """Reason for the failure, as a keyword of Aileron: `changed`, `missing`, `locked` …"""


class SecretRemoved(_Event, frozen=True, kw_only=True, tag="secret.removed"):
    """The secret of this name was removed."""

    name: str


class VaultCreated(_Event, frozen=True, kw_only=True, tag="vault.created"):
    """The vault was created."""

    vault: str | None = None
    """Id of the vault."""
    generation: int | None = None
    """Number of times that the vault was written."""


class VaultUnlocked(_Event, frozen=True, kw_only=True, tag="vault.unlocked"):
    """The vault was unlocked, with the right passphrase or by another method."""

    way: str | None = None
    """Method of unlocking: `passphrase`, `recovery`, `keyring`."""
    vault: str | None = None
    generation: int | None = None


class VaultChanged(_Event, frozen=True, kw_only=True, tag="vault.changed"):
    """The vault was written, perhaps more than once. A copy of the vault with a lower generation is now too old for
    this home.
    """

    vault: str
    generation: int


class VaultRotated(_Event, frozen=True, kw_only=True, tag="vault.rotated"):
    """The vault has a new passphrase and a new key; the former ones no longer open the vault."""

    vault: str
    generation: int
    way: str
    """Method by which the vault was unlocked for the change: `passphrase`, `recovery`."""


class VaultBackedUp(_Event, frozen=True, kw_only=True, tag="vault.backed_up"):
    """A copy of the vault was written."""

    vault: str
    generation: int
    file: str


class VaultRestoring(_Event, frozen=True, kw_only=True, tag="vault.restoring"):
    """A copy of the vault, such as a backup, is about to replace the vault. Until the next event that names a vault,
    either of them may be in place.
    """

    vault: str
    generation: int
    """Lowest generation that the restored vault will have."""
    file: str


class VaultRestored(_Event, frozen=True, kw_only=True, tag="vault.restored"):
    """A copy of the vault, such as a backup, has replaced the vault."""

    vault: str
    generation: int
    file: str
    aside: str | None = None
    """File to which the vault that was replaced was moved."""


class VaultUnlockFailed(_Event, frozen=True, kw_only=True, tag="vault.unlock_failed"):
    """A wrong passphrase was given, or the vault could not be read."""

    failure_class: FailureClass = msgspec.field(name="class")


class VaultLocked(_Event, frozen=True, kw_only=True, tag="vault.locked"):
    """The vault was locked: its key was wiped from memory."""

    reason: str
    """Reason why the vault was locked: `asked`, `stopping`, `idle`, `restored`."""


# The page


class PageUnlocked(_Event, frozen=True, kw_only=True, tag="page.unlocked"):
    """A passphrase or a passkey unlocked the page: one browser can see and decide open questions until the page is locked."""

    page: str
    """Id of this unlocked page, which grants no access."""
    key_id: str
    """Id of the approver's key that is unlocked for the page, or of the passkey that unlocked the page."""
    pid: int
    """Id of the browser's process, to which the page is bound."""
    program: str
    """Name that the browser's process chose for itself."""


class PageLocked(_Event, frozen=True, kw_only=True, tag="page.locked"):
    """The page was locked: the approver's key that was unlocked for it was wiped from memory."""

    page: str
    reason: str
    """Reason why the page was locked: `asked`, `over`, `process`, `replaced`, `passkey`, `many`."""


# The daemon


class SettingsChanged(_Event, frozen=True, kw_only=True, tag="settings.changed"):
    """Changed settings of the daemon are about to take effect."""

    settings: list[str]
    """Names of the settings that change, such as `egress.allow`."""
    digest: str
    """Digest of the settings that are in force after the change, as in `daemon.started`."""


class DaemonStarted(_Event, frozen=True, kw_only=True, tag="daemon.started"):
    """A daemon serves this home."""

    version: str
    home: str
    layers: list[str]
    """Names of the layers of isolation that every run will have."""
    digest: str | None = None
    """Digest of the settings in force; None in a ledger from before 0.2.0."""


class DaemonStopped(_Event, frozen=True, kw_only=True, tag="daemon.stopped"):
    """The daemon stopped normally. If this event is missing before the next `daemon.started`, the daemon was killed."""

    version: str


Notice = (
    SessionStarted
    | SessionEnded
    | InjectionAdded
    | InjectionSkipped
    | InjectionCalled
    | InjectionAnswered
    | TunnelOpened
    | TunnelClosed
    | TunnelRefused
    | ConnectorInstalled
    | ConnectorRemoved
    | ConnectorActedEarly
    | ConnectorActedEarlyHyphen
    | ToolSuspended
    | ToolResumed
    | HostAsked
    | HostAllowed
    | KeyTrusted
    | KeyRevoked
    | FetchStarted
    | FetchEnded
    | ActionAdded
    | ActionEnabled
    | ActionDisabled
    | ActionRemoved
    | BindingCreated
    | BindingRevoked
    | BindingRenewing
    | BindingRenewed
    | BindingRenewalFailed
    | SignInStarted
    | SignInEnded
    | SecretSet
    | SecretFetching
    | SecretFetchFailed
    | SecretRemoved
    | VaultCreated
    | VaultUnlocked
    | VaultChanged
    | VaultRotated
    | VaultBackedUp
    | VaultRestoring
    | VaultRestored
    | VaultUnlockFailed
    | VaultLocked
    | PageUnlocked
    | PageLocked
    | SettingsChanged
    | DaemonStarted
    | DaemonStopped
)
"""Events that do not change the state of a run or an approval."""
EgressEvent = EgressSending | EgressFinished | EgressDenied | EgressEnvelope | EgressEffects | EgressSubmitted
"""Events of the requests that a step makes. They do not change the state of its run."""
Event = (
    Genesis
    | RunRequested
    | RunRefused
    | RunStarted
    | RunRetried
    | RunFinished
    | RunUnknown
    | EgressEvent
    | ConnectorAudit
    | ApprovalRequested
    | ApprovalEdited
    | ApprovalPreviewed
    | ApprovalAsked
    | ApprovalAnswered
    | ApprovalDecided
    | ApprovalRefused
    | ApprovalRedeemed
    | ApprovalExpired
    | ApprovalCancelled
    | ApproverSet
    | PasskeyAdded
    | PasskeyRemoved
    | ConsentAgreed
    | ConsentEnded
    | GrantUsed
    | GrantRevoked
    | CallerRefused
    | Notice
)
EVENT_TYPES: Final[dict[str, type[_Event]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}
"""Every event type, by the tag that identifies it in the ledger's records."""


def facts_of(event: Event) -> JSONObject:
    """Return an event's fields as JSON values, with the name of its type under `type`. The ledger hashes this form into
    its chain.
    """
    facts: JSONObject = msgspec.to_builtins(event)
    return facts

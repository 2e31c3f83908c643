"""The closed set of records: one frozen type for each kind of event, with flat facts.

Pure values. Only what these types can say is recorded: there is no field for a credential, a header, a body or a query
string, so none can be recorded by mistake. Text of a connector or an upstream (`connector.audit`, failure messages) is hostile:
stored bounded and as it came, shown only through a surface that makes hidden characters visible.

Rules
- An event is named `subject.what-happened`; a fact has the same name in every event that has it. `run`, `session`, `action`,
  `connector` and `class` can be searched for.
- No fact has the name of a value that a row has beside its record (`at`, `hash`, `previous`): surfaces show both in one object.
- Facts that are absent are left out, so that a fact added later does not change the records made before.
- An event that is here stays here, and keeps its meaning: old ledgers are read for ever.

Source: docs/reference/audit-events.md, which a test compares with this module. Not here: when they are written (log.py), how
they are chained (ledger/chain.py; a row adds `seq` and `at_us`).

>>> facts_of(VaultLocked(reason="asked"))
{'type': 'vault.locked', 'reason': 'asked'}
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from aileron.model.failure import Boundary, FailureClass
from aileron.model.invocation import Scope
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
    "EgressFinished",
    "EgressSending",
    "EgressSubmitted",
    "Event",
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
    """Base of all events: only how they are written."""


# The ledger itself


class Genesis(_Event, frozen=True, kw_only=True, tag="genesis"):
    """The first row, which the ledger writes when it is created (ledger/sqlite.py)."""

    home: str
    """Home directory when the ledger was created."""
    version: str
    """Version of Aileron that created the ledger."""
    ledger: str
    """A random name, 128 bits: tells this ledger from another one of the same home."""


# Runs


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a plan, as `run.requested` has it: what it runs, what it can reach, and under which account."""

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
    """An action was requested, and it resolved to a plan. On disk before anything else happens."""

    run: str
    """The run's id, which is also the audit id."""
    session: str
    scope: Scope
    action: str
    action_version: str
    action_digest: str
    """`sha256:…` of the action file's bytes."""
    plan_digest: str
    """`sha256:…` of the whole plan; what a person approves."""
    args: dict[str, Any]
    """The arguments, in full."""
    steps: list[PlannedStep]
    claim: str | None = None
    """`sha256:…` of session, idempotency key and request. Written by the ledger, which keeps the key itself."""
    again: str | None = None
    """The run of the same plan whose outcome is unknown, and which the caller repeats knowing that."""
    party: str | None = None
    """Party whose share it counts against, if that is not its session's own or, on the operator's socket, the person's."""


class RunRefused(_Event, frozen=True, kw_only=True, tag="run.refused"):
    """A requested action did not resolve. Nothing else is recorded of it, and nothing was done."""

    run: str
    """An id of its own, the audit id of the response."""
    session: str
    scope: Scope
    action: str
    """The requested name, at most 200 characters of it; perhaps no action's."""
    failure_class: FailureClass = msgspec.field(name="class")
    message: str


class RunStarted(_Event, frozen=True, kw_only=True, tag="run.started"):
    """A step is about to run. On disk before its jail is told anything."""

    run: str
    step: str
    connector: str
    op: str
    attempt: int
    """Number of the attempt, from 1."""
    layers: list[str]
    """The isolation in force."""
    args: str | None = None
    """Digest (`sha256:…`) of the step's arguments in canonical JSON, if they include results of earlier steps; otherwise they are
    those of the plan.
    """


class RunRetried(_Event, frozen=True, kw_only=True, tag="run.retried"):
    """A step failed in a way that may be temporary, and is tried again after `wait_ms`."""

    run: str
    step: str
    connector: str
    attempt: int
    """The attempt that failed, from 1."""
    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    wait_ms: int


class RunFinished(_Event, frozen=True, kw_only=True, tag="run.finished"):
    """A run is over and its outcome known. On disk before anybody is told."""

    run: str
    session: str
    action: str
    status: RunStatus
    connector: str | None = None
    """Connector of the step that started last."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")
    message: str | None = None
    boundary: Boundary | None = None
    details: dict[str, Any] | None = None
    """The failure's details; `{"omitted": reason}` if they could not be recorded."""
    ms: int | None = None
    """Milliseconds from start to outcome; absent if nothing ran."""
    outcome_digest: str
    """`sha256:…` of the stored outcome, which holds the result."""


class RunUnknown(_Event, frozen=True, kw_only=True, tag="run.unknown"):
    """A run was interrupted after it started: it may or may not have taken effect. It is not run again automatically."""

    run: str
    session: str
    action: str
    connector: str | None = None
    message: str
    ms: int | None = None
    outcome_digest: str


# What leaves


class EgressSending(_Event, frozen=True, kw_only=True, tag="egress.sending"):
    """A request passed every check. On disk before its first byte leaves; without `egress.finished`, its outcome is unknown."""

    run: str
    step: str
    connector: str
    request: int
    """Number of the request in its step, from 1."""
    method: str
    host: str
    port: int
    path: str
    """Path without the query."""
    credential: str | None = None
    """Name of the binding whose secret is added, KIND/SERVICE/IDENTITY."""


class EgressFinished(_Event, frozen=True, kw_only=True, tag="egress.finished"):
    """A request ended, the one of the same number."""

    run: str
    step: str
    connector: str
    request: int
    status: int | None = None
    """The HTTP status; absent: no response came."""
    bytes_up: int
    """Bytes of the request's body."""
    bytes_down: int
    """Bytes of the response's body."""
    ms: int
    address: str | None = None
    """Address that was connected to."""
    scrubbed: int = 0
    """Number of times that the response repeated the secret, which was then masked."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class EgressDenied(_Event, frozen=True, kw_only=True, tag="egress.denied"):
    """A rule refused a request. No part of it left, unless it has an `egress.sending`; on disk before the invocation ends."""

    run: str
    step: str
    connector: str
    request: int
    """The number that it would have had among the requests of its step; 0 for a system call."""
    method: str
    """The connector's text, at most 32 characters."""
    destination: str
    """`HOST:PORT`, or what an invalid URL has in its place; hostile text, at most 300 characters."""
    reason: str
    """The rule: docs/reference/egress.md, Denials."""


class EgressEnvelope(_Event, frozen=True, kw_only=True, tag="egress.envelope"):
    """A login at a mail server sends a message. On disk before its first byte leaves.

    Without an `egress.submitted`, nobody knows whether the server accepted it.
    """

    run: str
    step: str
    connector: str
    request: int
    """The number of the login among the requests of its step."""
    sender: str
    """Sender as the server accepted it."""
    recipients: tuple[str, ...]
    """Recipients as the server accepted them: hostile text."""
    size: int | None = None
    """Bytes that the connector announced; absent: it announced none."""


class EgressSubmitted(_Event, frozen=True, kw_only=True, tag="egress.submitted"):
    """The mail server responded to the message that the login sent last."""

    run: str
    step: str
    connector: str
    request: int
    size: int
    """Bytes of the message."""
    code: int
    """Code of the response; 200 to 299: the server has accepted the message."""


class EgressEffects(_Event, frozen=True, kw_only=True, tag="egress.effects"):
    """The changes of a database transaction. A preview's are rolled back; another's are what a person saw, and commit next."""

    run: str
    step: str
    connector: str
    request: int
    """The number of the login among the requests of its step."""
    digest: str
    """`sha256:…` of the statement, each row, and how many rows of which table changed."""


class ConnectorAudit(_Event, frozen=True, kw_only=True, tag="connector.audit"):
    """The connector reports something for the record. Hostile text: a claim, not a fact."""

    run: str
    step: str
    connector: str
    event: str
    fields: dict[str, Any]


# Questions to a person


class ApprovalRequested(_Event, frozen=True, kw_only=True, tag="approval.requested"):
    """A person must decide. The subject of the question is kept with the approval, bound to `digest`."""

    approval: str
    kind: str
    """Kind of the subject: `action` for a run."""
    digest: str
    expires_at_us: int
    name: str | None = None
    """Name of the action, or of the subject of the consent."""
    run: str | None = None


class ApprovalEdited(_Event, frozen=True, kw_only=True, tag="approval.edited"):
    """A person changed the arguments: another plan that they can approve in place of the requested one."""

    approval: str
    digest: str
    """Digest of the new plan."""
    args: dict[str, Any]
    """The arguments, in full."""
    run: str | None = None


class ApprovalPreviewed(_Event, frozen=True, kw_only=True, tag="approval.previewed"):
    """The current state was read for the person who decides. Only the digest of what it showed is kept."""

    approval: str
    plan_digest: str
    """Digest of the plan it was read for."""
    run: str
    """Audit id of the reading itself."""
    digest: str | None = None
    """Digest of the plan and the preview together, which can now be decided; absent: it failed."""
    preview: str | None = None
    """Digest of what was shown."""
    effects: str | None = None
    """Digest of the changes that were shown and rolled back, for an operation that can change only those."""
    fields: str | None = None
    """Digest of the lines that were shown; `preview` is of this and `effects`. Absent if there are no effects."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class ApprovalAsked(_Event, frozen=True, kw_only=True, tag="approval.asked"):
    """A person sent a question to the agent that requested the run."""

    approval: str
    number: int
    """Number of the question, from 1."""
    text: str
    run: str | None = None
    session: str | None = None


class ApprovalAnswered(_Event, frozen=True, kw_only=True, tag="approval.answered"):
    """The agent answered the person's question of that number. Hostile text."""

    approval: str
    number: int
    text: str
    run: str | None = None
    session: str | None = None
    """Session that answered."""


class ApprovalDecided(_Event, frozen=True, kw_only=True, tag="approval.decided"):
    """A person decided."""

    approval: str
    kind: str
    digest: str
    """Digest of what the person was shown."""
    decision: Literal["approve", "deny"]
    surface: str
    """Scope of the socket it came in on: `operator`; or `page`."""
    reason: str | None = None
    run: str | None = None
    key_id: str | None = None
    """Key of the signature; absent if no approver was set."""
    signed_at: str | None = None
    """Time that was signed with it, RFC 3339."""
    signature: str | None = None
    """Signature of the decision: base64, docs/reference/signed-decisions.md."""
    head: str | None = None
    """The newest row when the person decided (`SEQ:HASH`), signed too."""
    head_signature: str | None = None
    preview: str | None = None
    """Digest of the preview that was shown with it."""
    until_us: int | None = None
    """Time until which it can be used, if that is later than before because it is held first."""


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
    """An attempt to decide was refused. Nothing changed."""

    decision: RefusedTry
    """The attempt: to `approve` or `deny`; to read a `preview`; to `appoint` another approver; to `unlock` the page, or to use
    a `page` that is unlocked."""
    reason: RefusedReason
    """Reason for the refusal."""
    surface: str
    """Scope of the socket it came in on, or `page`."""
    approval: str | None = None
    """The question; absent if this row counts several, and if it is about the page."""
    key_id: str | None = None
    """Key that the caller named."""
    count: int = 1
    since_us: int | None = None
    """Time of the first of several."""


class ApprovalRedeemed(_Event, frozen=True, kw_only=True, tag="approval.redeemed"):
    """The decision was used, which can happen only once."""

    approval: str
    digest: str
    run: str | None = None


class ApprovalExpired(_Event, frozen=True, kw_only=True, tag="approval.expired"):
    """The question expired before it was decided, or before its decision was used."""

    approval: str
    was: Literal["pending_approval", "approved"]
    run: str | None = None


class ApprovalCancelled(_Event, frozen=True, kw_only=True, tag="approval.cancelled"):
    """The question, or an approval that was not used yet, was withdrawn."""

    approval: str
    surface: str
    """Scope of the socket it came in on: `agent`, `operator`; `page`; or `session`: the session that it was for ended."""
    run: str | None = None


# Who decides, and consents


class ApproverSet(_Event, frozen=True, kw_only=True, tag="approver.set"):
    """Decisions are signed with this key from here on."""

    key_id: str
    public_key: str
    """32 bytes, hex: Ed25519."""
    inventory: str
    """Digest of what existed then and was approved with it."""
    signed_at: str
    signature: str
    """Signature over all this, by the new key: base64."""
    replaces: str | None = None
    """Id of the key that decided before."""
    old_signature: str | None = None
    """Signature over all this, by the key that decided before: base64."""


class PasskeyAdded(_Event, frozen=True, kw_only=True, tag="passkey.added"):
    """Decisions can also be signed with this passkey from here on."""

    passkey: str
    """Id that its decisions name: `webauthn:…`."""
    name: str
    approval: str
    """Question with which the person approved the passkey."""
    subject: dict[str, Any]
    """Consent that they approved, in full, including the public key."""
    signed_at: str
    signature: str
    """Signature over that decision, by the approver's key: base64."""
    reason: str | None = None
    """Reason that was signed with the decision."""


class PasskeyRemoved(_Event, frozen=True, kw_only=True, tag="passkey.removed"):
    """This passkey can no longer decide."""

    passkey: str
    reason: Literal["revoked", "vault"]
    """`vault`: the vault that was opened no longer has it."""


class ConsentAgreed(_Event, frozen=True, kw_only=True, tag="consent.agreed"):
    """A consent of a person is now in force under that name."""

    kind: str
    name: str
    digest: str
    approval: str
    """Question with which the person approved it."""


class ConsentEnded(_Event, frozen=True, kw_only=True, tag="consent.ended"):
    """The consent under that name is no longer in force."""

    kind: str
    name: str
    reason: str


class GrantUsed(_Event, frozen=True, kw_only=True, tag="grant.used"):
    """A standing grant let a run through that otherwise needed approval."""

    grant: str
    """Question with which the person approved the grant."""
    run: str
    use: int
    """Number of this use, from 1."""
    of: int
    """Number of uses in all."""


class GrantRevoked(_Event, frozen=True, kw_only=True, tag="grant.revoked"):
    """A grant lets no run through any longer."""

    grant: str


class CallerRefused(_Event, frozen=True, kw_only=True, tag="caller.refused"):
    """A caller requested a route that its socket does not serve, or is not one that the socket serves."""

    scope: str
    """Scope of the socket; `cell` for a caller that is not a process of an open cell."""
    route: str
    """The route, at most 200 characters; `cell.sock` for such a caller."""
    session: str
    """Session of the last of them."""
    count: int
    """Number of requests since this was told last."""
    since_us: int
    """Time of the first of them."""


# Sessions


class SessionStarted(_Event, frozen=True, kw_only=True, tag="session.started"):
    """A session began: an agent can make requests under a name of its own, with a token that nobody else has."""

    session: str
    agent: str
    folder: str
    """Folder in which the agent works."""
    token_digest: str
    """`sha256:…` of the token, which is 256 random bits, so that nobody can find it from the digest."""
    expires_at_us: int
    pid: int | None = None
    """Process with which the session ends, if it ends with one."""
    pid_started: float | None = None
    """Start of that process, in seconds since the epoch: process numbers are used again."""
    party: str | None = None
    """Party whose share its runs and questions count against: the session that started it, or `by hand`. Absent: its own if
    it has a process, otherwise `by hand`.
    """
    only: tuple[str, ...] = ()
    """Selectors of the actions that it can use; absent: all actions."""
    above_only: tuple[tuple[str, ...], ...] = ()
    """Selectors of each session in which it was opened: they apply to it too."""
    above_folders: tuple[str, ...] = ()
    """Folders of those sessions: settings for these folders apply to it too."""
    cell_hosts: tuple[str, ...] | None = None
    """Patterns of the hosts that its agent can reach from its cell. Absent: it is in no cell."""
    cell_asks: bool = False
    """True if a person is asked about other hosts; absent: they are refused."""
    pid_ticks: int | None = None
    """Start of the cell's process, in clock ticks since the machine started."""
    inject_digest: str | None = None
    """`sha256:…` of the name in its addresses at the gateway, if tools are injected into its requests to models."""


class SessionEnded(_Event, frozen=True, kw_only=True, tag="session.ended"):
    """A session ended: its token no longer works. Requests that it made go on."""

    session: str
    reason: str
    """`ended`, `expired`, `process gone`."""
    exit_code: int | None = None


# Out of a cell


class TunnelOpened(_Event, frozen=True, kw_only=True, tag="tunnel.opened"):
    """A cell's agent is about to be connected to a host. On disk before the host receives a packet.

    Without a `tunnel.closed`, nobody knows how much was sent.
    """

    session: str
    tunnel: str
    """The tunnel's id."""
    host: str
    """Host that the agent asked for, and that its ClientHello names."""
    port: int
    may_hide: bool = False
    """True if the ClientHello has an extension (ECH) that holds another name or nothing: nobody can tell which."""


class TunnelClosed(_Event, frozen=True, kw_only=True, tag="tunnel.closed"):
    """A tunnel ended."""

    session: str
    tunnel: str
    host: str
    port: int
    address: str | None = None
    """Address that was connected to; absent: no connection was made."""
    bytes_up: int
    """Bytes from the agent to the host, encrypted as they were."""
    bytes_down: int
    ms: int
    reason: str
    """`closed`, `idle`, `reset by client`, `reset by host`, `unreachable`, `session ended`, `stopping`, or the rule's name."""


class TunnelRefused(_Event, frozen=True, kw_only=True, tag="tunnel.refused"):
    """A cell's agent asked for a host that it does not get. No packet went there."""

    session: str
    destination: str
    """`HOST:PORT`; `unknown` if the request could not be read."""
    reason: str
    """The rule (docs/reference/cell-egress.md), or a failure class."""
    count: int
    """Number of attempts since this was told last."""
    since_us: int
    """Time of the first of them."""


# Tools in requests to models: docs/reference/injected-tools.md. No part of a body.


class InjectionAdded(_Event, frozen=True, kw_only=True, tag="injection.added"):
    """A session's requests to models carry these tools from now on."""

    session: str
    wire: str
    """API: `messages`, `chat`, `responses`."""
    tools: tuple[str, ...]
    """Names as the model sees them: the first 128."""
    count: int


class InjectionSkipped(_Event, frozen=True, kw_only=True, tag="injection.skipped"):
    """A request of such a session went on unchanged; recorded once for each reason while the daemon runs."""

    session: str
    wire: str
    reason: str


class InjectionCalled(_Event, frozen=True, kw_only=True, tag="injection.called"):
    """A model called an injected tool."""

    session: str
    wire: str
    tool: str


class InjectionAnswered(_Event, frozen=True, kw_only=True, tag="injection.answered"):
    """The model was told the result of that call; absent if the program went away before it was over."""

    session: str
    wire: str
    tool: str
    status: str | None = None
    """State of the run, as the model is told; absent if the tool is not a run."""
    failure_class: str | None = msgspec.field(default=None, name="class")
    asked: str | None = None
    """Id of the run or of the question."""


# What is installed


class ConnectorInstalled(_Event, frozen=True, kw_only=True, tag="connector.installed"):
    """A connector is in the store: exactly these bytes."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    source: str
    """Origin of the bytes."""
    signature: str
    """Finding: `unsigned`, or what vouches for it."""
    hosts: list[str] = []
    """Hosts that it may send to."""
    credential: str | None = None
    """Kind of credential that it takes."""


class ConnectorRemoved(_Event, frozen=True, kw_only=True, tag="connector.removed"):
    """A connector was removed from the store."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")


class ConnectorActedEarly(_Event, frozen=True, kw_only=True, tag="connector.acted-early"):
    """A jail that was started ahead for a connector acted before it was told what to do. It was ended, unused."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    what: Literal["frame", "output", "network", "exit", "resources"]
    destination: str | None = None
    """Destination that it tried to connect to, as it says."""


class ToolSuspended(_Event, frozen=True, kw_only=True, tag="tool.suspended"):
    """A connector reports that its server has changed a tool: no run uses that operation from here on. Hostile text."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    run: str
    """Run that found it."""
    action: str
    how: Literal["changed", "gone", "untold"]
    """`gone`: the server no longer has the tool. `untold`: its current form was not told, or cannot be shown to a person."""
    before: str | None = None
    """Tool as the connector was made with it, by its own account: a JSON object in canonical form."""
    now: str | None = None
    """Tool as the server has it, as the connector says."""
    digest: str | None = None
    """`sha256:…` of `now`."""


class ToolResumed(_Event, frozen=True, kw_only=True, tag="tool.resumed"):
    """Runs can use the operation again."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    reason: Literal["accepted", "lifted", "removed"]
    """`accepted`: as the server has it now; `lifted`: as it was, or as accepted last; `removed`: with its connector."""
    digest: str | None = None
    """Digest of the accepted definition."""
    approval: str | None = None
    """Question with which it was accepted."""


class HostAsked(_Event, frozen=True, kw_only=True, tag="host.asked"):
    """An agent in a cell wants to connect to a host that its session does not list: a person is asked. The agent named it."""

    session: str
    host: str
    port: int
    approval: str
    """Id of the question."""


class HostAllowed(_Event, frozen=True, kw_only=True, tag="host.allowed"):
    """A person approved the host: the session can reach it until it ends."""

    session: str
    host: str
    port: int
    approval: str


class KeyTrusted(_Event, frozen=True, kw_only=True, tag="key.trusted"):
    """A publisher's key is trusted from now on."""

    authority: str
    """`scheme://owner`, or `scheme://owner/repository`."""
    key: str
    """Fingerprint of the key."""
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
    """`sha256:…` of the file as it was installed."""
    source: str | None = None
    published: str | None = None
    """`sha256:…` of the file as it was published, if it was fetched."""


class FetchStarted(_Event, frozen=True, kw_only=True, tag="fetch.started"):
    """A fetch from a forge is about to start."""

    fetch: str
    what: str
    """`connector`, `action`, `update`, `sync`."""
    name: str
    """NAME@VERSION; for an update the action's own name; for a sync empty."""


class FetchEnded(_Event, frozen=True, kw_only=True, tag="fetch.ended"):
    """A fetch ended: ready, failed, or cancelled because it was no longer wanted."""

    fetch: str
    status: str
    """`ready`, `failed`, `cancelled`."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)
    hashes: list[str] = []
    """Pins of what was fetched and is not installed yet."""


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
    """Name of the secret."""
    account: str | None = None
    """Account of the credential, as the provider or the user named it."""
    hosts: list[str] = []
    """Hosts that the credential may be sent to."""
    scopes: list[str] = []
    """Scopes that the provider granted."""


class BindingRevoked(_Event, frozen=True, kw_only=True, tag="binding.revoked"):
    """A binding was revoked: its connector can no longer use the credential."""

    binding: str
    at_provider: str | None = None
    """Result of revoking its tokens at their provider: `revoked`, `not offered`, `failed`."""


class BindingRenewing(_Event, frozen=True, kw_only=True, tag="binding.renewing"):
    """The provider is about to be asked for another access token."""

    binding: str
    host: str


class BindingRenewed(_Event, frozen=True, kw_only=True, tag="binding.renewed"):
    """The provider gave a new access token, and the vault has it, or will at the next opportunity."""

    binding: str


class BindingRenewalFailed(_Event, frozen=True, kw_only=True, tag="binding.renewal_failed"):
    """The provider gave no new access token."""

    binding: str
    code: str
    """The provider's error code, or `unreachable`, `unusable`."""


class SignInStarted(_Event, frozen=True, kw_only=True, tag="sign_in.started"):
    """A person is about to sign in for a connector."""

    sign_in: str
    connector: str
    binding: str
    flow: str
    """`browser` or `device`."""
    host: str
    """Host of the provider's page."""


class SignInEnded(_Event, frozen=True, kw_only=True, tag="sign_in.ended"):
    """A sign-in ended."""

    sign_in: str
    binding: str
    status: str
    """`done`, `failed`, `cancelled`."""
    account: str | None = None
    """Account as the provider names it."""
    scopes: list[str] = []
    """Scopes that were granted."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)


class SecretSet(_Event, frozen=True, kw_only=True, tag="secret.set"):
    """A secret was stored under this name, in place of an earlier one; with a `reference`, its location and not its value."""

    name: str
    reference: str | None = None


class SecretFetching(_Event, frozen=True, kw_only=True, tag="secret.fetching"):
    """The value of a secret that is kept elsewhere is about to be fetched from there."""

    name: str
    reference: str
    binding: str | None
    """Binding of the request that is about to be sent; None: no request, or a person approves it."""


class SecretFetchFailed(_Event, frozen=True, kw_only=True, tag="secret.fetch_failed"):
    """The value of a secret that is kept elsewhere could not be fetched."""

    name: str
    code: str
    """A word of Aileron's: `changed`, `missing`, `locked` …"""


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
    """The vault was unlocked, with the right passphrase or another way in."""

    way: str | None = None
    """`passphrase`, `recovery`, `keyring`."""
    vault: str | None = None
    generation: int | None = None


class VaultChanged(_Event, frozen=True, kw_only=True, tag="vault.changed"):
    """The vault was written, perhaps more than once. An older generation is no longer this home's."""

    vault: str
    generation: int


class VaultRotated(_Event, frozen=True, kw_only=True, tag="vault.rotated"):
    """The vault has a new passphrase and a new key; the earlier ones no longer open it."""

    vault: str
    generation: int
    way: str
    """The way in that was used for it: `passphrase`, `recovery`."""


class VaultBackedUp(_Event, frozen=True, kw_only=True, tag="vault.backed_up"):
    """A copy of the vault was written."""

    vault: str
    generation: int
    file: str


class VaultRestoring(_Event, frozen=True, kw_only=True, tag="vault.restoring"):
    """A copy is about to replace the vault: either may be in place until the next event that names one."""

    vault: str
    generation: int
    """Lowest generation that the restored vault will have."""
    file: str


class VaultRestored(_Event, frozen=True, kw_only=True, tag="vault.restored"):
    """A copy replaced the vault."""

    vault: str
    generation: int
    file: str
    aside: str | None = None
    """File to which the replaced vault was moved."""


class VaultUnlockFailed(_Event, frozen=True, kw_only=True, tag="vault.unlock_failed"):
    """A wrong passphrase was given, or the vault could not be read."""

    failure_class: FailureClass = msgspec.field(name="class")


class VaultLocked(_Event, frozen=True, kw_only=True, tag="vault.locked"):
    """The vault's key was wiped from memory."""

    reason: str
    """`asked`, `stopping`, `idle`, `restored`."""


# The page


class PageUnlocked(_Event, frozen=True, kw_only=True, tag="page.unlocked"):
    """A passphrase or a passkey unlocked the page: one browser can see and decide what waits, until the page is locked."""

    page: str
    """Id of this unlocked page; it opens nothing."""
    key_id: str
    """Key that is open for the page; or the passkey that unlocked it."""
    pid: int
    """Process at the other end, to which the page is bound."""
    program: str
    """Name that the program chose for itself."""


class PageLocked(_Event, frozen=True, kw_only=True, tag="page.locked"):
    """The page's key was wiped from memory."""

    page: str
    reason: str
    """`asked`, `over`, `process`, `replaced`, `passkey`, `many`."""


# The daemon


class DaemonStarted(_Event, frozen=True, kw_only=True, tag="daemon.started"):
    """A daemon serves this home."""

    version: str
    home: str
    layers: list[str]
    """Isolation that every run will have."""


class DaemonStopped(_Event, frozen=True, kw_only=True, tag="daemon.stopped"):
    """The daemon stopped normally. If this is missing before the next `daemon.started`, it was killed."""

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
    | DaemonStarted
    | DaemonStopped
)
"""Events that stand alone: they change the state of no run or approval."""
Event = (
    Genesis
    | RunRequested
    | RunRefused
    | RunStarted
    | RunRetried
    | RunFinished
    | RunUnknown
    | EgressSending
    | EgressFinished
    | EgressDenied
    | EgressEnvelope
    | EgressEffects
    | EgressSubmitted
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
"""Every event type by its name."""


def facts_of(event: Event) -> dict[str, Any]:
    """Return the event as JSON values, its name under `type`, as the ledger chains it."""
    facts: dict[str, Any] = msgspec.to_builtins(event)
    return facts

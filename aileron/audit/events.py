"""The closed set of records: one frozen type for each kind of thing that happens, with flat facts.

Pure values. What is recorded is what these types can say and nothing else: there is no field for a credential, a header, a
body or a query string, so none can be recorded by mistake. What a connector or an upstream says (`connector.audit`, failure
messages) is hostile text: stored bounded and as it came, shown only through a surface that makes hidden characters visible.

Rules
- The name of an event is `subject.what-happened`; a fact has the same name in every event that has it. `run`, `session`,
  `action`, `connector` and `class` can be searched for.
- No fact is called as what a row has beside its record (`at`, `hash`, `previous`): surfaces show both in one object.
- Facts absent are left out, so that a fact added later does not change the records made before.
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
    """What all events have in common: nothing but the way they are written."""


# The ledger itself


class Genesis(_Event, frozen=True, kw_only=True, tag="genesis"):
    """The first row. Written by the ledger when it is made (ledger/sqlite.py)."""

    home: str
    """The directory everything of this user lives in, when the ledger was made."""
    version: str
    """The version of aileron that made it."""
    ledger: str
    """A random name, 128 bits: tells this ledger from another one of the same home."""


# Runs


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan, as `run.requested` has it: what may run, what it may reach, and under which account."""

    id: str
    connector: str
    version: str
    hash: str
    op: str
    hosts: list[str]
    credential: str | None
    idempotent: bool
    account: str | None = None
    """Whose the credential is, as the provider or the user said it."""
    scope: str | None = None
    """What it is for, in the words of the connector's publisher."""


class RunRequested(_Event, frozen=True, kw_only=True, tag="run.requested"):
    """Somebody asked for an action and it resolved to a plan. On disk before anything else happens."""

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
    """`sha256:…` of session, idempotency key and what was asked for. Written by the ledger, which keeps the key itself."""
    again: str | None = None
    """The run of the same plan whose outcome is unknown, and which whoever asked repeats knowing that."""
    party: str | None = None
    """Whose share it counts against, where that is not its session's own or, on the operator's socket, the person's."""


class RunRefused(_Event, frozen=True, kw_only=True, tag="run.refused"):
    """Somebody asked for an action that did not resolve. Nothing else is recorded of it, and nothing was done."""

    run: str
    """An id of its own, the audit id of the answer."""
    session: str
    scope: Scope
    action: str
    """The name that was asked for, at most 200 characters of it; perhaps no action's."""
    failure_class: FailureClass = msgspec.field(name="class")
    message: str


class RunStarted(_Event, frozen=True, kw_only=True, tag="run.started"):
    """A step is about to run. On disk before its jail is told anything."""

    run: str
    step: str
    connector: str
    op: str
    attempt: int
    """From 1."""
    layers: list[str]
    """The isolation in force."""
    args: str | None = None
    """Digest (`sha256:…`) of the step's arguments in canonical JSON, where answers of earlier steps are among them; else they are
    those of the plan.
    """


class RunRetried(_Event, frozen=True, kw_only=True, tag="run.retried"):
    """A step failed in a way that may pass and is tried again after `wait_ms`."""

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
    """The connector of the step begun last."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")
    message: str | None = None
    boundary: Boundary | None = None
    details: dict[str, Any] | None = None
    """The failure's details; `{"omitted": reason}` where they could not be recorded."""
    ms: int | None = None
    """From start to outcome; absent where nothing ran."""
    outcome_digest: str
    """`sha256:…` of the stored outcome, which holds the result."""


class RunUnknown(_Event, frozen=True, kw_only=True, tag="run.unknown"):
    """A run was cut short after it began: its effect may or may not have happened. It is not run again on its own."""

    run: str
    session: str
    action: str
    connector: str | None = None
    message: str
    ms: int | None = None
    outcome_digest: str


# What leaves


class EgressSending(_Event, frozen=True, kw_only=True, tag="egress.sending"):
    """A request passed every check. On disk before its first byte leaves; without its `egress.finished`, nobody knows."""

    run: str
    step: str
    connector: str
    request: int
    """Counts the requests of a step from 1."""
    method: str
    host: str
    port: int
    path: str
    """Without the query."""
    credential: str | None = None
    """The name of the binding whose secret is added, KIND/SERVICE/IDENTITY."""


class EgressFinished(_Event, frozen=True, kw_only=True, tag="egress.finished"):
    """How the request of that number ended."""

    run: str
    step: str
    connector: str
    request: int
    status: int | None = None
    """The HTTP status; absent: no answer came."""
    bytes_up: int
    """Of the request's body."""
    bytes_down: int
    """Of the response's body."""
    ms: int
    address: str | None = None
    """The address that was connected to."""
    scrubbed: int = 0
    """How often the response repeated the secret, and it was blotted out."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class EgressDenied(_Event, frozen=True, kw_only=True, tag="egress.denied"):
    """A rule refused a request. Nothing of it left; on disk before the invocation ends."""

    run: str
    step: str
    connector: str
    request: int
    """The number it would have had among the requests of its step."""
    method: str
    """The connector's text, at most 32 characters."""
    destination: str
    """`HOST:PORT`, or what stands there in a URL that is none; hostile text, at most 300 characters."""
    reason: str
    """Which rule: docs/reference/egress.md, Denials."""


class EgressEnvelope(_Event, frozen=True, kw_only=True, tag="egress.envelope"):
    """A login at a mail server sends a message. On disk before its first byte leaves; without `egress.submitted` nobody knows."""

    run: str
    step: str
    connector: str
    request: int
    """The number of the login among the requests of its step."""
    sender: str
    """As the server accepted it."""
    recipients: tuple[str, ...]
    """As the server accepted them: hostile text."""
    size: int | None = None
    """Bytes that the connector announced; absent: it did not."""


class EgressSubmitted(_Event, frozen=True, kw_only=True, tag="egress.submitted"):
    """What the mail server answered to the message that the login sent last."""

    run: str
    step: str
    connector: str
    request: int
    size: int
    """Bytes of the message."""
    code: int
    """Of the answer; 200 to 299: the server has taken it."""


class EgressEffects(_Event, frozen=True, kw_only=True, tag="egress.effects"):
    """What a transaction of a database does. A preview's is taken back; another's is what a person saw, and is committed next."""

    run: str
    step: str
    connector: str
    request: int
    """The number of the login among the requests of its step."""
    digest: str
    """`sha256:…` of the statement, each row, and how many rows of which table changed."""


class ConnectorAudit(_Event, frozen=True, kw_only=True, tag="connector.audit"):
    """The connector says something for the record. Hostile text: a claim, not a fact."""

    run: str
    step: str
    connector: str
    event: str
    fields: dict[str, Any]


# Questions to a person


class ApprovalRequested(_Event, frozen=True, kw_only=True, tag="approval.requested"):
    """A person must decide. What is asked about is kept with the approval, bound to `digest`."""

    approval: str
    kind: str
    """What is asked about: `action` for a run."""
    digest: str
    expires_at_us: int
    name: str | None = None
    """Of the action, or of what the consent is about."""
    run: str | None = None


class ApprovalEdited(_Event, frozen=True, kw_only=True, tag="approval.edited"):
    """A person changed the arguments: another plan that they may approve in place of the one that was asked for."""

    approval: str
    digest: str
    """Of the new plan."""
    args: dict[str, Any]
    """The arguments, in full."""
    run: str | None = None


class ApprovalPreviewed(_Event, frozen=True, kw_only=True, tag="approval.previewed"):
    """What would change was read for the person who decides. What it said is not kept, only its digest."""

    approval: str
    plan_digest: str
    """Of the plan it was read for."""
    run: str
    """The reading's own audit id."""
    digest: str | None = None
    """Of the plan and the preview together, which may now be decided; absent: it failed."""
    preview: str | None = None
    """Of what was shown."""
    effects: str | None = None
    """Of the changes that were shown and taken back, where it is an operation that changes only those."""
    fields: str | None = None
    """Of the lines that were shown; `preview` is of this and `effects`. Absent where there are no effects."""
    failure_class: FailureClass | None = msgspec.field(default=None, name="class")


class ApprovalAsked(_Event, frozen=True, kw_only=True, tag="approval.asked"):
    """A person asked whoever asked them."""

    approval: str
    number: int
    """Counts the questions from 1."""
    text: str
    run: str | None = None
    session: str | None = None


class ApprovalAnswered(_Event, frozen=True, kw_only=True, tag="approval.answered"):
    """Whoever asked answered the person's question of that number. Hostile text."""

    approval: str
    number: int
    text: str
    run: str | None = None
    session: str | None = None
    """Who answered."""


class ApprovalDecided(_Event, frozen=True, kw_only=True, tag="approval.decided"):
    """A person decided."""

    approval: str
    kind: str
    digest: str
    """What the person was shown."""
    decision: Literal["approve", "deny"]
    surface: str
    """The scope it came in with: `operator`; or `page`."""
    reason: str | None = None
    run: str | None = None
    key_id: str | None = None
    """Whose signature; absent where no approver was set."""
    signed_at: str | None = None
    """The time that was signed with it, RFC 3339."""
    signature: str | None = None
    """Over the decision: base64, docs/reference/signed-decisions.md."""
    head: str | None = None
    """The newest row when the person decided (`SEQ:HASH`), signed too."""
    head_signature: str | None = None
    preview: str | None = None
    """The digest of the preview that was shown with it."""
    until_us: int | None = None
    """Until when it may be used, if that is later than before: it is held first."""


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
    """Somebody tried to decide and was refused. Nothing changed."""

    decision: RefusedTry
    """What was tried: `approve`, `deny`; to read a `preview`; to `appoint` another approver; to `unlock` the page, or to use
    a `page` that is unlocked."""
    reason: RefusedReason
    """What was wrong with it."""
    surface: str
    """The scope it came in with."""
    approval: str | None = None
    """Absent where this row counts several, and where it is about the page."""
    key_id: str | None = None
    """Whose signature it was said to be."""
    count: int = 1
    since_us: int | None = None
    """When the first of them came."""


class ApprovalRedeemed(_Event, frozen=True, kw_only=True, tag="approval.redeemed"):
    """The decision was used, which can happen once."""

    approval: str
    digest: str
    run: str | None = None


class ApprovalExpired(_Event, frozen=True, kw_only=True, tag="approval.expired"):
    """Its time was over before it was decided, or before its decision was used."""

    approval: str
    was: Literal["pending_approval", "approved"]
    run: str | None = None


class ApprovalCancelled(_Event, frozen=True, kw_only=True, tag="approval.cancelled"):
    """Whoever asked took the question back."""

    approval: str
    surface: str
    """The scope it came in with: `agent`, `operator`; `page`; or `session`: the session that it was for ended."""
    run: str | None = None


# Who decides, and what was agreed to


class ApproverSet(_Event, frozen=True, kw_only=True, tag="approver.set"):
    """From here on decisions are signed with this key."""

    key_id: str
    public_key: str
    """32 bytes, hex: Ed25519."""
    inventory: str
    """The digest of what existed then and was agreed to with it."""
    signed_at: str
    signature: str
    """Over all this, by the new key: base64."""
    replaces: str | None = None
    """The key that decided before."""
    old_signature: str | None = None
    """The same, by that key."""


class PasskeyAdded(_Event, frozen=True, kw_only=True, tag="passkey.added"):
    """From here on decisions may be signed with this passkey, too."""

    passkey: str
    """What its decisions name: `webauthn:…`."""
    name: str
    approval: str
    """Where the person agreed to it."""
    subject: dict[str, Any]
    """What they agreed to, whole, the public key in it."""
    signed_at: str
    signature: str
    """Over that decision, by the approver's key: base64."""
    reason: str | None = None
    """Signed with it."""


class PasskeyRemoved(_Event, frozen=True, kw_only=True, tag="passkey.removed"):
    """From here on this passkey decides nothing."""

    passkey: str
    reason: Literal["revoked", "vault"]
    """`vault`: the vault that was opened has it no more."""


class ConsentAgreed(_Event, frozen=True, kw_only=True, tag="consent.agreed"):
    """What a person agreed to is now what counts under that name."""

    kind: str
    name: str
    digest: str
    approval: str
    """Where they did."""


class ConsentEnded(_Event, frozen=True, kw_only=True, tag="consent.ended"):
    """What was agreed to under that name no longer counts."""

    kind: str
    name: str
    reason: str


class GrantUsed(_Event, frozen=True, kw_only=True, tag="grant.used"):
    """A run that a person would have been asked about was let through by a standing grant."""

    grant: str
    """The approval it was agreed to with."""
    run: str
    use: int
    """Counts the uses from 1."""
    of: int
    """How many there may be."""


class GrantRevoked(_Event, frozen=True, kw_only=True, tag="grant.revoked"):
    """A grant lets nothing through any more."""

    grant: str


class CallerRefused(_Event, frozen=True, kw_only=True, tag="caller.refused"):
    """Somebody asked for a route that the socket they came in on does not serve, or is nobody whom that socket serves."""

    scope: str
    """The socket's; `cell` for who is no process of an open cell."""
    route: str
    """At most 200 characters; `cell.sock` for such a caller."""
    session: str
    """Of the last of them."""
    count: int
    """How often, since this was told last."""
    since_us: int
    """When the first of them came."""


# Who asks


class SessionStarted(_Event, frozen=True, kw_only=True, tag="session.started"):
    """An agent may ask under a name of its own, with a token that nobody else has."""

    session: str
    agent: str
    folder: str
    """Where it works."""
    token_digest: str
    """`sha256:…` of the token; of 256 random bits, so that nobody finds them again."""
    expires_at_us: int
    pid: int | None = None
    """The process with which it ends, if it ends with one."""
    pid_started: float | None = None
    """When that process began, in seconds since the epoch: a number is used again."""
    party: str | None = None
    """Whose share its runs and questions count against: the session that started it, or `by hand`. Absent: with a process its
    own, and without one `by hand`.
    """
    only: tuple[str, ...] = ()
    """The selectors of what it can use; absent: everything."""
    above_only: tuple[tuple[str, ...], ...] = ()
    """The lists of selectors of the sessions in which it was opened: they hold for it too."""
    above_folders: tuple[str, ...] = ()
    """Where those work: what the settings say of these folders holds for it too."""
    cell_hosts: tuple[str, ...] | None = None
    """Its agent is in a cell: the patterns of the hosts that it can reach. Absent: it is in none."""
    cell_asks: bool = False
    """Whether a person is asked about other hosts; absent: they are refused."""
    pid_ticks: int | None = None
    """Of a cell's process: when it began, in clock ticks since the machine did."""
    inject_digest: str | None = None
    """`sha256:…` of the name in its addresses at the gateway, where the actions are put as tools into its requests to models."""


class SessionEnded(_Event, frozen=True, kw_only=True, tag="session.ended"):
    """Its token opens nothing any more. What it asked for goes on."""

    session: str
    reason: str
    """`ended`, `expired`, `process gone`."""
    exit_code: int | None = None


# Out of a cell


class TunnelOpened(_Event, frozen=True, kw_only=True, tag="tunnel.opened"):
    """A cell's agent is about to be connected to a host. On disk before the host hears of it; without its `tunnel.closed` nobody
    knows how much went.
    """

    session: str
    tunnel: str
    """The tunnel's id."""
    host: str
    """That it asked for, and that its ClientHello names."""
    port: int
    may_hide: bool = False
    """The ClientHello has an extension that can hold another name (ECH), or nothing: nobody can tell."""


class TunnelClosed(_Event, frozen=True, kw_only=True, tag="tunnel.closed"):
    """How that ended."""

    session: str
    tunnel: str
    host: str
    port: int
    address: str | None = None
    """The address that was connected to; absent: none answered."""
    bytes_up: int
    """From the agent to the host, as TLS has them."""
    bytes_down: int
    ms: int
    reason: str
    """`closed`, `idle`, `reset by client`, `reset by host`, `unreachable`, `session ended`, `stopping`, or which rule."""


class TunnelRefused(_Event, frozen=True, kw_only=True, tag="tunnel.refused"):
    """A cell's agent asked for a host that it does not get. Nothing went there."""

    session: str
    destination: str
    """`HOST:PORT`; `unknown` where the request could not be read."""
    reason: str
    """Which rule (docs/reference/cell-egress.md), or a class of failure."""
    count: int
    """How often, since this was told last."""
    since_us: int
    """When the first of them came."""


# Tools in requests to models: docs/reference/injected-tools.md. Nothing of a body.


class InjectionAdded(_Event, frozen=True, kw_only=True, tag="injection.added"):
    """A session's requests go on with these tools from now on."""

    session: str
    wire: str
    """Which API: `messages`, `chat`, `responses`."""
    tools: tuple[str, ...]
    """As the model is told them: the first 128."""
    count: int


class InjectionSkipped(_Event, frozen=True, kw_only=True, tag="injection.skipped"):
    """A request of such a session went on as it was; said once for each reason while the daemon runs."""

    session: str
    wire: str
    reason: str


class InjectionCalled(_Event, frozen=True, kw_only=True, tag="injection.called"):
    """A model called one of these tools."""

    session: str
    wire: str
    tool: str


class InjectionAnswered(_Event, frozen=True, kw_only=True, tag="injection.answered"):
    """What the model is told of that call; absent where the program went away before it was over."""

    session: str
    wire: str
    tool: str
    status: str | None = None
    """Where the run is, as the model is told; absent for what is no run."""
    failure_class: str | None = msgspec.field(default=None, name="class")
    asked: str | None = None
    """The id of the run or of the question."""


# What is installed


class ConnectorInstalled(_Event, frozen=True, kw_only=True, tag="connector.installed"):
    """A connector is in the store: exactly these bytes."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    source: str
    """Where the bytes came from."""
    signature: str
    """What was found: `unsigned`, or what vouches for it."""
    hosts: list[str] = []
    """Where it may send to."""
    credential: str | None = None
    """The kind of credential it takes."""


class ConnectorRemoved(_Event, frozen=True, kw_only=True, tag="connector.removed"):
    """A connector was taken out of the store."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")


class ConnectorActedEarly(_Event, frozen=True, kw_only=True, tag="connector.acted-early"):
    """A jail that was started ahead for a connector did something before it was told what to do. It was ended, unused."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    what: Literal["frame", "output", "network", "exit", "resources"]
    destination: str | None = None
    """Where it wanted to connect to, as it says."""


class ToolSuspended(_Event, frozen=True, kw_only=True, tag="tool.suspended"):
    """A connector reports that its server has changed a tool: from here on no run uses that operation. Hostile text."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    run: str
    """The run that found it."""
    action: str
    how: Literal["changed", "gone", "untold"]
    """`gone`: the server has it no more. `untold`: how it is now was not told in what a person can be shown."""
    before: str | None = None
    """The tool as the connector has it, as it says: a JSON object in canonical form."""
    now: str | None = None
    """The tool as the server has it, as the connector says."""
    digest: str | None = None
    """`sha256:…` of `now`."""


class ToolResumed(_Event, frozen=True, kw_only=True, tag="tool.resumed"):
    """Runs may use the operation again."""

    connector: str
    version: str
    hash: str = msgspec.field(name="pin")
    op: str
    reason: Literal["accepted", "lifted", "removed"]
    """`accepted`: as the server has it now; `lifted`: as it was, or as it was accepted last; `removed`: with its connector."""
    digest: str | None = None
    """Of the definition that was accepted."""
    approval: str | None = None
    """Where it was."""


class HostAsked(_Event, frozen=True, kw_only=True, tag="host.asked"):
    """An agent in a cell wants to connect to a host that its session does not list: a person is asked. The host is its word."""

    session: str
    host: str
    port: int
    approval: str
    """The question."""


class HostAllowed(_Event, frozen=True, kw_only=True, tag="host.allowed"):
    """A person approved it: the session can reach the host until it ends."""

    session: str
    host: str
    port: int
    approval: str


class KeyTrusted(_Event, frozen=True, kw_only=True, tag="key.trusted"):
    """A publisher's key counts from now on."""

    authority: str
    """`scheme://owner`, or `scheme://owner/repository`."""
    key: str
    """Its fingerprint."""
    source: str


class KeyRevoked(_Event, frozen=True, kw_only=True, tag="key.revoked"):
    """A publisher's key counts no more."""

    authority: str
    key: str


class ActionAdded(_Event, frozen=True, kw_only=True, tag="action.added"):
    """An action is there, or another version of it."""

    action: str
    version: str
    digest: str
    """`sha256:…` of the file as it was installed."""
    source: str | None = None
    published: str | None = None
    """`sha256:…` of the file as it was published, where it was fetched."""


class FetchStarted(_Event, frozen=True, kw_only=True, tag="fetch.started"):
    """A forge is about to be asked."""

    fetch: str
    what: str
    """`connector`, `action`, `update`, `sync`."""
    name: str
    """NAME@VERSION; of an update the action's own name; of a sync empty."""


class FetchEnded(_Event, frozen=True, kw_only=True, tag="fetch.ended"):
    """It gave what was asked for, or not; or nobody wants it any more."""

    fetch: str
    status: str
    """`ready`, `failed`, `cancelled`."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)
    hashes: list[str] = []
    """The pins of what was fetched, and is not installed yet."""


class ActionEnabled(_Event, frozen=True, kw_only=True, tag="action.enabled"):
    """An action may be run again."""

    action: str


class ActionDisabled(_Event, frozen=True, kw_only=True, tag="action.disabled"):
    """An action may not be run."""

    action: str


class ActionRemoved(_Event, frozen=True, kw_only=True, tag="action.removed"):
    """An action is gone."""

    action: str


# Credentials: names, never values


class BindingCreated(_Event, frozen=True, kw_only=True, tag="binding.created"):
    """A connector may have this credential added to its requests."""

    binding: str
    connector: str
    secret: str
    """The secret's name."""
    account: str | None = None
    """Whose it is, as the provider or the user said it."""
    hosts: list[str] = []
    """Where it may be sent."""
    scopes: list[str] = []
    """What a provider granted."""


class BindingRevoked(_Event, frozen=True, kw_only=True, tag="binding.revoked"):
    """It may no longer."""

    binding: str
    at_provider: str | None = None
    """What became of its tokens where they were issued: `revoked`, `not offered`, `failed`."""


class BindingRenewing(_Event, frozen=True, kw_only=True, tag="binding.renewing"):
    """The provider is about to be asked for another access token."""

    binding: str
    host: str


class BindingRenewed(_Event, frozen=True, kw_only=True, tag="binding.renewed"):
    """It gave one, and the vault has it, or will at the next chance."""

    binding: str


class BindingRenewalFailed(_Event, frozen=True, kw_only=True, tag="binding.renewal_failed"):
    """It gave none."""

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
    """Where the provider's page is."""


class SignInEnded(_Event, frozen=True, kw_only=True, tag="sign_in.ended"):
    """They did, or did not."""

    sign_in: str
    binding: str
    status: str
    """`done`, `failed`, `cancelled`."""
    account: str | None = None
    """As the provider names them."""
    scopes: list[str] = []
    """What was granted."""
    failure_class: FailureClass | None = msgspec.field(name="class", default=None)


class SecretSet(_Event, frozen=True, kw_only=True, tag="secret.set"):
    """A secret was stored under this name, in place of what was there; with a `reference`, where it is and not what."""

    name: str
    reference: str | None = None


class SecretFetching(_Event, frozen=True, kw_only=True, tag="secret.fetching"):
    """The value of a secret that is kept elsewhere is about to be fetched from there."""

    name: str
    reference: str
    binding: str | None
    """Which a request is about to be sent with; None: none, or a person approves it."""


class SecretFetchFailed(_Event, frozen=True, kw_only=True, tag="secret.fetch_failed"):
    """It was not."""

    name: str
    code: str
    """A word of ours: `changed`, `missing`, `locked` …"""


class SecretRemoved(_Event, frozen=True, kw_only=True, tag="secret.removed"):
    """The secret of this name is gone."""

    name: str


class VaultCreated(_Event, frozen=True, kw_only=True, tag="vault.created"):
    """The vault was made."""

    vault: str | None = None
    """Its id."""
    generation: int | None = None
    """How often it was written."""


class VaultUnlocked(_Event, frozen=True, kw_only=True, tag="vault.unlocked"):
    """The right passphrase was given, or another way in was."""

    way: str | None = None
    """`passphrase`, `recovery`, `keyring`."""
    vault: str | None = None
    generation: int | None = None


class VaultChanged(_Event, frozen=True, kw_only=True, tag="vault.changed"):
    """It was written, perhaps more than once, and has come so far: what is older is not this home's any more."""

    vault: str
    generation: int


class VaultRotated(_Event, frozen=True, kw_only=True, tag="vault.rotated"):
    """It has another passphrase and another key; what opened it before does not."""

    vault: str
    generation: int
    way: str
    """What was given for it: `passphrase`, `recovery`."""


class VaultBackedUp(_Event, frozen=True, kw_only=True, tag="vault.backed_up"):
    """A copy of it was written."""

    vault: str
    generation: int
    file: str


class VaultRestoring(_Event, frozen=True, kw_only=True, tag="vault.restoring"):
    """A copy is about to take its place: either may be there until the next event that names one."""

    vault: str
    generation: int
    """What it will have at least."""
    file: str


class VaultRestored(_Event, frozen=True, kw_only=True, tag="vault.restored"):
    """A copy took its place."""

    vault: str
    generation: int
    file: str
    aside: str | None = None
    """Where the one lies that was there before."""


class VaultUnlockFailed(_Event, frozen=True, kw_only=True, tag="vault.unlock_failed"):
    """A wrong passphrase was given, or the vault could not be read."""

    failure_class: FailureClass = msgspec.field(name="class")


class VaultLocked(_Event, frozen=True, kw_only=True, tag="vault.locked"):
    """The key is out of memory."""

    reason: str
    """`asked`, `stopping`, `idle`, `restored`."""


# The page


class PageUnlocked(_Event, frozen=True, kw_only=True, tag="page.unlocked"):
    """A passphrase or a passkey unlocked the page: one browser shows what waits, and decides it, until it is locked."""

    page: str
    """An id of this one; it opens nothing."""
    key_id: str
    """Whose key is open for it; or the passkey that unlocked it."""
    pid: int
    """The process at the other end, which it is bound to."""
    program: str
    """What that calls itself, which it chose."""


class PageLocked(_Event, frozen=True, kw_only=True, tag="page.locked"):
    """Its key is out of memory."""

    page: str
    reason: str
    """`asked`, `over`, `process`, `replaced`, `passkey`, `many`."""


# The daemon


class DaemonStarted(_Event, frozen=True, kw_only=True, tag="daemon.started"):
    """A daemon serves this home."""

    version: str
    home: str
    layers: list[str]
    """The isolation that every run will have."""


class DaemonStopped(_Event, frozen=True, kw_only=True, tag="daemon.stopped"):
    """It stopped as it should. Without this before the next `daemon.started`, it was killed."""

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
"""Events that stand alone: no run's or approval's state changes with them."""
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
"""Every event by its name."""


def facts_of(event: Event) -> dict[str, Any]:
    """The event as JSON values, its name under `type`: what the ledger chains."""
    facts: dict[str, Any] = msgspec.to_builtins(event)
    return facts

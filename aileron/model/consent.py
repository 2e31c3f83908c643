"""What a person agrees to beside single runs, and what they agreed to last: the values that a vault seals.

Pure. A consent is a row of the queue of approvals, with a `kind`, about a subject: JSON values, frozen, with a digest over their
canonical form. What was agreed to is kept by kind and name as that digest, inside the vault's authenticated contents, beside the
public half of the approver's key: whoever puts another file in the place of one of these has to break the vault's seal.

Source: docs/reference/consents.md. Not here: what widens (actions/widening.py), who signs (approver/), the queue (audit/log.py).
"""

from __future__ import annotations

import enum
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.decision import ApproverStatement, DecisionStatement
from aileron.model.login import LoginDetails
from aileron.model.passkey import PasskeyKey, Synced

__all__ = [
    "MAX_CHANGE_CHARACTERS",
    "MAX_PASSKEYS",
    "PASSKEY_DECIDES",
    "SETTINGS",
    "ActionFileConsent",
    "Agreement",
    "Appointed",
    "BindingConsent",
    "Change",
    "ConnectorConsent",
    "ConnectorUpdateConsent",
    "ConsentKind",
    "Consents",
    "Constraint",
    "GrantConsent",
    "HostConsent",
    "Operator",
    "Passkey",
    "PasskeyConsent",
    "SecretConsent",
    "SettingsConsent",
    "StandingGrant",
    "Subject",
    "ToolChangeConsent",
    "TrustedKeyConsent",
    "UsedDecision",
    "group_of",
    "subject_digest",
    "subject_kind",
    "subject_name",
    "tool_agreement",
]


class ConsentKind(enum.StrEnum):
    """What an approval request is about."""

    ACTION = "action"
    """A gated run: its subject is a frozen plan (model/plan.py)."""
    ACTION_FILE = "action_file"
    CONNECTOR = "connector"
    CONNECTOR_UPDATE = "connector_update"
    TRUSTED_KEY = "trusted_key"
    BINDING = "binding"
    SECRET = "secret"  # noqa: S105 - the kind of a row
    GRANT = "grant"
    SETTINGS = "settings"
    PASSKEY = "passkey"
    TOOL_CHANGE = "tool_change"
    HOST = "host"


PASSKEY_DECIDES: Final = frozenset(
    {
        ConsentKind.ACTION,
        ConsentKind.ACTION_FILE,
        ConsentKind.CONNECTOR,
        ConsentKind.CONNECTOR_UPDATE,
        ConsentKind.TRUSTED_KEY,
        ConsentKind.BINDING,
        ConsentKind.SECRET,
        ConsentKind.GRANT,
        ConsentKind.TOOL_CHANGE,
        ConsentKind.HOST,
    }
)
"""What a passkey may say yes to; it may say no to everything. Not another passkey, which would outlive its own revocation, and
not settings, which all else stands on: docs/adr/0028-passkeys.md.
"""

SETTINGS: Final = "settings"
"""What the agreement about all of them is called: there is one."""
MAX_PASSKEYS: Final = 16
"""One for each device of a person, and room."""
MAX_CHANGE_CHARACTERS: Final = 2000
"""Of one side of a change: a screen. The whole of a file is beside its changes."""
_CONTEXT_CHARACTERS: Final = 200
"""Kept before the first difference of two long texts, so that a reader knows where they are."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: where, and the values before and after. `widens`: it allows more, so a person must approve it."""

    where: str
    before: str | None
    after: str | None
    widens: bool = True

    @classmethod
    def of(cls, where: str, before: str | None, after: str | None, *, widens: bool = True) -> Self:
        """The change with both texts cut to MAX_CHANGE_CHARACTERS, and a mark where.

        Of long texts first goes what they begin with alike, so two that differ are never shown alike, wherever the difference is.
        """
        skipped = 0
        if before is not None and after is not None and max(len(before), len(after)) > MAX_CHANGE_CHARACTERS:
            skipped = max(0, _common_length(before, after) - _CONTEXT_CHARACTERS)
        return cls(where=where, before=_cut(before, skipped), after=_cut(after, skipped), widens=widens)


def _common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))


def _cut(text: str | None, skipped: int) -> str | None:
    if text is None:
        return None
    head = f"(the same for {skipped} characters) …" if skipped else ""
    rest = text[skipped:]
    if len(head) + len(rest) <= MAX_CHANGE_CHARACTERS:
        return head + rest
    kept = MAX_CHANGE_CHARACTERS - len(head) - len("… (1000000000 more characters)")
    return f"{head}{rest[:kept]}… ({len(rest) - kept} more characters)"


class ActionFileConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="action_file"):
    """The approval of an action file that is new, or allows more than the approved one. `text` is the whole file."""

    name: str
    text: str
    before: str | None
    """The digest (`sha256:…`) of the file agreed to last; None: there was none."""
    changes: tuple[Change, ...]
    reaches: tuple[str, ...]
    """HOST:PORT of the connectors it pins."""
    credentials: tuple[str, ...]
    """What kinds of credential they take, with their scope."""
    install: bool = False
    """Whether the file is to be put in its place; else it lies there already."""
    replace: bool = False
    fetched: str | None = None
    """`NAME@VERSION`, where the text was fetched, or made of what was; None: it came from this machine."""
    published: str | None = None
    """The digest (`sha256:…`) of the file that was fetched."""
    signature: str | None = None
    """What is known of the signature of what was fetched, in one line."""
    group: str | None = None
    """What it is agreed to together with, or not at all; None: with nothing."""
    installs: tuple[str, ...] = ()
    """The pins (`sha256:…`) of the connectors that come with it, each a question of the same `group`."""


class ConnectorConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="connector"):
    """The approval of a connector: it is installed from `source` if its bytes still have the digest `hash`."""

    name: str
    version: str
    hash: str
    source: str
    on_conflict: str
    signature: str
    reaches: tuple[str, ...]
    credential: str | None
    imports: tuple[str, ...]
    limits: dict[str, Any]
    wire: str | UnsetType = UNSET
    """How its credential travels (`Reach.wire`), where it logs in; absent otherwise."""
    publisher: str | None = None
    """Who it says it is from."""
    group: str | None = None
    """What it is agreed to together with, or not at all; None: with nothing."""
    for_action: str | None = None
    """The action that it comes with."""


class ConnectorUpdateConsent(ConnectorConsent, frozen=True, kw_only=True, tag_field="kind", tag="connector_update"):
    """The approval of another version of an installed connector: what it requests more, and less, than the version `before`."""

    before: str
    """The version whose manifest it is compared with."""
    changes: tuple[Change, ...]


class BindingConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="binding"):
    """The approval of a credential (a stored secret, or the tokens of a sign-in) for a connector, within what it now requests."""

    name: str
    connector: str
    secret: str
    username: str | None
    reaches: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """What the provider is asked for, sorted; for oauth2."""
    wire: str = ""
    """How it travels, in one line, and where it logs in."""
    client: str | None = None
    """Whose application the provider knows it by; for oauth2."""
    replaces: bool = False
    """Whether there is a binding of this name, in whose place it comes."""
    account: str | None = None
    """Who signed in, as the provider names them."""
    details: LoginDetails | UnsetType = UNSET
    """What the user said of a login: the database, the server's key, that the role only reads; absent where nothing was said."""
    commitment: str | None = None
    """sha256(nonce ‖ tokens) of a sign-in, whose tokens are nowhere until this is agreed to; None: the secret is stored."""
    reference: str | UnsetType = UNSET
    """Where the secret is kept, and what reads it there, if not in the vault; absent otherwise."""


class SecretConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="secret"):
    """The approval of a new value for a secret that bindings use. `commitment` is sha256(nonce ‖ value).

    With a `reference` the value is kept there, and not in the vault. With `token_to`, it is the approval of sending another
    secret there, for the first time, to fetch this one: no value is known before, and the commitment is to the reference.
    """

    name: str
    bindings: tuple[str, ...]
    commitment: str
    reference: str | UnsetType = UNSET
    token_to: str | UnsetType = UNSET
    """Who gets the token: a program's path, or a server's HOST:PORT."""
    token: str | UnsetType = UNSET
    """The name of the secret that is sent there. There is one exactly when there is `token_to`."""

    def __post_init__(self) -> None:
        """ValueError where only one of `token` and `token_to` is said: a person is shown both, or is not asked."""
        if (self.token is UNSET) != (self.token_to is UNSET):
            raise ValueError("of `token` and `token_to` there are both, or neither")


Operator = Literal["equals", "one_of", "prefix", "at_most", "absent"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """What one argument must be: `equals` a value, `one_of` a list, a string with a `prefix`, a number `at_most`, `absent`.

    `value` is null for `absent`: the argument must not be given.
    """

    argument: str
    operator: Operator
    value: Any


class GrantConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="grant"):
    """The approval of a grant: runs of this action file with these credentials need no approval while every constraint holds."""

    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    until: str
    """RFC 3339, UTC."""


class TrustedKeyConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="trusted_key"):
    """The approval of a publisher's key. `keys` are all keys that are then trusted for `authority`, in base64, sorted."""

    authority: str
    """`scheme://owner`, or `scheme://owner/repository`."""
    new: str
    """The fingerprint of the key that comes."""
    keys: tuple[str, ...]
    before: tuple[str, ...]
    """The fingerprints of those that count now."""
    source: str
    """Where the key is from."""


class SettingsConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="settings"):
    """The approval of settings that decide what can be reached and how strong the jail is: all of them, before and after."""

    before: dict[str, Any]
    after: dict[str, Any]


class PasskeyConsent(PasskeyKey, frozen=True, kw_only=True, tag_field="kind", tag="passkey"):
    """The approval of a passkey that can decide on the page at `origin`. Nothing proves which device holds it."""

    key_id: str
    """What its decisions name, and the page shows where it was made."""
    algorithm: str
    synced: Synced
    aaguid: str | None
    """The model of its authenticator, as that says itself."""
    transports: tuple[str, ...]
    """How it is reached, as the browser says: `internal`, `hybrid`, `usb`."""


class ToolChangeConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tool_change"):
    """The approval to keep using a tool that its server changed. `definition` is the server's complete current definition."""

    connector: str
    version: str
    hash: str
    op: str
    action: str
    """The action whose run found it."""
    before: str
    """The digest (`sha256:…`) of what it is compared with: what was accepted last, or what the connector was made with."""
    changes: tuple[Change, ...]
    definition: str
    """A JSON object in canonical form."""
    digest: str
    """`sha256:…` of the definition: what is accepted."""

    @property
    def agreement(self) -> str:
        """What the agreement is called: it holds for this operation of this pin alone."""
        return tool_agreement(self.hash, self.op)


class HostConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="host"):
    """The approval of a host for the agent in one cell: it may connect there, over TLS, until its session ends."""

    session: str
    agent: str
    """Which agent that session was started for, as `aileron launch` says."""
    folder: str
    """Where it works."""
    host: str
    port: int

    @property
    def destination(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


def tool_agreement(pin_hash: str, op: str) -> str:
    """What the agreement about a changed tool is called."""
    return f"{pin_hash} {op}"


Subject = (
    ActionFileConsent
    | ConnectorConsent
    | ConnectorUpdateConsent
    | BindingConsent
    | SecretConsent
    | GrantConsent
    | TrustedKeyConsent
    | SettingsConsent
    | PasskeyConsent
    | ToolChangeConsent
    | HostConsent
)


class Agreement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was agreed to last under one name: the `digest` of a file, a pin or settings; `approval` is where it was signed."""

    kind: ConsentKind
    name: str
    digest: str
    approval: str


class StandingGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant in force. `until` in seconds since the epoch, whole.

    Its uses are counted in the ledger, for people, and in `used`, which the vault seals: a ledger of before does not renew it.
    """

    id: str
    """The approval it was agreed to with."""
    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    until: int
    used: int = 0


class UsedDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed decision that was used, or taken back. After `until` (seconds since the epoch) it is too old to be used anyway."""

    approval: str
    until: int


class Appointed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the approver was named with (`ApproverStatement` of model/decision.py), for a record that was cut short."""

    inventory: str
    replaces: str | None
    at: str
    signature: str
    old_signature: str | None


class Passkey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A passkey that decides, with the decision of the approver's key that let it (`DecisionStatement` of model/decision.py)."""

    id: str
    """Of its key: `webauthn:…`."""
    approval: str
    subject: PasskeyConsent
    at: str
    reason: str | None
    signature: str

    def enrolment(self, approver: str) -> DecisionStatement:
        """What the approver's key of this id signed."""
        return DecisionStatement(
            approval_id=self.approval,
            digest=subject_digest(self.subject),
            decision="approve",
            reason=self.reason,
            at=self.at,
            key_id=approver,
        )


class Consents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who decides for this home, and all they agreed to. `public_key` is 32 bytes, hex."""

    key_id: str
    public_key: str
    created_ms: int
    appointed: Appointed | None = None
    agreed: tuple[Agreement, ...] = ()
    """In order of kind and name, each once."""
    grants: tuple[StandingGrant, ...] = ()
    """In order of id."""
    used: tuple[UsedDecision, ...] = ()
    """In order of approval: what the ledger says was used, said again where nobody can set it back."""
    passkeys: tuple[Passkey, ...] = ()
    """In order of id."""

    def appointment(self) -> ApproverStatement | None:
        """What the approver was named with, as it was signed; None where that was not kept."""
        if self.appointed is None:
            return None
        return ApproverStatement(
            public_key=self.public_key,
            inventory=self.appointed.inventory,
            replaces=self.appointed.replaces,
            at=self.appointed.at,
            key_id=self.key_id,
        )

    def agreed_digest(self, kind: ConsentKind, name: str) -> str | None:
        """The digest agreed to last; None: never asked, or taken back."""
        return next((one.digest for one in self.agreed if one.kind is kind and one.name == name), None)

    def is_connector_agreed(self, pin_hash: str) -> bool:
        """Whether the connector of these bytes was agreed to; of one version there may be several, side by side."""
        return any(one.kind is ConsentKind.CONNECTOR and one.digest == pin_hash for one in self.agreed)

    def with_agreement(self, agreement: Agreement) -> Consents:
        """The same with this one in place of what was agreed to under its name."""
        kept = [one for one in self.agreed if (one.kind, one.name) != (agreement.kind, agreement.name)]
        ordered = sorted([*kept, agreement], key=lambda one: (one.kind.value, one.name))
        return msgspec.structs.replace(self, agreed=tuple(ordered))

    def without_agreement(self, kind: ConsentKind, name: str) -> Consents:
        """The same without it."""
        kept = tuple(one for one in self.agreed if (one.kind, one.name) != (kind, name))
        return msgspec.structs.replace(self, agreed=kept)

    def with_grant(self, grant: StandingGrant) -> Consents:
        """The same with one more grant."""
        ordered = sorted([*self.grants, grant], key=lambda one: one.id)
        return msgspec.structs.replace(self, grants=tuple(ordered))

    def without_grant(self, grant_id: str) -> Consents:
        """The same without it."""
        return msgspec.structs.replace(self, grants=tuple(one for one in self.grants if one.id != grant_id))

    def with_use(self, grant_id: str) -> Consents:
        """The same with one more use of this grant."""
        counted = [msgspec.structs.replace(one, used=one.used + (one.id == grant_id)) for one in self.grants]
        return msgspec.structs.replace(self, grants=tuple(counted))

    def passkey(self, key_id: str) -> Passkey | None:
        """The passkey of this id; None: it decides nothing, or not any more."""
        return next((one for one in self.passkeys if one.id == key_id), None)

    def with_passkey(self, passkey: Passkey) -> Consents:
        """The same with one more passkey."""
        ordered = sorted([*self.passkeys, passkey], key=lambda one: one.id)
        return msgspec.structs.replace(self, passkeys=tuple(ordered))

    def without_passkey(self, key_id: str) -> Consents:
        """The same without it."""
        return msgspec.structs.replace(self, passkeys=tuple(one for one in self.passkeys if one.id != key_id))

    def is_used(self, approval: str) -> bool:
        """Whether this decision was used, or taken back."""
        return any(one.approval == approval for one in self.used)

    def with_used(self, approval: str, until: int, now: int) -> Consents:
        """The same with this decision used; without those that are too old by `now`."""
        kept = [one for one in self.used if one.until >= now and one.approval != approval]
        ordered = sorted([*kept, UsedDecision(approval=approval, until=until)], key=lambda one: one.approval)
        return msgspec.structs.replace(self, used=tuple(ordered))


def group_of(subject: Subject) -> str | None:
    """What it is agreed to together with, or not at all; None: with nothing."""
    return subject.group if isinstance(subject, ActionFileConsent | ConnectorConsent) else None


def subject_digest(subject: Subject) -> str:
    """`sha256:…` over the canonical JSON of the subject: what a decision about it signs."""
    return sha256_digest(canonical_json(msgspec.to_builtins(subject)))


def subject_kind(subject: Subject) -> ConsentKind:
    """What its question is about."""
    return ConsentKind(str(type(subject).__struct_config__.tag))


def subject_name(subject: Subject) -> str:
    """What it is about, as its question, its agreement and the record call it."""
    match subject:
        case ConnectorConsent():
            return f"{subject.name}@{subject.version}"
        case GrantConsent():
            return subject.action
        case TrustedKeyConsent():
            return subject.authority
        case SettingsConsent():
            return SETTINGS
        case ToolChangeConsent():
            return f"{subject.op} of {subject.connector}@{subject.version}"
        case HostConsent():
            return subject.destination
        case _:
            return subject.name

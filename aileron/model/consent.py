"""The subjects that a person consents to besides single runs, and the last consents: the values that a vault seals.

Pure. A consent is a row of the queue of approvals, with a `kind`, about a subject: JSON values, frozen, with a digest over their
canonical form. The vault keeps that digest, by kind and name, inside its authenticated contents, beside the public half of the
approver's key: to put another file in the place of one of these means to break the vault's seal.

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
    """The subject of an approval request."""

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
"""Kinds that a passkey can approve; it can deny every kind.

It cannot approve another passkey, which would outlive its own revocation, nor settings, on which all else depends:
docs/adr/0028-passkeys.md.
"""

SETTINGS: Final = "settings"
"""Name of the one consent to all settings."""
MAX_PASSKEYS: Final = 16
"""Passkeys of a home: one for each device of a person, and room."""
MAX_CHANGE_CHARACTERS: Final = 2000
"""Characters of one side of a change: a screen. The whole file is beside its changes."""
_CONTEXT_CHARACTERS: Final = 200
"""Characters kept before the first difference of two long texts, so that a reader knows where they are."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A difference: its place, and the values before and after.
    `widens` means that it allows more, so a person must approve it.
    """

    where: str
    before: str | None
    after: str | None
    widens: bool = True

    @classmethod
    def of(cls, where: str, before: str | None, after: str | None, *, widens: bool = True) -> Self:
        """Return the change with both texts cut to MAX_CHANGE_CHARACTERS, and a note at each cut.

        If texts are long, their common beginning is cut first, so two that differ are never shown alike, wherever the
        difference is.
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
    """Digest (`sha256:…`) of the file with the last consent; None if there was none."""
    changes: tuple[Change, ...]
    reaches: tuple[str, ...]
    """HOST:PORT of every host that the connectors it pins can reach."""
    credentials: tuple[str, ...]
    """Kinds of credential that the connectors take, with their scope."""
    install: bool = False
    """True if the file has to be put in its place; otherwise it is there already."""
    replace: bool = False
    fetched: str | None = None
    """`NAME@VERSION` that the text was fetched as or made from; None if it is from this machine."""
    published: str | None = None
    """Digest (`sha256:…`) of the file that was fetched."""
    signature: str | None = None
    """Facts about the signature of the fetched file, in one line."""
    group: str | None = None
    """Group of questions that are approved together or not at all; None if it belongs to none."""
    installs: tuple[str, ...] = ()
    """Pins (`sha256:…`) of the connectors that come with it, each a question of the same `group`."""


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
    """Form of its credential on the wire (`Reach.wire`), if it logs in; absent otherwise."""
    publisher: str | None = None
    """Claimed publisher."""
    group: str | None = None
    """Group of questions that are approved together or not at all; None if it belongs to none."""
    for_action: str | None = None
    """Action that it comes with."""


class ConnectorUpdateConsent(ConnectorConsent, frozen=True, kw_only=True, tag_field="kind", tag="connector_update"):
    """The approval of another version of an installed connector. `changes` compares its requests with those of `before`."""

    before: str
    """Version whose manifest it is compared with."""
    changes: tuple[Change, ...]


class BindingConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="binding"):
    """The approval of a credential (a stored secret, or the tokens of a sign-in) for a connector, within what it now requests."""

    name: str
    connector: str
    secret: str
    username: str | None
    reaches: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """Scopes that the provider is asked for, sorted; for oauth2."""
    wire: str = ""
    """Form of the credential on the wire, in one line, and where it logs in."""
    client: str | None = None
    """Application that the provider knows it by; for oauth2."""
    replaces: bool = False
    """True if it replaces a binding of this name."""
    account: str | None = None
    """Account that signed in, as the provider names it."""
    details: LoginDetails | UnsetType = UNSET
    """Facts that the user stated about a login: the database, the server's key, that the role only reads; absent without any."""
    commitment: str | None = None
    """sha256(nonce ‖ tokens) of a sign-in, whose tokens are stored nowhere before the approval; None if the secret is stored."""
    reference: str | UnsetType = UNSET
    """Reference to the place of the secret, and to what reads it there, if it is not in the vault; absent otherwise."""


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
    """Receiver of the token: a program's path, or a server's HOST:PORT."""
    token: str | UnsetType = UNSET
    """Name of the secret that is sent there. It is set exactly if `token_to` is."""

    def __post_init__(self) -> None:
        """Raise ValueError if only one of `token` and `token_to` is set: a person must be shown both."""
        if (self.token is UNSET) != (self.token_to is UNSET):
            raise ValueError("of `token` and `token_to` there are both, or neither")


Operator = Literal["equals", "one_of", "prefix", "at_most", "absent"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one argument: `equals` a value, `one_of` a list, a string with a `prefix`, a number `at_most`, `absent`.

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
    """End of the grant, in RFC 3339, UTC."""


class TrustedKeyConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="trusted_key"):
    """The approval of a publisher's key. `keys` are all keys that are then trusted for `authority`, in base64, sorted."""

    authority: str
    """Owner of the key: `scheme://owner`, or `scheme://owner/repository`."""
    new: str
    """Fingerprint of the new key."""
    keys: tuple[str, ...]
    before: tuple[str, ...]
    """Fingerprints of the keys that are trusted now."""
    source: str
    """Source of the key."""


class SettingsConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="settings"):
    """The approval of settings that decide what can be reached and how strong the jail is: all of them, before and after."""

    before: dict[str, Any]
    after: dict[str, Any]


class PasskeyConsent(PasskeyKey, frozen=True, kw_only=True, tag_field="kind", tag="passkey"):
    """The approval of a passkey that can decide on the page at `origin`. Nothing proves which device holds it."""

    key_id: str
    """Id that its decisions name, and that the page shows where the passkey was created."""
    algorithm: str
    synced: Synced
    aaguid: str | None
    """Model of its authenticator, as the authenticator says itself."""
    transports: tuple[str, ...]
    """Ways to reach it, as the browser says: `internal`, `hybrid`, `usb`."""


class ToolChangeConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tool_change"):
    """The approval to keep using a tool that its server changed. `definition` is the server's complete current definition."""

    connector: str
    version: str
    hash: str
    op: str
    action: str
    """Action whose run found the change."""
    before: str
    """Digest (`sha256:…`) of the definition it is compared with:
    the last accepted one, or the one that the connector was made with.
    """
    changes: tuple[Change, ...]
    definition: str
    """JSON object in canonical form."""
    digest: str
    """Digest of the definition, `sha256:…`: this is what is accepted."""

    @property
    def agreement(self) -> str:
        """Name of the consent: it holds for this operation of this pin alone."""
        return tool_agreement(self.hash, self.op)


class HostConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="host"):
    """The approval of a host for the agent in one cell: it may connect there, over TLS, until its session ends."""

    session: str
    agent: str
    """Agent that the session was started for, as `aileron launch` says."""
    folder: str
    """Working folder of the agent."""
    host: str
    port: int

    @property
    def destination(self) -> str:
        """Host and port, as HOST:PORT."""
        return f"{self.host}:{self.port}"


def tool_agreement(pin_hash: str, op: str) -> str:
    """Return the name of the consent to a changed tool."""
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
    """The last consent under one name: `digest` is of a file, a pin or settings; `approval` is the signed approval."""

    kind: ConsentKind
    name: str
    digest: str
    approval: str


class StandingGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant in force. `until` is in whole seconds since the epoch.

    Its uses are counted in the ledger, for people, and in `used`, which the vault seals: an older copy of the ledger does not
    renew it.
    """

    id: str
    """Id of the approval that created it."""
    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    until: int
    used: int = 0


class UsedDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed decision that was used, or withdrawn.

    After `until` (seconds since the epoch) it is too old to be used anyway.
    """

    approval: str
    until: int


class Appointed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statement that named the approver (`ApproverStatement` of model/decision.py), for a record that was interrupted."""

    inventory: str
    replaces: str | None
    at: str
    signature: str
    old_signature: str | None


class Passkey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A passkey that can decide, with the approver's decision that enrolled it (`DecisionStatement` of model/decision.py)."""

    id: str
    """Id of its key: `webauthn:…`."""
    approval: str
    subject: PasskeyConsent
    at: str
    reason: str | None
    signature: str

    def enrolment(self, approver: str) -> DecisionStatement:
        """Return the statement that the approver's key of this id signed."""
        return DecisionStatement(
            approval_id=self.approval,
            digest=subject_digest(self.subject),
            decision="approve",
            reason=self.reason,
            at=self.at,
            key_id=approver,
        )


class Consents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The approver of a home, and all that they consented to. `public_key` is 32 bytes, hex."""

    key_id: str
    public_key: str
    created_ms: int
    appointed: Appointed | None = None
    agreed: tuple[Agreement, ...] = ()
    """Last consents, sorted by kind and name, each once."""
    grants: tuple[StandingGrant, ...] = ()
    """Grants in force, sorted by id."""
    used: tuple[UsedDecision, ...] = ()
    """Decisions that the ledger records as used, sorted by approval: kept here, too, where nobody can undo it."""
    passkeys: tuple[Passkey, ...] = ()
    """Passkeys that can decide, sorted by id."""

    def appointment(self) -> ApproverStatement | None:
        """Return the statement that named the approver, as it was signed; None if it was not kept."""
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
        """Return the digest of the last consent; None if there was none, or it was withdrawn."""
        return next((one.digest for one in self.agreed if one.kind is kind and one.name == name), None)

    def is_connector_agreed(self, pin_hash: str) -> bool:
        """Return whether the connector with these bytes has consent; several builds of one version can have it side by side."""
        return any(one.kind is ConsentKind.CONNECTOR and one.digest == pin_hash for one in self.agreed)

    def with_agreement(self, agreement: Agreement) -> Consents:
        """Return the consents with this one in place of the last under its name."""
        kept = [one for one in self.agreed if (one.kind, one.name) != (agreement.kind, agreement.name)]
        ordered = sorted([*kept, agreement], key=lambda one: (one.kind.value, one.name))
        return msgspec.structs.replace(self, agreed=tuple(ordered))

    def without_agreement(self, kind: ConsentKind, name: str) -> Consents:
        """Return the consents without this one."""
        kept = tuple(one for one in self.agreed if (one.kind, one.name) != (kind, name))
        return msgspec.structs.replace(self, agreed=kept)

    def with_grant(self, grant: StandingGrant) -> Consents:
        """Return the consents with one more grant."""
        ordered = sorted([*self.grants, grant], key=lambda one: one.id)
        return msgspec.structs.replace(self, grants=tuple(ordered))

    def without_grant(self, grant_id: str) -> Consents:
        """Return the consents without this grant."""
        return msgspec.structs.replace(self, grants=tuple(one for one in self.grants if one.id != grant_id))

    def with_use(self, grant_id: str) -> Consents:
        """Return the consents with one more use of this grant."""
        counted = [msgspec.structs.replace(one, used=one.used + (one.id == grant_id)) for one in self.grants]
        return msgspec.structs.replace(self, grants=tuple(counted))

    def passkey(self, key_id: str) -> Passkey | None:
        """Return the passkey with this id; None if it decides nothing, or no longer."""
        return next((one for one in self.passkeys if one.id == key_id), None)

    def with_passkey(self, passkey: Passkey) -> Consents:
        """Return the consents with one more passkey."""
        ordered = sorted([*self.passkeys, passkey], key=lambda one: one.id)
        return msgspec.structs.replace(self, passkeys=tuple(ordered))

    def without_passkey(self, key_id: str) -> Consents:
        """Return the consents without this passkey."""
        return msgspec.structs.replace(self, passkeys=tuple(one for one in self.passkeys if one.id != key_id))

    def is_used(self, approval: str) -> bool:
        """Return whether this decision was used, or withdrawn."""
        return any(one.approval == approval for one in self.used)

    def with_used(self, approval: str, until: int, now: int) -> Consents:
        """Return the consents with this decision marked as used, and without decisions that are too old by `now`."""
        kept = [one for one in self.used if one.until >= now and one.approval != approval]
        ordered = sorted([*kept, UsedDecision(approval=approval, until=until)], key=lambda one: one.approval)
        return msgspec.structs.replace(self, used=tuple(ordered))


def group_of(subject: Subject) -> str | None:
    """Return the group of questions that are approved together or not at all; None if the subject belongs to none."""
    return subject.group if isinstance(subject, ActionFileConsent | ConnectorConsent) else None


def subject_digest(subject: Subject) -> str:
    """Return `sha256:…` over the canonical JSON of the subject: a decision about it signs this."""
    return sha256_digest(canonical_json(msgspec.to_builtins(subject)))


def subject_kind(subject: Subject) -> ConsentKind:
    """Return the kind of the subject's question."""
    return ConsentKind(str(type(subject).__struct_config__.tag))


def subject_name(subject: Subject) -> str:
    """Return the subject's name, as its question, its consent and the record use it."""
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

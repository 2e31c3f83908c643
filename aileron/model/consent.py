"""The subjects that a person consents to in addition to single runs, and the latest consents, which a vault seals.

Pure. A consent is a row of the queue of approvals, with a `kind`, about a subject: JSON values, frozen, with a digest over their
canonical form. The vault stores that digest, by kind and name, in its authenticated contents, together with the
approver's public key. So nobody can replace a file that has consent without breaking the vault's seal.

Source: docs/reference/consents.md. Not here: which changes widen a consent (actions/widening.py), signing (approver_key/), the
queue (audit/questions.py).
"""

from __future__ import annotations

import enum
from typing import Any, Final, Literal, Self, assert_never

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
    "Appointed",
    "BindingConsent",
    "Change",
    "ConnectorConsent",
    "ConnectorUpdateConsent",
    "Consent",
    "ConsentKind",
    "Consents",
    "Constraint",
    "GrantConsent",
    "HostConsent",
    "InstallationConsent",
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
    "subject_digest",
    "subject_kind",
    "subject_name",
    "tool_consent_name",
]


class ConsentKind(enum.StrEnum):
    """The kind of subject that an approval request is about."""

    ACTION = "action"
    """A gated run, whose subject is a frozen plan (model/plan.py)."""
    ACTION_FILE = "action_file"
    CONNECTOR = "connector"
    CONNECTOR_UPDATE = "connector_update"
    INSTALLATION = "installation"
    TRUSTED_KEY = "trusted_key"
    BINDING = "binding"
    SECRET = "secret"  # noqa: S105 - the kind of a row
    GRANT = "grant"
    SETTINGS = "settings"
    PASSKEY = "passkey"
    TOOL_CHANGE = "tool_change"
    HOST = "host"

    @property
    def words(self) -> str:
        """The displayed name of a question of this kind."""
        match self:
            case ConsentKind.ACTION:
                return "run"
            case ConsentKind.TOOL_CHANGE:
                return "changed tool"
            case (
                ConsentKind.ACTION_FILE
                | ConsentKind.CONNECTOR
                | ConsentKind.CONNECTOR_UPDATE
                | ConsentKind.INSTALLATION
                | ConsentKind.TRUSTED_KEY
                | ConsentKind.BINDING
                | ConsentKind.SECRET
                | ConsentKind.GRANT
                | ConsentKind.SETTINGS
                | ConsentKind.PASSKEY
                | ConsentKind.HOST
            ):
                return self.value.replace("_", " ")
            case _:
                assert_never(self)

    @property
    def passkey_decides(self) -> bool:
        """True if a passkey can approve a question of this kind."""
        match self:
            case ConsentKind.PASSKEY | ConsentKind.SETTINGS:
                return False
            case (
                ConsentKind.ACTION
                | ConsentKind.ACTION_FILE
                | ConsentKind.CONNECTOR
                | ConsentKind.CONNECTOR_UPDATE
                | ConsentKind.INSTALLATION
                | ConsentKind.TRUSTED_KEY
                | ConsentKind.BINDING
                | ConsentKind.SECRET
                | ConsentKind.GRANT
                | ConsentKind.TOOL_CHANGE
                | ConsentKind.HOST
            ):
                return True
            case _:
                assert_never(self)


PASSKEY_DECIDES: Final = frozenset(kind for kind in ConsentKind if kind.passkey_decides)
"""Kinds of subject that a passkey can approve; a passkey can deny every kind.

A passkey cannot approve another passkey, which would remain after the first is revoked, nor settings, on which all other
protection depends (docs/adr/0028-passkeys.md).
"""

SETTINGS: Final = "settings"
"""Name of the only consent of kind `settings`: it covers all settings."""
MAX_PASSKEYS: Final = 16
"""Maximum number of passkeys of one home: enough for each device of a person, with some to spare."""
MAX_CHANGE_CHARACTERS: Final = 2000
"""Maximum number of characters of one side of a change, about a screen. The complete file is shown in addition to its changes."""
_CONTEXT_CHARACTERS: Final = 200
"""Number of characters shown before the first difference between two long texts, so that a reader sees the context."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between two versions of one thing, such as an action file, a tool or the settings, or between two calls of an
    action: its place, and the values before and after.

    `widens` is true if the new value allows more, so that a person must approve it.
    """

    where: str
    before: str | None
    after: str | None
    widens: bool = True

    @classmethod
    def of(cls, where: str, before: str | None, after: str | None, *, widens: bool = True) -> Self:
        """Return the change with both texts cut to MAX_CHANGE_CHARACTERS, with a note at each cut.

        If the texts are long, their common beginning is cut first, so that two different texts never look the same, wherever
        the difference is.
        """
        skipped = 0
        if before is not None and after is not None and max(len(before), len(after)) > MAX_CHANGE_CHARACTERS:
            skipped = max(0, _common_length(before, after) - _CONTEXT_CHARACTERS)
        return cls(where=where, before=_cut(before, skipped), after=_cut(after, skipped), widens=widens)


def _common_length(text: str, other: str) -> int:
    pairs = enumerate(zip(text, other, strict=False))
    return next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(text), len(other)))


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
    """The approval of an action file that is new, or allows more than the approved one. `text` is the complete file."""

    name: str
    text: str
    before: str | None
    """Digest (`sha256:…`) of the version of the file that last had consent; None if there was none."""
    changes: tuple[Change, ...]
    reaches: tuple[str, ...]
    """HOST:PORT of every host that can be reached by the connectors that the file pins."""
    credentials: tuple[str, ...]
    """Kinds of credential that the file's connectors take, with their scope."""
    install: bool = False
    """True if the file must still be installed; False if it is already in the actions folder."""
    replace: bool = False
    fetched: str | None = None
    """`NAME@VERSION` that the text was fetched as, or made from; None if the file was written on this machine."""
    published: str | None = None
    """Digest (`sha256:…`) of the file as it was fetched."""
    signature: str | None = None
    """Facts about the signature of the fetched file, in one line of text."""


class ConnectorConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="connector"):
    """The approval of a connector: the connector is installed from `source` if its bytes still have the digest `hash`."""

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
    """Form of the connector's credential on the wire (`Reach.wire`) if the connector logs in; absent otherwise."""
    publisher: str | None = None
    """Publisher, as claimed by the connector."""


class ConnectorUpdateConsent(ConnectorConsent, frozen=True, kw_only=True, tag_field="kind", tag="connector_update"):
    """The approval of another version of an installed connector.

    `changes` compares the version's requests with those of `before`.
    """

    before: str
    """Version whose manifest the new version is compared with."""
    changes: tuple[Change, ...]


class BindingConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="binding"):
    """The approval of a credential for a connector, limited to what the connector now requests.

    The credential is a stored secret, or the tokens of a sign-in.
    """

    name: str
    connector: str
    secret: str
    username: str | None
    reaches: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """Scopes that the provider is asked for, sorted; used for oauth2 only."""
    wire: str = ""
    """Form of the credential on the wire and the place where it logs in, in one line of text."""
    client: str | None = None
    """Application that signs in, with its token URL (as in `Reach.client`); used for oauth2 only."""
    replaces: bool = False
    """True if the new binding replaces an existing binding with this name."""
    account: str | None = None
    """Account that signed in, as named by the provider."""
    details: LoginDetails | UnsetType = UNSET
    """Facts that the user stated about a login: the database, the server's key, or that the role only reads.

    Absent if there are none.
    """
    commitment: str | None = None
    """sha256(nonce ‖ tokens) of a sign-in, whose tokens are stored nowhere before the approval; None for a stored secret."""
    reference: str | UnsetType = UNSET
    """Reference to the place of the secret and the program that reads it, if the secret is not in the vault; absent otherwise."""


class InstallationConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="installation"):
    """The approval of connectors and actions that are installed together, and of credentials that are bound to them. All of
    it is approved, or none.
    """

    name: str
    """Name of the action that the connectors are for, or of what is installed, such as a service."""
    connectors: tuple[ConnectorConsent | ConnectorUpdateConsent, ...] = ()
    actions: tuple[ActionFileConsent, ...] = ()
    bindings: tuple[BindingConsent, ...] = ()


class SecretConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="secret"):
    """The approval of a new value for a secret that bindings use. `commitment` is sha256(nonce ‖ value).

    With a `reference`, the value is stored at the referenced place and not in the vault. With `token_to`, a person approves that
    another secret is sent to that receiver for the first time, to fetch this secret. No value is known before that, so the
    commitment is to the reference.
    """

    name: str
    bindings: tuple[str, ...]
    commitment: str
    reference: str | UnsetType = UNSET
    token_to: str | UnsetType = UNSET
    """Receiver of the token: the path of a program, or HOST:PORT of a server."""
    token: str | UnsetType = UNSET
    """Name of the secret that is sent to `token_to`. Set if and only if `token_to` is set."""

    def __post_init__(self) -> None:
        """Raise ValueError if only one of `token` and `token_to` is set, because a person must be shown both."""
        if (self.token is UNSET) != (self.token_to is UNSET):
            raise ValueError("of `token` and `token_to` there are both, or neither")


Operator = Literal["equals", "one_of", "prefix", "at_most", "absent"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one argument, according to `operator`: it `equals` a value, is `one_of` a list, is a string with a
    `prefix`, is a number `at_most` a limit, or is `absent`.

    For `absent`, which means that the argument must not be given, `value` is null.
    """

    argument: str
    operator: Operator
    value: Any


class GrantConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="grant"):
    """The approval of a standing grant: runs of this action file with these credentials need no approval while every
    constraint holds.
    """

    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    until: str
    """End of the standing grant, as RFC 3339 in UTC."""


class TrustedKeyConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="trusted_key"):
    """The approval of a publisher's key. `keys` are all keys trusted for `authority` after the approval, in base64, sorted."""

    authority: str
    """Owner of the key, as `scheme://owner` or `scheme://owner/repository`."""
    new: str
    """Fingerprint of the new key."""
    keys: tuple[str, ...]
    before: tuple[str, ...]
    """Fingerprints of the keys that are trusted before the approval."""
    source: str
    """Place that the key was obtained from."""


class SettingsConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="settings"):
    """The approval of settings that decide what can be reached and how strong the jail is.

    The subject has all these settings, before and after the change.
    """

    before: dict[str, Any]
    after: dict[str, Any]


class PasskeyConsent(PasskeyKey, frozen=True, kw_only=True, tag_field="kind", tag="passkey"):
    """The approval of a passkey that can decide on the page at `origin`. There is no proof of which device holds the passkey."""

    key_id: str
    """Id that the passkey's decisions name; the page where the passkey was created shows it too."""
    algorithm: str
    synced: Synced
    aaguid: str | None
    """Model of the authenticator, as the authenticator itself claims."""
    transports: tuple[str, ...]
    """Ways to reach the authenticator, as reported by the browser: `internal`, `hybrid`, `usb`."""


class ToolChangeConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tool_change"):
    """The approval to keep using a tool that its server changed. `definition` is the server's complete current definition."""

    connector: str
    version: str
    hash: str
    op: str
    action: str
    """Action whose run detected the change."""
    before: str
    """Digest (`sha256:…`) of the definition that the new one is compared with.

    This is the last accepted definition, or the one that the connector was made from.
    """
    changes: tuple[Change, ...]
    definition: str
    """Current definition of the tool: a JSON object in canonical form."""
    digest: str
    """Digest (`sha256:…`) of the new definition. A person accepts exactly the definition with this digest."""

    @property
    def consent_name(self) -> str:
        """Name of the consent, which is valid only for this operation of this pin."""
        return tool_consent_name(self.hash, self.op)


class HostConsent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="host"):
    """The approval of a host for the agent in one cell: the agent may connect to it over TLS until its session ends."""

    session: str
    agent: str
    """Agent that the session was started for, as given to `aileron launch`."""
    folder: str
    """Working folder of the agent."""
    host: str
    port: int

    @property
    def destination(self) -> str:
        """Host and port, as HOST:PORT."""
        return f"{self.host}:{self.port}"


def tool_consent_name(pin_hash: str, op: str) -> str:
    """Return the name of the consent to a changed tool of the connector with this pin."""
    return f"{pin_hash} {op}"


Subject = (
    ActionFileConsent
    | ConnectorConsent
    | ConnectorUpdateConsent
    | BindingConsent
    | InstallationConsent
    | SecretConsent
    | GrantConsent
    | TrustedKeyConsent
    | SettingsConsent
    | PasskeyConsent
    | ToolChangeConsent
    | HostConsent
)


class Consent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The latest consent under one name: `digest` is the digest of the file, pin or settings; `approval` is the id of
    the approval that gave the consent.
    """

    kind: ConsentKind
    name: str
    digest: str
    approval: str


class StandingGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A standing grant in force. `until` is in whole seconds since the epoch.

    The uses of the grant are counted in the ledger, for people, and in `used`, which the vault seals. So restoring an older
    ledger does not renew the grant.
    """

    id: str
    """Id of the approval that created the grant."""
    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    until: int
    used: int = 0


class UsedDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed decision that was used or withdrawn.

    After `until` (seconds since the epoch) the decision is too old to be used anyway.
    """

    approval: str
    until: int


class Appointed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statement that named the approver (`ApproverStatement` of model/decision.py).

    It is stored so that an interrupted entry in the ledger can be completed.
    """

    inventory: str
    replaces: str | None
    at: str
    signature: str
    old_signature: str | None


class Passkey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A passkey that can decide, with the approver's decision that enrolled it (`DecisionStatement` of model/decision.py)."""

    id: str
    """Id of the passkey's key: `webauthn:…`."""
    approval: str
    subject: PasskeyConsent
    at: str
    reason: str | None
    signature: str

    def enrolment(self, approver: str) -> DecisionStatement:
        """Return the statement that was signed by the approver's key with this id."""
        return DecisionStatement(
            approval_id=self.approval,
            digest=subject_digest(self.subject),
            decision="approve",
            reason=self.reason,
            at=self.at,
            key_id=approver,
        )


class Consents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The approver of a home, and everything that the approver consented to. `public_key` is 32 bytes in hex."""

    key_id: str
    public_key: str
    created_ms: int
    appointed: Appointed | None = None
    agreed: tuple[Consent, ...] = ()
    """Latest consents, sorted by kind and name, each at most once."""
    grants: tuple[StandingGrant, ...] = ()
    """Standing grants in force, sorted by id."""
    used: tuple[UsedDecision, ...] = ()
    """Decisions that the ledger records as used, sorted by approval. They are also stored here, in the
    vault, so that an older ledger does not make them usable again.
    """
    passkeys: tuple[Passkey, ...] = ()
    """Passkeys that can decide, sorted by id."""

    def appointment(self) -> ApproverStatement | None:
        """Return the signed statement that named the approver; None if it was not stored."""
        if self.appointed is None:
            return None
        return ApproverStatement(
            public_key=self.public_key,
            inventory=self.appointed.inventory,
            replaces=self.appointed.replaces,
            at=self.appointed.at,
            key_id=self.key_id,
        )

    def latest(self, kind: ConsentKind, name: str) -> Consent | None:
        """Return the latest consent with this kind and name; None if there was none or it was withdrawn."""
        return next((consent for consent in self.agreed if consent.kind is kind and consent.name == name), None)

    def consent_digest(self, kind: ConsentKind, name: str) -> str | None:
        """Return the digest of the latest consent with this kind and name; None if there is none."""
        consent = self.latest(kind, name)
        return None if consent is None else consent.digest

    def has_connector_consent(self, pin_hash: str) -> bool:
        """Return whether the connector with these bytes has consent.

        Several builds of one version can have consent at the same time.
        """
        return any(consent.kind is ConsentKind.CONNECTOR and consent.digest == pin_hash for consent in self.agreed)

    def with_consent(self, consent: Consent) -> Consents:
        """Return the consents with `consent` in place of the previous one with the same kind and name."""
        kept = [earlier for earlier in self.agreed if (earlier.kind, earlier.name) != (consent.kind, consent.name)]
        ordered = sorted([*kept, consent], key=lambda given: (given.kind.value, given.name))
        return msgspec.structs.replace(self, agreed=tuple(ordered))

    def without_consent(self, kind: ConsentKind, name: str) -> Consents:
        """Return the consents without the latest consent of this kind and name."""
        kept = tuple(consent for consent in self.agreed if (consent.kind, consent.name) != (kind, name))
        return msgspec.structs.replace(self, agreed=kept)

    def with_grant(self, grant: StandingGrant) -> Consents:
        """Return the consents with this grant added."""
        ordered = sorted([*self.grants, grant], key=lambda entry: entry.id)
        return msgspec.structs.replace(self, grants=tuple(ordered))

    def without_grant(self, grant_id: str) -> Consents:
        """Return the consents without the grant with this id."""
        return msgspec.structs.replace(self, grants=tuple(grant for grant in self.grants if grant.id != grant_id))

    def with_use(self, grant_id: str) -> Consents:
        """Return the consents with one more use counted for the grant with this id."""
        counted = [msgspec.structs.replace(grant, used=grant.used + (grant.id == grant_id)) for grant in self.grants]
        return msgspec.structs.replace(self, grants=tuple(counted))

    def passkey(self, key_id: str) -> Passkey | None:
        """Return the passkey with this id; None if no current passkey has it."""
        return next((passkey for passkey in self.passkeys if passkey.id == key_id), None)

    def with_passkey(self, passkey: Passkey) -> Consents:
        """Return the consents with this passkey added."""
        ordered = sorted([*self.passkeys, passkey], key=lambda key: key.id)
        return msgspec.structs.replace(self, passkeys=tuple(ordered))

    def without_passkey(self, key_id: str) -> Consents:
        """Return the consents without the passkey with this id."""
        return msgspec.structs.replace(
            self, passkeys=tuple(passkey for passkey in self.passkeys if passkey.id != key_id)
        )

    def is_used(self, approval: str) -> bool:
        """Return whether the decision about this approval was used or withdrawn."""
        return any(decision.approval == approval for decision in self.used)

    def with_used(self, approval: str, until: int, now: int) -> Consents:
        """Return the consents with the decision about `approval` recorded as used, and without recorded decisions that
        are too old to be used at `now`. After `until`, this decision is too old.
        """
        kept = [decision for decision in self.used if decision.until >= now and decision.approval != approval]
        ordered = sorted([*kept, UsedDecision(approval=approval, until=until)], key=lambda decision: decision.approval)
        return msgspec.structs.replace(self, used=tuple(ordered))


def subject_digest(subject: Subject) -> str:
    """Return `sha256:…` over the canonical JSON of the subject. A decision about the subject signs this digest."""
    return sha256_digest(canonical_json(msgspec.to_builtins(subject)))


def subject_kind(subject: Subject) -> ConsentKind:
    """Return the kind of question that asks about the subject."""
    return ConsentKind(str(type(subject).__struct_config__.tag))


def subject_name(subject: Subject) -> str:
    """Return the subject's name, as it appears in its question, its consent and the ledger."""
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
        case ActionFileConsent() | BindingConsent() | InstallationConsent() | SecretConsent() | PasskeyConsent():
            return subject.name
        case impossible:
            assert_never(impossible)

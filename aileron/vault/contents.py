"""The contents of the vault's file: turns the file's bytes into values and back. Needs no key, and does no I/O.

Runs in the daemon, on bytes that anybody with a shell of the same user may have written. The result of `decode` has the right
form but is unverified; verification needs a key (opened.py). Until then only its names may be shown.

Rules
- Contents have only one spelling: a file is refused unless it is the canonical JSON (RFC 8785) of its contents and one line
  end. So every byte has a meaning, and there is no duplicate key, no unknown key and no space.
- All limits are checked here, before anything is derived or decrypted: the size, the counts, the lengths, and the cost of a
  passphrase that the file states.
- Times are whole milliseconds: canonical JSON has no second spelling for an integer.

Source: docs/reference/vault-format.md. Not here: what the seals prove (opened.py), the file itself (file.py).
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from aileron.model.canonical import canonical_json
from aileron.model.consent import Consents
from aileron.model.credential import OAuthGrant, Reach
from aileron.model.fixes import Stored
from aileron.model.json_value import JSONObject
from aileron.model.login import LoginDetails
from aileron.model.names import BindingName
from aileron.model.secret_reference import Elsewhere
from aileron.vault.bindings import LATEST_S, Binding, check_binding, check_secret_name
from aileron.vault.consents import check_consents, spelled_consents
from aileron.vault.envelope import NONCE_BYTES, TAG_BYTES, Sealed
from aileron.vault.references import PIN_BYTES, check_elsewhere
from aileron.vault.slots import Slot, check_slots

__all__ = [
    "FORMAT",
    "MAX_BINDINGS",
    "MAX_FILE_BYTES",
    "MAX_GENERATION",
    "MAX_SECRETS",
    "MAX_SECRET_BYTES",
    "MIN_SECRET_BYTES",
    "BindingEntry",
    "Contents",
    "ContentsError",
    "SecretEntry",
    "SecretInfo",
    "UnknownFormatError",
    "decode",
    "encode",
    "sealed_bytes",
]

FORMAT: Final = 1
MAX_FILE_BYTES: Final = 16 << 20  # 16 MiB: 180 secrets of the maximum length, 40,000 of the usual one; parsed in 0.1 s
MAX_SECRETS: Final = 1000  # each list is read by people, and searched for every request
MAX_BINDINGS: Final = 1000
MIN_SECRET_BYTES: Final = 8  # shorter ones cannot be scrubbed from responses: they would match by chance
MAX_SECRET_BYTES: Final = 64 << 10  # 64 KiB: a service account's key file with room
SEAL_BYTES: Final = 32
MAX_GENERATION: Final = 2**53 - 1  # RFC 8785, by way of I-JSON
_ID: Final = re.compile(r"[0-9a-f]{32}")
_NOT_IN_CONTEXT: Final = frozenset({"sealed", "elsewhere"})


class ContentsError(Exception):
    """Error: the bytes of a vault's file are not in a form that this program writes. The message says what is wrong,
    and quotes only names and numbers.
    """


class UnknownFormatError(Exception):
    """Error: a vault's file has the format number of a later version of Aileron. The message has the number."""


class SecretEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The entry of one secret in the vault's file. `id` is new whenever a secret is added, even if a removed secret had
    the same name; `version` counts the values of this entry from 1.

    `elsewhere` is absent if the vault stores the value. If it is present, the sealed bytes are a pin (references.py),
    which is never sent.
    """

    name: str
    id: str
    version: int
    created_ms: int
    updated_ms: int
    sealed: Sealed
    elsewhere: Elsewhere | None = None

    def context(self, vault: str) -> bytes:
        """Return the context to which the encryption of the secret's value is bound: this vault, this entry, this
        version, and all unencrypted fields of the entry.
        """
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if name not in _NOT_IN_CONTEXT}
        if self.elsewhere is not None:
            fields["elsewhere"] = msgspec.to_builtins(self.elsewhere)
        return _context("secret", {"vault": vault, **fields})

    @property
    def stored(self) -> Stored:
        """The name of the secret and the place of its value, for messages about the value."""
        return Stored(self.name, None if self.elsewhere is None else self.elsewhere.reference)

    def info(self) -> SecretInfo:
        """Return the facts about the secret that a person may see: its name and times, and where its value is stored."""
        return SecretInfo(self.name, self.created_ms / 1000, self.updated_ms / 1000, self.elsewhere)


class SecretInfo(msgspec.Struct, frozen=True):
    """A stored secret without its value. Times are in seconds since the epoch."""

    name: str
    created_at: float
    updated_at: float
    elsewhere: Elsewhere | None = None


class BindingEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The entry of one binding. The kind is the first part of the binding's name. `reach`, `grant` and `details` are absent if
    the binding has none.
    """

    name: str
    connector: str
    secret: str
    username: str | None
    created_ms: int
    reach: Reach | None = None
    grant: OAuthGrant | None = None
    details: LoginDetails | None = None

    @classmethod
    def of(cls, binding: Binding) -> BindingEntry:
        """Return the entry with which a binding is stored in the vault's file."""
        created_ms = round(binding.created_at * 1000)
        return cls(
            name=str(binding.name),
            connector=binding.connector,
            secret=binding.secret,
            username=binding.username,
            created_ms=created_ms,
            reach=binding.reach,
            grant=binding.grant,
            details=binding.details,
        )

    def binding(self) -> Binding:
        """Return the binding of this entry. Raises ValueError if the entry's name is not a valid binding name."""
        name = BindingName.parse(self.name)
        return Binding(
            name=name,
            connector=self.connector,
            kind=name.kind,
            username=self.username,
            secret=self.secret,
            created_at=self.created_ms / 1000,
            reach=self.reach,
            grant=self.grant,
            details=self.details,
        )


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contents of a vault. `generation` counts the writes from 1; `seal` is the HMAC over `sealed_bytes`.

    `consents` is not in the file if there is no approver, so such a file is the same as before consents existed.
    """

    format: int
    vault: str
    generation: int
    slots: tuple[Slot, ...]
    secrets: tuple[SecretEntry, ...]
    bindings: tuple[BindingEntry, ...]
    seal: bytes
    consents: Consents | None = None


class _Format(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=0, le=MAX_GENERATION)]


def decode(data: bytes) -> Contents:
    """Parse bytes that `encode` returned. Checks form and limits, but verifies nothing. Raises ContentsError for invalid
    bytes, UnknownFormatError for a later format.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ContentsError(f"{len(data)} bytes, more than {MAX_FILE_BYTES}")
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT:
            raise UnknownFormatError(f"format {found}, but this version of aileron reads format {FORMAT}")
        unverified = msgspec.json.decode(data, type=Contents)
        if encode(unverified) != data:
            raise ValueError("not in the form that aileron writes")
        _check(unverified)
    except (ValueError, RecursionError) as error:
        # Unicode's errors hold the whole file, hence `from None`; msgspec's quote it raw, hence words of our own.
        is_ours = type(error) is ValueError
        raise ContentsError(str(error) if is_ours else "its JSON is damaged, or not that of a vault") from None
    return unverified


def encode(contents: Contents) -> bytes:
    """Return the bytes of the vault's file with these contents.

    For these values (ASCII keys, strings, whole numbers, null), msgspec writes the same bytes as canonical.py, which the tests
    verify. msgspec does not first copy all values into dictionaries. That matters because a change encodes several times while
    other threads wait for the key. Only the values of a grant can be any JSON, so consents are encoded separately. Raises
    ValueError if consents have no canonical JSON.
    """
    if contents.consents is not None:
        spelled: Any = msgspec.Raw(spelled_consents(contents.consents))
        contents = msgspec.structs.replace(contents, consents=spelled)
    return msgspec.json.encode(contents, order="sorted") + b"\n"


def sealed_bytes(contents: Contents) -> bytes:
    """Return the bytes that the seal covers: the bytes of the file with an empty seal."""
    return encode(msgspec.structs.replace(contents, seal=b""))


def _context(use: str, fields: JSONObject) -> bytes:
    return canonical_json({"use": f"aileron vault {FORMAT}: {use}", **fields})


def _check(contents: Contents) -> None:
    """Raise ValueError for contents of a vault's file that this program would not have written. The parts are checked
    in their order.
    """
    _expect(_ID.fullmatch(contents.vault) is not None, "the vault's id is not 32 hex digits")
    _expect(1 <= contents.generation <= MAX_GENERATION, "the generation is out of range")
    check_slots(contents.slots)
    _expect(len(contents.seal) == SEAL_BYTES, "the seal has another length")
    _expect(len(contents.secrets) <= MAX_SECRETS, f"{len(contents.secrets)} secrets, more than {MAX_SECRETS}")
    _expect(len(contents.bindings) <= MAX_BINDINGS, f"{len(contents.bindings)} bindings, more than {MAX_BINDINGS}")
    for entry in contents.secrets:
        _check_secret(entry)
    _check_ascending([entry.name for entry in contents.secrets], "secrets")
    _expect(len({entry.id for entry in contents.secrets}) == len(contents.secrets), "two secrets with one id")
    _check_ascending([entry.name for entry in contents.bindings], "bindings")
    stored = {entry.name: entry for entry in contents.secrets}
    for entry in contents.secrets:
        _check_token(entry, stored)
    users = collections.Counter(bound.secret for bound in contents.bindings)
    for bound in contents.bindings:
        check_binding(bound.binding())
        _expect(bound.secret in stored, f"binding {bound.name} names the secret {bound.secret}, which is not there")
        is_alone = bound.grant is None or users[bound.secret] == 1
        _expect(is_alone, f"binding {bound.name} has a grant, and shares the secret {bound.secret}")
    if contents.consents is not None:
        check_consents(contents.consents)


def _check_secret(entry: SecretEntry) -> None:
    check_secret_name(entry.name)
    _expect(_ID.fullmatch(entry.id) is not None, f"the id of secret {entry.name} is not 32 hex digits")
    _expect(1 <= entry.version <= MAX_GENERATION, f"the version of secret {entry.name} is out of range")
    in_order = 0 <= entry.created_ms <= entry.updated_ms <= LATEST_S * 1000
    _expect(in_order, f"the times of secret {entry.name} are no times, or out of order")
    if entry.elsewhere is None:
        _check_sealed(entry.sealed, MIN_SECRET_BYTES, MAX_SECRET_BYTES, f"secret {entry.name}")
    else:
        check_elsewhere(entry.elsewhere)
        _check_sealed(entry.sealed, PIN_BYTES, PIN_BYTES, f"the pin of secret {entry.name}")


def _check_token(entry: SecretEntry, stored: Mapping[str, SecretEntry]) -> None:
    """Raise ValueError unless the token with which the secret of `entry` is fetched is stored in this vault as a value,
    so that fetching a secret never requires fetching another secret.
    """
    name = None if entry.elsewhere is None else entry.elsewhere.token
    if name is not None:
        is_value = name in stored and stored[name].elsewhere is None
        _expect(is_value, f"secret {entry.name} names the token {name}, which is no value that is stored here")


def _check_sealed(sealed: Sealed, at_least: int, at_most: int, what: str) -> None:
    _expect(len(sealed.nonce) == NONCE_BYTES, f"the nonce of {what} has another length")
    length = len(sealed.ciphertext) - TAG_BYTES
    _expect(at_least <= length <= at_most, f"{what} has {length} bytes, not {at_least} to {at_most}")


def _check_ascending(names: Sequence[str], what: str) -> None:
    if any(first >= second for first, second in itertools.pairwise(names)):
        raise ValueError(f"the {what} are not in order of their names, each once")


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)

"""An open vault: contents that were verified, and the key that verified them.

The core of the package, and the only one that can hold verified data: a value of `Opened` exists only if its contents
carry the seal of its key. Pure apart from randomness; the I/O, the lock and the clock are vault.py's. Runs in the daemon.

Rules
- Every change makes a new `Opened`, one generation on and sealed; the old one stays what it was.
- A value is decrypted when it is lent and not before, and is bound to vault, entry and version, so that no entry can stand
  for another even to someone who could forge a seal.
- Contents that `Mark.allows` denies are not accepted in place of these: an older file, or another history.

Source: docs/reference/vault-format.md; the shape follows tuf's trusted_metadata_set.py. Not here: the format (contents.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from aileron.model.consent import Consents
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault.bindings import Binding, check_binding, check_secret_name
from aileron.vault.consents import check_kept
from aileron.vault.contents import (
    FORMAT,
    MAX_BINDINGS,
    MAX_FILE_BYTES,
    MAX_SECRET_BYTES,
    MAX_SECRETS,
    MIN_SECRET_BYTES,
    BindingEntry,
    Contents,
    ContentsError,
    SecretEntry,
    Slot,
    encode,
    sealed_bytes,
)
from aileron.vault.envelope import COST, NONCE_BYTES, SALT_BYTES, DataKey, EnvelopeError, Sealed, unwrap_key, wrap_key

__all__ = ["Mark", "Opened", "create", "unlock"]

_UNSEALED: Final = Sealed(bytes(NONCE_BYTES), b"")


@dataclasses.dataclass(frozen=True)
class Mark:
    """How far a vault has come. What one process has seen, no older file replaces."""

    vault: str
    generation: int
    seal: bytes

    def allows(self, other: Mark) -> bool:
        """Whether `other` may be next: a later generation, this very one, or another vault altogether."""
        if other.vault != self.vault:
            return True
        return other.generation > self.generation or other == self


class Opened:
    """Verified contents and their key. Not safe for threads where the key is used: the holder takes turns (vault.py)."""

    def __init__(self, contents: Contents, key: DataKey) -> None:
        """ContentsError unless `contents` carry the seal of `key`."""
        if not hmac.compare_digest(contents.seal, key.authenticate(sealed_bytes(contents))):
            raise ContentsError("its seal does not fit what it says")
        self.contents: Final = contents
        self.bindings: Final = tuple(entry.binding() for entry in contents.bindings)
        self._secrets: Final = {entry.name: entry for entry in contents.secrets}
        self._key: Final = key

    @property
    def mark(self) -> Mark:
        """How far it has come."""
        return Mark(self.contents.vault, self.contents.generation, self.contents.seal)

    def verified(self, contents: Contents) -> Opened:
        """Other contents under the same key, say what the file holds by now. ContentsError unless they carry its seal."""
        return Opened(contents, self._key)

    def wipe(self) -> None:
        """Overwrite the key, of this value and of all that were made from it."""
        self._key.wipe()

    def reveal(self, name: BindingName) -> tuple[Binding, Secret]:
        """A binding and its secret's value. AileronError(binding_required) when there is none of that name."""
        binding = next((binding for binding in self.bindings if binding.name == name), None)
        if binding is None:
            raise _unbound(name)
        return binding, self.reveal_secret(binding.secret)

    def reveal_secret(self, name: str) -> Secret:
        """A secret's value. AileronError(not_found) when there is none of that name."""
        entry = self._secrets.get(name)
        if entry is None:
            raise _unknown_secret(name)
        try:
            return Secret(self._key.open(entry.sealed, context=entry.context(self.contents.vault)))
        except EnvelopeError:
            raise ContentsError(f"secret {entry.name} does not open") from None

    def with_secret(self, name: str, value: Secret, now_ms: int) -> Opened:
        """Store a value, new or in place of the one there is. AileronError(bad_input) says why not."""
        with _as_bad_input():
            check_secret_name(name)
            _check_value(name, value)
        old = self._secrets.get(name)
        if old is None and len(self._secrets) >= MAX_SECRETS:
            raise _refused(f"the vault holds {MAX_SECRETS} secrets already; remove one with `aileron secret remove`")
        entry = SecretEntry(
            name=name,
            id=old.id if old else os.urandom(16).hex(),
            version=old.version + 1 if old else 1,
            created_ms=old.created_ms if old else now_ms,
            updated_ms=max(now_ms, old.created_ms) if old else now_ms,  # a clock may be set back
            sealed=_UNSEALED,
        )
        sealed = self._key.seal(value.reveal(), context=entry.context(self.contents.vault))
        entry = msgspec.structs.replace(entry, sealed=sealed)
        return self._changed(secrets={**self._secrets, name: entry}.values())

    def without_secret(self, name: str) -> Opened:
        """Forget a secret. AileronError(not_found), or (invalid_request) while a binding uses it."""
        if name not in self._secrets:
            raise _unknown_secret(name)
        users = [entry.name for entry in self.contents.bindings if entry.secret == name]
        if users:
            raise _refused(f"secret {name!r} is bound as {', '.join(users)}; first `aileron binding revoke {users[0]}`")
        return self._changed(secrets=(entry for entry in self.contents.secrets if entry.name != name))

    def with_binding(self, binding: Binding, *, replace: bool) -> Opened:
        """Let a secret serve a connector. AileronError (bad_input), (not_found) or (invalid_request) says why not."""
        with _as_bad_input():
            check_binding(binding)
        if binding.secret not in self._secrets:
            raise _unknown_secret(binding.secret)
        others = self._bindings_but(binding.name)
        if len(others) < len(self.bindings) and not replace:
            name = binding.name
            raise _refused(f"{name} is bound already; use another IDENTITY, or first `aileron binding revoke {name}`")
        if len(others) >= MAX_BINDINGS:
            raise _refused(f"the vault holds {MAX_BINDINGS} bindings already; first `aileron binding revoke` one")
        return self._changed(bindings=[*others, BindingEntry.of(binding)])

    def without_binding(self, name: BindingName) -> Opened:
        """End a binding; its secret stays. AileronError(not_found)."""
        others = self._bindings_but(name)
        if len(others) == len(self.bindings):
            message = f"nothing is bound as {name}; see `aileron binding list`"
            raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)
        return self._changed(bindings=others)

    def with_approver(self, consents: Consents) -> Opened:
        """Say who decides, and what they agreed to, in place of what was said. AileronError(bad_input) for what no file holds."""
        with _as_bad_input():
            check_kept(consents)
        return self._changed(consents=consents)

    def with_consents(self, edit: Callable[[Consents], Consents]) -> Opened:
        """What the approver agreed to, changed. AileronError(not_found) where there is none, and as `with_approver`."""
        known = self.contents.consents
        if known is None:
            message = "nobody signs for this home: aileron approver init"
            raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)
        changed = edit(known)
        if (changed.key_id, changed.public_key, changed.created_ms) != (
            known.key_id,
            known.public_key,
            known.created_ms,
        ):
            raise ValueError("an approver is exchanged with `with_approver`, and with nothing else")
        return self.with_approver(changed)

    def _bindings_but(self, name: BindingName) -> list[BindingEntry]:
        return [entry for entry in self.contents.bindings if entry.name != str(name)]

    def _changed(
        self,
        *,
        secrets: Iterable[SecretEntry] | None = None,
        bindings: Iterable[BindingEntry] | None = None,
        consents: Consents | None = None,
    ) -> Opened:
        """The next generation, sealed. AileronError(invalid_request) if a file cannot hold it."""
        contents = self.contents
        after = msgspec.structs.replace(
            contents,
            generation=contents.generation + 1,
            secrets=contents.secrets if secrets is None else tuple(sorted(secrets, key=lambda entry: entry.name)),
            bindings=contents.bindings if bindings is None else tuple(sorted(bindings, key=lambda entry: entry.name)),
            consents=contents.consents if consents is None else consents,  # once there is an approver, there stays one
        )
        after = _sealed(after, self._key)
        if len(encode(after)) > MAX_FILE_BYTES:
            raise _refused(f"the vault would be larger than {MAX_FILE_BYTES} bytes; remove a secret first")
        return Opened(after, self._key)


def create(passphrase: Secret) -> Opened:
    """A new, empty vault. Takes as long as one unlock."""
    vault, salt, key = os.urandom(16).hex(), os.urandom(SALT_BYTES), DataKey.generate()
    slot = Slot(COST, salt, _UNSEALED)
    wrapped = wrap_key(key, passphrase, salt, COST, context=slot.context(vault))
    slots = (msgspec.structs.replace(slot, key=wrapped),)
    return Opened(_sealed(Contents(FORMAT, vault, 1, slots, (), (), b""), key), key)


def unlock(unverified: Contents, passphrase: Secret) -> Opened:
    """Open with a passphrase. EnvelopeError if it is another (or the slot's numbers are), ContentsError if the rest is."""
    (slot,) = unverified.slots
    context = slot.context(unverified.vault)
    key = unwrap_key(slot.key, passphrase, slot.salt, slot.argon2id, context=context)
    try:
        return Opened(unverified, key)
    except ContentsError:
        key.wipe()
        raise


def _sealed(contents: Contents, key: DataKey) -> Contents:
    return msgspec.structs.replace(contents, seal=key.authenticate(sealed_bytes(contents)))


def _check_value(name: str, value: Secret) -> None:
    """ValueError, which never quotes the value, nor holds it in a frame: a traceback may show those."""
    if not MIN_SECRET_BYTES <= len(value) <= MAX_SECRET_BYTES:
        reason = "a shorter one cannot be told from ordinary text when answers are scrubbed of it"
        bounds = f"{MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes are allowed"
        raise ValueError(f"secret {name!r} has {len(value)} bytes; {bounds} ({reason})")
    for byte, called in ((b"\n", "a line end"), (b"\r", "a carriage return"), (b"\0", "a NUL byte")):
        if byte in value.reveal():
            # Most often it is the one that echo adds.
            cure = "; pass it without one, as with printf %s" if value.reveal().endswith(byte) else ""
            raise ValueError(f"secret {name!r} holds {called}, which would end a header early{cure}")


@contextlib.contextmanager
def _as_bad_input() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise AileronError(FailureClass.BAD_INPUT, str(error), boundary=Boundary.USER) from None


def _unknown_secret(name: str) -> AileronError:
    message = f"no secret {name!a} is stored: aileron secret set NAME"
    return AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)


def _unbound(name: BindingName) -> AileronError:
    user = " --username USER" if name.kind == "basic" else ""
    message = f"{name} is not bound any more: aileron binding setup CONNECTOR --name {name}{user} --secret NAME"
    details = {"binding": str(name)}
    return AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER, details=details)


def _refused(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)

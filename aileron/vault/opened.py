"""An open vault: verified contents, and the key that verified them.

This is the core of the package, and the only module with verified data: an `Opened` object exists only if its contents have a
seal that was made with its key. Pure apart from randomness; I/O, lock and clock are in vault.py. Runs in the daemon.

Rules
- Every change creates a new `Opened` object, with the next generation and its seal; the old object stays unchanged.
- A value is decrypted only when it is lent. Each value is bound to vault, entry and version, so that no entry can replace
  another, even for an attacker who could forge a seal.
- A new key requires new ciphertexts and new slots, so that nothing remains that the old key can decrypt.
- Contents that `Mark.allows` denies are not accepted as a replacement: an older file, or a file with a different history.

Source: docs/reference/vault-format.md; the shape follows tuf's trusted_metadata_set.py. Not here: the format (contents.py).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from aileron.model.consent import Consents
from aileron.model.credential import OAuthGrant, Reach, TokenSet
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored, setup_options
from aileron.model.names import BindingName
from aileron.model.pem import is_document
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
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
    encode,
    sealed_bytes,
)
from aileron.vault.envelope import DataKey, EnvelopeError
from aileron.vault.recovery import MistypedError
from aileron.vault.references import FetchedValues, check_elsewhere, is_pinned, pin_of
from aileron.vault.secret_form import check_fits
from aileron.vault.sendable import Bound, Replaced, Sendable, Sendables, could_reach, is_provider
from aileron.vault.slots import (
    UNSEALED,
    RecoverySlot,
    Unlockers,
    Way,
    open_with_keyring,
    open_with_passphrase,
    open_with_recovery_code,
    seal_slots,
)

__all__ = ["Mark", "Opened", "create", "tokens_of", "unlock", "unlock_with_keyring", "unlock_with_passphrase"]


_MOST_HOSTS: Final = 256
"""Maximum number of hosts for which `Opened.sendables` caches its result: more than there are connectors in use at once."""
_Known = TypeVar("_Known", Bound, Replaced)


class Mark(msgspec.Struct, frozen=True):
    """The state of a vault: its id, generation and seal. A file with an older state than the process has seen is not accepted
    as a replacement.
    """

    vault: str
    generation: int
    seal: bytes

    def allows(self, other: Mark) -> bool:
        """Return whether `other` may follow this state of the vault: a later generation, the same state, or another
        vault.
        """
        if other.vault != self.vault:
            return True
        return other.generation > self.generation or other == self


class Opened:
    """An open vault: its verified contents and their key. Methods that use the key are not thread-safe: the object's owner must
    serialize their calls (see vault.py).
    """

    def __init__(self, contents: Contents, key: DataKey, fetched: FetchedValues | None = None) -> None:
        """Verify the contents: raise ContentsError unless their seal was made with `key`. `fetched` has the values of
        secrets outside the vault that were fetched so far, sealed with this key.
        """
        if not hmac.compare_digest(contents.seal, key.authenticate(sealed_bytes(contents))):
            raise ContentsError("its seal does not fit what it says")
        self.contents: Final = contents
        self.bindings: Final = tuple(entry.binding() for entry in contents.bindings)
        self._secrets: Final = {entry.name: entry for entry in contents.secrets}
        self._key: Final = key
        self._fetched: Final = FetchedValues() if fetched is None else fetched
        self._elsewhere: Final = {entry.name: entry for entry in contents.secrets if entry.elsewhere is not None}
        self._tokens: Final = tuple(
            _as_sent(entry) for entry in self._elsewhere.values() if entry.elsewhere is not None
        )
        self._sendables: dict[str, Sendables] = {}

    @property
    def mark(self) -> Mark:
        """The present state of this vault: its id, generation and seal."""
        return Mark(self.contents.vault, self.contents.generation, self.contents.seal)

    def verified(self, contents: Contents) -> Opened:
        """Return an open vault with `contents`, such as the present contents of the file, and this vault's key.

        Raise ContentsError unless their seal was made with this key.
        """
        return Opened(contents, self._key, self._fetched)

    def wipe(self) -> None:
        """Overwrite the key of this object and of all objects that were derived from it, and drop the fetched values."""
        self._key.wipe()
        self._fetched.clear()

    def check_whole(self) -> None:
        """Raise ContentsError unless every secret can be decrypted. A valid seal should guarantee that."""
        for entry in self.contents.secrets:
            self._revealed(entry)

    def rotated(self, ways: Unlockers) -> Opened:
        """Return the vault's next generation with a new data key, under which every secret is encrypted anew, and which
        only the unlockers `ways` open.

        Takes as long as one unlock. Raises ContentsError as for `check_whole`.
        """
        key = DataKey.generate()
        try:
            secrets = []
            for entry in self.contents.secrets:
                context = entry.context(self.contents.vault)
                secrets.append(msgspec.structs.replace(entry, sealed=key.seal(self._revealed(entry), context=context)))
            after = msgspec.structs.replace(
                self.contents,
                generation=self.contents.generation + 1,
                slots=seal_slots(key, ways, self.contents.vault),
                secrets=tuple(secrets),
            )
            return Opened(_bounded(_sealed(after, key)), key)
        except BaseException:
            key.wipe()
            raise

    def at_generation(self, generation: int) -> Opened:
        """Return this vault with the same contents and another generation number. A vault that is restored from a copy
        gets a later generation than all earlier files, so that the replaced vault is recognized as older.
        """
        after = _sealed(msgspec.structs.replace(self.contents, generation=generation), self._key)
        return Opened(after, self._key, self._fetched)

    def reveal(self, name: BindingName) -> tuple[Binding, Secret]:
        """Return a binding and its secret's value. Raises AileronError (binding_required) if there is no such binding,
        (vault_locked) as `reveal_secret` does.
        """
        binding = self.binding(name)
        if binding is None:
            raise _unbound(name)
        return binding, self.reveal_secret(binding.secret)

    def reveal_secret(self, name: str) -> Secret:
        """Return the value of the secret with this name.

        Raises AileronError (not_found) if there is no such secret, (vault_locked) if its value is stored outside the vault and
        was not fetched since the vault was opened.
        """
        entry = self._secrets.get(name)
        if entry is None:
            raise _unknown_secret(name)
        if entry.elsewhere is not None and (entry := self._fetched.of(entry) or entry).elsewhere is not None:
            raise _not_fetched(name, entry.elsewhere)
        return Secret(self._revealed(entry))

    def secret_entry(self, name: str) -> SecretEntry:
        """Return the entry of a secret. Raises AileronError(not_found) if there is no such secret."""
        if name not in self._secrets:
            raise _unknown_secret(name)
        return self._secrets[name]

    @property
    def has_references(self) -> bool:
        """True if the value of any secret is stored outside the vault."""
        return bool(self._elsewhere)

    def is_stale(self, name: str, since_s: float) -> bool:
        """Return whether this secret's value is stored outside the vault, and was not fetched since `since_s` (s, of a clock
        that counts suspend time).
        """
        entry = self._elsewhere.get(name)
        if entry is None:
            return False
        at_s = self._fetched.fetched_at(entry)
        return at_s is None or at_s < since_s

    def unknown(self, host: str) -> tuple[str, ...]:
        """Return the names of the bound secrets that could be sent to `host` (HOST:PORT) and whose value is stored
        outside the vault and was not fetched yet.
        """
        names = {
            binding.secret: None
            for binding in self.bindings
            if binding.secret in self._elsewhere and could_reach(binding, host)
        }
        return tuple(name for name in names if self._fetched.of(self._elsewhere[name]) is None)

    def keep_fetched(self, entry: SecretEntry, value: Secret, at_s: float, now_ms: int) -> None:
        """Store in memory the value that was fetched for this entry of a secret, if the vault's entry is still the
        same. Nothing is written to disk.

        `at_s` is the time of the fetch, by a clock that counts suspend time; `now_ms` is since the epoch. Raises
        AileronError(binding_failed) if `value` is not the approved value, or does not fit a binding that uses it.
        """
        now = self._secrets.get(entry.name)
        if now is None or now != entry or entry.elsewhere is None:
            return
        if not is_pinned(self._revealed(entry), value):
            raise _changed_elsewhere(entry, self.bindings)
        try:
            for bound in self.bindings:
                if bound.secret == entry.name:
                    check_fits(bound, value, entry.stored, now_ms / 1000)
        except ValueError as error:
            raise AileronError(FailureClass.BINDING_FAILED, str(error), boundary=Boundary.USER) from None
        plain = msgspec.structs.replace(entry, elsewhere=None)
        sealed = self._key.seal(value.reveal(), context=plain.context(self.contents.vault))
        self._fetched.put(msgspec.structs.replace(plain, sealed=sealed), at_s, self._secrets)
        self.forget_sendables()

    def _revealed(self, entry: SecretEntry) -> bytes:
        try:
            return self._key.open(entry.sealed, context=entry.context(self.contents.vault))
        except EnvelopeError:
            raise ContentsError(f"secret {entry.name} does not open") from None

    def bound_with(self, own: Iterable[Binding]) -> tuple[Bound, ...]:
        """Return the vault's bindings and those in `own`, each with the entry of its secret.

        The result includes bindings in `own` only if their secret is stored, and a binding for each token with which a secret
        is fetched. The entry of a fetched secret contains its value.
        """
        stored = (binding for binding in (*own, *self._tokens) if binding.secret in self._secrets)
        return tuple(Bound(binding, self._with_fetched(binding.secret)) for binding in (*self.bindings, *stored))

    def _with_fetched(self, name: str) -> SecretEntry:
        entry = self._secrets[name]
        return entry if entry.elsewhere is None else self._fetched.of(entry) or entry

    def sendables(self, host: str, own: Iterable[Binding], before: Iterable[Replaced]) -> Sendables:
        """Return the secrets that could have been sent to `host`: by the bindings, by `own`, and by those former bindings in
        `before` whose secret this key can decrypt.

        Returns the same object each time: a caller that changes `own` or `before` must call `forget_sendables`. Raises
        ContentsError if a secret cannot be decrypted, and AileronError(vault_locked) while the value of a secret is stored
        outside the vault and was not fetched since the vault was opened.
        """
        known = self._sendables.get(host)
        if known is None:
            for name in self.unknown(host):
                self.reveal_secret(name)
            if len(self._sendables) >= _MOST_HOSTS:
                self._sendables.clear()
            found = [
                sendable for bound in self.bound_with(own) for sendable in self._sent(bound.binding, bound.entry, host)
            ]
            for replaced in before:
                with contextlib.suppress(ContentsError):
                    found += self._sent(replaced.binding, replaced.entry, host)
            known = self._sendables[host] = Sendables(tuple(found))
        return known

    def forget_sendables(self) -> None:
        """Drop the cached results of `sendables`, which are computed anew when they are needed."""
        self._sendables.clear()

    def _sent(self, binding: Binding, entry: SecretEntry, host: str) -> Iterator[Sendable]:
        if entry.elsewhere is not None or not could_reach(binding, host):
            return  # a secret that was replaced before its first fetch has no known sent value
        value = Secret(self._revealed(entry))
        if binding.grant is None:
            yield Sendable(binding.kind, value, binding.username)
            return
        try:
            tokens = tokens_of(binding, value)
        except AileronError:  # overwritten by hand, so never lent
            return
        yield Sendable(binding.kind, tokens.access)
        if tokens.refresh is not None and is_provider(binding, host):
            yield Sendable(binding.kind, tokens.refresh)

    def got_with(self, name: BindingName, token: Secret, at_s: float) -> Replaced:
        """Return a record of `token`, which was issued at `at_s` with the secret of the binding `name`. The token in
        the record is encrypted.

        Raises AileronError(binding_required) if there is no such binding.
        """
        binding = self.binding(name)
        if binding is None:
            raise _unbound(name)
        unsealed = SecretEntry(binding.secret, os.urandom(16).hex(), 1, 0, 0, UNSEALED)
        sealed = self._key.seal(token.reveal(), context=unsealed.context(self.contents.vault))
        entry = msgspec.structs.replace(unsealed, sealed=sealed)
        return Replaced(msgspec.structs.replace(binding, username=None), entry, at_s, is_token=True)

    def handed_to(self, other: Opened, known: Iterable[_Known]) -> list[_Known]:
        """Return the records in `known` with their secrets encrypted under the key of `other`, the vault that replaces
        this one.

        A secret that cannot be decrypted here stays unchanged: its binding remains known, and a vault whose key decrypts it may
        be restored later.
        """
        return [msgspec.structs.replace(secret, entry=self._resealed(secret.entry, other)) for secret in known]

    def _resealed(self, entry: SecretEntry, other: Opened) -> SecretEntry:
        try:
            value = self._key.open(entry.sealed, context=entry.context(self.contents.vault))
        except EnvelopeError:
            return entry
        sealed = other._key.seal(value, context=entry.context(other.contents.vault))
        return msgspec.structs.replace(entry, sealed=sealed)

    def binding(self, name: BindingName) -> Binding | None:
        """Return the binding with this name, or None."""
        return next((binding for binding in self.bindings if binding.name == name), None)

    def tokens(self, name: BindingName) -> TokenSet:
        """Return the tokens of the sign-in that is bound under this name. Raises AileronError (binding_required) if
        there is no such binding, (binding_failed) if the binding has no sign-in.
        """
        binding, value = self.reveal(name)
        if binding.grant is None:
            message = f"{name} is bound to a secret as it is, which nobody signed in for"
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        return tokens_of(binding, value)

    def maybe_tokens(self, name: BindingName) -> TokenSet | None:
        """Return the tokens of the sign-in that is bound under this name, or None if there is no such sign-in, or if
        its stored value is no token set.
        """
        try:
            return self.tokens(name)
        except AileronError:
            return None

    def with_secret(self, name: str, value: Secret, now_ms: int) -> Opened:
        """Return the vault's next generation, with `value` stored under `name`, as a new secret or in place of the old
        value. Raises AileronError (bad_input) if the value cannot be stored, with the reason, (invalid_request) if the
        vault is full.
        """
        return self._changed(secrets=self._with_value(name, value, now_ms))

    def with_reference(self, name: str, elsewhere: Elsewhere, value: Secret, now_ms: int) -> Opened:
        """Return the vault's next generation, with the place of the secret `name`, and a pin of the approved `value`,
        which was just fetched from that place and is not stored.

        Raises AileronError (bad_input) for an invalid place or value, (invalid_request) if the token is not another
        secret whose value is in this vault, if the secret has a sign-in's tokens or is itself a token, or if the vault
        is full.
        """
        self._check_reference(name, elsewhere)
        return self._changed(secrets=self._with_value(name, value, now_ms, elsewhere))

    def gives_token_anew(self, name: str, elsewhere: Elsewhere) -> bool:
        """Return whether fetching `name` from `elsewhere` would give the token to a new receiver: a program or server that
        does not yet get this token for any stored secret.

        Makes only those checks of `with_reference` that need no value, and raises AileronError as it does.
        """
        self._check_reference(name, elsewhere)
        known = (entry.elsewhere for entry in self._elsewhere.values() if entry.elsewhere is not None)
        return elsewhere.token is not None and not any(
            (source.token, source.place) == (elsewhere.token, elsewhere.place) for source in known
        )

    def _check_reference(self, name: str, elsewhere: Elsewhere) -> None:
        with _as_bad_input():
            check_secret_name(name)
            check_elsewhere(elsewhere)
        token = None if elsewhere.token is None else self._secrets.get(elsewhere.token)
        if elsewhere.token is not None and (token is None or token.elsewhere is not None or token.name == name):
            raise _refused(
                f"the token {elsewhere.token!r} is no value in this vault: aileron secret set {elsewhere.token}"
            )
        if any(bound.secret == name and bound.grant is not None for bound in self.bindings):
            raise _refused(f"secret {name!r} has the tokens of a sign-in: use another name")

    def is_approved(self, name: str, elsewhere: Elsewhere, value: Secret) -> bool:
        """Return whether the secret `name` is stored as the reference `elsewhere`, and `value` is the approved value."""
        entry = self._elsewhere.get(name)
        return entry is not None and entry.elsewhere == elsewhere and is_pinned(self._revealed(entry), value)

    def _with_value(
        self, name: str, value: Secret, now_ms: int, elsewhere: Elsewhere | None = None
    ) -> Iterable[SecretEntry]:
        users = [user.name for user in self._elsewhere.values() if user.elsewhere and user.elsewhere.token == name]
        if elsewhere is not None and users:
            raise _refused(f"secret {name!r} is the token of {', '.join(users)}, and has to be a value")
        old = self._secrets.get(name)
        stored = old.stored if old is not None and old.elsewhere == elsewhere else Stored(name)  # else a new place
        with _as_bad_input():
            check_secret_name(name)
            _check_value(name, value)
            for bound in self.bindings:
                if bound.secret == name and bound.grant is None:
                    check_fits(bound, value, stored, now_ms / 1000)
        if old is None and len(self._secrets) >= MAX_SECRETS:
            raise _refused(f"the vault is full ({MAX_SECRETS} secrets); remove one with `aileron secret remove`")
        entry = SecretEntry(
            name=name,
            id=old.id if old else os.urandom(16).hex(),
            version=old.version + 1 if old else 1,
            created_ms=old.created_ms if old else now_ms,
            updated_ms=max(now_ms, old.created_ms) if old else now_ms,  # the clock may have been set back
            sealed=UNSEALED,
            elsewhere=elsewhere,
        )
        kept = value.reveal() if elsewhere is None else pin_of(value)
        sealed = self._key.seal(kept, context=entry.context(self.contents.vault))
        entry = msgspec.structs.replace(entry, sealed=sealed)
        return {**self._secrets, name: entry}.values()

    def without_secret(self, name: str) -> Opened:
        """Return the vault's next generation, without this secret. Raises AileronError (not_found) if there is no such
        secret, (invalid_request) while a binding uses it, or another secret is fetched with it.
        """
        if name not in self._secrets:
            raise _unknown_secret(name)
        users = [entry.name for entry in self.contents.bindings if entry.secret == name]
        if users:
            raise _refused(f"secret {name!r} is used by {', '.join(users)}; first `aileron binding revoke {users[0]}`")
        users = [user.name for user in self._elsewhere.values() if user.elsewhere and user.elsewhere.token == name]
        if users:
            raise _refused(
                f"secret {name!r} is the token with which {', '.join(users)} is fetched; first `aileron secret remove {users[0]}`"
            )
        return self._changed(secrets=(entry for entry in self.contents.secrets if entry.name != name))

    def with_sign_in(self, binding: Binding, tokens: Secret, now_ms: int, *, replace: bool) -> Opened:
        """Return the vault's next generation, with this binding, whose secret is the tokens that a provider issued.

        The secret's name must be new, or the name of this binding's earlier tokens. Raises AileronError as for `with_binding`,
        and (invalid_request) if the secret has another use.
        """
        was = self.binding(binding.name)
        is_theirs = was is not None and was.grant is not None and was.secret == binding.secret
        if binding.secret in self._secrets and not is_theirs:
            raise _refused(f"secret {binding.secret!r} is stored already: sign in again, and another name is found")
        secrets = {entry.name: entry for entry in self._with_value(binding.secret, tokens, now_ms)}
        return self._bound(binding, secrets, now_ms, replace=replace)

    def with_binding(self, binding: Binding, now_ms: int, *, replace: bool) -> Opened:
        """Return the vault's next generation, with this binding, which lets a secret serve a connector.

        Raises AileronError (bad_input) for an invalid binding or a secret that does not fit it, (not_found) for an
        unknown secret, (invalid_request) if the binding exists and `replace` is false, if the vault is full, or if a
        sign-in's tokens would serve two bindings.
        """
        return self._bound(binding, self._secrets, now_ms, replace=replace)

    def _bound(self, binding: Binding, secrets: Mapping[str, SecretEntry], now_ms: int, *, replace: bool) -> Opened:
        with _as_bad_input():
            check_binding(binding)
        if binding.secret not in secrets:
            raise _unknown_secret(binding.secret)
        if binding.grant is None:
            with _as_bad_input():
                self._check_fits(binding, now_ms / 1000)
        others = self._bindings_but(binding.name)
        if len(others) < len(self.bindings) and not replace:
            name = binding.name
            raise _refused(f"{name} already exists; use another IDENTITY, or first `aileron binding revoke {name}`")
        if len(others) >= MAX_BINDINGS:
            raise _refused(f"the vault is full ({MAX_BINDINGS} bindings); first `aileron binding revoke` one")
        for other in others:
            if other.secret == binding.secret and (binding.grant is not None or other.grant is not None):
                raise _refused(
                    f"secret {binding.secret!r} is that of {other.name}, and a sign-in's tokens serve one binding"
                )
        was = self.binding(binding.name)
        ended = None if was is None or was.grant is None or was.secret == binding.secret else was.secret
        kept = [entry for entry in secrets.values() if entry.name != ended]
        return self._changed(bindings=[*others, BindingEntry.of(binding)], secrets=kept)

    def _check_fits(self, binding: Binding, now_s: float) -> None:
        """Raise ValueError, as `check_fits` does, unless the binding can use its secret. A secret whose value is stored
        outside the vault is not checked until the value has been fetched.
        """
        entry = self._with_fetched(binding.secret)
        if entry.elsewhere is None:
            stored = self._secrets[binding.secret].stored
            check_fits(binding, Secret(self._revealed(entry)), stored, now_s)

    def without_binding(self, name: BindingName) -> Opened:
        """Return the vault's next generation, without this binding. Its secret stays, but a sign-in's tokens are
        removed, because nothing else can use them. Raises AileronError(not_found) if there is no such binding.
        """
        binding = self.binding(name)
        if binding is None:
            message = f"no binding {name}; see `aileron binding list`"
            raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)
        ended = None if binding.grant is None else binding.secret
        kept = [entry for entry in self.contents.secrets if entry.name != ended]
        return self._changed(bindings=self._bindings_but(name), secrets=kept)

    def with_tokens(self, name: BindingName, tokens: TokenSet, grant: OAuthGrant, now_ms: int) -> Opened:
        """Return the vault's next generation, with the renewed tokens of this binding's sign-in, and their grant.

        Raises AileronError (binding_required) if there is no such binding, (bad_input) for an invalid grant, and
        (binding_failed) if the binding now has another sign-in, or none.
        """
        binding = self._signed_in(name)
        assert binding.grant is not None
        if binding.grant.obtained_ms != grant.obtained_ms:
            message = f"{name} was signed in anew meanwhile: these tokens are of before"
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        bindings = self._with_grant(binding, grant)
        return self._changed(secrets=self._with_value(binding.secret, tokens.sealed(), now_ms), bindings=bindings)

    def with_renewal(self, name: BindingName, at_ms: int) -> Opened:
        """Return the vault's next generation, which records that a renewal request for this binding's sign-in is about
        to be sent to the provider. Raises AileronError as `with_tokens` does.
        """
        return self._with_edited_grant(name, lambda grant: msgspec.structs.replace(grant, renewing_ms=at_ms))

    def with_refusal(self, name: BindingName, code: str) -> Opened:
        """Return the vault's next generation, which records that the provider no longer renews this binding's sign-in,
        with its error code. Raises AileronError as `with_tokens` does.
        """
        return self._with_edited_grant(
            name, lambda grant: msgspec.structs.replace(grant, failed=code, renewing_ms=None)
        )

    def _with_edited_grant(self, name: BindingName, edit: Callable[[OAuthGrant], OAuthGrant]) -> Opened:
        binding = self._signed_in(name)
        assert binding.grant is not None
        return self._changed(bindings=self._with_grant(binding, edit(binding.grant)))

    def _with_grant(self, binding: Binding, grant: OAuthGrant) -> list[BindingEntry]:
        changed = msgspec.structs.replace(binding, grant=grant)
        with _as_bad_input():
            check_binding(changed)
        return [*self._bindings_but(binding.name), BindingEntry.of(changed)]

    def _signed_in(self, name: BindingName) -> Binding:
        binding = self.binding(name)
        if binding is None:
            raise _unbound(name)
        if binding.grant is None:
            message = f"{name} is bound to a secret as it is by now, which nobody signed in for"
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        return binding

    def with_approver(self, consents: Consents) -> Opened:
        """Return the vault's next generation, with this approver and these consents. Raises AileronError(bad_input) if
        a vault's file cannot contain them.
        """
        with _as_bad_input():
            check_kept(consents)
        return self._changed(consents=consents)

    def with_consents(self, edit: Callable[[Consents], Consents]) -> Opened:
        """Return the vault's next generation, with the consents that `edit` returns for the present ones. Raises
        AileronError (not_found) if there is no approver, and otherwise as `with_approver` does.
        """
        known = self.contents.consents
        if known is None:
            message = "decisions are not signed in this home: aileron approver init"
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
        """Return the vault's next generation with the given parts replaced and a new seal.

        Raises AileronError(invalid_request) if the result exceeds the limits of a file.
        """
        contents = self.contents
        after = msgspec.structs.replace(
            contents,
            generation=contents.generation + 1,
            secrets=contents.secrets if secrets is None else tuple(sorted(secrets, key=lambda entry: entry.name)),
            bindings=contents.bindings if bindings is None else tuple(sorted(bindings, key=lambda entry: entry.name)),
            consents=contents.consents if consents is None else consents,  # an approver is never removed
        )
        return Opened(_bounded(_sealed(after, self._key)), self._key, self._fetched)


def create(ways: Unlockers) -> Opened:
    """Return a new, empty vault that the unlockers `ways` open. This takes as long as opening a vault."""
    vault, key = os.urandom(16).hex(), DataKey.generate()
    slots = seal_slots(key, ways, vault)
    return Opened(_sealed(Contents(FORMAT, vault, 1, slots, (), (), b""), key), key)


def unlock(unverified: Contents, typed: Secret) -> tuple[Opened, Way]:
    """Open a vault with `typed`, its passphrase or a recovery code. Return the open vault, and which of the two was
    used.

    Raises EnvelopeError if `typed` is neither (or the slot was changed), ContentsError if another part of the file was
    changed, MistypedError for a recovery code with a typing mistake.
    """
    way: Way = "recovery"
    mistyped: MistypedError | None = None
    try:
        key = open_with_recovery_code(unverified.slots, typed, unverified.vault)
    except (EnvelopeError, MistypedError) as error:
        mistyped = error if isinstance(error, MistypedError) else None
        way = "passphrase"
        try:
            key = open_with_passphrase(unverified.slots, typed, unverified.vault)
        except EnvelopeError:
            if mistyped is not None and any(isinstance(slot, RecoverySlot) for slot in unverified.slots):
                raise mistyped from None
            raise
    return _verified(unverified, key), way


def unlock_with_passphrase(unverified: Contents, passphrase: Secret) -> Opened:
    """Open a vault with its passphrase only. Raises EnvelopeError and ContentsError as `unlock` does."""
    return _verified(unverified, open_with_passphrase(unverified.slots, passphrase, unverified.vault))


def unlock_with_keyring(unverified: Contents, key: Secret) -> Opened:
    """Open a vault with the key from a keyring. Raises EnvelopeError and ContentsError as `unlock` does."""
    return _verified(unverified, open_with_keyring(unverified.slots, key, unverified.vault))


def _verified(unverified: Contents, key: DataKey) -> Opened:
    try:
        return Opened(unverified, key)
    except ContentsError:
        key.wipe()
        raise


def tokens_of(binding: Binding, value: Secret) -> TokenSet:
    """Return a sign-in's tokens from its secret's value. Raises AileronError(binding_failed) if the value was overwritten by
    hand.
    """
    try:
        return TokenSet.unsealed(value)
    except ValueError:
        message = (
            f"secret {binding.secret!r} of {binding.name} does not hold what a sign-in stored: "
            f"`aileron binding reauthorize {binding.name}`"
        )
        raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER) from None


def _sealed(contents: Contents, key: DataKey) -> Contents:
    return msgspec.structs.replace(contents, seal=key.authenticate(sealed_bytes(contents)))


def _bounded(contents: Contents) -> Contents:
    if len(encode(contents)) > MAX_FILE_BYTES:
        raise _refused(f"the vault would be larger than {MAX_FILE_BYTES} bytes; remove a secret first")
    return contents


def _check_value(name: str, value: Secret) -> None:
    """Raise ValueError for a value that cannot be stored. The error does not quote the value, and its traceback has no
    frame with the value in a local variable.
    """
    if not MIN_SECRET_BYTES <= len(value) <= MAX_SECRET_BYTES:
        reason = "a shorter one could not be distinguished from ordinary text in answers"
        bounds = f"expected {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes"
        raise ValueError(f"secret {name!r} has {len(value)} bytes; {bounds} ({reason})")
    if is_document(value):
        return  # its line ends are never sent: secret_form.py
    for byte, called in ((b"\n", "a line end"), (b"\r", "a carriage return"), (b"\0", "a NUL byte")):
        if byte in value.reveal():
            if value.reveal().startswith(b"-----BEGIN "):
                raise ValueError(
                    f"secret {name!r} is a PEM file with {called} out of place: store the file as it was made"
                )
            # Most often the command echo has added the line end.
            fix = "; pass it without one, as with printf %s" if value.reveal().endswith(byte) else ""
            raise ValueError(f"secret {name!r} contains {called}, which would end a header early{fix}")


@contextlib.contextmanager
def _as_bad_input() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise AileronError(FailureClass.BAD_INPUT, str(error), boundary=Boundary.USER) from None


def _unknown_secret(name: str) -> AileronError:
    message = f"no secret {name!a} is stored: aileron secret set NAME"
    return AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)


def _not_fetched(name: str, elsewhere: Elsewhere) -> AileronError:
    message = (
        f"secret {name!r}, which is at {elsewhere.reference}, was not fetched since the vault was opened: try again"
    )
    return AileronError(FailureClass.VAULT_LOCKED, message, boundary=Boundary.USER, retriable=True)


def _changed_elsewhere(entry: SecretEntry, bindings: Iterable[Binding]) -> AileronError:
    assert entry.elsewhere is not None
    bound = next((str(binding.name) for binding in bindings if binding.secret == entry.name), None)
    fix = f"aileron binding rebind {bound}"
    if bound is None:
        token = () if entry.elsewhere.token is None else ("--from-token", entry.elsewhere.token)
        fix = shlex.join(["aileron", "secret", "set", entry.name, "--from", entry.elsewhere.reference, *token])
    message = f"the secret at {entry.elsewhere.reference} changed since you approved it: {fix}"
    details = {"secret": entry.name, "reference": entry.elsewhere.reference, "code": "changed"}
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER, details=details)


def _as_sent(entry: SecretEntry) -> Binding:
    """Return a binding that describes the token with which the secret of `entry` is fetched, as if the token were bound
    to the server that gets it.

    If a program fetches the secret, the binding has no host.
    """
    elsewhere = entry.elsewhere
    assert elsewhere is not None
    host = elsewhere.parsed.host
    reach = Reach(hosts=() if host is None else (str(host),), wire="own")
    name = BindingName("own", "elsewhere", entry.name)
    return Binding(name, "", "api_key", None, elsewhere.token or "", 0.0, reach)


def _unbound(name: BindingName) -> AileronError:
    message = f"{name} is no longer bound: aileron binding setup CONNECTOR {setup_options(name.kind, str(name))}"
    details = {"binding": str(name)}
    return AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER, details=details)


def _refused(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)

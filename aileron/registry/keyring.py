"""Whose key may speak for whom: the keys a person trusts, by repository or owner, and what a signature is worth with them.

`keyring.json` in the home holds them. Where an approver exists only keys count that they agreed to, whatever the file says
(`agreed`): an agent with a shell can write the file.

Rules
- A signature counts if any key verifies that is trusted for the artifact's repository or its owner. No key is excepted from one.
- Unsigned is a fact that a person is shown. Signed by nobody who is trusted here is an error that nothing overrides: the claim is
  there, and it is false or not to be judged.
- Rotation is a second key beside the first; then the first is revoked.
- A signature of Sigstore needs no key here: the artifact's name says whose it has to be (sigstore.py).

Source: docs/reference/signatures.md. Not here: fetching a publisher's key (forges/), asking the person
(daemon/decisions/consents.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from aileron import files
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import Fqn
from aileron.registry.signatures import SIGNATURE_BYTES, PublicKey
from aileron.registry.sigstore import BundleError, check_bundle, is_bundle

__all__ = ["MAX_KEYS", "Authority", "Keyring", "KeyringFile", "Signed", "check_signature", "trust_digest"]

MAX_KEYS: Final = 16
"""Of one owner or repository: rotation needs two, a handful of maintainers some more."""
_MAX_FILE_BYTES: Final = 1 << 20
"""1 MiB: some ten thousand keys."""


class Authority(msgspec.Struct, frozen=True, order=True):
    """Who publishes: `scheme://owner`, or `scheme://owner/repository`."""

    scheme: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """An owner, a repository, or anything in one, which stands for that. ValueError otherwise."""
        _, _, rest = text.partition("://")
        if rest and "/" not in rest:
            owner = Fqn.parse(f"{text}/x")  # for the grammar of names
            return cls(owner.scheme, owner.path[:1])
        return cls.of_repository(Fqn.parse(text))

    @classmethod
    def of_repository(cls, name: Fqn) -> Self:
        """The repository that an artifact is in."""
        return cls(name.scheme, name.path[:2])

    @property
    def is_owner(self) -> bool:
        """Whether it stands for all repositories of one owner."""
        return len(self.path) == 1

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(self.path)}"


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an artifact's signature. `by` is the key's fingerprint, or `Sigstore` and the workflow; `trusted_for` why
    that counts.
    """

    status: Literal["verified", "unsigned"]
    by: str | None = None
    trusted_for: str | None = None
    expected: bool = False
    """Not signed with a key, though one of its publisher is trusted here."""


class Keyring(msgspec.Struct, frozen=True):
    """The keys that count, by authority, both in order."""

    keys: dict[Authority, tuple[PublicKey, ...]] = {}

    def of(self, authority: Authority) -> tuple[PublicKey, ...]:
        """The keys trusted for just that."""
        return self.keys.get(authority, ())

    def speaking_for(self, name: Fqn) -> Iterator[tuple[Authority, PublicKey]]:
        """Each key that may have signed the artifact called `name`."""
        return self.speaking_for_authority(Authority.of_repository(name))

    def speaking_for_authority(self, authority: Authority) -> Iterator[tuple[Authority, PublicKey]]:
        """Each key that counts for it: its own, and its owner's."""
        owner = Authority(authority.scheme, authority.path[:1])
        for one in dict.fromkeys((authority, owner)):
            for key in self.of(one):
                yield one, key

    def trusting(self, authority: Authority, key: PublicKey) -> Keyring:
        """The same with one more key. AileronError(invalid_request) where there are too many."""
        kept = self.of(authority)
        if key in kept:
            return self
        if len(kept) >= MAX_KEYS:
            problem = f"{authority} already has {MAX_KEYS} trusted keys: revoke one first (`aileron keyring list`)"
            raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)
        return self.replacing(authority, (*kept, key))

    def without(self, authority: Authority, fingerprint: str | None = None) -> Keyring:
        """The same without one key of `authority`, or all of them. AileronError(not_found) where there is none such."""
        gone = [key for key in self.of(authority) if fingerprint in (None, key.fingerprint)]
        if not gone:
            which = "no key" if fingerprint is None else f"no key {fingerprint[:60]!r}"
            problem = f"{which} is trusted for {authority}; see `aileron keyring list`"
            raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.USER)
        return self.replacing(authority, tuple(key for key in self.of(authority) if key not in gone))

    def agreed(self, digest_of: Callable[[str], str | None]) -> Keyring:
        """Of this keyring what a person agreed to: the authorities whose keys are, all together, those of that digest."""
        kept = {one: keys for one, keys in self.keys.items() if digest_of(str(one)) == trust_digest(one, keys)}
        return Keyring(kept)

    def replacing(self, authority: Authority, keys: Sequence[PublicKey]) -> Keyring:
        """The same with just these keys of `authority`."""
        kept = {one: theirs for one, theirs in self.keys.items() if one != authority}
        if keys:
            kept[authority] = tuple(sorted(keys, key=lambda key: key.raw))
        return Keyring(dict(sorted(kept.items())))


def trust_digest(authority: Authority, keys: Sequence[PublicKey]) -> str:
    """`sha256:…` over who is trusted with which keys: what a person agrees to."""
    named = {"authority": str(authority), "keys": sorted(key.to_base64() for key in keys)}
    return sha256_digest(canonical_json(named))


def check_signature(
    name: Fqn, message: bytes, signature: bytes | None, keyring: Keyring, public: frozenset[str] = frozenset()
) -> Signed:
    """What the signature over `message`, the artifact called `name`, is worth: a key's, or a bundle of Sigstore.

    `public`: the schemes that mean the public forge (sigstore.public_forges); none, where nobody said so.
    AileronError(signature_failure) where there is one, and neither a key that is trusted for `name` nor its repository made it.
    """
    keys = list(keyring.speaking_for(name))
    if signature is None:
        return Signed(status="unsigned", expected=bool(keys))
    if is_bundle(signature) and len(signature) != SIGNATURE_BYTES:
        return _signed_by_workflow(name, message, signature, public, has_keys=bool(keys))
    for authority, key in keys:
        if key.is_signature(signature, message):
            return Signed(status="verified", by=key.fingerprint, trusted_for=str(authority))
    raise _not_theirs(name, signature, [key for _, key in keys])


def _signed_by_workflow(name: Fqn, message: bytes, bundle: bytes, public: frozenset[str], *, has_keys: bool) -> Signed:
    try:
        workflow = check_bundle(name, hashlib.sha256(message).digest(), bundle, public)
    except BundleError as error:
        raise _refused(name, str(error), []) from None
    # Whoever can change the repository can sign so; who trusts a key of its publisher is told that this was not made with it.
    louder = " (NOT a key of its publisher that you trust)" if has_keys else ""
    by = f"Sigstore {workflow}{louder}"
    return Signed(status="verified", by=by, trusted_for=str(Authority.of_repository(name)), expected=has_keys)


def _not_theirs(name: Fqn, signature: bytes, keys: list[PublicKey]) -> AileronError:
    repository = Authority.of_repository(name)
    if len(signature) != SIGNATURE_BYTES:
        problem = (
            f"its signature has {len(signature)} bytes; expected {SIGNATURE_BYTES} for Ed25519, or JSON for Sigstore"
        )
    elif not keys:
        problem = (
            f"it is signed, but you trust no key of {repository}. Check whose key it is, and trust it: aileron "
            f"keyring trust {repository}"
        )
    else:
        listed = ", ".join(key.fingerprint for key in keys)
        problem = (
            f"its signature is from none of the keys that you trust for it ({listed}). Ask its publisher for a "
            "new key; without one, treat the content as forged"
        )
    return _refused(name, problem, keys)


def _refused(name: Fqn, problem: str, keys: Sequence[PublicKey]) -> AileronError:
    return AileronError(
        FailureClass.SIGNATURE_FAILURE,
        f"{name}: {problem}",
        boundary=Boundary.CONNECTOR_MANIFEST,
        details={"authority": str(Authority.of_repository(name)), "trusted": [key.fingerprint for key in keys]},
    )


# At rest


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Version 2; version 1 had no owners."""

    version: int
    publishers: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}


class KeyringFile:
    """`keyring.json` of a home. Written by the daemon alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Keyring:
        """What it says; an absent file is an empty keyring. AileronError where it cannot be read as one."""
        try:
            with files.open_directory(self._path.parent, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._path, _MAX_FILE_BYTES, files.OTHERS_MAY_WRITE)
        except FileNotFoundError:
            return Keyring()
        return self._read(data)

    def write(self, keyring: Keyring) -> None:
        """Durably, in place of what was there. AileronError."""
        found = _File(
            version=2,
            publishers={str(one): _told(keys) for one, keys in keyring.keys.items() if not one.is_owner},
            owners={str(one): _told(keys) for one, keys in keyring.keys.items() if one.is_owner},
        )
        with files.open_directory(self._path.parent, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._path, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")

    def _read(self, data: bytes) -> Keyring:
        try:
            found = msgspec.json.decode(data, type=_File)
        except msgspec.MsgspecError as error:
            raise self._refused(str(error)) from None
        if found.version not in (1, 2) or (found.version == 1 and found.owners):
            raise self._refused(f"version {found.version}; this aileron reads 1 and 2")
        keyring = Keyring()
        for is_owner, table in ((False, found.publishers), (True, found.owners)):
            for name, keys in table.items():
                for text in keys:
                    keyring = self._with(keyring, name, text, is_owner=is_owner)
        return keyring

    def _with(self, keyring: Keyring, name: str, text: str, *, is_owner: bool) -> Keyring:
        try:
            authority, key = Authority.parse(name), PublicKey.parse(text)
            if str(authority) != name or authority.is_owner != is_owner:
                raise ValueError(f"{name!r} is not {'an owner' if is_owner else 'a repository'}")
        except ValueError as error:
            raise self._refused(str(error)) from None
        return keyring.trusting(authority, key)

    def _refused(self, problem: str) -> AileronError:
        return AileronError(
            FailureClass.INVALID_REQUEST,
            f"{self._path} cannot be read as a keyring: {problem}. Fix it, or remove it and trust the keys again",
            boundary=Boundary.USER,
        )


def _told(keys: Sequence[PublicKey]) -> list[str]:
    return [key.to_base64() for key in keys]

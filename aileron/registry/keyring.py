"""The keyring: the publishers' keys that a person trusts, and the check of signatures with these keys.

`keyring.json` in the home lists the keys by repository or owner. If there is an approver, a key is trusted only if the
approver consented to it (`agreed`), since an agent with a shell can edit the file.

Rules
- A signature is accepted if it verifies with any key that is trusted for the artifact's repository or its owner.
- A missing signature is shown to the person. A signature that no trusted key made is an error that nothing overrides: the
  artifact claims a signer, and the claim is false or cannot be checked.
- To rotate a key, a second key is added, and then the first is revoked.
- A Sigstore signature needs no key in the keyring: the artifact's name determines its signer (sigstore.py).

Source: docs/reference/signatures.md. Not here: fetching a publisher's key (forges/), asking the person
(daemon/consent_service/handlers/trusted_key_consent.py).
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
"""Maximum number of keys per owner or repository: a rotation needs two, a group of maintainers a few more."""
_MAX_FILE_BYTES: Final = 1 << 20
"""1 MiB: some ten thousand keys."""


class Authority(msgspec.Struct, frozen=True, order=True):
    """A publisher: `scheme://owner`, or `scheme://owner/repository`."""

    scheme: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an owner or a repository. For the name of an artifact, return its repository.

        Raises ValueError for any other text.
        """
        _, _, rest = text.partition("://")
        if rest and "/" not in rest:
            owner = Fqn.parse(f"{text}/x")  # for the grammar of names
            return cls(owner.scheme, owner.path[:1])
        return cls.of_repository(Fqn.parse(text))

    @classmethod
    def of_repository(cls, name: Fqn) -> Self:
        """Return the repository that contains the artifact called `name`."""
        return cls(name.scheme, name.path[:2])

    @property
    def is_owner(self) -> bool:
        """True if this authority stands for all repositories of one owner."""
        return len(self.path) == 1

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(self.path)}"


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the check of an artifact's signature. An artifact that came with Aileron is `bundled`, and needs none.

    `by` is the key's fingerprint, or `Sigstore` and the workflow. `trusted_for` is the owner or repository whose artifacts the
    signer is trusted to sign, such as `github://owner`.
    """

    status: Literal["verified", "unsigned", "bundled"]
    by: str | None = None
    trusted_for: str | None = None
    expected: bool = False
    """True if the artifact is not signed with a key, but this machine trusts a key of its publisher."""


class Keyring(msgspec.Struct, frozen=True):
    """The trusted keys, by authority; authorities and keys are sorted."""

    keys: dict[Authority, tuple[PublicKey, ...]] = {}

    def of(self, authority: Authority) -> tuple[PublicKey, ...]:
        """Return the keys that are trusted for exactly this authority."""
        return self.keys.get(authority, ())

    def speaking_for(self, name: Fqn) -> Iterator[tuple[Authority, PublicKey]]:
        """Yield each key trusted to sign the artifact called `name`, with the authority for which it is trusted."""
        return self.speaking_for_authority(Authority.of_repository(name))

    def speaking_for_authority(self, authority: Authority) -> Iterator[tuple[Authority, PublicKey]]:
        """Yield each key trusted to sign for `authority`, with the authority that lists the key: `authority` or its owner."""
        owner = Authority(authority.scheme, authority.path[:1])
        for holder in dict.fromkeys((authority, owner)):
            for key in self.of(holder):
                yield holder, key

    def trusting(self, authority: Authority, key: PublicKey) -> Keyring:
        """Return the keyring with `key` added. Raises AileronError(invalid_request) if there are too many keys."""
        kept = self.of(authority)
        if key in kept:
            return self
        if len(kept) >= MAX_KEYS:
            problem = f"{authority} already has {MAX_KEYS} trusted keys: revoke one first (`aileron keyring list`)"
            raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)
        return self.replacing(authority, (*kept, key))

    def without(self, authority: Authority, fingerprint: str | None = None) -> Keyring:
        """Return the keyring without the key of `authority` with this `fingerprint`, or without all of its keys if
        `fingerprint` is None.

        Raises AileronError(not_found) if there is no such key.
        """
        gone = [key for key in self.of(authority) if fingerprint in (None, key.fingerprint)]
        if not gone:
            which = "no key" if fingerprint is None else f"no key {fingerprint[:60]!r}"
            problem = f"{which} is trusted for {authority}; see `aileron keyring list`"
            raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.USER)
        return self.replacing(authority, tuple(key for key in self.of(authority) if key not in gone))

    def agreed(self, digest_of: Callable[[str], str | None]) -> Keyring:
        """Return the keyring without authorities whose current keys no person consented to.

        `digest_of` returns the trust_digest that a person consented to for an authority, or None.
        """
        kept = {
            authority: keys
            for authority, keys in self.keys.items()
            if digest_of(str(authority)) == trust_digest(authority, keys)
        }
        return Keyring(kept)

    def replacing(self, authority: Authority, keys: Sequence[PublicKey]) -> Keyring:
        """Return the keyring with exactly `keys` for `authority`."""
        kept = {other: theirs for other, theirs in self.keys.items() if other != authority}
        if keys:
            kept[authority] = tuple(sorted(keys, key=lambda key: key.raw))
        return Keyring(dict(sorted(kept.items())))


def trust_digest(authority: Authority, keys: Sequence[PublicKey]) -> str:
    """Return `sha256:…` over an authority and the keys that are trusted for it: a person consents to this digest."""
    named = {"authority": str(authority), "keys": sorted(key.to_base64() for key in keys)}
    return sha256_digest(canonical_json(named))


def check_signature(
    name: Fqn, message: bytes, signature: bytes | None, keyring: Keyring, public: frozenset[str] = frozenset()
) -> Signed:
    """Verify `signature`, an Ed25519 signature or a Sigstore bundle over `message`, the bytes of the artifact called `name`.

    `public`: the schemes whose server is the public one (sigstore.public_forges); if empty, no Sigstore signature is accepted.
    Raises AileronError(signature_failure) if the signature was made neither by a key trusted for `name` nor by a workflow of
    its repository. Without a signature, nothing is raised.
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
    # Everybody who can change the repository can sign like this. So a person who trusts a key of its publisher is told that
    # the signature was not made with it.
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
    """The JSON content of `keyring.json`. The current format is version 2; version 1 had no `owners`."""

    version: int
    publishers: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}


class KeyringFile:
    """The `keyring.json` of a home. Only the daemon writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Keyring:
        """Read the keyring; an absent file is an empty keyring. Raises AileronError if the file cannot be read or is
        not a keyring.
        """
        try:
            with files.open_directory(self._path.parent, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._path, _MAX_FILE_BYTES, files.OTHERS_MAY_WRITE)
        except FileNotFoundError:
            return Keyring()
        return self._read(data)

    def write(self, keyring: Keyring) -> None:
        """Replace the file, durably. Raises AileronError if it cannot be written."""
        found = _File(
            version=2,
            publishers={
                str(authority): _told(keys) for authority, keys in keyring.keys.items() if not authority.is_owner
            },
            owners={str(authority): _told(keys) for authority, keys in keyring.keys.items() if authority.is_owner},
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

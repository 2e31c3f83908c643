"""The question that a person answers before a connector is installed: its capabilities, and which of them are new.

Pure. The question contains what the manifest asks for and nothing else: the same value is shown, signed, and compared with the
installed versions.

Source: docs/reference/consents.md. Not here: asking (daemon/consent_service/consents.py), what widens an action file
(actions/widening.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from aileron.model.canonical import sha256_digest
from aileron.model.consent import Change, ConnectorConsent, ConnectorUpdateConsent
from aileron.model.credential import Reach
from aileron.model.credential_kind import credential_facts
from aileron.model.manifest import ConnectorManifest, CredentialNeed, OAuth2Provider
from aileron.model.names import precedence
from aileron.registry.artifact import Artifact
from aileron.registry.keyring import Signed

_SIGN_IN: Final = (
    "registration_url",
    "authorize_url",
    "token_url",
    "device_authorization_url",
    "revocation_url",
)
__all__ = ["capability_changes", "connector_consent", "signature_words", "text_signature_words"]


def connector_consent(
    artifact: Artifact,
    source: str,
    on_conflict: str,
    *,
    installed: Sequence[ConnectorManifest] = (),
) -> ConnectorConsent:
    """Return the question to a person about installing `artifact`, which was found at `source`.

    If versions of the connector are `installed`, this is an update of the nearest lower version, or else of the newest.
    """
    manifest = artifact.manifest
    facts = {
        "name": artifact.pin.name,
        "version": artifact.pin.version,
        "hash": artifact.pin.hash,
        "source": source,
        "on_conflict": on_conflict,
        "signature": signature_words(artifact.signed),
        "reaches": tuple(map(str, manifest.hosts)),
        "credential": _credential(manifest.credential),
        "wire": Reach.of(manifest).wire if manifest.credential and manifest.credential.logins else UNSET,
        "imports": tuple(sorted(manifest.imports)),
        "limits": msgspec.to_builtins(manifest.limits),
        "publisher": manifest.publisher,
    }
    before = _compared_with(installed, manifest.version)
    if before is None:
        return ConnectorConsent(**facts)
    return ConnectorUpdateConsent(**facts, before=before.version, changes=capability_changes(before, manifest))


def signature_words(signed: Signed) -> str:
    """Describe an artifact's signature in one line, for the card, the audit trail and the command's output."""
    if signed.status == "verified":
        return f"verified: {signed.by}, trusted for {signed.trusted_for}"
    if signed.status == "bundled":
        return "came with Aileron"
    return "UNSIGNED, although you trust a key of its publisher" if signed.expected else "unsigned"


def text_signature_words(signed: Signed, text: str, published: str) -> str:
    """Describe the signature of an action's text. `published` is the digest of the signed file; if `text` differs, the user
    edited it.
    """
    words = signature_words(signed)
    return words if sha256_digest(text.encode()) == published else f"EDITED HERE, not as published ({words})"


def capability_changes(before: ConnectorManifest, after: ConnectorManifest) -> tuple[Change, ...]:
    """Return every difference between the capabilities of two versions. A change `widens` if the second version can do more, or
    something else.
    """
    return tuple(_differences(before, after))


def _compared_with(installed: Sequence[ConnectorManifest], version: str) -> ConnectorManifest | None:
    others = sorted(
        (manifest for manifest in installed if manifest.version != version),
        key=lambda manifest: precedence(manifest.version),
    )
    below = [manifest for manifest in others if precedence(manifest.version) < precedence(version)]
    nearest = below or others
    return nearest[-1] if nearest else None


def _differences(before: ConnectorManifest, after: ConnectorManifest) -> Iterator[Change]:
    yield from _sets("reaches", set(map(str, before.hosts)), set(map(str, after.hosts)))
    yield from _changed("credential", _credential(before.credential), _credential(after.credential))
    yield from _changed("credential, how it is sent", _wire(before), _wire(after))
    yield from _grant_scopes(before.credential, after.credential)
    yield from _sets("logs in at", _logins(before.credential), _logins(after.credential))
    yield from _sets("executes", _commands(before.credential), _commands(after.credential))
    yield from _roles(before, after)
    yield from _provider(before.oauth2, after.oauth2)
    yield from _sets("uses", set(before.imports), set(after.imports))
    for name, was in msgspec.structs.asdict(before.limits).items():
        would_be = getattr(after.limits, name)
        yield from _changed(f"limits.{name}", str(was).lower(), str(would_be).lower(), widens=would_be > was)
    was_repeated, is_repeated = before.idempotent_by_default, after.idempotent_by_default
    yield from _changed("may be repeated", _yes(was_repeated), _yes(is_repeated), widens=is_repeated)
    yield from _changed("publisher", before.publisher, after.publisher)


def _provider(before: OAuth2Provider | None, after: OAuth2Provider | None) -> Iterator[Change]:
    """Yield the changes between two versions of a manifest's sign-in: addresses, application and scopes."""
    if before is None or after is None:
        return  # the change of the credential's kind says so
    yield from _scopes(before.scopes, after.scopes)
    for name in _SIGN_IN:
        yield from _changed(f"sign-in, {name}", getattr(before, name), getattr(after, name))
    for name in (
        "client_id",
        "resource",
        "issuer",
    ):  # their absence widens too: another application, a limit that is gone
        was, would_be = getattr(before, name), getattr(after, name)
        if was != would_be:
            yield Change.of(f"sign-in, {name}", was, would_be, widens=True)
    was_said, is_said = before.issuer_in_answer, after.issuer_in_answer
    yield from _changed("sign-in, issuer_in_answer", _yes(was_said), _yes(is_said), widens=was_said)


def _grant_scopes(before: CredentialNeed | None, after: CredentialNeed | None) -> Iterator[Change]:
    """Yield the changes between two versions of the scopes of tokens that are obtained without a person."""
    if before is not None and after is not None and before.token is not UNSET and after.token is not UNSET:
        yield from _scopes(before.token.scopes, after.token.scopes)


def _scopes(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[Change]:
    """Yield the changes between two lists of scopes. Removing all scopes widens, because the provider then decides (RFC
    6749, section 3.3).
    """
    if before and not after:
        yield Change.of("scopes", ", ".join(sorted(before)), "none: the provider decides", widens=True)
    else:
        yield from _sets("scopes", set(before), set(after))


def _sets(where: str, before: set[str], after: set[str]) -> Iterator[Change]:
    for added in sorted(after - before):
        yield Change.of(where, None, added, widens=True)
    for gone in sorted(before - after):
        yield Change.of(where, gone, None, widens=False)


def _changed(where: str, before: str | None, after: str | None, *, widens: bool = True) -> Iterator[Change]:
    if before != after:
        yield Change.of(where, before, after, widens=widens and after is not None)


def _credential(need: CredentialNeed | None) -> str | None:
    return None if need is None else f"{need.kind} ({need.scope})"


def _wire(manifest: ConnectorManifest) -> str | None:
    if manifest.credential is None or credential_facts(manifest.credential.kind).has_one_form:
        return None
    return Reach.of(manifest).wire.removeprefix("header ")


def _logins(need: CredentialNeed | None) -> set[str]:
    return set() if need is None else {login.words for login in need.logins}


def _commands(need: CredentialNeed | None) -> set[str]:
    return set() if need is None else set(need.commands)


_ROLES: Final = ("read_only", "previewed", UNSET)
"""Values of an operation's `login`, the least permissive first; UNSET is a login without a restriction."""
_ROLE_WORDS: Final = {"read_only": "only reads", "previewed": "changes what a person saw"}


def _roles(before: ConnectorManifest, after: ConnectorManifest) -> Iterator[Change]:
    """Yield a change for each operation whose `login` became more or less permissive, as ranked by `_ROLES`."""
    for operation in before.operations or ():
        was, would_be = operation.login, after.operation(operation.name).login
        if was != would_be:
            words = [None if login is UNSET else _ROLE_WORDS[login] for login in (was, would_be)]
            widens = _ROLES.index(would_be) > _ROLES.index(was)
            yield Change.of(f"role of {operation.name}", words[0], words[1], widens=widens)


def _yes(value: bool) -> str:
    return "yes" if value else "no"

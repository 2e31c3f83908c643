"""The kinds of credential, and everything that depends on a kind alone, for all rooms.

>>> credential_facts("aws_sigv4").username
UserNameRule(words='Access key ID', is_required=False, ends_at_colon=False)

Not here: how a kind is sent (egress/credentials/), the form of its secret (vault/secret_form.py), the questions that people
are asked for each kind (cli/bind.py).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, assert_never, get_args

from aileron.model.manifest import CredentialKind

__all__ = [
    "CREDENTIAL_KINDS",
    "CredentialFacts",
    "UserNameRule",
    "credential_facts",
    "maybe_credential_facts",
    "parse_credential_kind",
]

CREDENTIAL_KINDS: Final[tuple[CredentialKind, ...]] = get_args(CredentialKind)


class UserNameRule(NamedTuple):
    """The rules for the user name of a kind of credential. `words` is what a prompt calls the user name."""

    words: str
    is_required: bool
    ends_at_colon: bool = False
    """True if the user name must not contain a colon, because the password follows one (RFC 7617)."""


class CredentialFacts(NamedTuple):
    """The facts about a kind of credential. `username` is None if credentials of this kind have no user name."""

    username: UserNameRule | None = None
    logs_in_with: Literal["password", "token"] | None = None
    """Form of the secret in a login at a service that does not speak HTTP; None if the kind of credential cannot be
    used for logins.
    """
    has_one_form: bool = False
    """True if all connectors send credentials of this kind in the same form, so that the form need not be compared."""


def credential_facts(kind: CredentialKind) -> CredentialFacts:
    """Return the facts about this kind of credential."""
    match kind:
        case "basic":
            return CredentialFacts(UserNameRule("User name", is_required=True, ends_at_colon=True), has_one_form=True)
        case "digest":
            return CredentialFacts(UserNameRule("User name", is_required=True, ends_at_colon=True))
        case "login":
            return CredentialFacts(UserNameRule("User name", is_required=True), "password", has_one_form=True)
        case "oauth2":
            return CredentialFacts(logs_in_with="token", has_one_form=True)
        case "aws_sigv4":
            return CredentialFacts(UserNameRule("Access key ID", is_required=False))
        case "oauth2_client":
            return CredentialFacts(UserNameRule("Client ID", is_required=False))
        case "api_key" | "hmac" | "mtls":
            return CredentialFacts()
        case impossible:
            assert_never(impossible)


def maybe_credential_facts(kind: str) -> CredentialFacts | None:
    """Return the facts about the kind of credential with this name; None for a kind that this version does not know."""
    return next((credential_facts(known) for known in CREDENTIAL_KINDS if known == kind), None)


def parse_credential_kind(text: str) -> CredentialKind:
    """Return the kind of credential with this name. Raises ValueError if there is none."""
    for kind in CREDENTIAL_KINDS:
        if kind == text:
            return kind
    raise ValueError(f"kind {text!a} is not one of {', '.join(CREDENTIAL_KINDS)}")

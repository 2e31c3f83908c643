"""The user name that belongs to a secret: which kinds of credential have a user name, and the rules for it.

Pure. For a key with an ID, the ID is the user name: the access key ID of `aws_sigv4`, the client ID of `oauth2_client`. The
user name is omitted if the stored document contains the ID.

Source: RFC 7617 section 2, RFC 7616 section 3.4; docs/reference/bindings.md. Not here: the owner of a login (vault/bindings.py).
"""

from __future__ import annotations

from typing import Final

from aileron.model.credential_kind import CREDENTIAL_KINDS, credential_facts, maybe_credential_facts
from aileron.model.manifest import CredentialKind
from aileron.model.text import hidden_at, spelled

__all__ = ["check_username", "check_username_text", "has_username"]

MAX_USERNAME_BYTES: Final = 320  # an e-mail address: 64 + 1 + 255 (RFC 5321, section 4.5.3.1)


def has_username(kind: str) -> bool:
    """Return whether a secret of this kind can have a user name; False for an unknown kind."""
    facts = maybe_credential_facts(kind)
    return facts is not None and facts.username is not None


def check_username(kind: CredentialKind, username: str | None) -> None:
    """Raise ValueError saying what is wrong if the user name is not valid for a secret of this kind.

    >>> check_username("basic", "ann"), check_username("api_key", None)
    (None, None)
    """
    rule = credential_facts(kind).username
    if rule is None:
        if username is not None:
            kinds = _kinds_with_username()
            words = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
            raise ValueError(f"a user name is for kinds {words}, not for {kind}; leave it out")
        return
    if username is None and not rule.is_required:
        return
    if username is None:
        raise ValueError(f"kind {kind} needs a user name; add --username")
    check_username_text(username)
    if ":" in username and rule.ends_at_colon:
        raise ValueError(f"the user name holds a colon, where kind {kind} (RFC 7617) would split it from the password")


def _kinds_with_username() -> list[CredentialKind]:
    """Return the kinds of credential that have a user name. The kinds with the strictest rules for user names come first."""
    rules = [(known, rule) for known in CREDENTIAL_KINDS if (rule := credential_facts(known).username) is not None]
    rules.sort(key=lambda entry: (not entry[1].ends_at_colon, entry[1].is_required))
    return [known for known, _ in rules]


def check_username_text(username: str) -> None:
    """Raise ValueError with the reason if the user name is not valid for any kind of credential."""
    if not username:
        raise ValueError("the user name is empty; add --username")
    if (at := hidden_at(username)) is not None:
        raise ValueError(f"the user name holds {spelled(username[at])}")
    if len(username.encode()) > MAX_USERNAME_BYTES:
        raise ValueError(f"the user name is longer than {MAX_USERNAME_BYTES} bytes")

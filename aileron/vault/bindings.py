"""Which secret serves which connector, as the user said.

A binding is a name (`KIND/SERVICE/IDENTITY`), one connector, one stored secret and, for `basic`, a user name; besides, what
it was agreed to reach, and for a sign-in at a provider what that granted. Nothing here is secret and nothing needs a key. Pure;
the values may come from a file that anybody wrote, so each is checked in full, and the same way when the user makes it.

Rules
- A binding serves exactly one connector, named in full, and one kind of credential; no best match, no wildcard.
- What it reaches is kept as it was agreed to: sorted, each once, so that the same agreement has one spelling.
- `basic` needs a user name without a colon (RFC 7617, section 2); the other kinds have no place for one.
- No field holds a character that a reader cannot see.

Source: docs/reference/vault-format.md. Not here: choosing between several (actions/resolve.py), lending (lend.py).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import Final, get_args

import msgspec

from aileron.model.credential import Candidate, OAuthGrant, Reach
from aileron.model.manifest import CredentialKind
from aileron.model.names import BindingName, Fqn, HostPort
from aileron.model.text import hidden_at, spelled

__all__ = [
    "LATEST_S",
    "SECRET_NAME",
    "Binding",
    "candidates",
    "check_binding",
    "check_grant",
    "check_reach",
    "check_secret_name",
]

SECRET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
KINDS: Final[tuple[str, ...]] = get_args(CredentialKind)
MAX_USERNAME_BYTES: Final = 320  # an e-mail address: 64 + 1 + 255 (RFC 5321, section 4.5.3.1)
MAX_CONNECTOR_CHARACTERS: Final = 1024  # an FQN of ten segments of the greatest length
MAX_HOSTS: Final = 32  # as many as a manifest may name
MAX_SCOPES: Final = 64  # a provider's consent page with more is read by nobody
MAX_SCOPE_CHARACTERS: Final = 256  # most are URLs of some fifty
MAX_WIRE_CHARACTERS: Final = 1024  # a header's name of 64, and its format
MAX_CLIENT_CHARACTERS: Final = 4096  # a client id and a URL
MAX_ACCOUNT_CHARACTERS: Final = 320  # as a user name
MAX_CODE_CHARACTERS: Final = 128  # the longest registered error code of OAuth has 35
LATEST_S: Final = 253402300799.0  # the last second of the year 9999, past which no date can be shown
LATEST_MS: Final = int(LATEST_S) * 1000
_TOKEN: Final = re.compile(r"[!#-\[\]-~]+")  # RFC 6749, appendix A: scope-token; and an error code without its spaces


class Binding(msgspec.Struct, frozen=True):
    """The secret `secret` serves `connector` as a credential of `kind`. `created_at` in seconds, kept to the millisecond.

    `reach` None: made before this was kept. With a `grant` the secret's value is a sealed `TokenSet`, for this binding alone.
    """

    name: BindingName
    connector: str
    kind: str
    username: str | None
    secret: str
    created_at: float
    reach: Reach | None = None
    grant: OAuthGrant | None = None

    @property
    def account(self) -> str | None:
        """Whose credential it is, as the provider or the user said it; for people."""
        return self.username if self.grant is None else self.grant.account


def check_binding(binding: Binding) -> None:
    """ValueError says which field is not what it should be."""
    if binding.kind not in KINDS:
        raise ValueError(f"kind {binding.kind!a} is not one of {', '.join(KINDS)}")
    BindingName.parse(str(binding.name))  # a value of the type need not have been parsed
    if binding.name.kind != binding.kind:
        raise ValueError(f"binding {binding.name} is named for another kind; expected {binding.kind}/SERVICE/IDENTITY")
    if len(binding.connector) > MAX_CONNECTOR_CHARACTERS:
        raise ValueError(f"connector name of {len(binding.connector)} characters; at most {MAX_CONNECTOR_CHARACTERS}")
    Fqn.parse(binding.connector)
    check_secret_name(binding.secret)
    _check_username(binding)
    if not (math.isfinite(binding.created_at) and 0 <= binding.created_at <= LATEST_S):
        raise ValueError(f"created_at {binding.created_at} is not a time")
    if binding.reach is not None:
        check_reach(binding.reach)
    if binding.grant is not None:
        if binding.kind != "oauth2":
            raise ValueError(f"a provider's grant is only for kind oauth2, not for {binding.kind}")
        check_grant(binding.grant)


def check_reach(reach: Reach) -> None:
    """ValueError says which part is not what it should be."""
    if len(reach.hosts) > MAX_HOSTS:
        raise ValueError(f"{len(reach.hosts)} hosts to reach; at most {MAX_HOSTS}")
    for host in reach.hosts:
        HostPort.parse(host)
    _check_ascending(reach.hosts, "hosts to reach")
    _check_scopes(reach.scopes)
    _check_text(reach.wire, MAX_WIRE_CHARACTERS, "how it is sent")
    if reach.client is not None:
        _check_text(reach.client, MAX_CLIENT_CHARACTERS, "the application")


def check_grant(grant: OAuthGrant) -> None:
    """ValueError says which part is not what it should be."""
    _check_scopes(grant.scopes)
    for moment in (grant.obtained_ms, grant.expires_ms, grant.refreshed_ms, grant.renewing_ms):
        if moment is not None and not 0 <= moment <= LATEST_MS:
            raise ValueError(f"{moment} is not a time of a grant")
    if grant.account is not None:
        _check_text(grant.account, MAX_ACCOUNT_CHARACTERS, "the account")
    if grant.failed is not None and not (len(grant.failed) <= MAX_CODE_CHARACTERS and _TOKEN.fullmatch(grant.failed)):
        raise ValueError(f"an error code has 1 to {MAX_CODE_CHARACTERS} visible characters, no quote and no backslash")


def check_secret_name(name: str) -> None:
    """ValueError with the grammar."""
    if not SECRET_NAME.fullmatch(name):
        raise ValueError(f"{name!a} is not a secret's name (lower-case letters, digits, '.', '_', '-', at most 64)")


def candidates(bindings: Iterable[Binding], connector: str, kind: str) -> list[Candidate]:
    """Those made for this connector (its full name) and kind, by name."""
    return [
        Candidate(name=binding.name, reach=binding.reach, account=binding.account)
        for binding in sorted(bindings, key=lambda binding: binding.name)
        if binding.connector == connector and binding.kind == kind
    ]


def _check_username(binding: Binding) -> None:
    username = binding.username
    if binding.kind != "basic":
        if username is not None:
            raise ValueError(f"a user name is only for kind basic, not for {binding.kind}; leave it out")
        return
    if not username:
        raise ValueError("kind basic needs a user name; add --username")
    if (at := hidden_at(username)) is not None:
        raise ValueError(f"the user name holds {spelled(username[at])}")
    if ":" in username:
        raise ValueError("the user name holds a colon, where kind basic (RFC 7617) would split it from the password")
    if len(username.encode()) > MAX_USERNAME_BYTES:
        raise ValueError(f"the user name is longer than {MAX_USERNAME_BYTES} bytes")


def _check_scopes(scopes: tuple[str, ...]) -> None:
    if len(scopes) > MAX_SCOPES:
        raise ValueError(f"{len(scopes)} scopes; at most {MAX_SCOPES}")
    for scope in scopes:
        if len(scope) > MAX_SCOPE_CHARACTERS or not _TOKEN.fullmatch(scope):
            raise ValueError(
                f"scope {scope[:80]!a} is not 1 to {MAX_SCOPE_CHARACTERS} characters of RFC 6749's scope-token"
            )
    _check_ascending(scopes, "scopes")


def _check_text(text: str, most: int, what: str) -> None:
    if len(text) > most:
        raise ValueError(f"{what}: {len(text)} characters; at most {most}")
    if (at := hidden_at(text)) is not None:
        raise ValueError(f"{what} holds {spelled(text[at])}")


def _check_ascending(texts: tuple[str, ...], what: str) -> None:
    if any(first >= second for first, second in itertools.pairwise(texts)):
        raise ValueError(f"the {what} are not sorted, each once")

"""Bindings: which secret serves which connector, as the user decided.

A binding has a name (`KIND/SERVICE/IDENTITY`), one connector, one stored secret and the reach that it was approved for. It
also has a user name for the kinds that have one, the provider's grant for a sign-in, and for a login the details that its
protocol needs. No part of a binding is secret, and this module needs no key. Pure; the values may come from a file that
anybody wrote, so each value is checked completely, and in the same way as when the user creates a binding.

Rules
- A binding serves exactly one connector, by its full name, and one kind of credential. There is no best match and no wildcard.
- The reach of a binding is stored as it was approved: sorted and without duplicates, so that the same reach has one spelling.
- A user name follows the rules of its kind (model/username.py). For a sign-in that is used in logins, it comes from the
  provider or the user.
- A login has only the details that its protocols ask for, and an ssh server must have a known key.
- No field holds a character that a reader cannot see.

Source: docs/reference/vault-format.md. Not here: choosing between several bindings (actions/resolve.py), lending (lend.py).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from aileron.model.credential import Candidate, OAuthGrant, Reach
from aileron.model.credential_kind import parse_credential_kind
from aileron.model.host_key import check_host_key
from aileron.model.login import (
    HAVE_DATABASES,
    HAVE_PASSWORD_FORMS,
    HAVE_ROLES,
    BoundLogin,
    LoginDetails,
    LoginProtocol,
    LoginTarget,
)
from aileron.model.names import BindingName, Fqn, HostPort
from aileron.model.text import hidden_at, spelled
from aileron.model.username import check_username, check_username_text

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
MAX_CONNECTOR_CHARACTERS: Final = 1024  # an FQN of ten segments of the maximum length
MAX_HOSTS: Final = 32  # as many as a manifest may name
MAX_SCOPES: Final = 64  # nobody reads a provider's consent page with more
MAX_SCOPE_CHARACTERS: Final = 256  # most are URLs of some fifty
MAX_WIRE_CHARACTERS: Final = 20 << 10  # 8 logins of some 280 characters, and 16 commands of 512, each quote escaped
MAX_DATABASE_CHARACTERS: Final = 64  # MySQL's longest name; PostgreSQL's has 63
MAX_CLIENT_CHARACTERS: Final = 4096  # a client id and a URL
MAX_ACCOUNT_CHARACTERS: Final = 320  # as a user name
MAX_CODE_CHARACTERS: Final = 128  # the longest registered error code of OAuth has 35
LATEST_S: Final = 253402300799.0  # the last second of the year 9999, past which no date can be shown
LATEST_MS: Final = int(LATEST_S) * 1000
_REDIS_DATABASE: Final = re.compile(r"[0-9]{1,5}")
_TOKEN: Final = re.compile(r"[!#-\[\]-~]+")  # RFC 6749, appendix A: scope-token; and an error code without its spaces


class Binding(msgspec.Struct, frozen=True):
    """A binding: the secret `secret` serves `connector` as a credential of `kind`. `created_at` is in seconds since the epoch,
    with a precision of a millisecond.

    `reach` is None for a binding made before the reach was stored. With a `grant`, the secret's value is a sealed `TokenSet`
    that only this binding uses.
    """

    name: BindingName
    connector: str
    kind: str
    username: str | None
    secret: str
    created_at: float
    reach: Reach | None = None
    grant: OAuthGrant | None = None
    details: LoginDetails | None = None

    @property
    def logins(self) -> tuple[LoginTarget, ...]:
        """The logins for which the binding was approved. Raises ValueError if the binding's reach is in a form that
        this program does not write.
        """
        is_of_kind = self.reach is not None and self.reach.wire.startswith(f"{self.kind} ")
        return self.reach.logins if self.reach is not None and is_of_kind else ()

    @property
    def login_name(self) -> str | None:
        """The user name for a login: the one that the user gave, or else the account of the sign-in; None if the
        binding has neither.
        """
        return self.username if self.username is not None or self.grant is None else self.grant.account

    @property
    def bound(self) -> BoundLogin | None:
        """The login (user name and details) that a plan for this binding is bound to, or None if the binding was not
        approved for any login. Raises ValueError as `logins` does.
        """
        name = self.login_name
        if name is None or not self.logins:
            return None
        return BoundLogin(username=name, details=LoginDetails() if self.details is None else self.details)

    @property
    def account(self) -> str | None:
        """The account of the credential, as the provider or the user named it; None if neither did. For display only."""
        return self.username if self.grant is None else self.grant.account


def check_binding(binding: Binding) -> None:
    """Raise ValueError if a field of the binding is invalid; the message names the field."""
    parse_credential_kind(binding.kind)
    BindingName.parse(str(binding.name))  # a value of the type need not have been parsed
    if binding.name.kind != binding.kind:
        raise ValueError(f"binding {binding.name} is named for another kind; expected {binding.kind}/SERVICE/IDENTITY")
    if len(binding.connector) > MAX_CONNECTOR_CHARACTERS:
        raise ValueError(f"connector name of {len(binding.connector)} characters; at most {MAX_CONNECTOR_CHARACTERS}")
    Fqn.parse(binding.connector)
    check_secret_name(binding.secret)
    if binding.reach is not None:
        check_reach(binding.reach)
    _check_login(binding)
    _check_username(binding)
    if not (math.isfinite(binding.created_at) and 0 <= binding.created_at <= LATEST_S):
        raise ValueError(f"created_at {binding.created_at} is not a time")
    if binding.grant is not None:
        if binding.kind != "oauth2":
            raise ValueError(f"a provider's grant is only for kind oauth2, not for {binding.kind}")
        check_grant(binding.grant)


def check_reach(reach: Reach) -> None:
    """Raise ValueError if a part of a binding's reach is invalid; the message names the part."""
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
    """Raise ValueError if a part of a provider's grant is invalid; the message names the part."""
    _check_scopes(grant.scopes)
    for moment in (grant.obtained_ms, grant.expires_ms, grant.refreshed_ms, grant.renewing_ms):
        if moment is not None and not 0 <= moment <= LATEST_MS:
            raise ValueError(f"{moment} is not a time of a grant")
    if grant.account is not None:
        _check_text(grant.account, MAX_ACCOUNT_CHARACTERS, "the account")
    if grant.failed is not None and not (len(grant.failed) <= MAX_CODE_CHARACTERS and _TOKEN.fullmatch(grant.failed)):
        raise ValueError(f"an error code has 1 to {MAX_CODE_CHARACTERS} visible characters, no quote and no backslash")


def check_secret_name(name: str) -> None:
    """Raise ValueError if a secret's name is invalid; the message says which names are valid."""
    if not SECRET_NAME.fullmatch(name):
        raise ValueError(f"{name!a} is not a secret's name (lower-case letters, digits, '.', '_', '-', at most 64)")


def candidates(bindings: Iterable[Binding], connector: str, kind: str) -> list[Candidate]:
    """Return the bindings for this connector (its full name) and this kind, sorted by name."""
    return [
        Candidate(
            name=binding.name,
            reach=binding.reach,
            account=binding.account,
            read_only=binding.details is not None and binding.details.read_only,
            login=binding.bound,
        )
        for binding in sorted(bindings, key=lambda binding: binding.name)
        if binding.connector == connector and binding.kind == kind
    ]


def _check_username(binding: Binding) -> None:
    """Raise ValueError if the binding lacks a user name that its kind needs, or has one that is not valid. For a login
    it comes from the user, or else from the provider of the sign-in.
    """
    if not binding.logins:
        check_username(parse_credential_kind(binding.kind), binding.username)
        return
    if not binding.login_name:
        if binding.grant is not None:
            raise ValueError("the provider did not say whose account it is, which the login needs; add --username")
        raise ValueError(f"kind {binding.kind} needs a user name; add --username")
    if binding.username is not None:
        check_username_text(binding.username)


def _check_login(binding: Binding) -> None:
    """Raise ValueError unless the details of the binding's login fit the protocols for which the binding was approved."""
    protocols, details = {login.protocol for login in binding.logins}, binding.details
    if binding.kind == "login" and not protocols:
        raise ValueError("kind login names no place to log in at")
    if details == LoginDetails():
        raise ValueError("details of a login that say nothing; leave them out")
    said = LoginDetails() if details is None else details
    if details is not None and binding.kind != "login":
        raise ValueError(
            f"a database, host key, role or password form is only for kind login, not for {binding.kind}; leave it out"
        )
    if said.database is not None:
        _check_database(said.database, protocols)
    if said.read_only and not protocols <= HAVE_ROLES:
        raise ValueError(f"{_listed(protocols)} cannot say what a role may do; leave --read-only out")
    if said.weak_password is not None:
        _check_weak_password(binding.logins)
    if (said.host_key is not None) != ("ssh" in protocols):
        if said.host_key is not None:
            raise ValueError(f"a host key is only for ssh, not for {_listed(protocols)}; leave --host-key out")
        raise ValueError(
            "ssh needs the server's public key; add --host-key 'ssh-ed25519 AAAA…', as `ssh-keyscan` prints it"
        )
    if said.host_key is not None:
        check_host_key(said.host_key)


def _check_weak_password(logins: tuple[LoginTarget, ...]) -> None:
    """Raise ValueError unless the login's detail `weak_password` is possible: the protocol of one of these logins has
    weaker password forms, and every such login is encrypted.
    """
    able = [login for login in logins if login.protocol in HAVE_PASSWORD_FORMS]
    if not able:
        protocols = {login.protocol for login in logins}
        raise ValueError(f"{_listed(protocols)} has no other password form; leave --allow-password-form out")
    for login in able:
        if login.encryption == "plain":
            raise ValueError(f"{login.words}: another password form is for TLS only; leave --allow-password-form out")


def _check_database(name: str, protocols: set[LoginProtocol]) -> None:
    if not protocols & HAVE_DATABASES:
        raise ValueError(f"{_listed(protocols)} has no databases; leave --database out")
    if not name:
        raise ValueError("the database's name is empty; leave --database out")
    _check_text(name, MAX_DATABASE_CHARACTERS, "the database")
    if protocols == {"redis"} and not _REDIS_DATABASE.fullmatch(name):
        raise ValueError("a redis database is a number; give --database 0, or leave it out")


def _listed(protocols: set[LoginProtocol]) -> str:
    return " and ".join(sorted(protocols))


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

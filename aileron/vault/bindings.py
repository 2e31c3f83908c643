"""Which secret serves which connector, as the user said.

A binding is a name (`KIND/SERVICE/IDENTITY`), one connector, one stored secret and, for `basic`, a user name. Nothing here
is secret and nothing needs a key. Pure; the values may come from a file that anybody wrote, so each is checked in full,
and the same way when the user makes it.

Rules
- A binding serves exactly one connector, named in full, and one kind of credential; no best match, no wildcard.
- `basic` needs a user name without a colon (RFC 7617, section 2); the other kinds have no place for one.
- No field holds a character that a reader cannot see.

Source: docs/reference/vault-format.md. Not here: choosing between several (actions/resolve.py), lending (lend.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final, get_args

import msgspec

from aileron.model.manifest import CredentialKind
from aileron.model.names import BindingName, Fqn
from aileron.model.text import hidden_at, spelled

__all__ = ["SECRET_NAME", "Binding", "candidates", "check_binding", "check_secret_name"]

SECRET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
KINDS: Final[tuple[str, ...]] = get_args(CredentialKind)
MAX_USERNAME_BYTES: Final = 320  # an e-mail address: 64 + 1 + 255 (RFC 5321, section 4.5.3.1)
MAX_CONNECTOR_CHARACTERS: Final = 1024  # an FQN of ten segments of the greatest length
LATEST_S: Final = 253402300799.0  # the last second of the year 9999, past which no date can be shown


class Binding(msgspec.Struct, frozen=True):
    """The secret `secret` serves `connector` as a credential of `kind`. `created_at` in seconds, kept to the millisecond."""

    name: BindingName
    connector: str
    kind: str
    username: str | None
    secret: str
    created_at: float


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


def check_secret_name(name: str) -> None:
    """ValueError with the grammar."""
    if not SECRET_NAME.fullmatch(name):
        raise ValueError(f"{name!a} is not a secret's name (lower-case letters, digits, '.', '_', '-', at most 64)")


def candidates(bindings: Iterable[Binding], connector: str, kind: str) -> list[BindingName]:
    """The names of those made for this connector (its full name) and kind, sorted."""
    return sorted(binding.name for binding in bindings if binding.connector == connector and binding.kind == kind)


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

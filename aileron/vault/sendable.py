"""Finds the secrets that could have been sent to a host: the secrets that are bound for the host, and those that were bound
for it until recently.

A service may store a secret that was sent to it, and repeat the secret in the response to any later request, with a credential
or without, in this run or another. So egress removes from a response every secret that *could* have been sent there, no matter
who made the request (egress/scrub.py). This module finds these secrets. Pure; runs in the daemon. The secrets' values stay
sealed until they are needed.

Rules
- A binding reaches the hosts that a person approved, and the host of the token endpoint at which its tokens are requested,
  with or without a sign-in. The host of the token endpoint also gets the refresh token, or the client's secret. (The host at
  which tokens are revoked gets them last, when they are worthless.)
- If a binding is so old that its reach was not stored, its secret could have been sent to any host.
- A secret that the supervisor itself sends, according to its settings (`Own`), is treated like the secret of a binding.
- A secret that a change of the vault replaces or ends is remembered for `KEPT_S`: at most the newest `MOST_OF_ONE` secrets of
  a binding, and at most `MOST` in total. An access token may be valid for that long after its renewal, and a key until the
  person who rotates it has revoked the old key. Such a secret is remembered in memory only, sealed under the vault's key, so
  this process can use it while the vault is open. The same applies to secrets that end because another vault replaces this
  vault. If the new key cannot decrypt such a secret, only its host is known.
- A token that was issued with a binding's secret, and is not in any file, is remembered in the same way from the time of its
  issue.

Source: docs/adr/0032-scrubbed-of-what-could-have-been-sent.md. Not here: the forms of a secret (egress/scrub.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from aileron.model.credential import Reach
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault.bindings import Binding
from aileron.vault.contents import SecretEntry

__all__ = [
    "KEPT_S",
    "Bound",
    "Own",
    "Replaced",
    "Sendable",
    "Sendables",
    "could_reach",
    "is_provider",
    "newest",
    "replaced",
]

KEPT_S: Final = 24 * 3600.0
"""Seconds for which a secret is remembered after its binding ended or changed: a day, the longest lifetime that
providers give an access token, except for tokens that never expire.
"""
MOST_OF_ONE: Final = 8
"""Maximum number of former secrets of one binding that are remembered, so that a token that is renewed each minute does
not displace other secrets.

Each token without a stated lifetime is used for ten minutes (oauth/minting.py), so the remembered tokens cover more than an
hour, which is the usual lifetime.
"""
MOST: Final = 64
"""Maximum number of former secrets that are remembered in total. Each has at most 64 KiB, and every response is
searched for each of them.
"""


class Sendable(msgspec.Struct, frozen=True):
    """A secret in the form in which it is sent: the kind of credential, the secret and, for `basic`, the user name."""

    kind: str
    secret: Secret
    username: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sendables:
    """All secrets that could have been sent to one host.

    The vault returns the same object while the secrets are unchanged and it is open. So callers can cache derived data in a
    dictionary with this object as a weakly referenced key.
    """

    known: tuple[Sendable, ...]


class Bound(msgspec.Struct, frozen=True):
    """A binding and the entry of its secret. The secret is encrypted, possibly with the key of another vault."""

    binding: Binding
    entry: SecretEntry


class Own(msgspec.Struct, frozen=True):
    """A stored secret that the supervisor sends for itself, not for a connector, to `host` (HOST:PORT).

    `secret` is the secret's name, and `of` is one word that identifies the part of the supervisor that uses it.
    """

    of: str
    secret: str
    host: str

    def binding(self) -> Binding:
        """Return this secret as a binding whose name no stored binding can have."""
        reach = Reach(hosts=(self.host,), wire="own")
        return Binding(BindingName("own", "settings", self.of), "", "api_key", None, self.secret, 0.0, reach)


class Replaced(msgspec.Struct, frozen=True):
    """Record of a former binding: the binding, its secret, and the time at which it ended or changed (s, of a clock
    that counts suspend time).

    `is_token` is true for a token that was issued with the binding's secret, and was never bound itself.
    """

    binding: Binding
    entry: SecretEntry
    at_s: float
    is_token: bool = False


def could_reach(binding: Binding, host: str) -> bool:
    """Return whether this binding's secret could have been sent to `host` (HOST:PORT)."""
    return binding.reach is None or host in binding.reach.hosts or is_provider(binding, host)


def is_provider(binding: Binding, host: str) -> bool:
    """Return whether `host` (HOST:PORT) is the server that issues the binding's tokens, with or without a sign-in."""
    token_url = None if binding.reach is None else binding.reach.token_url
    if (binding.grant is None and binding.kind != "oauth2_client") or token_url is None:
        return False
    try:
        url = urlsplit(token_url)
        return f"{url.hostname}:{url.port or 443}" == host
    except ValueError:  # not in our spelling: the issuer of the tokens is unknown
        return True


def replaced(before: Iterable[Bound], after: Iterable[Bound], at_s: float) -> list[Replaced]:
    """Return a record of each binding in `before` that is missing from `after`, or that no longer sends the same secret
    to all of the same hosts there.

    A binding counts as changed if its secret's value, its user name or its login changed, or if it no longer reaches
    one of its former hosts.
    """
    now = {bound.binding.name: bound for bound in after}
    found = []
    for was in before:
        still = now.get(was.binding.name)
        is_kept = (
            still is not None
            and _is_same(still.entry, was.entry)
            and (still.binding.username, still.binding.details) == (was.binding.username, was.binding.details)
            and _reaches_all_of(still.binding, was.binding)
        )
        if not is_kept:
            found.append(Replaced(was.binding, was.entry, at_s))
    return found


def _is_same(still: SecretEntry, before: SecretEntry) -> bool:
    # The time too: after a copy was put back, version numbers are used a second time.
    return (still.id, still.version, still.updated_ms) == (before.id, before.version, before.updated_ms)


def _reaches_all_of(still: Binding, before: Binding) -> bool:
    if still.reach is None or before.reach is None:
        return still.reach is None
    return set(still.reach.hosts) >= set(before.reach.hosts) and still.reach.client == before.reach.client


def newest(known: Iterable[Replaced], now_s: float) -> tuple[Replaced, ...]:
    """Return the records in `known` that are still remembered at `now_s`, oldest first."""
    in_order, kept = sorted(known, key=lambda record: record.at_s), list[Replaced]()
    counted: dict[tuple[str, bool], int] = {}
    for record in reversed(in_order):
        name = str(record.binding.name), record.is_token
        counted[name] = counted.get(name, 0) + 1
        if now_s - record.at_s < KEPT_S and counted[name] <= MOST_OF_ONE and len(kept) < MOST:
            kept.append(record)
    return tuple(reversed(kept))

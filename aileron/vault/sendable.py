"""Finds the secrets that could have been sent to a host: those bound for it, and those that were bound until recently.

A service may keep a secret that it was sent, and show it in a response to any later request, with a credential or without, in
this run or another. So egress removes from a response every secret that *could* have been sent there, whoever made the request
(egress/scrub.py), and this module finds them. Pure; runs in the daemon. Values stay sealed until they are needed.

Rules
- A binding reaches the hosts that a person approved, and the host whose token endpoint is asked with it, with or without a
  sign-in: that host also sees the refresh token, or the client's secret. (The host where tokens are revoked sees them last,
  when they are worthless.)
- The secret of a binding from before the reach was stored could have been sent anywhere.
- A secret that the supervisor itself sends, according to its settings (`Own`), counts as a binding that nobody made.
- A secret that a change of the vault replaces or ends is remembered for `KEPT_S`, the newest `MOST_OF_ONE` of a binding and
  `MOST` in all: an access token may live that long after it was renewed, a key until the person who rotates it has revoked it.
  It is remembered sealed under the vault's key, and in memory only: this process can use it while the vault is open. The same
  goes for secrets that end when another vault takes this one's place; if the new key does not open one, only its host is
  known.
- A token that was issued with a binding's secret, and is in no file, is remembered in the same way from when it was issued.

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

__all__ = ["KEPT_S", "Bound", "Own", "Replaced", "Sendable", "Sendables", "could_reach", "newest", "replaced"]

KEPT_S: Final = 24 * 3600.0
"""A day: the longest lifetime that providers give an access token, except those that never end."""
MOST_OF_ONE: Final = 8
"""Most remembered secrets of one binding, so that a token that is renewed each minute does not displace others.

Tokens without a stated lifetime are each used for ten minutes (oauth/minting.py); so these cover more than an hour, which is
the usual lifetime.
"""
MOST: Final = 64
"""Most remembered secrets in all: they have 64 KiB each at most, and each is searched for."""


class Sendable(msgspec.Struct, frozen=True):
    """A secret as it would be sent: the kind of credential, and for `basic` the user name."""

    kind: str
    secret: Secret
    username: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sendables:
    """All secrets that could have been sent to one host.

    The object stays the same while they do and the vault is open: derived data can be kept by it, with weak references.
    """

    known: tuple[Sendable, ...]


class Bound(msgspec.Struct, frozen=True):
    """A binding and its secret, still sealed: not every key opens it."""

    binding: Binding
    entry: SecretEntry


class Own(msgspec.Struct, frozen=True):
    """The supervisor sends the stored secret `secret` to `host` (HOST:PORT) as it is. `of` is one word that identifies its
    user.
    """

    of: str
    secret: str
    host: str

    def binding(self) -> Binding:
        """Return it as if it were a binding, under a kind that no binding can have."""
        reach = Reach(hosts=(self.host,), wire="own")
        return Binding(BindingName("own", "settings", self.of), "", "api_key", None, self.secret, 0.0, reach)


class Replaced(msgspec.Struct, frozen=True):
    """A former binding and its secret, and when it ended (s, of a clock that counts suspend time).

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
    """Return whether the tokens come from this host: those of a sign-in, or those that are issued without one."""
    token_url = None if binding.reach is None else binding.reach.token_url
    if (binding.grant is None and binding.kind != "oauth2_client") or token_url is None:
        return False
    try:
        url = urlsplit(token_url)
        return f"{url.hostname}:{url.port or 443}" == host
    except ValueError:  # not in our spelling: nobody knows where they come from
        return True


def replaced(before: Iterable[Bound], after: Iterable[Bound], at_s: float) -> list[Replaced]:
    """Return what bindings had `before` and no longer have `after`: a value, a user name or login, or a host."""
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
    """Return those, oldest first, that are still remembered at `now_s`."""
    in_order, kept = sorted(known, key=lambda one: one.at_s), list[Replaced]()
    counted: dict[tuple[str, bool], int] = {}
    for one in reversed(in_order):
        name = str(one.binding.name), one.is_token
        counted[name] = counted.get(name, 0) + 1
        if now_s - one.at_s < KEPT_S and counted[name] <= MOST_OF_ONE and len(kept) < MOST:
            kept.append(one)
    return tuple(reversed(kept))

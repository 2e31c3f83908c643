"""Which secrets could have been sent to a host: those bound for it, and those that were until lately.

What a service was sent it may keep, and show to whoever asks next, with a credential or without, in this run or another. So
egress takes out of an answer what *could* have been sent there, whoever asks (egress/scrub.py), and this says what that is. Pure;
runs in the daemon. Values stay sealed until they are asked for.

Rules
- A binding reaches the hosts that a person agreed to, and the host whose token endpoint is asked with it, for a sign-in or
  without a person: that one sees the refresh token, or the client's secret, too. (Where tokens are revoked sees them last of
  all, and they are worth nothing then.)
- One made before it was kept what it reaches could have been sent anywhere.
- What the supervisor itself sends, as its settings say (`Own`), is a binding that nobody made.
- What a change of the vault replaces or ends is remembered for `KEPT_S`, the newest `MOST_OF_ONE` of a binding and `MOST` in all:
  an access token lives that long after it was renewed, a key until whoever rotates it has revoked it. It is remembered sealed
  under the vault's key, and in memory alone: it can be used while the vault is open, by this process. So is what another vault in
  its place ends; where that one's key does not open it, it is known by its host alone.
- A token that was got with a binding's secret, and is in no file, is remembered in the same way from when it was got.

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
"""A day: the longest that providers let an access token live, but for those that never end."""
MOST_OF_ONE: Final = 8
"""Of one binding: a token that is renewed each minute does not drive out those of others. Of tokens whose end was not said, each
used for ten minutes (oauth/minting.py), these are those of more than an hour, which is what servers mostly let them live.
"""
MOST: Final = 64
"""In all: 64 KiB each at most, and each is searched for."""


class Sendable(msgspec.Struct, frozen=True):
    """One secret as it would be sent: the kind of credential, and for `basic` the user name."""

    kind: str
    secret: Secret
    username: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sendables:
    """All that could have been sent to one host. The same object for as long as that is the same and the vault is open: what is
    made of it can be kept by it, weakly.
    """

    known: tuple[Sendable, ...]


class Bound(msgspec.Struct, frozen=True):
    """A binding and its secret, still sealed: not every key opens it."""

    binding: Binding
    entry: SecretEntry


class Own(msgspec.Struct, frozen=True):
    """The supervisor sends the stored secret `secret` to `host` (HOST:PORT) as it is; `of` is whose it is, one word for each."""

    of: str
    secret: str
    host: str

    def binding(self) -> Binding:
        """As if it were bound, under a kind that no binding can have."""
        reach = Reach(hosts=(self.host,), wire="own")
        return Binding(BindingName("own", "settings", self.of), "", "api_key", None, self.secret, 0.0, reach)


class Replaced(msgspec.Struct, frozen=True):
    """The same as it was, and when that ended (s, of the clock that counts sleep). `is_token`: it never was bound itself, it was
    got with what is.
    """

    binding: Binding
    entry: SecretEntry
    at_s: float
    is_token: bool = False


def could_reach(binding: Binding, host: str) -> bool:
    """Whether this binding's secret could have been sent to `host` (HOST:PORT)."""
    return binding.reach is None or host in binding.reach.hosts or is_provider(binding, host)


def is_provider(binding: Binding, host: str) -> bool:
    """Whether the tokens come from this host: a sign-in's, or those that are got without a person."""
    token_url = None if binding.reach is None else binding.reach.token_url
    if (binding.grant is None and binding.kind != "oauth2_client") or token_url is None:
        return False
    try:
        url = urlsplit(token_url)
        return f"{url.hostname}:{url.port or 443}" == host
    except ValueError:  # not of our spelling: nobody knows where they come from
        return True


def replaced(before: Iterable[Bound], after: Iterable[Bound], at_s: float) -> list[Replaced]:
    """What bindings had `before` and do not have `after`: another value, another user name or login, or a host fewer."""
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
    # The time too: from a copy that is put back, versions are counted a second time.
    return (still.id, still.version, still.updated_ms) == (before.id, before.version, before.updated_ms)


def _reaches_all_of(still: Binding, before: Binding) -> bool:
    if still.reach is None or before.reach is None:
        return still.reach is None
    return set(still.reach.hosts) >= set(before.reach.hosts) and still.reach.client == before.reach.client


def newest(known: Iterable[Replaced], now_s: float) -> tuple[Replaced, ...]:
    """Of these, oldest first, those that are remembered at `now_s`."""
    in_order, kept = sorted(known, key=lambda one: one.at_s), list[Replaced]()
    counted: dict[tuple[str, bool], int] = {}
    for one in reversed(in_order):
        name = str(one.binding.name), one.is_token
        counted[name] = counted.get(name, 0) + 1
        if now_s - one.at_s < KEPT_S and counted[name] <= MOST_OF_ONE and len(kept) < MOST:
            kept.append(one)
    return tuple(reversed(kept))

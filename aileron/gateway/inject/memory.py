"""Rounds that are hidden from an agent, stored so that they can be inserted into its next requests. They have the same
bytes each time; otherwise the provider's prompt cache would not match.

Each session has its own memory, of limited size: the least recently used entry is dropped first. A provider still
accepts a history without its hidden rounds. All memories are lost when the daemon ends.

A hidden round is reinserted only at its original place: its key contains a digest of all previous turns. If two
conversations of a session are alike in every turn, no rounds are reinserted into either.

Pure. Not here: the contents of keys and fragments (the module of each API).
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

__all__ = ["MAX_BYTES", "MAX_SESSIONS", "Entry", "Memories", "Memory", "key_of"]

MAX_BYTES: Final = 4 << 20
"""Maximum size of one session's memory: 4 MiB. That is enough for 200 calls, each with a page of results and a page of
the model's text.
"""
MAX_ENTRIES: Final = 1024
MAX_SESSIONS: Final = 64
"""Maximum number of sessions that are remembered at once, so 256 MiB at most. Only a fraction of all sessions uses injected
tools.
"""


class Entry(msgspec.Struct, frozen=True):
    """An entry of a memory: hidden rounds, as JSON fragments that replace one answer in the agent's next requests:
    `said`, followed by the `results` of the calls in the last round.
    """

    said: tuple[str, ...]
    results: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Size of the fragments in characters, nearly all of which take one byte."""
        return sum(map(len, (*self.said, *self.results)))


_DOUBTED: Final = Entry(())
"""Placeholder for an entry that could belong to more than one conversation, and is therefore not used."""


class Memory:
    """The hidden rounds of one session, by key. Requests are assembled outside the event loop, so several threads use it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self._running: set[str] = set()
        self._lock: Final = threading.RLock()

    @contextlib.contextmanager
    def running(self, key: str) -> Iterator[bool]:
        """Return a context manager that marks `key` as in use while its block runs. Yield True if no other block uses
        this key; the key's entry then belongs to this block.
        """
        is_only = key not in self._running
        self._running.add(key)
        try:
            yield is_only
        finally:
            if is_only:
                self._running.discard(key)

    @property
    def is_empty(self) -> bool:
        """True if the memory has no entries."""
        return not self._entries

    def get(self, key: str) -> Entry | None:
        """Return the entry under a key, which then counts as the most recently used. None if there is no entry, or if
        it may belong to another conversation.
        """
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return None if found is _DOUBTED else found

    def add(self, key: str, entry: Entry) -> None:
        """Store the hidden rounds `entry` under a key. If another conversation already has an entry under this key,
        neither entry is found again, because two conversations that a program sends in the same form cannot be
        distinguished. An entry that has only results, and no `said`, replaces an earlier entry.
        """
        with self._lock:
            known = self._entries.get(key)
            self.put(key, entry if known in (None, entry) or not entry.said else _DOUBTED)

    def doubt(self, keys: Iterable[str]) -> None:
        """Mark the existing entries under these keys as ambiguous. The keys are those of a conversation without hidden
        rounds, so the entries belong to another conversation.
        """
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self.put(key, _DOUBTED)

    def put(self, key: str, entry: Entry) -> None:
        """Store an entry under a key, unless it is larger than MAX_BYTES. Drop the oldest entries if the memory becomes
        too large.
        """
        with self._lock:
            self.forget(key)
            if entry.size > MAX_BYTES:
                return
            self._entries[key] = entry
            self._bytes += entry.size
            while self._bytes > MAX_BYTES or len(self._entries) > MAX_ENTRIES:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.size

    def forget(self, key: str) -> None:
        """Remove the entry under a key, if there is one."""
        with self._lock:
            if (found := self._entries.pop(key, None)) is not None:
                self._bytes -= found.size


class Memories:
    """The memories of all sessions."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Memory] = OrderedDict()

    def of(self, session: str) -> Memory:
        """Return the memory of a session; create it if there is none."""
        found = self._sessions.setdefault(session, Memory())
        self._sessions.move_to_end(session)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return found


def key_of(kind: str, *parts: str) -> str:
    """Return the key of a memory's entry: a digest of `kind` and `parts`, so that the parts are not stored. Keys of
    different kinds are never equal.
    """
    digest = hashlib.sha256()
    for part in (kind, *parts):
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()

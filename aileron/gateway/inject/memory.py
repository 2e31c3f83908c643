"""Rounds that an agent does not know of, kept so that its next requests have them in their place: with the same bytes each time,
or else the provider's cache would begin anew.

Each session has its own. Bounded: what was unused for longest goes first, and a provider still takes a history without its hidden
rounds. It is lost when the daemon ends.

A hidden round is put back only where it was: its key has a digest of all turns before it, and if two conversations of a
session are alike in every turn, neither gets back any.

Pure. Not here: what a key or a fragment is (the module of each API).
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
"""4 MiB for one session: 200 calls with a page of a result each, and as much of what the model said with them."""
MAX_ENTRIES: Final = 1024
MAX_SESSIONS: Final = 64
"""Sessions that are remembered at once, so 256 MiB at the very most; a fraction of the sessions that there can be uses this."""


class Entry(msgspec.Struct, frozen=True):
    """The part of a conversation that stands in place of one answer of the agent's: `said`, and `results` of calls behind it."""

    said: tuple[str, ...]
    results: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Size in characters, nearly all of which are one byte."""
        return sum(map(len, (*self.said, *self.results)))


_DOUBTED: Final = Entry(())
"""Placeholder for an entry that more than one conversation has a claim to."""


class Memory:
    """Memory of one session. Requests are put together outside the event loop, so more than one thread uses it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self._running: set[str] = set()
        self._lock: Final = threading.RLock()

    @contextlib.contextmanager
    def running(self, key: str) -> Iterator[bool]:
        """Mark `key` as running until the block ends, and yield whether nothing else runs under it: then its entry belongs to the
        block.
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
        """True if nothing is remembered."""
        return not self._entries

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key and count it as used now; None also if it may belong to another conversation."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return None if found is _DOUBTED else found

    def add(self, key: str, entry: Entry) -> None:
        """Remember a part of a conversation. If another conversation has the same key, neither is found again: two that a program
        sends alike cannot be told apart. An entry with results alone replaces an earlier one.
        """
        with self._lock:
            known = self._entries.get(key)
            self.put(key, entry if known in (None, entry) or not entry.said else _DOUBTED)

    def doubt(self, keys: Iterable[str]) -> None:
        """Mark these keys, of a conversation without hidden rounds, as ambiguous: their entries belong to
        another conversation.
        """
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self.put(key, _DOUBTED)

    def put(self, key: str, entry: Entry) -> None:
        """Remember an entry, unless it is larger than the whole memory."""
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
        """Forget an entry that is no longer needed."""
        with self._lock:
            if (found := self._entries.pop(key, None)) is not None:
                self._bytes -= found.size


class Memories:
    """The memories of all sessions."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Memory] = OrderedDict()

    def of(self, session: str) -> Memory:
        """Return the memory of a session, which may be new."""
        found = self._sessions.setdefault(session, Memory())
        self._sessions.move_to_end(session)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return found


def key_of(kind: str, *parts: str) -> str:
    """Return a key that is a digest: its parts are not kept, and keys of two kinds never meet."""
    digest = hashlib.sha256()
    for part in (kind, *parts):
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()

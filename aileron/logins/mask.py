"""Take the secret out of what a service says for as long as a stream lasts, where it went over the wire so that it can be read.

A service that repeats its client's commands (a debug mode, `CONFIG GET requirepass`, a log that can be queried) would hand the
connector what it must never have. Each occurrence becomes as many `*`: lengths, which most of these protocols count, stay true.
Pure and incremental; runs in the process of one login.

Rules
- Looked for is every form as it went over the wire, and what base64 makes of it at each of the three places in a longer text.
- Of two forms of which one is in the other the shorter is looked for. What is more in the longer one is a user name.
- A form of less than SHORTEST bytes is not looked for: it is everywhere by chance, and is found by trying, too.
- A byte of the output is `*` if and only if it is part of an occurrence, overlapping ones included; how the input was cut into
  pieces makes no difference, but for the next rule.
- Held back is the longest end of the input that is the beginning of a form. A protocol that waits for an answer must not wait for
  that: when the service is quiet up to SHOWN bytes of it are given out, and the rest when it turns out what it is. So of an
  occurrence that a service sends in two parts no more than SHOWN bytes are seen; at the end of a stream neither.

More is held back in aileron/egress/scrub.py, and other spellings are found there: an answer of HTTP has an end, and a service
that stores what it is told. Here the secret went out in a few forms, known to the byte, in the login alone.

>>> mask = Mask([b"hunter2"])
>>> mask.feed(b"the password is hun"), mask.settle(), mask.feed(b"ter2!"), mask.hits
(b'the password is ', b'hun', b'****!', 1)
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["SHORTEST", "SHOWN", "Mask"]

SHORTEST: Final = 4
"""Bytes of a form that is looked for: four are among 64 KiB of other bytes once in 65,000 times."""
SHOWN: Final = 3
"""Bytes of an unfinished occurrence that are given out: less than any form has."""
_STAR: Final = b"*"


class Mask:
    """One for each stream: state is what is held back. `hits` counts occurrences that begin outside the one before."""

    def __init__(self, sent_in_clear: Iterable[bytes]) -> None:
        forms = {form for sent in sent_in_clear for form in _forms(sent) if len(form) >= SHORTEST}
        self._forms: Final = tuple(sorted(one for one in forms if not any(other in one for other in forms - {one})))
        self._reach: Final = max(map(len, self._forms), default=1) - 1
        self._held = b""
        self._masked = bytearray()  # the same bytes, as they are given out
        self._shown = 0  # of those, given out already
        self._counted_to = 0  # where in them the last occurrence that was counted ends
        self.hits = 0

    @property
    def is_holding(self) -> bool:
        """Whether `settle` would give something out."""
        return self._shown < min(SHOWN, len(self._held))

    def feed(self, data: bytes) -> bytes:
        """The next bytes, without what is held back."""
        if not self._forms or not data:
            return data
        seen = len(self._held)
        text = self._held + data
        found, cut = self._occurrences(text, seen), self._unfinished(text)
        if not seen and not found and cut == len(text):
            return data  # the usual case, without a copy
        masked = self._masked
        masked += data
        for start, end in found:
            masked[start:end] = _STAR * (end - start)
            self.hits += start >= self._counted_to
            self._counted_to = max(self._counted_to, end)
        out = bytes(masked[self._shown : cut])
        self._held, self._masked = text[cut:], masked[cut:]
        self._shown, self._counted_to = max(0, self._shown - cut), max(0, self._counted_to - cut)
        return out

    def settle(self) -> bytes:
        """The service is quiet: what may be given out of what is held back."""
        until = min(SHOWN, len(self._held))
        out = bytes(self._masked[self._shown : until])
        self._shown = max(self._shown, until)
        return out

    def finish(self) -> bytes:
        """There is nothing more: the rest of the same length."""
        out = self.settle() + _STAR * (len(self._held) - self._shown)
        self._held, self._masked, self._shown = b"", bytearray(), 0
        return out

    def _occurrences(self, text: bytes, seen: int) -> list[tuple[int, int]]:
        """Where they begin and end, in order; those that end within the first `seen` bytes are known."""
        found = []
        for form in self._forms:
            at = text.find(form, max(0, seen - len(form) + 1))
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return sorted(found)

    def _unfinished(self, text: bytes) -> int:
        """Where the longest end of the text that begins a form begins."""
        cut = len(text)
        first = max(0, cut - self._reach)
        for form in self._forms:
            at = text.find(form[:1], max(first, len(text) - len(form) + 1), cut)
            while at >= 0:
                if form.startswith(text[at:]):
                    cut = at
                    break
                at = text.find(form[:1], at + 1, cut)
        return cut


def _forms(sent: bytes) -> Iterator[bytes]:
    """As it is, encoded alone, and the characters that it determines alone at each place in a longer text."""
    yield sent
    yield base64.b64encode(sent).rstrip(b"=")
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + sent)
        first = (offset * 8 + 5) // 6
        last = (offset + len(sent)) * 8 // 6
        yield encoded[first:last]

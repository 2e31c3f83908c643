"""Masks the secret in a service's output for as long as a stream lasts, if the secret was sent in a readable form.

A service that repeats its client's commands (a debug mode, `CONFIG GET requirepass`, a log that can be queried) would give the
secret to the connector, which must never have it. Each occurrence is replaced by as many `*` characters as it has
bytes, because most of these protocols state lengths, which must stay correct. Pure and incremental; runs in the process
of one login.

Rules
- Every form of the secret that was sent is searched for, as are the form's base64 encodings at each of the three offsets in a
  longer text.
- If one form contains another, only the shorter is searched for. The rest of the longer form is a user name.
- A form of less than SHORTEST bytes is not searched for: such a short form occurs everywhere by chance, and can be guessed
  anyway.
- A byte of the output is `*` if and only if it is part of an occurrence, overlapping ones included; how the input was cut into
  pieces makes no difference, except for the next rule.
- The longest suffix of the input that is the beginning of a form is held back. That must not delay a protocol that waits for a
  response: when the service is quiet, up to SHOWN of the held bytes are returned. The rest follows when it is clear whether the
  bytes belong to an occurrence. So if a service sends an occurrence in two parts, or ends the stream within an occurrence, at
  most SHOWN bytes of the occurrence are visible.

aileron/egress/scrub.py holds back more, and finds other spellings, because an HTTP response has an end, and an HTTP service
may store the requests. Here the secret was sent only in the login, in a few forms whose exact bytes are known.

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
"""Minimum length in bytes of a form of the secret that is searched for. Four particular bytes occur by chance in one of
65,000 blocks of 64 KiB.
"""
SHOWN: Final = 3
"""Maximum number of bytes that are returned of a possible occurrence that is not complete yet: fewer than any form of
the secret has.
"""
_STAR: Final = b"*"


class Mask:
    """The filter that masks the secret in the output of one stream. It holds back bytes that may begin an occurrence.
    `hits` counts the occurrences, without those that overlap the previous counted occurrence.
    """

    def __init__(self, sent_in_clear: Iterable[bytes]) -> None:
        forms = {form for sent in sent_in_clear for form in _forms(sent) if len(form) >= SHORTEST}
        self._forms: Final = tuple(sorted(form for form in forms if not any(other in form for other in forms - {form})))
        self._reach: Final = max(map(len, self._forms), default=1) - 1
        self._held = b""
        self._masked = bytearray()  # the held bytes in their masked form
        self._shown = 0  # number of held bytes that were already returned
        self._counted_to = 0  # end of the last counted occurrence within the held bytes
        self.hits = 0

    @property
    def is_holding(self) -> bool:
        """True if bytes are held back that `settle` would return."""
        return self._shown < min(SHOWN, len(self._held))

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream, and return the masked output without the bytes that are held back."""
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
        """Return the first SHOWN held bytes, except those that were returned before. Call this when the service sends
        nothing more for now.
        """
        until = min(SHOWN, len(self._held))
        out = bytes(self._masked[self._shown : until])
        self._shown = max(self._shown, until)
        return out

    def finish(self) -> bytes:
        """Return the bytes that are held back at the end of the stream and were not returned before: the first SHOWN as
        `settle` returns them, and `*` for every other byte.
        """
        out = self.settle() + _STAR * (len(self._held) - self._shown)
        self._held, self._masked, self._shown = b"", bytearray(), 0
        return out

    def _occurrences(self, text: bytes, seen: int) -> list[tuple[int, int]]:
        """Return start and end of each occurrence of a form of the secret in `text`, in order. Occurrences that end
        within the first `seen` bytes are omitted, because an earlier call already found them.
        """
        found = []
        for form in self._forms:
            at = text.find(form, max(0, seen - len(form) + 1))
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return sorted(found)

    def _unfinished(self, text: bytes) -> int:
        """Return the index at which the longest suffix of `text` that is the beginning of a form of the secret starts;
        the length of `text` if there is no such suffix.
        """
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
    """Yield the forms in which `sent` is searched for: the bytes themselves, their base64 encoding, and the base64
    characters that they alone determine at each offset in a longer text.
    """
    yield sent
    yield base64.b64encode(sent).rstrip(b"=")
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + sent)
        first = (offset * 8 + 5) // 6
        last = (offset + len(sent)) * 8 // 6
        yield encoded[first:last]

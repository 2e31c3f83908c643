"""Guard of the keys that decide. It checks that a key press may decide, or says why not, with a message for the person.

Pure; times are monotonic seconds, which the caller passes. A key press decides only if all of the following is true, so
that it was meant for what is on the screen:

1. the daemon responds
2. the question is open and has not expired
3. the question on the screen is the one that would be decided: it was loaded completely, and no other has replaced it
4. it has been on the screen, unmoved, for SETTLED_S, and nothing else appeared in that time; new questions at the end
   of the list restart this time at most once in ARRIVALS_S, so that an agent that asks all the time cannot keep the
   person from denying
5. for an approval: the card was on the screen to its end, or the person chose to decide without reading the rest

Source: docs/reference/console.md (What a key needs). Not here: the signature (key_session.py), the second step (screens.py).

>>> guard = Guard()
>>> guard.show("a", "sha256:1", now=10.0)
>>> guard.refusal(now=10.1)
'this only just appeared: look, then press the key again'
>>> guard.read_to_end()
>>> guard.refusal(now=10.5) is None
True
"""

from __future__ import annotations

from typing import Final

__all__ = ["ARRIVALS_S", "SETTLED_S", "Guard"]

SETTLED_S: Final = 0.4
"""Seconds that a question must be on the screen unchanged: longer than a key press takes to arrive, shorter than a person needs
to read anything.
"""
ARRIVALS_S: Final = 2.0
"""Seconds for which further questions at the end of the list do not make the person wait SETTLED_S again.

So even if questions arrive all the time, keys can decide in 1.6 of every 2 s, which is enough for both steps of a
decision.
"""


class Guard:
    """The guard of the keys that decide: it stores which question is on the screen, since when, and whether it was read."""

    def __init__(self) -> None:
        self.shown: str | None = None
        self.digest: str | None = None
        self._since = 0.0
        self._arrived_at: float | None = None
        self._is_daemon_there = True
        self._closed: str | None = None
        self._is_read = False
        self._problem: str | None = None

    def show(self, approval_id: str | None, digest: str | None, *, now: float, closed: str | None = None) -> None:
        """Record that this question is on the screen now, with this digest. `closed` says why the question can no longer be
        decided.

        A repeated call for the same question changes nothing. A caller that draws another part of the question calls `disturb`.
        """
        if (approval_id, digest) != (self.shown, self.digest):
            self._is_read = False
        if (approval_id, digest, closed, None) != (self.shown, self.digest, self._closed, self._problem):
            self._since = now
        self.shown, self.digest, self._closed, self._problem = approval_id, digest, closed, None

    def cannot_show(self, approval_id: str, why: str, *, now: float) -> None:
        """Record that the question on the screen cannot be decided, and why."""
        self.show(approval_id, None, now=now)
        self._problem = why

    def disturb(self, *, now: float) -> None:
        """Record that something on the screen moved or appeared. For SETTLED_S, keys then decide nothing."""
        self._since = now

    def arrive(self, *, now: float) -> None:
        """Record that an entry arrived at the end of the list and moved no other entry."""
        if self._arrived_at is None or now - self._arrived_at >= ARRIVALS_S:
            self._since = self._arrived_at = now

    def lose_daemon(self) -> None:
        """Record that the daemon does not answer."""
        self._is_daemon_there = False

    def regain_daemon(self, *, now: float) -> None:
        """Record that the daemon answers again."""
        if not self._is_daemon_there:
            self._since = now
        self._is_daemon_there = True

    def read_anew(self) -> None:
        """Record that the question's card has changed. The person has not read the new card yet."""
        self._is_read = False

    def read_to_end(self) -> None:
        """Record that the end of the card was on the screen, or that the person decides without having seen it."""
        self._is_read = True

    @property
    def is_read(self) -> bool:
        """True if the person has seen the end of the card or decides without it."""
        return self._is_read

    def refusal(self, *, now: float, is_approval: bool = True) -> str | None:
        """Return why a key press decides nothing now; None if it may decide. The card must have been read for an
        approval, but not for a denial.
        """
        if not self._is_daemon_there:
            return "the daemon does not answer: nothing can be decided"
        if self.shown is None:
            return "nothing is selected"
        if self._problem is not None:
            return self._problem
        if self._closed is not None:
            return self._closed
        if self.digest is None:
            return "still loading"
        if now - self._since < SETTLED_S:
            return "this only just appeared: look, then press the key again"
        if is_approval and not self._is_read:
            return "not all of it was on screen: scroll down, or press ! to decide without reading it"
        return None

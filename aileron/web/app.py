"""The page of a home: which of its rooms answers what.

Runs in the daemon, on the loopback port, which every user of the machine and every page in the person's browser reaches.

    door.py         who unlocks it, who is let in, who is not
    questions.py    what is shown: the queue, one question, what came of it
    deciding.py     what is decided: the second step, yes and no, a question back
    passkeys.py     those that may decide, one more, one less
    refusals.py     the pages that say no

Rules
- What is not unlocked shows nothing of any question, and the same for every address of this form.
- Nothing here needs a script, but passkeys.

Source: docs/reference/page.md. Not here: which Host and Origin the port answers (daemon/ports.py), the record (daemon/page.py).
"""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from aileron.web.deciding import Deciding
from aileron.web.desk import Desk, PasskeyDesk
from aileron.web.door import Door
from aileron.web.passkeys import PasskeyPages, Ways
from aileron.web.questions import Questions
from aileron.web.sessions import Sessions

__all__ = ["Page"]


class Page:
    """One for each daemon. `port` is the loopback port's."""

    def __init__(self, desk: Desk, sessions: Sessions, port: int, passkeys: PasskeyDesk) -> None:
        door = Door(desk, sessions, port, lambda: bool(with_passkeys.offered()))
        ways = Ways(door.let_in, door.at_the_door, door.open, door.not_opened, door.check_token, door.frame, door.base)
        with_passkeys = PasskeyPages(passkeys, ways)
        questions = Questions(desk, door, with_passkeys)
        self._rooms: Final = (door, questions, Deciding(desk, door, questions, passkeys))

    def routes(self) -> list[Route]:
        """Of the application that serves it."""
        return [route for room in self._rooms for route in room.routes()]

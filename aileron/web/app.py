"""The page of a home: its parts, joined into one set of routes.

Runs in the daemon, on the loopback port, which every user of the machine and every page in the person's browser can reach.

    admission.py       unlocking, and the admission of requests
    questions.py       the queue, one question, its outcome
    decision_forms.py  decisions: the second step, approvals and denials, questions to the agent
    passkey_pages.py   passkeys: list, add, revoke
    refusals.py        the pages that refuse

Rules
- A locked page shows nothing about any question, and looks the same for every question's address, whether the question
  exists or not.
- Only passkeys need a script.

Source: docs/reference/page.md. Not here: the Host and Origin that the port accepts (daemon/http/listeners.py), the record
(daemon/http/page.py).
"""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from aileron.web.admission import Admission
from aileron.web.daemon_port import DaemonPort, PasskeyPort
from aileron.web.decision_forms import DecisionForms
from aileron.web.passkey_pages import PageAccess, PasskeyPages
from aileron.web.questions import QuestionPages
from aileron.web.sessions import Sessions
from aileron.web.several_pages import SeveralPages

__all__ = ["Page"]


class Page:
    """The web page on which a person decides questions. Each daemon has one instance; `port` is the daemon's loopback port."""

    def __init__(self, daemon: DaemonPort, sessions: Sessions, port: int, passkeys: PasskeyPort) -> None:
        admission = Admission(daemon, sessions, port, lambda: bool(with_passkeys.offered()))
        ways = PageAccess(
            admission.let_in,
            admission.at_the_door,
            admission.open,
            admission.not_opened,
            admission.check_token,
            admission.frame,
            admission.base,
        )
        with_passkeys = PasskeyPages(passkeys, ways)
        questions = QuestionPages(daemon, admission, with_passkeys)
        several = SeveralPages(daemon, admission, questions)
        self._rooms: Final = (admission, several, questions, DecisionForms(daemon, admission, questions, passkeys))

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page."""
        return [route for room in self._rooms for route in room.routes()]

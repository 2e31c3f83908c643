"""The page that a person sees when the provider sends them back: the result, and the hint to go on in the terminal.

Static, except for the texts chosen here: it shows nothing that was sent, runs and loads nothing, and has no links. Light and
dark.

Source: docs/reference/sign-in.md. Not here: the choice of the page (callback.py).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aileron.model.page import PageFrame

__all__ = ["FAILED", "HEADERS", "SIGNED_IN", "page", "turned_away"]

_FRAME: Final = PageFrame("""
main { max-width: 36rem }
p { margin: 0; color: var(--soft) }
""")
HEADERS: Final = {"Content-Type": "text/html; charset=utf-8", **_FRAME.headers, "Connection": "close"}
"""Header fields of every response. Without a referrer the next page does not see the code in this one's address."""


def page(title: str, text: str) -> bytes:
    """Return a page with this title and text, which are our own plain text."""
    return _FRAME.html(title, f"<h1>{title}</h1>\n<p>{text}</p>").encode()


SIGNED_IN: Final = page("You are signed in.", "Close this page and go back to the terminal.")
FAILED: Final = page(
    "You are not signed in.", "Close this page and go back to the terminal, which says what happened and what to do."
)
_TURNED_AWAY: Final = {
    400: page(
        "This page does not belong to a sign-in in progress.",
        "Go back to the terminal and use the address that it shows.",
    ),
    403: page(
        "This sign-in belongs to another user of this machine.",
        "Only a program of the user who started it can complete it.",
    ),
}


def turned_away(status: int) -> bytes:
    """Return the page for a request that is not the answer."""
    return _TURNED_AWAY.get(status) or page(HTTPStatus(status).phrase, "Page not found.")

"""The page a person sees when the provider sends them back: what became of it, and to go on in the terminal.

Static but for the words chosen here: nothing that was sent is shown, nothing runs, loads or leads anywhere. Light and dark.

Source: docs/reference/sign-in.md. Not here: which is shown when (callback.py).
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
"""Of every answer. Without a referrer the next page does not see the code in this one's address."""


def page(title: str, text: str) -> bytes:
    """A page with these words, which are ours and plain."""
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
    """For what is not the answer."""
    return _TURNED_AWAY.get(status) or page(HTTPStatus(status).phrase, "Page not found.")

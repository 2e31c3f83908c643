"""The page that a person sees when the provider redirects their browser back: the result, and the hint to continue in the
terminal.

The page is static, except for the texts that this module selects. It shows nothing from the request, runs and loads nothing,
and has no links. It has a light and a dark color scheme.

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
"""Header fields of every response. Because no referrer is sent, the next page does not see the code in this page's address."""


def page(title: str, text: str) -> bytes:
    """Return a page with this title and text. Both must be our own plain text."""
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
    """Return the page that answers a request which is not the provider's answer to the sign-in."""
    return _TURNED_AWAY.get(status) or page(HTTPStatus(status).phrase, "Page not found.")

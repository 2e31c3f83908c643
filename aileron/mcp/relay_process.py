"""Parts that both relays share: the session from the environment, a line on standard error, the longest message.

Runs in a process of the agent's. It imports as little as the relay does: an agent waits for it.

Source: docs/explanation/relay.md. Not here: passing messages on (relay.py, relay_http.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

__all__ = ["MAX_LINE_BYTES", "say", "token_of"]

MAX_LINE_BYTES: Final = 16 << 20
"""16 MiB of a message of the daemon; and of the client, so that a refused one can be answered under its id."""


def token_of(environment: Mapping[str, str]) -> str:
    """Return the session's token, or empty. ValueError, which does not repeat it, if it is none."""
    token = environment.get("AILERON_SESSION_TOKEN", "")
    if token and not (token.isascii() and token.replace("-", "").replace("_", "").isalnum()):
        raise ValueError("AILERON_SESSION_TOKEN is not a session's token: start the agent with `aileron launch`")
    return token


def say(problem: str) -> None:
    """Write one line to standard error."""
    words = "".join(character if character.isprintable() else " " for character in problem)
    try:
        os.write(2, f"aileron-mcp: {words}\n".encode(errors="replace"))
    except OSError:
        return  # closed; there is nobody to tell

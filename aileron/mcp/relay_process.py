"""Functions that both relays use: the session's token from the environment, messages on standard error, the maximum
size of a message.

Runs in the process that an agent starts. Like the relay, it imports as little as possible, because the agent waits for it.

Source: docs/explanation/relay.md. Not here: forwarding messages (relay.py, relay_http.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

__all__ = ["MAX_LINE_BYTES", "say", "token_of"]

MAX_LINE_BYTES: Final = 16 << 20
"""Maximum size in bytes of a message of the daemon: 16 MiB. The same limit applies to the client, so that an overlong message
can be refused under its id.
"""


def token_of(environment: Mapping[str, str]) -> str:
    """Return the session's token, or an empty string if none is set. Raises ValueError if the value is no token,
    without quoting it.
    """
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
        return  # standard error is closed

"""The placeholder that an agent in a cell finds instead of its API key or session token:
a public constant, the same in all cells, that is not a key.

The placeholder has the form of a session's token, but belongs to no session. So it is blocked from leaving wherever tokens are
blocked, and it is refused wherever a token is required.

Source: docs/reference/gateway.md#in-a-cell. Not here: which environment variables hold it (aileron/launch), what is sent in its
place (aileron/gateway).
"""

from __future__ import annotations

from typing import Final

__all__ = ["CELL_PLACEHOLDER"]

CELL_PLACEHOLDER: Final = "ail_IN-A-CELL_the-gateway-puts-the-key-in-here-"
"""The placeholder: `ail_` and 43 characters. A random token has the same 43 with a probability of 1 in 2^256."""

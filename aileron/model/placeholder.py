"""The placeholder that an agent in a cell finds instead of its API key or session token:
public, the same for all, and no key.

It has the form of a session's token, but is the token of no session. So it is kept from leaving wherever a token is, and it
opens no door that asks for one.

Source: docs/reference/gateway.md#in-a-cell. Not here: which variables have it (aileron/launch), what is sent in its place
(aileron/gateway).
"""

from __future__ import annotations

from typing import Final

__all__ = ["CELL_PLACEHOLDER"]

CELL_PLACEHOLDER: Final = "ail_IN-A-CELL_the-gateway-puts-the-key-in-here-"
"""`ail_` and 43 characters; 43 random ones equal these once in 2^256."""

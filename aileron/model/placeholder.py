"""What stands in a cell where an agent looks for its API key or its session's token: public, the same for everybody, and no key.

It has the form of a session's token, and is that of none. So wherever a token is kept from leaving, this is as well, and at every
door that asks for one it opens nothing.

Source: docs/reference/gateway.md#in-a-cell. Not here: which variables have it (aileron/launch), what is sent in its place
(aileron/gateway).
"""

from __future__ import annotations

from typing import Final

__all__ = ["CELL_PLACEHOLDER"]

CELL_PLACEHOLDER: Final = "ail_IN-A-CELL_the-gateway-puts-the-key-in-here-"
"""`ail_` and 43 characters; 43 random ones are these once in 2^256."""

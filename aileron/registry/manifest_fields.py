"""Names of the header fields in which a manifest can have a credential sent.

Pure. Source: RFC 9110 section 5.6.2. Not here: the fields that a connector may set itself (egress/headers.py).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["FIELD_NAME", "may_be_credential"]

FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
"""Name of a header field: a token."""
# The supervisor alone writes the fields that frame or route a request.
_RESERVED_HEADERS: Final = frozenset(
    "accept-encoding connection content-encoding content-length content-type cookie date expect host keep-alive "
    "location origin referer set-cookie te trailer transfer-encoding upgrade via".split()
)


def may_be_credential(name: str) -> bool:
    """Return whether a credential may be sent in the header field of this name."""
    lower = name.lower()
    is_reserved = lower in _RESERVED_HEADERS or lower.startswith(("proxy-", "sec-", "x-forwarded-"))
    return FIELD_NAME.fullmatch(name) is not None and not is_reserved

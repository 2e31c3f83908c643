"""Fields that several kinds of documents have.

Not here: the grammars (names.py), and fields of one kind of document, which are beside its parser.

>>> version("strict SemVer").required
True
"""

from __future__ import annotations

from aileron.model.document import Field, Kind
from aileron.model.names import FQN, MAX_VERSION, SEMVER

__all__ = ["full_name", "version"]


def full_name(says: str, *, required: bool = True) -> Field:
    """Return the schema's field for the full name of a connector; `says` is its purpose."""
    return Field(Kind.STRING, required=required, says=says, pattern=FQN, example="github://acme/mail")


def version(says: str) -> Field:
    """Return the schema's field for a version; `says` is its purpose."""
    return Field(
        Kind.STRING, required=True, says=says, pattern=SEMVER, bounds=range(5, MAX_VERSION + 1), example="1.2.0"
    )

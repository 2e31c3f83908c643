"""Targets of `$ref`, within the files that were named.

JSON pointers and relative addresses are the `referencing` library's, which jsonschema uses too. It is given no way to
retrieve anything, so that a reference to a file or a URL that was not named is an error, and nothing is ever fetched.

Source: OpenAPI Specification 3.1.1, section 4.8.23 (Reference Object); RFC 6901; RFC 3986 section 5. Not here: what a
reference in a schema becomes (schemas.py).
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final, NamedTuple

from aileron.importing.reading import DocumentError, Files
from aileron.importing.words import line

__all__ = ["Place", "References"]

_BASE: Final = "https://document.invalid/"
"""Address of the first file's folder: RFC 6761 promises that no host has such a name."""
_MAX_HOPS: Final = 20
"""References that lead to references, at most."""
_MAX_TOLD: Final = 200


class Place(NamedTuple):
    """A value of a document, and its place: its own references are relative to the file."""

    value: Any
    file: str
    at: str
    """Full address of the value; two references lead to one value if this is the same."""


class References:
    """The references of all files of one description."""

    def __init__(self, files: Files) -> None:
        from referencing import Registry, Specification

        opaque = Specification.OPAQUE
        resources = [(_address(name), opaque.create_resource(value)) for name, value in files.values.items()]
        self._registry: Final[Registry[Any]] = Registry[Any]().with_resources(resources)
        self._files: Final = {_address(name): name for name in files.values}
        self._found: Final[dict[tuple[str, str], Place]] = {}
        self.root: Final = files.root

    def resolved(self, value: Any, file: str) -> Place:
        """Return the value itself, or where its `$ref` leads in the end. DocumentError if that is nowhere, or a circle."""
        place = Place(value, file, "")
        for _ in range(_MAX_HOPS):
            if not isinstance(place.value, dict) or not isinstance(place.value.get("$ref"), str):
                return place
            place = self.lookup(place.value["$ref"], place.file)
        raise DocumentError(f"{value['$ref'][:_MAX_TOLD]}: a reference that leads in a circle")

    def maybe(self, value: Any, file: str) -> dict[str, Any]:
        """Return the object that a value is or refers to; an empty one if there is none."""
        try:
            found = self.resolved(value, file).value
        except DocumentError:
            return {}
        return found if isinstance(found, dict) else {}

    def lookup(self, reference: str, file: str) -> Place:
        """Return the place to which one reference leads. DocumentError."""
        known = self._found.get((file, reference))
        if known is None:
            known = self._found[file, reference] = self._looked_up(reference, file)
        return known

    def _looked_up(self, reference: str, file: str) -> Place:
        from referencing.exceptions import Unresolvable

        told = reference[:_MAX_TOLD]
        try:
            target, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(_address(file), reference))
            if not target.startswith(_BASE):
                raise DocumentError(f"{told}: refers to another address; nothing is fetched that was not named")
            name = urllib.parse.unquote(target.removeprefix(_BASE))
            target = _address(name)
            if target not in self._files:
                raise DocumentError(f"{told}: refers to {line(name)}, which was not named; add it with --from")
            value = self._registry.resolver(base_uri=target).lookup(f"#{fragment}").contents
        except Unresolvable:
            raise DocumentError(f"{told}: leads nowhere") from None
        except DocumentError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(f"{told}: cannot be followed: {error}") from None
        return Place(value, self._files[target], f"{target}#{fragment}")


def _address(name: str) -> str:
    """Return the address of a file: its name can have characters that mean something else in a URL."""
    return _BASE + urllib.parse.quote(name, safe="/", errors="surrogateescape")

"""Resolution of `$ref` within the named files.

JSON pointers and relative addresses are resolved by the `referencing` library, which jsonschema uses too. The library cannot
retrieve anything here, so a reference to a file or URL that was not named is an error, and nothing is fetched.

Source: OpenAPI Specification 3.1.1, section 4.8.23 (Reference Object); RFC 6901; RFC 3986 section 5. Not here: how a
reference in a schema is packed (schemas.py).
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final, NamedTuple

from aileron.importing.reading import DocumentError, Files
from aileron.importing.words import line
from aileron.model.json_value import JSONObject

__all__ = ["Place", "References"]

_BASE: Final = "https://document.invalid/"
"""Address of the first file's folder. By RFC 6761, no host has such a name."""
_MAX_HOPS: Final = 20
"""Maximum length of a chain of references, each of which leads to the next."""
_MAX_TOLD: Final = 200


class Place(NamedTuple):
    """A value of a document with its file, because references in the value are relative to that file."""

    value: Any
    file: str
    at: str
    """Full address of the value. Two references have the same target if this address is equal."""


class References:
    """The resolver of references in all files of one API description."""

    def __init__(self, files: Files) -> None:
        from referencing import Registry, Specification

        opaque = Specification.OPAQUE
        resources = [(_address(name), opaque.create_resource(value)) for name, value in files.values.items()]
        self._registry: Final[Registry[Any]] = Registry[Any]().with_resources(resources)
        self._files: Final = {_address(name): name for name in files.values}
        self._found: Final[dict[tuple[str, str], Place]] = {}
        self.root: Final = files.root

    def resolved(self, value: Any, file: str) -> Place:
        """Return `value` itself, or the final target if it is a `$ref`. `file` is the file that contains it.

        Raises DocumentError if there is no target, or if references form a circle.
        """
        place = Place(value, file, "")
        for _ in range(_MAX_HOPS):
            if not isinstance(place.value, dict) or not isinstance(place.value.get("$ref"), str):
                return place
            place = self.lookup(place.value["$ref"], place.file)
        raise DocumentError(f"{value['$ref'][:_MAX_TOLD]}: a reference that leads in a circle")

    def maybe(self, value: Any, file: str) -> JSONObject:
        """Return the object that a value is or refers to; an empty object if it is no object, or the reference has no target."""
        try:
            found = self.resolved(value, file).value
        except DocumentError:
            return {}
        return found if isinstance(found, dict) else {}

    def lookup(self, reference: str, file: str) -> Place:
        """Return the target of one reference in `file`. Raises DocumentError if there is none."""
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
                raise DocumentError(f"{told}: refers to {line(name)}, which was not named; add it with --also")
            value = self._registry.resolver(base_uri=target).lookup(f"#{fragment}").contents
        except Unresolvable:
            raise DocumentError(f"{told}: leads nowhere") from None
        except DocumentError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(f"{told}: cannot be followed: {error}") from None
        return Place(value, self._files[target], f"{target}#{fragment}")


def _address(name: str) -> str:
    """Return the address that stands for the file `name`, escaped, because the name can have characters with a special
    meaning in a URL.
    """
    return _BASE + urllib.parse.quote(name, safe="/", errors="surrogateescape")

"""`$ref`: where one leads, within the files that were named.

JSON pointers and relative addresses are the `referencing` library's, which jsonschema stands on. It is given no way to
retrieve anything, so that a reference to a file or a URL that was not named is an error, and nothing is ever fetched.

Source: OpenAPI Specification 3.1.1, section 4.8.23 (Reference Object); RFC 6901; RFC 3986 section 5. Not here: what a
reference in a schema becomes (schemas.py).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aileron.importing.reading import DocumentError, Files

__all__ = ["Place", "References"]

_BASE: Final = "https://document.invalid/"
"""The folder of the first file: RFC 6761 promises that nothing is at such a name."""
_MAX_HOPS: Final = 20
"""References that lead to references."""
_MAX_TOLD: Final = 200


class Place(NamedTuple):
    """A value of a document, and where it stands: the file is what its own references are relative to."""

    value: Any
    file: str
    at: str
    """Its full address; two references lead to one value if this is the same."""


class References:
    """All files of one description."""

    def __init__(self, files: Files) -> None:
        from referencing import Registry, Specification

        opaque = Specification.OPAQUE
        resources = [(_BASE + name, opaque.create_resource(value)) for name, value in files.values.items()]
        self._registry: Final[Registry[Any]] = Registry[Any]().with_resources(resources)
        self._found: Final[dict[tuple[str, str], Place]] = {}
        self.root: Final = files.root

    def resolved(self, value: Any, file: str) -> Place:
        """`value` itself, or where its `$ref` leads in the end. DocumentError for one that leads nowhere, or in a circle."""
        place = Place(value, file, "")
        for _ in range(_MAX_HOPS):
            if not isinstance(place.value, dict) or not isinstance(place.value.get("$ref"), str):
                return place
            place = self.lookup(place.value["$ref"], place.file)
        raise DocumentError(f"{value['$ref'][:_MAX_TOLD]}: a reference that leads in a circle")

    def maybe(self, value: Any, file: str) -> dict[str, Any]:
        """The object that a value is or refers to; an empty one where it is none."""
        try:
            found = self.resolved(value, file).value
        except DocumentError:
            return {}
        return found if isinstance(found, dict) else {}

    def lookup(self, reference: str, file: str) -> Place:
        """Where one reference leads. DocumentError."""
        known = self._found.get((file, reference))
        if known is None:
            known = self._found[file, reference] = self._looked_up(reference, file)
        return known

    def _looked_up(self, reference: str, file: str) -> Place:
        import urllib.parse

        from referencing.exceptions import Unresolvable

        target, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(_BASE + file, reference))
        told = reference[:_MAX_TOLD]
        if not target.startswith(_BASE):
            raise DocumentError(f"{told}: refers to another address; nothing is fetched that was not named")
        try:
            value = self._registry.resolver(base_uri=_BASE + file).lookup(reference).contents
        except Unresolvable:
            name = urllib.parse.unquote(target.removeprefix(_BASE))
            if urllib.parse.quote(name) not in {urllib.parse.quote(one) for one in self._names()}:
                raise DocumentError(f"{told}: refers to {name}, which was not named; add it with --from") from None
            raise DocumentError(f"{told}: leads nowhere") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(f"{told}: cannot be followed: {error}") from None
        return Place(value, target.removeprefix(_BASE), f"{target}#{fragment}")

    def _names(self) -> list[str]:
        return [uri.removeprefix(_BASE) for uri in self._registry]

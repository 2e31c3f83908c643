"""Parser for the XML of S3's responses. It builds a tree, follows no reference and expands no entity; a DOCTYPE is refused.

Runs inside the jail. Source: Amazon S3's API reference, "ListObjectsV2" and "REST error responses". Not here: requests (api.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from aileron_connector import ExternalApiError

__all__ = ["Element", "parsed"]

MAX_DEPTH: Final = 8
"""Maximum depth of XML elements. An answer to a listing has four levels."""
MAX_ELEMENTS: Final = 20_000
"""Maximum number of XML elements in one answer. 500 objects have 6,000. Together with the bound on bytes it bounds memory."""


@dataclass
class Element:
    """An XML element. Its name has no namespace, because services that speak S3's protocol use different namespaces."""

    name: str
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, name: str) -> list[Element]:
        """Return the child elements with this name, in order."""
        return [child for child in self.children if child.name == name]

    def value(self, name: str) -> str | None:
        """Return the text of the first child element with this name, or None if there is no such child, or it has no text."""
        return next((child.text or None for child in self.all(name)), None)


def parsed(data: bytes) -> Element:
    """Parse a document and return its root element. Raises ExternalApiError if it is malformed, too deep, too large, or has
    a DOCTYPE.
    """
    top = Element("")
    stack = [top]
    count = 0
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def start(name: str, _attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        element = Element(name.rpartition(" ")[2])
        stack[-1].children.append(element)
        stack.append(element)
        if len(stack) - 1 > MAX_DEPTH or count > MAX_ELEMENTS:
            raise ExternalApiError("the service's XML is nested too deeply, or has too many elements")

    def end(_name: str) -> None:
        stack.pop()

    def text(piece: str) -> None:
        stack[-1].text += piece

    def doctype(*_: object) -> None:
        raise ExternalApiError("the service's XML has a DOCTYPE, which S3's never has: refused")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(data, True)
    # The last two are for an encoding that Python does not have
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise ExternalApiError("the service's answer is not XML that can be read") from error
    return top.children[0]

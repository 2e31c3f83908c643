"""Media types of request bodies in a document: which of several is sent, and how its parts are encoded.

Pure. Source: OpenAPI Specification 3.1.1, sections 4.8.14 (Media Type Object) and 4.8.15 (Encoding Object). Not here: sending
bodies (aileron_connector/openapi/media.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, get_args

from aileron.importing.schemas import UnusableError
from aileron.importing.words import is_visible, line
from aileron.model.json_value import JSON, JSONObject
from aileron_connector.openapi.document import Encoding, Style
from aileron_connector.openapi.media import kind_of

__all__ = [
    "MEDIA_TYPE",
    "STYLES",
    "body_words",
    "chosen_media",
    "encodings",
    "is_form",
    "is_json",
    "is_text",
    "maybe_style",
    "unsupported_style",
    "unsupported_styles",
]

STYLES: Final[tuple[Style, ...]] = get_args(Style)
MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+*-]+")
_JSON: Final = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json|\*/\*")
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"


def is_json(kind: str) -> bool:
    """Return whether a media type is JSON, or matches any type."""
    return _JSON.fullmatch(kind) is not None


def is_form(kind: str) -> bool:
    """Return whether a body of this media type is given field by field."""
    return kind in (_FORM, _MULTIPART)


def chosen_media(content: JSONObject) -> tuple[str, JSONObject]:
    """Return the media type to send, preferring JSON, then forms, text and bytes. Raises UnusableError if none can be sent."""
    ranked: list[tuple[int, int, str, JSONObject]] = []
    for number, (said, media) in enumerate(content.items()):
        kind = str(said).partition(";")[0].strip().lower()
        if not isinstance(media, dict):
            continue
        if kind in ("*/*", "application/*"):
            kind = "application/json"
        if MEDIA_TYPE.fullmatch(kind) and "*" not in kind and kind != "multipart/mixed":
            ranked.append((_rank(kind), number, kind, media))
    if not ranked:
        raise UnusableError("no media type of its body can be sent")
    _, _, kind, media = min(ranked, key=lambda candidate: candidate[:2])
    return kind, media


def _rank(kind: str) -> int:
    if kind == "application/json":
        return 0
    if is_json(kind):
        return 1
    return {_FORM: 2, _MULTIPART: 3}.get(kind, 4 if kind.startswith("text/") else 5)


def encodings(media: JSONObject) -> Iterator[tuple[str, Encoding]]:
    """Yield how each field of a form is encoded, for fields whose encoding the document specifies."""
    for name, raw in _encodings(media):
        explode = raw.get("explode")
        yield (
            name,
            Encoding(
                content_type=said if isinstance(said := raw.get("contentType"), str) and is_visible(said) else "",
                style=maybe_style(raw.get("style")),
                explode=explode if isinstance(explode, bool) else None,
                allow_reserved=raw.get("allowReserved") is True,
            ),
        )


def maybe_style(value: JSON) -> Style | None:
    """Return the serialization style (`style` in OpenAPI) that `value` names; None if connectors do not support it."""
    return next((style for style in STYLES if style == value), None)


def unsupported_styles(media: JSONObject) -> dict[str, str]:
    """Return the fields of a form whose style a connector cannot encode, each with the reason."""
    styles = {name: raw["style"] for name, raw in _encodings(media) if raw.get("style") is not None}
    return {name: unsupported_style(style) for name, style in styles.items() if style not in STYLES}


def unsupported_style(style: object) -> str:
    """Return the reason why a value with this serialization style cannot be encoded."""
    return f"the style {line(str(style), 40)!r} is not supported"


def _encodings(media: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    said = media.get("encoding")
    for name, raw in said.items() if isinstance(said, dict) else ():
        if isinstance(raw, dict):
            yield name, raw


def body_words(kind: str, raw: JSONObject) -> str:
    """Return the description, for a model, of a body that is given as one argument."""
    said = line(str(raw.get("description", "")), 120)
    return f"The content ({kind}): {said}" if said else f"The content ({kind})."


def is_text(kind: str) -> bool:
    """Return whether a body of this media type is given as text rather than as base64."""
    return kind_of(kind) != "binary"
